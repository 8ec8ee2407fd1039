"""Runs on disk: a folder with run.json and model.safetensors, written atomically."""

import errno
import itertools
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from duck import files, schema
from duck.comparison import COLUMNS as COLUMNS
from duck.earlier_requests import EarlierScores
from duck.errors import BadInput, DuckError
from duck.experiment import Experiment, from_dict, to_dict
from duck.methods.base import METHODS
from duck.metrics import KeptAccuracy, kept_accuracy
from duck.models.weights import REQUEST_DIGEST, save_weights
from duck.runtime import device_name, device_of, is_first
from duck.sample_ids import FILE as FILE_OF_IDS
from duck.sample_ids import NO_SALT, hide_ids, new_salt, read_salt, restore_ids, write_ids
from duck.scenarios import describe
from duck.types import Scenario
from duck.unlearning import Outcome, Status, notes, status_of

RECORD, WEIGHTS = "run.json", "model.safetensors"
RUN_FILES = (
    RECORD,
    WEIGHTS,
    FILE_OF_IDS,
    "audit.json",
    "audit-quick.json",
    "audit-oracle.json",
    "audit-full.json",
    "analysis.json",
)
"""The files that duck writes into a run folder."""


@dataclass(frozen=True)
class Run:
    """The content of run.json."""

    experiment: Experiment
    scores: dict[str, float | None]
    seconds: float
    samples: dict[str, int]
    """Samples in each split; for an unlearning also the number of `processed` forget samples."""
    prepare_seconds: float = 0.0
    """Time of the preparation."""
    original: dict[str, float | None] | None = None
    """Scores of the original on the same splits."""
    history: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    by_class: dict[str, Any] = field(default_factory=dict)
    """For reports: class names, forget samples per class, confusion matrices before and after."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """Scores on the forget sets of earlier requests: the fields of `EarlierScores`."""
    original_run: str | None = None
    source: dict[str, str | None] = field(default_factory=dict)
    """Paths of data and weights; not part of the id."""
    environment: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    kept_accuracy: dict[str, Any] | None = None
    """Fields of `metrics.KeptAccuracy`: the accuracy lost, and whether the model is `damaged`."""
    id: str = ""
    """`Experiment.run_id` with the salt of this run. Set by `save`."""
    forgot: bool | None = None
    """False: nothing was forgotten. None: the scores do not show it, or it is an original."""

    @property
    def earlier_scores(self) -> tuple[EarlierScores, ...]:
        """`earlier` as typed records."""
        return tuple(EarlierScores(**scores) for scores in self.earlier)

    @property
    def status(self) -> Status:
        """The outcome, from which `duck forget` takes its exit code."""
        return status_of(self.forgot, bool(self.kept_accuracy and self.kept_accuracy["damaged"]))


def record(experiment: Experiment, scenario: Scenario, outcome: Outcome, **rest: Any) -> Run:
    """Return the record of an unlearning."""
    splits = ("forget", "retain", "holdout", "test", "forget_test", "retain_test")
    samples = {name: len(getattr(scenario, name)) for name in splits}
    return Run(
        experiment=experiment,
        scores=asdict(outcome.scores),
        seconds=outcome.seconds,
        samples={**samples, "processed": outcome.processed},
        prepare_seconds=outcome.prepare_seconds,
        original=asdict(outcome.original),
        history=[epoch._asdict() for epoch in outcome.history],
        notes=notes(scenario, outcome),
        by_class=_by_class(scenario, outcome),
        earlier=[asdict(scores) for scores in outcome.earlier],
        kept_accuracy=asdict(outcome.kept_accuracy),
        forgot=outcome.forgot,
        **rest,
    )


def _by_class(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    counts = scenario.data.train.labels[scenario.forget].bincount().tolist()
    before, after = outcome.confusions
    return {
        "kind": scenario.kind,
        "names": list(scenario.data.classes),
        "forget": {str(index): count for index, count in enumerate(counts) if count},
        "original": before,
        "unlearned": after,
    }


def judge(run: Run, limit: float | None = None) -> Run:
    """Return the run judged by a limit on the loss of accuracy; None: the default limit.

    The limit that was given to `duck forget` is not stored with the run.
    """
    if run.kept_accuracy is None:
        return run
    known = KeptAccuracy(**run.kept_accuracy)
    judged = kept_accuracy(known.split, known.original, known.unlearned, known.n, limit)
    others = [note for note in run.notes if note != str(known)]
    if judged.damaged:
        # After the notes on earlier requests, as in a new run.
        position = sum(scores.is_known for scores in run.earlier_scores)
        others.insert(position, str(judged))
    return replace(run, kept_accuracy=asdict(judged), notes=others)


def row(folder: Path, run: Run) -> dict[str, Any]:
    """Return an unlearning as a row of a table or of JSON."""
    method, request = run.experiment.method, run.experiment.request
    if method is None or request is None:
        raise BadInput(f"{folder} is an original model, not an unlearning.")
    return {
        "run": str(folder),
        "method": METHODS.name_of(method),
        "scenario": describe(request, run.by_class.get("names", ())),
        "protocol": run.experiment.protocol,
        "scores": {name: run.scores[name] for name in COLUMNS},
        "seconds": run.seconds,
        "prepare_seconds": run.prepare_seconds,
        "forget_samples": run.samples["forget"],
        "processed": run.samples["processed"],
        "earlier": run.earlier,
        "status": run.status,
        "kept_accuracy": run.kept_accuracy,
        "notes": run.notes,
    }


def save(run: Run, model: nn.Module, folder: Path, overwrite: bool = False) -> Path:
    """Write a run atomically and return its folder.

    If the folder already contains the same run, nothing is written unless `overwrite` is set.
    """
    if check_free(folder, run.experiment, overwrite):
        return folder
    salt = new_salt() if run.experiment.names_samples else NO_SALT
    digest = run.experiment.request_digest(salt)
    about = {"id": run.experiment.run_id(salt), "request_digest": digest, "status": run.status}
    record, ids = hide_ids({**asdict(run), **about, "experiment": to_dict(run.experiment)}, salt)
    record["environment"] = run.environment or environment(device_of(model))
    record["created"] = run.created or datetime.now(UTC).isoformat(timespec="seconds")
    with _explain_write_errors(folder), files.replacing(folder, RUN_FILES) as new:
        save_weights(model, new / WEIGHTS, {REQUEST_DIGEST: digest} if digest else None)
        write_ids(ids, salt, new)
        files.write_json(new / RECORD, record)
    return folder


def load(folder: Path) -> Run:
    """Read the record of a run, judged by the default limit on the loss of accuracy."""
    record = restore_ids(read_record(folder), folder)
    if "forgot" not in record:
        # Records of earlier versions say it only in their notes.
        notes = record.get("notes", [])
        is_unforgotten = any(note.startswith("Nothing was forgotten") for note in notes)
        record["forgot"] = False if is_unforgotten else None
    names = set(Run.__dataclass_fields__)
    try:
        experiment = from_dict(record["experiment"])
    except (DuckError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _broken(folder, f"experiment: {error}") from error
    values = {name: value for name, value in record.items() if name in names}
    return judge(Run(**{**values, "experiment": experiment}))


def read_record(folder: Path) -> dict[str, Any]:
    """Read run.json as plain data and check it.

    It contains digests in place of sample ids. Fields that older versions did not write get their
    defaults.
    """
    files.finish_replacing(folder, RUN_FILES)
    try:
        record = json.loads(files.read_text(folder / RECORD))
    except FileNotFoundError:
        raise BadInput(
            f"{folder} is not a run: it has no {RECORD}. "
            f"`duck train --out {folder}` would make one."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{folder / RECORD} cannot be read: {error}") from error
    if not isinstance(record, dict) or "experiment" not in record:
        raise BadInput(f"{folder / RECORD} is not the record of a run: it has no experiment.")
    try:
        schema.record(record, "")
    except schema.Wrong as wrong:
        raise _broken(folder, str(wrong)) from wrong
    return {**_defaults(), **record}


def _defaults() -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for item in fields(Run):
        if item.default_factory is not MISSING:
            defaults[item.name] = item.default_factory()
        elif item.default is not MISSING:
            defaults[item.name] = item.default
    return defaults


def _broken(folder: Path, why: str) -> BadInput:
    reason = why.removesuffix(".")
    return BadInput(
        f"{folder / RECORD} does not hold what a run holds ({reason}): it is broken, or of another "
        "version. Leave it out, or make it anew."
    )


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
    return bool(read_record(folder).get("id") == experiment.run_id(read_salt(folder)))


def default_folder(experiment: Experiment, runs: Path = Path("runs")) -> Path:
    """Return the default folder of a run: the one that contains it, or a free one.

    Its name is public and does not depend on sample ids. Requests that differ only in these are
    numbered.
    """
    folder = runs / experiment.public_id
    numbers = itertools.count(2)
    while experiment.names_samples and is_run(folder) and not holds(folder, experiment):
        folder = runs / f"{experiment.public_id}-{next(numbers)}"
    return folder


def path_from(folder: Path, place: Path) -> str:
    """Return a path relative to the run folder, for its record.

    An absolute path would reveal the machine and its user.
    """
    return os.path.relpath(place.resolve(), folder.resolve())


def place_of(folder: Path, path: str) -> Path:
    """Return the location of a path from the record of a run.

    Records of older versions contain absolute paths.
    """
    return Path(os.path.normpath(folder.resolve() / path))


def original_of(folder: Path, run: Run) -> Path | None:
    """Return the folder of the original according to the record.

    Older versions stored it relative to the working folder.
    """
    if run.original_run is None:
        return None
    place = place_of(folder, run.original_run)
    return place if place.exists() else Path(run.original_run)


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


def unfinished(folder: Path, run_id: str) -> Path:
    """Return the path of the checkpoint of a training that is not finished."""
    return folder.parent / f".{folder.name}-{run_id}.unfinished"


@contextmanager
def _explain_write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except files.WRITE_ERRORS as error:
        advice = "free some space or choose" if _is_full(error) else "choose"
        raise BadInput(
            f"{folder} cannot be written: {files.reason(error)}. "
            f"Nothing new was kept; {advice} another --out."
        ) from error


def _is_full(error: Exception) -> bool:
    """Return whether the disk is full; safetensors says so only in its message."""
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return True
    return f"(os error {errno.ENOSPC})" in str(error)


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and hardware that the result may depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "safetensors")}
    try:
        packages["duck-unlearning"] = version("duck-unlearning")
    except Exception:  # running from a source tree that is not installed
        packages["duck-unlearning"] = "source"
    return {
        "python": platform.python_version(),
        "packages": packages,
        "platform": platform.platform(terse=True),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    """Return the commit of the project in the working folder."""
    try:
        process = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None if process.returncode == 0 else None
