"""Read a pool: predictions of many models on the same samples, members and accuracies."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from duck.audits.scores import Margins
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.pools.files import Files, Fingerprint, find
from duck.pools.plan import Job, Plan, differences, recipe_of, seed_matters
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
    def members(self) -> npt.NDArray[np.bool_]:
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
    def infos(self) -> list[dict[str, Any]]:
        """Accuracies, seconds and device of each model."""
        return [self.files.about(job) for job in self.jobs]

    @property
    def accuracies(self) -> dict[str, npt.NDArray[np.float64]]:
        """Accuracies of each model; NaN where there is no sample.

        train   on what the model should know
        test    on test samples of the retained classes
        """
        rows = [info["accuracy"][self.state] for info in self.infos]
        # NumPy converts None to NaN.
        return {name: np.array([row[name] for row in rows], float) for name in ("train", "test")}


class Pool:
    """The models that a folder of `duck pool` holds when it is opened."""

    def __init__(self, folder: Path | str) -> None:
        self.files = find(Path(folder))
        jobs = sorted(self.files.jobs())
        self._models = tuple(job for job in jobs if job.part == "model")
        self._oracles = tuple(job for job in jobs if job.part == "oracle")
        if not self._models:
            raise BadInput(
                f"The pool in {folder} has no finished model yet. "
                "Rerun the command that created it."
            )
        self.ids: Ids
        self.ids, self.labels, self.roles = self.files.samples()
        for stack in (self.before, self.oracle):
            if stack:
                stack.check_unique()

    @property
    def fingerprint(self) -> Fingerprint:
        return self.files.fingerprint

    @property
    def design(self) -> str:
        return str(self.fingerprint["design"])

    @cached_property
    def members(self) -> npt.NDArray[np.bool_]:
        """(models, samples): whether the model was trained on the sample, before unlearning."""
        return self.before.members

    @cached_property
    def requested(self) -> npt.NDArray[np.bool_]:
        """(models, samples): whether the model had to forget the sample."""
        candidate = (self.roles == "candidate") & (self.design == "request")
        requested: npt.NDArray[np.bool_] = self.members & candidate
        return requested

    @cached_property
    def before(self) -> Stack:
        return Stack(self.files, self._models, "before")

    @cached_property
    def after(self) -> Stack | None:
        """After unlearning; None for shadow models."""
        return Stack(self.files, self._models, "after") if self.design == "request" else None

    @cached_property
    def oracle(self) -> Stack | None:
        """Models that never saw a candidate; None for shadow models, and where none is finished."""
        return Stack(self.files, self._oracles, "oracle") if self._oracles else None

    def stack(self, state: State) -> Stack:
        """Return the models of one state, or raise an error if the pool has none."""
        found = {"before": self.before, "after": self.after, "oracle": self.oracle}[state]
        if found is None:
            raise BadInput(
                f"The pool in {self.files.folder} (design {self.design!r}) has no models {state!r}."
            )
        return found

    def margins(self, state: State, role: str | None = None) -> Margins:
        """Return the margins of one state, for the samples of one role or all."""
        stack = self.stack(state)
        margins = Margins(self.ids, stack.margins, stack.members)
        return margins.at(self.ids[self.roles == role]) if role else margins

    def __len__(self) -> int:
        """Return the number of models, without oracles."""
        return len(self._models)


def mismatch(pool: Pool, experiment: Experiment, but: tuple[str, ...] = ()) -> list[str]:
    """Return where a pool and a run differ, one sentence each; empty where the pool fits.

    A sentence begins with the name of the setting. A shadow pool fits every request and method.

    but   names to skip, such as "recipe" or "recipe.epochs"
    """
    fields = ["data", "model", "image_size", "mean", "std", "recipe"]
    if pool.design == "request":
        if experiment.request is None or experiment.method is None:
            return ["request: the pool is about forgetting and the run is an original model."]
        fields += ["request", "method", "protocol"]
        if seed_matters(experiment):
            fields.append("seed")
        plan = Plan("request", experiment)
    else:
        plan = Plan("shadow", Experiment(experiment.training, seed=experiment.seed))
    run_fingerprint = recipe_of(plan)
    of_pool = {field: pool.fingerprint[field] for field in fields}
    of_run = {field: run_fingerprint[field] for field in fields}
    sentences = {
        name: f"{name}: {in_pool!r} in the pool, {in_run!r} in the run."
        for name, (in_pool, in_run) in differences(of_pool, of_run).items()
    }
    if experiment.training.weights:
        sentences = {
            name: text for name, text in sentences.items() if not name.startswith("recipe")
        }
        sentences["recipe"] = (
            "recipe: the run's original was trained elsewhere, in a way that is not known."
        )
    skipped_parts = tuple(f"{name}." for name in but)
    return [
        text
        for name, text in sentences.items()
        if name not in but and not name.startswith(skipped_parts)
    ]


def summarize(pool: Pool) -> dict[str, Any]:
    """Return the number of models and samples, and the mean and deviation of the accuracies."""
    stacks = {"before": pool.before, "after": pool.after, "oracle": pool.oracle}
    roles, counts = np.unique(pool.roles, return_counts=True)
    accuracy = {}
    for state, stack in stacks.items():
        if stack:
            accuracy[state] = {name: _spread(values) for name, values in stack.accuracies.items()}
    seconds = 0.0
    for stack in (pool.before, pool.oracle):
        if stack:
            seconds += sum(info["seconds"] for info in stack.infos)
    return {
        "pool": str(pool.files.folder),
        "design": pool.design,
        "models": len(pool),
        "oracles": len(pool.oracle) if pool.oracle else 0,
        "samples": {str(role): int(count) for role, count in zip(roles, counts, strict=True)},
        "accuracy": accuracy,
        "seconds": seconds,
    }


def _spread(values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    if np.isnan(values).any():
        return {"mean": None, "std": None}
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "std": deviation}
