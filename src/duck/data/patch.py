"""A patch in the top right corner of images: a shortcut that a model learns and must unlearn."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from duck.data.examples import Examples, Resident, Streamed
from duck.errors import BadInput


@dataclass(frozen=True)
class Patch:
    """A square of one colour."""

    size: int = 4
    colour: tuple[int, ...] = (255, 0, 0)
    """A value in 0..255 for each channel; images with one channel use the brightest value."""

    def place(self, shape: tuple[int, ...]) -> tuple[slice, slice]:
        """Return the rows and columns of the patch in images of that shape."""
        if len(shape) != 3 or not 0 < self.size <= min(shape[1:]):
            raise BadInput(
                f"A patch of {self.size} x {self.size} pixels does not fit images of shape {shape}."
            )
        return slice(0, self.size), slice(shape[2] - self.size, shape[2])

    def paint(self, examples: Examples, rows: Tensor) -> Examples:
        """Return a copy of the examples with the patch on these rows."""
        if examples.pixels is None:
            raise BadInput("A patch needs uint8 images, and these images are floats.")
        down, across = self.place(examples.shape)
        colour = self._colour(channels=examples.shape[0])
        chosen = examples.rows[rows]
        if isinstance(examples, Resident):
            images = examples.images.clone()
            images[chosen.to(images.device), :, down, across] = colour.to(images.device)
            return replace(examples, images=images)
        assert isinstance(examples, Streamed)
        fetch = examples.fetch

        def fetch_painted(rows: Tensor) -> Tensor:
            images = fetch(rows).clone()
            images[torch.isin(rows, chosen), :, down, across] = colour
            return images

        return replace(examples, fetch=fetch_painted)

    def _colour(self, channels: int) -> Tensor:
        """Return a value for each channel, as (channels, 1, 1)."""
        if not self.colour or not all(0 <= value <= 255 for value in self.colour):
            raise BadInput(f"A colour has values in 0..255, got {self.colour}.")
        if channels not in (1, len(self.colour)):
            raise BadInput(
                f"The images have {channels} channels, the colour {len(self.colour)} values."
            )
        values = self.colour if channels > 1 else (max(self.colour),)
        return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1)


def relabelled(examples: Examples, rows: Tensor, label: int) -> Examples:
    """Return a copy of the examples with another label on these rows."""
    labels = examples.labels.clone()
    labels[rows] = label
    return replace(examples, labels=labels)
