"""What unlearned models say of forgotten and of unseen samples, kept for attacks: a model is made once, and attacked anywhere."""

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
    """The model to attack, by its outputs: on what it was asked to forget, and on samples that nobody was trained on."""

    forgotten: Outputs
    unseen: Outputs


class Kept:
    """A folder with a file for each unlearned model, by the id of its experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, experiment: str, model: nn.Module, scenario: Scenario) -> None:
        """Float32 logits of the forgotten samples, and of all test samples of their classes: else an attack would tell classes apart.

        The holdout is among them: an attack asks who was trained on, and 0.1 % of false alarms take a thousand unseen samples.
        """
        test = scenario.data.test
        if test is None:
            return
        rows = (
            torch.isin(test.labels, scenario.data.train.labels[scenario.forget]).nonzero().flatten()
        )
        sides = {"forgotten": scenario.data.train.take(scenario.forget), "unseen": test.take(rows)}
        arrays = {
            f"{name}_{field}": value
            for name, side in sides.items()
            for field, value in _said(model, side).items()
        }
        with files.writing(self._path(experiment), private=True) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)  # most of it are ids

    def there(self) -> set[str]:
        """The experiments whose models were asked."""
        return {path.stem for path in self.folder.glob("[!.]*.npz")}

    def read(self, experiment: str) -> Target | None:
        """None where the model has not been asked yet."""
        path = self._path(experiment)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as held:
                sides = [
                    Outputs(*(held[f"{name}_{field}"] for field in FIELDS))
                    for name in ("forgotten", "unseen")
                ]
        except BadInput:  # read well, and of no use
            raise
        except (OSError, EOFError, BadZipFile, ValueError, KeyError) as error:
            files.warn(f"The outputs {path.name} cannot be read ({error}): they are made again.")
            return None
        return Target(*sides)

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.npz"


def _said(model: nn.Module, examples: Examples) -> dict[str, np.ndarray]:
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
