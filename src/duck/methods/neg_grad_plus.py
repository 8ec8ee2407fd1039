"""NegGrad+ (Kurmanji et al. 2023, "Towards unbounded machine unlearning"): climb on the forget samples, descend on the others."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.methods._relabelling import training_logits
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.runtime import seeded
from duck.training.batching import Batches, Joined, Nested, Step
from duck.training.loop import fit
from duck.types import Augment, Task


@METHODS.register("neg-grad-plus")
@dataclass(frozen=True)
class NegGradPlus:
    """Each step alpha CE(retain) - (1 - alpha) CE(forget)."""

    paper: ClassVar[str] = "Kurmanji 2023, arXiv:2302.09880"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "training"

    alpha: float = 0.95
    """Weight of the retain loss; the forget loss has the weight 1 - alpha."""
    lr: float = 1e-2
    batch_size: int = 256
    """Of forget samples, and of retain samples."""
    epochs: int = 10
    milestones: tuple[int, ...] = ()
    """Epochs after which the rate is multiplied by `gamma`."""
    gamma: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if not 0 <= self.alpha <= 1:
            raise BadInput(f"alpha must be in [0, 1], got {self.alpha}.")
        unlearned, generator = clone(model), seeded(task.seed, "neg-grad-plus")
        recipe = replace(
            task.recipe, optimizer="sgd", lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=self.weight_decay,
            schedule="step", milestones=self.milestones, gamma=self.gamma, epochs=self.epochs, batch_size=self.batch_size,
        )  # fmt: skip
        batches = self._batches(task, recipe.augment)
        fit(
            unlearned,
            batches,
            self._loss,
            recipe,
            generator,
            phase="neg-grad-plus",
            report=task.report,
            steady=True,
        )
        return unlearned

    def _batches(self, task: Task, augment: Augment) -> Batches:
        """A pass over the larger of the two sets, so that every sample comes in each epoch; the other one cycles."""
        if len(task.forget) > len(task.retain):
            return Nested(task.forget, task.retain, self.batch_size, 1, augment)
        return Joined(task.forget, task.retain, self.batch_size, self.batch_size, augment)

    def _loss(self, net: nn.Module, step: Step) -> Tensor:
        """Two forward passes, retain samples first: BatchNorm normalises each of the two batches by itself."""
        retain, forget = step["retain"], step["forget"]
        keep = cross_entropy(training_logits(net, retain.images), retain.labels)
        climb = cross_entropy(training_logits(net, forget.images), forget.labels)
        return self.alpha * keep - (1 - self.alpha) * climb
