"""Every measure of every model, computed once, and the judgement of one model by the spread of retrained ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from duck.audits.intervals import Band, holm, prediction_interval
from duck.audits.measurements import Measure, Measurement, mean
from duck.audits.outputs import Array, ModelOutputs
from duck.audits.verdict import Interval, Row

ALPHA = 0.05
SMALLEST = 1e-9
"""A distance of 0 has no logarithm."""


@dataclass(frozen=True)
class Judgement:
    """Of one model: p-values of the primary measures, corrected by Holm, and those that lie outside."""

    p: dict[str, float]

    @property
    def outside(self) -> tuple[str, ...]:
        return tuple(name for name, value in self.p.items() if value < ALPHA)

    @property
    def verdict(self) -> str:
        return "not forgotten" if self.outside else "forgotten"


class MeasurementCache:
    """Measures of named models. Distances are taken to the models that are named as references, a model itself left out."""

    def __init__(self, models: Mapping[str, ModelOutputs]) -> None:
        self.models = models
        self._own: dict[tuple[str, str], Measurement] = {}
        self._pairs: dict[tuple[str, str, str], Array] = {}

    def value(self, measure: Measure, who: str, references: Sequence[str]) -> Measurement:
        """Of one model."""
        if measure.own is not None:
            key = measure.name, who
            if key not in self._own:
                self._own[key] = measure.own(self.models[who])
            return self._own[key]
        others = [name for name in references if name != who]
        rows = np.mean([self._pair(measure, who, other) for other in others], axis=0)
        if len(rows) == 1:
            return Measurement(float(rows[0]), None, None, 0.0, len(self.models[who].forget))
        return mean(rows)

    def band(self, measure: Measure, references: Sequence[str]) -> Band:
        """Where a further retrained model would fall, on the scale of `scaled`."""
        values = [self.value(measure, name, references) for name in references]
        return prediction_interval(
            [scaled(measure, value.value) for value in values],
            [_error(measure, value) for value in values],
        )

    def judge(
        self,
        measures: Sequence[Measure],
        who: str,
        references: Sequence[str],
        more: Mapping[str, float] | None = None,
    ) -> Judgement:
        """Of one model by the others: only primary measures count. `more`: p-values of further attacks.

        Holm's correction of the measures does not count the further attacks, which are corrected for all: more tests must not take back
        what fewer found.
        """
        rest = [name for name in references if name != who]
        p = {
            m.name: self.band(m, rest).p_value(scaled(m, self.value(m, who, rest).value))
            for m in measures
            if m.primary
        }
        return Judgement({**holm({**p, **(more or {})}), **holm(p)})

    def _pair(self, measure: Measure, who: str, other: str) -> Array:
        key = measure.name, who, other
        if key not in self._pairs:
            assert measure.pair is not None
            self._pairs[key] = measure.pair(self.models[who], self.models[other])
        return self._pairs[key]


def scaled(measure: Measure, value: float) -> float:
    """On the scale on which a measure is judged."""
    return log(max(value, SMALLEST)) if measure.positive else value


def unscaled(measure: Measure, value: float) -> float:
    if measure.positive:
        return exp(value)
    return min(max(value, 0.0), 1.0) if measure.unit in ("%", "AUC") else value


def _error(measure: Measure, value: Measurement) -> float:
    """The standard error on that scale."""
    return value.error / max(value.value, SMALLEST) if measure.positive else value.error


def rows(
    readings: MeasurementCache,
    measures: Sequence[Measure],
    references: Sequence[str],
    p: Mapping[str, float],
    judged: Iterable[str],
) -> dict[str, Row]:
    """A line of the table for each measure; those that compare with retrained models only where there are some."""
    decisive, found = set(judged), {}
    for measure in measures:
        if measure.own is None and len(references) < 2:
            continue
        value = readings.value(measure, "unlearned", references)
        before, after = (
            Interval(v.value, v.low, v.high)
            for v in (readings.value(measure, "original", references), value)
        )
        found[measure.name] = Row(
            measure.about, measure.unit, value.n, before, after, _spread(readings, measure, references),
            judged=measure.name in decisive, p=p.get(measure.name),
        )  # fmt: skip
    return found


def _spread(
    readings: MeasurementCache, measure: Measure, references: Sequence[str]
) -> Interval | None:
    if len(references) < 2 or (measure.own is None and len(references) < 3):
        return None
    band = readings.band(measure, references)
    return Interval(*(unscaled(measure, value) for value in (band.mean, band.low, band.high)))
