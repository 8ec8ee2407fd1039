"""Results of a bench: their record, and the files of a folder that hold them."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cattrs.gen import make_dict_unstructure_fn

from duck.audits.verdict import RocCurve
from duck.bench.columns import ACCURACIES, COLUMNS, find_attack
from duck.bench.grids import Attack, Facts, Study, WithMeasurement, result_id
from duck.errors import BadInput
from duck.experiment import Experiment, Training
from duck.files import append_line, read_bytes, temporary_folder
from duck.json_text import to_json
from duck.metrics import KeptAccuracy
from duck.records import CONVERTER, Count, InvalidRecord, Label, Measured, structure, to_plain

Scores = dict[str, float | None]


@dataclass(frozen=True)
class ShadowFacts:
    """The shadow models that LiRA compared with."""

    models: int
    pool: str
    """Digest of the pool."""
    epochs: int
    train: float
    """Mean accuracies."""
    test: float
    recipe: dict[str, Any]


@dataclass(frozen=True)
class SvmDetails:
    """The splits of an SVM attack: their F1 and settings, and the samples on each side."""

    f1: list[float]
    settings: list[list[float]]
    """C and gamma."""
    forgotten: Count
    unseen: Count


@dataclass(frozen=True)
class BenchCurve(RocCurve):
    """The ROC curve of an attack, with its AUC and other rates."""

    auc: dict[str, float]
    f1: float
    tpr_at: dict[str, dict[str, float] | None]
    members: Count
    others: Count
    """The number of non-members."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Which cell was run, and how. The training of an original has no cell."""

    id: str
    dataset: str
    scenario: Literal["class", "samples", "bias"] | None
    case: Label | None
    method: str | None
    preset: str | None
    variant: str = ""
    recipe: str = "standard"
    """Name of the recipe of the original."""
    attack: Attack | None = None
    study: Study | None = None
    train_samples: int
    wall_seconds: float
    device: str
    torch: str
    date: str
    device_gib: float | None
    """Peak memory of the device; None on a CPU."""
    host_gib: float | None
    alone: bool = True
    """Whether nothing else used the device, so that times can be compared."""


@dataclass(frozen=True, kw_only=True)
class Values:
    """What a run measured. A field that does not apply to the run has its default."""

    scores: Scores = field(default_factory=dict)
    """Empty if the run failed."""
    original: Scores | None = None
    """The scores of the original on the same splits."""
    svm: SvmDetails | None = None
    roc: BenchCurve | None = None
    shadows: ShadowFacts | None = None
    density: dict[str, dict[str, float | None]] | None = None
    space: dict[str, float] | None = None
    forgotten: list[int] | None = None
    """The forgotten classes."""
    unseen: Count | None = None
    shap_values: list[float] | None = None
    seconds: Measured = math.nan
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
class Result(Values, RunFacts, WithMeasurement):
    """The stored result of a run: one line of a file."""

    experiment: Experiment

    @property
    def failed(self) -> bool:
        return self.error is not None

    @property
    def training(self) -> Training:
        return self.experiment.training

    def to_dict(self) -> dict[str, Any]:
        """Return the line of the file as plain data, without fields that have their defaults."""
        return to_plain(self)


CONVERTER.register_unstructure_hook(Attack, lambda attack: attack.settings)
CONVERTER.register_unstructure_hook(Study, lambda study: study.settings)
CONVERTER.register_unstructure_hook(
    Result, make_dict_unstructure_fn(Result, CONVERTER, _cattrs_omit_if_default=True)
)


def read_result(plain: Any) -> Result:
    """Convert a line of a file to a result, or raise an error that names the first wrong field."""
    result = structure(plain, Result)
    for problem in _problems(result):
        raise InvalidRecord(problem)
    return result


def _problems(result: Result) -> Iterator[str]:
    """Yield fields that are missing although others of the result need them."""
    is_original = result.method is None
    if is_original != (result.experiment.method is None):
        yield "its experiment is of another method"
    for name in ("scenario", "case", "preset"):
        if (getattr(result, name) is None) != is_original:
            yield f"{name} does not fit the method"
    if not is_original and result.experiment.request is None:
        yield "experiment.request is missing"
    if result.failed:
        return
    if math.isnan(result.seconds):
        yield "seconds is missing"
    for name in () if is_original else needed_scores(result.measurement_name):
        if name not in result.scores:
            yield f"scores.{name} is missing"
    if result.attack and result.attack.needs_pool and not (result.attack.pool and result.shadows):
        yield "shadows is missing"
    if result.measurement_name == "density" and (result.density is None or not result.forgotten):
        yield "density is missing"


def needed_scores(measurement: str | None) -> list[str]:
    """Return the scores that a result of an attack or study must have, or a plain result."""
    if measurement is None:
        return [name for columns in ACCURACIES.values() for name in columns.values()]
    attack = find_attack(measurement)
    return [*COLUMNS[measurement], *(attack.further_scores if attack else ())]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial of the search for settings that all methods share."""

    dataset: str
    scenario: str
    method: str
    number: int
    settings: dict[str, Any]
    seconds: float
    jobs: int = 1
    alone: bool = True


class Results:
    """The results of a folder by id. Of two with the same id the first that did not fail counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: dict[str, Result] = {}
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
        return {name: result for name, result in self.results.items() if not result.failed}

    def facts(self, dataset: str) -> list[Facts]:
        """Return the facts of a data set; several where machines read it from different sources."""
        found: dict[Facts, None] = {}
        for result in self.results.values():
            if result.dataset == dataset:
                training, samples = result.training, result.train_samples
                augment = training.recipe.augment
                found[Facts(training.data, training.fingerprint, samples, augment)] = None
        return list(found)

    def check_writable(self) -> None:
        """Raise an error if results cannot be written, before the first run starts."""
        try:
            with temporary_folder(self.folder, "results"):
                pass
        except OSError as error:
            raise BadInput(
                f"Results cannot be written to {self.folder}: {error.strerror}. "
                "Choose another --out."
            ) from error

    def append(self, name: str, result: Result) -> None:
        """Append a result to the file of a grid and wait until it is on the disk."""
        path = self.folder / f"{name.replace('/', '-')}.jsonl"
        append_line(path, to_json(result.to_dict()))
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
            self._add(read_result(plain))

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
        if name not in self.results or self.results[name].failed:
            self.results[name] = result
