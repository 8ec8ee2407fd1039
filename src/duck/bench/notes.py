"""What stands below a table: failures, what is not in it, and what its numbers rest on."""

from collections.abc import Iterable, Mapping
from typing import Any

from duck.audits.roc import RATES, least_others
from duck.bench.grids import Cell
from duck.bench.lines import Line
from duck.bench.results import Results

Row = Mapping[str, Any]
CELL = ("dataset", "scenario", "case", "method", "preset")


def part(row: Row, with_pool: bool) -> str:
    """Of which table: data set, scenario and, where there are several, the shadow models."""
    return f"{row['dataset']}, {row['scenario']}" + (f", pool {row['shadows']['pool']}" if with_pool else "")


def of_runs(row: Row, with_pool: bool) -> list[str]:
    who = f"{part(row, with_pool)}, {row['method']} ({row['preset']})"
    failed = [f"{who} failed in {count} of {row['of']}: {error}" for error, count in row["errors"].items()]
    return failed + [f"{who}, {count} of {row['n']}: {note}" for note, count in row["notes"].items()]


def never_run(rows: Iterable[Row], with_pool: bool) -> list[str]:
    """Presets that have no row, a line for each table."""
    missing: dict[str, list[str]] = {}
    for row in rows:
        missing.setdefault(part(row, with_pool), []).append(f"{row['method']} ({row['preset']})")
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
    several = f"There are results of {len(sets)} pools of shadow models, each with rows of its own; --pool shows those of one."
    return [several, *told] if len(sets) > 1 else told


def unresolved(used: Iterable[Line]) -> list[str]:
    """The rates that too few non-members cannot show, which a line holds as None."""
    scores = [line["scores"] for line in used]
    return [
        f"TPR@{100 * rate:g}%FPR is left out where there are fewer than {least_others(rate):,} non-members: they cannot show so low a rate."
        for rate in RATES
        if any(score.get(f"tpr_{100 * rate:g}", 0) is None for score in scores)
    ]


def strays(asked: Iterable[Cell], used: Iterable[Line], results: Results, attack: str | None) -> list[str]:
    """Settings change; results of the old ones stay in the files but do not belong in the table."""
    names = {(c.block.dataset, c.block.scenario, c.case, c.method, preset) for c in asked for preset in c.presets}
    kept = {id(line) for line in used}
    alike = [line for line in results.done.values() if tuple(line[key] for key in CELL) in names]
    count = sum(id(line) not in kept and line.get("attack", {}).get("name") == attack for line in alike)
    others = "other settings or shadow models" if attack == "lira" else "other settings"
    return [f"Left out: {count} results of the same cells with {others}."] if count else []
