"""Benchmarks: grids as data, a resumable executor, and tables next to those of the paper."""

from duck.bench.attacks import Attacker, attacker
from duck.bench.claims import Claim, check_claims, render_claims
from duck.bench.executor import Plan, Progress, RunCounts, check_requests, execute, plan
from duck.bench.formats import Format, render
from duck.bench.grids import (
    Attack,
    Block,
    Cell,
    Facts,
    Grid,
    Only,
    Study,
    Variant,
    built_in,
    cells,
    facts_of,
    find_grid,
    parse_only,
    rehearsal,
)
from duck.bench.results import Result, Results
from duck.bench.runner import Job, Runner, load_all
from duck.bench.status import Planner, Status, Step, render_status
from duck.bench.studies import check_study
from duck.bench.tables import Row, Table, make_table
from duck.runtime import device_name

__all__ = [
    "Attack",
    "Attacker",
    "Block",
    "Cell",
    "Claim",
    "Facts",
    "Format",
    "Grid",
    "Job",
    "Only",
    "Plan",
    "Planner",
    "Progress",
    "Result",
    "Results",
    "Row",
    "RunCounts",
    "Runner",
    "Status",
    "Step",
    "Study",
    "Table",
    "Variant",
    "attacker",
    "built_in",
    "cells",
    "check_claims",
    "check_requests",
    "check_study",
    "device_name",
    "execute",
    "facts_of",
    "find_grid",
    "load_all",
    "make_table",
    "parse_only",
    "plan",
    "rehearsal",
    "render",
    "render_claims",
    "render_status",
]
