"""Batches with labels other than their own, and the loss of methods that train towards labels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.methods.base import retained_classes
from duck.models.head import logits_of
from duck.training.batching import Batches, Step
from duck.types import Batch, Task

LabelFunction = Callable[[Batch, torch.Generator], Tensor]
"""Returns the labels to train a batch towards."""


@dataclass(frozen=True)
class RelabelledBatches:
    """Batches whose forget samples get new labels in every step."""

    batches: Batches
    labels: LabelFunction

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        for step in self.batches.epoch(generator):
            if "forget" in step:
                forget = step["forget"]
                labels = self.labels(forget, generator).to(forget.labels.device)
                step = {**step, "forget": forget._replace(labels=labels)}
            yield step


def random_labels(classes: Tensor) -> LabelFunction:
    """Return a function that draws a label from `classes` for each sample, uniformly."""

    def draw(batch: Batch, generator: torch.Generator) -> Tensor:
        return classes[torch.randint(len(classes), (len(batch.labels),), generator=generator)]

    return draw


def fixed_labels(targets: Tensor) -> LabelFunction:
    """Return a function that looks labels up in `targets`, one for each row of the forget set."""
    return lambda batch, _: targets[batch.rows]


def other_classes(task: Task) -> Tensor:
    """Return which classes a forget sample may get instead of its own, (samples, classes).

    These are the other classes that remain.
    """
    allowed = torch.zeros(len(task.forget), task.num_classes, dtype=torch.bool)
    allowed[:, retained_classes(task)] = True
    allowed[torch.arange(len(allowed)), task.forget.labels] = False
    check_other_class(allowed.any(1))
    return allowed


def check_other_class(has_other_class: Tensor) -> None:
    """Raise an error if a forget sample has no retained class other than its own."""
    if not has_other_class.all():
        raise BadInput(
            "Some forget samples have no other class to go to. Retain at least two classes."
        )


def label_loss(net: nn.Module, step: Step) -> Tensor:
    """Return the cross-entropy of all samples of a step, from one forward pass."""
    images = torch.cat([batch.images for batch in step.values()])
    labels = torch.cat([batch.labels for batch in step.values()])
    return cross_entropy(training_logits(net, images), labels)


def training_logits(net: nn.Module, images: Tensor) -> Tensor:
    """Return the logits of a net in train mode, in float32.

    BatchNorm cannot normalise a single sample by itself and uses its running statistics for it.
    (With two or more samples this lost more retain accuracy in every trial on digits.)
    """
    single = len(images) == 1
    if single:
        freeze_norms(net)
    logits = logits_of(net(images)).float()
    if single:
        net.train()
    return logits


def freeze_norms(model: nn.Module) -> None:
    """Put the BatchNorm layers in eval mode: running statistics are used and not updated."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.training = False
