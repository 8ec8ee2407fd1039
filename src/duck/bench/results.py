"""Results of a bench: their record, and the files of a folder that hold them."""

import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from duck.audits.verdict import RocCurve
from duck.bench.columns import ACCURACIES, COLUMNS
from duck.bench.grids import Facts, Settings, result_id
from duck.errors import BadInput, DuckError
from duck.experiment import Experiment, Training, from_dict, to_dict
from duck.files import read_bytes
from duck.json_text import to_json
from duck.metrics import KeptAccuracy
from duck.records import (
    MAX_NUMBER,
    AnyNumber,
    Count,
    Fields,
    InvalidRecord,
    Label,
    Rule,
    structure,
    to_plain,
)

MeasurementName = Annotated[
    str,
    Rule(
        "the name of an attack or study", lambda value: isinstance(value, str) and value in COLUMNS
    ),
]
ScoreTable = dict[str, AnyNumber | None]


@dataclass(frozen=True)
class StoredMeasurement:
    """The checked settings of an attack or study."""

    name: MeasurementName
    pool: str | None = None


StoredSettings = Annotated[Settings, Fields(StoredMeasurement)]


@dataclass(frozen=True)
class ShadowFacts:
    """The checked facts of the shadow models that LiRA compared with."""

    models: int
    epochs: int
    train: float
    test: float
    recipe: dict[str, Any] | None = None


@dataclass(frozen=True)
class SvmDetails:
    """The splits of an SVM attack: their F1 and settings, and the samples on each side."""

    f1: list[float]
    settings: list[Any]
    forgotten: Count
    unseen: Count


@dataclass(frozen=True)
class BenchCurve(RocCurve):
    """The ROC curve of an attack, with its AUC and other rates."""

    others: Count | None = None
    """The number of non-members."""


@dataclass(frozen=True, kw_only=True)
class Values:
    """What a run measured. A field that does not apply to the run is None and is not stored."""

    scores: ScoreTable = field(default_factory=dict)
    """Empty if the run failed."""
    original: ScoreTable | None = None
    """The scores of the original on the same splits."""
    svm: SvmDetails | None = None
    roc: Annotated[dict[str, Any], Fields(BenchCurve)] | None = None
    shadows: Annotated[dict[str, Any], Fields(ShadowFacts)] | None = None
    density: dict[str, dict[str, float | None]] | None = None
    space: dict[str, float] | None = None
    forgotten: list[int] | None = None
    """The forgotten classes."""
    unseen: Count | None = None
    bias: dict[str, Any] | None = None
    """The fields of the request that planted the bias."""
    shap_values: list[float] | None = None
    seconds: float = math.nan
    """Time of the method, attack or study. NaN if the run failed."""
    prepare_seconds: float = 0.0
    compiled: bool | None = None
    forget_samples: Count | None = None
    processed: Count | None = None
    status: str | None = None
    kept_accuracy: KeptAccuracy | None = None
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    """Why the run failed."""


@dataclass(frozen=True, kw_only=True)
class Result(Values):
    """The stored outcome of a cell, or of the training of an original: one line of a file."""

    id: str
    dataset: str
    scenario: Literal["class", "samples", "bias"] | None
    """None for an original, like the next three."""
    case: Label | None
    method: str | None
    preset: str | None
    variant: str = ""
    recipe: str = "standard"
    """Name of the recipe of the original."""
    attack: StoredSettings | None = None
    study: StoredSettings | None = None
    train_samples: int
    wall_seconds: float
    device: str
    torch: str | None = None
    date: str | None = None
    device_gib: float | None = None
    """Peak memory of the device; None on a CPU."""
    host_gib: float | None = None
    alone: bool = True
    """Whether nothing else used the device, so that times can be compared."""
    experiment: Annotated[
        Experiment, Rule("an experiment", lambda value: isinstance(value, Experiment))
    ]

    @property
    def measurement(self) -> Settings | None:
        """The settings of the attack or study; None for plain scores."""
        return self.attack or self.study

    @property
    def measurement_name(self) -> str | None:
        """The name of the attack or study; None for plain scores."""
        return None if self.measurement is None else str(self.measurement["name"])

    @property
    def failed(self) -> bool:
        return self.error is not None

    @property
    def training(self) -> Training:
        return self.experiment.training

    def to_dict(self) -> dict[str, Any]:
        """Return the line of the file as plain data."""
        plain = {**to_plain(self), "experiment": to_dict(self.experiment)}
        return {name: plain[name] for name in LINE if not self._is_omitted(name)}

    def _is_omitted(self, name: str) -> bool:
        if name in ALWAYS_STORED:
            return False
        if name in ("seconds", "prepare_seconds", "notes"):
            # The training of an original has a time alone.
            return math.isnan(self.seconds) or (name != "seconds" and self.method is None)
        return getattr(self, name) in OMITTED.get(name, (None,))


