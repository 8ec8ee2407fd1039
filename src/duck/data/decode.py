"""Decode image files to uint8 arrays. Imports no torch, so that worker processes start quickly."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from duck.errors import BadInput

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")


class Header(NamedTuple):
    """The facts that an image file states before it is decoded."""

    size: tuple[int, int]
    """Width and height."""
    mode: str


def read_header(path: Path) -> Header:
    """Read the header of an image file, without decoding the image."""
    if path.exists() and not path.is_file():  # opening a named pipe would wait for a writer
        raise BadInput(
            f"Cannot read the image {path}: it is not a regular file. Remove or replace it."
        )
    return _with_image(path, lambda image: Header(image.size, image.mode))


def decode(path: Path, shape: tuple[int, ...], size: int | None = None) -> npt.NDArray[np.uint8]:
    """Return an image as uint8 (C, H, W), resized if a size is given.

    An image that does not have the shape in the end is an error.
    """
    pixels = _with_image(
        path, lambda image: pixels_of(image if size is None else _resize(image, size), shape[0])
    )
    if pixels.shape != shape:
        raise BadInput(
            f"The image {path} has shape {pixels.shape}, others have {shape}. Resize it."
        )
    return pixels


def decode_part(
    part: tuple[int, Sequence[Path]], shape: tuple[int, ...], size: int | None
) -> tuple[int, npt.NDArray[np.uint8]]:
    """Decode some of many files, in a worker process; return the row of the first one with them."""
    start, paths = part
    return start, np.stack([decode(path, shape, size) for path in paths])


def pixels_of(image: "Image", channels: int) -> npt.NDArray[np.uint8]:
    """Return a PIL image as uint8 (C, H, W): grey for one channel, else RGB."""
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"its pixels have more than 8 bits (mode {image.mode})")
    if "transparency" in image.info:
        # Pillow warns if a palette with transparency is converted directly to RGB.
        image = image.convert("RGBA")
    pixels = np.array(image.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def scaled_size(height: int, width: int, size: int) -> tuple[int, int]:
    """Return height and width, scaled so that the shorter one is `size`."""
    short = min(height, width)
    return round(height * size / short), round(width * size / short)


def _resize(image: "Image", size: int) -> "Image":
    from PIL.Image import Resampling

    height, width = scaled_size(image.height, image.width, size)
    left = (width - size) // 2
    top = (height - size) // 2
    if image.mode not in ("L", "RGB"):
        # The indices of a palette cannot be averaged.
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    scaled = image.resize((width, height), Resampling.BILINEAR)
    return scaled.crop((left, top, left + size, top + size))


def _with_image(path: Path, use: "Callable[[Image], T]") -> T:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return use(image)
    except Exception as error:  # decoders raise nearly anything on a damaged file
        raise BadInput(f"Cannot read the image {path}: {error}. Remove or replace it.") from error
