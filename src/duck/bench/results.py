"""Stored results: appended as runs end, read from every file of a folder."""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from duck.bench.grids import Facts, measurement_of, result_id
from duck.bench.result_checks import Result, find_flaw, is_ours, is_trial, mark_invalid_scores
from duck.errors import BadInput, DuckError
from duck.experiment import from_dict
from duck.files import read_bytes
from duck.json_text import to_json


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
        return {name: line for name, line in self.lines.items() if "error" not in line}

    def facts(self, dataset: str) -> Iterator[Facts]:
        """Yield the facts of a data set; several where machines read it from different sources."""
        yield from dict.fromkeys(
            _facts(line) for line in self.lines.values() if line["dataset"] == dataset
        )

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

    def append(self, name: str, line: Result) -> None:
        """Append a result to the file of a grid and wait until it is on the disk."""
        path = self.folder / f"{name.replace('/', '-')}.jsonl"
        # A kill may have left half a line.
        separator = b"" if _ends_with_newline(path) else b"\n"
        with path.open("ab") as file:
            file.write(separator + to_json(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._keep(line)

    def _read(self, path: Path) -> None:
        try:
            text = read_bytes(path).decode("utf-8", errors="replace")
        except OSError as error:
            raise BadInput(f"The results {path} cannot be read: {error.strerror}.") from error
        for row in filter(str.strip, text.split("\n")):
            try:
                line = json.loads(row)
            except (ValueError, RecursionError):  # no JSON, or nested too deeply
                self.broken[path.name, "half-written, as a kill leaves it"] += 1
                continue
            if is_trial(line):
                self._count_trial(line)
            if not is_ours(line):
                continue
            wrong = find_flaw(line)
            if wrong is None:
                self._keep(mark_invalid_scores(line))
            else:
                self.broken[path.name, wrong] += 1

    def _count_trial(self, line: Result) -> None:
        """Count a trial once, also where a file was copied."""
        key = line["dataset"], line["scenario"], line["method"]
        name = to_json([*key, line["number"], line["settings"]], sort_keys=True)
        if name in self._known_trials:
            return
        self._known_trials.add(name)
        self.trials[key] += 1
        if line.get("jobs", 1) == 1 and line.get("alone", True):  # else others shared the device
            self.trial_seconds.setdefault(key, []).append(float(line["seconds"]))

    def _keep(self, line: Result) -> None:
        name = _current_id(line)
        if name not in self.lines or "error" in self.lines[name]:
            self.lines[name] = line


def _ends_with_newline(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _current_id(line: Result) -> str:
    """Return the id of today: settings that are newer than the result have their defaults."""
    try:
        return result_id(from_dict(line["experiment"]), measurement_of(line))
    except DuckError:
        return str(line["id"])


def _facts(line: Result) -> Facts:
    made = line["experiment"]["training"]
    return Facts(
        made["data"], made["fingerprint"], line["train_samples"], made["recipe"]["augment"]
    )
