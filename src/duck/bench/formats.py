"""A table as text, Markdown, LaTeX, CSV or JSON."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from duck.bench.measures import Column
from duck.bench.tables import Row, Table

Format = Literal["text", "markdown", "latex", "csv", "json"]
MISSING = "missing"
MEMBERS = {"class": "forgotten against test samples of the class", "samples": "forgotten against test samples"}
SPLITS = {
    None: {"class": "kept: retain-test, forgotten: forget-test", "samples": "kept: test, forgotten: forgotten training samples"},
    "svm": {
        "class": "forgotten against test samples of the class, 3:1, chance 75",
        "samples": "forgotten against test samples, 1:1, chance 50",
    },
    "lira": MEMBERS,
    "confidence": MEMBERS,
}
"""By the attack of the table: what its numbers are about."""
SHADOWS = ("pool", "models", "epochs", "train", "test")
BELOW = " An AUC far below 0.5 is no success: samples that were pushed too far are told as well as those that were not."
BESIDES: dict[str | None, str] = {"lira": BELOW, "confidence": BELOW}
Grid = list[list[str]]


def render(table: Table, form: Format) -> str:
    """Without a newline at the end."""
    return FORMATS[form](table)


def _head(table: Table) -> list[str]:
    titles = [column.title for column in table.columns.values()]
    gaps = [f"gap {title.removesuffix(' %')}" for title in titles]
    beside = ["paper"] if _in_paper(table) else []
    return ["method", "preset", "n", *(word for title in titles for word in (title, *beside)), *gaps, *(name for name, _ in _times(table))]


def _in_paper(table: Table) -> bool:
    """Whether the paper has any of these numbers; no column for what it never measured."""
    return any(row[name]["paper"] is not None for row in table.shown for name in table.columns)


def _times(table: Table) -> list[tuple[str, str]]:
    return [("seconds", "seconds"), *([("prepare s", "prepare_seconds")] if table.attack is None else [])]


def _legend(table: Table) -> str:
    paper = "paper: the paper's mean; " if _in_paper(table) else ""
    what = "method" if table.attack is None else "attack"
    return (
        f"Mean ± standard deviation over n classes or seeds; {paper}gap: to our retrained models, over the cases both have; "
        f"seconds: median of the {what} alone.{BESIDES.get(table.attack, '')}"
    )


def _text(table: Table) -> str:
    parts = [f"{title}\n{_aligned([_head(table), *cells])}" for title, cells in _blocks(table)]
    return "\n\n".join([*parts, "\n".join([_legend(table), *table.notes])])


def _aligned(cells: Grid) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    # Names to the left, numbers to the right.
    lines = [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width) for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _markdown(table: Table) -> str:
    def piped(row: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"

    head = _head(table)
    rule = ["---"] * 2 + ["---:"] * (len(head) - 2)
    parts = [f"**{title}**\n\n" + "\n".join(map(piped, [head, rule, *cells])) for title, cells in _blocks(table)]
    return "\n\n".join([*parts, _legend(table), *(["\n".join(f"- {note}" for note in table.notes)] if table.notes else [])])


LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}"}


def _latex(table: Table) -> str:
    def line(row: Sequence[str]) -> str:
        return " & ".join("".join(LATEX.get(letter, letter) for letter in cell) for cell in row) + r" \\"

    head = _head(table)
    begin, end = rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}", r"\end{tabular}"
    parts = [
        "\n".join([f"% {title}", begin, r"\hline", line(head), r"\hline", *map(line, cells), r"\hline", end])
        for title, cells in _blocks(table)
    ]
    return "\n\n".join([*parts, "\n".join(f"% {note}" for note in [_legend(table), *table.notes])])


def _csv(table: Table) -> str:
    """One flat table in the units of JSON: accuracies in 0..1."""
    out = io.StringIO()
    flat = [_flat(row, list(table.columns)) for row in table.rows]
    writer = csv.DictWriter(out, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue().rstrip("\n")


def _flat(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    names = {key: row[key] for key in ("dataset", "scenario", "model", "method", "preset", "n", "of")}
    pool = {f"shadows_{name}": (row["shadows"] or {}).get(name) for name in SHADOWS} if "shadows" in row else {}
    measures = {f"{name}_{part}": row[name][part] for name in columns for part in ("mean", "std", "paper")}
    if not row["n"]:
        measures.update({f"{name}_mean": MISSING for name in columns})
    gaps = {f"gap_{name}": (row["gap_to_retrained"] or {}).get(name) for name in (*columns, "n")}
    said = {key: "; ".join(row[key]) for key in ("errors", "notes")}
    return {**names, **pool, **measures, **gaps, "seconds": row["seconds"], "prepare_seconds": row["prepare_seconds"], **said}


def _json(table: Table) -> str:
    return json.dumps(table.rows)


FORMATS: dict[Format, Callable[[Table], str]] = {"text": _text, "markdown": _markdown, "latex": _latex, "csv": _csv, "json": _json}


def _blocks(table: Table) -> Iterator[tuple[str, Grid]]:
    """A part for each data set, scenario and model; where there are several, for each set of shadow models."""

    def title(row: Row) -> str:
        pool = f", pool {row['shadows']['pool']}" if table.several_pools else ""
        return f"{row['dataset']}, {row['scenario']}, {row['model']}{pool} ({SPLITS[table.attack][row['scenario']]})"

    for name, rows in groupby(table.shown, key=title):
        yield name, [_cells(row, table) for row in rows]


def _cells(row: Row, table: Table) -> list[str]:
    gap = row["gap_to_retrained"] or {}
    columns = table.columns.items()
    beside = ["paper"] if _in_paper(table) else []
    measures = [
        text for name, column in columns for text in (_ours(row, name, column), *(_shown(row[name][each], column) for each in beside))
    ]
    fewer = f" (n {gap['n']})" if gap and gap["n"] < row["n"] else ""
    gaps = [_shown(gap.get(name), column, sign="+") + (fewer if gap.get(name) is not None else "") for name, column in columns]
    times = [_number(row[key], 1, 2) for _, key in _times(table)]
    return [row["method"], row["preset"], _count(row), *measures, *gaps, *times]


def _count(row: Row) -> str:
    missing = row["of"] - row["n"]
    return f"{row['n']} ({MISSING} {missing} of {row['of']})" if missing else str(row["n"])


def _ours(row: Row, name: str, column: Column) -> str:
    if not row["n"]:
        return MISSING
    mean, std = (_shown(row[name][part], column) for part in ("mean", "std"))
    return mean if row[name]["std"] is None else f"{mean} ± {std}"


def _shown(value: float | None, column: Column, sign: str = "") -> str:
    return _number(value, column.factor, column.digits, sign)


def _number(value: float | None, factor: float, digits: int, sign: str = "") -> str:
    return "-" if value is None else f"{factor * value:{sign}.{digits}f}"
