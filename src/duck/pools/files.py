"""A pool on disk: its fingerprint, its watched samples, and one file for each finished model."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from duck.errors import BadInput
from duck.files import (
    WRITE_ERRORS,
    check_regular,
    is_temporary,
    read_text,
    reason,
    write_bytes,
    write_json,
    writing,
)
from duck.json_text import to_json
from duck.pools.plan import FIELDS, Job, Samples, differences
from duck.records import structure, to_plain

ABOUT, SAMPLES = "pool.json", "samples.npz"
NAME = re.compile(r"(model|oracle)-(\d{4,})\.safetensors")
Fingerprint = dict[str, Any]
RERUN = "delete it and rerun the command that made the pool."
COPY = "Copy it from another part of this pool, or choose another folder."


@dataclass(frozen=True)
class ModelInfo:
    """Accuracies, seconds and device of a trained model, as its file stores them."""

    accuracy: dict[str, dict[str, float | None]]
    """By the state of the model: on what it should know (train), and on test samples."""
    seconds: float
    device: str
    torch: str


@dataclass(frozen=True)
class Files:
    """The folder of a pool."""

    folder: Path
    fingerprint: Fingerprint

    @property
    def digest(self) -> str:
        return hashlib.blake2b(
            to_json(self.fingerprint, sort_keys=True).encode(), digest_size=16
        ).hexdigest()

    @property
    def private(self) -> bool:
        """Whether only their owner can read the files.

        Someone who tries all ids finds those behind a digest of a few sample ids. A salt would
        prevent this, but parts of a pool on several machines must have the same fingerprint.
        """
        request = self.fingerprint["request"]
        return bool(request) and request.get("name") == "samples"

    def path(self, job: Job) -> Path:
        """Return the path of a model's file."""
        return self.folder / f"{job.part}-{job.number:04d}.safetensors"

    def jobs(self) -> set[Job]:
        """Return the models that have a file."""
        names = (NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return {Job(found[1], int(found[2])) for found in names if found}  # type: ignore[arg-type]

    def done(self) -> set[Job]:
        """Return the models that have a complete file."""
        return {job for job in self.jobs() if self.is_complete(job)}

    def is_complete(self, job: Job) -> bool:
        """Return whether a model's file exists and is as long as its header says."""
        try:
            check_regular(self.path(job))
            with safe_open(self.path(job), "numpy"):
                return True
        except (FileNotFoundError, SafetensorError):
            return False

    def write(self, job: Job, arrays: Mapping[str, npt.NDArray[Any]], info: ModelInfo) -> None:
        """Write a model's file atomically."""
        metadata = {"pool": self.digest, "about": to_json(to_plain(info))}
        try:
            with writing(self.path(job), private=self.private) as file:
                save_file(
                    {name: np.ascontiguousarray(value) for name, value in arrays.items()},
                    file,
                    metadata,
                )
        except WRITE_ERRORS as error:
            raise BadInput(
                f"{self.path(job)} cannot be written: {reason(error)}. Finished models are kept. "
                "Free some space and rerun the command."
            ) from error

    def info(self, job: Job) -> ModelInfo:
        """Read the accuracies, seconds and device of a model."""
        with self.open(job) as file:
            text = file.metadata().get("about", "")
        try:
            return structure(json.loads(text), ModelInfo)
        except ValueError as error:
            raise _unreadable(self.path(job), error) from error

    def read(self, job: Job, name: str) -> npt.NDArray[Any]:
        """Read one array of a model."""
        try:
            with self.open(job) as file:
                array: npt.NDArray[Any] = file.get_tensor(name)
        except SafetensorError as error:
            raise _unreadable(self.path(job), error) from error
        return array

    def open(self, job: Job) -> Any:
        """Open a model's file and check that it belongs to this pool."""
        path = self.path(job)
        try:
            check_regular(path)
            file: Any = safe_open(path, "numpy")
            belongs = (file.metadata() or {}).get("pool") == self.digest
        except (OSError, SafetensorError) as error:
            raise _unreadable(path, error) from error
        if not belongs:
            raise BadInput(f"{path} is of another pool. Move it out of this folder.")
        return file

    def samples(self) -> Samples:
        """Read the watched samples and check them against the fingerprint.

        In another order every number would belong to another sample.
        """
        path = self.folder / SAMPLES
        try:
            check_regular(path)
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                samples = Samples(arrays["ids"], arrays["labels"], arrays["roles"])
            belongs = samples.digest() == self.fingerprint["samples"]
        except (OSError, EOFError, BadZipFile, ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, error) from error
        if not belongs:
            raise BadInput(
                f"{path} was changed, or is of another pool: its samples are not those of "
                f"{ABOUT}; {RERUN}"
            )
        return samples


def _unreadable(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path} cannot be read ({error}): {RERUN}")


def find(folder: Path) -> Files:
    """Open the pool in a folder."""
    try:
        about = json.loads(read_text(folder / ABOUT))
    except FileNotFoundError:
        raise BadInput(
            f"{folder} is not a pool: it has no {ABOUT}. Name a folder that `duck pool` made."
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder / ABOUT} cannot be read ({error}). {COPY}") from error
    stored = about.get("fingerprint") if isinstance(about, dict) else None
    fingerprint: Fingerprint = stored if isinstance(stored, dict) else {}
    missing = [name for name in FIELDS if name not in fingerprint]
    if missing:
        raise BadInput(
            f"{folder / ABOUT} does not say which pool this is: {', '.join(missing)} missing. "
            f"{COPY}"
        )
    return Files(folder, fingerprint)


def create(
    folder: Path, fingerprint: Fingerprint, samples: Samples, source: str = "what is asked"
) -> Files:
    """Create the folder of a pool or open it. Raise an error if it holds models of another one."""
    existing = _existing(folder, fingerprint, source)
    files = existing or Files(folder, fingerprint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if existing is None:
            # First: without it the file of samples would be taken for someone else's.
            write_json(folder / ABOUT, {"fingerprint": fingerprint}, private=files.private)
        if existing is None or not (folder / SAMPLES).exists():
            with writing(folder / SAMPLES, private=True) as file:
                np.savez(file, ids=samples.ids, labels=samples.labels, roles=samples.roles)
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be written: {error.strerror}. Choose another --out."
        ) from error
    files.samples()  # Checked before models are trained for it.
    return files


def merge(folders: Sequence[Path], out: Path) -> Files:
    """Copy the models of several pools with the same fingerprint into one folder.

    An interrupted merge leaves a pool, and the next one resumes it.
    """
    if not folders:
        raise BadInput("Name the pools to merge.")
    pools = [find(folder) for folder in folders]
    first = pools[0]
    for other in pools[1:]:
        _check_same(first.fingerprint, other.fingerprint, str(first.folder), str(other.folder))
    merged = create(out, first.fingerprint, first.samples(), str(first.folder))
    for pool in pools:
        for job in sorted(pool.jobs() - merged.done()):
            with pool.open(job):
                write_bytes(merged.path(job), pool.path(job).read_bytes(), private=merged.private)
    return merged


def _check_same(one: Fingerprint, other: Fingerprint, this: str, that: str) -> None:
    """Raise an error that names where two fingerprints differ."""
    found = [
        f"{name} is {ours!r} in {this} and {theirs!r} in {that}"
        for name, (ours, theirs) in differences(one, other).items()
    ]
    if found:
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise BadInput(f"These are different pools: {'; '.join(found[:5])}{more}.")


def _existing(folder: Path, fingerprint: Fingerprint, other: str) -> Files | None:
    """Return the pool in a folder if it has models, or None where a pool can be created."""
    if (folder / ABOUT).exists():
        existing = find(folder)
        if not existing.jobs():
            return None
        _check_same(existing.fingerprint, fingerprint, f"the pool in {folder}", other)
        return existing
    if folder.exists() and any(not is_temporary(path) for path in folder.iterdir()):
        raise BadInput(f"{folder} exists and is not a pool: choose another --out.")
    return None
