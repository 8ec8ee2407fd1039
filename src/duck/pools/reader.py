"""A pool read back: what many models say of the same samples, which of them each saw, and how good each is."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from duck.audits.scores import Margins, Scored
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.pools.files import Files, Fingerprint, find
from duck.pools.plan import Job, Plan, differences, recipe_of, seed_matters
from duck.types import Ids

State = Literal["before", "after", "oracle"]
Rows = npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice


@dataclass(frozen=True, eq=False)
class Stack:
    """The same samples under several models. Margins of all are held in memory; logits are read one model at a time."""

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
        """(models, samples): was it trained on this sample, before any unlearning."""
        return np.stack([self.files.read(job, "members") for job in self.jobs])

    def refuse_copies(self) -> None:
        """A file that was copied to another number would count twice."""
        first: dict[str, Job] = {}
        for job, trained, said in zip(self.jobs, self.members, self.margins, strict=True):
            known = first.setdefault(
                hashlib.blake2b(trained.tobytes() + said.tobytes()).hexdigest(), job
            )
            if known != job:
                raise BadInput(
                    f"{self.files.path(job)} is a copy of {known}: delete it, it would count twice."
                )

    def logits(self, model: int) -> npt.NDArray[np.float16]:
        """(samples, classes) of one model."""
        return self.files.read(self.jobs[model], f"{self.state}.logits")

    def each(self) -> Iterator[npt.NDArray[np.float16]]:
        """Logits of one model after another: only one is in memory."""
        return (self.logits(model) for model in range(len(self)))

    def gather(self, rows: Rows) -> npt.NDArray[np.float16]:
        """(models, rows, classes): for few samples, or few classes."""
        return np.stack([logits[rows] for logits in self.each()])

    @cached_property
    def notes(self) -> list[dict[str, Any]]:
        return [self.files.about(job) for job in self.jobs]

    @property
    def accuracies(self) -> dict[str, npt.NDArray[np.float64]]:
        """`train`: on what the model is meant to know; `test`: on unseen samples of the classes that stay; NaN where there are none."""
        names = ("train", "test")
        rows = [note["accuracy"][self.state] for note in self.notes]
        return {
            name: np.array(
                [np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64
            )
            for name in names
        }


class Pool:
    """The models of a folder that `duck pool` made; further ones that appear there later are not seen."""

    def __init__(self, folder: Path | str) -> None:
        self.files = find(Path(folder))
        done = sorted(self.files.jobs())
        self._models, self._oracles = (
            tuple(job for job in done if job.part == part) for part in ("model", "oracle")
        )
        if not self._models:
            raise BadInput(
                f"The pool in {folder} has no finished model yet: the command that made it goes on."
            )
        self.ids: Ids
        self.ids, self.labels, self.roles = self.files.samples()
        for stack in (self.before, self.oracle):
            if stack:
                stack.refuse_copies()

    @property
    def fingerprint(self) -> Fingerprint:
        return self.files.fingerprint

    @property
    def design(self) -> str:
        return str(self.fingerprint["design"])

    @cached_property
    def members(self) -> npt.NDArray[np.bool_]:
        """(models, samples): was it trained on this sample, before any unlearning."""
        return self.before.members

    @cached_property
    def requested(self) -> npt.NDArray[np.bool_]:
        """(models, samples): was it asked to forget this sample."""
        asked: npt.NDArray[np.bool_] = (
            self.members & (self.roles == "candidate") & (self.design == "request")
        )
        return asked

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
        """One of the three, or an error that says what is missing."""
        found = {"before": self.before, "after": self.after, "oracle": self.oracle}[state]
        if found is None:
            raise BadInput(
                f"The pool in {self.files.folder} (design {self.design!r}) has no models {state!r}."
            )
        return found

    def margins(self, state: State, role: str | None = None) -> Margins:
        """As the attacks take them, for the samples of one role or all."""
        chosen = self.roles == role if role else np.ones(len(self.ids), dtype=np.bool_)
        stack = self.stack(state)
        rows = zip(stack.margins, stack.members, strict=True)
        return Margins.stack(
            Scored(self.ids[chosen], said[chosen], trained[chosen]) for said, trained in rows
        )

    def __len__(self) -> int:
        """How many models, oracles not counted."""
        return len(self._models)


def mismatch(pool: Pool, experiment: Experiment, but: tuple[str, ...] = ()) -> list[str]:
    """In what a pool and a run differ, a sentence each, beginning with the name of the setting; empty where the pool fits.

    A shadow pool fits every request and method. `but` are names to pass over, such as "recipe" or "recipe.epochs".
    """
    fields = ["data", "model", "image_size", "mean", "std", "recipe"]
    if pool.design == "request":
        fields += ["request", "method", "protocol", *(["seed"] if seed_matters(experiment) else [])]
        if experiment.request is None or experiment.method is None:
            return ["request: the pool is about forgetting and the run is an original model."]
        asked = recipe_of(Plan("request", experiment))
    else:
        asked = recipe_of(Plan("shadow", Experiment(experiment.training, seed=experiment.seed)))
    held, wanted = ({key: known[key] for key in fields} for known in (pool.fingerprint, asked))
    found = {
        name: f"{name}: {mine!r} in the pool, {theirs!r} in the run."
        for name, (mine, theirs) in differences(held, wanted).items()
    }
    if experiment.training.weights:
        found = {name: text for name, text in found.items() if not name.startswith("recipe")}
        found["recipe"] = (
            "recipe: the run's original was trained elsewhere, in a way that is not known."
        )
    return [
        text
        for name, text in found.items()
        if not any(name == skipped or name.startswith(f"{skipped}.") for skipped in but)
    ]
