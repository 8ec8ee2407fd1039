"""Train the models of a pool and store their predictions on the watched samples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from duck.audits.scores import margins
from duck.methods.base import METHODS
from duck.models import build
from duck.pools.files import Files
from duck.pools.plan import Job, Layout, Plan, make_layout
from duck.predict import logits_on
from duck.runtime import Stopwatch, device_name, seeded
from duck.scenarios import ForgetSamples
from duck.training import loop
from duck.training.stacked import can_stack, train_stacked
from duck.types import Data, Recipe

Arrays = dict[str, npt.NDArray[Any]]
Mask = npt.NDArray[np.bool_]
Accuracy = dict[str, float | None]
Group = tuple[Job, ...]
"""Models that are trained together."""
ModelInfo = dict[str, Any]
"""Accuracies, seconds and device of a trained model."""
TrainedModels = list[tuple[Job, ModelInfo]]


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains models of one pool on one device. It can be pickled: workers receive a copy."""

    plan: Plan
    data: Data
    files: Files
    device: torch.device
    compiled: bool

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed from the fields. Data travel in host memory."""
        state = {name: self.__dict__[name] for name in ("plan", "files", "device", "compiled")}
        return {**state, "data": self.data.to("cpu")}

    @cached_property
    def layout(self) -> Layout:
        """The watched samples, with the data on the device."""
        return make_layout(self.plan, self.data.to(self.device))

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the plan, compiled or not."""
        return replace(self.plan.experiment.training.recipe, compile=self.compiled)

    def __call__(self, group: Group) -> TrainedModels:
        """Train a group of models, write the missing ones and return what was trained."""
        missing = [job for job in group if not self.files.is_complete(job)]
        if not missing:  # Another process has trained them in the meantime.
            return [(job, self.files.about(job)) for job in group]
        with _single_thread(self.device):
            with Stopwatch(self.device) as stopwatch:
                models = dict(zip(group, self._train(group), strict=True))
            training_seconds = stopwatch.seconds / len(missing)
            return [(job, self._finish(job, models.pop(job), training_seconds)) for job in missing]

    def _finish(self, job: Job, model: nn.Module, training_seconds: float) -> ModelInfo:
        """Unlearn, evaluate and write one trained model."""
        with Stopwatch(self.device) as stopwatch:
            arrays, accuracy = self._evaluate(job, model)
        info = {
            "accuracy": accuracy,
            "seconds": training_seconds + stopwatch.seconds,
            "device": device_name(self.device),
            "torch": str(torch.__version__),
        }
        self.files.write(job, arrays, info)
        return info

    def _train(self, group: Sequence[Job]) -> list[nn.Module]:
        seeds = [self.plan.seed(job) for job in group]
        models = [self._new_model(seed).to(self.device) for seed in seeds]
        train = self.layout.data.train
        examples = [train.take(self.layout.training_rows(job)) for job in group]
        generators = [seeded(seed, "train") for seed in seeds]
        if len(group) > 1 and can_stack(examples, self.recipe.batch_size):
            train_stacked(models, examples, self.recipe, generators)
        else:
            for model, part, generator in zip(models, examples, generators, strict=True):
                loop.train(model, part, self.recipe, generator)
        return [model.eval() for model in models]

    def _new_model(self, seed: int | None = None) -> nn.Module:
        name = self.plan.experiment.training.model
        return build(name, self.data.num_classes, self.data.train.shape, seed)

    def _evaluate(self, job: Job, model: nn.Module) -> tuple[Arrays, dict[str, Accuracy]]:
        """Return predictions and accuracies of a model before and after unlearning."""
        members = self.layout.watched_members(job)
        models = {"oracle" if job.part == "oracle" else "before": model}
        known = dict.fromkeys(models, members)
        if job.part == "model" and self.plan.design == "request":
            models["after"] = self._unlearn(job, model)
            known["after"] = members & (self.layout.roles != "candidate")
        arrays: Arrays = {"members": members}
        accuracies = {}
        for state, state_model in models.items():
            parts = [logits_on(state_model, part).cpu().numpy() for part in self.layout.parts]
            logits = np.concatenate(parts)
            arrays[f"{state}.logits"] = logits.astype(np.float16)
            arrays[f"{state}.margins"] = margins(logits, self.layout.labels).astype(np.float32)
            accuracies[state] = self._accuracy(logits, known[state])
        return arrays, accuracies

    def _unlearn(self, job: Job, model: nn.Module) -> nn.Module:
        experiment = self.plan.experiment
        assert experiment.method is not None
        train = self.layout.data.train
        training_data = replace(self.layout.data, train=train.take(self.layout.training_rows(job)))
        forget_rows = self.layout.candidates[self.layout.members(job)]
        request = ForgetSamples(train.take(forget_rows).ids.tolist())
        scenario = request(training_data, self.plan.seed(job), experiment.protocol)
        # For a few epochs compilation would cost more than it saves.
        compiled = self.recipe.compile and METHODS.name_of(experiment.method) == "retrained"
        recipe = replace(self.recipe, compile=compiled)
        return experiment.method(model, scenario.task(new_model=self._new_model, recipe=recipe))

    def _accuracy(self, logits: npt.NDArray[np.float32], known: Mask) -> Accuracy:
        """Return the accuracies on training samples and on test samples of retained classes."""
        correct = logits.argmax(1) == self.layout.labels
        retained = self.layout.retained_classes.numpy()[self.layout.labels]
        test = correct[(self.layout.roles == "test") & retained]
        return {
            "train": self._train_accuracy(correct, known),
            "test": float(test.mean()) if len(test) else None,
        }

    def _train_accuracy(self, correct: Mask, known: Mask) -> float:
        """Return the accuracy on all samples that the model should know.

        All candidates are watched. The other watched samples represent all that every model sees.
        """
        candidate = self.layout.roles == "candidate"
        parts = [
            (correct[known & candidate], int((known & candidate).sum())),
            (correct[known & ~candidate], len(self.layout.common)),
        ]
        present = [(part, count) for part, count in parts if len(part)]
        weighted = sum(float(part.mean()) * count for part, count in present)
        return weighted / sum(count for _, count in present)


@contextmanager
def _single_thread(device: torch.device) -> Iterator[None]:
    """On the CPU use one thread: sums over several threads depend on their number."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
