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


def load(*, image_size: int | None = None) -> Data:
    """Return 1,797 digits, split by id; an id is the index in scikit-learn's order."""
    table = read_table()
    images = torch.from_numpy(scale_pixels(table[:, :-1]))
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    ids = np.arange(len(labels)).astype(np.str_)
    return assemble(
        "digits",
        Samples(images, labels, ids),
        None,
        tuple("0123456789"),
        pixels=PIXELS,
        image_size=image_size,
    )


def scale_pixels(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Return rows of 64 values in 0..16 as images of bytes."""
    pixels = np.clip(np.round(values * (255 / 16)), 0, 255)
    return pixels.astype(np.uint8).reshape(-1, 1, 8, 8)


def read_table() -> npt.NDArray[np.float64]:
    """Read the file of `sklearn.datasets.load_digits`, whose import would take a second."""
    sklearn = find_spec("sklearn")
    assert sklearn is not None
    assert sklearn.origin is not None
    return np.loadtxt(Path(sklearn.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
