"""DUCK's stop rule, and the base class of Negative Gradient and Random Label, which use it too."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._training import fit_task, method_recipe
from duck.methods.base import METHODS, BaseMethod, clone, retain_free, retained_classes
from duck.predict import Outcomes, accuracy, outcomes
from duck.runtime import seeded
from duck.training.batching import Batches
from duck.training.loop import Loss
from duck.types import Examples, Task

Stop = Literal["auto", "accuracy", "loss", "distribution"]
MAX_RETAIN_COMPARED = 2000
"""Retain samples that a stop rule evaluates after each epoch, at most."""
FEW_SAMPLES = 200
"""Below this number, forcing each forget sample to be misclassified would forget too much."""
MIN_SAMPLES_OF_AUC = 20
"""Below this number, the AUC of forget losses is too imprecise to stop by."""
MIN_KEPT_ACCURACY = 0.9
"""Share of the original's holdout accuracy that a model must have for its AUC to count."""
MIN_TARGET_RANK = 0.2
MAX_TARGET_RANK = 0.8
"""Limits of the rank among unseen samples that is the target of a forget sample."""
MAX_RANK = 0.93
"""A forget sample with a higher rank is forgotten too much."""
MAX_ACCURACY_LOSS = 0.005
"""Holdout accuracy that a request of few samples may cost."""
MAX_SAME_CLASS = 400
MAX_OTHER_CLASSES = 200
"""Unseen samples of the forget samples' classes, and of other classes, evaluated in every step."""
RETAIN_TARGET_RANK = 0.95
"""The target rank among retain samples if there are no unseen samples."""
REQUIRED_SHARE = 0.9
"""Share of the forget samples that must reach their target rank."""
MIN_UNSEEN = 10
"""If a class has fewer unseen samples, its forget samples are ranked among all unseen samples."""


@dataclass(frozen=True)
class ForgetSetTraining(BaseMethod):
    """A method that trains on the forget samples alone until DUCK's stop rule is met."""

    needs_retain: ClassVar[bool] = False

    lr: float = 1e-2
    batch_size: int = 256
    max_epochs: int = 100
    """Number of epochs if the stop rule is never met."""
    milestones: tuple[int, ...] = ()
    """Epochs after which the learning rate is multiplied by `gamma`."""
    gamma: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4
    stop: Stop = "auto"
    """As in DUCK."""
    tolerance: float = 0.01
    """Target of the forget accuracy if whole classes are forgotten."""
    check_every: int = 0
    """Steps between two checks of the stop rule; 0: once an epoch."""

    def train(
        self, name: str, model: nn.Module, task: Task, batches: Batches, loss: Loss
    ) -> nn.Module:
        """Return a copy of the model, trained until the stop rule is met."""
        unlearned = clone(model)
        recipe = method_recipe(task, self, epochs=self.max_epochs)
        stop = make_stop_rule(unlearned, task, self.stop, self.tolerance)
        generator = seeded(task.seed, name)
        options = {"stop": stop, "check_every": self.check_every}
        fit_task(task, unlearned, batches, loss, recipe, generator, name, **options)
        stop.note_if_unmet(task, self.max_epochs)
        return unlearned


@dataclass(eq=False)
class StopRule:
    """A condition that remembers whether it was met when it was last checked."""

    condition: Callable[[], bool]
    is_met: bool = False

    def __call__(self) -> bool:
        self.is_met = self.condition()
        return self.is_met

    def note_if_unmet(self, task: Task, epochs: int) -> None:
        """Add a note to the task if the training ended before the rule was met."""
        if not self.is_met:
            task.unmet(
                f"The stop rule was not met within max_epochs = {epochs}: "
                "less was forgotten than it requires."
            )


