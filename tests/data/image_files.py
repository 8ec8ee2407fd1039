"""Small image files and CIFAR pickles for the tests."""

import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image


def noise(shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_image(path: Path, pixels: npt.NDArray[np.uint8]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def write_classes(
    folder: Path, count: int, size: tuple[int, ...] = (6, 6, 3), classes: str = "abc"
) -> Path:
    """So many PNG files of noise in each class folder."""
    for label, name in enumerate(classes):
        for number in range(count):
            write_image(folder / name / f"{number}.png", noise(size, 1000 * label + number))
    return folder


def write_pickle(path: Path, content: object, protocol: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


def write_cifar10(root: Path, rows: int = 20) -> Path:
    """The layout of CIFAR-10 with so many images a file and no file names."""
    folder = root / "cifar-10-batches-py"
    files = [*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"]
    for seed, name in enumerate(files):
        write_pickle(
            folder / name,
            {b"data": noise((rows, 3072), seed), b"labels": [row % 10 for row in range(rows)]},
        )
    write_pickle(
        folder / "batches.meta",
        {b"label_names": [f"class {label}".encode() for label in range(10)]},
    )
    return folder


def write_cifar100(root: Path, names: Sequence[str] | None = None) -> Path:
    """The layout of CIFAR-100 with one image a class, and file names."""
    folder = root / "cifar-100-python"
    for seed, split in enumerate(("train", "test")):
        files = [name.encode() for name in (names or [f"{split}_{row}.png" for row in range(100)])]
        content = {
            b"data": noise((100, 3072), seed),
            b"fine_labels": list(range(100)),
            b"coarse_labels": [0] * 100,
            b"filenames": files,
        }
        write_pickle(folder / split, content)
    write_pickle(
        folder / "meta", {b"fine_label_names": [f"class {label}".encode() for label in range(100)]}
    )
    return folder


def python2_pickle(data: npt.NDArray[np.uint8], labels: list[int], names: list[bytes]) -> bytes:
    """A batch as Python 2 wrote the official files: protocol 2, byte strings, the old module name
    of numpy."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R("
    dtype += number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + number(0)
        + b"\x85"
        + text(b"b")
        + b"\x87R("
    )
    array += (
        number(1)
        + number(data.shape[0])
        + number(data.shape[1])
        + b"\x86"
        + dtype
        + b"\x89"
        + text(data.tobytes())
        + b"tb"
    )
    numbers = b"](" + b"".join(map(number, labels)) + b"e"
    words = b"](" + b"".join(map(text, names)) + b"e"
    return (
        b"\x80\x02}("
        + text(b"data")
        + array
        + text(b"labels")
        + numbers
        + text(b"filenames")
        + words
        + b"u."
    )
