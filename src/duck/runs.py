"""Runs on disk: a folder with run.json and model.safetensors, written atomically."""

import itertools
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch import nn

from duck import files
from duck.comparison import COLUMNS as COLUMNS
from duck.earlier_requests import EarlierScores
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.methods.base import METHODS
from duck.metrics import Confusion, KeptAccuracy, Scores, kept_accuracy
from duck.models.weights import REQUEST_DIGEST, save_weights
from duck.records import (
    CONVERTER,
    ClassIndex,
    Count,
    Date,
    Environment,
    InvalidRecord,
    read_json,
    structure,
    to_plain,
)
from duck.runtime import device_name, device_of, is_first
from duck.sample_ids import FILE as FILE_OF_IDS
from duck.sample_ids import (
    NO_SALT,
    hide_ids,
    new_salt,
    read_salt,
    remove_ids,
    restore_ids,
    write_ids,
)
from duck.scenarios import describe
from duck.types import Drift, Scenario
from duck.unlearning import Epoch, Outcome, Status, notes, status_of

RECORD, WEIGHTS = "run.json", "model.safetensors"
AUDITS = ("audit-quick.json", "audit-oracle.json", "audit-full.json")
ASSURANCE = "assurance.json"
FINDINGS = (*AUDITS, "analysis.json")
"""What later commands found out about the model."""
RUN_FILES = (RECORD, WEIGHTS, FILE_OF_IDS, *FINDINGS, ASSURANCE)
"""The files that duck writes into a run folder."""


RunScores = dict[str, float | None]
"""Name of a score -> its value, or None where it does not exist."""


@dataclass(frozen=True)
class ByClass:
    """What reports show of each class; empty for an original."""

    kind: Literal["class", "samples"] | None = None
    names: list[str] = field(default_factory=list)
    """The names of the classes."""
    forget: dict[ClassIndex, Count] = field(default_factory=dict)
    """Forget samples of each class that has some."""
    original: Confusion | None = None
    """Confusion matrix of the original on unseen samples."""
    unlearned: Confusion | None = None
    """Confusion matrix of the unlearned model on unseen samples."""

    def __post_init__(self) -> None:
        if any(int(index) >= len(self.names) for index in self.forget):
            raise InvalidRecord("has a class to forget without a name")
        both = self.original and self.unlearned
        if both and _class_sizes(self.original) != _class_sizes(self.unlearned):
            raise InvalidRecord("counts other samples before than after")


def _class_sizes(confusion: Confusion | None) -> dict[str, int]:
    return {index: sum(row.values()) for index, row in (confusion or {}).items()}


@dataclass(frozen=True)
class Run:
    """The content of run.json."""

    experiment: Experiment
    scores: RunScores
    seconds: float
    samples: dict[str, Count]
    """Samples in each split; for an unlearning also the number of `processed` forget samples."""
    prepare_seconds: float = 0.0
    """Time of the preparation."""
    original: RunScores | None = None
    """Scores of the original on the same splits."""
    history: tuple[Epoch, ...] = ()
    notes: list[str] = field(default_factory=list)
    by_class: ByClass = field(default_factory=ByClass)
    earlier: tuple[EarlierScores, ...] = ()
    """Scores on the forget sets of earlier requests."""
    drift: Drift | None = None
    """What the requests so far cost. None: an original."""
    original_run: str | None = None
    source: dict[str, str | None] = field(default_factory=dict)
    """Paths of data and weights; not part of the id."""
    environment: Environment | None = None
    created: Date = ""
    kept_accuracy: KeptAccuracy | None = None
    """The accuracy lost, and whether the model is `damaged`."""
    id: str = ""
    """`Experiment.run_id` with the salt of this run. Set by `save`."""
    forgot: bool | None = None
    """False: nothing was forgotten. None: the scores do not show it, or it is an original."""

    @property
    def status(self) -> Status:
        """The outcome, from which `duck forget` takes its exit code."""
        return status_of(self.forgot, self.kept_accuracy is not None and self.kept_accuracy.damaged)

    @property
    def method_name(self) -> str:
        """The name of the method of an unlearning."""
        return METHODS.name_of(self.experiment.method)

    @property
    def request_text(self) -> str:
        """The request of an unlearning in words."""
        assert self.experiment.request is not None
        return describe(self.experiment.request, self.by_class.names)


SPLITS = ("forget", "retain", "holdout", "test", "forget_test", "retain_test")


@dataclass(frozen=True)
class Counts:
    """The counts that the record of an unlearning must have."""

    forget: Count
    retain: Count
    processed: Count


@dataclass(frozen=True)
class Kind:
    """The part of `by_class` that the record of an unlearning must have."""

    kind: Literal["class", "samples"]


@dataclass(frozen=True)
class UnlearningFields:
    """The fields of the record of an unlearning, with the values that they must have."""

    scores: Scores
    samples: Counts
    by_class: Kind
    original: Scores


