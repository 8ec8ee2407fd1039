"""Runs on disk with their audits and analyses, read once. Nothing is computed anew."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from duck import runs
from duck.analysis import bias, study
from duck.audits.next_step import audit_command_here
from duck.audits.verdict import NO_VERDICT, NOT_FORGOTTEN, OLD_FILE, TIERS, Tier, file_of
from duck.errors import BadInput, DuckError
from duck.experiment import Experiment, to_dict
from duck.json_text import to_json
from duck.methods.base import METHODS
from duck.report.groups import Group, group_of
from duck.report.numbers import Measured, aus_range, share
from duck.report.record_schema import ANALYSIS as ANALYSIS_SHAPE
from duck.report.record_schema import AUDIT
from duck.runs import Run
from duck.scenarios import ForgetClasses, ForgetRandomClasses, Request, describe
from duck.schema import Check, Wrong, read_json

ANALYSIS, BIAS = study.RESULT, bias.RESULT
ROW, FIRST, LETTERS = 48, 3, 25
"""Letters of a row of names that is shown whole; of longer ones, the names that are, and the letters of each."""
AUDITS: dict[str, Tier] = {**{file_of(tier): tier for tier in TIERS}, OLD_FILE: "quick"}
"""Files of audits, and which tier makes each again."""


@dataclass(frozen=True)
class Unread:
    """A run, or a file beside one, that the page is made without."""

    folder: Path
    """Of the run, or what was given in place of one."""
    file: str
    """Beside the run; empty where the run itself is unread."""
    message: str
    """Which, why, and what to do."""

    @property
    def shown(self) -> str:
        """The same for a page, which names folders by their last part."""
        return self.message.replace(f"{self.folder.parent}{os.sep}", "")


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
    timed: bool = True
    """Whether the run had its device for itself. If not, its time is not shown."""
    variant: str = ""
    """What a bench changed in the method, such as "no forget loss"."""

    @property
    def request(self) -> Request:
        assert self.experiment.request is not None
        return self.experiment.request

    @cached_property
    def group(self) -> Group:
        """Entries of different groups do not belong in one plot."""
        return group_of(self.experiment.training)

    @property
    def data(self) -> str:
        """A name; of one's own data, which may be others under the same name, with a part of their fingerprint."""
        return self.group.data

    @property
    def method(self) -> str:
        assert self.experiment.method is not None
        return METHODS.name_of(self.experiment.method)

    @property
    def label(self) -> str:
        """The method with its variant: a name for tables and figures."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    @cached_property
    def asked(self) -> str:
        """In a few words, however many classes go and however long their names are."""
        if not isinstance(self.request, ForgetClasses):
            return self.asked_whole
        return f"{'class' if self.removed == 1 else 'classes'} {shortened(list(map(str, self.request.classes)))}{self._after}"

    @cached_property
    def asked_whole(self) -> str:
        return describe(self.request) + self._after

    @property
    def _after(self) -> str:
        """The number of earlier requests: runs that start from other models are not of the same request."""
        count = len(self.experiment.earlier)
        return (
            f" (after {count} earlier {'request' if count == 1 else 'requests'})" if count else ""
        )

    @property
    def removed(self) -> int | None:
        """How many classes, where whole classes go."""
        return removed_classes(self.request)

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
        return aus_range(
            self.kind,
            self.scores.get("aus"),
            self.original.get(self.kept_name),
            self.kept,
            self.gone,
        )

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
        return question_of(self.experiment)


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
    unread: Sequence[Unread] = ()
    """Files beside it."""

    @property
    def audit_unread(self) -> bool:
        """It was audited, but by no file that can be read."""
        return self.audit is None and any(one.file.startswith("audit") for one in self.unread)

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
        return (
            [int(index) for index in self.run.by_class.get("forget", ())]
            if self.entry.kind == "class"
            else []
        )


def removed_classes(request: Request | None) -> int | None:
    """How many classes a request removes, where it removes whole classes."""
    match request:
        case ForgetClasses(classes=classes):
            return len(classes)
        case ForgetRandomClasses(count=count):
            return count
    return None


def question_of(experiment: Experiment) -> str:
    """All of an experiment but its method, as text."""
    plain = to_dict(experiment)
    rest = {key: value for key, value in plain.items() if key != "method"}
    return to_json(rest, sort_keys=True)


def shortened(names: Sequence[str]) -> str:
    """Names in a row; of long rows the first few, with how many others there are."""
    whole = ", ".join(names)
    if len(whole) <= ROW:
        return whole
    some = ", ".join(cut(name) for name in names[:FIRST])
    others = len(names) - FIRST
    return some if others <= 0 else f"{some} and {others} {'other' if others == 1 else 'others'}"


def cut(name: str) -> str:
    """Longer names would leave a phone no room; they stand whole elsewhere."""
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def read(folders: Iterable[Path]) -> list[Stored]:
    """Runs, each once; a folder of runs stands for all unlearnings in it. Bias removals are passed over. A broken run is an error."""
    runs, unread = survey(folders)
    if unread:
        raise BadInput(unread[0].message)
    return runs


def survey(folders: Iterable[Path]) -> tuple[list[Stored], list[Unread]]:
    """The runs that can be read, as `read` has them, and those that cannot."""
    found: dict[Path, Path] = {}
    runs: list[Stored] = []
    unread: list[Unread] = []
    for folder in folders:
        try:
            found |= {run.resolve(): run for run in sorted_out(folder)[0]}
        except BadInput as error:
            unread.append(Unread(folder, "", str(error)))
    names = distinct(list(found.values()))
    for number, (folder, name) in enumerate(zip(found.values(), names, strict=True), 1):
        try:
            runs.append(_named(folder, name, number))
        except BadInput as error:
            unread.append(Unread(folder, "", str(error)))
    return runs, unread


def distinct(folders: Sequence[Path]) -> list[str]:
    """Their last parts; where several share one, with as many of the parts before it as tell them apart."""
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


def anchor(kind: str, number: int, name: str) -> str:
    """A place in the page."""
    return f"{kind}-{number}-{re.sub(r'[^A-Za-z0-9]+', '-', name)}"


def sorted_out(path: Path) -> tuple[list[Path], list[Path]]:
    """Unlearnings and bias removals: the folder itself, or those in it. Runs that cannot be read are among the unlearnings."""
    if path.suffix == ".jsonl" and path.is_file():
        raise BadInput(f"{path} is a file; lines of `duck bench` are given as --results FOLDER.")
    if (path / BIAS).exists():
        return [], [path]
    if runs.is_run(path) or not path.is_dir():
        return [path], []
    removals = _removals(path)
    unlearnings = [run for run in runs.find_runs(path) if not _is_original(run)]
    if not unlearnings and not removals:
        raise BadInput(
            f"{path} holds no unlearning: `duck forget --out {path}/NAME` would make one."
        )
    return unlearnings, removals


def _removals(folder: Path) -> list[Path]:
    return sorted(
        file.parent for file in folder.glob(f"*/{BIAS}") if not file.parent.name.startswith(".")
    )


def _is_original(folder: Path) -> bool:
    try:
        experiment = read_json(folder / runs.RECORD)["experiment"]
        return "training" in experiment and not experiment.get("method")
    except (Wrong, KeyError, TypeError, AttributeError):
        return False


def _named(folder: Path, name: str, number: int) -> Stored:
    """Of fifty runs nobody finds the broken one unless it is named."""
    try:
        return _stored(folder, name, anchor("run", number, name))
    except DuckError as error:
        raise BadInput(str(error) if str(folder) in str(error) else f"{folder}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
        raise BadInput(
            f"{folder} does not hold what a run holds ({why}): it is broken, or of another version. Leave it out, or make it anew."
        ) from error


def _stored(folder: Path, name: str, anchor: str) -> Stored:
    run = runs.load(folder)
    row = runs.row(folder, run)
    kind = run.by_class.get("kind") or ("class" if run.samples.get("forget_test") else "samples")
    entry = Entry(
        name, run.experiment, kind, run.scores, run.original or {}, run.samples, run.seconds, run.prepare_seconds,
        str(run.environment.get("device", "")), row["notes"],
    )  # fmt: skip
    unread: list[Unread] = []
    audits = [
        _beside(folder, file, AUDIT, audit_command_here(run, folder, tier), unread)
        for file, tier in AUDITS.items()
    ]
    analysis = _beside(
        folder, ANALYSIS, ANALYSIS_SHAPE, shlex.join(["duck", "analyse", str(folder)]), unread
    )
    return Stored(folder, run, entry, anchor, _strongest(audits), analysis, unread)


def _strongest(audits: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The one of the highest tier that came to a verdict, whichever was made last; where none did, the highest.

    What a lower tier found against the model is among its reasons, also where it was stored by a version that did not carry it.
    """
    found = [audit for audit in audits if audit is not None]
    chosen = max(
        found, key=lambda audit: (audit["verdict"] != NO_VERDICT, _rank(audit)), default=None
    )
    if chosen is None:
        return None
    reasons = list(chosen.get("reasons", []))
    for audit in found:
        if audit["verdict"] == NOT_FORGOTTEN and _rank(audit) < _rank(chosen):
            missing = [
                reason
                for reason in audit.get("reasons", [])
                if not any(reason in known for known in reasons)
            ]
            reasons += [
                f"{str(audit['tier']).capitalize()} tier, {NOT_FORGOTTEN}: {reason}"
                for reason in missing
            ]
    return {**chosen, "reasons": reasons}


def _rank(audit: Mapping[str, Any]) -> int:
    return TIERS.index(audit["tier"]) if audit.get("tier") in TIERS else -1


def _beside(
    folder: Path, file: str, shape: Check, command: str, unread: list[Unread]
) -> dict[str, Any] | None:
    """What a file beside a run holds, if it is there; one that cannot be used joins the unread."""
    path = folder / file
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = read_json(path)
        shape(found, "")
    except Wrong as wrong:
        unread.append(
            Unread(
                folder,
                file,
                f"{path} cannot be used: {wrong}. Delete it and run `{command}` again.",
            )
        )
        return None
    return found
