"""Benchmarks: grids as data, a resumable executor, and tables next to those of the paper."""

from duck.bench.attacks import attacker
from duck.bench.claims import check_claims, render_claims
from duck.bench.executor import Plan, Progress, RunCounts, execute, plan
from duck.bench.formats import Format, render
from duck.bench.grids import (
    Attack,
    Block,
    Cell,
    Facts,
    Grid,
    Study,
    built_in,
    cells,
    facts_of,
    find_grid,
    parse_only,
    rehearsal,
)
from duck.bench.results import Result, Results
from duck.bench.run_bench import BenchOptions, GridInterrupted, GridRun, grid_table, run_grid
from duck.bench.runner import Job, Runner, load_all
from duck.bench.status import Planner, Step, render_status
from duck.bench.tables import Row, Table, make_table
from duck.runtime import device_name

__all__ = [
    "Attack",
    "BenchOptions",
    "Block",
    "Cell",
    "Facts",
    "Format",
    "Grid",
    "GridInterrupted",
    "GridRun",
    "Job",
    "Plan",
    "Planner",
    "Progress",
    "Result",
    "Results",
    "Row",
    "RunCounts",
    "Runner",
    "Step",
    "Study",
    "Table",
    "attacker",
    "built_in",
    "cells",
    "check_claims",
    "device_name",
    "execute",
    "facts_of",
    "find_grid",
    "grid_table",
    "load_all",
    "make_table",
    "parse_only",
    "plan",
    "rehearsal",
    "render",
    "render_claims",
    "render_status",
    "run_grid",
]
