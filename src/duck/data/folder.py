"""A folder of class folders of images, of any type that Pillow reads."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from duck.data.assemble import check_labels, check_split, finish, statistics
from duck.data.decode import Header, read_header
from duck.data.examples import Pixels, examples, stream
from duck.data.images import evenly_spaced_rows, fit_in_memory
from duck.data.parallel import decode_all, decode_in_threads, in_threads
from duck.data.progress import ProgressCallback
from duck.data.splits import split_by_hash
from duck.errors import BadInput
from duck.types import Data, Examples, Ids

UNREADABLE = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF"}
"""Formats that Pillow knows by name only, or reads through other programs."""


class Files(NamedTuple):
    """Image files of one split with their labels; ids are the paths below the data set's folder."""

    paths: list[Path]
    labels: Tensor
    ids: Ids

    def take(self, rows: Tensor) -> "Files":
        return Files(
            [self.paths[row] for row in rows.tolist()], self.labels[rows], self.ids[rows.numpy()]
        )


def load(
    path: Path,
    *,
    image_size: int | None = None,
    progress: ProgressCallback | None = None,
    split: bool = True,
) -> Data:
    """Read `path/<class>/...`, or `path/train/<class>/...` with test data in `test` or `val`.

    Without test data the samples are split by id, unless `split` is False: then the model was
    trained elsewhere, and a class may have test images or an empty folder alone. All images must
    have one size, unless `image_size` resizes them. Up to half of the free memory they are decoded
    at once, else batch by batch. If all images are grey, they stay grey; else all become RGB.
    """
    name = path.resolve().name
    train_folder, test_folder = _split_folders(path)
    classes = [folder.name for folder in _subfolders(train_folder)]
    if test_folder and not split:
        classes = sorted({*classes, *(folder.name for folder in _subfolders(test_folder))})
    if not classes:
        raise BadInput(
            f"{train_folder} contains no class folders. Put the images into <class>/ in it."
        )
    train = _list(path, train_folder, classes, gaps=not split)
    check_labels(name, train.labels, len(classes), gaps=not split)
    test = _list(path, test_folder, classes) if test_folder else None
    holdout = None
    if test is None and split:
        rows = split_by_hash(train.ids)
        check_split(name, train.labels, rows.train, classes)
        test = train.take(rows.test)
        train = train.take(rows.train)
        holdout = rows.holdout
    shape = _shape([*train.paths, *(test.paths if test else [])], image_size)
    seen, pixels = _read(train, shape, image_size, None, progress)
    unseen = None
    if test and test.paths:
        unseen, _ = _read(test, shape, image_size, pixels, progress)
    return finish(name, seen, unseen, classes, augment="crop-flip", holdout=holdout, gaps=not split)


def _read(
    files: Files,
    shape: tuple[int, ...],
    image_size: int | None,
    pixels: Pixels | None,
    progress: ProgressCallback | None,
) -> tuple[Examples, Pixels]:
    """Return the examples and their normalisation, by default their own mean and std."""
    if fit_in_memory(len(files.paths) * torch.Size(shape).numel()):
        images = decode_all(files.paths, shape, image_size, progress)
        pixels = pixels or statistics([images])
        return examples(images, files.labels, files.ids, pixels), pixels

    def fetch(rows: Tensor) -> Tensor:
        return decode_in_threads([files.paths[row] for row in rows.tolist()], shape, image_size)

    chosen = evenly_spaced_rows(len(files.paths)).split(256)
    pixels = pixels or statistics(map(fetch, chosen))
    return stream(files.labels, files.ids, pixels, fetch, shape), pixels


def _split_folders(path: Path) -> tuple[Path, Path | None]:
    # A class may be called "train": its folder then contains images, not folders.
    if not ((path / "train").is_dir() and _subfolders(path / "train")):
        return path, None
    return path / "train", next(
        (path / name for name in ("test", "val") if (path / name).is_dir()), None
    )


def _subfolders(path: Path) -> list[Path]:
    return sorted(
        entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )


def _list(path: Path, split: Path, classes: list[str], gaps: bool = False) -> Files:
    """Return the images of one split. With `gaps`, class folders may be empty."""
    paths, labels = [], []
    for folder in _subfolders(split):
        if folder.name not in classes:
            raise BadInput(f"{folder} is a class without training images. Remove it, or add some.")
        files = sorted(_images_under(folder))
        for file in (folder, *files):
            _check_name(path, file)
        if not files and not gaps:
            raise BadInput(f"The class folder {folder} contains no images. Add some or remove it.")
        paths += files
        labels += [classes.index(folder.name)] * len(files)
    if not paths:
        raise BadInput(f"{split} contains no class folders. Put the images into <class>/ in it.")
    ids = np.array([file.relative_to(path).as_posix() for file in paths])
    return Files(paths, torch.tensor(labels), ids)


def _check_name(path: Path, file: Path) -> None:
    """Raise an error for a name that is not text: names become ids and class names."""
    try:
        file.relative_to(path).as_posix().encode()
    except UnicodeEncodeError:
        raise BadInput(f"The name of {file} is not UTF-8: rename it.") from None


def _images_under(folder: Path) -> Iterator[Path]:
    suffixes = _suffixes()
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (
            Path(parent, name)
            for name in names
            if not name.startswith(".") and Path(name).suffix.lower() in suffixes
        )


def _suffixes() -> set[str]:
    from PIL import Image

    return {
        suffix
        for suffix, kind in Image.registered_extensions().items()
        if kind in Image.OPEN and kind not in UNREADABLE
    }


def _shape(paths: list[Path], image_size: int | None) -> tuple[int, int, int]:
    """Return the shape of all images, from the headers of the files."""
    headers: list[Header] = [Header((0, 0), "")] * len(paths)

    def read(part: range) -> None:
        for row in part:
            headers[row] = read_header(paths[row])

    in_threads(read, len(paths))
    channels = 1 if {header.mode for header in headers} <= {"L", "1"} else 3
    if image_size is not None:
        return channels, image_size, image_size
    width, height = headers[0].size
    for path, header in zip(paths, headers, strict=True):
        if header.size != (width, height):
            raise BadInput(
                f"The images differ in size: {paths[0]} is {width}x{height}, {path} is "
                f"{header.size[0]}x{header.size[1]}. Give one size for all with image_size "
                "(--image-size)."
            )
    return channels, height, width
