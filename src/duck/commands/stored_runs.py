"""A stored unlearning with its data, its original and the retrained model of its request."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from duck import runs
from duck.artifacts import ArtifactStore, Key, default_root
from duck.checks import check_model_code
from duck.commands.options import DataOptions, model_factory
from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.experiment import Experiment, fingerprint
from duck.methods.base import METHODS
from duck.models.user_models import in_float32
from duck.models.weights import file_digest, load_weights
from duck.types import Data, Scenario

Role = Literal["original", "retrained"]


@dataclass(frozen=True, eq=False)
class UnlearningRun:
    """The run of an unlearning, with its data and scenario."""

    folder: Path
    run: runs.Run
    data: Data
    """All data; those of `scenario` are without what earlier requests forgot."""
    scenario: Scenario

    @property
    def experiment(self) -> Experiment:
        """The configuration of the run."""
        return self.run.experiment

    def new_model(self) -> nn.Module:
        """Build a fresh model of the architecture of the run."""
        return in_float32(model_factory(self.experiment.training, self.scenario.data)())

    def load_model(self, place: Path, device: torch.device) -> nn.Module:
        """Load a model of this architecture from the folder of a run or a file of weights."""
        model = model_factory(self.experiment.training, self.scenario.data)()
        load_weights(model, place / runs.WEIGHTS if place.is_dir() else place)
        return in_float32(model).to(device).eval()

    def find_original(self) -> Path | None:
        """Find the original: where the record says, in the same folder, or in the store."""
        return (
            self._find_recorded()
            or self._find_neighbour(self.experiment.previous)
            or self.find_by_method("original")
            or self._find_stored_original()
        )

    def _find_recorded(self) -> Path | None:
        """Return the run or the unchanged file of weights that the run started from."""
        if self.run.original_run is not None:
            folder = runs.place_of(self.folder, self.run.original_run)
            if (folder / runs.WEIGHTS).exists():
                return folder
        weights = self.run.source.get("weights")
        if weights is None:
            return None
        path = runs.place_of(self.folder, weights)
        is_same = path.is_file() and file_digest(path) == self.experiment.training.weights
        return path if is_same else None

    @property
    def store(self) -> ArtifactStore:
        """The artifact store of the runs in the same folder."""
        return ArtifactStore(default_root(self.folder))

    def _find_stored_original(self) -> Path | None:
        """Return the file of the original in the store, if this run started from one."""
        key = Key.of_original(self.experiment)
        if self.experiment.earlier or self.store.read(key) is None:
            return None
        return self.store.path(key)

    def find_by_method(self, method: str) -> Path | None:
        """Find the run of a method for the same request and original, in the same folder."""
        return self._find_neighbour(replace(self.experiment, method=METHODS[method]()))

    def _find_neighbour(self, experiment: Experiment) -> Path | None:
        folders = runs.find_runs(self.folder.resolve().parent)
        return next((folder for folder in folders if _holds(folder, experiment)), None)

    def check_related(self, place: Path, role: Role) -> Path:
        """Return the place of an original or retrained model that the user named.

        Raise an error for a run that is something else. Bare weights cannot be checked.
        """
        if runs.is_run(place):
            problem = self._mismatch(runs.load(place).experiment, role)
            if problem:
                raise BadInput(f"--{role} {place} {problem}")
        return place

    def _mismatch(self, other: Experiment, role: Role) -> str:
        """Return why another run is not the original or the retrained model of this one, or ""."""
        training = self.experiment.training
        if other.training.fingerprint != training.fingerprint:
            return f"was made on other data than {self.folder}."
        if role == "original" and self.experiment.earlier:
            if other.all_requests == self.experiment.earlier:
                return ""
            return (
                f"is not the model that {self.folder} started from: that one had forgotten other "
                "requests."
            )
        method = "original" if other.method is None else METHODS.name_of(other.method)
        if method != role:
            return f"is not such a model: it was made by {method}."
        if role == "original" and not training.weights and other.training != training:
            return (
                f"is another original than that of {self.folder}: model, recipe, normalisation or "
                "seed differ."
            )
        if role == "retrained" and not self.has_same_retain_set(other):
            return f"is of another request: it left out other samples than {self.folder} forgot."
        return ""

    def has_same_retain_set(self, other: Experiment) -> bool:
        """Return whether another experiment on these data retains the same samples."""
        if other.request is None:
            return False
        retain_ids = [
            scenario.data.train.ids[scenario.retain.numpy()]
            for scenario in (self.scenario, other.scenario(self.data))
        ]
        return np.array_equal(*retain_ids)


def _holds(folder: Path, experiment: Experiment) -> bool:
    """Return whether a folder contains the run. A run that cannot be read is another one."""
    try:
        return runs.holds(folder, experiment)
    except BadInput:
        return False


def open_run(
    folder: Path | str,
    data_name: str | None = None,
    root: Path | None = None,
    *,
    data: Data | None = None,
    trust_model_code: bool = False,
    progress: ProgressCallback | None = None,
) -> UnlearningRun:
    """Open the run of an unlearning and load its data.

    Args:
        folder: Folder of the run.
        data_name: Name or path of the data, if they are no longer where the run says.
        root: Folder of the named data sets, if it is another than the run says.
        data: Data that are loaded already. They are used if they are those of the run.
        trust_model_code: Allow the model builder that the run names to be imported and called.
        progress: Progress callback: called with (done, total) while the data are read.
    """
    folder = Path(folder)
    if not runs.is_run(folder):
        raise BadInput(
            f"{folder} is not a run: it has no {runs.RECORD}. "
            f"`duck forget --out {folder}` would make one."
        )
    run = runs.load(folder)
    if run.experiment.request is None or run.experiment.method is None:
        raise BadInput(
            f"{folder} is an original model: give the run of an unlearning (`duck forget`)."
        )
    training = run.experiment.training
    check_model_code(training.model, folder, trust_model_code)
    if data is None or fingerprint(data) != training.fingerprint:
        source = DataOptions(data_name, root).completed(folder)
        # Which images a model that was trained elsewhere has not seen is not known.
        data = source.load(not training.weights, progress)
    if fingerprint(data) != training.fingerprint:
        raise BadInput(
            f"The data are not those that {folder} was made on: the fingerprints differ. "
            "Name them with --data, --root."
        )
    return UnlearningRun(folder, run, data, run.experiment.scenario(data))
