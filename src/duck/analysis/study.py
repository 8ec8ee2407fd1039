"""A run seen from inside: maps and densities of its models' embeddings and, where asked, SHAP maps; plain data, ready for JSON."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from duck.analysis.attribution import background_of, images_of, shap_values
from duck.analysis.feature_space import DIMENSIONS, Densities, Space, measure_densities, tsne
from duck.predict import predict
from duck.runtime import seeded
from duck.types import Examples, Predictions, Scenario

MAX_STORED_POINTS = 2000
"""Most points of a panel that are kept."""
RESULT = "analysis.json"
"""Beside a run."""
MAP_POINTS = 4000
"""Embeddings, of training and test together, that a map is made of."""


def analyse(
    models: Mapping[str, nn.Module],
    scenario: Scenario,
    *,
    points: int = MAP_POINTS,
    dimensions: int | float = DIMENSIONS,
    explain: Examples | None = None,
    head: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """What `analysis.json` holds of these models (original, unlearned, retrained). `explain`: images whose SHAP maps are wanted."""
    begun = time.monotonic()
    parts = _parts(scenario)
    shown = {
        name: _some(rows, max(2, points // len(parts)), seed)
        for name, (_, rows, _) in parts.items()
    }
    maps: dict[str, Any] = {}
    density: dict[str, Densities] = {}
    spaces: dict[str, Space] = {}
    for name, model in models.items():
        said = {split: predict(model, examples, head) for split, (examples, _, _) in parts.items()}
        density[name], spaces[name] = measure_densities(said, dimensions)
        maps[name] = _panels(
            said, shown, {split: forget for split, (_, _, forget) in parts.items()}, seed
        )
    return {
        "tsne": maps,
        "density": density,
        "spaces": {name: space._asdict() for name, space in spaces.items()},
        **({"shap": _shap(models, scenario, explain, seed)} if explain is not None else {}),
        "classes": list(scenario.data.classes),
        "forgotten": forgotten_classes(scenario),
        "samples": {split: len(rows) for split, (_, rows, _) in parts.items()},
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(time.monotonic() - begun, 2),
    }


def forgotten_classes(scenario: Scenario) -> list[int]:
    """Classes that go whole; none where single samples go."""
    return (
        scenario.data.train.labels[scenario.forget].unique().tolist()
        if scenario.kind == "class"
        else []
    )


def _parts(scenario: Scenario) -> dict[str, tuple[Examples, Tensor, Tensor]]:
    """Split -> its examples, their places, and which of them are (of the class) to be forgotten. The holdout is not shown."""
    data, rows = scenario.data, torch.arange(len(scenario.data.train))
    parts = {"train": (data.train, rows, torch.isin(rows, scenario.forget))}
    if data.test is not None and len(scenario.test):
        test = data.test.take(scenario.test)
        parts["test"] = (
            test,
            torch.arange(len(test)),
            torch.isin(scenario.test, scenario.forget_test),
        )
    return parts


def _some(rows: Tensor, most: int, seed: int) -> Tensor:
    """At most so many, in order; the same for every model."""
    return rows[torch.randperm(len(rows), generator=seeded(seed, "points"))[:most]].sort().values


def _panels(
    said: Mapping[str, Predictions],
    shown: Mapping[str, Tensor],
    forget: Mapping[str, Tensor],
    seed: int,
) -> dict[str, Any]:
    """One map for all splits of a model, so that its panels share their axes."""
    embeddings = np.concatenate(
        [said[split].embeddings[rows].numpy() for split, rows in shown.items()]
    )
    placed, panels = (
        np.split(tsne(embeddings, seed), np.cumsum([len(rows) for rows in shown.values()])[:-1]),
        {},
    )
    for (split, rows), where in zip(shown.items(), placed, strict=True):
        kept = slice(0, len(rows), -(-len(rows) // MAX_STORED_POINTS))
        x, y = (np.round(where[kept, axis].astype(float), 2).tolist() for axis in (0, 1))
        label, gone = said[split].labels[rows][kept].tolist(), forget[split][rows][kept].tolist()
        panels[split] = {"x": x, "y": y, "label": label, "forget": gone}
    return panels


def _shap(
    models: Mapping[str, nn.Module], scenario: Scenario, explain: Examples, seed: int
) -> dict[str, Any]:
    """For each image, what raises and lowers the probability of its own class in each model, and whether it was to be forgotten."""
    task = scenario.task()
    gone = set(task.forget.ids.tolist())
    background = background_of(task.holdout if task.holdout is not None else task.retain, seed)
    images = images_of(explain)
    found = {
        name: shap_values(model, images, explain.labels, background)
        for name, model in models.items()
    }
    rows: list[dict[str, Any]] = []
    for place, (sample, label) in enumerate(
        zip(explain.ids.tolist(), explain.labels.tolist(), strict=True)
    ):
        maps = {
            name: [[round(v, 5) for v in line] for line in one.maps[place].tolist()]
            for name, one in found.items()
        }
        numbers = {
            name: _numbers(one.outputs[place], one.base[place], one.gaps[place])
            for name, one in found.items()
        }
        # A digest would tell the id by trying all: forgotten samples are numbered in the order in which they were asked for.
        name = (
            f"forgotten {1 + sum(row['forgotten'] for row in rows)}" if sample in gone else sample
        )
        title = f"{scenario.data.classes[label]} ({name})"
        rows.append(
            {
                "id": name,
                "label": label,
                "title": title,
                "forgotten": sample in gone,
                "maps": maps,
                "numbers": numbers,
            }
        )
    return {
        "images": rows,
        "background": len(background),
        "tolerance": found[next(iter(found))].tolerance,
    }


def _numbers(output: Tensor, base: Tensor, gap: Tensor) -> dict[str, float]:
    return {
        "probability": round(float(output), 4),
        "background": round(float(base), 4),
        "gap": round(float(gap), 5),
    }