_VALUES = [item.name for item in fields(Values)]
_NAMES = [item.name for item in fields(Result) if item.name not in _VALUES]
LINE = (*(name for name in _NAMES if name != "experiment"), *_VALUES, "experiment")
"""The fields of a result in the order of the file."""
ALWAYS_STORED = {"scenario", "case", "method", "preset", "torch", "date", "device_gib", "host_gib"}
OMITTED: dict[str, tuple[Any, ...]] = {
    "variant": ("",),
    "recipe": ("standard",),
    "alone": (True,),
    "scores": ({},),
}
"""Values that are not stored; of other fields, None is not."""
NEEDED_SCORES: dict[str | None, tuple[str, ...]] = {
    **{name: tuple(columns) for name, columns in COLUMNS.items()},
    None: tuple(dict.fromkeys([*ACCURACIES["class"].values(), *ACCURACIES["samples"].values()])),
    "svm": (*COLUMNS["svm"], "chance"),
}
"""By the attack or study of a result, the scores that it must have."""


def read_result(plain: Any) -> Result:
    """Convert a line of a file to a result, or raise an error that names the first wrong field."""
    if not isinstance(plain.get("experiment"), dict):
        raise InvalidRecord("experiment is no object")
    try:
        experiment = from_dict(plain["experiment"])
    except DuckError as error:
        reason = str(error).removesuffix(".")
        raise InvalidRecord(f"its experiment cannot be used: {reason}") from error
    result = structure({**plain, "experiment": experiment}, Result)
    for problem in _problems(result, plain):
        raise InvalidRecord(problem)
    return result


def _problems(result: Result, plain: dict[str, Any]) -> Iterator[str]:
    """Yield fields that are missing although others of the result need them."""
    if (result.method is None) != (result.experiment.method is None):
        yield "its experiment is of another method"
    for name in ("scenario", "case", "preset"):
        if (plain[name] is None) != (result.method is None):
            yield f"{name} does not fit the method"
    if result.method is not None and result.experiment.request is None:
        yield "experiment.request is missing"
    if result.attack and result.attack["name"] == "lira" and "pool" not in result.attack:
        yield "attack.pool is missing"
    if result.failed:
        return
    needed = ["scores", "seconds"]
    if result.method is not None:
        needed += ["prepare_seconds", "notes"]
    if result.measurement_name == "lira":
        needed.append("shadows")
    if result.measurement_name == "density":
        needed += ["density", "forgotten"]
    for name in needed:
        if plain.get(name) is None:
            yield f"{name} is missing"
    for name in NEEDED_SCORES[result.measurement_name] if result.method is not None else ():
        if name not in result.scores:
            yield f"scores.{name} is missing"