# An original has none of these fields.
CONVERTER.register_unstructure_hook(
    ByClass, lambda by_class: {} if by_class == ByClass() else asdict(by_class)
)


class Places(TypedDict, total=False):
    """Where the original and the data are, as paths from the folder of a run."""

    original_run: str
    source: dict[str, str | None]


def record(
    experiment: Experiment, scenario: Scenario, outcome: Outcome, **places: Unpack[Places]
) -> Run:
    """Return the record of an unlearning."""
    samples = {name: len(getattr(scenario, name)) for name in SPLITS}
    counts = scenario.data.train.labels[scenario.forget].bincount().tolist()
    forget = {str(index): count for index, count in enumerate(counts) if count}
    return Run(
        experiment=experiment,
        scores=asdict(outcome.scores),
        seconds=outcome.seconds,
        samples={**samples, "processed": outcome.processed},
        prepare_seconds=outcome.prepare_seconds,
        original=asdict(outcome.original),
        history=outcome.history,
        notes=notes(scenario, outcome),
        by_class=ByClass(scenario.kind, list(scenario.data.classes), forget, *outcome.confusions),
        earlier=outcome.earlier,
        drift=outcome.drift,
        kept_accuracy=outcome.kept_accuracy,
        forgot=outcome.forgot,
        **places,
    )


def judge(run: Run, limit: float | None = None) -> Run:
    """Return the run judged by a limit on the loss of accuracy; None: the default limit.

    The limit that was given to `duck forget` is not stored with the run.
    """
    known = run.kept_accuracy
    if known is None:
        return run
    judged = kept_accuracy(known.split, known.original, known.unlearned, known.n, limit)
    others = [note for note in run.notes if note != str(known)]
    if judged.damaged:
        # After the notes on earlier requests, as in a new run.
        position = sum(scores.is_remembered for scores in run.earlier)
        others.insert(position, str(judged))
    return replace(run, kept_accuracy=judged, notes=others)


def row(folder: Path, run: Run) -> dict[str, Any]:
    """Return an unlearning as plain data for JSON."""
    return to_plain(
        {
            "run": str(folder),
            "method": run.method_name,
            "scenario": run.request_text,
            "protocol": run.experiment.protocol,
            "scores": {name: run.scores[name] for name in COLUMNS},
            "seconds": run.seconds,
            "prepare_seconds": run.prepare_seconds,
            "forget_samples": run.samples["forget"],
            "processed": run.samples["processed"],
            "earlier": run.earlier,
            "drift": run.drift,
            "status": run.status,
            "kept_accuracy": run.kept_accuracy,
            "notes": run.notes,
        }
    )


def save(
    run: Run,
    model: nn.Module,
    folder: Path,
    overwrite: bool = False,
    keep: Sequence[str] = (),
) -> Path:
    """Write a run atomically and return its folder.

    If the folder already contains the same run, nothing is written unless `overwrite` is set.

    keep   files of the old run that stay with the new one
    """
    if check_free(folder, run.experiment, overwrite):
        return folder
    salt = new_salt() if run.experiment.names_samples else NO_SALT
    digest = run.experiment.request_digest(salt)
    complete = replace(
        run,
        id=run.experiment.run_id(salt),
        environment=run.environment or environment(device_of(model)),
        created=run.created or datetime.now(UTC).isoformat(timespec="seconds"),
    )
    plain = {**to_plain(complete), "request_digest": digest, "status": run.status}
    record, ids = hide_ids(plain, salt)
    try:
        with files.replacing(folder, RUN_FILES) as new:
            save_weights(model, new / WEIGHTS, {REQUEST_DIGEST: digest} if digest else None)
            write_ids(ids, salt, new)
            files.write_json(new / RECORD, record)
            for name in keep:
                if (folder / name).is_file():
                    shutil.copy2(folder / name, new / name)
    except files.WRITE_ERRORS as error:
        raise BadInput(
            f"{folder} cannot be written: {files.reason(error)}. Nothing new was kept; choose "
            "another --out, or free some space."
        ) from error
    return folder


def load(folder: Path) -> Run:
    """Read the record of a run, judged by the default limit on the loss of accuracy."""
    return judge(_structure(restore_ids(_read_json(folder), folder), folder))


def load_public(folder: Path) -> Run:
    """Read the record of a run without its sample ids: a request for samples has none."""
    return _structure(remove_ids(_read_json(folder)), folder)


def read_record(folder: Path) -> dict[str, Any]:
    """Return the content of run.json, with digests in place of sample ids, and check it."""
    record: dict[str, Any] = _read_json(folder)
    _structure(remove_ids(record), folder)
    return record


