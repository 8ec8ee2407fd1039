"""What lies on disk, read once: runs with their audits and analyses, and lines of a bench. Nothing is computed anew."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from duck import store
from duck.analysis import bias, study
from duck.audits.verdict import NO_VERDICT, OLD_FILE, TIERS, file_of
from duck.config import Experiment, from_dict, to_dict
from duck.errors import BadInput, DuckError
from duck.methods.base import METHODS
from duck.methods.presets import Preset, preset
from duck.report.numbers import Measured, aus_range, share
from duck.scenarios import ForgetClasses, Request, describe
from duck.store import Run

ANALYSIS, BIAS = study.RESULT, bias.RESULT


@dataclass(frozen=True, eq=False)
class Entry:
    """One unlearning in a row: of a stored run, or of a line of a bench."""

    name: str
    experiment: Experiment
    kind: str
    scores: dict[str, float | None]
    original: dict[str, float | None]
    samples: dict[str, int]
    seconds: float
    prepare_seconds: float
    device: str
    notes: Sequence[str]
    preset: str = ""

    @property
    def request(self) -> Request:
        assert self.experiment.request is not None
        return self.experiment.request

    @property
    def method(self) -> str:
        assert self.experiment.method is not None
        return METHODS.name_of(self.experiment.method)

    @cached_property
    def asked(self) -> str:
        return describe(self.request)

    @property
    def removed(self) -> int | None:
        """How many classes, where whole classes go."""
        return len(self.request.classes) if isinstance(self.request, ForgetClasses) else None

    def measured(self, name: str, of: dict[str, float | None] | None = None) -> Measured | None:
        """An accuracy with its interval."""
        return share((self.scores if of is None else of).get(name), self.samples.get(name))

    @property
    def kept_name(self) -> str:
        return "retain_test" if self.kind == "class" else "test"

    @property
    def gone_name(self) -> str:
        return "forget_test" if self.kind == "class" else "forget"

    @property
    def kept(self) -> Measured | None:
        """On unseen samples of what was to stay."""
        return self.measured(self.kept_name)

    @property
    def gone(self) -> Measured | None:
        """On what was to be forgotten, as the AUS takes it."""
        return self.measured(self.gone_name)

    @property
    def aus(self) -> Measured | None:
        return aus_range(self.kind, self.scores.get("aus"), self.original.get(self.kept_name), self.kept, self.gone)

    @property
    def drop(self) -> float | None:
        """What unlearning cost: accuracy of the original less that of the unlearned model."""
        before, after = self.original.get(self.kept_name), self.scores.get(self.kept_name)
        return None if before is None or after is None else before - after

    @property
    def delta(self) -> float | None:
        """What is still remembered, as the AUS has it."""
        if self.kept is None or self.gone is None:
            return None
        return self.gone.value if self.kind == "class" else abs(self.kept.value - self.gone.value)

    @property
    def question(self) -> str:
        """Entries with the same one are answers to the same request on the same original."""
        plain = to_dict(self.experiment)
        return json.dumps({key: value for key, value in plain.items() if key != "method"}, sort_keys=True)


@dataclass(frozen=True, eq=False)
class Stored:
    """A run folder."""

    folder: Path
    run: Run
    entry: Entry
    anchor: str
    """Its place in the page."""
    audit: dict[str, Any] | None
    analysis: dict[str, Any] | None

    @property
    def verdict(self) -> str:
        return "no audit" if self.audit is None else str(self.audit["verdict"])

    @property
    def names(self) -> list[str]:
        """Of the classes."""
        return list(self.run.by_class.get("names", ()))

    @property
    def forgotten(self) -> list[int]:
        """Classes that were to go whole."""
        return [int(index) for index in self.run.by_class.get("forget", ())] if self.entry.kind == "class" else []


@dataclass(frozen=True)
class Curve:
    """The ROC curve of an attack on one model of a bench."""

    attack: str
    on: str
    """Data set, and what was forgotten."""
    method: str
    preset: str
    fpr: Sequence[float]
    tpr: Sequence[float]


def read(folders: Iterable[Path]) -> list[Stored]:
    """Runs, each once; a folder of runs stands for all unlearnings in it. Bias removals are passed over."""
    found = list({run.resolve(): run for folder in folders for run in _sorted(folder)[0]}.values())
    return [_named(folder, number) for number, folder in enumerate(found, 1)]


def removals_in(path: Path) -> list[Path]:
    """Bias removals: the folder or file itself, or folders in it."""
    return _sorted(path)[1]


def anchor(kind: str, number: int, name: str) -> str:
    """A place in the page."""
    return f"{kind}-{number}-{re.sub(r'[^A-Za-z0-9]+', '-', name)}"


def _sorted(path: Path) -> tuple[list[Path], list[Path]]:
    """Unlearnings and bias removals."""
    if (path / BIAS).exists() or (path.suffix == ".jsonl" and path.is_file()):
        return [], [path]
    if (path / store.RECORD).exists() or not path.is_dir():
        return [path], []
    runs, removals = (_inside(path, name) for name in (store.RECORD, BIAS))
    unlearnings = [run for run in runs if store.read_record(run)["experiment"].get("method")]
    if not unlearnings and not removals:
        raise BadInput(f"{path} holds no unlearning: `duck forget --out {path}/NAME` would make one.")
    return unlearnings, removals


def _inside(folder: Path, name: str) -> list[Path]:
    return sorted(file.parent for file in folder.glob(f"*/{name}") if not file.parent.name.startswith("."))


def _named(folder: Path, number: int) -> Stored:
    """Of fifty runs nobody finds the broken one unless it is named."""
    try:
        return _stored(folder, anchor("run", number, folder.name))
    except DuckError as error:
        raise BadInput(str(error) if str(folder) in str(error) else f"{folder}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{folder} does not hold what a run holds ({type(error).__name__}: {error}): it is broken, or of another version. "
            "Leave it out, or make it anew."
        ) from error


def _stored(folder: Path, anchor: str) -> Stored:
    run = store.load(folder)
    row = store.row(folder, run)
    kind = run.by_class.get("kind") or ("class" if run.samples.get("forget_test") else "samples")
    entry = Entry(
        folder.name, run.experiment, kind, run.scores, run.original or {}, run.samples, run.seconds, run.prepare_seconds,
        str(run.environment.get("device", "")), row["notes"],
    )  # fmt: skip
    return Stored(folder, run, entry, anchor, audit_in(folder), beside(folder / ANALYSIS))


def audit_in(folder: Path) -> dict[str, Any] | None:
    """The one of the highest tier that came to a verdict, whichever was made last; where none did, the highest."""
    names = [*map(file_of, TIERS), OLD_FILE]
    found = [audit for name in names if (audit := beside(folder / name, "verdict")) is not None]
    return max(found, key=lambda audit: (audit["verdict"] != NO_VERDICT, _rank(audit)), default=None)


def _rank(audit: Mapping[str, Any]) -> int:
    return TIERS.index(audit["tier"]) if audit.get("tier") in TIERS else -1


def beside(path: Path, *needed: str) -> dict[str, Any] | None:
    """A JSON object, if it is there."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}. Delete it, or make it anew.") from error
    if not isinstance(found, dict) or not set(needed) <= found.keys():
        raise BadInput(f"{path} does not hold what it should: {', '.join(needed) or 'an object'} is missing. Make it anew.")
    return found


