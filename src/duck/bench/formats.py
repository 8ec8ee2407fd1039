"""A table as text, Markdown, LaTeX, CSV or JSON."""

import csv
import io
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Literal

from duck.bench.columns import Column, find_attack
from duck.bench.table_rows import Table, TableRow, Trials
from duck.json_text import to_json

Format = Literal["text", "markdown", "latex", "csv", "json"]
MISSING = "missing"
MEMBERS = {
    "class": "forgotten against test samples of the class",
    "samples": "forgotten against test samples",
}
"""What an attack compares."""
SPLITS: dict[str | None, dict[str, str]] = {
    None: {
        "class": "kept: retain-test, forgotten: forget-test",
        "samples": "kept: test, forgotten: forgotten training samples",
    },
    "density": {"class": "mean log density in feature space"},
    "bias": {"bias": "unseen images with the square"},
    "time": {"class": "kept: retain-test", "samples": "kept: test"},
}
"""By the study of the table: what its numbers are about."""
EXTRA = {"model": "model", "recipe": "recipe", "classes removed": "removed", "share": "fraction"}
"""Columns for what differs between the rows of one part, and the fields of a row that they show."""
NAMES = {*EXTRA, "method", "preset"}
"""Columns of names, which stand to the left; numbers stand to the right."""
SHADOWS = ("pool", "models", "epochs", "train", "test")
BIAS_REMARK = (
    "Original: the model that learned the bias; Retrained: trained on all images with the right "
    "labels."
)
SECONDS = Column("seconds", digits=2)
Grid = list[list[str]]


def render(table: Table, form: Format) -> str:
    """Return a table as text, without a newline at the end."""
    return FORMATS[form](table)


def _in_paper(table: Table) -> bool:
    """Return whether the paper has any of these numbers; if not, there is no column for them."""
    every = [value for row in table.visible_rows for value in row.values.values()]
    return any(value.paper is not None for value in every)


def _has_trials(table: Table) -> bool:
    return table.has_search and any(row.trials for row in table.visible_rows)


def _has_gaps(table: Table) -> bool:
    """Return whether there is a retrained model to compare with; times have a ratio instead."""
    is_time = table.measurement == "time"
    return not is_time and any(row.gaps for row in table.visible_rows)


def _legend(table: Table) -> str:
    paper = "paper: the paper's mean; " if _in_paper(table) else ""
    gap = "gap: to our retrained models, over the cases both have; " if _has_gaps(table) else ""
    trials = "; trials: settings that were tried on holdout data" if _has_trials(table) else ""
    attack = find_attack(table.measurement)
    what = "attack" if attack else "study" if table.measurement == "density" else "method"
    seconds = f"seconds: median of the {what} alone"
    if table.measurement == "time":
        seconds = "speed-up over Retrained: its median time over that of the method"
    remark = BIAS_REMARK if table.measurement == "bias" else ""
    if attack:
        remark = attack.remark
    parts = f"{paper}{gap}{seconds}{trials}"
    return f"Mean ± standard deviation over n classes or seeds; {parts}. {remark}".rstrip()


def _text(table: Table) -> str:
    parts = [f"{title}\n{align([head, *cells])}" for title, head, cells in _blocks(table)]
    return "\n\n".join([*parts, "\n".join([_legend(table), *table.notes])])


