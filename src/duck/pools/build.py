"""Train the missing models of a pool. An interrupted build loses only the models in training."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from duck.audits.scores import Flags, margins
from duck.checks import check_settings
from duck.display import Display, JobProgress
from duck.engines import INLINE, Engine, create_engine
from duck.errors import BadInput
from duck.experiment import fingerprint
from duck.methods.base import METHODS
from duck.models import build
from duck.pools.files import Files, ModelInfo, create
from duck.pools.plan import Job, Layout, Plan, make_layout, recipe_of
from duck.pools.reader import Pool
from duck.predict import logits_on
from duck.runtime import Stopwatch, device_name, fixed_seed, pick_device, seeded
from duck.scenarios import ForgetSamples
from duck.training import loop
from duck.training.loop import check_recipe
from duck.types import Data, Recipe

Arrays = dict[str, npt.NDArray[Any]]
Accuracy = dict[str, float | None]


class BuildCounts(NamedTuple):
    """How many models a build trained, found and left out."""

    trained: int
    """By this call."""
    there: int
    """Before it."""
    left: int
    """Not started: they did not fit into the time limit."""


def build_pool(
    folder: Path,
    plan: Plan,
    data: Data,
    models: int,
    *,
    device: str | torch.device = "auto",
    compiled: bool | None = None,
    engine: Engine = INLINE,
    share: tuple[int, int] = (1, 1),
    limit: float | None = None,
    new_model: Callable[[], nn.Module] | None = None,
    report: Callable[[JobProgress[ModelInfo]], None] = lambda _: None,
) -> BuildCounts:
    """Train the missing models of a pool (and, for requests, half as many oracles).

    compiled   None: on CUDA
    share      (2, 3): only the second of three equal parts, for several machines; merge them later
    limit      seconds; a model that would not fit into them is not started
    new_model  builds a fresh model; None: the plan's model by its name
    """
    started_at = time.monotonic()
    place = device if isinstance(device, torch.device) else pick_device(device)
    _check(plan, data, share)
    jobs = plan.jobs(models)[share[0] - 1 :: share[1]]
    samples = make_layout(plan, data).samples
    # Pools with the same fingerprint can be merged.
    files = create(folder, {**recipe_of(plan), "samples": samples.digest()}, samples)
    done = files.done() & set(jobs)
    missing = [job for job in jobs if job not in done]
    compiled = place.type == "cuda" if compiled is None else compiled
    trainer = Trainer(plan, data, files, place, compiled, new_model)
    infos = [files.info(job) for job in sorted(done)]
    seconds = [info.seconds for info in infos if info.device == device_name(place)]

    def start(job: Job) -> bool:
        expected = statistics.median(seconds) if seconds else 0.0
        return limit is None or time.monotonic() - started_at + expected <= limit

    def report_progress(job: Job | None = None, info: ModelInfo | None = None) -> None:
        left = None
        if seconds:
            busy_workers = max(1, min(engine.workers, len(missing)))
            left = len(missing) * statistics.median(seconds) / busy_workers
        report(JobProgress(len(jobs) - len(missing), len(missing), left, job, info))

    report_progress()
    for job, info in engine(trainer, list(missing), start) if missing else ():
        missing.remove(job)
        seconds.append(info.seconds)
        report_progress(job, info)
    return BuildCounts(len(jobs) - len(done) - len(missing), len(done), len(missing))


def build_request_pool(
    folder: Path,
    plan: Plan,
    data: Data,
    models: int,
    device: torch.device,
    display: Display,
    new_model: Callable[[], nn.Module] | None = None,
) -> Pool:
    """Train the missing models of a pool for an audit, show how far it is, and open it."""
    display.message(f"The pool of {models} models is made, or resumed, in {folder}.")
    with display.progress("pool") as progress:
        build_pool(
            folder,
            plan,
            data,
            models,
            device=device,
            # A function of the user's may hold what other processes cannot receive.
            engine=create_engine(None, suitable_workers(device)) if new_model is None else INLINE,
            new_model=new_model,
            report=lambda state: progress(state.done, state.done + state.left),
        )
    return Pool(folder)


def suitable_workers(device: torch.device) -> int:
    """Return one worker per core, which small models do not fill alone; one on an accelerator."""
    if device.type == "cpu" and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return 1


def _check(plan: Plan, data: Data, share: tuple[int, int]) -> None:
    check_recipe(plan.experiment.training.recipe)
    check_settings(plan.experiment.method)
    if plan.experiment.training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those of the plan: the fingerprint of {data.name} differs. "
            "Name them with --data, --root."
        )
    if not 1 <= share[0] <= share[1]:
        raise BadInput(f"A share is K of N with K from 1 to N, got {share[0]} of {share[1]}.")


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains models of one pool on one device. It can be pickled: workers receive a copy."""

    plan: Plan
    data: Data
    files: Files
    device: torch.device
    compiled: bool
    new_model: Callable[[], nn.Module] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed from the fields. Data travel in host memory."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**state, "data": self.data.to("cpu")}

    @cached_property
    def layout(self) -> Layout:
        """The watched samples, with the data on the device."""
        return make_layout(self.plan, self.data.to(self.device))

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the plan, compiled or not."""
        return replace(self.plan.experiment.training.recipe, compile=self.compiled)

    def __call__(self, job: Job) -> tuple[Job, ModelInfo]:
        """Train one model, unlearn, evaluate and write it."""
        if self.files.is_complete(job):  # Another process has trained it in the meantime.
            return job, self.files.info(job)
        with _single_thread(self.device), Stopwatch(self.device) as stopwatch:
            arrays, accuracy = self._evaluate(job, self._train(job))
        version = str(torch.__version__)
        info = ModelInfo(accuracy, stopwatch.seconds, device_name(self.device), version)
        self.files.write(job, arrays, info)
        return job, info

    def _train(self, job: Job) -> nn.Module:
        seed = self.plan.seed(job)
        model = self._new_model(seed).to(self.device)
        examples = self.layout.data.train.take(self.layout.training_rows(job))
        loop.train(model, examples, self.recipe, seeded(seed, "train"))
        return model.eval()

    def _new_model(self, seed: int | None = None) -> nn.Module:
        if self.new_model is not None:
            with nullcontext() if seed is None else fixed_seed(seed, self.device):
                return self.new_model()
        name = self.plan.experiment.training.model
        return build(name, self.data.num_classes, self.data.train.shape, seed)

    def _evaluate(self, job: Job, model: nn.Module) -> tuple[Arrays, dict[str, Accuracy]]:
        """Return predictions and accuracies of a model before and after unlearning."""
        members, samples = self.layout.watched_members(job), self.layout.samples
        models = {"oracle" if job.part == "oracle" else "before": model}
        known = dict.fromkeys(models, members)
        if job.part == "model" and self.plan.design == "request":
            models["after"] = self._unlearn(job, model)
            known["after"] = members & (samples.roles != "candidate")
        arrays: Arrays = {"members": members}
        accuracies = {}
        for state, state_model in models.items():
            parts = [logits_on(state_model, part).cpu().numpy() for part in self.layout.parts]
            logits = np.concatenate(parts)
            arrays[f"{state}.logits"] = logits.astype(np.float16)
            arrays[f"{state}.margins"] = margins(logits, samples.labels).astype(np.float32)
            accuracies[state] = self._accuracy(logits.argmax(1) == samples.labels, known[state])
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

    def _accuracy(self, correct: Flags, known: Flags) -> Accuracy:
        """Return the accuracies on what the model should know and on test samples.

        All candidates are watched. The other watched training samples represent all that every
        model sees. Test samples are those of retained classes.
        """
        samples = self.layout.samples
        candidate = samples.roles == "candidate"
        weighted, total = 0.0, 0
        for part, count in (
            (known & candidate, int((known & candidate).sum())),
            (known & ~candidate, len(self.layout.common)),
        ):
            if part.any():
                weighted += float(correct[part].mean()) * count
                total += count
        is_retained_class = self.layout.retained_classes.numpy()[samples.labels]
        test = correct[(samples.roles == "test") & is_retained_class]
        return {"train": weighted / total, "test": float(test.mean()) if len(test) else None}


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
