"""Scores of earlier requests to the same model: their forget sets must stay forgotten."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from duck.metrics import mean_loss_rank, rank_error
from duck.predict import outcomes
from duck.printable import counted
from duck.records import Count, Share
from duck.runtime import device_of
from duck.types import Drift, EarlierForgetSet, Examples, Scenario

CLASS_LIMIT = 0.05
"""A class with at most this accuracy on its forget samples, or chance level, is forgotten."""
CLASS_NOISE = 0.01
"""A rise of accuracy that is always allowed: the tolerance of DUCK's stop rule."""
STANDARD_ERRORS = 3
MAX_DRIFT = 0.01
"""Holdout accuracy that requests in a row may cost: about what ten requests of `warm-restart` were
seen to cost (docs/assurance.md)."""
DRIFT_ERRORS = 2
"""Standard errors that a loss must exceed: chance alone does so in 2.5 % of the requests."""
ALPHA = 0.01
"""Significance level of the tests on accuracies, as in a quick audit."""

State = Literal["still forgotten", "remembered again", "not forgotten", "undecided"]
STATES: tuple[State, ...] = get_args(State)
REMEMBERED: tuple[State, ...] = ("remembered again", "not forgotten")
"""States in which the model remembers the samples: exit code 1."""


@dataclass(frozen=True)
class EarlierScores:
    """Scores of the forget set of an earlier request, before and after the new one."""

    request: str
    """A short description, such as "class 3"."""
    kind: Literal["class", "samples"]
    samples: Count
    before: Share
    """Accuracy on its forget samples."""
    after: Share
    rank_before: Share | None
    """Mean rank, in 0..1, of the losses of its forget samples among those of unseen samples of the
    same classes: about 0.5 if the model never saw them. None if there are no unseen samples, or if
    whole classes were forgotten."""
    rank_after: Share | None
    state: State
    best: Share
    """The lowest accuracy from its own request to the start of this one."""
    best_rank: Share | None
    """The highest rank from its own request to the start of this one."""

    @property
    def is_remembered(self) -> bool:
        """Whether the model remembers the samples, again or still."""
        return self.state in REMEMBERED

    def __str__(self) -> str:
        rank = ""
        if self.rank_before is not None and self.rank_after is not None:
            rank = f", loss rank among unseen {self.rank_before:.3f} -> {self.rank_after:.3f}"
        return (
            f"{self.request}: accuracy {self.before:.3f} -> {self.after:.3f} "
            f"(n = {self.samples}){rank}, {self.state}"
        )


def score_earlier(
    original: nn.Module, unlearned: nn.Module, scenario: Scenario, retrained: bool = False
) -> tuple[EarlierScores, ...]:
    """Score the forget sets of all earlier requests before and after the new request.

    original    the model before the new request
    retrained   whether the unlearned model is a new model, which saw none of the samples
    """
    return tuple(
        _score(earlier, original, unlearned, scenario, retrained) for earlier in scenario.earlier
    )


def with_history(
    scenario: Scenario,
    scores: Sequence[EarlierScores],
    forgot: bool | None,
    drift: Drift,
) -> Scenario:
    """Return the scenario with the results of the previous run for its earlier requests.

    scores   the previous run's scores of the requests that were earlier for it, too
    forgot   whether the previous run forgot its own request; None if that is not known
    drift    what the requests cost up to the previous run
    """
    older = [
        replace(
            earlier,
            forgot=_FORGOT[known.state],
            best=min(known.best, known.after),
            best_rank=_max_rank(known.best_rank, known.rank_after),
        )
        for earlier, known in zip(scenario.earlier, scores, strict=False)
    ]
    own = [replace(earlier, forgot=forgot) for earlier in scenario.earlier[len(older) :]]
    return replace(scenario, earlier=(*older, *own), drift=drift)


_FORGOT: dict[State, bool | None] = {
    "still forgotten": True,
    "remembered again": True,
    "not forgotten": False,
    "undecided": None,
}


def _max_rank(*ranks: float | None) -> float | None:
    return max((rank for rank in ranks if rank is not None), default=None)


