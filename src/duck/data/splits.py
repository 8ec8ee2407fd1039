"""Which samples a model may train on, which may steer it, and which are only reported: by id, never by a run's seed."""

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from duck.types import Ids

HOLDOUT = 0.2
"""Share of a test split that stop rules and tuning may look at."""


class Split(NamedTuple):
    """Rows of one set. `holdout` are rows of the `test` part."""

    train: Tensor
    test: Tensor
    holdout: Tensor


def holdout_rows(labels: Tensor, ids: Ids, name: str) -> Tensor:
    """A fifth of each class of a test split, at least one of two; the same for a data set of this name in any file order."""
    keys, classes = _hashes(ids, name), labels.numpy()
    order = np.lexsort((keys, classes))
    starts = np.searchsorted(classes[order], classes[order])
    sizes = np.bincount(classes)[classes[order]]
    rank = np.arange(len(order)) - starts
    # A stop rule compares with holdout samples of the same class: small classes need one too.
    chosen = np.where(sizes > 1, np.maximum(1, np.round(HOLDOUT * sizes)), 0)
    return torch.from_numpy(np.sort(order[rank < chosen]))


def split_by_hash(ids: Ids) -> Split:
    """80 % to train on, 10 % of holdout and 10 % to report, by the hash of each id alone: no sample moves when others come or go."""
    tenth = _hashes(ids) // np.uint64(2**64 // 10 + 1)
    train, rest = np.flatnonzero(tenth < 8), np.flatnonzero(tenth >= 8)
    return Split(
        torch.from_numpy(train),
        torch.from_numpy(rest),
        torch.from_numpy(np.flatnonzero(tenth[rest] == 8)),
    )


def _hashes(ids: Ids, salt: str = "") -> npt.NDArray[np.uint64]:
    # Python's own hash() of a string differs from process to process.
    digests = b"".join(
        hashlib.blake2b(name.encode(), digest_size=8, key=salt.encode()[:64]).digest()
        for name in ids.tolist()
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
