"""What a report shows, read from disk: runs with audits and analyses, and bias removals."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from duck import runs
from duck.analysis import bias, study
from duck.analysis.study import Analysis, ShapImage
from duck.assurance import Assurance
from duck.audits import verdict
from duck.audits.next_step import audit_command
from duck.audits.options import AuditOptions
from duck.audits.strongest_audit import strongest_audit
from duck.audits.verdict import Audit, RocCurve
from duck.errors import BadInput, DuckError
from duck.files import check_regular, finish_replacing
from duck.printable import path_from_here
from duck.records import InvalidRecord, read_json, read_record
from duck.report.results import Result
from duck.report.samples import Sample
from duck.runs import Run
from duck.scenarios import ForgetClasses
from duck.types import Estimate

T = TypeVar("T")
ANALYSIS_FILE = study.RESULT
BIAS_MODELS = {"biased": "biased", "duck": "DUCK", "corrected": "corrected"}
"""The models of a bias removal, and how the page names them."""
SHARES = ("wrong", "right", "right_without_patch")


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
        """The message for the page, with the path as the page shows it."""
        return self.message.replace(str(self.folder), path_from_here(self.folder))


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run folder: the run, its strongest audit and its analysis."""

    folder: Path
    run: Run
    result: Result
    anchor: str
    """The id of its section on the page."""
    audit: Audit | None = None
    analysis: Analysis = field(default_factory=Analysis)
    assurance: Assurance | None = None
    """Which methods were tried, if the method was chosen by audits."""
    problems: Sequence[ReadProblem] = ()
    """Files in the folder that cannot be read."""
    samples: Sequence[Sample] = ()
    """Forgotten samples to show."""

    @property
    def verdict(self) -> str:
        """The verdict of the audit, or why there is none."""
        if self.audit is not None:
            return self.audit.verdict
        is_damaged = any(problem.file.startswith("audit") for problem in self.problems)
        return "unreadable audit" if is_damaged else "no audit"

    @property
    def state(self) -> str:
        """The verdict, or `damaged` if too much accuracy was lost: it selects sign and colour."""
        return "damaged" if self.run.status == "damaged" else self.verdict.replace(" ", "-")

    @property
    def is_complete(self) -> bool:
        """Whether the method processed every sample, or is the original, which changes nothing."""
        samples = self.run.samples
        return samples["processed"] >= samples["forget"] or self.result.method == "original"

    @property
    def roc(self) -> Mapping[str, Mapping[str, RocCurve]]:
        """The ROC curves of the audit: attack -> model -> curve."""
        return {} if self.audit is None else self.audit.roc

    @property
    def class_names(self) -> list[str]:
        return self.run.by_class.names

    def class_name(self, index: int) -> str:
        """Return the name of a class, or its number if no name was stored."""
        return self.class_names[index] if index < len(self.class_names) else str(index)

    @property
    def forgotten_classes(self) -> list[int]:
        """The classes of the request; empty if it names samples."""
        return [int(index) for index in self.run.by_class.forget if self.result.kind == "class"]

    @property
    def forgotten_names(self) -> list[str]:
        """The classes of the request in quotes, by name if the run stores names."""
        names: Sequence[object] = [self.class_name(index) for index in self.forgotten_classes]
        if not names and isinstance(self.result.request, ForgetClasses):
            names = self.result.request.classes
        return [f"“{name}”" for name in names]

    @property
    def shap_images(self) -> list[ShapImage]:
        """The images whose SHAP maps the page may show: those that were not forgotten.

        A map shows the outline of its image.
        """
        images = [] if self.analysis.shap is None else self.analysis.shap.images
        return [image for image in images if not image.forgotten]

    @property
    def withheld_shap_images(self) -> int:
        """The number of images whose SHAP maps the page must not show."""
        shap = self.analysis.shap
        return 0 if shap is None else len(shap.images) - len(self.shap_images)


@dataclass(frozen=True, eq=False)
class StoredRemoval:
    """A bias that was planted and unlearned, from the folder of `duck debias --out`."""

    name: str
    record: bias.RemovalRecord
    maps: Mapping[str, npt.NDArray[Any]]
    """SHAP maps (N, H, W) of each model on the same images. Can be empty."""
    anchor: str
    """The id of its section on the page."""
    problems: Sequence[ReadProblem] = ()
    """Its maps, if they cannot be used."""

    def share(self, model: str, part: str) -> Estimate:
        """Return the share of unseen images with this prediction, with its stored interval."""
        stored: bias.MeasuredShare = getattr(self.record.predicted[model], part)
        return Estimate(stored.share, *stored.interval)


@dataclass(frozen=True)
class Contents:
    """What a report shows."""

    runs: Sequence[StoredRun] = ()
    removals: Sequence[StoredRemoval] = ()
    problems: Sequence[ReadProblem] = ()
    """Runs and removals that cannot be read."""
    bench: Sequence[Result] = ()
    """Results of `duck bench`: they join the table and the plots over all runs."""

    @property
    def results(self) -> list[Result]:
        """The results of stored runs and of a bench."""
        return [*(run.result for run in self.runs), *self.bench]

    @property
    def file_problems(self) -> list[ReadProblem]:
        """The files that cannot be read of the runs and removals on the page."""
        stored: list[StoredRun | StoredRemoval] = [*self.runs, *self.removals]
        return list(chain.from_iterable(one.problems for one in stored))


def read_runs(paths: Iterable[Path]) -> list[StoredRun]:
    """Read runs like `read`, and raise BadInput if something cannot be read."""
    contents = read(paths)
    for problem in contents.problems:
        raise BadInput(problem.message)
    return list(contents.runs)


