"""When has enough been forgotten: DUCK's stop rule, and what Negative Gradient and Random Label, which also go by it, share."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from duck.methods.base import Forgets, Kinds
from duck.predict import Outcomes, accuracy, outcomes
from duck.runtime import seeded
from duck.training.batching import Batches
from duck.training.loop import Loss, fit
from duck.types import Examples, Task

Stop = Literal["auto", "accuracy", "loss"]
LOOKED_AT = 2000
FEW = 200
"""Below so many samples, forcing each to be misclassified would be over-forgetting."""
EASIEST, HARD = 0.2, 0.8
"""Lowest and highest rank among unseen samples that a forget sample is given."""
TOO_HARD = 0.93
"""Rank beyond which a forget sample is over-forgotten."""
LOST = 0.005
"""Holdout accuracy that a request of few samples may cost."""
SAME, OTHERS = 400, 200
"""Unseen samples of the forget samples' classes, and of other classes, that are looked at after every step."""
HARDEST_RETAIN = 0.95
"""Rank among retain samples that a forget sample is given where there are no unseen samples."""
REACHED = 0.9
"""Share of the forget samples that must have reached their rank."""
FEWEST_UNSEEN = 10
"""Unseen samples of a class below which all unseen samples serve for it."""


@dataclass(frozen=True)
class UntilForgotten:
    """Trains on the forget samples alone until DUCK's stop rule says enough."""

    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[Forgets] = "training"

    lr: float = 1e-2
    batch_size: int = 256
    max_epochs: int = 100
    """If the stop rule does not end it."""
    milestones: tuple[int, ...] = ()
    """Epochs after which the rate is multiplied by `gamma`."""
    gamma: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4
    stop: Stop = "auto"
    """As in DUCK."""
    tolerance: float = 0.01
    """Target of the forget accuracy where whole classes go."""
    check_every: int = 0
    """Steps between two looks at the stop rule; 0: once an epoch."""

    def train(
        self,
        unlearned: nn.Module,
        task: Task,
        batches: Batches,
        loss: Loss,
        generator: torch.Generator,
        phase: str,
    ) -> None:
        """Train in place until the stop rule is met; `unlearned` is still the original when this is called."""
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="step", milestones=self.milestones, gamma=self.gamma, epochs=self.max_epochs, batch_size=self.batch_size,
        )  # fmt: skip
        enough = stop_rule(unlearned, task, self.stop, self.tolerance)
        fit(
            unlearned, batches, loss, recipe, generator,
            phase=phase, stop=enough, check_every=self.check_every, report=task.report, steady=True,
        )  # fmt: skip
        enough.tell(task, self.max_epochs)


class Enough:
    """A stop rule that knows whether it was met."""

    def __init__(self, rule: Callable[[], bool]) -> None:
        self.rule, self.met = rule, False

    def __call__(self) -> bool:
        self.met = self.rule()
        return self.met

    def tell(self, task: Task, epochs: int) -> None:
        """To be called when the training has ended."""
        if not self.met:
            task.note(
                f"The stop rule was not met within max_epochs = {epochs}: less was forgotten than it asks for."
            )


