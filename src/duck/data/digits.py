"""Handwritten digits of 8x8 pixels from scikit-learn, for tests and demonstrations."""

import numpy as np
import torch

from duck.data.assemble import Samples, assemble
from duck.data.examples import Pixels
from duck.types import Data

PIXELS = Pixels((0.3049,), (0.3756,))


def load(*, image_size: int | None = None) -> Data:
    """Return 1,797 digits, split by id; an id is the index in scikit-learn's order."""
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
