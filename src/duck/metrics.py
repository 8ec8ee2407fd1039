"""Scores of an unlearned model: accuracies, AUS, loss of accuracy, and whether it forgot."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.predict import accuracy, outcomes
from duck.records import ClassIndex, Count, Loss, Share
from duck.types import Data, Scenario

SMALL = 200
"""With fewer forget samples their accuracy is too coarse to rank methods by AUS."""

MAX_ACCURACY_LOSS = 0.05
"""Accuracy on retained classes that a model may lose, if the user sets no limit."""
STANDARD_ERRORS = 3
"""The default limit is at least this many standard errors: few samples show no small loss."""
ONE_SIDED = 1.645
"""Standard errors below 0.5 from which a mean rank is low: 5 % of unseen samples have one."""
TOO_MUCH_LOST = "The model lost too much accuracy"
KEPT = "The model kept its accuracy"

Confusion = dict[ClassIndex, dict[ClassIndex, Count]]
"""True class -> predicted class -> count, without zeros. The keys are text, as in JSON."""


@dataclass(frozen=True)
class Scores:
    """Accuracies in 0..1 and the AUS; a split that does not exist is None."""

    aus: float | None
    forget: Share
    retain: Share | None
    test: Share | None
    forget_test: Share | None
    retain_test: Share | None
    forget_loss: Loss
    """Mean cross-entropy on the forget samples: it changes even if the accuracy of few does not."""
    forget_rank: Share | None = None
    """Mean rank, in 0..1, of the forget samples' losses among those of unseen samples of the same
    class: about 0.5 if the model never saw them, lower if it knows them. None if whole classes are
    forgotten or there are no such samples."""


@dataclass(frozen=True)
class KeptAccuracy:
    """Accuracy on unseen samples before and after, and whether the loss exceeds the limit."""

    split: str
    """The split: unseen samples, of retained classes if classes are forgotten; retain samples if
    there are no unseen ones."""
    original: Share
    unlearned: Share
    n: Count
    limit: Share
    """The largest loss that is accepted."""
    damaged: bool

    def __str__(self) -> str:
        split = self.split.replace("_", "-")
        return (
            f"{TOO_MUCH_LOST if self.damaged else KEPT}: {split} accuracy "
            f"{'fell' if self.unlearned < self.original else 'went'} from "
            f"{100 * self.original:.1f} % to {100 * self.unlearned:.1f} % (n = {self.n}); "
            f"the limit is {100 * self.limit:.1f} points."
        )


def aus(kind: str, original_test: float, test: float, forget: float) -> float:
    """Return the Adaptive Unlearning Score (DUCK, eq. 6).

    In class removal the accuracies are those on the test split, of retained and of forgotten
    classes. Otherwise `forget` is the accuracy on the forget samples, which should equal that on
    unseen samples.
    """
    for name, value in (("original_test", original_test), ("test", test), ("forget", forget)):
        if not 0 <= value <= 1:
            raise BadInput(f"{name} must be an accuracy in [0, 1], got {value}.")
    delta = forget if kind == "class" else abs(test - forget)
    return (1 - (original_test - test)) / (1 + delta)


def kept_accuracy(
    split: str, original: float, unlearned: float, n: int, limit: float | None = None
) -> KeptAccuracy:
    """Compare the accuracy with that of the original.

    limit       largest acceptable loss, in 0..1; None: the larger of 5 points and 3 standard errors
    """
    check_limit(limit)
    if limit is None:
        noise = STANDARD_ERRORS * _error_of_difference(original, unlearned, n)
        limit = min(1.0, max(MAX_ACCURACY_LOSS, noise))
    return KeptAccuracy(split, original, unlearned, n, limit, damaged=original - unlearned > limit)


def check_limit(limit: float | None) -> None:
    """Raise an error if a limit on the accuracy loss is not in [0, 1]."""
    if limit is not None and not 0 <= limit <= 1:
        raise BadInput(
            "The largest accepted loss of accuracy is a share in [0, 1], such as 0.05 for 5 points;"
            f" got {limit}."
        )


def _error_of_difference(first: float, second: float, n: int) -> float:
    """Return the standard error of the difference of two accuracies.

    One success and one failure are added to each (Agresti and Caffo 2000), so that it is not 0 if
    all of a few samples are right.
    """
    shares = ((share * n + 1) / (n + 2) for share in (first, second))
    return math.sqrt(sum(share * (1 - share) for share in shares) / (n + 2))


def evaluate(model: nn.Module, scenario: Scenario, original: Scores | None = None) -> Scores:
    """Return scores on data that no stop rule used.

    original    the scores of the original; None: the model is the original
    """
    data = scenario.data
    forget = outcomes(model, data.train.take(scenario.forget))
    forget_accuracy = float(forget.correct.double().mean())
    forget_loss = float(forget.losses.double().mean())
    retain = None
    if len(scenario.retain):
        retain = accuracy(model, data.train.take(scenario.retain))
    if data.test is None or not len(scenario.test):
        return Scores(None, forget_accuracy, retain, None, None, None, forget_loss)
    unseen = outcomes(model, data.test)
    correct = unseen.correct.double().cpu()
    accuracies = {}
    for name in ("test", "forget_test", "retain_test"):
        rows = getattr(scenario, name)
        accuracies[name] = float(correct[rows].mean()) if len(rows) else None
    forgotten = accuracies["forget_test"] if scenario.kind == "class" else forget_accuracy
    split = _kept_split(scenario)
    after = accuracies[split]
    before = after if original is None else getattr(original, split)
    score = rank = None
    if after is not None and forgotten is not None and before is not None:
        score = aus(scenario.kind, before, after, forgotten)
    if scenario.kind == "samples":
        rank = mean_loss_rank(
            forget.losses.cpu(),
            data.train.labels[scenario.forget],
            unseen.losses.cpu()[scenario.test],
            data.test.labels[scenario.test],
        )
    return Scores(
        score, forget_accuracy, retain, **accuracies, forget_loss=forget_loss, forget_rank=rank
    )


def _kept_split(scenario: Scenario) -> str:
    """Return the split of unseen samples whose accuracy should not fall."""
    return "retain_test" if scenario.kind == "class" else "test"


def judge_kept(
    scenario: Scenario, original: Scores, unlearned: Scores, limit: float | None = None
) -> KeptAccuracy | None:
    """Return what an unlearning cost in accuracy; `limit` as in `kept_accuracy`.

    None: there are neither unseen nor retain samples.
    """
    split = _kept_split(scenario)
    if getattr(original, split) is None:
        split = "retain"
    before, after = getattr(original, split), getattr(unlearned, split)
    if before is None or after is None:
        return None
    return kept_accuracy(split, before, after, len(getattr(scenario, split)), limit)


def mean_loss_rank(
    losses: Tensor, labels: Tensor, unseen_losses: Tensor, unseen_labels: Tensor
) -> float | None:
    """Return the mean rank, in 0..1, of losses among those of unseen samples of the same class.

    Half of equal losses count as lower. Samples of classes without unseen samples are left out;
    None if no sample is left.
    """
    compared = torch.isin(labels, unseen_labels)
    if not compared.any():
        return None
    ranks = torch.zeros(len(losses), dtype=torch.float64)
    for label in labels[compared].unique():
        others = unseen_losses[unseen_labels == label].sort().values
        own = losses[labels == label].contiguous()
        lower = torch.searchsorted(others, own).double()
        lower_or_equal = torch.searchsorted(others, own, right=True).double()
        ranks[labels == label] = (lower + lower_or_equal) / (2 * len(others))
    return float(ranks[compared].mean())


def confusion(model: nn.Module, scenario: Scenario) -> Confusion | None:
    """Return the confusion matrix of the reported test samples; None if there are none."""
    data = scenario.data
    if data.test is None or not len(scenario.test):
        return None
    reported = data.test.take(scenario.test)
    pairs = torch.stack([reported.labels, outcomes(model, reported).predicted.cpu()], 1)
    unique, counts = pairs.unique(dim=0, return_counts=True)
    matrix: Confusion = {}
    for (true, predicted), count in zip(unique.tolist(), counts.tolist(), strict=True):
        matrix.setdefault(str(true), {})[str(predicted)] = count
    return matrix


def training_scores(model: nn.Module, data: Data) -> dict[str, float | None]:
    """Return the accuracies of an original on its training data and on the reported test data."""
    if data.test is None:
        return {"train": accuracy(model, data.train), "test": None}
    rows = torch.arange(len(data.test))
    reported = data.test.take(rows[~torch.isin(rows, data.holdout)])
    return {"train": accuracy(model, data.train), "test": accuracy(model, reported)}


def loss_change(
    original: Mapping[str, float | None], unlearned: Mapping[str, float | None]
) -> list[str]:
    """Describe in one line how the losses of the forget samples changed.

    The accuracy on few samples may stay at 100 %. The arguments are fields of `Scores`; without
    losses there is no line.
    """
    loss, new_loss = original.get("forget_loss"), unlearned.get("forget_loss")
    rank, new_rank = original.get("forget_rank"), unlearned.get("forget_rank")
    if loss is None or new_loss is None:
        return []
    line = f"Forget samples: mean loss {loss:.3g} -> {new_loss:.3g}"
    if rank is None or new_rank is None:
        return [f"{line}."]
    return [
        f"{line}; mean rank of the losses among unseen samples of the same class {rank:.3f} -> "
        f"{new_rank:.3f} (0.5: as if never seen)."
    ]


def shows_forgetting(scenario: Scenario, original: Scores, unlearned: Scores) -> bool | None:
    """Return whether the scores show that something was forgotten; None if they do not show it.

    For whole classes the accuracy must fall. For single samples accuracy or loss must get worse. If
    neither does, nothing was forgotten if nothing changed or if the samples still differ from
    unseen ones. In other cases the model may just have improved in general, or any good model
    classifies the samples right.
    """
    if scenario.kind == "class":
        return unlearned.forget < original.forget or not unlearned.forget
    tolerance = 0.001 * original.forget_loss + 1e-6
    change = unlearned.forget_loss - original.forget_loss
    if unlearned.forget < original.forget or not change <= tolerance:
        return True
    if unlearned.forget_rank is None or (
        unlearned.forget == original.forget and change >= -tolerance
    ):
        return False
    return False if unlearned.forget_rank < _lowest_chance_rank(scenario) else None


def _lowest_chance_rank(scenario: Scenario) -> float:
    """Return the mean rank that 95 % of unseen forget sets would exceed."""
    assert scenario.data.test is not None
    forget = scenario.data.train.labels[scenario.forget]
    unseen = scenario.data.test.labels[scenario.test]
    members = int(torch.isin(forget, unseen).sum())
    others = int(torch.isin(unseen, forget).sum())
    return 0.5 - ONE_SIDED * rank_error(members, others)


def rank_error(members: int, others: int) -> float:
    """Return the standard error of a mean rank of unseen samples among others.

    A rank among many is uniform in 0..1, with a variance of 1/12.
    """
    return math.sqrt((1 / members + 1 / others) / 12)
