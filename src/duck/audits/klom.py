"""KLoM (Georgiev et al. 2024): the divergence of margins, point by point, between unlearned and never-trained models."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from duck.audits.scores import Flags, Floats, Margins
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
Span = tuple[Array, Array]
"""The lowest and the highest margin of each sample."""


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
        summary = {
            f"{name}{what}": float(of(part))
            for name, part in parts.items()
            for what, of in (("mean", np.mean), ("p95", p95))
        }
        return {**summary, "n": len(self.ids), "models": self.models}


def klom(unlearned: Margins, oracles: Margins, seed: int = 0, span: Span | None = None) -> Klom:
    """20 bins over the range of all, φ clipped to ±100, shares of at least 1e-5; a mean over random splits.

    Two kinds of models, before and after, are compared with the same oracles over one `span`: then their floors are the same.

    Half of the oracles are the reference; the other half, and as many unlearned models, are compared with it: KL of few models is
    far from 0 for equal ones, and only equal numbers can be compared. Of a sample that only some of the models were trained on,
    only these count: the others had nothing to forget.
    """
    oracles, judged = oracles.at(unlearned.ids), _counting(unlearned)
    span = span_of(oracles, unlearned) if span is None else span
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
        first, second, reference = histograms(ours, theirs[:size], theirs[size:], span=span)
        values += divergence(first, reference) / SPLITS
        floor += divergence(second, reference) / SPLITS
    return Klom(oracles.ids, values, floor, size)


def span_of(oracles: Margins, *unlearned: Margins) -> Span:
    """Over all models that count."""
    values = [
        _clipped(oracles.values),
        *(np.where(_counting(side), _clipped(side.values), np.nan) for side in unlearned),
    ]
    low: Array = np.min([np.nanmin(side, 0) for side in values], 0)
    high: Array = np.max([np.nanmax(side, 0) for side in values], 0)
    return low, high


def histograms(*sides: Floats, span: Span) -> list[Array]:
    """Of each column, over bins that all sides share; a row for each column."""
    low, high = span
    width = np.where(high > low, high - low, 1.0)
    return [
        _shares(np.minimum((_clipped(side) - low) / width * BINS, BINS - 1).astype(np.int64))
        for side in sides
    ]


def divergence(ours: Array, theirs: Array) -> Array:
    """KL of each row of shares, in nats."""
    total: Array = (ours * np.log(ours / theirs)).sum(1)
    return total


def _counting(models: Margins) -> Flags:
    """Of a sample that some models were trained on, these; else all."""
    mixed = models.members.any(0) & ~models.members.all(0)
    return np.where(mixed, models.members, True)


def _clipped(values: Floats) -> Array:
    return np.clip(values.astype(np.float64), -CLIP, CLIP)


def _shares(bins: npt.NDArray[np.int64]) -> Array:
    columns = bins.shape[1]
    counts = np.bincount(
        (bins + BINS * np.arange(columns)).ravel(), minlength=BINS * columns
    ).reshape(columns, BINS)
    raised = np.maximum(counts / len(bins), FLOOR)
    shares: Array = raised / raised.sum(1, keepdims=True)
    return shares


def _draw(values: Floats, allowed: Flags, size: int, generator: torch.Generator) -> Floats:
    """Of each column some allowed entries, at random."""
    keys = torch.rand(values.shape, generator=generator).numpy()
    chosen = np.argsort(np.where(allowed, keys, 2.0), axis=0)[:size]
    return np.take_along_axis(values, chosen, 0)


def p95(values: Array) -> float:
    """What one sample in twenty exceeds."""
    return float(np.quantile(values, 0.95))
