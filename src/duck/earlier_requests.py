"""Earlier requests to the same model, scored again: what they forgot must not come back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from scipy.stats import binomtest, fisher_exact
from torch import Tensor, nn

from duck.predict import Outcomes, outcomes
from duck.printable import counted
from duck.records import Count, Share
from duck.runtime import device_of
from duck.types import EarlierForgetSet, Scenario

CLASS_LIMIT = 0.05
"""Accuracy on its forget samples up to which a class counts as forgotten; chance where that is more."""
CLASS_NOISE = 0.01
"""Accuracy by which a class may rise in any case: the tolerance of DUCK's stop rule."""
STANDARD_ERRORS = 3
ALPHA = 0.01
"""Of the tests on accuracies, as in a quick audit."""

State = Literal["still forgotten", "known again", "was never forgotten", "too few to tell"]
STATES: tuple[State, ...] = get_args(State)
KNOWN: tuple[State, ...] = ("known again", "was never forgotten")
"""The model knows the samples: exit code 1."""


@dataclass(frozen=True)
class EarlierScores:
    """What an earlier request forgot, before and after the new one."""

    request: str
    """In a few words, such as "class 3"."""
    kind: Literal["class", "samples"]
    samples: Count
    before: Share
    """Accuracy on its forget samples."""
    after: Share
    rank_before: Share | None
    """Mean rank (0 to 1) of the losses of its forget samples among those of unseen samples of the same classes: a model that never
    saw them has about 0.5. None where there are no unseen samples, or where whole classes were forgotten."""
    rank_after: Share | None
    state: State
    best: Share
    """The lowest accuracy from its own request to the start of this one."""
    best_rank: Share | None
    """The highest rank, likewise."""

    @property
    def is_known(self) -> bool:
        """Whether the model knows the samples, again or still."""
        return self.state in KNOWN

    def __str__(self) -> str:
        rank = ""
        if self.rank_before is not None and self.rank_after is not None:
            rank = f", loss rank among unseen {self.rank_before:.3f} -> {self.rank_after:.3f}"
        return f"{self.request}: accuracy {self.before:.3f} -> {self.after:.3f} (n = {self.samples}){rank}, {self.state}"


def score_earlier(
    original: nn.Module, unlearned: nn.Module, scenario: Scenario, retrained: bool = False
) -> tuple[EarlierScores, ...]:
    """Score the forget sets of all earlier requests, on the model that the new request started from and on its result.

    `retrained`: the result is a fresh model, which saw none of them.
    """
    return tuple(
        _score(earlier, original, unlearned, scenario, retrained) for earlier in scenario.earlier
    )


def with_history(
    scenario: Scenario, scores: Sequence[EarlierScores], forgot: bool | None
) -> Scenario:
    """Return the scenario with what the run that it starts from found out about its earlier requests.

    scores   of the requests that were earlier for that run, too
    forgot   whether that run forgot its own request; None where only numbers can tell
    """
    older = [
        replace(one, forgot=_FORGOT[found.state], best=_best(found), best_rank=_best_rank(found))
        for one, found in zip(scenario.earlier, scores, strict=False)
    ]
    own = [replace(one, forgot=forgot) for one in scenario.earlier[len(older) :]]
    return replace(scenario, earlier=(*older, *own))


_FORGOT: dict[State, bool | None] = {
    "still forgotten": True, "known again": True, "was never forgotten": False, "too few to tell": None,
}  # fmt: skip


def _best(scores: EarlierScores) -> float:
    return min(scores.best, scores.after)


def _best_rank(scores: EarlierScores) -> float | None:
    return max(
        (rank for rank in (scores.best_rank, scores.rank_after) if rank is not None), default=None
    )


def earlier_note(scores: EarlierScores) -> str:
    """Say which earlier request is known, by which numbers, and what to do."""
    of = f"{100 * scores.before:.1f} % of its {counted(scores.samples, 'sample')} were right"
    change = f"{of} before this request, {100 * scores.after:.1f} % are now"
    if scores.rank_before is not None and scores.rank_after is not None:
        change += f"; the mean rank of their losses among unseen samples was {scores.rank_before:.2f} and is {scores.rank_after:.2f}"
    again = "Keep the earlier model and try another method or setting, or forget all requests together from the original."
    never = "Forget all requests together from the original, or begin with another method or setting for that one."
    what, advice = (
        ("came back", again) if scores.state == "known again" else ("was never forgotten", never)
    )
    return f"An earlier request {what}: {scores.request} ({change}). {advice}"


