"""Runs on disk: a folder with run.json and model.safetensors, written whole or not at all."""

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
OURS = (
    RECORD,
    WEIGHTS,
    FILE_OF_IDS,
    "audit.json",
    "audit-quick.json",
    "audit-oracle.json",
    "audit-full.json",
    "analysis.json",
)
"""The files of a run folder that we write: the run, and what was found out about it."""


@dataclass(frozen=True)
class Run:
    """What run.json holds."""

    experiment: Experiment
    scores: dict[str, float | None]
    seconds: float
    samples: dict[str, int]
    """How many of each split; for an unlearning also how many forget samples were `processed`."""
    prepare_seconds: float = 0.0
    """Of what the method computed beforehand."""
    original: dict[str, float | None] | None = None
    """Scores of the original on the same splits."""
    history: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    by_class: dict[str, Any] = field(default_factory=dict)
    """For a report: the names of the classes, how many of each were to be forgotten, who is taken for whom before and after."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """What earlier requests forgot, scored again: the fields of `EarlierScores`."""
    original_run: str | None = None
    source: dict[str, str | None] = field(default_factory=dict)
    """Where data and weights were read from: for finding them again, not part of the id."""
    environment: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    kept_accuracy: dict[str, Any] | None = None
    """Fields of `metrics.KeptAccuracy`: what the unlearning cost, and whether the model is `damaged`."""
    id: str = ""
    """As run.json holds it: `Experiment.run_id` with the salt of this run. Set by `save`."""
    forgot: bool | None = None
    """False: nothing was forgotten. None: the scores cannot tell, or it is an original."""

    @property
    def earlier_scores(self) -> tuple[EarlierScores, ...]:
        """`earlier` with its types."""
        return tuple(EarlierScores(**scores) for scores in self.earlier)

    @property
    def status(self) -> Status:
        """The exit code of `duck forget` follows from it."""
        return status_of(self.forgot, bool(self.kept_accuracy and self.kept_accuracy["damaged"]))


def record(experiment: Experiment, scenario: Scenario, outcome: Outcome, **rest: Any) -> Run:
    """What the store keeps of an unlearning."""
    splits = {
        name: len(getattr(scenario, name))
        for name in ("forget", "retain", "holdout", "test", "forget_test", "retain_test")
    }
    samples = {**splits, "processed": outcome.processed}
    history = [epoch._asdict() for epoch in outcome.history]
    return Run(
        experiment,
        asdict(outcome.scores),
        outcome.seconds,
        samples,
        outcome.prepare_seconds,
        asdict(outcome.original),
        history,
        notes(scenario, outcome),
        _by_class(scenario, outcome),
        [asdict(scores) for scores in outcome.earlier],
        kept_accuracy=asdict(outcome.kept_accuracy),
        forgot=outcome.forgot,
        **rest,
    )


def _by_class(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    labels = scenario.data.train.labels[scenario.forget]
    before, after = outcome.confusions
    return {
        "kind": scenario.kind,
        "names": list(scenario.data.classes),
        "forget": {
            str(index): count for index, count in enumerate(labels.bincount().tolist()) if count
        },
        "original": before,
        "unlearned": after,
    }


def judge(run: Run, limit: float | None = None) -> Run:
    """Return the run judged by a limit of the loss of accuracy, the default where None; that of its command is no part of a run."""
    if run.kept_accuracy is None:
        return run
    known = KeptAccuracy(**run.kept_accuracy)
    judged = kept_accuracy(known.split, known.original, known.unlearned, known.n, limit)
    others = [note for note in run.notes if note != str(known)]
    # After what is known of earlier requests, as in a fresh run.
    place = sum(scores.is_known for scores in run.earlier_scores)
    notes = [*others[:place], str(judged), *others[place:]] if judged.damaged else others
    return replace(run, kept_accuracy=asdict(judged), notes=notes)


def row(folder: Path, run: Run) -> dict[str, Any]:
    """An unlearning as one line of a table or of JSON."""
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
    """Write a run in one step. The same run that is there already stays as it is, with its audits, unless it is to be overwritten."""
    if check_free(folder, run.experiment, overwrite):
        return folder
    salt = new_salt() if run.experiment.names_samples else NO_SALT
    digest = run.experiment.request_digest(salt)
    about = {"id": run.experiment.run_id(salt), "request_digest": digest, "status": run.status}
    record, ids = hide_ids({**asdict(run), **about, "experiment": to_dict(run.experiment)}, salt)
    record.update(
        environment=environment(device_of(model)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with _explained(folder), files.replacing(folder, OURS) as new:
        save_weights(model, new / WEIGHTS, {REQUEST_DIGEST: digest} if digest else None)
        write_ids(ids, salt, new)
        files.write_json(new / RECORD, record)
    return folder


def load(folder: Path) -> Run:
    """The record of a run, judged by the default limit of the loss of accuracy."""
    record = restore_ids(read_record(folder), folder)
    if "forgot" not in record:
        # Records of earlier versions have it in their notes alone.
        record["forgot"] = (
            False
            if any(note.startswith("Nothing was forgotten") for note in record.get("notes", []))
            else None
        )
    names = set(Run.__dataclass_fields__)
    try:
        experiment = from_dict(record["experiment"])
    except (DuckError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _broken(folder, f"experiment: {error}") from error
    return judge(
        Run(**{**{k: v for k, v in record.items() if k in names}, "experiment": experiment})
    )


def read_record(folder: Path) -> dict[str, Any]:
    """run.json as plain data, checked, with digests in place of sample ids; what an older version did not write has its default."""
    files.finish_replacing(folder, OURS)
    try:
        record = json.loads(files.read_text(folder / RECORD))
    except FileNotFoundError:
        raise BadInput(
            f"{folder} is not a run: it has no {RECORD}. `duck train --out {folder}` would make one."
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
    made = (
        (field.name, field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(Run)
    )
    return {name: value for name, value in made if value is not MISSING}


def _broken(folder: Path, why: str) -> BadInput:
    reason = why.removesuffix(".")
    return BadInput(
        f"{folder / RECORD} does not hold what a run holds ({reason}): it is broken, or of another version. Leave it out, or make it anew."
    )


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    files.finish_replacing(folder, OURS)
    return (folder / RECORD).exists()


def find_runs(folder: Path) -> list[Path]:
    """The runs in a folder, by name; hidden ones are half-written."""
    found = {
        file.parent for name in (RECORD, files.REPLACEMENT) for file in folder.glob(f"*/{name}")
    }
    return sorted(run for run in found if not run.name.startswith(".") and is_run(run))


@contextmanager
def reserve(folder: Path, experiment: Experiment, overwrite: bool) -> Iterator[bool]:
    """Check the place of a run and keep other processes away from it. Yield whether the same run is there already."""
    if check_free(folder, experiment, overwrite):
        yield True
    elif not is_first():  # of several processes of one training the first one writes
        yield False
    else:
        with files.lock(folder):
            yield check_free(folder, experiment, overwrite)


def check_free(folder: Path, experiment: Experiment, overwrite: bool) -> bool:
    """True if the same run is there already; an error if something else is, or if nothing can be written there."""
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
    """Whether a folder holds the run of this experiment; an error where it holds no run that can be read."""
    return bool(read_record(folder).get("id") == experiment.run_id(read_salt(folder)))


def default_folder(experiment: Experiment, runs: Path = Path("runs")) -> Path:
    """The folder of a run for which the user names none: the one that holds it, or a free one.

    Everybody can read its name, so that sample ids have no part in it: requests that differ in these alone are numbered.
    """
    for number in itertools.count(1):
        folder = runs / (
            experiment.public_id if number == 1 else f"{experiment.public_id}-{number}"
        )
        if not experiment.names_samples or not is_run(folder) or holds(folder, experiment):
            return folder
    raise AssertionError


def path_from(folder: Path, place: Path) -> str:
    """A place as a record names it, from the run's folder: no absolute path, which tells of the machine and its user."""
    return os.path.relpath(place.resolve(), folder.resolve())


