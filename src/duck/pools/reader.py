"""Read a pool: predictions of many models on the same samples, members and accuracies."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from duck.audits.scores import Flags, Margins
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.pools.files import Files, ModelInfo, find
from duck.pools.plan import Design, Job, Plan, differences, recipe_of
from duck.scenarios import ForgetFraction, ForgetRandomClasses
from duck.types import Ids

State = Literal["before", "after", "oracle"]


@dataclass(frozen=True, eq=False)
class Stack:
    """Predictions of several models on the same samples.

    All margins are held in memory. Logits are read one model at a time.
    """

    files: Files
    jobs: tuple[Job, ...]
    state: State

    def __len__(self) -> int:
        return len(self.jobs)

    @cached_property
    def margins(self) -> npt.NDArray[np.float32]:
        """(models, samples)."""
        return np.stack([self.files.read(job, f"{self.state}.margins") for job in self.jobs])

    @cached_property
    def members(self) -> Flags:
        """(models, samples): whether the model was trained on the sample, before unlearning."""
        return np.stack([self.files.read(job, "members") for job in self.jobs])

    def check_unique(self) -> None:
        """Raise an error where a file was copied to another number: it would count twice."""
        first_job: dict[str, Job] = {}
        for job, members, margins in zip(self.jobs, self.members, self.margins, strict=True):
            digest = hashlib.blake2b(members.tobytes() + margins.tobytes()).hexdigest()
            original = first_job.setdefault(digest, job)
            if original != job:
                raise BadInput(
                    f"{self.files.path(job)} is a copy of {original}: delete it, "
                    "it would count twice."
                )

    def logits(self, model: int) -> npt.NDArray[np.float16]:
        """Read the (samples, classes) logits of one model."""
        return self.files.read(self.jobs[model], f"{self.state}.logits")

    @cached_property
    def infos(self) -> list[ModelInfo]:
        """Accuracies, seconds and device of each model."""
        return [self.files.info(job) for job in self.jobs]

    @property
    def accuracies(self) -> dict[str, npt.NDArray[np.float64]]:
        """Accuracies of each model; NaN where there is no sample.

        train   on what the model should know
        test    on test samples of the retained classes
        """
        rows = [info.accuracy[self.state] for info in self.infos]
        # NumPy converts None to NaN.
        return {name: np.array([row[name] for row in rows], float) for name in ("train", "test")}


class Pool:
    """The models that a folder of `duck pool` holds when it is opened."""

    def __init__(self, folder: Path | str) -> None:
        self.files = find(Path(folder))
        self.fingerprint = self.files.fingerprint
        self.design: Design = self.fingerprint["design"]
        jobs = sorted(self.files.jobs())
        models = tuple(job for job in jobs if job.part == "model")
        oracles = tuple(job for job in jobs if job.part == "oracle")
        if not models:
            raise BadInput(
                f"The pool in {folder} has no finished model yet. "
                "Rerun the command that created it."
            )
        self.ids: Ids
        self.ids, self.labels, self.roles = self.files.samples()
        self.before = Stack(self.files, models, "before")
        is_request = self.design == "request"
        self.after = Stack(self.files, models, "after") if is_request else None
        """After unlearning; None for shadow models."""
        self.oracle = Stack(self.files, oracles, "oracle") if oracles else None
        """Models that never saw a candidate; None for shadow models, and where none is finished."""
        for stack in (self.before, self.oracle):
            if stack:
                stack.check_unique()

    @property
    def members(self) -> Flags:
        """(models, samples): whether the model was trained on the sample, before unlearning."""
        return self.before.members

    @property
    def requested(self) -> Flags:
        """(models, samples): whether the model had to forget the sample."""
        candidate = (self.roles == "candidate") & (self.design == "request")
        requested: Flags = self.members & candidate
        return requested

    def test_ids(self, ids: Ids) -> Ids:
        """Return the ids of test samples in the pool: marked if training samples have the same."""
        marked: Ids = np.char.add("test:", ids)
        return marked if np.isin(marked, self.ids).any() else ids

    def stack(self, state: State) -> Stack:
        """Return the models of one state, or raise an error if the pool has none."""
        stack = {"before": self.before, "after": self.after, "oracle": self.oracle}[state]
        if stack is None:
            raise BadInput(
                f"The pool in {self.files.folder} (design {self.design!r}) has no models {state!r}."
            )
        return stack

    def margins(self, state: State, role: str | None = None) -> Margins:
        """Return the margins of one state, for the samples of one role or all."""
        stack = self.stack(state)
        margins = Margins(self.ids, stack.margins, stack.members)
        return margins.at(self.ids[self.roles == role]) if role else margins

    def __len__(self) -> int:
        """Return the number of models, without oracles."""
        return len(self.before)


def mismatch(pool: Pool, experiment: Experiment, ignore_recipe: bool = False) -> list[str]:
    """Return where a pool and a run differ, one sentence each; empty where the pool fits.

    A sentence begins with the name of the setting. A shadow pool fits every request and method.
    """
    fields = ["data", "model", "code", "image_size", "mean", "std"]
    plan = Plan(Experiment(experiment.training, seed=experiment.seed))
    if pool.design == "request":
        if experiment.request is None or experiment.method is None:
            return ["request: the pool is about forgetting and the run is an original model."]
        fields += ["request", "method", "protocol"]
        if isinstance(experiment.request, ForgetFraction | ForgetRandomClasses):
            fields.append("seed")  # it determines the forget set
        plan = Plan(experiment)
    is_unknown = bool(experiment.training.weights)
    if not (ignore_recipe or is_unknown):
        fields.insert(6, "recipe")
    run_recipe = recipe_of(plan)
    found = differences(
        {field: pool.fingerprint.get(field) for field in fields},
        {field: run_recipe.get(field) for field in fields},
    )
    sentences = [
        f"{name}: {in_pool!r} in the pool, {in_run!r} in the run."
        for name, (in_pool, in_run) in found.items()
    ]
    if is_unknown and not ignore_recipe:
        sentences.append(
            "recipe: the run's original was trained elsewhere, in a way that is not known."
        )
    return sentences


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over models; None where a model has no such sample."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class PoolSummary:
    """What a pool holds."""

    pool: str
    design: Design
    models: int
    oracles: int
    samples: dict[str, int]
    """By role."""
    accuracy: dict[State, dict[str, Spread]]
    seconds: float


def summarize(pool: Pool) -> PoolSummary:
    """Return the number of models and samples, and the mean and deviation of the accuracies."""
    roles, counts = np.unique(pool.roles, return_counts=True)
    accuracy: dict[State, dict[str, Spread]] = {}
    seconds = 0.0
    for stack in (pool.before, pool.after, pool.oracle):
        if stack:
            accuracy[stack.state] = {
                name: _spread(values) for name, values in stack.accuracies.items()
            }
        if stack and stack is not pool.after:
            seconds += sum(info.seconds for info in stack.infos)
    return PoolSummary(
        str(pool.files.folder),
        pool.design,
        len(pool),
        len(pool.oracle) if pool.oracle else 0,
        {str(role): int(count) for role, count in zip(roles, counts, strict=True)},
        accuracy,
        seconds,
    )


def _spread(values: npt.NDArray[np.float64]) -> Spread:
    if np.isnan(values).any():
        return Spread(None, None)
    return Spread(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None)
