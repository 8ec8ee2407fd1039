"""Bad Teacher (Chundawat et al. 2023, "Can bad teaching induce forgetting?")."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._distillation import divergence, frozen_copy
from duck.methods._training import fit_task, method_recipe, new_model
from duck.methods.base import METHODS, BaseMethod, clone
from duck.models.head import logits_of
from duck.runtime import seeded
from duck.training.batching import MixedBatches, Step
from duck.types import Augment, Examples, Task


@METHODS.register("bad-teacher")
@dataclass(frozen=True)
class BadTeacher(BaseMethod):
    """Distil from a random model on forget samples and from the original on the others (eq. 3)."""

    paper: ClassVar[str] = "Chundawat 2023, arXiv:2205.08096"

    lr: float = 5e-4
    epochs: int = 3
    batch_size: int = 256
    retain_share: float = 0.3
    """Share of the retain samples that is used, drawn once."""
    temperature: float = 1.0
    """Temperature of both softmaxes."""
    weight_decay: float = 0.0
    augment: Augment = "none"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if not 0 < self.retain_share <= 1:
            raise BadInput(f"retain_share must be in (0, 1], got {self.retain_share}.")
        unlearned = clone(model)
        generator = seeded(task.seed, "bad-teacher")
        bad_teacher = frozen_copy(new_model("bad-teacher", model, task, generator))
        good_teacher = frozen_copy(model)
        retain = self._draw(task.retain, generator)

        def loss(net: nn.Module, step: Step) -> Tensor:
            return self.loss(net, good_teacher, bad_teacher, step, len(task.forget))

        batches = MixedBatches(task.forget, retain, self.batch_size, self.augment)
        recipe = method_recipe(task, self, "adam")
        fit_task(task, unlearned, batches, loss, recipe, generator, "teaching")
        return unlearned

    def _draw(self, retain: Examples, generator: torch.Generator) -> Examples:
        count = max(1, round(self.retain_share * len(retain)))
        return retain.take(torch.randperm(len(retain), generator=generator)[:count])

    def loss(
        self,
        net: nn.Module,
        good_teacher: nn.Module,
        bad_teacher: nn.Module,
        step: Step,
        forget_count: int,
    ) -> Tensor:
        """Return the divergence from the teacher of each sample.

        Rows below `forget_count` are forget samples.
        """
        images, _, rows = step["mixed"]
        with torch.no_grad():
            teacher_logits = torch.where(
                (rows < forget_count).unsqueeze(1),
                logits_of(bad_teacher(images)).float(),
                logits_of(good_teacher(images)).float(),
            )
        return divergence(teacher_logits, logits_of(net(images)).float(), self.temperature)
