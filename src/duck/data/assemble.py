"""From what a source read to a checked data set with its splits."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from duck.data.examples import Pixels, examples
from duck.data.images import resized
from duck.data.splits import holdout_rows, split_by_hash
from duck.errors import BadInput, TooFewOutputs
from duck.types import Augment, Data, Examples, Ids


class Samples(NamedTuple):
    """Images (N, C, H, W), or float features of any shape; a label and an id each."""

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
    """A data set of arrays. Without a test split a tenth each is kept from training by id, unless `split` is off."""
    check_labels(name, train.labels, len(classes))
    holdout = None
    if test is None and split:
        rows = split_by_hash(train.ids)
        check_split(name, train.labels, rows.train, classes)
        train, test, holdout = (
            train.take(rows.train),
            train.take(rows.test) if len(rows.test) else None,
            rows.holdout,
        )
    if pixels is None and train.images.dtype == torch.uint8:
        pixels = statistics([train.images])

    def ready(part: Samples) -> Examples:
        return resized(examples(*part, pixels), image_size)

    return finish(
        name,
        ready(train),
        ready(test) if test is not None else None,
        classes,
        augment=augment,
        holdout=holdout,
    )


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
    """Data of checked examples; the holdout is drawn from the test split unless it is given. `gaps`: classes may lack samples."""
    check_labels(name, train.labels, len(classes), gaps)
    check_ids(name, train.ids)
    if test is None:
        return Data(name, train, None, tuple(classes), torch.empty(0, dtype=torch.int64), augment)
    _check_test(name, train, test, len(classes))
    rows = holdout if holdout is not None else holdout_rows(test.labels, test.ids, name)
    return Data(name, train, test, tuple(classes), rows, augment)


def check_labels(name: str, labels: Tensor, num_classes: int, gaps: bool = False) -> None:
    """Every one of 0..K-1, and nothing else, must label a training sample; with `gaps` some of them may not."""
    if num_classes < 2:
        raise BadInput(
            f"{name} needs at least two classes, one to forget and one to keep; it has {num_classes}."
        )
    found = labels.unique().tolist()
    if found[0] < 0 or found[-1] >= num_classes or (len(found) < num_classes and not gaps):
        present = "" if gaps else ", every one present"
        raise BadInput(
            f"The training labels of {name} must be 0 to {num_classes - 1}{present} (it has {num_classes} classes); "
            f"found {_listed(found)}. {CORRECT if gaps else RENUMBER}"
        )


CORRECT = "Correct the labels, or the class names."
RENUMBER = (
    "To train anew renumber them, or correct the class names. For a trained model keep the numbers that it knows: duck.forget in Python "
    "takes the classes from the model, from_dataset from classes=."
)


def numbered(name: str, labels: Tensor, outputs: int | None = None) -> list[str]:
    """Names for classes that have none: as many as a model has outputs, or, without one, as there are labels, every one of 0..K-1."""
    highest = int(labels.max())
    if outputs is None:
        check_labels(name, labels, highest + 1)
    elif highest >= outputs:
        raise TooFewOutputs(highest, outputs)
    return [str(label) for label in range(outputs or highest + 1)]


def check_split(name: str, labels: Tensor, train: Tensor, classes: Sequence[str]) -> None:
    """No class may lose all its training samples to the split by id."""
    missing = sorted(set(labels.tolist()) - set(labels[train].tolist()))
    if missing:
        raise BadInput(
            f"{name} has no test split, and of its {len(labels)} samples the 80/10/10 split by id leaves none to train on in class "
            f"{_listed(classes[label] for label in missing)}. Add samples or give it a test split."
        )


def check_ids(name: str, ids: Ids) -> None:
    """Each id must name one sample."""
    known, counts = np.unique(ids, return_counts=True)
    if len(known) < len(ids):
        raise BadInput(
            f"The ids of {name} must differ from each other; {known[counts > 1][0]!r} is there {counts.max()} times."
        )


def statistics(parts: Iterable[Tensor]) -> Pixels:
    """Mean and standard deviation per channel over uint8 images (N, C, H, W), from exact integer sums."""
    count, total, squares = 0, np.zeros(1, np.int64), np.zeros(1, np.int64)
    for images in (piece for part in parts for piece in part.split(1024)):
        values = images.numpy()
        count += values[:, 0].size
        total = total + values.sum((0, 2, 3), dtype=np.int64)
        squares = squares + np.square(values, dtype=np.uint16).sum((0, 2, 3), dtype=np.int64)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    # A constant channel has nothing to scale, and must not divide by zero.
    return Pixels(tuple((mean / 255).tolist()), tuple(np.where(std > 0, std / 255, 1.0).tolist()))


def _check_test(name: str, train: Examples, test: Examples, num_classes: int) -> None:
    if test.shape != train.shape:
        raise BadInput(
            f"The test images of {name} have shape {test.shape}, the training images {train.shape}: they must be alike."
        )
    strange = sorted(set(test.labels.tolist()) - set(range(num_classes)))
    if strange:
        raise BadInput(
            f"The test labels of {name} must be 0 to {num_classes - 1} as in training; found also {_listed(strange)}."
        )
    check_ids(f"the test split of {name}", test.ids)


def _listed(values: Iterable[object], most: int = 12) -> str:
    words = [str(value) for value in values]
    return ", ".join(words[:most]) + (f", ... ({len(words)} in all)" if len(words) > most else "")
