"""Memorisation of single samples, and leakage of retained samples by unlearning."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from duck.audits.attacks.lira import column_moments
from duck.audits.intervals import SampleEstimate, mean_interval
from duck.audits.roc import roc
from duck.audits.scores import Margins, Scored
from duck.errors import BadInput
from duck.types import Ids

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Memorisation:
    """Mean p_y of models trained on a sample minus that of the others, with its standard error."""

    ids: Ids
    values: Array
    errors: Array


class Leakage(NamedTuple):
    """AUC of separating retained from unseen samples by their margin, a mean over models."""

    before: SampleEstimate
    after: SampleEstimate
    change: SampleEstimate
    """After minus before, as a mean of differences over models."""


def memorisation(models: Margins) -> Memorisation:
    """Measure memorisation (Feldman and Zhang 2020) by p_y = σ(φ).

    The models must differ by the sample alone: in models without its whole class the class would
    be measured.
    """
    values, members, out = expit(models.values.astype(np.float64)), models.members, ~models.members
    for side, what in ((members, "trained on it"), (out, "not trained on it")):
        if not side.size or side.sum(0).min() < 2:
            raise BadInput(
                f"Memorisation needs at least 2 models of each sample that were {what}, "
                f"one has {side.sum(0).min(initial=0)}."
            )
    (mean_in, std_in), (mean_out, std_out) = (
        column_moments(values, members),
        column_moments(values, out),
    )
    return Memorisation(
        models.ids,
        mean_in - mean_out,
        np.sqrt(std_in**2 / members.sum(0) + std_out**2 / out.sum(0)),
    )


def retained_leakage(before: Margins, after: Margins, retained: Ids, unseen: Ids) -> Leakage:
    """Measure whether unlearning makes retained samples easier to separate from unseen ones.

    Row i of `before` and of `after` is the same model.
    """
    if len(before) != len(after):
        raise BadInput(
            f"{len(before)} models before unlearning and {len(after)} after: "
            "give the same models, in the same order."
        )
    then, now = exposure(before, retained, unseen), exposure(after, retained, unseen)
    return Leakage(mean_interval(then), mean_interval(now), mean_interval(now - then))


def exposure(models: Margins, retained: Ids, unseen: Ids) -> Array:
    """Return for each model the AUC of its margins: retained against unseen samples."""
    if not len(unseen):
        raise BadInput("Leakage compares with unseen samples, and the holdout is empty.")
    ids = np.concatenate([retained, unseen])
    asked, members = models.at(ids), np.repeat([True, False], [len(retained), len(unseen)])
    return np.array([roc(Scored(ids, values, members)).auc.value for values in asked.values])
