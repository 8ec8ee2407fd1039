"""Earlier requests to the same model, scored again: what they forgot must not come back."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from duck.predict import Outcomes, outcomes
from duck.printable import counted
from duck.runtime import device_of
from duck.types import EarlierForgetSet, Scenario

CLASS_LIMIT = 0.05
"""Above this accuracy on its forget samples an earlier class is known again, unless it was as well known before."""
CLASS_NOISE = 0.01
"""Accuracy by which a class may rise in any case: the tolerance of DUCK's stop rule."""
STANDARD_ERRORS = 3


@dataclass(frozen=True)
class EarlierScores:
    """What an earlier request forgot, before and after the new one."""

    request: str
    """In a few words, such as "class 3"."""
    kind: Literal["class", "samples"]
    samples: int
    before: float
    """Accuracy on its forget samples."""
    after: float
    rank_before: float | None
    """Mean rank (0 to 1) of the losses of its forget samples among those of unseen samples of the same classes: a model that never
    saw them has about 0.5. None where there are no unseen samples, or where whole classes were forgotten."""
    rank_after: float | None
    came_back: bool

    def __str__(self) -> str:
        rank = ""
        if self.rank_before is not None and self.rank_after is not None:
            rank = f", loss rank among unseen {self.rank_before:.3f} -> {self.rank_after:.3f}"
        state = "came back" if self.came_back else "stays forgotten"
        return f"{self.request}: accuracy {self.before:.3f} -> {self.after:.3f} (n = {self.samples}){rank}, {state}"


def score_earlier(original: nn.Module, unlearned: nn.Module, scenario: Scenario) -> tuple[EarlierScores, ...]:
    """Score the forget sets of all earlier requests, on the model that the new request started from and on its result."""
    return tuple(_score(earlier, original, unlearned, scenario) for earlier in scenario.earlier)


def came_back_note(scores: EarlierScores) -> str:
    """Say which earlier request came back, by which numbers, and what to do."""
    of = f"{100 * scores.before:.1f} % of its {counted(scores.samples, 'sample')} were right"
    change = f"{of} before this request, {100 * scores.after:.1f} % are now"
    if scores.rank_before is not None and scores.rank_after is not None:
        change += f"; the mean rank of their losses among unseen samples fell from {scores.rank_before:.2f} to {scores.rank_after:.2f}"
    advice = "Keep the earlier model and try another method or setting, or forget all requests together from the original."
    return f"An earlier request came back: {scores.request} ({change}). {advice}"


def loss_rank(losses: Tensor, labels: Tensor, unseen: Tensor, unseen_labels: Tensor) -> float | None:
    """Return the mean share of unseen samples of the same class whose loss is lower; None where a class has no unseen samples."""
    shares = []
    for label in labels.unique():
        mine, others = losses[labels == label], unseen[unseen_labels == label]
        if not len(others):
            return None
        lower = (others[None] < mine[:, None]).double() + 0.5 * (others[None] == mine[:, None]).double()
        shares.append(lower.mean(1))
    return float(torch.cat(shares).mean())


def _score(earlier: EarlierForgetSet, original: nn.Module, unlearned: nn.Module, scenario: Scenario) -> EarlierScores:
    forget = earlier.forget.to(device_of(unlearned))
    found = [outcomes(model, forget) for model in (original, unlearned)]
    before, after = (float(one.correct.double().mean()) for one in found)
    ranks: list[float | None] = [None, None]
    rows = _unseen_rows(earlier, scenario) if earlier.kind == "samples" else torch.arange(0)
    if len(rows) and scenario.data.test is not None:
        unseen = scenario.data.test.take(rows)
        ranks = [
            _rank(one, earlier, outcomes(model, unseen), unseen.labels) for one, model in zip(found, (original, unlearned), strict=True)
        ]
    came_back = _came_back(earlier, before, after, ranks[0], ranks[1], len(rows))
    return EarlierScores(earlier.request, earlier.kind, len(forget), before, after, ranks[0], ranks[1], came_back)


def _rank(found: Outcomes, earlier: EarlierForgetSet, unseen: Outcomes, unseen_labels: Tensor) -> float | None:
    return loss_rank(found.losses.cpu(), earlier.forget.labels, unseen.losses.cpu(), unseen_labels)


def _unseen_rows(earlier: EarlierForgetSet, scenario: Scenario) -> Tensor:
    """Test samples of the same classes that no stop rule saw; their classes may have been forgotten since."""
    test = scenario.data.test
    if test is None:
        return torch.arange(0)
    rows = torch.isin(test.labels, earlier.forget.labels).nonzero().flatten()
    return rows[~torch.isin(rows, scenario.data.holdout)]


def _came_back(
    earlier: EarlierForgetSet, before: float, after: float, rank_before: float | None, rank_after: float | None, unseen: int
) -> bool:
    """Whole classes: known again. Samples: their losses are lower than those of unseen samples, and were not so before."""
    samples = len(earlier.forget)
    if earlier.kind == "class":
        return after > CLASS_LIMIT and after > before + CLASS_NOISE
    if rank_before is None or rank_after is None:
        error = math.sqrt((before * (1 - before) + after * (1 - after)) / samples)
        return after > before + max(CLASS_LIMIT, STANDARD_ERRORS * error)
    # Of a model that never saw them: the standard deviation of the mean rank of so many among so many others.
    lowest = 0.5 - STANDARD_ERRORS * math.sqrt((1 / samples + 1 / unseen) / 12)
    return rank_after < lowest <= rank_before