def earlier_note(scores: EarlierScores) -> str:
    """Describe an earlier request that the model remembers, with numbers and advice."""
    change = (
        f"the accuracy on its {counted(scores.samples, 'sample')} was {100 * scores.before:.1f} % "
        f"before this request and is {100 * scores.after:.1f} % now"
    )
    if scores.rank_before is not None and scores.rank_after is not None:
        change += (
            "; the mean rank of their losses among unseen samples was "
            f"{scores.rank_before:.2f} and is {scores.rank_after:.2f}"
        )
    return (
        f"An earlier request is {scores.state}: {scores.request} ({change}). Forget all requests "
        "together from the original, or try another method or setting."
    )


def measure_drift(
    original: nn.Module, unlearned: nn.Module, scenario: Scenario, retrained: bool = False
) -> Drift:
    """Compare the unlearned model with the first original of requests in a row, on the holdout.

    original    the model before the new request
    retrained   whether the unlearned model is a new model: the next request starts from it
    """
    if retrained:
        return Drift()
    known = scenario.drift
    holdout, rows = _drift_rows(scenario)
    correct_before = known.correct_before
    if not known.requests:
        correct_before = np.packbits(_correct(original, holdout).numpy()).tobytes().hex()
    counted_so_far = replace(
        known,
        requests=known.requests + 1,
        samples=known.samples + len(scenario.forget),
        correct_before=correct_before,
    )
    before = _unpack(correct_before, len(rows))
    if holdout is None or before is None or not rows.any():
        return replace(
            counted_so_far, accuracy_before=None, accuracy_now=None, lost=0, gained=0, n=0
        )
    before, after = before[rows], _correct(unlearned, holdout)[rows]
    return replace(
        counted_so_far,
        accuracy_before=float(before.double().mean()),
        accuracy_now=float(after.double().mean()),
        lost=int((before & ~after).sum()),
        gained=int((~before & after).sum()),
        n=int(rows.sum()),
    )


def has_drifted(drift: Drift) -> bool:
    """Return whether more accuracy was lost than a point and than chance explains.

    The samples are the same, so that only those count whose prediction changed (McNemar).
    """
    chance = DRIFT_ERRORS * math.sqrt(drift.lost + drift.gained)
    return drift.lost - drift.gained > max(MAX_DRIFT * drift.n, chance)


def remembered_rank(scores: Sequence[EarlierScores], unseen: int) -> float | None:
    """Return the mean loss rank of the samples of all earlier requests if it shows memory of them.

    It does if they had the losses of unseen samples after their requests, and together have
    significantly lower losses now. The samples of one request may be too few to show it.

    unseen   the number of unseen samples that they are ranked among, at least 1
    """
    ranked = [item for item in scores if item.rank_after is not None and item.best_rank is not None]
    if len(ranked) < 2 or not unseen:
        return None
    weights = [item.samples for item in ranked]
    now = float(np.average([item.rank_after or 0.0 for item in ranked], weights=weights))
    best = float(np.average([item.best_rank or 0.0 for item in ranked], weights=weights))
    lowest = 0.5 - STANDARD_ERRORS * rank_error(sum(weights), unseen)
    return now if now < lowest <= best else None


def _drift_rows(scenario: Scenario) -> tuple[Examples | None, Tensor]:
    """Return the whole holdout, and which of its samples are of classes that are left."""
    data = scenario.data
    if data.test is None or not len(data.holdout):
        return None, torch.zeros(0, dtype=torch.bool)
    rows = torch.isin(data.holdout, scenario.holdout)
    if scenario.kind == "class":
        forgotten = data.train.labels[scenario.forget]
        rows &= ~torch.isin(data.test.labels[data.holdout], forgotten)
    return data.test.take(data.holdout), rows


def _correct(model: nn.Module, examples: Examples | None) -> Tensor:
    if examples is None:
        return torch.zeros(0, dtype=torch.bool)
    return outcomes(model, examples).correct.cpu()


