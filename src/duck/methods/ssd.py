"""SSD: fast machine unlearning without retraining through selective synaptic dampening (Foster et al. 2024)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import logits_of
from duck.runtime import device_of, seeded
from duck.training.batching import Mixed, Passes, Step
from duck.training.cuda_graphs import Recorded
from duck.types import Batch, Task


@METHODS.register("ssd")
@dataclass(frozen=True)
class Ssd:
    """Shrink the weights that matter more to the forget samples than to all samples (SSD, eq. 4 and 5). No training."""

    paper: ClassVar[str] = "Foster 2024, arXiv:2308.07707"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "training"
    prepared_from: ClassVar[tuple[str, ...]] = ("batch_size",)
    prepared_per_request: ClassVar[bool] = False

    alpha: float = 10.0
    """A weight is dampened where its importance to the forget samples is so many times that to all."""
    dampening: float = 1.0
    """Lambda, the dampening constant: higher shrinks less."""
    batch_size: int = 64
    """Of the gradients whose squares are averaged; alpha belongs to it."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned, generator = clone(model), seeded(task.seed, "ssd")
        overall = task.prepared or self.prepare(model, task)
        forget = (
            step["forget"]
            for step in Passes("forget", task.forget, self.batch_size).epoch(generator)
        )
        special = importance(model, forget)
        with torch.no_grad():
            for name, weight in unlearned.named_parameters():
                if name in special:
                    chosen = special[name] > self.alpha * overall[name]
                    # Where an importance is 0 nothing is chosen, so its quotient is never used.
                    shrink = (self.dampening * overall[name] / special[name]).clamp(max=1)
                    weight.copy_(torch.where(chosen, weight * shrink, weight))
        return unlearned

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """Importance to all samples, whoever is to be forgotten. Not task.seed: it serves requests of every seed."""
        mixed = Mixed(task.forget, task.retain, self.batch_size)
        return importance(model, (step["mixed"] for step in mixed.epoch(seeded(0, "ssd", "all"))))


def importance(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """Mean over batches of the squared gradient of the mean cross-entropy: eval mode, float32."""
    net = clone(model).eval()
    weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    sums, count = {name: torch.zeros_like(weight) for name, weight in weights.items()}, 0

    def add(step: Step) -> Tensor:
        loss = cross_entropy(logits_of(net(step["all"].images)), step["all"].labels)
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        for total, gradient in zip(sums.values(), gradients, strict=True):
            if gradient is not None:
                total.add_(gradient.square())
        return loss.detach()

    device = device_of(net)
    take = Recorded(add, device) if device.type == "cuda" else add
    for batch in batches:
        take({"all": batch})
        count += 1
    return {name: total / count for name, total in sums.items()}
