"""Bias removals on disk, read once: folders of `duck debias --out`, and lines of benchmarks/bias_removal.py."""

import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from duck.analysis.bias import MAPS
from duck.errors import BadInput
from duck.report.numbers import Measured
from duck.report.stored import BIAS, anchor, beside, removals_in

THREE = {"biased": "biased", "duck": "DUCK", "corrected": "corrected"}
"""The models, and the word for each."""
SHARES = ("wrong", "right", "right_without_patch")
NEEDED = (
    *("data", "seed", "true", "wrong", "count", "patch", "colour", "n", "called", "forget", "shap"),
    *("seconds", "preset", "model", "recipe"),
)

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
    """Each once; a folder that holds such folders stands for all in it. Folders of runs are passed over."""
    made: list[tuple[str, dict[str, Any], Maps]] = []
    for path in dict.fromkeys(found for folder in paths for found in removals_in(folder)):
        if path.is_dir():
            made.append((path.name, _checked(beside(path / BIAS) or {}, path / BIAS), _maps(path / MAPS)))
        else:
            made += [(str(line.get("name", path.stem)), line, {}) for line in _lines(path)]
    return [Removal(name, found, maps, anchor("bias", number, name)) for number, (name, found, maps) in enumerate(made, 1)]


def with_maps(removal: Removal, path: Path) -> Removal:
    """The same with the SHAP maps of a file."""
    return Removal(removal.name, removal.found, _maps(path), removal.anchor)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if not lines:
        raise BadInput(f"{path} holds no lines of benchmarks/bias_removal.py.")
    return [_checked(line, path) for line in lines]


def _checked(found: Any, path: Path) -> dict[str, Any]:
    missing = [name for name in NEEDED if not isinstance(found, dict) or name not in found]
    missing = missing or [f"called {name}" for name in THREE if name not in found["called"]]
    if missing:
        hint = "lines of `duck bench` are given as --results FOLDER" if path.suffix == ".jsonl" else "make it anew with `duck debias`"
        raise BadInput(f"{path} is no bias removal: {', '.join(missing)} is missing; {hint}.")
    return dict(found)


def _maps(path: Path) -> Maps:
    if not path.exists():
        return {}
    try:
        with np.load(path) as file:
            maps = {name: np.asarray(file[name], np.float32) for name in file}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} cannot be read: {error}. Delete it, or make it anew with `duck debias`.") from error
    shapes = {(*array.shape[:1], *array.shape[-2:]) for array in maps.values()}
    flat = all(array.ndim == (4 if name == "images" else 3) for name, array in maps.items())
    if len(shapes) != 1 or not flat or not set(THREE) <= maps.keys():
        raise BadInput(f"{path} does not hold what it should: maps of the same images for each model. Make it anew with `duck debias`.")
    return maps
