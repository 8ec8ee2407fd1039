"""The notes below a table: failures, results that are left out, and facts about its numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

from duck.audits.statistics import RATES, least_others
from duck.bench.grids import Cell
from duck.bench.groups import Group
from duck.bench.results import Result, Results
from duck.scenarios import ForgetRandomClasses

Row = Mapping[str, Any]


def _cell_of(line: Result) -> tuple[Any, ...]:
    """Return what distinguishes the cells of grids, apart from the settings of methods."""
    names = line.dataset, line.scenario, line.case, line.method, line.preset
    request = line.experiment.request
    size = getattr(request, "fraction", None)
    if isinstance(request, ForgetRandomClasses):
        size = request.count
    return (*names, line.variant, line.training.model, line.recipe, size)


def _names_of(cell: Cell) -> list[tuple[Any, ...]]:
    """Return the same for a cell, once for each of its presets."""
    block = cell.block
    before = block.dataset, block.scenario, cell.case, cell.method
    share = block.fraction if block.scenario == "samples" else None
    after = cell.variant, block.model, block.recipe_preset, block.random_classes or share
    return [(*before, preset, *after) for preset in cell.presets]


def run_notes(group: Group, row: Row) -> list[str]:
    """Return the failures and the notes of the runs of a row, with their counts."""
    title = f"{group.where}, {group.name}"
    failed = [
        f"{title} failed in {count} of {row['of']}: {error}"
        for error, count in row["errors"].items()
    ]
    return failed + [
        f"{title}, {count} of {row['n']}: {note}" for note, count in row["notes"].items()
    ]


def never_run(groups: Iterable[Group]) -> list[str]:
    """Name the presets that have no row, in a line for each part of the table."""
    missing: dict[str, list[str]] = {}
    for group in groups:
        missing.setdefault(group.where, []).append(group.name)
    return [f"Never run in {where}: {', '.join(names)}." for where, names in missing.items()]


def shadow_notes(rows: Iterable[Row]) -> list[str]:
    """Describe each set of shadow models that LiRA compared with."""
    sets = {row["shadows"]["pool"]: row["shadows"] for row in rows if row.get("shadows")}
    notes = [
        f"Compared with {facts['models']} shadow models, trained on random halves for "
        f"{facts['epochs']} epochs: accuracy {100 * facts['train']:.1f} % on what they saw, "
        f"{100 * facts['test']:.1f} % on test samples (pool {facts['pool']})."
        for facts in sets.values()
        if "models" in facts
    ]
    notes += [_mismatch(facts) for facts in sets.values() if facts.get("differs")]
    several = (
        f"There are results of {len(sets)} pools of shadow models, each with rows of its own; "
        "--pool shows those of one."
    )
    return [several, *notes] if len(sets) > 1 else notes


def _mismatch(facts: Mapping[str, Any]) -> str:
    """Describe how the recipe of the shadow models differs from that of their targets."""
    differences = "; ".join(
        f"{name} {mine} instead of {theirs}" for name, (mine, theirs) in facts["differs"].items()
    )
    mine, theirs = facts["differs"].get("epochs", (0, 0))
    found = "are lower bounds of" if mine < theirs else "may differ from"
    return (
        f"Mismatched pool {facts['pool']}: its models were trained otherwise than the targets "
        f"({differences}). The rates {found} what a matched attack would find."
    )


def unresolved_rates(used: Iterable[Result]) -> list[str]:
    """Name the rates that are None because there are too few non-members."""
    scores = [line.scores for line in used]
    return [
        f"TPR@{100 * rate:g}%FPR is left out where there are fewer than {least_others(rate):,} "
        "non-members: they cannot show so low a rate."
        for rate in RATES
        if any(score.get(f"tpr_{100 * rate:g}", 0) is None for score in scores)
    ]


def left_out(
    chosen: Iterable[Group], every: Iterable[Group], results: Results, measurement: str | None
) -> list[str]:
    """Count the results of the chosen cells with other settings, which the table does not show.

    Results of other architectures, recipes or variants belong to other grids and are not counted.
    """
    names: set[tuple[Any, ...]] = set()
    for group in chosen:
        for cell in group.cells:
            names.update(_names_of(cell))
    used = {id(line) for group in every for line in group.lines.values()}
    others = [
        line
        for line in results.done.values()
        if line.measurement_name == measurement and id(line) not in used and _cell_of(line) in names
    ]
    what = "other settings or shadow models" if measurement == "lira" else "other settings"
    return [f"Left out: {len(others)} results of the same cells with {what}."] if others else []
