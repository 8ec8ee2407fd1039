"""Splits into training, holdout and test samples. They depend on ids, never on a run's seed."""

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from duck.types import Ids

HOLDOUT = 0.2
"""Share of a test split that stop rules and tuning may use."""


class Split(NamedTuple):
    """Rows of one set. `holdout` are rows of the `test` part."""

    train: Tensor
    test: Tensor
    holdout: Tensor


def holdout_rows(labels: Tensor, ids: Ids, name: str) -> Tensor:
    """Return a fifth of each class of a test split, at least one sample if the class has two.

    The rows depend on the name of the data set and the ids, not on the order of the samples.
    """
    keys = _hashes(ids, name)
    classes = labels.numpy()
    order = np.lexsort((keys, classes))
    starts = np.searchsorted(classes[order], classes[order])
    sizes = np.bincount(classes)[classes[order]]
    rank = np.arange(len(order)) - starts
    # A stop rule compares with holdout samples of the same class: small classes need one too.
    chosen = np.where(sizes > 1, np.maximum(1, np.round(HOLDOUT * sizes)), 0)
    return torch.from_numpy(np.sort(order[rank < chosen]))


def split_by_hash(ids: Ids) -> Split:
    """Split samples by the hash of each id: 80 % for training, 10 % holdout, 10 % for reports.

    No sample changes its split when others are added or removed.
    """
    tenth = _hashes(ids) // np.uint64(2**64 // 10 + 1)
    rest = tenth >= 8
    parts = (~rest, rest, tenth[rest] == 8)
    return Split(*(torch.from_numpy(np.flatnonzero(part)) for part in parts))


def _hashes(ids: Ids, salt: str = "") -> npt.NDArray[np.uint64]:
    # Python's hash() of a string differs from process to process.
    digests = b"".join(
        hashlib.blake2b(name.encode(), digest_size=8, key=salt.encode()[:64]).digest()
        for name in ids.tolist()
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
