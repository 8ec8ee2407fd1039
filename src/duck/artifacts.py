"""The artifact store: trained models, preparations and predictions that commands share.

An artifact is a file that can be computed again. A store that cannot be read or written costs time,
never a result.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from duck import files
from duck.errors import BadInput
from duck.experiment import Experiment, digest_of
from duck.json_text import to_json
from duck.models.imported import source_digest
from duck.models.weights import REQUEST_DIGEST, copy_tensors, load_tensors
from duck.runtime import fixed_seed, is_distributed, is_first
from duck.scenarios import Debias

T = TypeVar("T")
Kind = Literal["originals", "retrained", "unlearned", "preparations", "predictions"]
Facts = Mapping[str, Any]
FOLDER = ".artifacts"
VARIABLE = "DUCK_ARTIFACTS"
"""Environment variable: the folder of the store, instead of the default one."""
FACTS = "duck.facts"
"""Key of the metadata of a file: the facts as JSON."""
READ_ERRORS = (OSError, SafetensorError, KeyError, TypeError, ValueError, BadInput)


def default_root(*runs: Path | None) -> Path:
    """Return the default folder of the store: next to the first of the given runs, else in runs/.

    runs   the run that a command writes or reads, then the run of its original; None: there is none
    """
    folders = [run.resolve().parent for run in runs if run is not None]
    return Path(os.environ.get(VARIABLE) or [*folders, Path("runs")][0] / FOLDER)


@dataclass(frozen=True)
class Key:
    """The name of an artifact: its kind and a digest of everything that it depends on."""

    kind: Kind
    id: str

    @classmethod
    def of(cls, kind: Kind, depends_on: Any, model: str = "") -> "Key":
        """Return the key of an artifact that depends on these values.

        model   name of the model that is trained: if it is the user's own, its code counts, too
        """
        code = source_digest(model)
        digest = digest_of(depends_on)
        return cls(kind, f"{digest}-{code}" if code else digest)

    @classmethod
    def of_original(cls, experiment: Experiment) -> "Key":
        """Return the key of the original of an experiment: by its training and the bias in it."""
        training = experiment.training
        bias = experiment.request if isinstance(experiment.request, Debias) else None
        original = Experiment(training, bias, seed=training.seed)
        return cls.of("originals", original, training.model)

    @classmethod
    def of_unlearned(cls, kind: Kind, experiment: Experiment) -> "Key":
        """Return the key of the unlearned model of an experiment, or of its predictions."""
        return cls.of(kind, experiment, experiment.training.model)

    @property
    def is_private(self) -> bool:
        """Whether the content or the name of the file could confirm a guess of sample ids."""
        return self.kind != "originals"


class Artifact(NamedTuple):
    """Tensors, and facts about them that JSON can store."""

    tensors: Mapping[str, Tensor]
    facts: Facts
    request_digest: str = ""
    """Of an unlearned model: the digest of what it has forgotten."""


class ArtifactStore:
    """A folder of artifacts, or nothing that is ever stored if there is no folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root

    def path(self, key: Key) -> Path:
        """Return the file of an artifact, whether or not it exists."""
        assert self.root is not None
        return self.root / key.kind / f"{key.id}.safetensors"

    def __contains__(self, key: Key) -> bool:
        return self.root is not None and os.path.isfile(self.path(key))

    def read(self, key: Key, device: torch.device | str = "cpu") -> Artifact | None:
        """Return a stored artifact. None: there is none, or it cannot be read."""
        return self._load(key, device, lambda artifact: artifact)

    def write(self, key: Key, artifact: Artifact) -> None:
        """Store an artifact; raise one of `files.WRITE_ERRORS` if that is not possible."""
        if self.root is None:
            return
        path = self.path(key)
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700 if key.is_private else 0o777, exist_ok=True)
        tensors = {name: value.contiguous() for name, value in artifact.tensors.items()}
        metadata = {FACTS: to_json(artifact.facts)}
        if artifact.request_digest:
            metadata[REQUEST_DIGEST] = artifact.request_digest
        with files.writing(path, private=key.is_private) as file:
            save_file(tensors, file, metadata)

    def get_or_make(
        self,
        key: Key,
        make: Callable[[], Artifact],
        load: Callable[[Artifact], T],
        *,
        device: torch.device | str = "cpu",
        renew: bool = False,
    ) -> T:
        """Return `load` of the stored artifact; make it first if it is missing or unusable.

        load    raises BadInput for a stored artifact that does not fit, which is then made again
        device  of the tensors of a stored artifact
        renew   make it in any case, and replace the stored one
        """
        # In a distributed training all processes must train, or those that do would wait forever.
        if self.root is None or is_distributed():
            return load(self._make(key, make))
        found = None if renew else self._load(key, device, load)
        if found is not None:
            return found
        with files.wait_for_lock(self.root, key.id) as waited:
            if waited and not renew:
                found = self._load(key, device, load)
            return load(self._make(key, make)) if found is None else found

    def get_or_train(
        self,
        key: Key,
        new_model: Callable[[], nn.Module],
        train: Callable[[], tuple[nn.Module, Facts]],
        parse: Callable[[Facts], T],
        *,
        device: torch.device,
        renew: bool = False,
    ) -> tuple[nn.Module, T]:
        """Return the stored model and its facts; train it first if it is missing or unusable.

        parse   converts the facts, and raises an error for those that it cannot use
        """
        with fixed_seed(0, device):  # the caller's generators stay as they are
            model = new_model().to(device)

        def make() -> Artifact:
            trained, facts = train()
            return Artifact(copy_tensors(trained), facts)

        def load(artifact: Artifact) -> tuple[nn.Module, T]:
            load_tensors(model, artifact.tensors, "The stored model")
            return model.eval(), parse(artifact.facts)

        return self.get_or_make(key, make, load, renew=renew)

    def _make(self, key: Key, make: Callable[[], Artifact]) -> Artifact:
        artifact = make()
        if self.root is not None and is_first():
            with files.writing_cache(self.root):
                self.write(key, artifact)
        return artifact

    def _load(
        self, key: Key, device: torch.device | str, load: Callable[[Artifact], T]
    ) -> T | None:
        if key not in self:
            return None
        path = self.path(key)
        try:
            files.check_regular(path)
            with safe_open(path, "pt") as file:
                facts = json.loads(file.metadata()[FACTS])
            return load(Artifact(load_file(path, device=str(device)), facts))
        except READ_ERRORS as error:
            files.warn(f"{path} cannot be read ({error}). It is made again.")
            return None
