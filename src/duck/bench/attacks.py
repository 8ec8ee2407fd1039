"""Attacks on the models of a grid."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from duck.audits.attacks import ATTACKS
from duck.audits.attacks.base import ThresholdAttack
from duck.audits.attacks.gaussians import MIN_MODELS
from duck.audits.attacks.lira import offline_lira
from duck.audits.attacks.svm import SvmAttack, svm_attack
from duck.audits.scores import Margins, Outputs, Scored, margins
from duck.audits.statistics import RATES, least_others, roc
from duck.bench.grids import Attack
from duck.bench.outputs import Target
from duck.bench.results import BenchCurve, Scores, ShadowFacts, SvmDetails, Values
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.pools.reader import Pool, mismatch
from duck.types import Ids

Kind = Literal["class", "samples"]


class Attacker:
    """Runs an attack on the stored outputs of models."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack
        """The attack with all settings that its results depend on."""

    def __call__(self, target: Target, kind: Kind, seed: int) -> Values:
        """Attack one model."""
        entry = ATTACKS[self.attack.name]
        if issubclass(entry, SvmAttack):
            return self._svm(target, kind, seed)
        assert issubclass(entry, ThresholdAttack)
        return _values(_score(target, target.unseen.ids, entry.score))

    def check(self, experiments: Iterable[Experiment]) -> None:
        """Raise an error if the attack cannot be run on the models of these experiments."""

    def _svm(self, target: Target, kind: Kind, seed: int) -> Values:
        found = svm_attack(
            target.forgotten, target.unseen, kind, seed, self.attack.splits, torch.get_num_threads()
        )
        settings = [list(chosen) for chosen in found.settings]
        details = SvmDetails(list(found.f1), settings, found.forgotten, found.unseen)
        return Values(scores={"f1": found.mean, "chance": found.chance}, svm=details)


class ShadowAttacker(Attacker):
    """Runs offline LiRA. All targets are compared with the same shadow models."""

    def __init__(self, attack: Attack, pool: Path) -> None:
        self.pool = Pool(pool)
        self.count = attack.shadows
        self._check_pool(pool)
        super().__init__(replace(attack, pool=self._digest()))
        if attack.pool not in ("", self.attack.pool):
            raise BadInput(
                f"The grid asks for the shadow models {attack.pool}; those in {pool} are "
                f"{self.attack.pool}."
            )

    def _check_pool(self, folder: Path) -> None:
        least, count, pool = 2 * MIN_MODELS, self.count, self.pool
        each = f"LiRA needs {MIN_MODELS} shadow models without each sample"
        if count < least:
            raise BadInput(f"{each}, so shadows = {least} or more; got {count}.")
        if pool.design != "shadow":
            raise BadInput(
                f"LiRA needs shadow models on random halves; the pool in {folder} is of design "
                f"{pool.design!r}."
            )
        if len(pool) < count:
            raise BadInput(
                f"LiRA needs at least {count} shadow models, the pool in {folder} has {len(pool)}: "
                f"the command that made it, with --models {count}, adds to it."
            )
        without = int((~pool.members[:count]).sum(0).min())
        if without < MIN_MODELS:
            raise BadInput(
                f"{each}, and of the first {count} in {folder} only {without} left one out: add "
                "the other shares of the pool with `duck pool merge`, or take more shadows."
            )

    @cached_property
    def shadows(self) -> Margins:
        return self.pool.margins("before").models(np.arange(self.count))

    @cached_property
    def facts(self) -> ShadowFacts:
        """Facts about the shadow models."""
        accuracies = self.pool.before.accuracies
        train, test = (
            float(np.nanmean(accuracies[name][: self.count])) for name in ("train", "test")
        )
        recipe = self.pool.fingerprint["recipe"]
        return ShadowFacts(self.count, self.attack.pool, recipe["epochs"], train, test, recipe)

    def __call__(self, target: Target, kind: Kind, seed: int) -> Values:
        unseen = self.pool.test_ids(target.unseen.ids)
        scored = _score(target, unseen, lambda side: margins(side.logits, side.labels))
        return replace(_values(offline_lira(scored, self.shadows, seed)), shadows=self.facts)

    def check(self, experiments: Iterable[Experiment]) -> None:
        """Raise an error if the pool is of other data or of another model.

        The recipe may differ: shadow models are trained on half of the data, often for fewer
        epochs. The table says so.
        """
        for experiment in experiments:
            wrong = mismatch(self.pool, experiment, ignore_recipe=True)
            if wrong:
                raise BadInput(
                    f"The pool in {self.pool.files.folder} does not fit the grid: {' '.join(wrong)}"
                )

    def _digest(self) -> str:
        """Return a digest of the pool and of the models that are used.

        Two shares of a pool are two sets of shadow models.
        """
        numbers = [job.number for job in self.pool.before.jobs[: self.count]]
        return hashlib.blake2b(
            f"{self.pool.files.digest}/{numbers}".encode(), digest_size=8
        ).hexdigest()


def _score(
    target: Target, unseen: Ids, score: Callable[[Outputs], npt.NDArray[np.float64]]
) -> Scored:
    """Score each sample of the target; `unseen` are the ids of the unseen ones."""
    sides = (target.forgotten, target.unseen)
    members = np.repeat([True, False], [len(side) for side in sides])
    return Scored(
        np.concatenate([target.forgotten.ids, unseen]),
        np.concatenate([score(side) for side in sides]),
        members,
    )


def _values(scored: Scored) -> Values:
    """Return the ROC curve of scores; a rate that few non-members cannot show is None."""
    curve = roc(scored)
    scores: Scores = {}
    for rate in RATES:
        is_resolved = curve.others >= least_others(rate)
        scores[f"tpr_{100 * rate:g}"] = curve.tpr_at(rate).value if is_resolved else None
    scores |= {"auc": curve.auc.value, "f1": curve.f1}
    return Values(scores=scores, roc=BenchCurve(**curve.to_dict()))


def attacker(attack: Attack, pool: Path | None) -> Attacker:
    """Return what runs an attack on the models of a grid."""
    if attack.needs_pool:
        if pool is None:
            raise BadInput("LiRA compares with shadow models: give their folder with --pool.")
        return ShadowAttacker(attack, pool)
    if not issubclass(ATTACKS[attack.name], SvmAttack | ThresholdAttack):
        raise BadInput(f"The attack {attack.name!r} does not score each sample by itself.")
    return Attacker(attack)
