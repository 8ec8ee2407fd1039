"""Handwritten digits of 8x8 pixels from scikit-learn, for tests and demonstrations."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from duck.data.assemble import Samples, assemble
from duck.data.examples import Pixels
from duck.types import Data

PIXELS = Pixels((0.3049,), (0.3756,))
CLASSES = tuple("0123456789")
PIXEL_NOISE = 0.15
"""Standard deviation, as a share of the range of a pixel."""
LABEL_NOISE = 0.05
"""Share of the samples, in both splits, whose label is drawn at random."""
SEED = 0


def load(*, image_size: int | None = None) -> Data:
    """Return 1,797 digits, split by id; an id is the index in scikit-learn's order."""
    table = read_table()
    samples = _samples(table[:, :-1], table[:, -1].astype(np.int64))
    return assemble("digits", samples, None, CLASSES, pixels=PIXELS, image_size=image_size)


def load_noisy(*, image_size: int | None = None) -> Data:
    """Return digits with noise in pixels and labels, half of them as test samples.

    On plain digits a model is right on nearly every unseen sample, so there is nothing to forget
    but whole classes. Here a model memorises the training samples: it has 100 % accuracy on them
    and about 90 % on unseen ones.
    """
    table = read_table()
    draw = np.random.default_rng(SEED)
    noise = draw.normal(0, 16 * PIXEL_NOISE, (len(table), 64))
    is_wrong = draw.random(len(table)) < LABEL_NOISE
    labels = np.where(is_wrong, draw.integers(10, size=len(table)), table[:, -1].astype(np.int64))
    samples = _samples(table[:, :-1] + noise, labels)
    order = torch.from_numpy(draw.permutation(len(table)))
    train, test = (samples.take(rows.sort().values) for rows in order.chunk(2))
    return assemble("noisy-digits", train, test, CLASSES, image_size=image_size)


def _samples(values: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> Samples:
    """Return rows of 64 values in 0..16 as images of bytes."""
    pixels = np.clip(np.round(values * (255 / 16)), 0, 255).astype(np.uint8)
    images = torch.from_numpy(pixels.reshape(-1, 1, 8, 8))
    return Samples(images, torch.from_numpy(labels), np.arange(len(labels)).astype(np.str_))


def read_table() -> npt.NDArray[np.float64]:
    """Read the file of `sklearn.datasets.load_digits`, whose import would take a second."""
    sklearn = find_spec("sklearn")
    assert sklearn is not None
    assert sklearn.origin is not None
    return np.loadtxt(Path(sklearn.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
