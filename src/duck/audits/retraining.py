"""Reference models: retrained without the forget samples, by the original's recipe, on disk."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from duck import files
from duck.errors import BadInput
from duck.experiment import Training
from duck.methods.retrained import Retrained
from duck.models.weights import load_weights, save_weights
from duck.runtime import device_of, global_seed, seeded
from duck.types import Recipe, Scenario

FIRST_SEED = 7_000_001
"""Far from the seeds of runs: an audited retrained run must not be compared with its copy."""


@dataclass(frozen=True, eq=False)
class Retraining:
    """How reference models are trained, and the folder in which they are stored."""

    scenario: Scenario
    original: nn.Module
    new_model: Callable[[], nn.Module]
    recipe: Recipe
    training: Training | None = None
    """The original's training. With the recipe and the retained samples it identifies the models
    on disk."""
    folder: Path | None = None
    """Each model is written there when it is done, so that an interruption loses one at most. None:
    no model is stored. It needs `training`."""

    def __call__(
        self, count: int, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> list[nn.Module]:
        """Return `count` models, loading those on disk. `progress` is called with (done, total)."""
        models = []
        progress(0, count)
        for index in range(count):
            models.append(self._one(FIRST_SEED + index))
            progress(index + 1, count)
        return models

    def missing(self, count: int) -> int:
        """Return how many of `count` models are not on disk."""
        return (
            sum(not self._place(FIRST_SEED + index).exists() for index in range(count))
            if self.folder
            else count
        )

    def _one(self, seed: int) -> nn.Module:
        if self.folder and self._place(seed).exists():
            with global_seed(
                seeded(seed, "loaded"), device_of(self.original)
            ):  # the caller's generator stays as it was
                model = self.new_model().to(device_of(self.original))
            try:
                load_weights(model, self._place(seed))
                return model.eval()
            except BadInput as error:
                files.warn(f"{error} This retrained model is trained again.")
        task = self.scenario.task(seed=seed, new_model=self.new_model, recipe=self.recipe)
        model = Retrained()(self.original, task).eval()
        if self.folder:
            with files.writing_cache(self.folder):
                save_weights(model, self._place(seed))
        return model

    def _place(self, seed: int) -> Path:
        assert self.folder is not None
        return self.folder / self._key / f"{seed}.safetensors"

    @property
    def _key(self) -> str:
        """Return a digest of all that determines these models except their seeds.

        It includes the normalisation, which the fingerprint of the samples does not.
        """
        assert self.training is not None
        retain = self.scenario.data.train.take(self.scenario.retain)
        made = replace(
            self.training,
            recipe=replace(self.recipe, compile=False),
            seed=0,
            weights="",
            recipe_assumed=False,
        )
        parts = [repr(made), str(self.scenario.data.num_classes), retain.fingerprint()]
        return hashlib.blake2b("/".join(parts).encode(), digest_size=8).hexdigest()
