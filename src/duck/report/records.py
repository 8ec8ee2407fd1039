"""Stored runs with their audits and analyses, read from disk. Nothing is computed again."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from duck import runs
from duck.analysis import bias, study
from duck.analysis.feature_space import Densities
from duck.analysis.study import Analysis
from duck.audits.next_step import audit_command_here
from duck.audits.verdict import (
    NO_VERDICT,
    NOT_FORGOTTEN,
    OLD_FILE,
    TIERS,
    Audit,
    RocCurve,
    Tier,
    file_of,
)
from duck.errors import BadInput, DuckError
from duck.records import InvalidRecord, read_json, read_record
from duck.report.results import Result
from duck.runs import Run

Record = TypeVar("Record")

ANALYSIS_FILE = study.RESULT
BIAS_FILE = bias.RESULT
AUDIT_FILES: dict[str, Tier] = {**{file_of(tier): tier for tier in TIERS}, OLD_FILE: "quick"}
"""The files of audits, and the tier that writes each of them."""


@dataclass(frozen=True)
class ReadProblem:
    """A run, or a file in its folder, that cannot be read. The page is written without it."""

    folder: Path
    """The folder of the run, or the path that the user gave."""
    file: str
    """The file in the folder; empty if the run itself cannot be read."""
    message: str
    """What is wrong, and what to do."""

    @property
    def page_text(self) -> str:
        """The message for the page, where folders are named by their last part only."""
        return self.message.replace(f"{self.folder.parent}{os.sep}", "")


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run folder: the run, its strongest audit and its analysis."""

    folder: Path
    run: Run
    result: Result
    anchor: str
    """The id of its section on the page."""
    audit: Audit | None
    analysis: Analysis | None
    problems: Sequence[ReadProblem] = ()
    """Files in the folder that cannot be read."""

    @property
    def has_unreadable_audit(self) -> bool:
        """Whether an audit was stored but none can be read."""
        return self.audit is None and any(
            problem.file.startswith("audit") for problem in self.problems
        )

    @property
    def verdict(self) -> str:
        return "no audit" if self.audit is None else self.audit.verdict

    @property
    def roc(self) -> Mapping[str, Mapping[str, RocCurve]]:
        """The ROC curves of the audit: attack -> model -> curve."""
        return {} if self.audit is None else self.audit.roc

    @property
    def densities(self) -> Mapping[str, Densities]:
        """The densities of the analysis: model -> split -> class -> log density."""
        return {} if self.analysis is None else self.analysis.density

    @property
    def class_names(self) -> list[str]:
        return self.run.by_class.names

    @property
    def forgotten_classes(self) -> list[int]:
        """The classes of the request; empty if it names samples."""
        if self.result.kind != "class":
            return []
        return [int(index) for index in self.run.by_class.forget]


def read_runs(folders: Iterable[Path]) -> list[StoredRun]:
    """Read runs, each once, and raise BadInput if one cannot be read.

    A folder of runs stands for every unlearning in it. Bias removals are skipped.
    """
    stored, problems = scan_runs(folders)
    if problems:
        raise BadInput(problems[0].message)
    return stored


def scan_runs(folders: Iterable[Path]) -> tuple[list[StoredRun], list[ReadProblem]]:
    """Read runs like `read_runs`, and return what cannot be read as problems."""
    found: dict[Path, Path] = {}
    stored: list[StoredRun] = []
    problems: list[ReadProblem] = []
    for folder in folders:
        try:
            found |= {run.resolve(): run for run in find_folders(folder)[0]}
        except BadInput as error:
            problems.append(ReadProblem(folder, "", str(error)))
    names = distinct_names(list(found.values()))
    for number, (folder, name) in enumerate(zip(found.values(), names, strict=True), 1):
        try:
            stored.append(_read_run(folder, name, make_anchor("run", number, name)))
        except BadInput as error:
            problems.append(ReadProblem(folder, "", str(error)))
    return stored, problems


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return the last part of each path, with as many parent folders as make it unique."""
    parts = [Path(os.path.abspath(folder)).parts for folder in folders]
    depths = [1] * len(parts)
    while True:
        names = ["/".join(part[-depth:]) for part, depth in zip(parts, depths, strict=True)]
        counts = Counter(names)
        deeper = [
            min(depth + (counts[name] > 1), len(part))
            for name, part, depth in zip(names, parts, depths, strict=True)
        ]
        if deeper == depths:
            return names
        depths = deeper


def make_anchor(kind: str, number: int, name: str) -> str:
    """Return the id of a section or figure."""
    return f"{kind}-{number}-{re.sub(r'[^A-Za-z0-9]+', '-', name)}"


def find_folders(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders of unlearnings and of bias removals: the path itself, or those in it.

    Runs that cannot be read are among the unlearnings.
    """
    if path.suffix == ".jsonl" and path.is_file():
        raise BadInput(f"{path} is a file. Pass results of `duck bench` with --results FOLDER.")
    if (path / BIAS_FILE).exists():
        return [], [path]
    if runs.is_run(path) or not path.is_dir():
        return [path], []
    removals = sorted(
        file.parent for file in path.glob(f"*/{BIAS_FILE}") if not file.parent.name.startswith(".")
    )
    unlearnings = [run for run in runs.find_runs(path) if not _is_original(run)]
    if not unlearnings and not removals:
        raise BadInput(f"{path} holds no unlearning. Create one: `duck forget --out {path}/NAME`.")
    return unlearnings, removals


