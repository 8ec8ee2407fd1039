"""SSD: selective synaptic dampening (Foster et al. 2024, "Fast machine unlearning ...")."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.methods.base import METHODS, BaseMethod, clone
from duck.models.head import logits_of
from duck.runtime import device_of, seeded
from duck.training.batching import MixedBatches, ShuffledPass, Step
from duck.training.cuda_graphs import GraphedStep
from duck.types import Batch, Task


@METHODS.register("ssd")
@dataclass(frozen=True)
class Ssd(BaseMethod):
    """Shrink the weights that are more important to the forget samples than to all (eq. 4 and 5).

    Nothing is trained.
    """

    paper: ClassVar[str] = "Foster 2024, arXiv:2308.07707"
    prepared_from: ClassVar[tuple[str, ...]] = ("batch_size",)
    prepared_per_request: ClassVar[bool] = False

    alpha: float = 10.0
    """A weight is dampened if it is alpha times as important to the forget samples as to all."""
    dampening: float = 1.0
    """Lambda, the dampening constant: a higher value shrinks less."""
    batch_size: int = 64
    """Samples in each gradient whose squares are averaged. Alpha depends on it."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        unlearned = clone(model)
        importance_to_all = task.prepared or self.prepare(model, task)
        forget = ShuffledPass("forget", task.forget, self.batch_size)
        steps = forget.epoch(seeded(task.seed, "ssd"))
        importance_to_forget = importance(model, (step["forget"] for step in steps))
        with torch.no_grad():
            for name, weight in unlearned.named_parameters():
                if name in importance_to_forget:
                    self._dampen(weight, importance_to_forget[name], importance_to_all[name])
        return unlearned

    def _dampen(self, weight: Tensor, to_forget: Tensor, to_all: Tensor) -> None:
        chosen = to_forget > self.alpha * to_all
        # If an importance is 0, the weight is not chosen and the quotient is not used.
        factor = (self.dampening * to_all / to_forget).clamp(max=1)
        weight.copy_(torch.where(chosen, weight * factor, weight))

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        """Return the importance of each weight to all samples.

        It serves requests with any seed, so that the seed of the task is not used.
        """
        mixed = MixedBatches(task.forget, task.retain, self.batch_size)
        return importance(model, (step["mixed"] for step in mixed.epoch(seeded(0, "ssd", "all"))))


def importance(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """Return the squared gradient of the mean cross-entropy, averaged over batches.

    The model is in eval mode and float32.
    """
    net = clone(model).eval()
    weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    sums = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def add_batch(step: Step) -> Tensor:
        loss = cross_entropy(logits_of(net(step["all"].images)), step["all"].labels)
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        for total, gradient in zip(sums.values(), gradients, strict=True):
            if gradient is not None:
                total.add_(gradient.square())
        return loss.detach()

    device = device_of(net)
    run_step = GraphedStep(add_batch, device) if device.type == "cuda" else add_batch
    count = 0
    for batch in batches:
        run_step({"all": batch})
        count += 1
    return {name: total / count for name, total in sums.items()}
