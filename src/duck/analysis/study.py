"""The analysis of a run: t-SNE maps, densities and SHAP maps of its models."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from duck.analysis.attribution import Attribution, background_of, images_of, shap_values
from duck.analysis.feature_space import DIMENSIONS, Densities, Space, measure_densities, tsne
from duck.predict import predict
from duck.records import Count, InvalidRecord, check_equal_lengths, to_plain
from duck.runtime import seeded
from duck.types import Examples, Predictions, Scenario

MAX_STORED_POINTS = 2000
"""Points that are stored of a map."""
RESULT = "analysis.json"
"""The file in the folder of a run."""
MAP_POINTS = 4000
"""Embeddings, of training and test samples together, in a map."""


@dataclass(frozen=True)
class PointCloud:
    """The samples of a split in a map: coordinates, labels, and which are to be forgotten."""

    x: list[float]
    y: list[float]
    label: list[Count]
    forget: list[bool]

    def __post_init__(self) -> None:
        check_equal_lengths(self, "x", "y", "label", "forget")


@dataclass(frozen=True)
class ShapNumbers:
    """The probability of the class of an image, and how well its SHAP values add up to it."""

    probability: float
    background: float
    gap: float


@dataclass(frozen=True, kw_only=True)
class ShapImage:
    """The SHAP maps of an image, one for each model."""

    id: str
    label: int
    title: str
    forgotten: bool
    maps: dict[str, list[list[float]]]
    numbers: dict[str, ShapNumbers]

    def __post_init__(self) -> None:
        for rows in self.maps.values():
            if len({len(row) for row in rows}) != 1 or not rows[0]:
                raise InvalidRecord("has a map without rows of one length")
        if not self.maps:
            raise InvalidRecord("has no maps")


@dataclass(frozen=True)
class ShapStudy:
    """SHAP maps of several images."""

    images: list[ShapImage] = field(default_factory=list)
    background: int | None = None
    """Number of images that stand for a missing pixel."""
    tolerance: float | None = None


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The content of analysis.json. The keys of the mappings are models, then splits."""

    tsne: dict[str, dict[str, PointCloud]] = field(default_factory=dict)
    density: dict[str, Densities] = field(default_factory=dict)
    spaces: dict[str, Space] = field(default_factory=dict)
    shap: ShapStudy | None = None
    classes: list[str] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    """The forgotten classes; none if samples are forgotten."""
    samples: dict[str, Count] = field(default_factory=dict)
    """The size of each split."""
    date: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the analysis as plain data for JSON; without SHAP maps there is no such key."""
        plain = to_plain(self)
        if self.shap is None:
            del plain["shap"]
        return plain


class Split(NamedTuple):
    """The samples of a split, and which of them are to be forgotten."""

    examples: Examples
    forget: Tensor


def analyse(
    models: Mapping[str, nn.Module],
    scenario: Scenario,
    *,
    points: int = MAP_POINTS,
    dimensions: int | float = DIMENSIONS,
    explain: Examples | None = None,
    head: str | None = None,
    seed: int = 0,
) -> Analysis:
    """Analyse these models (original, unlearned, retrained).

    SHAP maps are computed for the images in `explain`.
    """
    start = time.monotonic()
    splits = _splits(scenario)
    points_per_split = max(2, points // len(splits))
    rows = {
        name: _sample_rows(split.examples, points_per_split, seed) for name, split in splits.items()
    }
    maps: dict[str, dict[str, PointCloud]] = {}
    density: dict[str, Densities] = {}
    spaces: dict[str, Space] = {}
    for name, model in models.items():
        predictions = {split: predict(model, part.examples, head) for split, part in splits.items()}
        density[name], spaces[name] = measure_densities(predictions, dimensions)
        maps[name] = _map_panels(predictions, splits, rows, seed)
    return Analysis(
        tsne=maps,
        density=density,
        spaces=spaces,
        shap=None if explain is None else _explain_images(models, scenario, explain, seed),
        classes=list(scenario.data.classes),
        forgotten=forgotten_classes(scenario),
        samples={name: len(split.examples) for name, split in splits.items()},
        date=datetime.now(UTC).date().isoformat(),
        seconds=round(time.monotonic() - start, 2),
    )


def forgotten_classes(scenario: Scenario) -> list[int]:
    """Return the forgotten classes; none if samples are forgotten."""
    if scenario.kind != "class":
        return []
    classes: list[int] = scenario.data.train.labels[scenario.forget].unique().tolist()
    return classes


def _splits(scenario: Scenario) -> dict[str, Split]:
    """Return the training and the test samples. The holdout is left out."""
    data = scenario.data
    splits = {
        "train": Split(data.train, torch.isin(torch.arange(len(data.train)), scenario.forget))
    }
    if data.test is not None and len(scenario.test):
        forget = torch.isin(scenario.test, scenario.forget_test)
        splits["test"] = Split(data.test.take(scenario.test), forget)
    return splits


def _sample_rows(examples: Examples, max_count: int, seed: int) -> Tensor:
    """Choose at most this many rows, in order; the same for every model."""
    order = torch.randperm(len(examples), generator=seeded(seed, "points"))
    return order[:max_count].sort().values


def _map_panels(
    predictions: Mapping[str, Predictions],
    splits: Mapping[str, Split],
    rows: Mapping[str, Tensor],
    seed: int,
) -> dict[str, PointCloud]:
    """Compute one map for all splits of a model, so that its panels share their axes."""
    embeddings = [predictions[name].embeddings[chosen].numpy() for name, chosen in rows.items()]
    points = tsne(np.concatenate(embeddings), seed)
    ends = np.cumsum([len(chosen) for chosen in rows.values()])[:-1]
    panels = {}
    for (name, chosen), places in zip(rows.items(), np.split(points, ends), strict=True):
        stored = slice(0, len(chosen), -(-len(chosen) // MAX_STORED_POINTS))
        x, y = np.round(places[stored].astype(float), 2).T.tolist()
        panels[name] = PointCloud(
            x,
            y,
            label=predictions[name].labels[chosen][stored].tolist(),
            forget=splits[name].forget[chosen][stored].tolist(),
        )
    return panels


def _explain_images(
    models: Mapping[str, nn.Module], scenario: Scenario, explain: Examples, seed: int
) -> ShapStudy:
    """Compute SHAP maps of each image for its own class, in each model."""
    task = scenario.task()
    forgotten = set(task.forget.ids.tolist())
    background = background_of(task.holdout if task.holdout is not None else task.retain, seed)
    images = images_of(explain)
    attributions = {
        name: shap_values(model, images, explain.labels, background)
        for name, model in models.items()
    }
    rows: list[ShapImage] = []
    forgotten_count = 0
    pairs = zip(explain.ids.tolist(), explain.labels.tolist(), strict=True)
    for place, (sample, label) in enumerate(pairs):
        name = sample
        if sample in forgotten:
            # An id could be found from its digest by trying all: forgotten samples get numbers.
            forgotten_count += 1
            name = f"forgotten {forgotten_count}"
        rows.append(
            ShapImage(
                id=name,
                label=label,
                title=f"{scenario.data.classes[label]} ({name})",
                forgotten=sample in forgotten,
                maps={key: _map_of(one, place) for key, one in attributions.items()},
                numbers={key: _numbers_of(one, place) for key, one in attributions.items()},
            )
        )
    return ShapStudy(rows, len(background), next(iter(attributions.values())).tolerance)


def _map_of(attribution: Attribution, place: int) -> list[list[float]]:
    return [[round(value, 5) for value in line] for line in attribution.maps[place].tolist()]


def _numbers_of(attribution: Attribution, place: int) -> ShapNumbers:
    return ShapNumbers(
        probability=round(float(attribution.outputs[place]), 4),
        background=round(float(attribution.base[place]), 4),
        gap=round(float(attribution.gaps[place]), 5),
    )
