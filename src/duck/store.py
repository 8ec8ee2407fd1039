"""Runs on disk: a folder with run.json and model.safetensors, written whole or not at all."""

import errno
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from duck.comparison import COLUMNS as COLUMNS
from duck.config import Experiment, from_dict, to_dict
from duck.errors import BadInput
from duck.experiment import Outcome, notes
from duck.methods.base import METHODS
from duck.models.weights import save_weights
from duck.runtime import device_name, device_of
from duck.sample_ids import hide_ids, restore_ids, write_ids
from duck.scenarios import describe
from duck.types import Scenario

RECORD, WEIGHTS = "run.json", "model.safetensors"


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
    original_run: str | None = None
    source: dict[str, str | None] = field(default_factory=dict)
    """Where data and weights were read from: for finding them again, not part of the id."""
    environment: dict[str, Any] = field(default_factory=dict)
    created: str = ""


def record(experiment: Experiment, scenario: Scenario, outcome: Outcome, **rest: Any) -> Run:
    """What the store keeps of an unlearning."""
    splits = {name: len(getattr(scenario, name)) for name in ("forget", "retain", "holdout", "test", "forget_test", "retain_test")}
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
        **rest,
    )


def _by_class(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    labels = scenario.data.train.labels[scenario.forget]
    before, after = outcome.confusions
    return {
        "kind": scenario.kind,
        "names": list(scenario.data.classes),
        "forget": {str(index): count for index, count in enumerate(labels.bincount().tolist()) if count},
        "original": before,
        "unlearned": after,
    }


def row(folder: Path, run: Run) -> dict[str, Any]:
    """An unlearning as one line of a table or of JSON."""
    method, request = run.experiment.method, run.experiment.request
    if method is None or request is None:
        raise BadInput(f"{folder} is an original model, not an unlearning.")
    return {
        "run": str(folder),
        "method": METHODS.name_of(method),
        "scenario": describe(request),
        "protocol": run.experiment.protocol,
        "scores": {name: run.scores[name] for name in COLUMNS},
        "seconds": run.seconds,
        "prepare_seconds": run.prepare_seconds,
        "forget_samples": run.samples["forget"],
        "processed": run.samples["processed"],
        "notes": run.notes,
    }


def save(run: Run, model: nn.Module, folder: Path, overwrite: bool = False) -> Path:
    """Write the run beside its place, then move it there in one step."""
    check_free(folder, run.experiment.id, overwrite)
    with _whole(folder) as beside:
        save_weights(model, beside / WEIGHTS)
        plain = {"id": run.experiment.id, **asdict(run), "experiment": to_dict(run.experiment)}
        record, lists = hide_ids(plain)
        write_ids(lists, beside)
        record.update(environment=environment(device_of(model)), created=datetime.now(UTC).isoformat(timespec="seconds"))
        (beside / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return folder


def load(folder: Path) -> Run:
    """The record of a run."""
    record = restore_ids(read_record(folder), folder)
    names = set(Run.__dataclass_fields__)
    return Run(**{**{k: v for k, v in record.items() if k in names}, "experiment": from_dict(record["experiment"])})


def read_record(folder: Path) -> dict[str, Any]:
    """run.json as plain data, with digests in place of sample ids: no torch needed."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{folder} is not a run: it has no {RECORD}. `duck train --out {folder}` would make one.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{folder / RECORD} cannot be read: {error}") from error
    if not isinstance(record, dict) or "experiment" not in record:
        raise BadInput(f"{folder / RECORD} is not the record of a run.")
    return record


def check_free(folder: Path, run_id: str, overwrite: bool) -> bool:
    """True if the same run is there already; an error if something else is, or if nothing can be written there."""
    if not folder.exists():
        check_writable(folder)
        return False
    if not (folder / RECORD).exists():
        raise BadInput(f"{folder} exists and is not a run: choose another --out.")
    if overwrite:
        check_writable(folder)
        return False
    if read_record(folder).get("id") != run_id:
        raise BadInput(f"{folder} holds another run: choose another --out, or --overwrite it.")
    return True


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
        tempfile.TemporaryDirectory(prefix=".duck-", dir=above).cleanup()
    except OSError as error:
        raise BadInput(f"{place} cannot be written: nothing can be made in {above} ({error.strerror}). Choose another place.") from error


def unfinished(folder: Path, run_id: str) -> Path:
    """Where a training keeps its checkpoint until it is done."""
    return folder.parent / f".{folder.name}-{run_id}.unfinished"


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    beside = folder.parent / f".{folder.name}.{os.getpid()}.writing"
    try:
        beside.mkdir(parents=True)
        yield beside
        _put(beside, folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = "free some space or choose" if _is_full(error) else "choose"
        raise BadInput(f"{folder} cannot be written: {reason}. Nothing new was kept; {advice} another --out.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _is_full(error: Exception) -> bool:
    """Whether it is about a full disk; safetensors says so in its text alone."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or f"(os error {errno.ENOSPC})" in str(error)


def _put(beside: Path, folder: Path) -> None:
    """In its place. What was there is removed when the new one stands, or put back."""
    if not folder.exists():
        os.replace(beside, folder)
        return
    old = beside.with_suffix(".old")
    os.replace(folder, old)
    try:
        os.replace(beside, folder)
    except BaseException:
        os.replace(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


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
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