class RankStopRule(StopRule):
    """The stop rule for few samples of classes that remain. It is checked after every step.

    The rank of a sample is the share of other samples of its class with a lower loss. The target of
    a forget sample is to rank among unseen samples as it ranked among training samples. A model
    that never saw the sample would give it this rank on average; a higher rank would reveal that
    the sample was forgotten. A step is undone if it raises a sample above `MAX_RANK` or lowers the
    holdout accuracy.

    Without unseen samples, retain samples of the same class replace them: the target is the rank
    `RETAIN_TARGET_RANK`, and a step is undone if it makes the model misclassify a forget sample.
    Without retain samples, the forget samples stand for the training samples.
    """

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__(self._should_stop)
        self.model = model
        self.task = task
        self.has_unseen = task.holdout is not None
        self.comparison = _comparison_samples(task)
        self.target_ranks = self._target_ranks()
        self.before = self._measure()
        self.active = torch.ones(len(task.forget), device=task.forget.device)
        """1 for samples below their target rank, else 0. Before the first step all are 1."""
        self.overshot = False
        """Whether the last step was undone."""
        self._last_good = snapshot(model)
        self._note_hard_samples()

    def _target_ranks(self) -> Tensor:
        forget = self.task.forget
        if not self.has_unseen:
            return torch.full((len(forget),), RETAIN_TARGET_RANK, dtype=torch.float64)
        losses = self._outcomes(forget).losses
        if not len(self.task.retain):
            ranks = _middle_ranks(losses, forget.labels, losses, forget.labels)
            return ranks.clamp(MIN_TARGET_RANK, MAX_TARGET_RANK)
        retain = _retain_of_forget_classes(self.task)
        others = self._outcomes(retain).losses
        ranks = _ranks(losses, forget.labels, others, retain.labels)
        return ranks.clamp(MIN_TARGET_RANK, MAX_TARGET_RANK)

    def _note_hard_samples(self) -> None:
        """Add a note about samples that the rule cannot judge.

        A memorised wrong label also has a rank like that of a clean sample.
        """
        count = int((self.before.ranks >= self.target_ranks).sum())
        if self.has_unseen and count:
            self.task.note(
                f"{count} of {len(self.task.forget)} forget samples were as hard as unseen samples "
                "before the start and were hardly changed. If the model memorised them anyway "
                "(for example, a wrong label), only a comparison with retrained models shows it."
            )

    def _should_stop(self) -> bool:
        now = self._measure()
        costs = costs_accuracy(self.before.comparison_correct, now.comparison_correct)
        self.overshot = costs or bool(self._is_too_hard(now).any())
        if self.overshot:
            self.model.load_state_dict(self._last_good)
            return True
        self._last_good = snapshot(self.model)
        active = (now.ranks < self.target_ranks).to(self.active)
        self.active.copy_(active)
        return float(active.mean()) <= 1 - REQUIRED_SHARE

    def _is_too_hard(self, now: "_Measurement") -> Tensor:
        if self.has_unseen:
            return (now.ranks > MAX_RANK) & (self.before.ranks <= MAX_RANK)
        return ~now.forget_correct & self.before.forget_correct

    def __call__(self) -> bool:
        should_stop = self.condition()
        self.is_met = should_stop and not self.overshot
        return should_stop

    def note_if_unmet(self, task: Task, epochs: int) -> None:
        if not self.overshot:
            return super().note_if_unmet(task, epochs)
        task.unmet(
            "Less was forgotten than the stop rule requires: the next step would have made a sample"
            " too hard, or cost accuracy, and was undone. Lower the learning rate."
        )

    def _measure(self) -> "_Measurement":
        comparison = self._outcomes(self.comparison)
        forget = self._outcomes(self.task.forget)
        ranks = _ranks(
            forget.losses, self.task.forget.labels, comparison.losses, self.comparison.labels
        )
        return _Measurement(ranks, forget.correct, comparison.correct)

    def _outcomes(self, examples: Examples) -> Outcomes:
        return outcomes(self.model, examples, self.task.recipe.precision)


class _Measurement(NamedTuple):
    """Ranks of forget samples, and which forget and comparison samples are classified correctly."""

    ranks: Tensor
    forget_correct: Tensor
    comparison_correct: Tensor


def costs_accuracy(correct_before: Tensor, correct_after: Tensor) -> bool:
    """Return whether accuracy was lost, given which samples were classified correctly.

    That is: more than `MAX_ACCURACY_LOSS`, more than one sample, and more than predictions that
    change at random in both directions explain.
    """
    lost = int((correct_before & ~correct_after).sum())
    gained = int((~correct_before & correct_after).sum())
    chance = math.sqrt(lost + gained)
    return lost - gained > max(MAX_ACCURACY_LOSS * len(correct_after), 1.5, chance)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the parameters and buffers of a model."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _comparison_samples(task: Task) -> Examples:
    """Return some holdout or else retain samples, few enough to be evaluated after every step."""
    examples = task.retain if task.holdout is None else task.holdout
    order = torch.randperm(len(examples), generator=seeded(task.seed, "unseen"))
    same = torch.isin(examples.labels[order], task.forget.labels)
    rows = torch.cat([order[same][:MAX_SAME_CLASS], order[~same][:MAX_OTHER_CLASSES]])
    return examples.take(rows)


