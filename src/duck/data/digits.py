"""Handwritten digits of 8x8 pixels, which come with scikit-learn: the smallest data set that looks like images."""

import numpy as np
import torch

from duck.data.assemble import Samples, assemble
from duck.data.examples import Pixels
from duck.types import Data

PIXELS = Pixels((0.3049,), (0.3756,))


def load(*, image_size: int | None = None) -> Data:
    """1,797 digits; their id is their place in scikit-learn's order. No official test split: split by id."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(np.round(digits.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    ids = np.arange(len(labels)).astype(np.str_)
    return assemble(
        "digits",
        Samples(images, labels, ids),
        None,
        tuple("0123456789"),
        pixels=PIXELS,
        image_size=image_size,
    )
