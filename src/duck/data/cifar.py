"""CIFAR-10 and CIFAR-100, in the layout of the official archives for Python."""

import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from duck.data.assemble import Samples, assemble
from duck.data.download import Archive, locate
from duck.data.examples import Pixels
from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.types import Data, Ids

DOWNLOAD = "Remove its folder and download it again with --download."


class Cifar(NamedTuple):
    """The facts in which the two data sets differ."""

    name: str
    archive: Archive
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    label_names: str
    num_classes: int
    pixels: Pixels


CIFAR10 = Cifar(
    "cifar10",
    Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        "cifar-10-batches-py",
    ),
    train=tuple(f"data_batch_{part}" for part in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels="labels",
    label_names="label_names",
    num_classes=10,
    pixels=Pixels((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
)
CIFAR100 = Cifar(
    "cifar100",
    Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        "cifar-100-python",
    ),
    train=("train",),
    test="test",
    meta="meta",
    labels="fine_labels",
    label_names="fine_label_names",
    num_classes=100,
    pixels=Pixels((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
)


def load(
    cifar: Cifar,
    root: Path,
    *,
    download: bool = False,
    image_size: int | None = None,
    progress: ProgressCallback | None = None,
) -> Data:
    """Read one of the two data sets; ids are the official file names, or the index without them."""
    folder = locate(cifar.archive, (*cifar.train, cifar.test, cifar.meta), root, download, progress)
    classes = _class_names(folder / cifar.meta, cifar)
    train = _samples([folder / name for name in cifar.train], cifar, classes)
    test = _samples([folder / cifar.test], cifar, classes)
    return assemble(
        cifar.name,
        train,
        test,
        classes,
        pixels=cifar.pixels,
        augment="crop-flip",
        image_size=image_size,
    )


def _class_names(path: Path, cifar: Cifar) -> list[str]:
    names = read_pickle(path).get(cifar.label_names)
    if not isinstance(names, list) or len(names) != cifar.num_classes:
        raise BadInput(f"{path} does not name {cifar.num_classes} classes. {DOWNLOAD}")
    return [_text(name) for name in names]


def _samples(paths: list[Path], cifar: Cifar, classes: Sequence[str]) -> Samples:
    images, labels, names = zip(*(_batch(path, cifar) for path in paths), strict=True)
    all_labels, all_names = list(chain(*labels)), list(chain(*names))
    ids = np.arange(len(all_labels)).astype(np.str_)
    if len(all_names) == len(all_labels):
        ids = _unique(all_names, [classes[label] for label in all_labels])
    return Samples(torch.from_numpy(np.concatenate(images)), torch.tensor(all_labels), ids)


def _batch(path: Path, cifar: Cifar) -> tuple[npt.NDArray[np.uint8], list[int], list[str]]:
    """Return the images, labels and names of one file: as many names as labels, or none."""
    content = read_pickle(path)
    data: Any = content.get("data")
    labels: Any = content.get(cifar.labels)
    names = [_text(name) for name in content.get("filenames", ())]
    is_cifar = (
        isinstance(data, np.ndarray)
        and isinstance(labels, list)
        and (data.dtype, data.shape) == (np.uint8, (len(labels), 3072))
        and len(names) in (0, len(labels))
        and all(isinstance(label, int) and 0 <= label < cifar.num_classes for label in labels)
    )
    if not is_cifar:
        raise BadInput(
            f"{path} is not a CIFAR file: it must have a row of 3072 bytes, a label in 0 to "
            f"{cifar.num_classes - 1} and at most one name for each image. {DOWNLOAD}"
        )
    return data.reshape(-1, 3, 32, 32), labels, names


def _unique(names: list[str], classes: list[str]) -> Ids:
    """Return unique ids. A few official names occur twice: they get their class, then a number."""
    counts = Counter(names)
    with_classes = [
        name if counts[name] == 1 else f"{label}/{name}"
        for name, label in zip(names, classes, strict=True)
    ]
    seen: Counter[str] = Counter()
    ids = []
    for name in with_classes:
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return np.array(ids)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that allows only what arrays need: a pickle can call any function."""

    allowed = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.numeric", "_frombuffer"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(
                f"it refers to {module}.{name}, which no CIFAR file needs and which was not run"
            )
        return super().find_class(module, name)


def read_pickle(path: Path) -> dict[str, Any]:
    """Read a dict of arrays, lists and strings; nothing else is created from the file."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise BadInput(
            f"Cannot read {path}: {str(error) or type(error).__name__}. {DOWNLOAD}"
        ) from error
    if not isinstance(content, dict):
        raise BadInput(
            f"{path} is not a CIFAR file: it contains a {type(content).__name__}. {DOWNLOAD}"
        )
    return {_text(key): value for key, value in content.items()}
