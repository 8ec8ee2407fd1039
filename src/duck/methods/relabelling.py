"""Other labels for forget samples, and the loss towards them: for methods that teach wrong classes."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.batching import Step
from duck.errors import BadInput
from duck.fit import Loss
from duck.models.embedding import logits_of
from duck.types import Task


def other_classes(task: Task) -> Tensor:
    """Which classes each forget sample could be given instead of its own, (samples, classes): those that stay."""
    allowed = torch.zeros(len(task.forget), task.num_classes, dtype=torch.bool)
    allowed[:, task.retain.labels.unique()] = True
    allowed[torch.arange(len(allowed)), task.forget.labels] = False
    if not allowed.any(1).all():
        raise BadInput("Some forget samples have no other class to go to: retain samples of at least two classes are needed.")
    return allowed


def wrong_labels(task: Task, generator: torch.Generator) -> Tensor:
    """For each forget sample a label drawn evenly from the classes that stay, without its own."""
    return torch.multinomial(other_classes(task).double(), 1, generator=generator).flatten()


def loss_on_forget(targets: Tensor) -> Loss:
    """Cross-entropy of the forget samples against these labels, one for each row; retain samples in the step join with their own."""

    def loss(net: nn.Module, step: Step) -> Tensor:
        forget, retain = step["forget"], step.get("retain")
        images, labels = forget.images, targets[forget.rows]
        if retain is not None:
            images, labels = torch.cat([images, retain.images]), torch.cat([labels, retain.labels])
        # A single sample has no spread to normalise by. (From two on, freezing lost more retain accuracy in every trial on digits.)
        if len(images) == 1:
            freeze_norms(net)
        return cross_entropy(logits_of(net(images)).float(), labels)

    return loss


def freeze_norms(model: nn.Module) -> None:
    """From here on BatchNorm goes by the statistics it has and leaves them alone; `fit` puts the modes back when it ends."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.training = False
