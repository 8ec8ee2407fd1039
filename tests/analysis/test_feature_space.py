"""Maps and densities: numbers by hand, no overflow, all samples counted."""

import math

import numpy as np
import pytest
import torch

from duck.analysis.feature_space import (
    log_density,
    measure_densities,
    tsne,
)
from duck.errors import BadInput
from duck.types import Predictions


def blobs(count: int, width: int, spread: float, apart: float = 20.0, seed: int = 0) -> Predictions:
    """Two classes in so many dimensions, the second one `spread` times as wide."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    points = (
        rng.normal(size=(count, width)) * np.where(labels == 0, 1.0, spread)[:, None]
        + apart * labels[:, None]
    )
    embeddings = torch.from_numpy(points.astype(np.float32))
    return Predictions(
        torch.zeros(count, 2), embeddings, torch.from_numpy(labels), [str(i) for i in range(count)]
    )


def test_density_of_a_circle() -> None:
    points = np.array([[2.0, 0], [-2, 0], [0, 2], [0, -2]]) + 7
    assert log_density(points) == pytest.approx(math.log(4 / (math.pi * 4)))


def test_the_ball_holds_95_percent() -> None:
    near = [[1.0, 0.0], [-1.0, 0.0]] * 18
    points = np.array([*near, [0.0, 3.0], [0.0, -3.0], [0.0, 9.0], [0.0, -9.0]])
    assert log_density(points) == pytest.approx(math.log(38 / (math.pi * 9)))


def test_one_dimension_and_three() -> None:
    assert log_density(np.array([[-3.0], [3.0]])) == pytest.approx(math.log(2 / 6))
    assert log_density(np.array([[0.0, 0, 2], [0, 0, -2]])) == pytest.approx(
        math.log(2 / (4 / 3 * math.pi * 8))
    )


def test_nothing_overflows_in_512_dimensions() -> None:
    points = np.random.default_rng(0).normal(size=(300, 512)) * 1e4
    found = log_density(points)
    assert math.isfinite(found)
    # Twice as wide: less dense by 2 to the power of 512, more than a float can hold.
    assert log_density(2 * points) == pytest.approx(found - 512 * math.log(2))


def test_every_sample_counts_whatever_the_model_calls_it() -> None:
    right = blobs(400, 12, 3.0)
    wrong = Predictions(
        torch.nn.functional.one_hot(1 - right.labels, 2).float(),
        right.embeddings,
        right.labels,
        right.ids,
    )
    assert measure_densities({"train": right})[0] == measure_densities({"train": wrong})[0]
    assert len(measure_densities({"train": right})[0]["train"]) == 2


def test_a_wider_class_is_less_dense_by_its_volume() -> None:
    found, space = measure_densities({"train": blobs(4000, 3, 3.0)}, dimensions=3)
    one, other = found["train"]["0"], found["train"]["1"]
    assert one is not None
    assert other is not None
    assert one - other == pytest.approx(3 * math.log(3), abs=0.4)
    assert space.dimensions == 3
    assert space.variance == pytest.approx(1.0)


def test_nine_dimensions_or_a_share_of_the_variance() -> None:
    part = blobs(300, 40, 1.0, apart=0.0)
    assert measure_densities({"train": part})[1].dimensions == 9
    found = measure_densities({"train": part}, dimensions=0.95)[1]
    assert 9 < found.dimensions < 40
    assert 0.95 <= found.variance < 0.97
    assert measure_densities({"train": blobs(300, 4, 1.0)})[1].dimensions == 4


def test_test_samples_are_measured_in_the_space_of_the_training_samples() -> None:
    part = blobs(300, 40, 1.0)
    turned = Predictions(
        part.logits, part.embeddings * torch.linspace(0, 9, 40), part.labels, part.ids
    )
    alike, _ = measure_densities({"train": part, "test": part})
    other, _ = measure_densities({"train": turned, "test": part})
    assert alike["test"] == alike["train"]
    assert other["test"] != alike["test"]


def test_a_class_on_one_point_has_no_number() -> None:
    part = blobs(20, 4, 1.0)
    part.embeddings[part.labels == 1] = 5.0
    assert measure_densities({"train": part}, dimensions=2)[0]["train"]["1"] is None


@pytest.mark.parametrize("dimensions", [0, -1, 2.5, 1.0001])
def test_dimensions_that_cannot_be(dimensions: float) -> None:
    with pytest.raises(BadInput, match="dimensions is a whole number"):
        measure_densities({"train": blobs(20, 4, 1.0)}, dimensions)


def test_the_map_keeps_clusters_apart_and_is_the_same_each_time() -> None:
    part = blobs(80, 60, 1.0)
    first, again = (tsne(part.embeddings.numpy(), iterations=300) for _ in range(2))
    assert np.array_equal(first, again)
    centres = [first[part.labels.numpy() == label].mean(0) for label in (0, 1)]
    reach = max(
        np.linalg.norm(first[part.labels.numpy() == label] - centres[label], axis=1).mean()
        for label in (0, 1)
    )
    assert np.linalg.norm(centres[0] - centres[1]) > 2 * reach


def test_too_few_for_a_map_or_a_density() -> None:
    with pytest.raises(BadInput, match="map of 3 embeddings"):
        tsne(np.zeros((3, 5)))
    with pytest.raises(BadInput, match="No samples"):
        log_density(np.zeros((0, 3)))
