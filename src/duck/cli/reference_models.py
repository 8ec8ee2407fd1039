"""A stored unlearning with its kin: the data it was made on, its original, and the retrained model for the same request."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from duck import runs
from duck.artifacts import ArtifactStore, Key, default_root
from duck.cli.inputs import DataFlags, check_model_code, place_in_record
from duck.errors import BadInput
from duck.experiment import Experiment, fingerprint
from duck.methods.base import METHODS
from duck.models import build
from duck.models.user_models import in_float32
from duck.models.weights import load_weights
from duck.types import Data, Scenario

Role = Literal["original", "retrained"]


@dataclass(frozen=True, eq=False)
class Unlearning:
    """A run folder, read."""

    folder: Path
    run: runs.Run
    data: Data
    """All of them: what earlier requests forgot is not in the scenario's."""
    scenario: Scenario

    @property
    def experiment(self) -> Experiment:
        return self.run.experiment

    def model(self, place: Path, device: torch.device) -> nn.Module:
        """Load a model of this architecture from a run folder or a file of weights."""
        data = self.scenario.data
        net = build(self.experiment.training.model, data.num_classes, data.train.shape)
        load_weights(net, place if place.is_file() else place / runs.WEIGHTS)
        return in_float32(net).to(device).eval()

    def original(self) -> Path | None:
        """Where the original lies: as the run says, else the training, or the run of the method `original`, beside it."""
        said = runs.original_of(self.folder, self.run)
        if said is not None and (said / runs.WEIGHTS).exists():
            return said
        return self._beside(self.experiment.previous) or self.by("original") or self._stored()

    @property
    def store(self) -> ArtifactStore:
        """The store of the runs in the same folder."""
        return ArtifactStore(default_root(self.folder.resolve().parent))

    def _stored(self) -> Path | None:
        """Return the original in the artifact store, if this run started from one."""
        key = Key.of_original(self.experiment)
        if self.experiment.earlier or self.store.read(key) is None:
            return None
        return self.store.path(key)

    def named(self, folder: Path, role: Role) -> Path:
        """What the user names as its original or retrained model: a run that is something else is refused, bare weights are taken."""
        if not runs.is_run(folder):
            return folder
        known = runs.load(folder).experiment
        if known.training.fingerprint != self.experiment.training.fingerprint:
            raise BadInput(f"--{role} {folder} was made on other data than {self.folder}.")
        if role == "original" and self.experiment.earlier:
            if known.all_requests != self.experiment.earlier:
                raise BadInput(
                    f"--{role} {folder} is not the model that {self.folder} started from: that one had forgotten other requests."
                )
            return folder
        method = "original" if known.method is None else METHODS.name_of(known.method)
        if method != role:
            raise BadInput(f"--{role} {folder} is not such a model: it was made by {method}.")
        if (
            role == "original"
            and not self.experiment.training.weights
            and known.training != self.experiment.training
        ):
            raise BadInput(
                f"--{role} {folder} is another original than that of {self.folder}: model, recipe, normalisation or seed differ."
            )
        if role == "retrained" and not self.same_retain_set(known):
            raise BadInput(
                f"--{role} {folder} is of another request: it left out other samples than {self.folder} forgot."
            )
        return folder

    def same_retain_set(self, other: Experiment) -> bool:
        """Whether another experiment on these data leaves out the same samples, those of earlier requests included."""
        if other.request is None:
            return False
        retain_ids = [
            one.data.train.ids[one.retain.numpy()]
            for one in (self.scenario, other.scenario(self.data))
        ]
        return np.array_equal(*retain_ids)

    def by(self, method: str) -> Path | None:
        """The run of a method for the same request on the same original, beside this one."""
        return self._beside(replace(self.experiment, method=METHODS[method]()))

    def _beside(self, wanted: Experiment) -> Path | None:
        folders = runs.find_runs(self.folder.resolve().parent)
        return next((folder for folder in folders if _holds(folder, wanted)), None)


def _holds(folder: Path, wanted: Experiment) -> bool:
    """False of a run that cannot be read: nobody asked for it."""
    try:
        return runs.holds(folder, wanted)
    except BadInput:
        return False


def unlearning(
    folder: Path,
    name: str | None = None,
    root: Path | None = None,
    data: Data | None = None,
    *,
    trusted: bool,
) -> Unlearning:
    """The run in that folder. Its data are read again, from where it says or from `name` and `root`, unless `data` are those.

    `trusted`: the model builder that the run names may be imported and called.
    """
    if not runs.is_run(folder):
        raise BadInput(
            f"{folder} is not a run: it has no {runs.RECORD}. `duck forget --out {folder}` would make one."
        )
    run = runs.load(folder)
    made, request = run.experiment.training, run.experiment.request
    if request is None or run.experiment.method is None:
        raise BadInput(
            f"{folder} is an original model: give the run of an unlearning (`duck forget`)."
        )
    check_model_code(made.model, folder, trusted)
    if data is None or fingerprint(data) != made.fingerprint:
        # Nobody knows which images a model from elsewhere has not seen.
        data = _source(folder, run, name, root).load(split=not made.weights)
    if fingerprint(data) != made.fingerprint:
        raise BadInput(
            f"The data are not those that {folder} was made on: the fingerprints differ. Name them with --data, --root."
        )
    return Unlearning(folder, run, data, run.experiment.scenario(data))


def _source(folder: Path, run: runs.Run, name: str | None, root: Path | None) -> DataFlags:
    made, stored = run.experiment.training, place_in_record(folder, run.source)
    place = name or stored.data or made.data, root or stored.root
    return DataFlags(*place, image_size=made.image_size, mean=made.mean, std=made.std)
