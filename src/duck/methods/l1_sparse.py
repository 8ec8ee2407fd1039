"""L1-Sparse (Jia et al. 2023, "Model sparsity can simplify machine unlearning"): fine-tune with a fading L1 penalty."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import logits_of
from duck.runtime import seeded
from duck.training.batching import Passes, Step
from duck.training.loop import Loss, fit
from duck.types import Task


@METHODS.register("l1-sparse")
@dataclass(frozen=True)
class L1Sparse:
    """Cross-entropy on the retain samples, and gamma_t times the sum of all absolute weights."""

    paper: ClassVar[str] = "Jia 2023, arXiv:2304.04934"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "omission"

    lr: float = 1e-2
    batch_size: int = 256
    epochs: int = 10
    gamma: float = 1e-4
    """Weight of the penalty in the first epoch; it falls by the same amount after each, to a last one of gamma / epochs."""
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "l1-sparse")
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="constant", epochs=self.epochs, batch_size=self.batch_size,
        )  # fmt: skip
        batches = Passes("retain", task.retain, self.batch_size, recipe.augment)
        loss = self._loss(len(batches), task.retain.device)
        fit(
            unlearned,
            batches,
            loss,
            recipe,
            generator,
            phase="l1-sparse",
            report=task.report,
            steady=True,
        )
        return unlearned

    def _loss(self, steps_an_epoch: int, device: torch.device) -> Loss:
        begun = torch.zeros(
            (), dtype=torch.int64, device=device
        )  # steps, counted where they are taken

        def loss(net: nn.Module, step: Step) -> Tensor:
            batch, epoch = step["retain"], begun // steps_an_epoch
            begun.add_(1)
            keep = cross_entropy(logits_of(net(batch.images)).float(), batch.labels)
            return keep + self.gamma * (1 - epoch / self.epochs) * l1_norm(net.parameters())

        return loss


def l1_norm(weights: Iterable[Tensor]) -> Tensor:
    return torch.stack([weight.abs().sum() for weight in weights]).sum()
