"""SalUn: gradient-based weight saliency (Fan et al. 2024), with random labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.methods._relabelling import RelabelledBatches, label_loss, random_labels
from duck.methods._training import train_copy
from duck.methods.base import METHODS, BaseMethod, clone
from duck.models.head import logits_of
from duck.training.batching import Batches, ConsecutivePasses, ShuffledPass
from duck.types import Task


@METHODS.register("salun")
@dataclass(frozen=True)
class SalUn(BaseMethod):
    """Train only the weights to which the forget loss is most sensitive (eq. 3 to 5).

    Each epoch is a pass over the forget samples with new random labels in every step, followed by a
    pass over the retain samples. Both are augmented as in the original's training.
    """

    paper: ClassVar[str] = "Fan 2024, arXiv:2310.12508"
    prepared_from: ClassVar[tuple[str, ...]] = ("share",)
    prepared_per_request: ClassVar[bool] = True

    lr: float = 0.013
    epochs: int = 10
    share: float = 0.5
    """Share of the weights that are trained."""
    batch_size: int = 256
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        masks = task.prepared or self.prepare(model, task)
        return train_copy("salun", self, model, task, self._batches(task), label_loss, masks=masks)

    def _batches(self, task: Task) -> Batches:
        augment = task.recipe.augment
        forget = ShuffledPass("forget", task.forget, self.batch_size, augment)
        retain = ShuffledPass("retain", task.retain, self.batch_size, augment)
        all_classes = torch.arange(task.num_classes)
        return ConsecutivePasses(RelabelledBatches(forget, random_labels(all_classes)), retain)

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """Return masks that are True at the `share` of the weights with the largest gradients.

        The gradients are those of the forget loss in eval mode and float32, summed over samples.
        """
        if not 0 < self.share <= 1:
            raise BadInput(f"share must be in (0, 1], got {self.share}.")
        net = clone(model).eval()
        weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
        for batch in task.forget.batches(1000):
            cross_entropy(logits_of(net(batch.images)), batch.labels, reduction="sum").backward()
        saliency = torch.cat([_gradient_size(weight).flatten() for weight in weights.values()])
        chosen = torch.zeros_like(saliency, dtype=torch.bool)
        chosen[saliency.topk(max(1, int(self.share * len(saliency)))).indices] = True
        parts = chosen.split([weight.numel() for weight in weights.values()])
        return {
            name: part.view(weight.shape).clone()
            for (name, weight), part in zip(weights.items(), parts, strict=True)
        }


def _gradient_size(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.abs()
