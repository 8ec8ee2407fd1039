"""When has enough been forgotten: DUCK's stop rule, and what Negative Gradient and Random Label, which also go by it, share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import nn

from duck.batching import Batches
from duck.fit import Loss, fit
from duck.methods.base import Forgets, Kinds
from duck.predict import accuracy, outcomes
from duck.runtime import seeded
from duck.types import Examples, Task

Stop = Literal["auto", "accuracy", "loss"]
LOOKED_AT = 2000
FEW = 200
"""Below so many samples, forcing each to be misclassified would be over-forgetting."""


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

    def train(self, unlearned: nn.Module, task: Task, batches: Batches, loss: Loss, generator: torch.Generator, phase: str) -> None:
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
            task.note(f"The stop rule was not met within max_epochs = {epochs}: less was forgotten than it asks for.")


def stop_rule(model: nn.Module, task: Task, stop: Stop = "auto", tolerance: float = 0.01, mislabelled: bool = False) -> Enough:
    """Asked after an epoch: is it enough?

    Classes that go, and labels that were wrong from the start (`mislabelled`): forget accuracy below `tolerance`. Classes that stay:
    forget accuracy below the original's on holdout, or, for few samples, forget loss as high as that of holdout samples of the same
    classes. Without holdout nothing unseen can be compared with: forget loss as high as that of the hardest twentieth of the retain
    samples of the same classes. `model` must be the original when this is called.
    """
    return Enough(_rule(model, task, stop, tolerance, mislabelled))


def _rule(model: nn.Module, task: Task, stop: Stop, tolerance: float, mislabelled: bool) -> Callable[[], bool]:
    precision = task.recipe.precision
    stays = torch.isin(task.forget.labels, task.retain.labels)
    holdout = task.holdout
    if mislabelled or not stays.any():
        return lambda: accuracy(model, task.forget, precision) < tolerance
    if holdout is None:
        some = _same_classes(task)
        return lambda: mean_loss(model, task.forget, task) >= float(outcomes(model, some, precision).losses.quantile(0.95))
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
