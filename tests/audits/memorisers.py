"""Models that memorise, trained in milliseconds.

Ridge regression on more features than samples, with random labels.
"""

from collections.abc import Iterable
from functools import cache

import numpy as np
import numpy.typing as npt

from duck.audits.scores import Margins, Outputs, Scored, margins

CLASSES, FEATURES, SEEN, UNSEEN = 4, 400, 240, 400
SHARPNESS = 10.0
NAMES = np.array(
    [f"s{number}" for number in range(SEEN)] + [f"t{number}" for number in range(UNSEEN)]
)
KNOWN, NEW = NAMES[:SEEN], NAMES[SEEN:]


@cache
def world(features: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(len(NAMES), features)), generator.integers(
        CLASSES, size=len(NAMES)
    )


def trained(rows: npt.NDArray[np.intp], features: int = FEATURES) -> Outputs:
    """Of a model trained on these rows, its outputs on all samples."""
    inputs, labels = world(features)
    weights = inputs[rows].T @ np.linalg.solve(
        inputs[rows] @ inputs[rows].T + np.eye(len(rows)), np.eye(CLASSES)[labels[rows]]
    )
    return Outputs(NAMES, SHARPNESS * inputs @ weights, labels)


def halves(count: int, generator: np.random.Generator) -> list[npt.NDArray[np.intp]]:
    """Two models that follow each other share the samples out: each is left out by half of all."""
    return [part for _ in range(count // 2) for part in np.split(generator.permutation(SEEN), 2)]


def row(rows: npt.NDArray[np.intp], order: npt.NDArray[np.intp] | None = None) -> Scored:
    """Margins of a model trained on these rows, over all samples, told in this order."""
    outputs = trained(rows)
    order = np.arange(len(NAMES)) if order is None else order
    scores = margins(outputs.logits, outputs.labels)
    return Scored(NAMES[order], scores[order], np.isin(order, rows))


def stack(rows: Iterable[Scored]) -> Margins:
    """Margins of several models that tell their samples in the same order."""
    models = list(rows)
    values = np.stack([model.scores.astype(np.float32) for model in models])
    return Margins(models[0].ids, values, np.stack([model.members for model in models]))


@cache
def shadows(count: int = 32, seed: int = 1) -> Margins:
    """Models on random halves of the known samples."""
    return stack(row(rows) for rows in halves(count, np.random.default_rng(seed)))


@cache
def oracles(count: int = 32, seed: int = 2) -> Margins:
    """Train models without the first half of the known samples, as retraining would."""
    generator = np.random.default_rng(seed)
    rest = np.arange(SEEN // 2, SEEN)
    return stack(
        row(generator.choice(rest, size=len(rest) * 3 // 4, replace=False)) for _ in range(count)
    )


@cache
def kept(count: int = 32, seed: int = 3) -> Margins:
    """Train models on half of the first half as well; nothing is unlearned: the planted leak."""
    generator = np.random.default_rng(seed)
    asked, rest = requests(count, generator), np.arange(SEEN // 2, SEEN)
    others = [generator.choice(rest, size=len(rest) * 3 // 4, replace=False) for _ in range(count)]
    return stack(row(np.concatenate(both)) for both in zip(asked, others, strict=True))


@cache
def forgot(count: int = 32, seed: int = 4) -> Margins:
    """Retrain the models of `kept` without the requested half: perfect unlearning."""
    clean = oracles(count, seed + 100)
    asked = np.zeros((count, len(NAMES)), bool)
    for model, rows in enumerate(requests(count, np.random.default_rng(seed))):
        asked[model, rows] = True
    return Margins(clean.ids, clean.values, asked | clean.members)


def requests(count: int, generator: np.random.Generator) -> list[npt.NDArray[np.intp]]:
    """Halves of the first half of the known samples."""
    return [
        part for _ in range(count // 2) for part in np.split(generator.permutation(SEEN // 2), 2)
    ]


CANDIDATES = NAMES[: SEEN // 2]