def _unpack(bits: str, count: int) -> Tensor | None:
    """Return the flags of `count` samples; None if the bits are of another number of samples."""
    packed = np.frombuffer(bytes.fromhex(bits), np.uint8)
    if len(packed) != -(-count // 8) or not count:
        return None
    return torch.from_numpy(np.unpackbits(packed, count=count).astype(np.bool_))


def _score(
    earlier: EarlierForgetSet,
    original: nn.Module,
    unlearned: nn.Module,
    scenario: Scenario,
    retrained: bool,
) -> EarlierScores:
    forget = earlier.forget.to(device_of(unlearned))
    unseen = _unseen_samples(earlier, scenario)
    before, rank_before = _accuracy_and_rank(original, forget, unseen)
    after, rank_after = _accuracy_and_rank(unlearned, forget, unseen)
    best = before if earlier.best is None else min(before, earlier.best)
    best_rank = _max_rank(rank_before, earlier.best_rank)
    state: State
    if retrained:
        state = "still forgotten"
    elif earlier.kind == "class":
        state = _state_of_class(len(forget), best, after, scenario.data.num_classes)
    else:
        n_unseen = 0 if unseen is None else len(unseen)
        state = _state_of_samples(earlier, best, after, best_rank, rank_after, n_unseen)
    scores = (before, after, rank_before, rank_after, state, best, best_rank)
    return EarlierScores(earlier.request, earlier.kind, len(forget), *scores)


def _accuracy_and_rank(
    model: nn.Module, forget: Examples, unseen: Examples | None
) -> tuple[float, float | None]:
    """Return the accuracy on the forget samples and the rank of their losses among unseen ones.

    There is no rank if a class has no unseen samples.
    """
    forget_outcomes = outcomes(model, forget)
    accuracy = float(forget_outcomes.correct.double().mean())
    if unseen is None or not torch.isin(forget.labels, unseen.labels).all():
        return accuracy, None
    unseen_losses = outcomes(model, unseen).losses.cpu()
    return accuracy, mean_loss_rank(
        forget_outcomes.losses.cpu(), forget.labels, unseen_losses, unseen.labels
    )


def _unseen_samples(earlier: EarlierForgetSet, scenario: Scenario) -> Examples | None:
    """Return test samples of the same classes that no stop rule used, for single samples.

    They include classes that were forgotten since.
    """
    test = scenario.data.test
    if test is None or earlier.kind == "class":
        return None
    rows = torch.isin(test.labels, earlier.forget.labels).nonzero().flatten()
    rows = rows[~torch.isin(rows, scenario.data.holdout)]
    return test.take(rows) if len(rows) else None


def _state_of_class(samples: int, best: float, after: float, num_classes: int) -> State:
    """Judge a class: it is remembered if its accuracy is above the limit or well above its best."""
    if not _is_class_remembered(samples, 1.0, num_classes):
        return "undecided"
    is_remembered = _is_class_remembered(samples, after, num_classes)
    if _is_class_remembered(samples, best, num_classes):
        return "not forgotten" if is_remembered else "still forgotten"
    rose = after > max(CLASS_LIMIT, best + CLASS_NOISE) and _rose(samples, best, after)
    return "remembered again" if rose or is_remembered else "still forgotten"


def _state_of_samples(
    earlier: EarlierForgetSet,
    best: float,
    after: float,
    best_rank: float | None,
    rank: float | None,
    unseen: int,
) -> State:
    """Judge samples: they are remembered if their losses are lower than those of unseen samples.

    Without unseen samples they are remembered if their accuracy rose significantly.
    """
    samples = len(earlier.forget)
    if rank is None or best_rank is None:
        is_powered = _rose(samples, 0.0, 1.0)
        is_remembered_again = _rose(samples, best, after)
        was_always_low = False
    else:
        lowest = 0.5 - STANDARD_ERRORS * rank_error(samples, unseen)
        is_powered = lowest > 0
        is_remembered_again = rank < lowest <= best_rank
        was_always_low = max(rank, best_rank) < lowest
    if earlier.forgot is False:
        return "not forgotten"
    if is_remembered_again:
        return "remembered again"
    # Easy samples have low losses even in a model that never saw them.
    if was_always_low and not earlier.forgot:
        return "not forgotten"
    return "still forgotten" if is_powered else "undecided"


def _is_class_remembered(samples: int, accuracy: float, num_classes: int) -> bool:
    from scipy.stats import binomtest  # here, because it takes half a second

    limit = max(CLASS_LIMIT, 1 / num_classes)
    return bool(binomtest(round(accuracy * samples), samples, limit, "greater").pvalue < ALPHA)


def _rose(samples: int, before: float, after: float) -> bool:
    """Return whether an accuracy rose by more than chance (one-sided Fisher's exact test)."""
    from scipy.stats import fisher_exact

    correct = [round(share * samples) for share in (after, before)]
    table = [[count, samples - count] for count in correct]
    return bool(fisher_exact(table, "greater").pvalue < ALPHA)
