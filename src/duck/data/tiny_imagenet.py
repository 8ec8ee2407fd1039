"""Tiny ImageNet: 200 classes of 64x64 JPEGs. `test` has no labels, so `val` is the test split."""

import hashlib
from pathlib import Path

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
    table = folder / "words.txt"
    lines = table.read_text().splitlines() if table.exists() else []
    rows = [line.split("\t", 1) for line in lines if "\t" in line]
    words = {wnid: names.split(",")[0].strip() for wnid, names in rows}
    names = [words.get(wnid, wnid) for wnid in wnids]
    return [
        name if names.count(name) == 1 else f"{name} ({wnid})"
        for name, wnid in zip(names, wnids, strict=True)
    ]


def _list_train(folder: Path, wnids: list[str]) -> dict[Path, int]:
    """Return the image files with their labels."""
    files = {}
    for label, wnid in enumerate(wnids):
        for path in sorted((folder / wnid / "images").glob("*.JPEG")):
            files[path] = label
    return files


def _list_val(folder: Path, wnids: list[str]) -> dict[Path, int]:
    """Return the image files with their labels, in the order of the table of labels."""
    table = folder / "val_annotations.txt"
    files = {}
    for number, line in enumerate(table.read_text().splitlines(), 1):
        name, wnid = (*line.split("\t"), "")[:2]
        path = folder / "images" / name
        if wnid not in wnids or not path.is_file():
            raise BadInput(f"{table}, line {number}: no image {name!r} or no class {wnid!r}.")
        files[path] = wnids.index(wnid)
    return files


def _samples(
    folder: Path, split: str, files: dict[Path, int], progress: ProgressCallback | None
) -> Samples:
    # The key changes when a file is added, removed, moved or changes its size.
    lines = [f"{path.name} {label} {path.stat().st_size}" for path, label in files.items()]
    images = cached(
        f"{folder.name}-{split}",
        hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest(),
        (folder, user_cache()),
        lambda: decode_all(list(files), SHAPE, progress=progress),
    )
    ids = np.array([path.name for path in files], dtype=np.str_)
    return Samples(images, torch.tensor(list(files.values())), ids)