def _ranks(losses: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
    """Return the share of other samples of the same class with a lower loss.

    Classes with fewer than `MIN_UNSEEN` other samples are compared with all of them.
    """
    losses, others = losses.cpu(), others.cpu()
    ranks = torch.empty(len(losses), dtype=torch.float64)
    for label in labels.unique():
        same_class = others[other_labels == label]
        reference = same_class if len(same_class) >= MIN_UNSEEN else others
        rows = labels == label
        ranks[rows] = (reference < losses[rows, None]).double().mean(1)
    return ranks


def _middle_ranks(losses: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
    """Return the share of other samples of the same class with a lower loss; equal ones count half.

    A sample among itself has the rank 0.5.
    """
    lower = _ranks(losses, labels, others, other_labels)
    higher = _ranks(-losses, labels, -others, other_labels)
    return (1 + lower - higher) / 2


def make_stop_rule(
    model: nn.Module,
    task: Task,
    stop: Stop = "auto",
    tolerance: float = 0.01,
    mislabelled: bool = False,
) -> StopRule:
    """Return the rule that decides when enough was forgotten; `model` must be the original.

    - Whole classes, and samples whose labels were wrong from the start (`mislabelled`): the forget
      accuracy is below `tolerance`.
    - Samples of classes that remain: the forget accuracy is below the original's holdout accuracy.
    - The same with `distribution`: the AUC of forget losses against those of unseen samples of the
      same classes reaches 0.5.
    - Few samples of classes that remain: `RankStopRule`.
    - Without a holdout set: the mean forget loss reaches the 95th percentile of the losses of
      retain samples of the same classes.
    """
    remains = torch.isin(task.forget.labels, retained_classes(task))
    _check_comparable(task, bool(remains.any()) and not mislabelled)
    few = MIN_SAMPLES_OF_AUC if stop == "distribution" else FEW_SAMPLES
    is_small_request = len(remains) < few and bool(remains.all())
    if is_small_request and not mislabelled and stop != "accuracy":
        return RankStopRule(model, task)
    return StopRule(_condition(model, task, stop, tolerance, mislabelled))


def _check_comparable(task: Task, has_samples_that_remain: bool) -> None:
    """Raise an error if the rule for single samples has nothing to compare them with."""
    if has_samples_that_remain and task.holdout is None and not len(task.retain):
        others = [
            name
            for name in retain_free("samples")
            if not issubclass(METHODS[name], ForgetSetTraining)
        ]
        raise BadInput(
            "There are neither unseen nor retain samples, so the stop rule has nothing to compare "
            "the forget samples with. Give test data (test= in Python, test/ or test_images on "
            f"the command line), or use a method without this rule: {', '.join(others)}."
        )


def _condition(
    model: nn.Module, task: Task, stop: Stop, tolerance: float, mislabelled: bool
) -> Callable[[], bool]:
    precision = task.recipe.precision
    remains = torch.isin(task.forget.labels, retained_classes(task))
    holdout = task.holdout
    if mislabelled or not remains.any():
        return lambda: accuracy(model, task.forget, precision) < tolerance
    if holdout is None:
        retain = _retain_of_forget_classes(task)
        return lambda: (
            mean_loss(model, task.forget, task)
            >= float(outcomes(model, retain, precision).losses.quantile(0.95))
        )
    if stop == "distribution":
        # The losses of a model that lost everything are equal, too.
        needed = MIN_KEPT_ACCURACY * accuracy(model, holdout, precision)
        return lambda: (
            loss_auc(model, holdout, task) >= 0.5 and accuracy(model, holdout, precision) >= needed
        )
    if stop == "loss" or (stop == "auto" and len(remains) < FEW_SAMPLES):
        return lambda: mean_loss(model, task.forget, task) >= unseen_loss(model, holdout, task)
    target = max(tolerance, float(remains.double().mean()) * accuracy(model, holdout, precision))
    return lambda: accuracy(model, task.forget, precision) < target


def _retain_of_forget_classes(task: Task) -> Examples:
    """Return at most `MAX_RETAIN_COMPARED` retain samples of the forget samples' classes."""
    rows = torch.isin(task.retain.labels, task.forget.labels).nonzero().flatten()
    order = torch.randperm(len(rows), generator=seeded(task.seed, "stop"))
    return task.retain.take(rows[order[:MAX_RETAIN_COMPARED]])


def mean_loss(model: nn.Module, examples: Examples, task: Task) -> float:
    """Return the mean cross-entropy of a model on examples."""
    return float(outcomes(model, examples, task.recipe.precision).losses.mean())


def unseen_loss(model: nn.Module, holdout: Examples, task: Task) -> float:
    """Return the mean loss on the holdout set, weighted by the classes of the forget samples."""
    losses = outcomes(model, holdout, task.recipe.precision).losses.cpu()
    labels, counts = task.forget.labels.unique(return_counts=True)
    losses_by_class = [losses[holdout.labels == label] for label in labels]
    means = torch.stack([part.mean() if len(part) else losses.mean() for part in losses_by_class])
    return float((means * counts).sum() / counts.sum())


def loss_auc(model: nn.Module, unseen: Examples, task: Task) -> float:
    """Return how often a forget sample has a higher loss than an unseen sample of its class.

    0.5: the losses of forget samples are not lower than those of unseen samples. Equal losses count
    half.
    """
    precision = task.recipe.precision
    forget = outcomes(model, task.forget, precision).losses
    others = outcomes(model, unseen, precision).losses
    return float(_middle_ranks(forget, task.forget.labels, others, unseen.labels).mean())