def of_lines(lines: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Unlearnings of a bench; trainings of originals, attacks and failures are left out."""
    return [_of_line(line) for line in lines if line.get("method") and "error" not in line and "aus" in line["scores"]]


def of_attacks(lines: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """What attacks of a bench found, where they rank samples."""
    return [
        Curve(
            line["attack"]["name"], f"{line['dataset']}, {'a class' if line['scenario'] == 'class' else 'samples'}",
            line["method"], line["preset"] or "", line["roc"]["fpr"], line["roc"]["tpr"],
        )
        for line in lines
        if "attack" in line and "roc" in line
    ]  # fmt: skip


def _of_line(line: Mapping[str, Any]) -> Entry:
    name = f"{line['dataset']}, {'class' if line['scenario'] == 'class' else 'seed'} {line['case']}"
    experiment = from_dict(line["experiment"])
    return Entry(
        name, experiment, line["scenario"], line["scores"], line["original"], {"forget": line["forget_samples"]},
        line["seconds"], line["prepare_seconds"], line["device"], line["notes"], _preset_of(line, experiment),
    )  # fmt: skip


def _preset_of(line: Mapping[str, Any], experiment: Experiment) -> str:
    """Its name, and whether its settings are not those of that name now: of a grid of one's own, or from before they were tuned anew."""
    which: Preset = "tuned" if line["preset"] == "tuned" else "paper"
    known = preset(line["method"], line["dataset"], line["scenario"], line.get("train_samples"), which)
    return which if known == experiment.method else f"{which}, other settings"
