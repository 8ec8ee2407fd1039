"""Decoded images kept as one array on disk: written whole or not at all, and mapped into memory afterwards."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from duck.errors import BadInput


def user_cache() -> Path:
    """For what cannot be written beside the data."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duck-unlearning"


def cached(name: str, key: str, folders: Sequence[Path], make: Callable[[], Tensor]) -> Tensor:
    """What `make` gives: from a folder that has it under this key, else made now and kept in the first that can be written."""
    file = f".{name}-{key}.npy"
    for folder in folders:
        if (kept := _mapped(folder / file)) is not None:
            return kept
    made = make().numpy()
    problems = []
    for folder in folders:
        try:
            _write(folder / file, made)
        except OSError as error:
            problems.append(f"{folder} ({error.strerror})")
            continue
        _remove_others(folder, name, file)
        return torch.from_numpy(made)
    raise BadInput(f"Cannot keep the decoded images ({made.nbytes / 2**20:.0f} MiB) in {' or '.join(problems)}. Make one of them writable.")


def _mapped(file: Path) -> Tensor | None:
    """The array in the file; None where there is none, or it was cut short."""
    try:
        # Copy-on-write: nothing is read before it is used, and nothing can reach the file.
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None


def _write(file: Path, array: np.typing.NDArray[np.uint8]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            np.save(out, array, allow_pickle=False)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_others(folder: Path, name: str, current: str) -> None:
    for old in folder.glob(f".{name}-*.npy"):
        if old.name != current:
            old.unlink()
