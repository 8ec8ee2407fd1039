"""Attacks on the models of a grid: their results as the scores of a line."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from duck.audits.attacks import ATTACKS
from duck.audits.attacks.base import ThresholdAttack
from duck.audits.attacks.lira import MIN_MODELS, offline_lira
from duck.audits.attacks.svm import svm_attack
from duck.audits.margins import margins
from duck.audits.roc import RATES, least_others, roc
from duck.audits.scores import Margins, Outputs, Scored
from duck.bench.grids import Attack
from duck.bench.outputs import Target
from duck.bench.results import ScoreTable, SvmDetails, Values
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.pools.reader import Pool, mismatch
from duck.types import Ids

Kind = Literal["class", "samples"]


class Attacker(Protocol):
    attack: Attack
    """With all that its results depend on: jobs and their lines are of this one."""

    def __call__(self, target: Target, kind: Kind, seed: int) -> Values:
        """What a line holds of it: `scores`, and what else is to be known."""

    def check(self, experiments: Iterable[Experiment]) -> None:
        """An error where it cannot be made on the models of these experiments."""


class Svm:
    def __init__(self, attack: Attack) -> None:
        self.attack = attack

    def __call__(self, target: Target, kind: Kind, seed: int) -> Values:
        found = svm_attack(
            target.forgotten, target.unseen, kind, seed, self.attack.splits, torch.get_num_threads()
        )
        scores: ScoreTable = {"f1": found.mean, "chance": found.chance}
        details = SvmDetails(list(found.f1), list(found.settings), found.forgotten, found.unseen)
        return Values(scores=scores, svm=details)

    def check(self, experiments: Iterable[Experiment]) -> None:
        """It needs nothing but the model."""


class Threshold:
    """Runs an attack that gives each sample one number."""

    def __init__(self, attack: Attack) -> None:
        entry = ATTACKS[attack.name]
        if not issubclass(entry, ThresholdAttack):
            raise BadInput(f"The attack {attack.name!r} does not score each sample by itself.")
        self.attack = attack
        self.score = entry.score

    def __call__(self, target: Target, kind: Kind, seed: int) -> Values:
        return _values(_judged(target, target.unseen.ids, self.score))

    def check(self, experiments: Iterable[Experiment]) -> None:
        """It needs nothing but the model."""


class Lira:
    """One array of shadow models serves every target."""

    def __init__(self, attack: Attack, pool: Path) -> None:
        least = 2 * MIN_MODELS
        if attack.shadows < least:
            raise BadInput(
                f"LiRA needs {MIN_MODELS} shadow models without each sample, so shadows = {least} or more; got {attack.shadows}."
            )
        self.pool = Pool(pool)
        if self.pool.design != "shadow":
            raise BadInput(
                f"LiRA needs shadow models on random halves; the pool in {pool} is of design {self.pool.design!r}."
            )
        if len(self.pool) < attack.shadows:
            raise BadInput(
                f"LiRA needs at least {attack.shadows} shadow models, the pool in {pool} has {len(self.pool)}: "
                f"the command that made it, with --models {attack.shadows}, adds to it."
            )
        self.count = attack.shadows
        without = int((~self.pool.members[: self.count]).sum(0).min())
        if without < MIN_MODELS:
            raise BadInput(
                f"LiRA needs {MIN_MODELS} shadow models without each sample, and of the first {self.count} in {pool} only {without} left one "
                "out: add the other shares of the pool with `duck pool merge`, or take more shadows."
            )
        self.attack = replace(attack, pool=self._digest())
        if attack.pool not in ("", self.attack.pool):
            raise BadInput(
                f"The grid asks for the shadow models {attack.pool}; those in {pool} are {self.attack.pool}."
            )

    @cached_property
    def shadows(self) -> Margins:
        return self.pool.margins("before").models(np.arange(self.count))

    @cached_property
    def about(self) -> dict[str, Any]:
        """What a reader must know of the shadow models: those that were trained for short memorise less, and show less."""
        accuracies = {
            name: float(np.nanmean(values[: self.count]))
            for name, values in self.pool.before.accuracies.items()
        }
        recipe = self.pool.fingerprint["recipe"]
        facts = {"models": self.count, "pool": self.attack.pool, "epochs": recipe["epochs"]}
        return {**facts, "recipe": recipe, **accuracies}

    def __call__(self, target: Target, kind: Kind, seed: int) -> Values:
        judged = _judged(
            target, self._named(target.unseen.ids), lambda side: margins(side.logits, side.labels)
        )
        return replace(_values(offline_lira(judged, self.shadows, seed)), shadows=self.about)

    def check(self, experiments: Iterable[Experiment]) -> None:
        """The recipe may differ: shadow models are trained on half of the data and for short; the table says so."""
        for experiment in experiments:
            wrong = mismatch(self.pool, experiment, but=("recipe",))
            if wrong:
                raise BadInput(
                    f"The pool in {self.pool.files.folder} does not fit the grid: {' '.join(wrong)}"
                )

    def _digest(self) -> str:
        """Of the pool and the models taken from it: two shares of a pool are two sets of shadow models."""
        numbers = [job.number for job in self.pool.before.jobs[: self.count]]
        return hashlib.blake2b(
            f"{self.pool.files.digest}/{numbers}".encode(), digest_size=8
        ).hexdigest()

    def _named(self, unseen: Ids) -> Ids:
        """As the pool names test samples: with a word before where their ids are also those of training samples."""
        known = self.pool.ids[self.pool.roles != "candidate"]
        named: Ids = unseen if np.isin(unseen, known).all() else np.char.add("test:", unseen)
        return named


def _judged(
    target: Target, unseen: Ids, score: Callable[[Outputs], npt.NDArray[np.float64]]
) -> Scored:
    """A score for each sample of the target; `unseen`: what the unseen ones are called."""
    sides = (target.forgotten, target.unseen)
    members = np.repeat([True, False], [len(side) for side in sides])
    return Scored(
        np.concatenate([target.forgotten.ids, unseen]),
        np.concatenate([score(side) for side in sides]),
        members,
    )


def _values(scored: Scored) -> Values:
    found = roc(scored)
    hits = {
        f"tpr_{100 * rate:g}": found.tpr_at(rate).value
        if found.others >= least_others(rate)
        else None
        for rate in RATES
    }
    scores = {**hits, "auc": found.auc.value, "f1": found.f1}
    return Values(scores=scores, roc=found.to_dict())


def attacker(attack: Attack, pool: Path | None) -> Attacker:
    """Return what runs an attack on the models of a grid."""
    if attack.name == "svm":
        return Svm(attack)
    if ATTACKS[attack.name].needs == "outputs":
        return Threshold(attack)
    if pool is None:
        raise BadInput(
            "LiRA compares with shadow models: give their folder with --pool "
            "(`duck pool` with the grid's --data and --model)."
        )
    return Lira(attack, pool)
