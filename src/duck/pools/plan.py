"""What a pool is made of: which samples it watches and which of them each model trains on. Nothing here trains."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from duck.errors import BadInput
from duck.experiment import Experiment, to_dict
from duck.json_text import to_json
from duck.methods.base import METHODS, check_kind
from duck.runtime import seeded
from duck.sample_ids import NO_SALT, hide_ids
from duck.scenarios import ForgetFraction, ForgetRandomClasses
from duck.types import Data, Ids, Scenario

Design = Literal["shadow", "request"]
Part = Literal["model", "oracle"]
Role = Literal["candidate", "retain", "holdout", "test"]
RETAINED = 2000
"""Retained samples that are watched."""
UNSEEN = 10_000
"""Most test samples that are watched; all of a removed class are."""
FIELDS = (
    "design",
    "data",
    "model",
    "image_size",
    "mean",
    "std",
    "recipe",
    "request",
    "method",
    "protocol",
    "seed",
    "samples",
)
"""Of a pool's fingerprint."""


class Job(NamedTuple):
    """One model of a pool, or one of its oracles."""

    part: Part
    number: int

    def __str__(self) -> str:
        return f"{self.part} {self.number}"


@dataclass(frozen=True)
class Plan:
    """All that decides the numbers of a pool, except how many models it has.

    shadow    models on random halves of all training samples; no unlearning
    request   models on all samples but the candidates plus a random half of these, which is then unlearned; oracles on all but candidates
    """

    design: Design
    experiment: Experiment

    def __post_init__(self) -> None:
        if self.experiment.earlier:
            raise BadInput(
                "The models of a pool are trained anew and cannot follow earlier requests: audit this run with --tier oracle."
            )
        whole = self.experiment.request is not None and self.experiment.method is not None
        if self.design == "request" and not whole:
            raise BadInput(
                "A pool of design 'request' needs to know who is to be forgotten and by which method."
            )
        if self.design == "shadow" and (
            self.experiment.request is not None or self.experiment.method is not None
        ):
            raise BadInput(
                "A pool of design 'shadow' unlearns nothing: leave request and method out."
            )

    def jobs(self, models: int) -> list[Job]:
        """The models and, for requests, half as many oracles, so ordered that a pool cut short has both."""
        if models < 2 or models % 2:
            raise BadInput(
                f"A pool needs an even number of models, so that each candidate is in half of them; got {models}."
            )
        if self.design == "shadow":
            return [Job("model", index) for index in range(models)]
        pairs = range(models // 2)
        return [
            job
            for pair in pairs
            for job in (Job("model", 2 * pair), Job("model", 2 * pair + 1), Job("oracle", pair))
        ]

    def seed(self, job: Job) -> int:
        """Of a model's initialisation, training and unlearning."""
        return int(
            torch.randint(
                2**62, (), generator=seeded(self.experiment.seed, "pool", job.part, str(job.number))
            )
        )


def recipe_of(plan: Plan) -> dict[str, Any]:
    """What a fingerprint says of a plan. Whether a training is compiled changes its speed alone; each model has a seed of its own."""
    made = to_dict(plan.experiment)
    training = {
        key: value
        for key, value in made["training"].items()
        if key not in ("seed", "weights", "fingerprint", "recipe", "data")
    }
    recipe = {key: value for key, value in made["training"]["recipe"].items() if key != "compile"}
    rest = {key: made[key] for key in ("request", "method", "protocol", "seed")}
    data = {"name": made["training"]["data"], "fingerprint": made["training"]["fingerprint"]}
    plain, _ = hide_ids(
        {"design": plan.design, "data": data, **training, "recipe": recipe, **rest}, NO_SALT
    )
    fingerprint: dict[str, Any] = json.loads(to_json(plain))
    return fingerprint


@dataclass(frozen=True, eq=False)
class Layout:
    """The samples a pool watches: candidates, some retained ones, unseen ones. Rows are those of `data.train` and `data.test`."""

    data: Data
    seed: int
    candidates: Tensor
    common: Tensor
    """Training samples that every model sees."""
    retain: Tensor
    """Those of them that are watched."""
    unseen: Tensor
    """Of `data.test`; the holdout among them."""
    stays: Tensor
    """Classes that are not removed, as a mask."""

    @cached_property
    def ids(self) -> Ids:
        """Different from each other: where train and test count from 0 each, those of test get a word before."""
        train, *rest = [part.ids for part in self.parts]
        unseen = [
            np.char.add("test:", ids) if np.isin(ids, self.data.train.ids).any() else ids
            for ids in rest
        ]
        return np.concatenate([train, *unseen])

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        return np.concatenate([part.labels.numpy() for part in self.parts])

    @cached_property
    def roles(self) -> npt.NDArray[np.str_]:
        unseen = np.where(
            np.isin(self.unseen.numpy(), self.data.holdout.numpy()), "holdout", "test"
        )
        return np.concatenate(
            [
                np.repeat("candidate", len(self.candidates)),
                np.repeat("retain", len(self.retain)),
                unseen,
            ]
        )

    @cached_property
    def parts(self) -> list[Any]:
        """The watched samples as Examples, in the order of `ids`."""
        train = self.data.train.take(torch.cat([self.candidates, self.retain]))
        return (
            [train]
            if self.data.test is None or not len(self.unseen)
            else [train, self.data.test.take(self.unseen)]
        )

    def members(self, job: Job) -> Tensor:
        """Which candidates a model trains on: two models that follow each other share them out, by the seed and their number alone."""
        chosen = torch.zeros(len(self.candidates), dtype=torch.bool)
        if job.part == "oracle":
            return chosen
        order = torch.randperm(
            len(chosen), generator=seeded(self.seed, "halves", str(job.number // 2))
        )
        chosen[order[: len(chosen) // 2]] = True
        return ~chosen if job.number % 2 else chosen

    def watched_members(self, job: Job) -> npt.NDArray[np.bool_]:
        """Which watched samples a model trains on, in the order of `ids`."""
        members: npt.NDArray[np.bool_] = self.roles == "retain"
        members[: len(self.candidates)] = self.members(job).numpy()
        return members

    def trained_on(self, job: Job) -> Tensor:
        """Rows of the training data."""
        return torch.cat([self.common, self.candidates[self.members(job)]]).sort().values

    def digest(self) -> str:
        return digest_of(self.ids, self.labels, self.roles)


def digest_of(ids: Ids, labels: npt.NDArray[np.int64], roles: npt.NDArray[np.str_]) -> str:
    """Of watched samples, in their order: every row of a pool is in that order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (ids, roles):
        digest.update("\n".join(part.tolist()).encode())
    digest.update(np.ascontiguousarray(labels).tobytes())
    return digest.hexdigest()


def layout(plan: Plan, data: Data) -> Layout:
    """Who is watched and who is shared out, for these data."""
    seed, classes = plan.experiment.seed, torch.ones(data.num_classes, dtype=torch.bool)
    if plan.experiment.request is None:
        rows, none = torch.arange(len(data.train)), torch.empty(0, dtype=torch.int64)
        return Layout(data, seed, rows, none, none, _unseen(data, classes, seed), classes)
    scenario = plan.experiment.request(data, seed, plan.experiment.protocol)
    check_kind(METHODS.name_of(plan.experiment.method), scenario.kind)
    if scenario.kind == "class":
        classes[data.train.labels[scenario.forget].unique()] = False
    candidates = _candidates(scenario, seed)
    chosen = torch.zeros(len(data.train), dtype=torch.bool)
    chosen[candidates] = True
    common = (~chosen).nonzero().flatten()
    retain = common[_some(len(common), RETAINED, seed, "retain")]
    return Layout(data, seed, candidates, common, retain, _unseen(data, classes, seed), classes)


def _candidates(scenario: Scenario, seed: int) -> Tensor:
    """A removed class's training samples; else the forget samples and as many retained ones."""
    forget, retain = scenario.forget, scenario.retain
    if scenario.kind == "class":
        chosen = forget
    elif len(retain) <= len(forget):
        total = len(forget) + len(retain)
        raise BadInput(
            f"A pool needs twice as many candidates as there are forget samples: {2 * len(forget)} of {total} leaves no other."
        )
    else:
        chosen = torch.cat([forget, retain[_some(len(retain), len(forget), seed, "candidates")]])
    if len(chosen) < 2:
        raise BadInput(
            "A pool needs at least two candidates: halves of one sample cannot be drawn."
        )
    return chosen.sort().values


def _unseen(data: Data, stays: Tensor, seed: int) -> Tensor:
    if data.test is None:
        return torch.empty(0, dtype=torch.int64)
    rows = torch.zeros(len(data.test), dtype=torch.bool)
    rows[_some(len(data.test), UNSEEN, seed, "unseen")] = True
    return (rows | ~stays[data.test.labels]).nonzero().flatten()


def _some(total: int, most: int, seed: int, purpose: str) -> Tensor:
    return torch.randperm(total, generator=seeded(seed, "pool", purpose))[:most].sort().values


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Where two fingerprints differ, by dotted name. Of two different methods or requests only the name is told."""
    if one.get("name") != other.get("name"):
        return {f"{prefix}name": (one.get("name"), other.get("name"))}
    found: dict[str, tuple[Any, Any]] = {}
    for key in {**one, **other}:
        mine, theirs = one.get(key), other.get(key)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found |= differences(mine, theirs, f"{prefix}{key}.")
        elif mine != theirs:
            found[prefix + key] = _in_short(mine), _in_short(theirs)
    return found


def _in_short(value: Any) -> Any:
    return value.get("name", value) if isinstance(value, Mapping) else value


def seed_matters(experiment: Experiment) -> bool:
    """Whether the seed decides who is forgotten."""
    return isinstance(experiment.request, ForgetFraction | ForgetRandomClasses)
