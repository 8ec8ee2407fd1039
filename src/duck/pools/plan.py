"""Plan a pool: which samples it watches and which of them each model trains on."""

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
from duck.models.imported import source_digest
from duck.runtime import seeded
from duck.sample_ids import NO_SALT, hide_ids
from duck.scenarios import check_retain
from duck.types import Data, Ids, Scenario

Design = Literal["shadow", "request"]
Part = Literal["model", "oracle"]
Role = Literal["candidate", "retain", "holdout", "test"]
MAX_RETAIN_SAMPLES = 2000
"""Watched samples of those that every model trains on."""
MAX_TEST_SAMPLES = 10_000
"""Watched test samples; those of a removed class are watched in addition."""
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
"""Fields of a pool's fingerprint."""


class Samples(NamedTuple):
    """The watched samples, in the order that every row of a pool has."""

    ids: Ids
    labels: npt.NDArray[np.int64]
    roles: npt.NDArray[np.str_]

    def digest(self) -> str:
        """Return the digest of the samples in their order."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.ids, self.roles):
            digest.update("\n".join(part.tolist()).encode())
        digest.update(np.ascontiguousarray(self.labels).tobytes())
        return digest.hexdigest()


class Job(NamedTuple):
    """One model of a pool, or one of its oracles."""

    part: Part
    number: int

    def __str__(self) -> str:
        return f"{self.part} {self.number}"


@dataclass(frozen=True)
class Plan:
    """Everything that determines the numbers of a pool, except how many models it has.

    The experiment has a request and a method, or neither of them.
    """

    experiment: Experiment

    def __post_init__(self) -> None:
        if self.experiment.earlier:
            raise BadInput(
                "The models of a pool cannot follow earlier requests. "
                "Audit this run with --tier oracle."
            )
        if (self.experiment.request is None) != (self.experiment.method is None):
            raise BadInput(
                "A pool needs a request and a method, or neither of them for shadow models."
            )

    @property
    def design(self) -> Design:
        """What the models are trained for.

        shadow    Models train on random halves of all training samples. Nothing is unlearned.
        request   Models train on all samples except the candidates, plus a random half of the
                  candidates, which is then unlearned. Oracles train on all but the candidates.
        """
        return "shadow" if self.experiment.request is None else "request"

    def jobs(self, models: int) -> list[Job]:
        """Return the models and, for requests, half as many oracles.

        Their order mixes both, so that an interrupted pool has both.
        """
        if models < 2 or models % 2:
            raise BadInput(
                "A pool needs an even number of models, so that each candidate is in half of "
                f"them; got {models}."
            )
        if self.design == "shadow":
            return [Job("model", index) for index in range(models)]
        jobs = []
        for pair in range(models // 2):
            jobs += [Job("model", 2 * pair), Job("model", 2 * pair + 1), Job("oracle", pair)]
        return jobs

    def seed(self, job: Job) -> int:
        """Return the seed of a model's initialisation, training and unlearning."""
        generator = seeded(self.experiment.seed, "pool", job.part, str(job.number))
        return int(torch.randint(2**62, (), generator=generator))


def recipe_of(plan: Plan) -> dict[str, Any]:
    """Return the part of a fingerprint that a plan determines.

    The code of a user's own model is part of it. Compilation changes only the speed. Each model
    has its own seed.
    """
    experiment = to_dict(plan.experiment)
    training = experiment["training"]
    code = source_digest(plan.experiment.training.model)
    if code:
        training["code"] = code
    data = {"name": training.pop("data"), "fingerprint": training.pop("fingerprint")}
    recipe = {key: value for key, value in training.pop("recipe").items() if key != "compile"}
    for key in ("seed", "weights"):
        training.pop(key, None)
    rest = {key: experiment[key] for key in ("request", "method", "protocol", "seed")}
    plain, _ = hide_ids(
        {"design": plan.design, "data": data, **training, "recipe": recipe, **rest}, NO_SALT
    )
    fingerprint: dict[str, Any] = json.loads(to_json(plain))
    return fingerprint


