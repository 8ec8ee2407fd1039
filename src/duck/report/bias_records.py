"""Bias removals, read from the folders that `duck debias --out` writes."""

import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from duck.analysis.bias import FILES, MAPS, MeasuredShare, RemovalRecord
from duck.errors import BadInput
from duck.files import check_regular, finish_replacing
from duck.records import InvalidRecord, read_record
from duck.report.records import BIAS_FILE, ReadProblem, distinct_names, find_folders, make_anchor
from duck.types import Estimate

MODEL_LABELS = {"biased": "biased", "duck": "DUCK", "corrected": "corrected"}
"""The models of a bias removal, and how the page names them."""
SHARES = ("wrong", "right", "right_without_patch")
Maps = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class StoredRemoval:
    """A bias that was planted and unlearned."""

    name: str
    record: RemovalRecord
    maps: Maps
    """SHAP maps (N, H, W) of each model on the same images, and the `images` as the models saw
    them if they were stored. Can be empty."""
    anchor: str
    """The id of its section on the page."""
    problems: Sequence[ReadProblem] = ()
    """Its maps, if they cannot be used."""

    @property
    def true_class(self) -> str:
        return str(self.record.true)

    @property
    def wrong_class(self) -> str:
        return str(self.record.wrong)

    @property
    def short_name(self) -> str:
        """The name without the data set."""
        return self.name.removeprefix(f"{self.record.data}-")

    def share(self, model: str, part: str) -> Estimate:
        """Return the share of unseen images with this prediction, with its stored interval."""
        stored: MeasuredShare = getattr(self.record.called[model], part)
        return Estimate(stored.share, *stored.interval)

    @property
    def square_shap_count(self) -> int:
        """The number of images whose SHAP values were computed."""
        return 0 if self.record.shap is None else self.record.shap.n

    def square_shap(self, model: str) -> Estimate | None:
        """Return the mean SHAP value of the square, with one standard deviation to each side."""
        shap = self.record.shap
        if shap is None:
            return None
        mean = shap.mean[model]
        spread = shap.std[model]
        return Estimate(mean, mean - spread, mean + spread)


def read_removals(paths: Iterable[Path]) -> list[StoredRemoval]:
    """Read bias removals, each once, and raise BadInput if one cannot be read.

    A folder of such folders stands for all of them. Run folders are skipped.
    """
    removals, problems = scan_removals(paths)
    if problems:
        raise BadInput(problems[0].message)
    return removals


def scan_removals(paths: Iterable[Path]) -> tuple[list[StoredRemoval], list[ReadProblem]]:
    """Read bias removals like `read_removals`, and return what cannot be read as problems."""
    removals: list[StoredRemoval] = []
    problems: list[ReadProblem] = []
    folders: dict[Path, None] = {}
    for path in paths:
        try:
            folders |= dict.fromkeys(find_folders(path)[1])
        except BadInput as error:
            problems.append(ReadProblem(path, "", str(error)))
    for folder, name in zip(folders, distinct_names(list(folders)), strict=True):
        try:
            removals.append(_read_removal(folder, name, len(removals) + 1))
        except BadInput as error:
            problems.append(ReadProblem(folder, "", str(error)))
    return removals, problems


def _read_removal(folder: Path, name: str, number: int) -> StoredRemoval:
    record = _read_record(folder)
    problems: list[ReadProblem] = []
    maps = _read_maps(folder, problems)
    return StoredRemoval(name, record, maps, make_anchor("bias", number, name), problems)


def _read_record(folder: Path) -> RemovalRecord:
    finish_replacing(folder, FILES)
    path = folder / BIAS_FILE
    try:
        record = read_record(path, RemovalRecord)
        _check_models(record)
    except InvalidRecord as error:
        message = f"{path} is no bias removal: {error}. Create it again with `duck debias`."
        raise BadInput(message) from error
    return record


def _check_models(record: RemovalRecord) -> None:
    """Raise an error if a measurement of a model is missing."""
    tables: list[tuple[str, Mapping[str, Any], Iterable[str]]] = [
        ("called", record.called, MODEL_LABELS),
        ("forget", record.forget, ("biased", "duck")),
        ("seconds", record.seconds, ("duck", "corrected")),
    ]
    if record.shap is not None:
        tables.append(("shap.mean", record.shap.mean, MODEL_LABELS))
        tables.append(("shap.std", record.shap.std, MODEL_LABELS))
    for name, table, models in tables:
        for model in models:
            if model not in table:
                raise InvalidRecord(f"{name}.{model} is missing")


def _read_maps(folder: Path, problems: list[ReadProblem]) -> Maps:
    """Return the SHAP maps of a bias removal, if stored; damaged maps add to the problems."""
    path = folder / MAPS
    if not path.exists():
        return {}
    try:
        maps = _load_maps(path)
        _check_maps(maps)
    except InvalidRecord as error:
        advice = "Delete it, or create it again with `duck debias`."
        problems.append(ReadProblem(folder, MAPS, f"{path} cannot be used: {error}. {advice}"))
        return {}
    return maps


def _load_maps(path: Path) -> Maps:
    try:
        check_regular(path)
    except OSError as error:
        raise InvalidRecord(f"it cannot be opened: {error.strerror}") from error
    if not zipfile.is_zipfile(path):
        raise InvalidRecord("it is not an npz file")
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            return {name: np.asarray(file[name], np.float32) for name in file}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidRecord(f"it is not a complete npz file: {error}") from error


def _check_maps(maps: Maps) -> None:
    sizes = {(*array.shape[:1], *array.shape[-2:]) for array in maps.values()}
    have_right_shape = all(
        array.ndim == (4 if name == "images" else 3) and array.size for name, array in maps.items()
    )
    if len(sizes) != 1 or not have_right_shape or not set(MODEL_LABELS) <= maps.keys():
        raise InvalidRecord("it does not hold maps of the same images for each model")
    if not all(np.isfinite(array).all() for array in maps.values()):
        raise InvalidRecord("its maps hold a value that is not a number")