def _read_json(folder: Path) -> Any:
    files.finish_replacing(folder, RUN_FILES)
    path = folder / RECORD
    if not path.exists():
        raise BadInput(f"{folder} is not a run: it has no {RECORD}.")
    try:
        return read_json(path)
    except InvalidRecord as error:
        raise BadInput(f"{path} cannot be read: {error}.") from error


def _structure(plain: Any, folder: Path) -> Run:
    try:
        run = structure(plain, Run)
        if run.experiment.method is not None:
            structure(plain, UnlearningFields)
    except InvalidRecord as error:
        reason = str(error).removesuffix(".")
        raise BadInput(
            f"{folder / RECORD} is not a valid run record ({reason}). Leave it out, or run it "
            "again."
        ) from error
    return run


def is_run(folder: Path) -> bool:
    """Return whether a folder contains a run."""
    files.finish_replacing(folder, RUN_FILES)
    return (folder / RECORD).exists()


def find_runs(folder: Path) -> list[Path]:
    """Return the runs in a folder, sorted by name. Hidden folders are incomplete runs."""
    markers = [*folder.glob(f"*/{RECORD}"), *folder.glob(f"*/{files.REPLACEMENT}")]
    found = {file.parent for file in markers}
    return sorted(run for run in found if not run.name.startswith(".") and is_run(run))


@contextmanager
def reserve(folder: Path, experiment: Experiment, overwrite: bool) -> Iterator[bool]:
    """Lock the folder of a run. Yield whether it already contains the same run."""
    if check_free(folder, experiment, overwrite):
        yield True
    elif not is_first():  # in a distributed training only the first process writes
        yield False
    else:
        with files.lock(folder):
            yield check_free(folder, experiment, overwrite)


def check_free(folder: Path, experiment: Experiment, overwrite: bool) -> bool:
    """Return whether the folder already contains the same run.

    Raise an error if it contains something else or cannot be written.
    """
    if not folder.exists():
        check_writable(folder)
        return False
    if not is_run(folder):
        raise BadInput(f"{folder} exists and is not a run: choose another --out.")
    if overwrite:
        check_writable(folder / RECORD)
        return False
    if not holds(folder, experiment):
        raise BadInput(f"{folder} holds another run: choose another --out, or --overwrite it.")
    return True


def holds(folder: Path, experiment: Experiment) -> bool:
    """Return whether a folder contains the run of this experiment."""
    return load_public(folder).id == experiment.run_id(read_salt(folder))


def default_folder(experiment: Experiment, runs: Path = Path("runs")) -> Path:
    """Return the default folder of a run: the one that contains it, or a free one.

    Its name is public and does not depend on sample ids. Requests that differ only in these are
    numbered.
    """
    folders = numbered(runs / experiment.public_id)
    folder = next(folders)
    while experiment.names_samples and is_run(folder) and not holds(folder, experiment):
        folder = next(folders)
    return folder


def numbered(folder: Path) -> Iterator[Path]:
    """Yield a folder, then others next to it: NAME, NAME-2, NAME-3."""
    yield folder
    for number in itertools.count(2):
        yield folder.with_name(f"{folder.name}-{number}")


def path_from(folder: Path, place: Path) -> str:
    """Return a path relative to the run folder, for its record.

    An absolute path would reveal the machine and its user.
    """
    return os.path.relpath(place.resolve(), folder.resolve())


def place_of(folder: Path, path: str) -> Path:
    """Return the location of a path from the record of a run."""
    return Path(os.path.normpath(folder.resolve() / path))


def check_writable(place: Path) -> None:
    """Raise an error if no file or folder can be created here, before long work starts."""
    above = next(folder for folder in place.absolute().parents if folder.exists())
    if not above.is_dir():
        raise BadInput(f"{place} cannot be written: {above} is not a folder. Choose another place.")
    try:
        with files.temporary_folder(above, place.name):
            pass
    except OSError as error:
        raise BadInput(
            f"{place} cannot be written: nothing can be made in {above} ({error.strerror}). "
            "Choose another place."
        ) from error


def check_file_writable(path: Path) -> None:
    """Raise an error if no file can be created here, before long work starts."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder: name a file in it.")
    check_writable(path)


def unfinished(folder: Path, run_id: str) -> Path:
    """Return the path of the checkpoint of a training that is not finished."""
    return folder.parent / f".{folder.name}-{run_id}.unfinished"


def environment(device: torch.device) -> Environment:
    """Return versions and hardware that the result may depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "safetensors")}
    try:
        packages["duck-unlearning"] = version("duck-unlearning")
    except Exception:  # running from a source tree that is not installed
        packages["duck-unlearning"] = "source"
    return Environment(
        platform.python_version(),
        packages,
        platform.platform(terse=True),
        device_name(device),
        torch.get_num_threads(),
        _git_commit(),
    )


def _git_commit() -> str | None:
    """Return the commit of the project in the working folder."""
    try:
        process = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None if process.returncode == 0 else None