@dataclass(frozen=True, eq=False)
class Layout:
    """The watched samples of a pool: candidates, retained samples and test samples.

    Rows are those of `data.train` and `data.test`.
    """

    data: Data
    seed: int
    candidates: Tensor
    common: Tensor
    """Training samples that every model trains on."""
    retain: Tensor
    """Those of `common` that are watched."""
    test: Tensor
    """Watched rows of `data.test`, including the holdout."""
    retained_classes: Tensor
    """A mask of the classes that are not removed."""

    @cached_property
    def samples(self) -> Samples:
        """The watched samples. Test ids that training samples have, too, get the prefix "test:"."""
        ids = [part.ids for part in self.parts]
        if len(ids) > 1 and np.isin(ids[1], self.data.train.ids).any():
            ids[1] = np.char.add("test:", ids[1])
        in_holdout = np.isin(self.test.numpy(), self.data.holdout.numpy())
        roles = [
            np.repeat("candidate", len(self.candidates)),
            np.repeat("retain", len(self.retain)),
            np.where(in_holdout, "holdout", "test"),
        ]
        labels = [part.labels.numpy() for part in self.parts]
        return Samples(*(np.concatenate(arrays) for arrays in (ids, labels, roles)))

    @cached_property
    def parts(self) -> list[Any]:
        """The watched samples as Examples, in the order of `samples`."""
        train = self.data.train.take(torch.cat([self.candidates, self.retain]))
        if self.data.test is None or not len(self.test):
            return [train]
        return [train, self.data.test.take(self.test)]

    def members(self, job: Job) -> Tensor:
        """Return a mask of the candidates that a model trains on.

        A pair of consecutive models splits the candidates, by the seed and their numbers alone.
        """
        chosen = torch.zeros(len(self.candidates), dtype=torch.bool)
        if job.part == "oracle":
            return chosen
        generator = seeded(self.seed, "halves", str(job.number // 2))
        order = torch.randperm(len(chosen), generator=generator)
        chosen[order[: len(chosen) // 2]] = True
        return ~chosen if job.number % 2 else chosen

    def watched_members(self, job: Job) -> npt.NDArray[np.bool_]:
        """Return a mask of the watched samples that a model trains on."""
        members: npt.NDArray[np.bool_] = self.samples.roles == "retain"
        members[: len(self.candidates)] = self.members(job).numpy()
        return members

    def training_rows(self, job: Job) -> Tensor:
        """Return the rows of the training data that a model trains on."""
        return torch.cat([self.common, self.candidates[self.members(job)]]).sort().values


def make_layout(plan: Plan, data: Data) -> Layout:
    """Choose the samples that a pool watches and those that its models split."""
    seed, request = plan.experiment.seed, plan.experiment.request
    classes = torch.ones(data.num_classes, dtype=torch.bool)
    candidates = torch.arange(len(data.train))
    if request is not None:
        scenario = request(data, seed, plan.experiment.protocol)
        check_retain(scenario)
        check_kind(METHODS.name_of(plan.experiment.method), scenario.kind)
        if scenario.kind == "class":
            classes[data.train.labels[scenario.forget].unique()] = False
        candidates = _candidates(scenario, seed)
    is_common = torch.ones(len(data.train), dtype=torch.bool)
    is_common[candidates] = False
    common = is_common.nonzero().flatten()
    retain = common[_draw(len(common), MAX_RETAIN_SAMPLES, seed, "retain")]
    return Layout(data, seed, candidates, common, retain, _test_rows(data, classes, seed), classes)


def _candidates(scenario: Scenario, seed: int) -> Tensor:
    """Return the samples of removed classes, or the forget set and as many retained samples."""
    forget = scenario.forget
    retain = scenario.retain
    if scenario.kind == "class":
        chosen = forget
    elif len(retain) <= len(forget):
        total = len(forget) + len(retain)
        raise BadInput(
            "A pool needs twice as many candidates as there are forget samples: "
            f"{2 * len(forget)} of {total} leaves no other."
        )
    else:
        chosen = torch.cat([forget, retain[_draw(len(retain), len(forget), seed, "candidates")]])
    if len(chosen) < 2:
        raise BadInput("A pool needs at least two candidates, to draw a random half of them.")
    return chosen.sort().values


def _test_rows(data: Data, retained_classes: Tensor, seed: int) -> Tensor:
    """Return the watched rows of the test set: a random part and all of removed classes."""
    if data.test is None:
        return torch.empty(0, dtype=torch.int64)
    rows = torch.zeros(len(data.test), dtype=torch.bool)
    # The purpose "unseen" is part of the seed: another word would draw other samples.
    rows[_draw(len(data.test), MAX_TEST_SAMPLES, seed, "unseen")] = True
    return (rows | ~retained_classes[data.test.labels]).nonzero().flatten()


def _draw(total: int, limit: int, seed: int, purpose: str) -> Tensor:
    """Return at most `limit` random indices of `total`, sorted."""
    return torch.randperm(total, generator=seeded(seed, "pool", purpose))[:limit].sort().values


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Return where two fingerprints differ, by dotted name.

    Of two different methods or requests only the names are compared.
    """
    if one.get("name") != other.get("name"):
        return {f"{prefix}name": (one.get("name"), other.get("name"))}
    found: dict[str, tuple[Any, Any]] = {}
    for key in {**one, **other}:
        mine = one.get(key)
        theirs = other.get(key)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found |= differences(mine, theirs, f"{prefix}{key}.")
        elif mine != theirs:
            names = [
                value.get("name", value) if isinstance(value, Mapping) else value
                for value in (mine, theirs)
            ]
            found[prefix + key] = names[0], names[1]
    return found
