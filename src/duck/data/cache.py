"""A cache of decoded images: one array on disk, written atomically and mapped into memory."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from duck import files


def user_cache() -> Path:
    """Return the cache folder for data in a folder that cannot be written."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duck-unlearning"


def cached(name: str, key: str, folders: Sequence[Path], compute: Callable[[], Tensor]) -> Tensor:
    """Return the array that one of the folders has under this key, or compute it.

    A computed array is stored in the first folder that can be written.
    """
    file = f".{name}-{key}.npy"
    for folder in folders:
        if (stored := _read_mapped(folder / file)) is not None:
            return stored
    array = compute().numpy()
    problems = []
    for folder in folders:
        try:
            with files.writing(folder / file) as path, path.open("wb") as out:
                np.save(out, array, allow_pickle=False)
        except OSError as error:
            problems.append(f"{folder} ({error.strerror})")
            continue
        _remove_others(folder, name, file)
        return torch.from_numpy(array)
    size = f"{array.nbytes / 2**20:.0f} MiB"
    files.warn(
        f"The decoded images ({size}) cannot be stored in {' or '.join(problems)}. The next run "
        "decodes them again."
    )
    return torch.from_numpy(array)


def _read_mapped(file: Path) -> Tensor | None:
    """Return the array in the file; None if there is no file or it is cut off."""
    try:
        # Copy-on-write: values are read when they are used, and the file cannot be changed.
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None


def _remove_others(folder: Path, name: str, current: str) -> None:
    for old in folder.glob(f".{name}-*.npy"):
        if old.name != current:
            with suppress(OSError):
                old.unlink()
