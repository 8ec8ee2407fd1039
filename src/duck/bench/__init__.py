"""Benchmarks: grids as data, a resumable executor, and tables next to those of the paper."""

from duck.bench.attacks import attacker
from duck.bench.claims import check_claims
from duck.bench.grids import Attack, find_grid
from duck.bench.results import Results
from duck.bench.run_bench import BenchOptions, find_grids, grid_table, next_steps, run_grid
from duck.bench.status import Planner

__all__ = [
    "Attack",
    "BenchOptions",
    "Planner",
    "Results",
    "attacker",
    "check_claims",
    "find_grid",
    "find_grids",
    "grid_table",
    "next_steps",
    "run_grid",
]
