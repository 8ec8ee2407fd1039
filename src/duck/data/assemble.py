"""Make a checked data set with its splits from the samples that a source read."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from duck.data.examples import Pixels, examples
from duck.data.images import resized
from duck.data.splits import holdout_rows, split_by_hash
from duck.errors import BadInput, TooFewOutputs
from duck.printable import counted, listed
from duck.types import Augment, Data, Examples, Ids


class Samples(NamedTuple):
    """Images (N, C, H, W), or float features of any shape, with their labels and ids."""

    images: Tensor
    labels: Tensor
    ids: Ids

    def take(self, rows: Tensor) -> "Samples":
        return Samples(self.images[rows], self.labels[rows], self.ids[rows.numpy()])


def assemble(
    name: str,
    train: Samples,
    test: Samples | None,
    classes: Sequence[str],
    *,
    pixels: Pixels | None = None,
    augment: Augment = "none",
    image_size: int | None = None,
    split: bool = True,
) -> Data:
    """Make a data set of arrays.

    Without a test split a fifth of the samples is split off by a hash of their ids, half of it as
    holdout, unless `split` is False. Then classes may have no training samples: the model was
    trained elsewhere, on more samples than these.
    """
    check_labels(name, train.labels, len(classes), gaps=not split)
    holdout = None
    if test is None and split:
        rows = split_by_hash(train.ids)
        check_split(name, train.labels, rows.train, classes)
        holdout = rows.holdout
        test = train.take(rows.test) if len(rows.test) else None
        train = train.take(rows.train)
    if pixels is None and train.images.dtype == torch.uint8:
        pixels = statistics([train.images])

    seen = resized(examples(*train, pixels), image_size)
    unseen = resized(examples(*test, pixels), image_size) if test is not None else None
    return finish(name, seen, unseen, classes, augment=augment, holdout=holdout, gaps=not split)


def finish(
    name: str,
    train: Examples,
    test: Examples | None,
    classes: Sequence[str],
    *,
    augment: Augment,
    holdout: Tensor | None = None,
    gaps: bool = False,
) -> Data:
    """Check examples and make a data set of them.

    holdout     rows of the test split; by default a fifth of each class
    gaps        whether classes may have no training samples
    """
    check_labels(name, train.labels, len(classes), gaps)
    check_ids(name, train.ids)
    if test is None:
        return Data(name, train, None, tuple(classes), torch.empty(0, dtype=torch.int64), augment)
    _check_test(name, train, test, len(classes))
    rows = holdout if holdout is not None else holdout_rows(test.labels, test.ids, name)
    return Data(name, train, test, tuple(classes), rows, augment)


def check_labels(name: str, labels: Tensor, num_classes: int, gaps: bool = False) -> None:
    """Raise an error unless the labels are 0 to K - 1 and, without `gaps`, each of them occurs."""
    if num_classes < 2:
        raise BadInput(
            f"{name} needs at least two classes, one of them to keep; it has {num_classes}."
        )
    found = labels.unique().tolist()
    if found[0] < 0 or found[-1] >= num_classes or (len(found) < num_classes and not gaps):
        present = "" if gaps else " without gaps"
        raise BadInput(
            f"The training labels of {name} must be 0 to {num_classes - 1}{present} (it has "
            f"{num_classes} classes); found {listed(found, 12)}. {CORRECT if gaps else RENUMBER}"
        )


CORRECT = "Correct the labels, or the class names."
RENUMBER = (
    "To train a new model, renumber them or correct the class names. For a trained model keep the "
    "numbers that it knows: duck.forget in Python takes the classes from the model, from_dataset "
    "from classes=, the command line from class_names in the .npz file."
)


def numbered_classes(name: str, labels: Tensor, outputs: int | None = None) -> list[str]:
    """Return "0", "1", ... as class names: one per output of the model or, without one, per label.

    In the latter case the labels must be 0 to K - 1 without gaps.
    """
    highest = int(labels.max())
    if outputs is None:
        check_labels(name, labels, highest + 1)
    elif highest >= outputs:
        raise TooFewOutputs(highest, outputs)
    return [str(label) for label in range(outputs or highest + 1)]


def check_split(name: str, labels: Tensor, train: Tensor, classes: Sequence[str]) -> None:
    """Raise an error if the split by id leaves a class without training samples."""
    missing = sorted(set(labels.tolist()) - set(labels[train].tolist()))
    if missing:
        raise BadInput(
            f"{name} has no test split, and the 80/10/10 split of its {len(labels)} samples by id "
            f"leaves none to train on in class {listed([classes[label] for label in missing], 12)}."
            " Add samples or give it a test split."
        )


def check_ids(name: str, ids: Ids) -> None:
    """Raise an error if two samples have the same id."""
    known, counts = np.unique(ids, return_counts=True)
    if len(known) < len(ids):
        raise BadInput(
            f"The ids of {name} must differ from each other; {known[counts > 1][0]!r} occurs "
            f"{counts.max()} times."
        )


def statistics(parts: Iterable[Tensor]) -> Pixels:
    """Return mean and std per channel of uint8 images (N, C, H, W), from exact integer sums."""
    count = 0
    total = squares = np.zeros(1, np.int64)
    for part in parts:
        for images in part.split(1024):
            values = images.numpy()
            count += values[:, 0].size
            total = total + values.sum((0, 2, 3), dtype=np.int64)
            squares = squares + np.square(values, dtype=np.uint16).sum((0, 2, 3), dtype=np.int64)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    # The std of a constant channel is 0, and pixels are divided by it.
    return Pixels(tuple((mean / 255).tolist()), tuple(np.where(std > 0, std / 255, 1.0).tolist()))


def _check_test(name: str, train: Examples, test: Examples, num_classes: int) -> None:
    if test.shape != train.shape:
        raise BadInput(
            f"Test images of {name} have shape {test.shape}, training images {train.shape}."
        )
    unknown = sorted(set(test.labels.tolist()) - set(range(num_classes)))
    if unknown:
        raise BadInput(
            f"The test labels of {name} must be 0 to {num_classes - 1} as in training; found also "
            f"{listed(unknown, 12)}."
        )
    check_ids(f"the test split of {name}", test.ids)


def check_pixels(name: str, pixels: Pixels, channels: int, is_float: bool) -> None:
    """Raise an error unless mean and std have a finite number per channel, the std above 0."""
    if is_float:
        raise BadInput(
            f"The images of {name} are floats, which are not normalised: leave out mean and std."
        )
    mean, std = pixels.mean, pixels.std
    is_finite = all(map(math.isfinite, (*mean, *std)))
    if not len(mean) == len(std) == channels or min(std) <= 0 or not is_finite:
        raise BadInput(
            f"{name} has {counted(channels, 'channel')}: give one mean and one std for each "
            "channel, the std above 0."
        )
