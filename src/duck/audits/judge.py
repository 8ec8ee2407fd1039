"""Measure every model once, and judge one model by the spread of retrained ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from duck.audits.intervals import Band, holm, prediction_interval
from duck.audits.measurements import Measure, Measurement, mean
from duck.audits.outputs import Array, ModelOutputs
from duck.audits.verdict import FORGOTTEN, NOT_FORGOTTEN, Row, Verdict
from duck.types import Estimate

ALPHA = 0.05
SMALLEST = 1e-9
"""Replaces a distance of 0, which has no logarithm."""


@dataclass(frozen=True)
class Judgement:
    """The p-values of the decisive measures of one model, corrected by Holm's method."""

    p: dict[str, float]

    @property
    def outside(self) -> tuple[str, ...]:
        """The measures that differ significantly from retrained models."""
        return tuple(name for name, value in self.p.items() if value < ALPHA)

    @property
    def verdict(self) -> Verdict:
        """The verdict by these measures alone."""
        return NOT_FORGOTTEN if self.outside else FORGOTTEN


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
            return Measurement(float(rows[0]), None, None, 0.0, len(self.models[model].forget))
        return mean(rows)

    def band(self, measure: Measure, references: Sequence[str]) -> Band:
        """Return the prediction interval of a further retrained model, on the scale of `scale`."""
        values = [self.value(measure, name, references) for name in references]
        return prediction_interval(
            [scale(measure, value.value) for value in values],
            [_scaled_error(measure, value) for value in values],
        )

    def judge(
        self,
        measures: Sequence[Measure],
        model: str,
        references: Sequence[str],
        attack_p: Mapping[str, float] | None = None,
    ) -> Judgement:
        """Judge one model by the reference models; only decisive measures count.

        `attack_p` holds p-values of further attacks, which are corrected for the number of all
        tests. The measures are corrected for their own number alone: more tests must not take back
        what fewer tests found.
        """
        others = [name for name in references if name != model]
        p = {}
        for measure in measures:
            if measure.decisive:
                value = scale(measure, self.value(measure, model, others).value)
                p[measure.name] = self.band(measure, others).p_value(value)
        return Judgement({**holm({**p, **(attack_p or {})}), **holm(p)})

    def _pair(self, measure: Measure, model: str, other: str) -> Array:
        key = measure.name, model, other
        if key not in self._of_pair:
            assert measure.of_pair is not None
            self._of_pair[key] = measure.of_pair(self.models[model], self.models[other])
        return self._of_pair[key]


def scale(measure: Measure, value: float) -> float:
    """Convert a value to the scale on which its measure is judged."""
    return log(max(value, SMALLEST)) if measure.log_scale else value


def unscale(measure: Measure, value: float) -> float:
    """Convert a value back from the scale of `scale`, limited to the range of the unit."""
    if measure.log_scale:
        return exp(value)
    return min(max(value, 0.0), 1.0) if measure.unit in ("%", "AUC") else value


def _scaled_error(measure: Measure, value: Measurement) -> float:
    """Return the standard error on the scale of `scale`."""
    return value.error / max(value.value, SMALLEST) if measure.log_scale else value.error


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