def place_of(folder: Path, path: str) -> Path:
    """The place that the record of this run names; records of older versions have absolute paths."""
    return Path(os.path.normpath(folder.resolve() / path))


def original_of(folder: Path, run: Run) -> Path | None:
    """Where the run says that its original lies; older versions named it from the working folder."""
    if run.original_run is None:
        return None
    place = place_of(folder, run.original_run)
    return place if place.exists() else Path(run.original_run)


def check_writable(place: Path) -> None:
    """An error where no file or folder can be made at this place: asked before the work that is to be kept there."""
    above = next(folder for folder in place.absolute().parents if folder.exists())
    if not above.is_dir():
        raise BadInput(f"{place} cannot be written: {above} is not a folder. Choose another place.")
    try:
        with files.temporary_folder(above, place.name):
            pass
    except OSError as error:
        raise BadInput(
            f"{place} cannot be written: nothing can be made in {above} ({error.strerror}). Choose another place."
        ) from error


def unfinished(folder: Path, run_id: str) -> Path:
    """Where a training keeps its checkpoint until it is done."""
    return folder.parent / f".{folder.name}-{run_id}.unfinished"


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except files.WRITE_ERRORS as error:
        advice = "free some space or choose" if _is_full(error) else "choose"
        raise BadInput(
            f"{folder} cannot be written: {files.reason(error)}. Nothing new was kept; {advice} another --out."
        ) from error


def _is_full(error: Exception) -> bool:
    """Whether it is about a full disk; safetensors says so in its text alone."""
    return getattr(error, "errno", None) in (
        errno.ENOSPC,
        errno.EDQUOT,
    ) or f"(os error {errno.ENOSPC})" in str(error)


def environment(device: torch.device) -> dict[str, Any]:
    """What the result may depend on and the experiment does not say; the device is the one that was used."""
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
    """Of the project in whose folder the run was made."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
