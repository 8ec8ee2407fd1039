"""The judgement of one model by others, with numbers by hand."""

import numpy as np
import pytest

from duck.audits.judge import MeasurementCache
from duck.audits.measurements import Measure
from tests.audits.witnesses import model


def test_the_measuring_error_of_a_distance_counts_on_its_logarithmic_scale() -> None:
    """Every pair is 1 and 3 apart: mean 2 with error 1, on the logarithmic scale 1/2."""
    names = ["a", "b", "c"]
    measurements = MeasurementCache(
        {name: model(index, knows=False) for index, name in enumerate(names)}
    )
    distance = Measure(
        "distance", "", "nats", of_pair=lambda seen, other: np.array([1.0, 3.0]), log_scale=True
    )
    band = measurements.band(distance, names)
    assert band.mean == pytest.approx(np.log(2))
    assert band.spread == pytest.approx(0.5 * (1 + 1 / 3) ** 0.5)
