"""Bias removals on disk, read once: folders of `duck debias --out`."""

import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from duck.analysis.bias import FILES, MAPS
from duck.errors import BadInput
from duck.files import check_regular, finish_replacing
from duck.report.numbers import Measured
from duck.report.records import BIAS, Unread, anchor, distinct, sorted_out
from duck.schema import (
    ENVIRONMENT,
    Wrong,
    count,
    each,
    ends,
    fields,
    filled,
    label,
    many,
    maybe,
    moment,
    number,
    read_json,
    share,
    text,
)

THREE = {"biased": "biased", "duck": "DUCK", "corrected": "corrected"}
"""The models, and the word for each."""
SHARES = ("wrong", "right", "right_without_patch")
THREE_NUMBERS = fields(dict.fromkeys(THREE, number))
TEST = fields({"p": number, "n": count, "least_p": number, "difference": number})
CALLED = fields(
    {**dict.fromkeys(SHARES, fields({"share": share, "interval": ends})), "test": maybe(share)}
)
SHAPE = fields(
    {
        "data": text, "seed": count, "true": label, "wrong": label, "count": count, "patch": filled(count), "colour": filled(many(count)),
        "n": count, "called": fields(dict.fromkeys(THREE, CALLED)), "forget": fields({"biased": share, "duck": share}),
        "shap": maybe(fields({"n": count, "mean": THREE_NUMBERS, "std": THREE_NUMBERS, "tests": each(TEST)})),
        "seconds": fields({"duck": number, "corrected": maybe(number)}), "preset": text, "model": text, "recipe": fields({}),
    },
    {
        "shape": maybe(filled(many(count))), "notes": maybe(many(text)), "train_seconds": maybe(number), "method": maybe(fields({})),
        "environment": maybe(ENVIRONMENT), "created": maybe(moment), "command": maybe(text), "fingerprint": maybe(text),
    },
)  # fmt: skip

Maps = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Removal:
    """A bias that was planted and unlearned."""

    name: str
    found: dict[str, Any]
    maps: Maps
    """SHAP maps (N, H, W) of each model on the same images; `images`, as the models took them, where these were kept. May be empty."""
    anchor: str
    """Its place in the page."""
    unread: Sequence[Unread] = ()
    """Its maps, where they cannot be used."""

    @property
    def true(self) -> str:
        return str(self.found["true"])

    @property
    def wrong(self) -> str:
        return str(self.found["wrong"])

    @property
    def short(self) -> str:
        """Its name where the data are said already."""
        return self.name.removeprefix(f"{self.found['data']}-")

    def share(self, model: str, part: str) -> Measured:
        """Of unseen images that the model calls so, with the interval that was stored."""
        said = self.found["called"][model][part]
        return Measured(said["share"], *said["interval"])

    def square(self, model: str) -> Measured | None:
        """Mean SHAP value of the square, and one standard deviation over images to each side."""
        shap = self.found["shap"]
        if shap is None:
            return None
        mean, spread = shap["mean"][model], shap["std"][model]
        return Measured(mean, mean - spread, mean + spread)


def read_removals(paths: Iterable[Path]) -> list[Removal]:
    """Each once; a folder that holds such folders stands for all in it. Folders of runs are passed over. A broken one is an error."""
    removals, unread = survey_removals(paths)
    if unread:
        raise BadInput(unread[0].message)
    return removals


def survey_removals(paths: Iterable[Path]) -> tuple[list[Removal], list[Unread]]:
    """The bias removals that can be read, as `read_removals` has them, and those that cannot."""
    made: list[tuple[str, dict[str, Any], Maps, list[Unread]]] = []
    unread: list[Unread] = []
    found = list(dict.fromkeys(each for path in paths for each in _in(path, unread)))
    for path, name in zip(found, distinct(found), strict=True):
        try:
            broken: list[Unread] = []
            made.append((name, _folder(path), _usable(path, broken), broken))
        except BadInput as error:
            unread.append(Unread(path, "", str(error)))
    numbered = enumerate(made, 1)
    return [
        Removal(name, bias, maps, anchor("bias", at, name), broken)
        for at, (name, bias, maps, broken) in numbered
    ], unread


def _in(path: Path, unread: list[Unread]) -> list[Path]:
    try:
        return sorted_out(path)[1]
    except BadInput as error:
        unread.append(Unread(path, "", str(error)))
        return []


def _folder(path: Path) -> dict[str, Any]:
    finish_replacing(path, FILES)
    try:
        return _checked(read_json(path / BIAS))
    except Wrong as wrong:
        raise BadInput(
            f"{path / BIAS} is no bias removal: {wrong}. Make it anew with `duck debias`."
        ) from wrong


def _checked(found: Any) -> dict[str, Any]:
    SHAPE(found, "")
    return dict(found)


def _usable(folder: Path, unread: list[Unread]) -> Maps:
    """The maps beside a bias removal, if they are there; those that cannot be used join the unread."""
    path = folder / MAPS
    try:
        return _maps(path) if path.exists() else {}
    except Wrong as wrong:
        unread.append(
            Unread(
                folder,
                MAPS,
                f"{path} cannot be used: {wrong}. Delete it, or make it anew with `duck debias`.",
            )
        )
        return {}


def _maps(path: Path) -> Maps:
    try:
        check_regular(path)
    except OSError as error:
        raise Wrong(f"it cannot be opened: {error.strerror}") from error
    if not zipfile.is_zipfile(path):
        raise Wrong("it is no npz")
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            maps = {name: np.asarray(file[name], np.float32) for name in file}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise Wrong(f"it is no whole npz: {error}") from error
    shapes = {(*array.shape[:1], *array.shape[-2:]) for array in maps.values()}
    flat = all(
        array.ndim == (4 if name == "images" else 3) and array.size for name, array in maps.items()
    )
    if len(shapes) != 1 or not flat or not set(THREE) <= maps.keys():
        raise Wrong("it does not hold maps of the same images for each model")
    if not all(np.isfinite(array).all() for array in maps.values()):
        raise Wrong("its maps hold something that is not a number")
    return maps
