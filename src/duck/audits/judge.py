"""Measure every model once, and judge one model by the spread of retrained ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log

import numpy as np
from scipy.stats import norm

from duck.audits.measurements import SMALLEST, Measure, Measurement, mean
from duck.audits.memory import CLASS_LOGIT, PRIMARY, is_comparable
from duck.audits.outputs import ModelOutputs
from duck.audits.scores import Array
from duck.audits.statistics import (
    NORMAL_QUANTILE,
    Band,
    Compared,
    holm,
    prediction_interval,
)
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
"""A measure of memory is left out unless the original is at least this many standard deviations of
the retrained models above their mean."""
MAX_SECONDARY = 0.5
"""Residual memory that a model which is called forgotten may have by other measures than margins.
They scatter more between retrained models."""
MAX_RESOLUTION = 0.5
"""An attack that resolves no smaller advantage can show exposure, and not its absence."""
MAX_LOG_RESOLUTION = 2 * log(MAX_RATIO)
"""The same for the excess distance, as a logarithm."""
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
        self._of_group: dict[tuple[str, str, tuple[str, ...]], Measurement] = {}

    def value(self, measure: Measure, model: str, references: Sequence[str]) -> Measurement:
        """Return the measurement of one model."""
        if measure.of_model is not None:
            key = measure.name, model
            if key not in self._of_model:
                self._of_model[key] = measure.of_model(self.models[model])
            return self._of_model[key]
        others = [name for name in references if name != model]
        if measure.of_group is not None:
            group = measure.name, model, tuple(others)
            if group not in self._of_group:
                compared = [self.models[name] for name in others]
                self._of_group[group] = measure.of_group(self.models[model], compared)
            return self._of_group[group]
        rows = np.mean([self._pair(measure, model, other) for other in others], axis=0)
        if len(rows) == 1:
            return Measurement(float(rows[0]), None, None, len(self.models[model].forget))
        return mean(rows)

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

    def grades(self, model: str, further: Sequence[Evidence] = ()) -> dict[Question, Grade]:
        """Return the three grades; `further` is evidence of exposure from a pool."""
        judge = self._without(model)
        return {
            "remembers": judge._remembers(model),
            "exposed": judge._exposed(model, further),
            "differs": judge._differs(model),
        }

    def residual_memory(self, model: str) -> dict[str, Evidence]:
        """Return ρ by each measure of memory that separates the original."""
        return {evidence.measure: evidence for evidence in self._without(model)._memory(model)}

    def detectable_memory(self, power: float) -> float | None:
        """Return the residual memory that is recognised with this power; None: none is."""
        measure = next(item for item in self.measures if item.name == PRIMARY[0])
        scaled = self._memory_band(measure)
        if scaled is None:
            return None
        band, distance = scaled
        half = band.half_width(1 - 2 * ALPHA / len(self._measures_of("remembers")))
        return self.limits.margin + (half + float(norm.ppf(power)) * band.spread) / distance

    def rows(self, p: Mapping[str, float], judged: Collection[str]) -> dict[str, Row]:
        """Return a row of the table for each measure, with its p-value.

        Distances to retrained models have a row only where there are at least two of these.
        """
        rows = {}
        for measure in self.measures:
            if measure.of_model is None and len(self.references) < 2:
                continue
            original = self.measurements.value(measure, "original", self.references)
            unlearned = self.measurements.value(measure, "unlearned", self.references)
            rows[measure.name] = Row(
                measure.about,
                measure.unit,
                unlearned.n,
                Estimate(*original[:3]),
                Estimate(*unlearned[:3]),
                self._retrained_interval(measure),
                judged=measure.name in judged,
                p=p.get(measure.name),
            )
        return rows

    def _retrained_interval(self, measure: Measure) -> Estimate | None:
        """Return the mean of the retrained models and their prediction interval."""
        if len(self.references) < (2 if measure.of_model else LEAST_PAIRED):
            return None
        band = self._band(measure)
        return Estimate(*(_unscale(measure, value) for value in (band.mean, band.low, band.high)))

    def _without(self, model: str) -> "Judge":
        """Return a judge that does not compare a retrained model with itself."""
        return replace(self, references=[name for name in self.references if name != model])

    def _scaled(self, measure: Measure, model: str) -> float:
        """Return the value of one model on the scale on which it is judged."""
        value = self.measurements.value(measure, model, self.references).value
        return log(max(value, SMALLEST)) if measure.log_scale else value

    def _band(self, measure: Measure, least_spread: float = 0.0) -> Band:
        """Return the prediction interval of a further retrained model, on the judged scale."""
        values = [self._scaled(measure, name) for name in self.references]
        compared: Compared = "alone"
        if measure.of_model is None:
            compared = "pairs" if measure.of_group is None else "group"
        return prediction_interval(values, least_spread, compared)

    def _memory_band(self, measure: Measure) -> tuple[Band, float] | None:
        """Return the band of retrained models and the distance of the original from its mean.

        None: the original is too close to retrained models.
        """
        band = self._band(measure)
        distance = self._scaled(measure, "original") - band.mean
        if distance <= LEAST_SEPARATION * band.spread:
            return None
        return self._band(measure, LEAST_SPREAD * distance), distance

    def _measures_of(self, question: Question) -> list[Measure]:
        """Return the measures of a question; a spread of distances needs three models."""
        return [
            measure
            for measure in self.measures
            if measure.question == question
            and (measure.of_model is not None or len(self.references) >= LEAST_PAIRED)
        ]

    def _memory(self, model: str) -> list[Evidence]:
        found = []
        measures = self._measures_of("remembers")
        models = self.measurements.models
        for measure in measures:
            scaled = self._memory_band(measure)
            if scaled is None or not is_comparable(measure.name, models[model], models["original"]):
                continue
            band, distance = scaled
            value = self._scaled(measure, model)
            memory = (value - band.mean) / distance
            found.append(
                Evidence(
                    measure.name,
                    memory,
                    # One lower bound above the limit is enough for "yes", so that it is corrected
                    # for the number of measures. "No" needs every upper bound below the limit.
                    memory - band.half_width(1 - 2 * ALPHA / len(measures)) / distance,
                    memory + band.half_width(1 - 2 * ALPHA) / distance,
                    self.limits.margin,
                    band.p_value(value, "greater"),
                    "undecided",
                )
            )
        return _with_holm(found)

    def _remembers(self, model: str) -> Grade:
        """Answer "no" only if the primary measures lie below the margin and none stands out."""
        found = [
            replace(evidence, answer=self._memory_answer(evidence))
            for evidence in self._memory(model)
        ]
        primary = [evidence for evidence in found if evidence.measure in PRIMARY]
        positive = [evidence for evidence in found if evidence.answer == "yes"]
        if positive:
            return _grade("yes", max(positive, key=lambda item: item.low), found)
        if len(primary) < len(PRIMARY):
            return _unknown(self.limits.margin, found)
        undecided = [evidence for evidence in found if evidence.answer == "undecided"]
        if undecided:
            return _grade("undecided", max(undecided, key=lambda item: item.value), found)
        return _grade("no", max(primary, key=lambda item: item.high), found)

    def _memory_answer(self, evidence: Evidence) -> Answer:
        """Answer by one measure.

        If a model no longer predicts a class, margins show little memory of it: "no" then requires
        that every other measure also excludes a large part. For single samples, a measure that
        cannot resolve such a part is ignored.
        """
        if evidence.low > evidence.limit:
            return "yes"
        if evidence.measure in PRIMARY:
            return "no" if evidence.high < evidence.limit else "undecided"
        is_class = any(measure.name == CLASS_LOGIT for measure in self.measures)
        resolves = evidence.high - evidence.value < MAX_SECONDARY - evidence.limit
        is_large = evidence.high >= MAX_SECONDARY and (resolves or is_class)
        return "undecided" if evidence.p < ALPHA or is_large else "no"

    def _exposed(self, model: str, further: Sequence[Evidence]) -> Grade:
        measures = self._measures_of("exposed")
        count = len(measures) + len(further)
        found = _with_holm([self._exposure(measure, model, count) for measure in measures])
        logarithms = {measure.name for measure in measures if measure.log_scale}
        # An advantage below a limit that the user has set answers "no", however large the limit is.
        largest = max(MAX_RESOLUTION, self.limits.max_advantage or 0.0)
        informative = [
            item
            for item in (*found, *further)
            if item.answer != "no"
            or item.limit <= (MAX_LOG_RESOLUTION if item.measure in logarithms else largest)
        ]
        return _worst(informative, MAX_ADVANTAGE)

    def _exposure(self, measure: Measure, model: str, count: int) -> Evidence:
        """Return an attack as an advantage over retrained models, or a distance as a logarithm.

        An attack counts if it differs from retrained models and from chance: samples that a model
        never saw do not stand out from other unseen ones, whatever its recipe.
        """
        scale = 1.0 if measure.log_scale else 2.0
        band = self._band(measure)
        value = self._scaled(measure, model)
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
        elif size - half > target and self._beats_chance(measure, model, count):
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

    def _beats_chance(self, measure: Measure, model: str, count: int) -> bool:
        if measure.unit != "AUC":
            return True
        auc = self.measurements.value(measure, model, self.references)
        assert auc.low is not None
        assert auc.high is not None
        error = (auc.high - auc.low) / (2 * NORMAL_QUANTILE)
        return abs(auc.value - 0.5) > float(norm.ppf(1 - ALPHA / (2 * count))) * error

    def _differs(self, model: str) -> Grade:
        """Report significant differences. They never decide the verdict."""
        found = []
        measures = self._measures_of("differs")
        for measure in measures:
            band = self._band(measure, least_spread=1e-4)
            value = self._scaled(measure, model)
            half = band.half_width(1 - ALPHA / len(measures))
            low, high = value - band.mean - half, value - band.mean + half
            p = band.p_value(value, measure.alternative)
            found.append(Evidence(measure.name, value - band.mean, low, high, 0.0, p, "no"))
        found = [
            replace(evidence, answer="yes" if evidence.p < ALPHA else "no")
            for evidence in _with_holm(found)
        ]
        return _worst(found, 0.0)


def _with_holm(found: Sequence[Evidence]) -> list[Evidence]:
    corrected = holm({evidence.measure: evidence.p for evidence in found})
    return [replace(evidence, p=corrected[evidence.measure]) for evidence in found]


def verdict_of(grades: Mapping[Question, Grade]) -> Verdict:
    """Return the verdict by the first two questions. The third one does not affect it."""
    answers = {grades["remembers"].answer, grades["exposed"].answer}
    if "yes" in answers:
        return NOT_FORGOTTEN
    return FORGOTTEN if answers == {"no"} else NO_VERDICT


def _grade(answer: Answer, decided: Evidence, found: Sequence[Evidence]) -> Grade:
    interval = (decided.value, decided.low, decided.high)
    return Grade(answer, decided.measure, *interval, decided.limit, "", tuple(found))


def _unknown(limit: float, found: Sequence[Evidence]) -> Grade:
    return Grade("undecided", "", None, None, None, limit, "", tuple(found))


def _worst(found: Sequence[Evidence], limit: float) -> Grade:
    """Return the grade of the evidence that speaks most for "yes"."""
    if not found:
        return _unknown(limit, found)
    order: tuple[Answer, ...] = ("no", "undecided", "yes")
    worst = max(found, key=lambda item: (order.index(item.answer), -item.p))
    return _grade(worst.answer, worst, found)


def _unscale(measure: Measure, value: float) -> float:
    """Convert a value back from the judged scale, limited to the range of the unit."""
    if measure.log_scale:
        return exp(value)
    return min(max(value, 0.0), 1.0) if measure.unit in ("%", "AUC") else value
