"""What training on a sample adds to the confidence in it, and whether unlearning exposes the samples that stay."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from duck.audits.attacks.lira import column_moments
from duck.audits.intervals import Estimate, mean_interval
from duck.audits.roc import roc
from duck.audits.scores import Margins, Scored
from duck.errors import BadInput
from duck.types import Ids

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Memorised:
    """For each sample the mean p_y of models trained on it minus that of models that were not, with its standard error."""

    ids: Ids
    values: Array
    errors: Array


class Leakage(NamedTuple):
    """AUC of telling retained from unseen samples by their margin, a mean over models."""

    before: Estimate
    after: Estimate
    change: Estimate
    """After minus before, model by model."""


def memorisation(models: Margins) -> Memorised:
    """Feldman and Zhang's, by p_y = σ(φ). The models must be alike but for the sample: one that lacks its whole class would show that."""
    values, members, out = expit(models.values.astype(np.float64)), models.members, ~models.members
    for side, what in ((members, "trained on it"), (out, "not trained on it")):
        if not side.size or side.sum(0).min() < 2:
            raise BadInput(
                f"Memorisation needs at least 2 models of each sample that were {what}, one has {side.sum(0).min(initial=0)}."
            )
    (mean_in, std_in), (mean_out, std_out) = (
        column_moments(values, members),
        column_moments(values, out),
    )
    return Memorised(
        models.ids,
        mean_in - mean_out,
        np.sqrt(std_in**2 / members.sum(0) + std_out**2 / out.sum(0)),
    )


def retained_leakage(before: Margins, after: Margins, retained: Ids, unseen: Ids) -> Leakage:
    """Are retained samples easier to tell from unseen ones after unlearning? Row by row the same model before and after."""
    if len(before) != len(after):
        raise BadInput(
            f"{len(before)} models before unlearning and {len(after)} after: give the same models, in the same order."
        )
    then, now = exposure(before, retained, unseen), exposure(after, retained, unseen)
    return Leakage(mean_interval(then), mean_interval(now), mean_interval(now - then))


def exposure(models: Margins, retained: Ids, unseen: Ids) -> Array:
    """For each model, the AUC of its margins as a score for "was trained on": retained against unseen samples."""
    if not len(unseen):
        raise BadInput("Leakage compares with unseen samples, and the holdout is empty.")
    ids = np.concatenate([retained, unseen])
    asked, members = models.at(ids), np.repeat([True, False], [len(retained), len(unseen)])
    return np.array([roc(Scored(ids, values, members)).auc.value for values in asked.values])