def mark_invalid_scores(result: Result) -> Result:
    """Return the result as a failed run if a score is NaN or infinite."""
    wrong = [
        name
        for name, value in result.scores.items()
        if value is not None and not abs(value) < MAX_NUMBER
    ]
    if not wrong:
        return result
    return replace(result, scores={}, error=f"Not a number: {', '.join(wrong)}.")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial of the search for settings that all methods share."""

    dataset: str
    scenario: str
    method: str
    number: Any
    settings: Any
    score: Any
    seconds: float
    start: Any
    """The preset that it began with."""
    jobs: int = 1
    alone: bool = True


class Results:
    """The results of a folder by id. Of two with the same id the first that did not fail counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[str, Result] = {}
        self.broken: Counter[tuple[str, str]] = Counter()
        """Lines that are skipped: the names of their files, and why."""
        self.trials: Counter[tuple[str, str, str]] = Counter()
        """Settings tried on holdout data, by data set, scenario and method."""
        self.trial_seconds: dict[tuple[str, str, str], list[float]] = {}
        """Seconds of the trials that had the device for themselves."""
        self._known_trials: set[str] = set()
        for path in sorted(folder.glob("*.jsonl")):
            self._read(path)

    @property
    def done(self) -> dict[str, Result]:
        """The results of runs that did not fail; failed ones are tried again."""
        return {name: result for name, result in self.lines.items() if not result.failed}

    def facts(self, dataset: str) -> list[Facts]:
        """Return the facts of a data set; several where machines read it from different sources."""
        found: dict[Facts, None] = {}
        for line in self.lines.values():
            if line.dataset == dataset:
                data, recipe = line.training.data, line.training.recipe
                facts = Facts(data, line.training.fingerprint, line.train_samples, recipe.augment)
                found[facts] = None
        return list(found)

    def check_writable(self) -> None:
        """Raise an error if results cannot be written, before the first run starts."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise BadInput(
                f"Results cannot be written to {self.folder}: {error.strerror}. "
                "Choose another --out."
            ) from error

    def append(self, name: str, result: Result) -> None:
        """Append a result to the file of a grid and wait until it is on the disk."""
        path = self.folder / f"{name.replace('/', '-')}.jsonl"
        # A kill may have left half a line.
        separator = b"" if _ends_with_newline(path) else b"\n"
        with path.open("ab") as file:
            file.write(separator + to_json(result.to_dict()).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._add(result)

    def _read(self, path: Path) -> None:
        try:
            text = read_bytes(path).decode("utf-8", errors="replace")
        except OSError as error:
            raise BadInput(f"The results {path} cannot be read: {error.strerror}.") from error
        for line in filter(str.strip, text.split("\n")):
            try:
                self._read_line(json.loads(line))
            except InvalidRecord as error:
                self.broken[path.name, str(error)] += 1
            except (ValueError, RecursionError):  # no JSON, or nested too deeply
                self.broken[path.name, "half-written, as a kill leaves it"] += 1

    def _read_line(self, plain: Any) -> None:
        """Add a result or count a trial; files with other lines may be in the folder, too."""
        if not isinstance(plain, dict):
            return
        if "start" in plain:
            self._count_trial(plain)
        if len({"id", "experiment", "dataset"} & plain.keys()) >= 2:
            self._add(mark_invalid_scores(read_result(plain)))

    def _count_trial(self, plain: dict[str, Any]) -> None:
        """Count a trial once, also where a file was copied."""
        try:
            trial = structure(plain, Trial)
        except InvalidRecord:
            return
        key = trial.dataset, trial.scenario, trial.method
        name = to_json([*key, trial.number, trial.settings], sort_keys=True)
        if name in self._known_trials:
            return
        self._known_trials.add(name)
        self.trials[key] += 1
        if trial.jobs == 1 and trial.alone:  # else others shared the device
            self.trial_seconds.setdefault(key, []).append(float(trial.seconds))

    def _add(self, result: Result) -> None:
        # Settings that are newer than the result have their defaults, also in the id.
        name = result_id(result.experiment, result.measurement)
        if name not in self.lines or self.lines[name].failed:
            self.lines[name] = result


def _ends_with_newline(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
