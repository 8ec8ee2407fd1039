"""Stored logits of unlearned models, so that attacks need neither the model nor a GPU."""

from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import nn

from duck import files
from duck.audits.scores import Outputs
from duck.errors import BadInput
from duck.models.head import logits_of
from duck.predict import batch_size
from duck.runtime import evaluating
from duck.types import Examples, Scenario

FIELDS = ("ids", "logits", "labels")


class Target(NamedTuple):
    """The outputs of a model to attack: on its forget set and on unseen samples."""

    forgotten: Outputs
    unseen: Outputs


class OutputStore:
    """A folder with one file for each unlearned model, named by the id of its experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, experiment: str, model: nn.Module, scenario: Scenario) -> None:
        """Write float32 logits of the forget set and of all test samples of the same classes.

        With other classes an attack would tell classes apart. The holdout is included: no model
        was trained on it, and a false positive rate of 0.1 % needs a thousand unseen samples.
        """
        test = scenario.data.test
        if test is None:
            return
        forget = scenario.data.train.take(scenario.forget)
        unseen = test.take(torch.isin(test.labels, forget.labels).nonzero().flatten())
        arrays = {}
        for name, examples in (("forgotten", forget), ("unseen", unseen)):
            for field, value in _predict(model, examples).items():
                arrays[f"{name}_{field}"] = value
        with files.writing(self._path(experiment), private=True) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def experiments(self) -> set[str]:
        """Return the experiments whose outputs are stored."""
        return {path.stem for path in self.folder.glob("[!.]*.npz")}

    def read(self, experiment: str) -> Target | None:
        """Return the stored outputs, or None."""
        path = self._path(experiment)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as arrays:
                sides = [
                    Outputs(*(arrays[f"{name}_{field}"] for field in FIELDS))
                    for name in ("forgotten", "unseen")
                ]
        except BadInput:  # The file is intact, but its content cannot be attacked.
            raise
        except (OSError, EOFError, BadZipFile, ValueError, KeyError) as error:
            files.warn(
                f"The outputs {path.name} cannot be read ({error}): they are computed again."
            )
            return None
        return Target(*sides)

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.npz"


def _predict(model: nn.Module, examples: Examples) -> dict[str, np.ndarray]:
    with evaluating(model):
        logits = [
            logits_of(model(batch.images)).float().cpu()
            for batch in examples.batches(batch_size(examples))
        ]
    return {
        "ids": np.asarray(examples.ids),
        "logits": torch.cat(logits).numpy(),
        "labels": examples.labels.numpy(),
    }
