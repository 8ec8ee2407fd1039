"""Many runs at once: grids as data, an executor that goes on where it was, and tables beside the paper's."""

from duck.bench.attacks import Attacker, attacker
from duck.bench.executor import Ending, Engine, Plan, State, execute, inline, plan
from duck.bench.formats import Format, render
from duck.bench.grids import Attack, Block, Cell, Facts, Grid, Only, built_in, cells, facts_of, find_grid, parse_only
from duck.bench.lines import Line
from duck.bench.results import Results
from duck.bench.tables import Row, Table, make_table
from duck.bench.workshop import Job, Workshop, load_all
from duck.runtime import device_name

__all__ = [
    "Attack",
    "Attacker",
    "Block",
    "Cell",
    "Ending",
    "Engine",
    "Facts",
    "Format",
    "Grid",
    "Job",
    "Line",
    "Only",
    "Plan",
    "Results",
    "Row",
    "State",
    "Table",
    "Workshop",
    "attacker",
    "built_in",
    "cells",
    "device_name",
    "execute",
    "facts_of",
    "find_grid",
    "inline",
    "load_all",
    "make_table",
    "parse_only",
    "plan",
    "render",
]
