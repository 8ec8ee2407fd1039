"""AMUN (Ebrahimpour-Boroojeny et al. 2025), in its form without retain samples."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from duck.data.examples import Resident, examples
from duck.errors import BadInput
from duck.methods._adversarial import Attack
from duck.methods._relabelling import label_loss
from duck.methods._training import train_copy
from duck.methods.base import METHODS, BaseMethod, Kinds
from duck.methods.boundary_shrink import limits
from duck.runtime import autocast, evaluating
from duck.training.batching import MixedBatches
from duck.types import Task

ATTACK_BATCH = 1000


@METHODS.register("amun")
@dataclass(frozen=True)
class Amun(BaseMethod):
    """Fine-tune on forget samples and on adversarial examples near them.

    A forget sample keeps its label, and its adversarial example gets the wrong label that the
    original predicts there. This lowers the confidence in the forget samples and changes little
    elsewhere. No retain samples are used.
    """

    paper: ClassVar[str] = "Ebrahimpour-Boroojeny 2025, arXiv:2503.00917"
    scenarios: ClassVar[Kinds] = ("samples",)
    needs_retain: ClassVar[bool] = False

    lr: float = 0.01
    batch_size: int = 128
    epochs: int = 10
    radius: float = 0.04
    """First L2 radius of the attack, where black is 0 and white is 1. It is doubled until the
    prediction changes."""
    attack_steps: int = 50
    """Steps of the attack in each radius."""
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        adversarial = self.adversarial_examples(model, task)
        batches = MixedBatches(task.forget, adversarial, self.batch_size)
        return train_copy("amun", self, model, task, batches, label_loss)

    def adversarial_examples(self, model: nn.Module, task: Task) -> Resident:
        """Return an adversarial example near each forget sample, with its wrong label.

        Samples for which none was found are left out.
        """
        if self.attack_steps < 1 or self.radius <= 0:
            raise BadInput("AMUN needs a radius above 0 and at least one step of the attack.")
        attack = Attack(model, *limits(task.forget), self.radius, self.attack_steps)
        parts = []
        with evaluating(model), autocast(task.recipe.precision, task.forget.device):
            for batch in task.forget.batches(ATTACK_BATCH):
                moved, predicted = attack(batch)
                found = predicted != batch.labels
                parts.append((moved[found], predicted[found], batch.rows[found].cpu()))
        images, labels, rows = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        _check_found(task, len(rows))
        ids = np.array([f"{name} adversarial" for name in task.forget.ids[rows.numpy()]])
        return examples(images, labels, ids)


def _check_found(task: Task, found: int) -> None:
    """Add a note if some samples have no adversarial example; raise an error if none has one."""
    if found == 0:
        raise BadInput(
            "No image near a forget sample changes the prediction of the model, so AMUN cannot "
            "forget them. Use another method."
        )
    missing = len(task.forget) - found
    if missing:
        task.note(
            f"No adversarial example was found near {missing} of {len(task.forget)} forget "
            "samples: these are hardly forgotten."
        )
