"""A pool on disk: pool.json says what it is, samples.npz whom it watches, and each finished model is one file, written whole."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
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
from duck.pools.plan import FIELDS, Job, Layout, differences, digest_of
from duck.types import Ids

ABOUT, SAMPLES = "pool.json", "samples.npz"
NAME = re.compile(r"(model|oracle)-(\d{4,})\.safetensors")
Fingerprint = dict[str, Any]
RERUN = "delete it and rerun the command that made the pool."
COPY = "Copy it from another part of this pool, or choose another folder."


class Samples(NamedTuple):
    """Whom a pool watches, in the order of every row of it."""

    ids: Ids
    labels: npt.NDArray[np.int64]
    roles: npt.NDArray[np.str_]


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
        """Whether all files are for their owner alone: the digests of a few sample ids, which they hold, tell the ids by trying all.

        A salt would hide them, but parts of one pool are made on several machines and must have the same fingerprint.
        """
        return (
            bool(self.fingerprint["request"])
            and self.fingerprint["request"].get("name") == "samples"
        )

    def path(self, job: Job) -> Path:
        return self.folder / f"{job.part}-{job.number:04d}.safetensors"

    def jobs(self) -> set[Job]:
        """The models that have a file."""
        names = (NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return {Job(found[1], int(found[2])) for found in names if found}  # type: ignore[arg-type]

    def done(self) -> set[Job]:
        """The models that have a complete file."""
        return {job for job in self.jobs() if self.is_complete(job)}

    def is_complete(self, job: Job) -> bool:
        """Return whether the file of a model exists and is as long as its header says. A truncated one is trained again."""
        try:
            check_regular(self.path(job))
            with safe_open(self.path(job), "numpy"):
                return True
        except (FileNotFoundError, SafetensorError):
            return False

    def write(
        self, job: Job, arrays: Mapping[str, npt.NDArray[Any]], about: Mapping[str, Any]
    ) -> None:
        """In one step: a kill leaves the whole file or none."""
        metadata = {"pool": self.digest, "about": to_json(about)}
        try:
            with writing(self.path(job), private=self.private) as file:
                save_file(
                    {name: np.ascontiguousarray(value) for name, value in arrays.items()},
                    file,
                    metadata,
                )
        except WRITE_ERRORS as error:
            raise BadInput(
                f"{self.path(job)} cannot be written: {reason(error)}. The models before it are kept; free some space."
            ) from error

    def about(self, job: Job) -> dict[str, Any]:
        """What was noted of a model: accuracies, seconds, device."""
        with self.open(job) as file:
            noted: dict[str, Any] = json.loads(file.metadata()["about"])
        return noted

    def read(self, job: Job, name: str) -> npt.NDArray[Any]:
        try:
            with self.open(job) as file:
                array: npt.NDArray[Any] = file.get_tensor(name)
        except SafetensorError as error:
            raise _unreadable(self.path(job), error) from error
        return array

    def open(self, job: Job) -> Any:
        """The file of a model, checked to be of this pool."""
        path = self.path(job)
        try:
            check_regular(path)
            file: Any = safe_open(path, "numpy")
            ours = (file.metadata() or {}).get("pool") == self.digest
        except (OSError, SafetensorError) as error:
            raise _unreadable(path, error) from error
        if not ours:
            raise BadInput(f"{path} is of another pool: take it out of this folder.")
        return file

    def samples(self) -> Samples:
        """Checked to be those of the fingerprint: in another order every number would belong to another sample."""
        path = self.folder / SAMPLES
        try:
            check_regular(path)
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                found = Samples(held["ids"], held["labels"], held["roles"])
            ours = digest_of(*found) == self.fingerprint["samples"]
        except (OSError, EOFError, BadZipFile, ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, error) from error
        if not ours:
            raise BadInput(
                f"{path} was changed, or is of another pool: its samples are not those of {ABOUT}; {RERUN}"
            )
        return found


def _unreadable(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path} cannot be read ({error}): {RERUN}")


def find(folder: Path) -> Files:
    """The pool that is in a folder."""
    try:
        about = json.loads(read_text(folder / ABOUT))
    except FileNotFoundError:
        raise BadInput(
            f"{folder} is not a pool: it has no {ABOUT}. Name a folder that `duck pool` made."
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder / ABOUT} cannot be read ({error}). {COPY}") from error
    held = about.get("fingerprint") if isinstance(about, dict) else None
    fingerprint: Fingerprint = held if isinstance(held, dict) else {}
    missing = [name for name in FIELDS if name not in fingerprint]
    if missing:
        raise BadInput(
            f"{folder / ABOUT} does not say which pool this is: {', '.join(missing)} missing. {COPY}"
        )
    return Files(folder, fingerprint)


def create(folder: Path, fingerprint: Fingerprint, layout: Layout) -> Files:
    """The folder of such a pool, made now or found; an error that names what differs if there are models of another one."""
    there = _begun(folder, fingerprint, "what is asked")
    files = there or Files(folder, fingerprint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if there is None:
            # First: without it a file of samples counts as somebody else's.
            write_json(folder / ABOUT, {"fingerprint": fingerprint}, private=files.private)
        if there is None or not (folder / SAMPLES).exists():
            with writing(folder / SAMPLES, private=True) as file:
                np.savez(file, ids=layout.ids, labels=layout.labels, roles=layout.roles)
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be written: {error.strerror}. Choose another --out."
        ) from error
    files.samples()  # before models are trained for it
    return files


def refuse_other(one: Fingerprint, other: Fingerprint, this: str, that: str) -> None:
    found = [
        f"{name} is {ours!r} in {this} and {theirs!r} in {that}"
        for name, (ours, theirs) in differences(one, other).items()
    ]
    if found:
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise BadInput(f"These are different pools: {'; '.join(found[:5])}{more}.")


def merge(folders: Sequence[Path], out: Path) -> Files:
    """One pool of the models of several, which must be of the same fingerprint. A model that two of them hold is taken once."""
    if not folders:
        raise BadInput("Name the pools to merge.")
    pools = [find(folder) for folder in folders]
    for other in pools[1:]:
        refuse_other(
            pools[0].fingerprint, other.fingerprint, str(pools[0].folder), str(other.folder)
        )
    pools[0].samples()
    _begun(out, pools[0].fingerprint, str(pools[0].folder))
    merged = Files(out, pools[0].fingerprint)
    out.mkdir(parents=True, exist_ok=True)
    for name in (
        ABOUT,
        SAMPLES,
    ):  # first: a merge that is cut short leaves a pool, and the next one goes on with it
        write_bytes(
            out / name,
            (pools[0].folder / name).read_bytes(),
            private=merged.private or name == SAMPLES,
        )
    for pool in pools:
        for job in sorted(pool.jobs() - merged.done()):
            with pool.open(job):
                write_bytes(merged.path(job), pool.path(job).read_bytes(), private=merged.private)
    return merged


def _begun(folder: Path, fingerprint: Fingerprint, whose: str) -> Files | None:
    """Such a pool that has models; None where one can be put. What a start leaves that made no model may be replaced."""
    if (folder / ABOUT).exists():
        there = find(folder)
        if not there.jobs():
            return None
        refuse_other(there.fingerprint, fingerprint, f"the pool in {folder}", whose)
        return there
    if folder.exists() and any(not is_temporary(path) for path in folder.iterdir()):
        raise BadInput(f"{folder} exists and is not a pool: choose another --out.")
    return None
