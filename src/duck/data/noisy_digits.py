"""Digits with noise in pixels and labels: models learn the training samples by heart.

On plain digits a model is right on nearly every unseen sample, so there is nothing to forget but
whole classes. Here a model has 100 % accuracy on training samples and about 90 % on unseen ones.
"""

import numpy as np
import torch

from duck.data.assemble import Samples, assemble
from duck.data.digits import read_table, scale_pixels
from duck.types import Data

PIXEL_NOISE = 0.15
"""Standard deviation, as a share of the range of a pixel."""
LABEL_NOISE = 0.05
"""Share of the samples, in both splits, whose label is drawn at random."""
SEED = 0


def load(*, image_size: int | None = None) -> Data:
    """Return the digits with noise, half of them as test samples; ids are those of `digits`."""
    table = read_table()
    draw = np.random.default_rng(SEED)
    noise = draw.normal(0, 16 * PIXEL_NOISE, (len(table), 64))
    images = torch.from_numpy(scale_pixels(table[:, :-1] + noise))
    is_wrong = draw.random(len(table)) < LABEL_NOISE
    labels = np.where(is_wrong, draw.integers(10, size=len(table)), table[:, -1].astype(np.int64))
    ids = np.arange(len(table)).astype(np.str_)
    samples = Samples(images, torch.from_numpy(labels), ids)
    order = torch.from_numpy(draw.permutation(len(table)))
    train, test = (rows.sort().values for rows in order.chunk(2))
    return assemble(
        "noisy-digits",
        samples.take(train),
        samples.take(test),
        tuple("0123456789"),
        image_size=image_size,
    )
