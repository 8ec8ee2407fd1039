"""SalUn: gradient-based weight saliency (Fan et al. 2024), with random labels."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.batching import Mixed, Step
from duck.errors import BadInput
from duck.fit import fit
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.methods.relabelling import wrong_labels
from duck.models.embedding import logits_of
from duck.runtime import seeded
from duck.types import Augment, Task


@METHODS.register("salun")
@dataclass(frozen=True)
class SalUn:
    """Move only the weights to which the forget loss is most sensitive, towards random labels on the forget samples (eq. 3 to 5)."""

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
    augment: Augment = "none"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "salun")
        masks = task.prepared or self.prepare(model, task)
        # One wrong label a sample for all epochs, not a new one each epoch.
        labels = torch.cat([wrong_labels(task, generator), task.retain.labels]).to(task.retain.device)
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="constant", epochs=self.epochs, batch_size=self.batch_size, augment=self.augment,
        )  # fmt: skip

        def loss(net: nn.Module, step: Step) -> Tensor:
            images, _, rows = step["mixed"]
            return cross_entropy(logits_of(net(images)).float(), labels[rows])

        # Forget and retain samples share batches: BatchNorm would take the statistics of forget samples alone for everybody's.
        mixed = Mixed(task.forget, task.retain, self.batch_size, self.augment)
        fit(unlearned, mixed, loss, recipe, generator, phase="salient", masks=masks, report=task.report, steady=True)
        return unlearned

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
        return {name: part.view(weight.shape).clone() for (name, weight), part in zip(weights.items(), parts, strict=True)}


def _size(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.abs()
