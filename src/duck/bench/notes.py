"""What stands below a table: failures, what is not in it, and what its numbers rest on."""

from collections.abc import Iterable, Mapping
from typing import Any

from duck.audits.roc import RATES, least_others
from duck.bench.grids import Cell
from duck.bench.results import Result, Results

Row = Mapping[str, Any]


def _cell_of(line: Result) -> tuple[Any, ...]:
    """Return what tells the cells of grids apart, whatever their settings."""
    names = line.dataset, line.scenario, line.case, line.method, line.preset
    removed = None if line.stored.request is None else line.stored.request.size
    return (*names, line.variant, line.training.model, line.recipe, removed)


def _names_of(cell: Cell) -> list[tuple[Any, ...]]:
    """Return the same of a cell, once for each preset that it stands for."""
    block = cell.block
    before = block.dataset, block.scenario, cell.case, cell.method
    share = block.fraction if block.scenario == "samples" else None
    after = cell.variant, block.model, block.recipe_preset, block.random_classes or share
    return [(*before, preset, *after) for preset in cell.presets]


def part(row: Row, with_pool: bool) -> str:
    """Of which table: data set, scenario and, where there are several, the shadow models."""
    return f"{row['dataset']}, {row['scenario']}" + (
        f", pool {row['shadows']['pool']}" if with_pool else ""
    )


def name_of(row: Row) -> str:
    """Return the method of a row with its variant and preset, and what else tells it from others."""
    removed = row.get("removed") or 1
    words = [f"{removed} classes"] if removed > 1 else []
    words += [row["model"]] if row["model"] != "resnet18" else []
    words += [row["method"], row["variant"]] if row["variant"] else [row["method"]]
    return f"{', '.join(words)} ({row['preset']})"


def of_runs(row: Row, with_pool: bool) -> list[str]:
    who = f"{part(row, with_pool)}, {name_of(row)}"
    failed = [
        f"{who} failed in {count} of {row['of']}: {error}" for error, count in row["errors"].items()
    ]
    return failed + [
        f"{who}, {count} of {row['n']}: {note}" for note, count in row["notes"].items()
    ]


def never_run(rows: Iterable[Row], with_pool: bool) -> list[str]:
    """Presets that have no row, a line for each table."""
    missing: dict[str, list[str]] = {}
    for row in rows:
        missing.setdefault(part(row, with_pool), []).append(name_of(row))
    return [f"Never run in {where}: {', '.join(who)}." for where, who in missing.items()]


def compared_with(rows: Iterable[Row]) -> list[str]:
    """The shadow models of LiRA, each set of them once."""
    sets = {row["shadows"]["pool"]: row["shadows"] for row in rows if row.get("shadows")}
    told = [
        f"Compared with {about['models']} shadow models, trained on random halves for {about['epochs']} epochs: accuracy "
        f"{100 * about['train']:.1f} % on what they saw, {100 * about['test']:.1f} % on test samples (pool {about['pool']})."
        for about in sets.values()
        if "models" in about
    ]
    told += [_mismatch(about) for about in sets.values() if about.get("differs")]
    several = f"There are results of {len(sets)} pools of shadow models, each with rows of its own; --pool shows those of one."
    return [several, *told] if len(sets) > 1 else told


def _mismatch(about: Mapping[str, Any]) -> str:
    """Say in what the recipe of the shadow models differs from that of their targets."""
    differences = "; ".join(
        f"{name} {mine} instead of {theirs}" for name, (mine, theirs) in about["differs"].items()
    )
    mine, theirs = about["differs"].get("epochs", (0, 0))
    found = "are lower bounds of" if mine < theirs else "may differ from"
    return (
        f"Mismatched pool {about['pool']}: its models were trained otherwise than the targets "
        f"({differences}). The rates {found} what a matched attack would find."
    )


def unresolved(used: Iterable[Result]) -> list[str]:
    """The rates that too few non-members cannot show, which a line holds as None."""
    scores = [line.scores for line in used]
    return [
        f"TPR@{100 * rate:g}%FPR is left out where there are fewer than {least_others(rate):,} non-members: they cannot show so low a rate."
        for rate in RATES
        if any(score.get(f"tpr_{100 * rate:g}", 0) is None for score in scores)
    ]


def strays(
    asked: Iterable[Cell], used: Iterable[Result], results: Results, measurement: str | None
) -> list[str]:
    """Settings change; results of the old ones stay in the files but do not belong in the table.

    Results of other architectures, recipes or variants belong to other grids and are not counted.
    """
    names = {name for cell in asked for name in _names_of(cell)}
    shown = {id(line) for line in used}
    alike = [line for line in results.done.values() if _cell_of(line) in names]
    others = [line for line in alike if id(line) not in shown]
    count = sum(line.measurement_name == measurement for line in others)
    what = "other settings or shadow models" if measurement == "lira" else "other settings"
    return [f"Left out: {count} results of the same cells with {what}."] if count else []