class RankReached(Enough):
    """The stop rule for few samples of classes that are kept, to be asked after every step.

    Each forget sample is to be as hard among unseen samples of its class as it was among the training samples of its class. Its hardness
    is the rank of its loss. A model that never saw the sample would give it such a rank on average; pulling further would mark the
    sample as forgotten. A step after which a sample is too hard, or the holdout accuracy has fallen, is taken back.

    Without unseen samples the retain samples of its class take their place: a forget sample is to be as hard as the hardest twentieth of
    them, and is too hard where it is misclassified.
    """

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__(self._is_over)
        self.model, self.task = model, task
        self.has_unseen = task.holdout is not None
        self.compared = _some_compared(task, task.retain if task.holdout is None else task.holdout)
        self.wanted = self._wanted_ranks()
        self.ranks_before, self.correct_before, self.compared_correct_before = self._measure()
        self.active = torch.ones(len(task.forget), device=task.forget.device)
        """1 for samples that have not reached their rank; all of them before the first step."""
        self.overshot = False
        """Whether the last step was taken back."""
        self._good = snapshot(model)
        self._note_hard_samples()

    def _wanted_ranks(self) -> Tensor:
        if not self.has_unseen:
            return torch.full((len(self.task.forget),), HARDEST_RETAIN, dtype=torch.float64)
        trained, forget = _same_classes(self.task), self.task.forget
        ranks = _ranks(
            self._outcomes(forget).losses,
            forget.labels,
            self._outcomes(trained).losses,
            trained.labels,
        )
        return ranks.clamp(EASIEST, HARD)

    def _note_hard_samples(self) -> None:
        """Say which samples the rule cannot judge: a memorised wrong label has a small loss among clean samples too."""
        count = int((self.ranks_before >= self.wanted).sum())
        if self.has_unseen and count:
            self.task.note(
                f"{count} of {len(self.task.forget)} forget samples were as hard as unseen ones before the start and were hardly changed. "
                "If the model memorised them all the same (a wrong label, for example), only a comparison "
                "with retrained models shows it."
            )

    def _is_over(self) -> bool:
        ranks, correct, compared_correct = self._measure()
        self.overshot = self._costs_accuracy(compared_correct) or bool(
            self._too_hard(ranks, correct).any()
        )
        if self.overshot:
            self.model.load_state_dict(self._good)
            return True
        self._good = snapshot(self.model)
        waiting = (ranks < self.wanted).to(self.active)
        self.active.copy_(waiting)
        return float(waiting.mean()) <= 1 - REACHED

    def _costs_accuracy(self, correct: Tensor) -> bool:
        """Return whether accuracy was lost: more than `LOST`, one sample, and what predictions that flip both ways explain."""
        lost = int((self.compared_correct_before & ~correct).sum())
        gained = int((~self.compared_correct_before & correct).sum())
        return lost - gained > max(LOST * len(correct), 1.5, math.sqrt(lost + gained))

    def _too_hard(self, ranks: Tensor, correct: Tensor) -> Tensor:
        if self.has_unseen:
            return (ranks > TOO_HARD) & (self.ranks_before <= TOO_HARD)
        return ~correct & self.correct_before

    def __call__(self) -> bool:
        over = self.rule()
        self.met = over and not self.overshot
        return over

    def tell(self, task: Task, epochs: int) -> None:
        if not self.overshot:
            return super().tell(task, epochs)
        task.note(
            "Less was forgotten than the stop rule asks for: the next step would have made a sample too hard, or cost accuracy, "
            "and was taken back. Lower the learning rate."
        )

    def _measure(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ranks of the forget samples among those compared with, and which samples of both are right."""
        compared, forget = self._outcomes(self.compared), self._outcomes(self.task.forget)
        ranks = _ranks(
            forget.losses, self.task.forget.labels, compared.losses, self.compared.labels
        )
        return ranks, forget.correct, compared.correct

    def _outcomes(self, examples: Examples) -> Outcomes:
        return outcomes(self.model, examples, self.task.recipe.precision)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights and buffers of a model."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _some_compared(task: Task, examples: Examples) -> Examples:
    """Return as many samples as a rule can look at after every step, those of the forget samples' classes first."""
    order = torch.randperm(len(examples), generator=seeded(task.seed, "unseen"))
    same = torch.isin(examples.labels[order], task.forget.labels)
    return examples.take(torch.cat([order[same][:SAME], order[~same][:OTHERS]]))


def _ranks(losses: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
    """Return the share of the others of the same class with a lower loss; of all others where there are few of the class."""
    losses, others = losses.cpu(), others.cpu()
    found = torch.empty(len(losses), dtype=torch.float64)
    for label in labels.unique():
        same, rows = others[other_labels == label], labels == label
        found[rows] = (
            ((same if len(same) >= FEWEST_UNSEEN else others) < losses[rows, None]).double().mean(1)
        )
    return found


def stop_rule(
    model: nn.Module,
    task: Task,
    stop: Stop = "auto",
    tolerance: float = 0.01,
    mislabelled: bool = False,
) -> Enough:
    """Return the rule that says whether enough was forgotten; `model` must be the original when this is called.

    Classes that go, and labels that were wrong from the start (`mislabelled`): forget accuracy below `tolerance`. Classes that stay:
    forget accuracy below the original's on holdout or, for few samples, forget losses that rank among those of holdout samples of the
    same classes as they ranked among those of training samples (`RankReached`). Without holdout nothing unseen can be compared with:
    forget losses as high as those of the hardest twentieth of the retain samples of the same classes.
    """
    stays = torch.isin(task.forget.labels, task.retain.labels)
    if stays.all() and not mislabelled and len(stays) < FEW and stop != "accuracy":
        return RankReached(model, task)
    return Enough(_rule(model, task, stop, tolerance, mislabelled))


def _rule(
    model: nn.Module, task: Task, stop: Stop, tolerance: float, mislabelled: bool
) -> Callable[[], bool]:
    precision = task.recipe.precision
    stays = torch.isin(task.forget.labels, task.retain.labels)
    holdout = task.holdout
    if mislabelled or not stays.any():
        return lambda: accuracy(model, task.forget, precision) < tolerance
    if holdout is None:
        some = _same_classes(task)
        return lambda: (
            mean_loss(model, task.forget, task)
            >= float(outcomes(model, some, precision).losses.quantile(0.95))
        )
    if stop == "loss" or (stop == "auto" and len(stays) < FEW):
        return lambda: mean_loss(model, task.forget, task) >= unseen_loss(model, holdout, task)
    target = max(tolerance, float(stays.double().mean()) * accuracy(model, holdout, precision))
    return lambda: accuracy(model, task.forget, precision) < target


def _same_classes(task: Task) -> Examples:
    """At most so many retain samples of the forget samples' classes as a stop rule can afford to look at after each epoch."""
    rows = torch.isin(task.retain.labels, task.forget.labels).nonzero().flatten()
    chosen = rows[torch.randperm(len(rows), generator=seeded(task.seed, "stop"))[:LOOKED_AT]]
    return task.retain.take(chosen)


def mean_loss(model: nn.Module, examples: Examples, task: Task) -> float:
    return float(outcomes(model, examples, task.recipe.precision).losses.mean())


def unseen_loss(model: nn.Module, holdout: Examples, task: Task) -> float:
    """Mean loss on holdout samples, weighted so that their classes are those of the forget samples."""
    losses = outcomes(model, holdout, task.recipe.precision).losses.cpu()
    labels, counts = task.forget.labels.unique(return_counts=True)
    matched = [losses[holdout.labels == label] for label in labels]
    means = torch.stack([part.mean() if len(part) else losses.mean() for part in matched])
    return float((means * counts).sum() / counts.sum())
