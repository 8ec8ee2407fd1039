"""duck list: what there is to choose from."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from duck.cli.console import emit, table
from duck.cli.inputs import parse


@dataclass
class List:
    """List methods, presets, scenarios, datasets, models, attacks or grids.

    `presets` shows the settings of each method for each data set, and where their values come from.
    """

    kind: Annotated[
        Literal["methods", "presets", "scenarios", "datasets", "models", "attacks", "grids"],
        tyro.conf.Positional,
    ]
    json: bool = False
    """One JSON list to stdout instead of a table."""


def main(argv: list[str]) -> int:
    args = parse(List, argv, "list")
    rows = {"methods": _methods, "presets": _presets, "attacks": _attacks, "grids": _grids}.get(
        args.kind, lambda: _others(args.kind)
    )()
    if args.json:
        emit(rows)
    else:
        table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])
    return 0


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _methods() -> list[dict[str, Any]]:
    from duck.comparison import suited
    from duck.methods import METHODS

    return [
        {
            "name": name,
            "paper": cls.paper,
            "scenarios": list(cls.scenarios),
            "needs_retain": cls.needs_retain,
        }
        for name, cls in ((name, METHODS[name]) for name in suited())
    ]


def _presets() -> list[dict[str, Any]]:
    from duck.methods import METHODS
    from duck.methods.presets import presets, sources

    rows: list[dict[str, Any]] = []
    for method in METHODS:
        for data, names in presets().get(method, {}).items():
            for name, kinds in names.items():
                for kind, settings in kinds.items():
                    shown = [f"{key}={value}" for key, value in settings.items() if key != "source"]
                    found = (
                        sources(method, data, kind, name="paper")
                        if name == "paper"
                        else sources(method, data, kind)
                    )
                    own = found[-len(settings["source"]) :]
                    about = {"method": method, "data": data, "preset": name, "removal": kind}
                    rows.append(
                        {**about, "settings": shown, "source": [str(source) for source in own]}
                    )
    return rows


def _grids() -> list[dict[str, Any]]:
    from duck.bench import built_in, cells

    return [
        {"name": name, "about": grid.about, "runs": len(cells(grid, {}))}
        for name, grid in built_in().items()
    ]


def _attacks() -> list[dict[str, Any]]:
    from duck.audits.listing import list_attacks

    return [entry.to_dict() for entry in list_attacks()]


def _others(kind: str) -> list[dict[str, Any]]:
    from duck.data import DATASETS
    from duck.models import MODELS
    from duck.scenarios import SCENARIOS

    tables: dict[str, Mapping[str, object]] = {
        "scenarios": SCENARIOS,
        "datasets": DATASETS,
        "models": MODELS,
    }
    return [
        {"name": name, "about": (inspect.getdoc(entry) or "").split("\n")[0]}
        for name, entry in tables[kind].items()
    ]
