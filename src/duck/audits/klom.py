"""KLoM (Georgiev et al. 2024): the divergence of margins, point by point, between unlearned and never-trained models."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from duck.audits.aligned import Flags, Floats, Margins
from duck.errors import BadInput
from duck.runtime import seeded
from duck.types import Ids

BINS = 20
CLIP = 100.0
FLOOR = 1e-5
SPLITS = 8
LEAST = 8
"""Oracles: four against four are the floor."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Klom:
    """For each sample KL(unlearned ‖ oracle), and what oracles show among themselves with the same number of models."""

    ids: Ids
    values: Array
    floor: Array
    models: int
    """On each side."""

    def to_dict(self) -> dict[str, float]:
        parts = {"": self.values, "floor_": self.floor}
        summary = {f"{name}{what}": float(of(part)) for name, part in parts.items() for what, of in (("mean", np.mean), ("p95", _p95))}
        return {**summary, "n": len(self.ids), "models": self.models}


def klom(unlearned: Margins, oracles: Margins, seed: int = 0) -> Klom:
    """20 bins over the range of all, φ clipped to ±100, shares of at least 1e-5; a mean over random splits.

    Half of the oracles are the reference; the other half, and as many unlearned models, are compared with it: KL of few models is
    far from 0 for equal ones, and only equal numbers can be compared. Of a sample that only some of the models were trained on,
    only these count: the others had nothing to forget.
    """
    oracles = oracles.at(unlearned.ids)
    mixed = unlearned.members.any(0) & ~unlearned.members.all(0)
    judged = np.where(mixed, unlearned.members, True)
    size = min(int(judged.sum(0).min()), len(oracles) // 2)
    if 2 * size < LEAST:
        raise BadInput(
            f"KLoM needs at least {LEAST} oracles and {LEAST // 2} unlearned models of each sample, got {len(oracles)} and {size}."
        )
    generator = seeded(seed, "klom")
    values, floor = np.zeros(len(oracles.ids)), np.zeros(len(oracles.ids))
    for _ in range(SPLITS):
        ours = _draw(unlearned.values, judged, size, generator)
        theirs = _draw(oracles.values, np.ones(oracles.values.shape, bool), 2 * size, generator)
        first, second, reference = histograms(ours, theirs[:size], theirs[size:])
        values += divergence(first, reference) / SPLITS
        floor += divergence(second, reference) / SPLITS
    return Klom(oracles.ids, values, floor, size)


def histograms(*sides: Floats) -> list[Array]:
    """Of each column, over bins that all sides share; a row for each column."""
    clipped = [np.clip(side.astype(np.float64), -CLIP, CLIP) for side in sides]
    low, high = np.min([side.min(0) for side in clipped], 0), np.max([side.max(0) for side in clipped], 0)
    width = np.where(high > low, high - low, 1.0)
    return [_shares(np.minimum((side - low) / width * BINS, BINS - 1).astype(np.int64)) for side in clipped]


def divergence(ours: Array, theirs: Array) -> Array:
    """KL of each row of shares, in nats."""
    total: Array = (ours * np.log(ours / theirs)).sum(1)
    return total


def _shares(bins: npt.NDArray[np.int64]) -> Array:
    columns = bins.shape[1]
    counts = np.bincount((bins + BINS * np.arange(columns)).ravel(), minlength=BINS * columns).reshape(columns, BINS)
    raised = np.maximum(counts / len(bins), FLOOR)
    shares: Array = raised / raised.sum(1, keepdims=True)
    return shares


def _draw(values: Floats, allowed: Flags, size: int, generator: torch.Generator) -> Floats:
    """Of each column some allowed entries, at random."""
    keys = torch.rand(values.shape, generator=generator).numpy()
    chosen = np.argsort(np.where(allowed, keys, 2.0), axis=0)[:size]
    return np.take_along_axis(values, chosen, 0)


def _p95(values: Array) -> float:
    return float(np.quantile(values, 0.95))