def loss_rank(
    losses: Tensor, labels: Tensor, unseen: Tensor, unseen_labels: Tensor
) -> float | None:
    """Return the mean share of unseen samples of the same class whose loss is lower; None where a class has no unseen samples."""
    shares = []
    for label in labels.unique():
        mine, others = losses[labels == label], unseen[unseen_labels == label]
        if not len(others):
            return None
        lower = (others[None] < mine[:, None]).double() + 0.5 * (
            others[None] == mine[:, None]
        ).double()
        shares.append(lower.mean(1))
    return float(torch.cat(shares).mean())


def _score(
    earlier: EarlierForgetSet,
    original: nn.Module,
    unlearned: nn.Module,
    scenario: Scenario,
    retrained: bool,
) -> EarlierScores:
    forget = earlier.forget.to(device_of(unlearned))
    found = [outcomes(model, forget) for model in (original, unlearned)]
    before, after = (float(one.correct.double().mean()) for one in found)
    ranks: list[float | None] = [None, None]
    rows = _unseen_rows(earlier, scenario) if earlier.kind == "samples" else torch.arange(0)
    if len(rows) and scenario.data.test is not None:
        unseen = scenario.data.test.take(rows)
        ranks = [
            _rank(one, earlier, outcomes(model, unseen), unseen.labels)
            for one, model in zip(found, (original, unlearned), strict=True)
        ]
    best = before if earlier.best is None else min(before, earlier.best)
    best_rank = max(
        (rank for rank in (ranks[0], earlier.best_rank) if rank is not None), default=None
    )
    state: State
    if retrained:
        state = "still forgotten"
    elif earlier.kind == "class":
        state = _state_of_class(len(forget), best, after, scenario.data.num_classes)
    else:
        state = _state_of_samples(earlier, best, after, best_rank, ranks[1], len(rows))
    return EarlierScores(
        earlier.request,
        earlier.kind,
        len(forget),
        before,
        after,
        ranks[0],
        ranks[1],
        state,
        best,
        best_rank,
    )


def _rank(
    found: Outcomes, earlier: EarlierForgetSet, unseen: Outcomes, unseen_labels: Tensor
) -> float | None:
    return loss_rank(found.losses.cpu(), earlier.forget.labels, unseen.losses.cpu(), unseen_labels)


def _unseen_rows(earlier: EarlierForgetSet, scenario: Scenario) -> Tensor:
    """Test samples of the same classes that no stop rule saw; their classes may have been forgotten since."""
    test = scenario.data.test
    if test is None:
        return torch.arange(0)
    rows = torch.isin(test.labels, earlier.forget.labels).nonzero().flatten()
    return rows[~torch.isin(rows, scenario.data.holdout)]


def _state_of_class(samples: int, best: float, after: float, num_classes: int) -> State:
    """A class is known where more samples are right than the limit explains, or clearly more than there once were."""
    if not _is_known(samples, 1.0, num_classes):
        return "too few to tell"
    if _is_known(samples, best, num_classes):
        return (
            "was never forgotten" if _is_known(samples, after, num_classes) else "still forgotten"
        )
    rose = after > max(CLASS_LIMIT, best + CLASS_NOISE) and _rose(samples, best, after)
    return "known again" if rose or _is_known(samples, after, num_classes) else "still forgotten"


def _state_of_samples(
    earlier: EarlierForgetSet,
    best: float,
    after: float,
    best_rank: float | None,
    rank: float | None,
    unseen: int,
) -> State:
    """Samples are known where their losses are lower than those of unseen samples; without such ones, where more of them are right."""
    samples = len(earlier.forget)
    if rank is None or best_rank is None:
        could_tell, came_back, always_known = (
            _rose(samples, 0.0, 1.0),
            _rose(samples, best, after),
            False,
        )
    else:
        # Of a model that never saw them: the standard deviation of the mean rank of so many among so many others.
        lowest = 0.5 - STANDARD_ERRORS * math.sqrt((1 / samples + 1 / unseen) / 12)
        could_tell, came_back, always_known = (
            lowest > 0,
            rank < lowest <= best_rank,
            max(rank, best_rank) < lowest,
        )
    if earlier.forgot is False:
        return "was never forgotten"
    if came_back:
        return "known again"
    # Easy samples have low losses in a model that never saw them, too.
    if always_known and not earlier.forgot:
        return "was never forgotten"
    return "still forgotten" if could_tell else "too few to tell"


def _is_known(samples: int, accuracy: float, num_classes: int) -> bool:
    limit = max(CLASS_LIMIT, 1 / num_classes)
    return bool(binomtest(round(accuracy * samples), samples, limit, "greater").pvalue < ALPHA)


def _rose(samples: int, before: float, after: float) -> bool:
    """Whether an accuracy rose by more than chance (one-sided Fisher's exact test)."""
    right = [round(share * samples) for share in (after, before)]
    return bool(
        fisher_exact([[count, samples - count] for count in right], "greater").pvalue < ALPHA
    )
