"""Makes models of a pool: train, unlearn, ask each about the watched samples, keep that and not the model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from duck.audits.margins import margins
from duck.methods.base import METHODS
from duck.models import build
from duck.models.head import logits_of
from duck.pools.files import Files
from duck.pools.plan import Job, Layout, Plan
from duck.predict import batch_size
from duck.runtime import Stopwatch, device_name, evaluating, seeded
from duck.scenarios import ForgetSamples
from duck.training import loop
from duck.training.stacked import can_stack, train_stacked
from duck.types import Data, Examples

Arrays = dict[str, npt.NDArray[Any]]
Accuracy = dict[str, float | None]
About = dict[str, Any]
"""What is noted of a model: accuracies, seconds, device."""
Made = list[tuple[Job, About]]


class Workshop:
    """Makes the models of one pool on one device."""

    def __init__(
        self, plan: Plan, who: Layout, files: Files, device: torch.device, compiled: bool
    ) -> None:
        self.plan, self.layout, self.files, self.device = plan, who, files, device
        self.recipe = replace(plan.experiment.training.recipe, compile=compiled)

    @property
    def data(self) -> Data:
        return self.layout.data

    def __call__(self, group: Sequence[Job]) -> Made:
        """Train a group together, write those of it that are not there yet, and say what was noted of them."""
        missing = [job for job in group if not self.files.is_complete(job)]
        if not missing:  # another process has made them meanwhile
            return [(job, self.files.about(job)) for job in group]
        with Stopwatch(self.device) as stopwatch:
            models = dict(zip(group, self._trained(group), strict=True))
        shared, made = stopwatch.seconds / len(missing), []
        for job in missing:
            with Stopwatch(self.device) as stopwatch:
                arrays, accuracy = self._examined(job, models.pop(job))
            seconds = shared + stopwatch.seconds
            about = {
                "accuracy": accuracy,
                "seconds": seconds,
                "device": device_name(self.device),
                "torch": str(torch.__version__),
            }
            self.files.write(job, arrays, about)
            made.append((job, about))
        return made

    def _trained(self, group: Sequence[Job]) -> list[nn.Module]:
        seeds = [self.plan.seed(job) for job in group]
        models = [self._fresh(seed).to(self.device) for seed in seeds]
        examples = [self.data.train.take(self.layout.trained_on(job)) for job in group]
        generators = [seeded(seed, "train") for seed in seeds]
        if len(group) > 1 and can_stack(examples, self.recipe.batch_size):
            train_stacked(models, examples, self.recipe, generators)
        else:
            for model, part, generator in zip(models, examples, generators, strict=True):
                loop.train(model, part, self.recipe, generator)
        return [model.eval() for model in models]

    def _fresh(self, seed: int | None = None) -> nn.Module:
        return build(
            self.plan.experiment.training.model, self.data.num_classes, self.data.train.shape, seed
        )

    def _examined(self, job: Job, model: nn.Module) -> tuple[Arrays, dict[str, Accuracy]]:
        """What the model says before and after unlearning, and how good it is."""
        members = self.layout.watched_members(job)
        states = [("oracle" if job.part == "oracle" else "before", model, members)]
        if job.part == "model" and self.plan.design == "request":
            states.append(
                ("after", self._unlearned(job, model), members & (self.layout.roles != "candidate"))
            )
        arrays: Arrays = {"members": members}
        accuracies = {}
        for state, one, known in states:
            said, accuracies[state] = self._asked(one, known)
            arrays |= {f"{state}.{name}": array for name, array in said.items()}
        return arrays, accuracies

    def _unlearned(self, job: Job, model: nn.Module) -> nn.Module:
        experiment, rows = self.plan.experiment, self.layout.trained_on(job)
        assert experiment.method is not None
        seen = replace(self.data, train=self.data.train.take(rows))
        chosen = self.layout.candidates[self.layout.members(job)]
        seed = self.plan.seed(job)
        scenario = ForgetSamples(self.data.train.take(chosen).ids.tolist())(
            seen, seed, experiment.protocol
        )
        # For a few epochs compilation would cost more than it saves.
        compiled = self.recipe.compile and METHODS.name_of(experiment.method) == "retrained"
        task = scenario.task(new_model=self._fresh, recipe=replace(self.recipe, compile=compiled))
        return experiment.method(model, task)

    def _asked(self, model: nn.Module, known: npt.NDArray[np.bool_]) -> tuple[Arrays, Accuracy]:
        logits = np.concatenate([_logits(model, part) for part in self.layout.parts])
        correct = logits.argmax(1) == self.layout.labels
        stays = self.layout.stays.numpy()[self.layout.labels]
        test = correct[(self.layout.roles == "test") & stays]
        accuracy = {
            "train": self._train_accuracy(correct, known),
            "test": float(test.mean()) if len(test) else None,
        }
        return {
            "logits": logits.astype(np.float16),
            "margins": margins(logits, self.layout.labels).astype(np.float32),
        }, accuracy

    def _train_accuracy(
        self, correct: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_]
    ) -> float:
        """Of all samples that the model is to know, from the watched ones: candidates are all watched, the others stand for the rest."""
        candidate = self.layout.roles == "candidate"
        parts = [
            (correct[known & candidate], int((known & candidate).sum())),
            (correct[known & ~candidate], len(self.layout.common)),
        ]
        return sum(float(right.mean()) * count for right, count in parts if len(right)) / sum(
            count for right, count in parts if len(right)
        )


def _logits(model: nn.Module, examples: Examples) -> npt.NDArray[np.float32]:
    """In float32, without autocast, in the order of the examples."""
    with evaluating(model):
        parts = [
            logits_of(model(batch.images)).float()
            for batch in examples.batches(batch_size(examples))
        ]
    logits: npt.NDArray[np.float32] = torch.cat(parts).cpu().numpy()
    return logits
