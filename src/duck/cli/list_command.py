"""duck list: the methods, presets, requests, data sets, models, attacks and grids."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Literal

import tyro

from duck.cli.console import emit, print_table
from duck.cli.exit_codes import DONE
from duck.cli.parsing import parse

Kind = Literal["methods", "presets", "requests", "datasets", "models", "attacks", "grids"]
Row = dict[str, Any]


@dataclass
class ListFlags:
    """List methods, presets, requests, datasets, models, attacks or grids.

    `presets` shows the settings of each method for each data set, and where their values come from.
    """

    kind: Annotated[Kind, tyro.conf.Positional]
    json: bool = False
    """Print one JSON list to stdout instead of a table."""


def main(argv: list[str]) -> int:
    args = parse(ListFlags, argv, "list")
    rows = ROWS[args.kind]()
    if args.json:
        emit(rows)
    else:
        print_table([{key: _format_cell(row[key]) for key in row} for row in rows])
    return DONE


def _format_cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


# Each function imports only what it lists.
def _list_methods() -> list[Row]:
    from duck.comparison import methods_for_kind
    from duck.methods import METHODS

    rows = []
    for name in methods_for_kind():
        method = METHODS[name]
        facts = {"paper": method.paper, "scenarios": list(method.scenarios)}
        rows.append({"name": name, **facts, "needs_retain": method.needs_retain})
    return rows


def _list_presets() -> list[Row]:
    from duck.methods import METHODS
    from duck.methods.presets import presets

    rows: list[Row] = []
    for method in METHODS:
        for data, names in presets().get(method, {}).items():
            for name, kinds in names.items():
                rows += [_preset_row(method, data, name, kind, kinds[kind]) for kind in kinds]
    return rows


def _preset_row(method: str, data: str, name: str, kind: str, settings: Row) -> Row:
    from duck.methods.presets import sources

    options: dict[str, Any] = {"name": "paper"} if name == "paper" else {}
    # The sources of the presets that this one is based on come first.
    own_sources = sources(method, data, kind, **options)[-len(settings["source"]) :]
    return {
        "method": method,
        "data": data,
        "preset": name,
        "removal": kind,
        "settings": [f"{key}={value}" for key, value in settings.items() if key != "source"],
        "source": [str(source) for source in own_sources],
    }


def _list_grids() -> list[Row]:
    from duck.bench.grids import built_in, cells

    return [
        {"name": name, "about": grid.about, "runs": len(cells(grid, {}))}
        for name, grid in built_in().items()
    ]


def _list_attacks() -> list[Row]:
    from duck.audits.listing import list_attacks

    return [entry._asdict() for entry in list_attacks()]


def _list_registry(module: str, name: str) -> list[Row]:
    """Return the name of each entry with the first line of its docstring."""
    entries = getattr(import_module(module), name)
    return [
        {"name": name, "about": (inspect.getdoc(entry) or "").split("\n")[0]}
        for name, entry in entries.items()
    ]


ROWS: dict[Kind, Callable[[], list[Row]]] = {
    "methods": _list_methods,
    "presets": _list_presets,
    "requests": partial(_list_registry, "duck.scenarios", "REQUESTS"),
    "datasets": partial(_list_registry, "duck.data", "DATASETS"),
    "models": partial(_list_registry, "duck.models", "MODELS"),
    "attacks": _list_attacks,
    "grids": _list_grids,
}
