"""Measure every model once, and judge one model by the spread of retrained ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log

import numpy as np
from scipy.stats import norm

from duck.audits.measurements import SMALLEST, Measure, Measurement, mean
from duck.audits.memory import CLASS_LOGIT, PRIMARY, is_comparable
from duck.audits.outputs import ModelOutputs
from duck.audits.scores import Array
from duck.audits.statistics import NORMAL_QUANTILE, Band, holm, prediction_interval
from duck.audits.verdict import (
    FORGOTTEN,
    MAX_ADVANTAGE,
    NO_VERDICT,
    NOT_FORGOTTEN,
    Answer,
    Evidence,
    Grade,
    Limits,
    Question,
    Row,
    Verdict,
)
from duck.types import Estimate

ALPHA = 0.05
MAX_RATIO = 1.5
"""Limit of the excess distance, as a multiple of that between retrained models."""
LEAST_SEPARATION = 3.0
"""A measure says nothing of memory unless the original lies this many spreads of retrained models
away from them."""
MAX_SECONDARY = 0.5
"""Residual memory that a model which is called forgotten may have by other measures than margins.
They scatter more between retrained models."""
MAX_RESOLUTION = 0.5
"""An attack that resolves no smaller advantage can show exposure, and not its absence."""
LEAST_PAIRED = 3
LEAST_SPREAD = 0.01
"""Of residual memory: clipped margins may have no spread at all."""


class MeasurementCache:
    """Measurements of named models, each computed once.

    Distances are measured to the reference models; a reference model is not compared with itself.
    """

    def __init__(self, models: Mapping[str, ModelOutputs]) -> None:
        self.models = models
        self._of_model: dict[tuple[str, str], Measurement] = {}
        self._of_pair: dict[tuple[str, str, str], Array] = {}

    def value(self, measure: Measure, model: str, references: Sequence[str]) -> Measurement:
        """Return the measurement of one model."""
        if measure.of_model is not None:
            key = measure.name, model
            if key not in self._of_model:
                self._of_model[key] = measure.of_model(self.models[model])
            return self._of_model[key]
        others = [name for name in references if name != model]
        rows = np.mean([self._pair(measure, model, other) for other in others], axis=0)
        if len(rows) == 1:
            return Measurement(float(rows[0]), None, None, len(self.models[model].forget))
        return mean(rows)

    def scaled(self, measure: Measure, model: str, references: Sequence[str]) -> float:
        """Return the value of one model on the scale on which it is judged."""
        value = self.value(measure, model, references).value
        return log(max(value, SMALLEST)) if measure.log_scale else value

    def band(self, measure: Measure, references: Sequence[str], least_spread: float = 0.0) -> Band:
        """Return the prediction interval of a further retrained model, on the judged scale."""
        values = [self.scaled(measure, name, references) for name in references]
        return prediction_interval(values, least_spread, shares_pairs=measure.of_model is None)

    def _pair(self, measure: Measure, model: str, other: str) -> Array:
        key = measure.name, model, other
        if key not in self._of_pair:
            assert measure.of_pair is not None
            self._of_pair[key] = measure.of_pair(self.models[model], self.models[other])
        return self._of_pair[key]


@dataclass(frozen=True)
class Judge:
    """Answers the three questions about any model by the same reference models."""

    measurements: MeasurementCache
    measures: Sequence[Measure]
    references: Sequence[str]
    limits: Limits = field(default_factory=Limits)

    @property
    def is_class(self) -> bool:
        """Whether whole classes are forgotten: their logits are measured."""
        return any(measure.name == CLASS_LOGIT for measure in self.measures)

    def grades(self, model: str, further: Sequence[Evidence] = ()) -> dict[Question, Grade]:
        """Return the three grades; `further` is evidence of exposure from a pool."""
        others = [name for name in self.references if name != model]
        return {
            "remembers": self._remembers(model, others),
            "exposed": self._exposed(model, others, further),
            "differs": self._differs(model, others),
        }

    def residual_memory(self, model: str) -> dict[str, Evidence]:
        """Return ρ by each measure of memory that separates the original."""
        others = [name for name in self.references if name != model]
        return {evidence.measure: evidence for evidence in self._memory(model, others)}

    def detectable_memory(self, power: float) -> float | None:
        """Return the residual memory that is recognised with this power; None: none is."""
        measure = next(item for item in self.measures if item.name == PRIMARY[0])
        scaled = self._memory_band(measure, self.references)
        if scaled is None:
            return None
        band, distance = scaled
        half = band.half_width(1 - 2 * ALPHA / len(self._asked("remembers", self.references)))
        return self.limits.margin + (half + float(norm.ppf(power)) * band.spread) / distance

    def _memory_band(
        self, measure: Measure, references: Sequence[str]
    ) -> tuple[Band, float] | None:
        """Return the band of retrained models and the distance of the original from its mean.

        None: the original is too close for the measure to say anything.
        """
        band = self.measurements.band(measure, references)
        distance = self.measurements.scaled(measure, "original", references) - band.mean
        if distance <= LEAST_SEPARATION * band.spread:
            return None
        return self.measurements.band(measure, references, LEAST_SPREAD * distance), distance

    def _asked(self, question: Question, references: Sequence[str]) -> list[Measure]:
        """Return the measures of a question; a spread of distances needs three models."""
        return [
            measure
            for measure in self.measures
            if measure.question == question
            and (measure.of_model is not None or len(references) >= LEAST_PAIRED)
        ]

    def _memory(self, model: str, references: Sequence[str]) -> list[Evidence]:
        found = []
        measures = self._asked("remembers", references)
        models = self.measurements.models
        for measure in measures:
            scaled = self._memory_band(measure, references)
            if scaled is None or not is_comparable(measure.name, models[model], models["original"]):
                continue
            band, distance = scaled
            value = self.measurements.scaled(measure, model, references)
            memory = (value - band.mean) / distance
            found.append(
                Evidence(
                    measure.name,
                    memory,
                    # The lower bound serves to convict by any of the measures and is corrected for
                    # their number, the upper one to acquit by each.
                    memory - band.half_width(1 - 2 * ALPHA / len(measures)) / distance,
                    memory + band.half_width(1 - 2 * ALPHA) / distance,
                    self.limits.margin,
                    band.p_value(value, "greater"),
                    "undecided",
                )
            )
        return _with_holm(found)

    def _remembers(self, model: str, references: Sequence[str]) -> Grade:
        """Answer "no" only if the primary measures lie below the margin and none stands out."""
        found = [
            replace(evidence, answer=self._memory_answer(evidence))
            for evidence in self._memory(model, references)
        ]
        primary = [evidence for evidence in found if evidence.measure in PRIMARY]
        remembering = [evidence for evidence in found if evidence.answer == "yes"]
        if remembering:
            return _grade("yes", max(remembering, key=lambda item: item.low), found)
        if len(primary) < len(PRIMARY):
            return _unknown(self.limits.margin, found)
        doubtful = [evidence for evidence in found if evidence.answer == "undecided"]
        if doubtful:
            return _grade("undecided", max(doubtful, key=lambda item: item.value), found)
        return _grade("no", max(primary, key=lambda item: item.high), found)

    def _memory_answer(self, evidence: Evidence) -> Answer:
        """Answer by one measure.

        Of a class margins say little once a model does not name it: "no" then needs every other
        measure to exclude a large part, too. Of single samples a measure that resolves no such part
        says nothing.
        """
        if evidence.low > evidence.limit:
            return "yes"
        if evidence.measure in PRIMARY:
            return "no" if evidence.high < evidence.limit else "undecided"
        resolves = evidence.high - evidence.value < MAX_SECONDARY - evidence.limit
        is_large = evidence.high >= MAX_SECONDARY and (resolves or self.is_class)
        return "undecided" if evidence.p < ALPHA or is_large else "no"

    def _exposed(self, model: str, references: Sequence[str], further: Sequence[Evidence]) -> Grade:
        measures = self._asked("exposed", references)
        found = [
            self._exposure(measure, model, references, len(measures) + len(further))
            for measure in measures
        ]
        telling = [item for item in _with_holm(found) if _is_telling(item)]
        return _worst([*telling, *further], MAX_ADVANTAGE)

    def _exposure(
        self, measure: Measure, model: str, references: Sequence[str], count: int
    ) -> Evidence:
        """Return an attack as an advantage over retrained models, or a distance as a logarithm.

        An attack counts if it differs from retrained models and from chance: samples that a model
        never saw do not stand out from other unseen ones, whatever its recipe.
        """
        scale = 1.0 if measure.log_scale else 2.0
        band = self.measurements.band(measure, references)
        value = self.measurements.scaled(measure, model, references)
        difference = scale * (value - band.mean)
        half = scale * band.half_width(1 - ALPHA / count)
        wanted = log(MAX_RATIO) if measure.log_scale else self.limits.max_advantage
        target = MAX_ADVANTAGE if wanted is None else wanted
        is_fixed = wanted is not None and not measure.log_scale
        # Where the limit is not given, it is at least what this audit can resolve.
        limit = target if is_fixed else max(target, 2 * half)
        size = difference if measure.alternative == "greater" else abs(difference)
        answer: Answer = "undecided"
        if size + half < limit:
            answer = "no"
        elif size - half > target and self._beats_chance(measure, model, references, count):
            answer = "yes"
        return Evidence(
            measure.name,
            difference,
            difference - half,
            difference + half,
            # "Yes" is beyond what was asked for, "no" within what this audit can resolve.
            target if answer == "yes" else limit,
            band.p_value(value, measure.alternative),
            answer,
        )

    def _beats_chance(
        self, measure: Measure, model: str, references: Sequence[str], count: int
    ) -> bool:
        if measure.unit != "AUC":
            return True
        auc = self.measurements.value(measure, model, references)
        assert auc.low is not None
        assert auc.high is not None
        error = (auc.high - auc.low) / (2 * NORMAL_QUANTILE)
        return abs(auc.value - 0.5) > float(norm.ppf(1 - ALPHA / (2 * count))) * error

    def _differs(self, model: str, references: Sequence[str]) -> Grade:
        """A difference is noted if it is significant; it never decides the verdict."""
        found = []
        measures = self._asked("differs", references)
        for measure in measures:
            band = self.measurements.band(measure, references, least_spread=1e-4)
            value = self.measurements.scaled(measure, model, references)
            half = band.half_width(1 - ALPHA / len(measures))
            difference = value - band.mean
            p = band.p_value(value, measure.alternative)
            found.append(
                Evidence(
                    measure.name, difference, difference - half, difference + half, 0.0, p, "no"
                )
            )
        found = [
            replace(evidence, answer="yes" if evidence.p < ALPHA else "no")
            for evidence in _with_holm(found)
        ]
        return _worst(found, 0.0)


def _is_telling(evidence: Evidence) -> bool:
    """Return whether an answer means something: "no" does not, within a limit beyond any leak."""
    return evidence.answer != "no" or evidence.limit <= max(MAX_RESOLUTION, 2 * log(MAX_RATIO))


def _with_holm(found: Sequence[Evidence]) -> list[Evidence]:
    corrected = holm({evidence.measure: evidence.p for evidence in found})
    return [replace(evidence, p=corrected[evidence.measure]) for evidence in found]


def verdict_of(grades: Mapping[Question, Grade]) -> Verdict:
    """Return the verdict by the first two questions. A mere difference does not decide."""
    answers = {grades["remembers"].answer, grades["exposed"].answer}
    if "yes" in answers:
        return NOT_FORGOTTEN
    return FORGOTTEN if answers == {"no"} else NO_VERDICT


def _grade(answer: Answer, decided: Evidence, found: Sequence[Evidence]) -> Grade:
    return Grade(
        answer,
        decided.measure,
        decided.value,
        decided.low,
        decided.high,
        decided.limit,
        "",
        tuple(found),
    )


def _unknown(limit: float, found: Sequence[Evidence]) -> Grade:
    return Grade("undecided", "", None, None, None, limit, "", tuple(found))


def _worst(found: Sequence[Evidence], limit: float) -> Grade:
    """Return the grade of the evidence that speaks most for "yes"."""
    if not found:
        return _unknown(limit, found)
    order: tuple[Answer, ...] = ("no", "undecided", "yes")
    worst = max(found, key=lambda item: (order.index(item.answer), -item.p))
    return _grade(worst.answer, worst, found)


def unscale(measure: Measure, value: float) -> float:
    """Convert a value back from the judged scale, limited to the range of the unit."""
    if measure.log_scale:
        return exp(value)
    return min(max(value, 0.0), 1.0) if measure.unit in ("%", "AUC") else value


def table_rows(
    measurements: MeasurementCache,
    measures: Sequence[Measure],
    references: Sequence[str],
    p: Mapping[str, float],
    judged: Iterable[str],
) -> dict[str, Row]:
    """Return a row of the table for each measure.

    Distances to retrained models have a row only where there are at least two of these.
    """
    judged_names = set(judged)
    found = {}
    for measure in measures:
        if measure.of_model is None and len(references) < 2:
            continue
        original = measurements.value(measure, "original", references)
        unlearned = measurements.value(measure, "unlearned", references)
        found[measure.name] = Row(
            measure.about,
            measure.unit,
            unlearned.n,
            Estimate(*original[:3]),
            Estimate(*unlearned[:3]),
            _retrained_interval(measurements, measure, references),
            judged=measure.name in judged_names,
            p=p.get(measure.name),
        )
    return found


def _retrained_interval(
    measurements: MeasurementCache, measure: Measure, references: Sequence[str]
) -> Estimate | None:
    """Return the mean of the retrained models and their prediction interval."""
    if len(references) < 2 or (measure.of_model is None and len(references) < 3):
        return None
    band = measurements.band(measure, references)
    return Estimate(*(unscale(measure, value) for value in (band.mean, band.low, band.high)))
