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
        with suppress(OSError, ValueError, EOFError):  # there is none, or it is cut off
            # Copy-on-write: values are read when they are used, and the file cannot be changed.
            return torch.from_numpy(np.load(folder / file, mmap_mode="c", allow_pickle=False))
    array = compute().numpy()
    problems = []
    for folder in folders:
        try:
            with files.writing(folder / file) as path, path.open("wb") as out:
                np.save(out, array, allow_pickle=False)
        except OSError as error:
            problems.append(f"{folder} ({error.strerror})")
            continue
        for old in folder.glob(f".{name}-*.npy"):
            if old.name != file:
                with suppress(OSError):
                    old.unlink()
        return torch.from_numpy(array)
    files.warn(
        f"The decoded images ({array.nbytes / 2**20:.0f} MiB) cannot be stored in "
        f"{' or '.join(problems)}. The next run decodes them again."
    )
    return torch.from_numpy(array)
