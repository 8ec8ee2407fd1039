"""A table as text, Markdown, LaTeX, CSV or JSON."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from duck.bench.tables import Row, Table

Format = Literal["text", "markdown", "latex", "csv", "json"]
MISSING = "missing"
HEAD = [
    "method", "preset", "n", "AUS", "paper", "kept %", "paper", "forgotten %", "paper",
    "gap AUS", "gap kept", "gap forgotten", "seconds", "prepare s",
]  # fmt: skip
LEGEND = (
    "Mean ± standard deviation over n classes or seeds; paper: the paper's mean; gap: to our retrained models, over the cases both have; "
    "seconds: median of the method alone."
)
SPLITS = {"class": "kept: retain-test, forgotten: forget-test", "samples": "kept: test, forgotten: forgotten training samples"}
Grid = list[list[str]]


def render(table: Table, form: Format) -> str:
    """Without a newline at the end."""
    return FORMATS[form](table)


def _text(table: Table) -> str:
    return "\n\n".join([*(f"{title}\n{_aligned([HEAD, *cells])}" for title, cells in _blocks(table)), "\n".join([LEGEND, *table.notes])])


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

    rule = ["---"] * 2 + ["---:"] * (len(HEAD) - 2)
    parts = [f"**{title}**\n\n" + "\n".join(map(piped, [HEAD, rule, *cells])) for title, cells in _blocks(table)]
    return "\n\n".join([*parts, LEGEND, *(["\n".join(f"- {note}" for note in table.notes)] if table.notes else [])])


LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}"}


def _latex(table: Table) -> str:
    def line(row: Sequence[str]) -> str:
        return " & ".join("".join(LATEX.get(letter, letter) for letter in cell) for cell in row) + r" \\"

    begin, end = rf"\begin{{tabular}}{{ll{'r' * (len(HEAD) - 2)}}}", r"\end{tabular}"
    parts = [
        "\n".join([f"% {title}", begin, r"\hline", line(HEAD), r"\hline", *map(line, cells), r"\hline", end])
        for title, cells in _blocks(table)
    ]
    return "\n\n".join([*parts, "\n".join(f"% {note}" for note in [LEGEND, *table.notes])])


def _csv(table: Table) -> str:
    """One flat table in the units of JSON: accuracies in 0..1."""
    out = io.StringIO()
    flat = [_flat(row) for row in table.rows]
    writer = csv.DictWriter(out, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue().rstrip("\n")


def _flat(row: Row) -> dict[str, Any]:
    names = {key: row[key] for key in ("dataset", "scenario", "model", "method", "preset", "n", "of")}
    measures = {f"{name}_{part}": row[name][part] for name in ("aus", "kept", "forgotten") for part in ("mean", "std", "paper")}
    if not row["n"]:
        measures.update({f"{name}_mean": MISSING for name in ("aus", "kept", "forgotten")})
    gaps = {f"gap_{name}": (row["gap_to_retrained"] or {}).get(name) for name in ("aus", "kept", "forgotten", "n")}
    said = {key: "; ".join(row[key]) for key in ("errors", "notes")}
    return {**names, **measures, **gaps, "seconds": row["seconds"], "prepare_seconds": row["prepare_seconds"], **said}


def _json(table: Table) -> str:
    return json.dumps(table.rows)


FORMATS: dict[Format, Callable[[Table], str]] = {"text": _text, "markdown": _markdown, "latex": _latex, "csv": _csv, "json": _json}


def _blocks(table: Table) -> Iterator[tuple[str, Grid]]:
    """A part for each data set, scenario and model."""
    for (dataset, scenario, model), rows in groupby(table.rows, key=lambda row: (row["dataset"], row["scenario"], row["model"])):
        yield f"{dataset}, {scenario}, {model} ({SPLITS[scenario]})", [_cells(row) for row in rows]


def _cells(row: Row) -> list[str]:
    aus, kept, forgotten = ([_ours(row, name), _number(row[name]["paper"], *_scale(name))] for name in ("aus", "kept", "forgotten"))
    gap = row["gap_to_retrained"] or {}
    gaps = [_number(gap.get(name), *_scale(name), sign="+") for name in ("aus", "kept", "forgotten")]
    times = [_number(row["seconds"], 1, 2), _number(row["prepare_seconds"], 1, 2)]
    return [row["method"], row["preset"], _count(row), *aus, *kept, *forgotten, *gaps, *times]


def _count(row: Row) -> str:
    missing = row["of"] - row["n"]
    return f"{row['n']} ({MISSING} {missing} of {row['of']})" if missing else str(row["n"])


def _ours(row: Row, name: str) -> str:
    if not row["n"]:
        return MISSING
    mean, std = (_number(row[name][part], *_scale(name)) for part in ("mean", "std"))
    return mean if row[name]["std"] is None else f"{mean} ± {std}"


def _scale(name: str) -> tuple[float, int]:
    """Factor and digits: AUS as it is, accuracies in percent."""
    return (1.0, 3) if name == "aus" else (100.0, 2)


def _number(value: float | None, factor: float, digits: int, sign: str = "") -> str:
    return "-" if value is None else f"{factor * value:{sign}.{digits}f}"
