"""Inputs and results of attacks: numbers together with the ids they belong to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from duck.errors import BadInput
from duck.types import Ids

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
BOUND = 1e6
"""Limit of a margin. A masked class has the logit -inf, and a Gaussian needs finite numbers."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A score for each sample, and whether it was a member.

    A higher score means "was a member". A margin is the simplest score.
    """

    ids: Ids
    scores: Floats
    members: Flags
    models: Places | None = None
    """Which model a row belongs to, where several models are scored on the same ids."""

    def __post_init__(self) -> None:
        models = self.ids if self.models is None else self.models
        if not len(self.ids) == len(self.scores) == len(self.members) == len(models):
            raise BadInput(
                f"Lengths differ: {len(self.ids)} ids, {len(self.scores)} scores and "
                f"{len(self.members)} memberships."
            )
        if self.members.dtype != np.bool_:
            raise BadInput(
                f"Membership is true or false for each sample, got {self.members.dtype} values."
            )
        _refuse_nan(self.scores, self.ids, "score")

    def take(self, rows: Flags) -> "Scored":
        """Return some rows, of one model."""
        return Scored(self.ids[rows], self.scores[rows], self.members[rows])


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits of one model: a row for each id."""

    ids: Ids
    logits: Floats
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logits) == len(self.labels):
            raise BadInput(
                f"Lengths differ: {len(self.ids)} ids, {len(self.logits)} outputs and "
                f"{len(self.labels)} labels."
            )
        _refuse_nan(self.logits, self.ids, "output")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Places) -> "Outputs":
        """Return these rows."""
        return Outputs(self.ids[rows], self.logits[rows], self.labels[rows])

    @property
    def probabilities(self) -> Array:
        """The softmax of the logits."""
        return softmax(self.logits)


@dataclass(frozen=True, eq=False)
class Margins:
    """Margins of several models on the same samples: a row for each model, a column for each id."""

    ids: Ids
    values: Floats
    members: Flags
    """Whether the model of this row was trained on the sample of this column, before it was
    requested to forget it."""

    def __post_init__(self) -> None:
        if (
            self.values.ndim != 2
            or self.values.shape != self.members.shape
            or self.values.shape[1] != len(self.ids)
        ):
            raise BadInput(
                f"Margins of shape {self.values.shape}, memberships of shape {self.members.shape} "
                f"and {len(self.ids)} ids do not match: a row is a model, a column a sample."
            )
        if len(np.unique(self.ids)) != len(self.ids):
            raise BadInput(
                "An id occurs twice among the columns of the margins: give each sample once."
            )
        _refuse_nan(self.values, np.broadcast_to(self.ids, self.values.shape), "margin")

    def __len__(self) -> int:
        """Return the number of models."""
        return len(self.values)

    def at(self, ids: Ids) -> "Margins":
        """Return the columns of these samples, in this order."""
        if np.array_equal(self.ids, ids):
            return self
        missing = ids[~np.isin(ids, self.ids)]
        if len(missing):
            raise BadInput(
                f"{len(missing)} of {len(ids)} samples are not among the model's {len(self.ids)}, "
                f"the first is {str(missing[0])!r}."
            )
        order = np.argsort(self.ids, kind="stable")
        chosen = order[np.searchsorted(self.ids, ids, sorter=order)]
        return Margins(ids, self.values[:, chosen], self.members[:, chosen])

    def models(self, rows: Places) -> "Margins":
        """Return the rows of these models."""
        return Margins(self.ids, self.values[rows], self.members[rows])

    def row(self, model: int) -> Scored:
        """Return the margins of one model as scores."""
        return Scored(self.ids, self.values[model], self.members[model])


def _refuse_nan(values: Floats, ids: Any, what: str) -> None:
    wrong = np.isnan(values)
    if wrong.any():
        rows = wrong.any(axis=-1) if what == "output" else wrong
        raise BadInput(
            f"{int(rows.sum())} of {rows.size} {what}s are not a number (NaN), the first of sample "
            f"{str(ids[rows][0])!r}: the model has diverged or its input is broken."
        )


def margins(logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Array:
    """Return φ = z_y - logsumexp over j≠y of z_j in float64 (LiRA, eq. 4).

    It is log(p_y / (1 - p_y)) without the rounding of p. Shapes: logits (..., K), labels (...).
    """
    if logits.ndim != labels.ndim + 1 or logits.shape[:-1] != labels.shape:
        raise BadInput(
            f"Logits of shape {logits.shape} need labels of shape {logits.shape[:-1]}, "
            f"got {labels.shape}."
        )
    if logits.shape[-1] < 2:
        raise BadInput(f"A margin needs at least two classes, got {logits.shape[-1]}.")
    if labels.size and not 0 <= labels.min() <= labels.max() < logits.shape[-1]:
        raise BadInput(
            f"Labels must lie in 0..{logits.shape[-1] - 1}, got {labels.min()}..{labels.max()}."
        )
    others = logits.astype(np.float64)
    if np.isnan(others).any() or np.isposinf(others).any():
        raise BadInput(
            "The model's outputs are not all numbers (NaN or +inf): "
            "it has diverged or its input is broken."
        )
    place = np.expand_dims(labels.astype(np.int64), -1)
    own = np.take_along_axis(others, place, -1)[..., 0]
    np.put_along_axis(others, place, -np.inf, -1)
    rest = logsumexp(others, axis=-1)
    found: Array = np.clip(np.maximum(own, -BOUND) - np.maximum(rest, -BOUND), -BOUND, BOUND)
    return found


def softmax(logits: npt.NDArray[Any]) -> Array:
    """Return the softmax over the last axis in float64."""
    shares: Array = special.softmax(logits.astype(np.float64), axis=-1)
    return shares


def temperature(logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """Return the temperature that makes the outputs calibrated (Guo et al. 2017, sec. 4.2).

    Logits of different models become comparable when each is divided by its own temperature.
    """
    rows, num_classes = np.arange(len(labels)), logits.shape[1]
    # As if one more sample were wrong: of a model without errors the best temperature would be 0.
    wrong = 1 / (len(labels) + 1)

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        right = scaled[rows, labels]
        others = (scaled.sum(1) - right) / (num_classes - 1)
        return float((logsumexp(scaled, axis=1) - (1 - wrong) * right - wrong * others).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 5), method="bounded").x))
