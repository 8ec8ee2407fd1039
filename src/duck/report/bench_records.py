"""Results of a bench as the page shows them: unlearnings, ROC curves, densities of classes."""

from collections.abc import Hashable, Iterable, Sequence
from typing import cast, get_args

from duck.bench.results import Result as BenchResult
from duck.methods.presets import Preset, preset
from duck.report.results import Result
from duck.scenarios import ForgetFraction, ForgetRandomClasses, describe

OTHER_SETTINGS = ", other settings"
"""Marks a preset whose settings have changed since the result was stored."""


def read_bench(records: Iterable[BenchResult]) -> list[Result]:
    """Return the results of a bench that a page shows, without originals and failures."""
    unlearnings = [record for record in records if record.method and not record.failed]
    visible = [
        record
        for record in unlearnings
        if (record.attack and record.roc)
        or record.measurement_name == "density"
        or (not record.study and "aus" in record.scores)
    ]
    pools = {_pool_of(record) for record in visible if record.roc} - {""}
    return [_result_of(record, name_pool=len(pools) > 1) for record in visible]


def current_results(results: Sequence[Result]) -> list[Result]:
    """Leave out results whose settings no preset has now, as the tables of a bench do.

    They stay if no result of the same method, group, request and attack has present settings.
    """

    def key(result: Result) -> Hashable:
        return result.label, result.group, result.request_size, result.attack

    current = {key(result) for result in results if OTHER_SETTINGS not in result.preset}
    return [
        result
        for result in results
        if OTHER_SETTINGS not in result.preset or key(result) not in current
    ]


def _result_of(record: BenchResult, name_pool: bool) -> Result:
    pool = _pool_of(record)
    pool_note = f" with pool {pool[:8]}" if name_pool and pool else ""
    request = record.experiment.request
    assert request is not None
    is_random = isinstance(request, ForgetRandomClasses | ForgetFraction)
    seed = f", seed {record.case}" if is_random else ""
    return Result(
        name=f"{record.dataset}, {describe(request)}{seed}",
        experiment=record.experiment,
        kind=str(record.scenario),
        scores=record.scores,
        original=record.original or {},
        samples={"forget": record.forget_samples or 0},
        seconds=record.seconds,
        preset=_preset_label(record),
        variant=record.variant,
        is_timed=record.alone,
        # Attacks with different pools are different attacks.
        attack=f"{record.measurement_name}{pool_note}",
        roc=record.roc if record.attack else None,
        densities=record.density if record.study else None,
        forgotten_classes=record.forgotten or (),
    )


def _pool_of(record: BenchResult) -> str:
    """Return the digest of the shadow models that an attack compared with, if it has any."""
    return record.attack.pool if record.attack else ""


def _preset_label(record: BenchResult) -> str:
    """Return the name of the preset, and whether it had other settings than now.

    A user's own grid can have other settings, and so can a result from before a tuning.
    """
    name = str(record.preset)
    # Original and Retrained have a recipe instead. A variant differs by definition.
    if name not in get_args(Preset) or record.variant:
        return name
    facts = record.dataset, str(record.scenario), record.train_samples
    current = preset(str(record.method), *facts, cast(Preset, name))
    return name if current == record.experiment.method else f"{name}{OTHER_SETTINGS}"
