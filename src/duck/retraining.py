"""Retrained models: trained without the forget samples, by the original's recipe, and stored."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import nn

from duck.artifacts import ArtifactStore, Key
from duck.experiment import Training
from duck.methods.retrained import Retrained
from duck.runtime import device_of
from duck.types import Recipe, Scenario

FIRST_SEED = 7_000_001
"""Far from the seeds of runs: an audited retrained run must not be compared with its copy."""


@dataclass(frozen=True, eq=False)
class Retraining:
    """How models without the forget samples are trained, and the store that they are kept in."""

    scenario: Scenario
    original: nn.Module
    new_model: Callable[[], nn.Module]
    recipe: Recipe
    training: Training | None = None
    """The original's training. Without it, no model is stored."""
    store: ArtifactStore = field(default_factory=ArtifactStore)
    """Each model is stored when it is trained, so that an interruption loses one at most."""
    seconds: list[float] = field(default_factory=list)
    """The time of each training that took place, in order."""

    def __call__(
        self,
        count: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
        may_train: Callable[[], bool] = lambda: True,
    ) -> list[nn.Module]:
        """Return reference models for an audit, fewer if one is missing and may not be trained.

        progress    called with (done, total)
        may_train   called before each training
        """
        models = []
        progress(0, count)
        for index in range(count):
            seed = FIRST_SEED + index
            if not self._is_stored(seed) and not may_train():
                break
            models.append(self.load_or_train(seed))
            progress(index + 1, count)
        return models

    def missing(self, count: int) -> int:
        """Return how many of `count` reference models are not stored."""
        return sum(not self._is_stored(FIRST_SEED + index) for index in range(count))

    def _is_stored(self, seed: int) -> bool:
        return self.training is not None and self._key(self.training, seed) in self.store

    def load_or_train(self, seed: int) -> nn.Module:
        """Return the model of a seed: the stored one, or a new one."""
        if self.training is None:
            return self._train(seed)
        model, _ = self.store.get_or_train(
            self._key(self.training, seed),
            self.new_model,
            lambda: (self._train(seed), {}),
            dict,
            device=device_of(self.original),
        )
        return model

    def _train(self, seed: int) -> nn.Module:
        started_at = time.monotonic()
        task = self.scenario.task(seed=seed, new_model=self.new_model, recipe=self.recipe)
        model = Retrained()(self.original, task).eval()
        self.seconds.append(time.monotonic() - started_at)
        return model

    def _key(self, training: Training, seed: int) -> Key:
        # Neither the seed nor the weights of the original matter here. The normalisation is part of
        # the training, not of the fingerprint.
        shared = replace(
            training,
            recipe=replace(self.recipe, compile=False),
            seed=0,
            weights="",
            recipe_assumed=False,
        )
        depends_on = {
            "training": shared,
            "num_classes": self.scenario.data.num_classes,
            "retain": self._retain_fingerprint,
            "seed": seed,
        }
        return Key.of("retrained", depends_on, training.model)

    @cached_property
    def _retain_fingerprint(self) -> str:
        return self.scenario.data.train.take(self.scenario.retain).fingerprint()
