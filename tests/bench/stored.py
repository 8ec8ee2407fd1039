"""The smallest grid that runs everything, and results made by hand."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from duck.bench import Results
from duck.bench.estimates import Estimates
from duck.bench.formats import render
from duck.bench.grids import Block, Cell, Facts, Grid, cells, experiment
from duck.bench.results import Result
from duck.bench.runner import Job
from duck.bench.table_rows import Table
from duck.data import load
from duck.experiment import to_dict
from duck.records import structure
from duck.types import Data

RECIPE = {"epochs": 1, "batch_size": 256}
FEW = Grid(
    blocks=(
        Block("digits", classes=(3, 8), model="convnet", recipe=RECIPE),
        Block("digits", seeds=(0,), model="convnet", recipe=RECIPE),
    ),
    methods=("original", "retrained", "duck"),
    presets=("paper",),
    settings={"duck": {"max_epochs": 1, "low_epochs": 0, "batch_ratio": 1}},
    name="toy/few",
)
FACTS = Facts("cifar10", "f" * 32, 50_000, "crop-flip")
MACHINE: dict[str, Any] = {
    "device": "here",
    "torch": "2.13.0",
    "date": "2026-11-15",
    "device_gib": None,
    "host_gib": None,
}


@cache
def digits() -> dict[str, Data]:
    return {"digits": load("digits", Path())}


def cell_of(
    grid: Grid, method: str, case: int, preset: str = "paper", facts: Facts = FACTS
) -> Cell:
    known = cells(grid, {facts.name: facts})
    return next(
        cell
        for cell in known
        if (cell.method, cell.case) == (method, case) and preset in cell.presets
    )


def line_of(grid: Grid, cell: Cell, facts: Facts = FACTS, **values: Any) -> dict[str, Any]:
    """As a run would write it, with these scores, seconds or error."""
    scores = {
        "aus": 0.9,
        "forget": 0.9,
        "retain": 1.0,
        "test": 0.9,
        "forget_test": 0.0,
        "retain_test": 0.9,
        **values.pop("scores", {}),
    }
    made = experiment(grid, cell, facts)
    keys = {
        "dataset": facts.name,
        "scenario": cell.block.scenario,
        "case": cell.case,
        "method": cell.method,
        "preset": cell.preset,
    }
    found = {"scores": scores, "seconds": 1.0, "prepare_seconds": 0.0, "notes": []}
    common = {
        "id": made.id,
        **keys,
        "train_samples": facts.samples,
        "wall_seconds": 1.0,
        **MACHINE,
        "experiment": to_dict(made),
    }
    return {**common, **values} if "error" in values else {**common, **found, **values}


def to_result(line: dict[str, Any]) -> Result:
    """Return the result of a line, whatever scores it has."""
    return structure(line, Result)


def append(results: Results, grid: str, line: dict[str, Any]) -> None:
    """Append a line to the file of a grid."""
    results.append(grid, to_result(line))


def expected(job: Job, results: Results, device: str = "here") -> float | None:
    """Return the expected seconds of a job."""
    return Estimates(results, device).seconds(job.experiment, job.scenario, job.measurement)


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as its JSON has them."""
    rows: list[dict[str, Any]] = json.loads(render(table, "json"))
    return rows


def visible_rows_of(table: Table) -> list[dict[str, Any]]:
    """Return the printed rows of a table as its JSON has them."""
    return rows_of(replace(table, rows=table.visible_rows))
