"""Tiny ImageNet: 200 classes of 64x64 JPEGs. `test` has no labels, so `val` is the test split."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from duck.data.assemble import Samples, assemble
from duck.data.cache import cached, user_cache
from duck.data.download import Archive, locate
from duck.data.examples import Pixels
from duck.data.parallel import decode_all
from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.types import Data

ARCHIVE = Archive(
    "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    "tiny-imagenet-200",
)
PIXELS = Pixels((0.4802, 0.4481, 0.3975), (0.2764, 0.2689, 0.2816))
SHAPE = (3, 64, 64)


class ImageFile(NamedTuple):
    """An image file of a split."""

    path: Path
    label: int
    bytes: int


def load(
    root: Path,
    *,
    download: bool = False,
    image_size: int | None = None,
    progress: ProgressCallback | None = None,
    archive: Archive = ARCHIVE,
) -> Data:
    """Read the data set; the decoded images are cached.

    Labels follow the order of the sorted WordNet ids. Ids are the file names.
    """
    folder = locate(
        archive,
        ("wnids.txt", "train", "val/images", "val/val_annotations.txt"),
        root,
        download,
        progress,
    )
    wnids = sorted((folder / "wnids.txt").read_text().split())
    train = _samples(folder, "train", _list_train(folder / "train", wnids), progress)
    test = _samples(folder, "val", _list_val(folder / "val", wnids), progress)
    return assemble(
        "tiny-imagenet",
        train,
        test,
        _names(folder, wnids),
        pixels=PIXELS,
        augment="crop-flip",
        image_size=image_size,
    )


def _names(folder: Path, wnids: list[str]) -> list[str]:
    """Return the first word for each class, with the WordNet id if two classes have the same.

    Classes without a word are named by their WordNet ids.
    """
    words = {}
    if (folder / "words.txt").exists():
        lines = (
            line.split("\t", 1)
            for line in (folder / "words.txt").read_text().splitlines()
            if "\t" in line
        )
        words = {wnid: names.split(",")[0].strip() for wnid, names in lines}
    names = [words.get(wnid, wnid) for wnid in wnids]
    return [
        name if names.count(name) == 1 else f"{name} ({wnid})"
        for name, wnid in zip(names, wnids, strict=True)
    ]


def _list_train(folder: Path, wnids: list[str]) -> list[ImageFile]:
    files = []
    for label, wnid in enumerate(wnids):
        sizes = _sizes(folder / wnid / "images")
        files += [
            ImageFile(folder / wnid / "images" / name, label, sizes[name]) for name in sorted(sizes)
        ]
    return files


def _list_val(folder: Path, wnids: list[str]) -> list[ImageFile]:
    sizes = _sizes(folder / "images")
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    table = folder / "val_annotations.txt"
    files = []
    for number, line in enumerate(table.read_text().splitlines(), 1):
        name, wnid = (*line.split("\t"), "")[:2]
        if name not in sizes or wnid not in label_of:
            raise BadInput(f"{table}, line {number}: no image {name!r} or no class {wnid!r}.")
        files.append(ImageFile(folder / "images" / name, label_of[wnid], sizes[name]))
    return files


def _sizes(folder: Path) -> dict[str, int]:
    if not folder.is_dir():
        raise BadInput(
            f"{folder} is missing. Remove the data set and download it again with --download."
        )
    with os.scandir(folder) as entries:
        return {
            entry.name: entry.stat().st_size for entry in entries if entry.name.endswith(".JPEG")
        }


def _samples(
    folder: Path, split: str, files: list[ImageFile], progress: ProgressCallback | None
) -> Samples:
    paths = [file.path for file in files]
    images = cached(
        f"{folder.name}-{split}",
        _key(files),
        (folder, user_cache()),
        lambda: decode_all(paths, SHAPE, progress=progress),
    )
    return Samples(
        images,
        torch.tensor([file.label for file in files]),
        np.array([path.name for path in paths], dtype=np.str_),
    )


def _key(files: list[ImageFile]) -> str:
    """Return a key that changes when a file is added, removed, moved or changes its size."""
    listing = "\n".join(f"{file.path.name} {file.label} {file.bytes}" for file in files)
    return hashlib.blake2b(listing.encode(), digest_size=8).hexdigest()
