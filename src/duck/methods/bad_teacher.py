"""Bad Teacher: can bad teaching induce forgetting? (Chundawat et al. 2023)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._distillation import divergence, frozen
from duck.methods.base import METHODS, Forgets, Kinds, clone
from duck.models.head import logits_of
from duck.runtime import device_of, global_seed, seeded
from duck.training.batching import Mixed, Step
from duck.training.loop import fit
from duck.types import Augment, Task


@METHODS.register("bad-teacher")
@dataclass(frozen=True)
class BadTeacher:
    """Learn from a randomly initialised net on the forget samples, from the original on some of the others (eq. 3)."""

    paper: ClassVar[str] = "Chundawat 2023, arXiv:2205.08096"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = True
    forgets_by: ClassVar[Forgets] = "training"

    lr: float = 5e-4
    epochs: int = 3
    batch_size: int = 256
    retain_share: float = 0.3
    """Of the retain samples, drawn once."""
    temperature: float = 1.0
    """Of both softmaxes."""
    weight_decay: float = 0.0
    augment: Augment = "none"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if task.new_model is None:
            raise BadInput(
                "bad-teacher learns from a randomly initialised net: pass new_model=, a function that builds one."
            )
        if not 0 < self.retain_share <= 1:
            raise BadInput(f"retain_share must be in (0, 1], got {self.retain_share}.")
        unlearned, generator = clone(model), seeded(task.seed, "bad-teacher")
        with global_seed(generator, device_of(model)):
            bad = frozen(task.new_model().to(device_of(model)))
        good, forgets = frozen(model), len(task.forget)
        some = torch.randperm(len(task.retain), generator=generator)[
            : max(1, round(self.retain_share * len(task.retain)))
        ]
        recipe = replace(
            task.recipe, optimizer="adam", lr=self.lr, weight_decay=self.weight_decay, schedule="constant",
            epochs=self.epochs, batch_size=self.batch_size, augment=self.augment,
        )  # fmt: skip

        def loss(net: nn.Module, step: Step) -> Tensor:
            return self.loss(net, good, bad, step, forgets)

        mixed = Mixed(task.forget, task.retain.take(some), self.batch_size, self.augment)
        fit(
            unlearned,
            mixed,
            loss,
            recipe,
            generator,
            phase="teaching",
            report=task.report,
            steady=True,
        )
        return unlearned

    def loss(
        self, net: nn.Module, good: nn.Module, bad: nn.Module, step: Step, forgets: int
    ) -> Tensor:
        """Divergence from each sample's own teacher; the first `forgets` rows are the forget samples."""
        images, _, rows = step["mixed"]
        with torch.no_grad():
            wanted = torch.where(
                (rows < forgets).unsqueeze(1),
                logits_of(bad(images)).float(),
                logits_of(good(images)).float(),
            )
        return divergence(wanted, logits_of(net(images)).float(), self.temperature)