def _is_original(folder: Path) -> bool:
    try:
        experiment = read_json(folder / runs.RECORD)["experiment"]
        return "training" in experiment and not experiment.get("method")
    except (InvalidRecord, KeyError, TypeError, AttributeError):
        return False


def _read_run(folder: Path, name: str, anchor: str) -> StoredRun:
    """Read a run. Errors name its folder, because a page can have fifty runs."""
    try:
        return _load_run(folder, name, anchor)
    except DuckError as error:
        raise BadInput(str(error) if str(folder) in str(error) else f"{folder}: {error}") from error


def _load_run(folder: Path, name: str, anchor: str) -> StoredRun:
    run = runs.load(folder)
    if run.experiment.method is None:
        raise BadInput(f"{folder} is an original model, not an unlearning.")
    problems: list[ReadProblem] = []
    audits = [
        _read_file(folder, file, Audit, audit_command_here(run, folder, tier), problems)
        for file, tier in AUDIT_FILES.items()
    ]
    analyse = shlex.join(["duck", "analyse", str(folder)])
    analysis = _read_file(folder, ANALYSIS_FILE, Analysis, analyse, problems)
    result = _result_of(run, folder, name)
    return StoredRun(folder, run, result, anchor, _strongest_audit(audits), analysis, problems)


def _result_of(run: Run, folder: Path, name: str) -> Result:
    # Older records do not store the kind.
    kind = run.by_class.kind or ("class" if run.samples.get("forget_test") else "samples")
    return Result(
        name=name,
        experiment=run.experiment,
        kind=kind,
        scores=run.scores,
        original=run.original or {},
        samples=run.samples,
        seconds=run.seconds,
        prepare_seconds=run.prepare_seconds,
        device="" if run.environment is None else run.environment.device,
        notes=run.notes,
    )


def _strongest_audit(audits: Iterable[Audit | None]) -> Audit | None:
    """Return the audit of the highest tier that has a verdict; if none has, the highest tier.

    The reasons of a lower tier that found "not forgotten" are added. Older versions did not store
    them with the higher tier.
    """
    known = [audit for audit in audits if audit is not None]
    if not known:
        return None
    chosen = max(known, key=lambda audit: (audit.verdict != NO_VERDICT, _tier_rank(audit)))
    reasons = list(chosen.reasons)
    for audit in known:
        if audit.verdict == NOT_FORGOTTEN and _tier_rank(audit) < _tier_rank(chosen):
            reasons += _missing_reasons(audit, reasons)
    return replace(chosen, reasons=tuple(reasons))


def _missing_reasons(audit: Audit, reasons: Sequence[str]) -> list[str]:
    """Return the reasons of an audit that are not among those given, with its tier."""
    tier = audit.tier.capitalize()
    return [
        f"{tier} tier, {NOT_FORGOTTEN}: {reason}"
        for reason in audit.reasons
        if not any(reason in known for known in reasons)
    ]


def _tier_rank(audit: Audit) -> int:
    return TIERS.index(audit.tier)


def _read_file(
    folder: Path, file: str, cls: type[Record], command: str, problems: list[ReadProblem]
) -> Record | None:
    """Return the content of a file in a run folder, or None; a damaged one adds to the problems."""
    path = folder / file
    if not path.exists():
        return None
    try:
        return read_record(path, cls)
    except InvalidRecord as error:
        message = f"{path} cannot be used: {error}. Delete it and run `{command}` again."
        problems.append(ReadProblem(folder, file, message))
        return None
