"""Decoded images kept as one array on disk: written whole or not at all, and mapped into memory afterwards."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from duck import files


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
            with files.writing(folder / file) as place, place.open("wb") as out:
                np.save(out, made, allow_pickle=False)
        except OSError as error:
            problems.append(f"{folder} ({error.strerror})")
            continue
        _remove_others(folder, name, file)
        return torch.from_numpy(made)
    size = f"{made.nbytes / 2**20:.0f} MiB"
    files.warn(
        f"The decoded images ({size}) cannot be kept in {' or '.join(problems)}: they are decoded again the next time."
    )
    return torch.from_numpy(made)


def _mapped(file: Path) -> Tensor | None:
    """The array in the file; None where there is none, or it was cut short."""
    try:
        # Copy-on-write: nothing is read before it is used, and nothing can reach the file.
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None


def _remove_others(folder: Path, name: str, current: str) -> None:
    for old in folder.glob(f".{name}-*.npy"):
        if old.name != current:
            with suppress(OSError):
                old.unlink()
