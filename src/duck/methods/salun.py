"""SalUn: gradient-based weight saliency (Fan et al. 2024), with random labels."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.methods._relabelling import Relabelled, label_loss, random_labels
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import logits_of
from duck.runtime import seeded
from duck.training.batching import Batches, InTurn, Passes
from duck.training.loop import fit
from duck.types import Augment, Task


@METHODS.register("salun")
@dataclass(frozen=True)
class SalUn:
    """Train only the weights to which the forget loss is most sensitive (eq. 3 to 5).

    Each epoch is a pass over the forget samples with new random labels in every step, and then a pass over the retain samples;
    both augmented as the original's training was.
    """

    paper: ClassVar[str] = "Fan 2024, arXiv:2310.12508"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "training"
    prepared_from: ClassVar[tuple[str, ...]] = ("share",)
    prepared_per_request: ClassVar[bool] = True

    lr: float = 0.013
    epochs: int = 10
    share: float = 0.5
    """Of all weights, those that may move."""
    batch_size: int = 256
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "salun")
        masks = task.prepared or self.prepare(model, task)
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="constant", epochs=self.epochs, batch_size=self.batch_size,
        )  # fmt: skip
        batches = self._batches(task, recipe.augment)
        fit(
            unlearned,
            batches,
            label_loss,
            recipe,
            generator,
            phase="salun",
            masks=masks,
            report=task.report,
            steady=True,
        )
        return unlearned

    def _batches(self, task: Task, augment: Augment) -> Batches:
        """Return the batches of an epoch: the forget samples with random labels of all classes, then the retain samples with their own."""
        forget = Passes("forget", task.forget, self.batch_size, augment)
        retain = Passes("retain", task.retain, self.batch_size, augment)
        return InTurn(Relabelled(forget, random_labels(torch.arange(task.num_classes))), retain)

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """True at the `share` of all weights where the summed gradient of the forget loss is largest, in eval mode and float32."""
        if not 0 < self.share <= 1:
            raise BadInput(f"share must be in (0, 1], got {self.share}.")
        net = clone(model).eval()
        weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
        for batch in task.forget.batches(1000):
            cross_entropy(logits_of(net(batch.images)), batch.labels, reduction="sum").backward()
        saliency = torch.cat([_size(weight).flatten() for weight in weights.values()])
        chosen = torch.zeros_like(saliency, dtype=torch.bool)
        chosen[saliency.topk(max(1, int(self.share * len(saliency)))).indices] = True
        parts = chosen.split([weight.numel() for weight in weights.values()])
        return {
            name: part.view(weight.shape).clone()
            for (name, weight), part in zip(weights.items(), parts, strict=True)
        }


def _size(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.abs()
