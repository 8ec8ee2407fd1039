"""One image file to one uint8 array. Imports no torch, so that a process of it starts quickly."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from duck.errors import BadInput

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")


class Header(NamedTuple):
    """What an image file says of itself before it is decoded."""

    size: tuple[int, int]
    """Width and height."""
    mode: str


def read_header(path: Path) -> Header:
    """What the file says of itself; read of every file before any is decoded."""
    if path.exists() and not path.is_file():  # opening a named pipe would wait for a writer
        raise BadInput(
            f"Cannot read the image {path}: it is not a regular file. Remove or replace it."
        )
    return _with_image(path, lambda image: Header(image.size, image.mode))


def decode(path: Path, shape: tuple[int, ...], size: int | None = None) -> npt.NDArray[np.uint8]:
    """uint8 (C, H, W), resized where a size is given; the file must come out in the shape."""
    pixels = _with_image(
        path, lambda image: pixels_of(image if size is None else _resize(image, size), shape[0])
    )
    if pixels.shape != shape:
        raise BadInput(
            f"The image {path} has shape {pixels.shape}, the others have {shape}. Remove or resize it."
        )
    return pixels


def pixels_of(image: "Image", channels: int) -> npt.NDArray[np.uint8]:
    """uint8 (C, H, W) of a PIL image: grey for one channel, else RGB."""
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"its pixels have more than 8 bits (mode {image.mode})")
    if "transparency" in image.info:
        image = image.convert(
            "RGBA"
        )  # Pillow warns of a palette with transparency that goes straight to RGB
    pixels = np.array(image.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def scaled_size(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width once the shorter one is `size`."""
    short = min(height, width)
    return round(height * size / short), round(width * size / short)


def _resize(image: "Image", size: int) -> "Image":
    from PIL.Image import Resampling

    height, width = scaled_size(image.height, image.width, size)
    left, top = (width - size) // 2, (height - size) // 2
    # A palette's numbers cannot be averaged.
    image = (
        image
        if image.mode in ("L", "RGB")
        else image.convert("RGBA" if "transparency" in image.info else "RGB")
    )
    return image.resize((width, height), Resampling.BILINEAR).crop(
        (left, top, left + size, top + size)
    )


def _with_image(path: Path, use: "Callable[[Image], T]") -> T:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return use(image)
    except Exception as error:  # decoders raise nearly anything on a damaged file
        raise BadInput(f"Cannot read the image {path}: {error}. Remove or replace it.") from error


def main(arguments: list[str]) -> None:
    """Worker of `decode_all`: file names on stdin, their pixels on stdout, the first problem on stderr."""
    size, *shape = (int(word) for word in arguments)
    for name in sys.stdin.buffer.read().split(b"\0"):
        try:
            pixels = decode(Path(os.fsdecode(name)), tuple(shape), size or None)
        except BadInput as error:
            sys.exit(str(error))
        sys.stdout.buffer.write(pixels.data)


if __name__ == "__main__":
    main(sys.argv[1:])
