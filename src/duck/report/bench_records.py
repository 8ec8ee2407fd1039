"""Results of a bench as the page shows them: unlearnings, ROC curves, densities of classes."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Protocol, TypeVar, get_args

from duck.bench.results import Result as BenchResult
from duck.experiment import Experiment, from_dict
from duck.methods.presets import Preset, preset
from duck.report.groups import Group, group_of
from duck.report.results import Result, class_count_of, comparison_key_of, method_label
from duck.scenarios import ForgetRandomClasses, describe

OTHER_SETTINGS = ", other settings"
"""Marks a preset whose settings have changed since the result was stored."""


@dataclass(frozen=True)
class AttackCurve:
    """The ROC curve of an attack on one model of a bench."""

    attack: str
    data: str
    request: str
    """What was forgotten: "a class", "4 classes" or "samples"."""
    method: str
    preset: str
    fpr: Sequence[float]
    tpr: Sequence[float]
    non_members: int | None = None
    """Their number limits the lowest false-positive rate. None if it is not known."""
    known_group: Group | None = None
    """Data, model and recipe, if they are known."""

    @property
    def group(self) -> Group:
        return self.known_group or Group(self.data)


@dataclass(frozen=True)
class ClassDensities:
    """The density of each class in the feature space of one model."""

    group: Group
    method: str
    preset: str
    comparison_key: str
    """The same for all models of one request."""
    forgotten_classes: Sequence[int]
    splits: Mapping[str, Mapping[str, float | None]]
    """Log density of each class on training and on test samples."""


class HasPreset(Protocol):
    """A result of a bench."""

    @property
    def preset(self) -> str: ...


AnyResult = TypeVar("AnyResult", bound=HasPreset)


def drop_past_settings(
    results: Sequence[AnyResult],
    key: Callable[[AnyResult], Hashable],
) -> list[AnyResult]:
    """Leave out results whose settings no preset has now, as the tables of a bench do.

    They stay if no result with the same key has the present settings.
    """
    is_past = [OTHER_SETTINGS in result.preset for result in results]
    keys = [key(result) for result in results]
    current_keys = {known for known, past in zip(keys, is_past, strict=True) if not past}
    selected = [
        not past or known not in current_keys for known, past in zip(keys, is_past, strict=True)
    ]
    return list(compress(results, selected))


def read_bench_results(records: Iterable[BenchResult]) -> list[Result]:
    """Return the unlearnings of a bench, without originals, attacks, studies and failures."""
    unlearnings = [record for record in _successful(records) if not record.study]
    return [_result_of(record) for record in unlearnings if "aus" in record.scores]


def read_bench_curves(records: Iterable[BenchResult]) -> list[AttackCurve]:
    """Return the ROC curves of the attacks of a bench.

    Attacks with different pools are different attacks.
    """
    attacked = [record for record in records if record.attack and record.roc]
    pools = {_pool_of(record) for record in attacked} - {None}
    return [_curve_of(record, name_pool=len(pools) > 1) for record in attacked]


def read_bench_densities(records: Iterable[BenchResult]) -> list[ClassDensities]:
    """Return the densities of classes that the study `density` of a bench measured."""
    studies = [record for record in _successful(records) if record.study]
    return [_densities_of(record) for record in studies if record.measurement_name == "density"]


def _successful(records: Iterable[BenchResult]) -> list[BenchResult]:
    """Leave out the training of originals and failures."""
    return [record for record in records if record.method and not record.failed]


def _result_of(record: BenchResult) -> Result:
    experiment = from_dict(record.experiment)
    return Result(
        name=f"{record.dataset}, {_case_label(record, experiment)}",
        experiment=experiment,
        kind=str(record.scenario),
        scores=record.scores,
        original=record.original or {},
        samples={"forget": record.forget_samples or 0},
        seconds=record.seconds,
        prepare_seconds=record.prepare_seconds,
        device=record.device,
        notes=record.notes,
        preset=_preset_label(record, experiment),
        is_timed=record.alone,
        variant=record.variant,
    )


def _curve_of(record: BenchResult, name_pool: bool) -> AttackCurve:
    experiment = from_dict(record.experiment)
    roc = record.roc or {}
    attack = record.measurement_name or ""
    pool = _pool_of(record)
    if name_pool and pool is not None:
        attack += f" with pool {pool[:8]}"
    return AttackCurve(
        attack=attack,
        data=record.dataset,
        request=_request_label(record, experiment),
        method=_method_label(record),
        preset=_preset_label(record, experiment),
        fpr=roc["fpr"],
        tpr=roc["tpr"],
        non_members=roc.get("others"),
        known_group=group_of(experiment.training),
    )


def _pool_of(record: BenchResult) -> str | None:
    """Return the digest of the shadow models that an attack compared with, if it has any."""
    pool = (record.attack or {}).get("pool")
    return None if pool is None else str(pool)


def _densities_of(record: BenchResult) -> ClassDensities:
    experiment = from_dict(record.experiment)
    return ClassDensities(
        group=group_of(experiment.training),
        method=_method_label(record),
        preset=_preset_label(record, experiment),
        comparison_key=comparison_key_of(experiment),
        forgotten_classes=record.forgotten or [],
        splits=record.density or {},
    )


def _method_label(record: BenchResult) -> str:
    return method_label(str(record.method), record.variant)


def _request_label(record: BenchResult, experiment: Experiment) -> str:
    if record.scenario != "class":
        return "samples"
    count = class_count_of(experiment.request) or 1
    return "a class" if count == 1 else f"{count} classes"


def _case_label(record: BenchResult, experiment: Experiment) -> str:
    """Return which classes were forgotten, or the seed that chose the classes or samples."""
    if isinstance(experiment.request, ForgetRandomClasses):
        return f"{describe(experiment.request)}, seed {record.case}"
    if record.scenario != "class":
        return f"seed {record.case}"
    word = "classes" if (class_count_of(experiment.request) or 1) > 1 else "class"
    return f"{word} {record.case}"


def _preset_label(record: BenchResult, experiment: Experiment) -> str:
    """Return the name of the preset, and whether it had other settings than now.

    A user's own grid can have other settings, and so can a result from before a tuning.
    """
    if record.preset not in get_args(Preset):
        # The original and the retrained model have a recipe instead of a preset.
        return str(record.preset)
    name: Preset = "tuned" if record.preset == "tuned" else "paper"
    current = preset(
        str(record.method), record.dataset, str(record.scenario), record.train_samples, name
    )
    # A variant differs from the preset by definition, and its name says so.
    is_current = current == experiment.method or record.variant
    return name if is_current else f"{name}{OTHER_SETTINGS}"
