"""DELETE (Zhou et al. 2025): distil the original without the forgotten classes into itself."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from duck.methods._distillation import divergences_from
from duck.methods._relabelling import check_other_class, training_logits
from duck.methods._training import train_copy
from duck.methods.base import METHODS, BaseMethod, Kinds
from duck.predict import logits_on
from duck.training.batching import ShuffledPass, Step
from duck.types import Task


@METHODS.register("delete")
@dataclass(frozen=True)
class Delete(BaseMethod):
    """Train the forget samples towards the original's outputs on the remaining classes.

    The target of a sample is the original's softmax with the logits of the forgotten classes set to
    minus infinity. No retain samples are used.
    """

    paper: ClassVar[str] = "Zhou 2025, arXiv:2503.23751"
    scenarios: ClassVar[Kinds] = ("class",)
    needs_retain: ClassVar[bool] = False

    lr: float = 1e-3
    batch_size: int = 128
    epochs: int = 20
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        targets = masked_outputs(model, task)

        def loss(net: nn.Module, step: Step) -> Tensor:
            batch = step["forget"]
            logits = training_logits(net, batch.images)
            return divergences_from(targets[batch.rows], logits).mean()

        batches = ShuffledPass("forget", task.forget, self.batch_size)
        return train_copy("delete", self, model, task, batches, loss)


def masked_outputs(model: nn.Module, task: Task) -> Tensor:
    """Return the softmax of each forget sample over the classes that are not forgotten."""
    logits = logits_on(model, task.forget, task.recipe.precision)
    forgotten = task.forget.labels.unique().to(logits.device)
    check_other_class(torch.tensor(len(forgotten) < logits.shape[1]))
    return logits.index_fill(1, forgotten, -torch.inf).softmax(1)
