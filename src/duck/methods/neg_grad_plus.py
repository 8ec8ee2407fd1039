"""NegGrad+ (Kurmanji et al. 2023, "Towards unbounded machine unlearning")."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.methods._relabelling import training_logits
from duck.methods._training import train_copy
from duck.methods.base import METHODS, BaseMethod
from duck.training.batching import Batches, JoinedBatches, NestedBatches, Step
from duck.types import Task


@METHODS.register("neg-grad-plus")
@dataclass(frozen=True)
class NegGradPlus(BaseMethod):
    """Minimise alpha CE(retain) - (1 - alpha) CE(forget)."""

    paper: ClassVar[str] = "Kurmanji 2023, arXiv:2302.09880"

    alpha: float = 0.95
    """Weight of the retain loss; the forget loss has the weight 1 - alpha."""
    lr: float = 1e-2
    batch_size: int = 256
    """Of forget samples, and of retain samples."""
    epochs: int = 10
    milestones: tuple[int, ...] = ()
    """Epochs after which the learning rate is multiplied by `gamma`."""
    gamma: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if not 0 <= self.alpha <= 1:
            raise BadInput(f"alpha must be in [0, 1], got {self.alpha}.")
        return train_copy("neg-grad-plus", self, model, task, self._batches(task), self._loss)

    def _batches(self, task: Task) -> Batches:
        """Return one pass over the larger of the two sets; the smaller one is repeated."""
        augment = task.recipe.augment
        if len(task.forget) > len(task.retain):
            return NestedBatches(task.forget, task.retain, self.batch_size, 1, augment)
        return JoinedBatches(task.forget, task.retain, self.batch_size, self.batch_size, augment)

    def _loss(self, net: nn.Module, step: Step) -> Tensor:
        """Return the loss from two forward passes, retain samples first.

        BatchNorm normalises each of the two batches by itself.
        """
        retain, forget = step["retain"], step["forget"]
        retain_loss = cross_entropy(training_logits(net, retain.images), retain.labels)
        forget_loss = cross_entropy(training_logits(net, forget.images), forget.labels)
        return self.alpha * retain_loss - (1 - self.alpha) * forget_loss
