"""Inputs and results of attacks: numbers together with the ids they belong to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from duck.audits.margins import margins, softmax
from duck.errors import BadInput
from duck.types import Ids, Predictions

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


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
        lengths = {
            len(self.ids),
            len(self.scores),
            len(self.members),
            len(self.ids if self.models is None else self.models),
        }
        if len(lengths) > 1:
            raise BadInput(
                f"Lengths differ: {len(self.ids)} ids, {len(self.scores)} scores and "
                f"{len(self.members)} memberships."
            )
        if self.members.dtype != np.bool_:
            raise BadInput(
                f"Membership is true or false for each sample, got {self.members.dtype} values."
            )
        _refuse_nan(self.scores, self.ids, "score")


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits of one model: a row for each id."""

    ids: Ids
    logits: Floats
    labels: npt.NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logits) == len(self.labels):
            raise BadInput(
                f"Lengths differ: {len(self.ids)} ids, {len(self.logits)} outputs and "
                f"{len(self.labels)} labels."
            )
        _refuse_nan(self.logits, self.ids, "output")

    @staticmethod
    def of(predictions: Predictions) -> "Outputs":
        """Convert predictions."""
        return Outputs(
            np.asarray(predictions.ids), predictions.logits.numpy(), predictions.labels.numpy()
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """The softmax of the logits."""
        return softmax(self.logits)

    def scored(self, members: Flags) -> Scored:
        """Score the samples by their margins; `members` is in the order of the ids."""
        return Scored(self.ids, margins(self.logits, self.labels), members)


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

    @staticmethod
    def stack(rows: Iterable[Scored]) -> "Margins":
        """Stack the margins of several models, each sorted by its own ids.

        Margins are stored as float32, and the logits of all models are never held at once.
        """
        ids: Ids | None = None
        values, members = [], []
        for row in rows:
            ids = row.ids if ids is None else ids
            if len(row.ids) != len(ids):
                raise BadInput(
                    f"A model has margins of {len(row.ids)} samples, the first one of {len(ids)}: "
                    "all models need the same samples."
                )
            order = places(row.ids, ids)
            values.append(row.scores[order].astype(np.float32))
            members.append(row.members[order])
        if ids is None:
            raise BadInput("Margins need at least one model.")
        return Margins(ids, np.stack(values), np.stack(members))

    def __len__(self) -> int:
        """Return the number of models."""
        return len(self.values)

    def at(self, ids: Ids) -> "Margins":
        """Return the columns of these samples, in this order."""
        chosen = places(self.ids, ids)
        return Margins(ids, self.values[:, chosen], self.members[:, chosen])

    def models(self, rows: Places) -> "Margins":
        """Return the rows of these models."""
        return Margins(self.ids, self.values[rows], self.members[rows])

    def row(self, model: int) -> Scored:
        """Return the margins of one model as scores."""
        return Scored(self.ids, self.values[model], self.members[model])


def places(known: Ids, wanted: Ids) -> Places:
    """Return the position of each wanted id among the known ones."""
    if np.array_equal(known, wanted):
        return np.arange(len(known))
    missing = wanted[~np.isin(wanted, known)]
    if len(missing):
        raise BadInput(
            f"{len(missing)} of {len(wanted)} samples are not among the model's {len(known)}, "
            f"the first is {str(missing[0])!r}."
        )
    order = np.argsort(known, kind="stable")
    return order[np.searchsorted(known, wanted, sorter=order)]


def _refuse_nan(values: Floats, ids: Any, what: str) -> None:
    wrong = np.isnan(values)
    if wrong.any():
        rows = wrong.any(axis=-1) if what == "output" else wrong
        raise BadInput(
            f"{int(rows.sum())} of {rows.size} {what}s are not a number (NaN), the first of sample "
            f"{str(ids[rows][0])!r}: the model has diverged or its input is broken."
        )
