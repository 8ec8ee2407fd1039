"""L1-Sparse (Jia et al. 2023): fine-tune with an L1 penalty that decreases."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.methods._training import train_copy
from duck.methods.base import METHODS, BaseMethod, ForgetsBy
from duck.models.head import logits_of
from duck.training.batching import ShuffledPass, Step
from duck.training.loop import Loss
from duck.types import Task


@METHODS.register("l1-sparse")
@dataclass(frozen=True)
class L1Sparse(BaseMethod):
    """Cross-entropy on the retain samples plus gamma_t times the sum of all absolute weights."""

    paper: ClassVar[str] = "Jia 2023, arXiv:2304.04934"
    forgets_by: ClassVar[ForgetsBy] = "omission"

    lr: float = 1e-2
    batch_size: int = 256
    epochs: int = 10
    gamma: float = 1e-4
    """Weight of the penalty in the first epoch. It decreases linearly to gamma / epochs."""
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        batches = ShuffledPass("retain", task.retain, self.batch_size, task.recipe.augment)
        loss = self._loss(len(batches), task.retain.device)
        return train_copy("l1-sparse", self, model, task, batches, loss)

    def _loss(self, steps_per_epoch: int, device: torch.device) -> Loss:
        # A tensor: a CUDA graph does not run the Python code of the loss again.
        step_count = torch.zeros((), dtype=torch.int64, device=device)

        def loss(net: nn.Module, step: Step) -> Tensor:
            batch = step["retain"]
            epoch = step_count // steps_per_epoch
            step_count.add_(1)
            retain_loss = cross_entropy(logits_of(net(batch.images)).float(), batch.labels)
            return retain_loss + self.gamma * (1 - epoch / self.epochs) * l1_norm(net.parameters())

        return loss


def l1_norm(weights: Iterable[Tensor]) -> Tensor:
    """Return the sum of the absolute values of all weights."""
    return torch.stack([weight.abs().sum() for weight in weights]).sum()
