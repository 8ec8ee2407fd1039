"""The notes below a table: failures, results that are left out, and facts about its numbers."""

from collections.abc import Iterable
from typing import Any

from duck.audits.statistics import RATES, least_others
from duck.bench.grids import Grid
from duck.bench.groups import Group
from duck.bench.results import Result, Results
from duck.bench.table_rows import TableRow


def run_notes(row: TableRow) -> list[str]:
    """Return the failures and the notes of the runs of a row, with their counts."""
    title = f"{row.group.where}, {row.group.name}"
    n, of = row.names["n"], row.names["of"]
    failed = [f"{title} failed in {count} of {of}: {error}" for error, count in row.errors.items()]
    return failed + [f"{title}, {count} of {n}: {note}" for note, count in row.notes.items()]


def never_run(groups: Iterable[Group]) -> list[str]:
    """Name the presets that have no row, in a line for each part of the table."""
    missing: dict[str, list[str]] = {}
    for group in groups:
        missing.setdefault(group.where, []).append(group.name)
    return [f"Never run in {where}: {', '.join(names)}." for where, names in missing.items()]


def shadow_notes(rows: Iterable[TableRow]) -> list[str]:
    """Describe each set of shadow models that LiRA compared with."""
    pools = {row.group.pool: row for row in rows if row.group.pool}
    notes = [
        f"Compared with {facts.models} shadow models, trained on random halves for "
        f"{facts.epochs} epochs: accuracy {100 * facts.train:.1f} % on what they saw, "
        f"{100 * facts.test:.1f} % on test samples (pool {facts.pool})."
        for facts in (row.shadows for row in pools.values())
        if facts
    ]
    notes += [_mismatch(row) for row in pools.values() if row.differs]
    several = (
        f"There are results of {len(pools)} pools of shadow models, each with rows of its own; "
        "--pool shows those of one."
    )
    return [several, *notes] if len(pools) > 1 else notes


def _mismatch(row: TableRow) -> str:
    """Describe how the recipe of the shadow models differs from that of their targets."""
    differences = "; ".join(
        f"{name} {ours} instead of {theirs}" for name, (ours, theirs) in row.differs.items()
    )
    _, epochs = row.differs.get("epochs", (0, 0))
    is_shorter = row.shadows is not None and row.shadows.epochs < epochs
    found = "are lower bounds of" if is_shorter else "may differ from"
    return (
        f"Mismatched pool {row.group.pool}: its models were trained otherwise than the targets "
        f"({differences}). The rates {found} what a matched attack would find."
    )


def unresolved_rates(used: Iterable[Result]) -> list[str]:
    """Name the rates that are None because there are too few non-members."""
    scores = [result.scores for result in used]
    return [
        f"TPR@{100 * rate:g}%FPR is left out where there are fewer than {least_others(rate):,} "
        "non-members: they cannot show so low a rate."
        for rate in RATES
        if any(score.get(f"tpr_{100 * rate:g}", 0) is None for score in scores)
    ]


def left_out(
    chosen: Iterable[Group], every: Iterable[Group], results: Results, grid: Grid
) -> list[str]:
    """Count the results of the chosen cells with other settings, which the table does not show.

    Results of other architectures, recipes or variants belong to other grids and are not counted.
    """
    cells: set[tuple[Any, ...]] = set()
    for group in chosen:
        for cell in group.cells:
            original = cell.block.dataset, cell.block.model, cell.block.recipe_preset
            run = cell.block.request(cell.case), cell.case, cell.method, cell.variant
            cells |= {(*original, *run, preset) for preset in cell.presets}
    used = {id(result) for group in every for result in group.results.values()}
    count = 0
    for one in results.done.values():
        if one.measurement_name == grid.measurement_name and id(one) not in used:
            place = one.dataset, one.training.model, one.recipe, one.experiment.request
            count += (*place, one.case, one.method, one.variant, one.preset) in cells
    is_compared = grid.attack is not None and grid.attack.needs_pool
    what = "other settings or shadow models" if is_compared else "other settings"
    return [f"Left out: {count} results of the same cells with {what}."] if count else []