def read(paths: Iterable[Path]) -> Contents:
    """Read runs and bias removals, each once; a folder of such folders stands for all of them.

    What cannot be read is returned as problems.
    """
    problems: list[ReadProblem] = []
    folders: dict[Path, Path] = {}
    for path in paths:
        try:
            folders |= {folder.resolve(): folder for folder in _find_folders(path)}
        except BadInput as error:
            problems.append(ReadProblem(path, "", str(error)))
    unlearnings: list[StoredRun] = []
    removals: list[StoredRemoval] = []
    for folder, name in zip(folders.values(), _names(folders), strict=True):
        try:
            if _is_removal(folder):
                anchor = make_anchor("bias", len(removals) + 1, name)
                removals.append(_read_removal(folder, name, anchor))
            else:
                anchor = make_anchor("run", len(unlearnings) + 1, name)
                unlearnings.append(_read_run(folder, name, anchor))
        except DuckError as error:
            # A page can have fifty runs: the message names the folder.
            message = str(error) if str(folder) in str(error) else f"{folder}: {error}"
            problems.append(ReadProblem(folder, "", message))
    return Contents(unlearnings, removals, problems)


def _is_removal(folder: Path) -> bool:
    return (folder / bias.RESULT).exists()


def _find_folders(path: Path) -> list[Path]:
    """Return the folders of unlearnings and bias removals: the path itself, or those in it."""
    if path.suffix == ".jsonl" and path.is_file():
        raise BadInput(f"{path} is a file. Pass results of `duck bench` with --results FOLDER.")
    if _is_removal(path) or runs.is_run(path) or not path.is_dir():
        return [path]
    found = [run for run in runs.find_runs(path) if not _is_original(run)]
    found += sorted(file.parent for file in path.glob(f"[!.]*/{bias.RESULT}"))
    if not found:
        raise BadInput(f"{path} holds no unlearning. Create one: `duck forget --out {path}/NAME`.")
    return found


def _is_original(folder: Path) -> bool:
    """Return whether a run is an original; one that cannot be read is not."""
    try:
        experiment = read_json(folder / runs.RECORD)["experiment"]
        return "training" in experiment and not experiment.get("method")
    except (InvalidRecord, KeyError, TypeError, AttributeError):
        return False


def _names(folders: Iterable[Path]) -> list[str]:
    """Return the last part of each path, with as many parent folders as make it unique."""
    paths = [folder.parts for folder in folders]
    names = []
    for path in paths:
        depth = 1
        while sum(other[-depth:] == path[-depth:] for other in paths) > 1:
            depth += 1
        names.append("/".join(path[-depth:]))
    return names


def make_anchor(kind: str, number: int, name: str) -> str:
    """Return the id of a section or figure."""
    return f"{kind}-{number}-{re.sub(r'[^A-Za-z0-9]+', '-', name)}"


def _read_run(folder: Path, name: str, anchor: str) -> StoredRun:
    run = runs.load(folder)
    if run.experiment.method is None:
        raise BadInput(f"{folder} is an original model, not an unlearning.")
    problems: list[ReadProblem] = []

    def read_file(file: str, cls: type[T], command: str) -> T | None:
        """Return the content of a file, or None; a damaged one adds to the problems."""
        path = folder / file
        try:
            return read_record(path, cls) if path.exists() else None
        except InvalidRecord as error:
            message = f"{path} cannot be used: {error}. Delete it and run `{command}` again."
            problems.append(ReadProblem(folder, file, message))
            return None

    audits = [
        read_file(verdict.file_of(tier), Audit, audit_command(run, str(folder), AuditOptions(tier)))
        for tier in verdict.TIERS
    ]
    analyse = shlex.join(["duck", "analyse", str(folder)])
    result = Result(
        name=name,
        experiment=run.experiment,
        kind=str(run.by_class.kind),
        scores=run.scores,
        original=run.original or {},
        samples=run.samples,
        seconds=run.seconds,
    )
    return StoredRun(
        folder,
        run,
        result,
        anchor,
        strongest_audit([audit for audit in audits if audit is not None]),
        read_file(ANALYSIS_FILE, Analysis, analyse) or Analysis(),
        read_file(runs.ASSURANCE, Assurance, "duck forget --assure"),
        problems,
    )


def _read_removal(folder: Path, name: str, anchor: str) -> StoredRemoval:
    finish_replacing(folder, bias.FILES)
    path = folder / bias.RESULT
    try:
        record = read_record(path, bias.RemovalRecord)
    except InvalidRecord as error:
        message = f"{path} is no bias removal: {error}. Create it again with `duck debias`."
        raise BadInput(message) from error
    path = folder / bias.MAPS
    try:
        return StoredRemoval(name, record, _read_maps(path) if path.exists() else {}, anchor)
    except InvalidRecord as error:
        advice = "Delete it, or create it again with `duck debias`."
        problem = ReadProblem(folder, path.name, f"{path} cannot be used: {error}. {advice}")
        return StoredRemoval(name, record, {}, anchor, [problem])


def _read_maps(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        check_regular(path)
        with path.open("rb") as opened, np.load(opened) as file:
            maps = {name: np.asarray(file[name], np.float32) for name in BIAS_MODELS}
    except OSError as error:
        raise InvalidRecord(f"it cannot be opened: {error.strerror}") from error
    except Exception as error:
        # numpy and zipfile raise errors of many classes for a damaged file.
        raise InvalidRecord(f"it is no npz file with the maps of each model: {error}") from error
    shapes = {array.shape for array in maps.values()}
    if len(shapes) > 1 or not all(array.ndim == 3 and array.size for array in maps.values()):
        raise InvalidRecord("it does not hold maps of the same images for each model")
    if not all(np.isfinite(array).all() for array in maps.values()):
        raise InvalidRecord("its maps hold a value that is not a number")
    return maps
