"""KLoM (Georgiev et al. 2024): the divergence of margins between unlearned models and oracles."""

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
    """For each sample KL(unlearned ‖ oracle), and the floor: oracles against as many oracles."""

    ids: Ids
    values: Array
    floor: Array
    models: int
    """On each side."""

    def to_dict(self) -> dict[str, float]:
        """Return the means and 95th percentiles as plain data."""
        parts = {"": self.values, "floor_": self.floor}
        summary = {}
        for prefix, part in parts.items():
            summary[f"{prefix}mean"] = float(np.mean(part))
            summary[f"{prefix}p95"] = p95(part)
        return {**summary, "n": len(self.ids), "models": self.models}


def klom(unlearned: Margins, oracles: Margins, seed: int = 0, span: Span | None = None) -> Klom:
    """Estimate KLoM as a mean over random splits of the models.

    There are 20 bins over the range of all margins, φ is clipped to ±100, and shares are at least
    1e-5. Models before and after unlearning need the same `span` for the same floor.

    Half of the oracles are the reference. The other half, and as many unlearned models, are
    compared with it: for few models KL is far from 0 even if they are equal, so that only equal
    numbers can be compared. Where only some models were trained on a sample, only these count: the
    others had nothing to forget.
    """
    oracles, judged = oracles.at(unlearned.ids), _counting(unlearned)
    span = span_of(oracles, unlearned) if span is None else span
    size = min(int(judged.sum(0).min()), len(oracles) // 2)
    if 2 * size < LEAST:
        raise BadInput(
            f"KLoM needs at least {LEAST} oracles and {LEAST // 2} unlearned models of each "
            f"sample, got {len(oracles)} and {size}."
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
    """Return the lowest and highest margin of each sample, over all models that count."""
    values = [
        _clipped(oracles.values),
        *(np.where(_counting(side), _clipped(side.values), np.nan) for side in unlearned),
    ]
    low: Array = np.min([np.nanmin(side, 0) for side in values], 0)
    high: Array = np.max([np.nanmax(side, 0) for side in values], 0)
    return low, high


def histograms(*sides: Floats, span: Span) -> list[Array]:
    """Return a histogram for each column, over bins that all sides share."""
    low, high = span
    width = np.where(high > low, high - low, 1.0)
    return [
        _shares(np.minimum((_clipped(side) - low) / width * BINS, BINS - 1).astype(np.int64))
        for side in sides
    ]


def divergence(ours: Array, theirs: Array) -> Array:
    """Return the KL divergence of each row of shares in nats."""
    total: Array = (ours * np.log(ours / theirs)).sum(1)
    return total


def _counting(models: Margins) -> Flags:
    """Choose the models that were trained on a sample; all of them where none or all were."""
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
    """Draw entries of each column at random among the allowed ones."""
    keys = torch.rand(values.shape, generator=generator).numpy()
    chosen = np.argsort(np.where(allowed, keys, 2.0), axis=0)[:size]
    return np.take_along_axis(values, chosen, 0)


def p95(values: Array) -> float:
    """Return the 95th percentile."""
    return float(np.quantile(values, 0.95))