def align(cells: Grid, left: Container[str] = NAMES) -> str:
    """Return rows, the head first, with aligned columns: those named in `left` to the left."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        words = [
            cell.ljust(width) if name in left else cell.rjust(width)
            for cell, width, name in zip(row, widths, cells[0], strict=True)
        ]
        lines.append("  ".join(words).rstrip())
    return "\n".join(lines)


def pipe(cells: Grid, left: Container[str] = NAMES) -> str:
    """Return rows, the head first, as a Markdown table."""
    rule = ["---" if name in left else "---:" for name in cells[0]]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        for row in (cells[0], rule, *cells[1:])
    )


def _markdown(table: Table) -> str:
    parts = [f"**{title}**\n\n{pipe([head, *cells])}" for title, head, cells in _blocks(table)]
    notes = ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
    return "\n\n".join([*parts, _legend(table), *notes])


LATEX = str.maketrans(
    {char: f"\\{char}" for char in "%_&#${}"} | {"\\": r"\textbackslash{}", "±": r"$\pm$"}
)


def _latex(table: Table) -> str:
    def line(row: Sequence[str]) -> str:
        return " & ".join(cell.translate(LATEX) for cell in row) + r" \\"

    parts = []
    for title, head, cells in _blocks(table):
        places = "".join("l" if name in NAMES else "r" for name in head)
        begin, end = rf"\begin{{tabular}}{{{places}}}", r"\end{tabular}"
        rows = [line(head), r"\hline", *map(line, cells)]
        parts.append("\n".join([f"% {title}", begin, r"\hline", *rows, r"\hline", end]))
    return "\n\n".join([*parts, "\n".join(f"% {note}" for note in [_legend(table), *table.notes])])


def _csv(table: Table) -> str:
    """Return one flat table in the units of JSON: accuracies in 0..1."""
    out = io.StringIO()
    flat = [_flat(row, table) for row in table.rows]
    writer = csv.DictWriter(out, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue().rstrip("\n")


def _flat(row: TableRow, table: Table) -> dict[str, Any]:
    flat = dict(row.names)
    if table.has_search:
        flat["trials"] = row.trials.done if row.trials else None
    if table.needs_pool:
        shadows = _shadows(row) or {}
        flat |= {f"shadows_{name}": shadows.get(name) for name in SHADOWS}
    for name, value in row.values.items():
        flat |= {f"{name}_{part}": number for part, number in value._asdict().items()}
        if not row.names["n"]:
            flat[f"{name}_mean"] = MISSING
    gaps = row.gaps or {}
    flat |= {f"gap_{name}": gaps.get(name) for name in (*row.values, "n")}
    return {**flat, **row.seconds, "errors": "; ".join(row.errors), "notes": "; ".join(row.notes)}


def _shadows(row: TableRow) -> dict[str, Any] | None:
    if row.shadows:
        return {**asdict(row.shadows), "differs": row.differs}
    return {"pool": row.group.pool} if row.group.pool else None


def _plain(row: TableRow, table: Table) -> dict[str, Any]:
    """Return the row as plain data for JSON."""
    attack = find_attack(table.measurement)
    plain = {
        **row.names,
        **{name: value._asdict() for name, value in row.values.items()},
        **{name: row.mean(name) for name in (attack.further_scores if attack else ())},
        "gap_to_retrained": row.gaps,
        **row.seconds,
        "errors": row.errors,
        "notes": row.notes,
    }
    if table.needs_pool:
        plain["shadows"] = _shadows(row)
    if table.has_search:
        plain["trials"] = row.trials and row.trials._asdict()
    return plain


FORMATS: dict[Format, Callable[[Table], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": lambda table: to_json([_plain(row, table) for row in table.rows]),
}


def _blocks(table: Table) -> Iterator[tuple[str, list[str], Grid]]:
    """Yield the title, head and rows of each part: a data set, a scenario and perhaps a pool.

    Models, recipes and numbers of removed classes are in the title, or in a column if they differ.
    """

    def part_of(row: TableRow) -> tuple[str, ...]:
        pool = row.group.pool if table.several_pools else ""
        return row.names["dataset"], row.names["scenario"], pool

    for (dataset, scenario, pool), group in groupby(table.visible_rows, key=part_of):
        rows = list(group)
        first = rows[0].names
        extra = [name for name in EXTRA if len({row.names[EXTRA[name]] for row in rows}) > 1]
        common = [] if "model" in extra else [first["model"]]
        if "recipe" not in extra and first["recipe"] != "standard":
            common.append(f"{first['recipe']} recipe")
        if pool:
            common.append(f"pool {pool}")
        title = ", ".join([dataset, scenario, *common])
        cells = [_cells(row, table, extra) for row in rows]
        head = [name for name, _ in cells[0]]
        about = _about(table.measurement, scenario)
        yield f"{title} ({about})", head, [[text for _, text in row] for row in cells]


def _about(measurement: str | None, scenario: str) -> str:
    """Return what the numbers of a part are about."""
    attack = find_attack(measurement)
    if attack is None:
        return SPLITS[measurement][scenario]
    ratio = attack.ratios.get(scenario)
    return f"{MEMBERS[scenario]}, {ratio}" if ratio else MEMBERS[scenario]


def _cells(row: TableRow, table: Table, extra: Sequence[str]) -> list[tuple[str, str]]:
    """Return the title of each column, and what it shows of a row."""
    n, of = row.names["n"], row.names["of"]
    cells = [(name, str(row.names[EXTRA[name]])) for name in extra]
    cells += [("method", row.group.cell.label), ("preset", row.names["preset"])]
    if _has_trials(table):
        cells.append(("trials", _trials(row.trials)))
    cells.append(("n", f"{n} ({MISSING} {of - n} of {of})" if n < of else str(n)))
    for name, column in table.columns.items():
        value = row.values[name]
        cells.append((column.title, column.format_spread(value) if n else MISSING))
        if _in_paper(table):
            cells.append(("paper", column.format(value.paper)))
    if _has_gaps(table):
        gap = row.gaps or {}
        fewer = f" (n {gap['n']})" if gap and (gap["n"] or 0) < n else ""
        for name, column in table.columns.items():
            note = fewer if gap.get(name) is not None else ""
            title = f"gap {column.title.removesuffix(' %')}"
            cells.append((title, column.format(gap.get(name), sign="+") + note))
    if table.measurement != "time":
        cells.append(("seconds", SECONDS.format(row.seconds["seconds"])))
    if table.measurement is None:
        cells.append(("prepare s", SECONDS.format(row.seconds["prepare_seconds"])))
    return cells


def _trials(trials: Trials | None) -> str:
    if trials is None:
        return "-"
    return str(trials.done) if trials.done >= trials.of else f"{trials.done} of {trials.of}"
