"""Run a grid from options: load its data, plan the missing runs and execute them."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from duck.analysis.attribution import require_captum
from duck.artifacts import default_root
from duck.bench.attacks import attacker
from duck.bench.executor import RunCounts, check_requests, execute, plan
from duck.bench.grids import Grid, Only, built_in, facts_of, find_grid, parse_only, rehearsal
from duck.bench.results import Result, Results
from duck.bench.runner import Runner
from duck.bench.status import Planner, Step
from duck.bench.table_rows import Table
from duck.bench.tables import make_table
from duck.checks import check_model_code
from duck.data import load
from duck.display import Display, JobProgress
from duck.engines import INLINE, Engine
from duck.errors import BadInput, DuckError, UnknownName
from duck.methods.base import METHODS
from duck.registry import suggest
from duck.runtime import device_name, pick_device
from duck.types import Data


@dataclass(frozen=True)
class BenchOptions:
    """Which runs of a grid are executed, and how."""

    rehearse: bool = False
    """Run the grid on the embedded digits with a small net: one case of each block, in seconds.
    Results go to `rehearsal` in --out."""
    only: str = ""
    """Narrow: KEY=VALUE,... with the keys dataset, scenario, case, method, preset, model, variant,
    removed, recipe; a key given twice allows both values. Not with --status, --next or --claims."""
    limit_minutes: float | None = None
    """Start no run that would not fit into this many minutes."""
    root: Path = Path("data")
    """Folder that holds the data sets."""
    download: bool = False
    """Download data sets that are missing, and check their SHA-256."""
    out: Path = Path("results")
    """Folder of the result files."""
    models: Path | None = None
    """Folder of the artifact store: originals, preparations and predictions. Default: that of
    `duck train`, runs/.artifacts."""
    keep_models: bool = False
    """Store the weights of unlearned models in --models, too, by the ids of their experiments."""
    compile: bool = False
    """Compile retraining, which is then faster on a GPU; the results say so. Originals are trained
    as their recipe says."""
    shared_device: bool = False
    """Other work uses the device at the same time: the results say so, and tables and estimates
    leave their times out."""
    pool: Path | None = None
    """For grids that attack with LiRA: folder of the shadow models, made by `duck pool`. Results
    depend on the pool; with --table, only results with this pool are shown."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a grid of your own names.
    This executes its code."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""

    @property
    def results_folder(self) -> Path:
        """The folder of the result files; that of a rehearsal is in it."""
        return self.out / "rehearsal" if self.rehearse else self.out

    @property
    def store(self) -> Path:
        """The folder of the artifact store."""
        if self.models is not None:
            return self.models
        return self.results_folder / "models" if self.rehearse else default_root()

    def check(self) -> None:
        """Raise errors that are known before the data are read."""
        if self.limit_minutes is not None and not self.limit_minutes >= 0:  # NaN is not
            raise BadInput(f"--limit-minutes must be 0 or more, got {self.limit_minutes}.")

    def grid(self, name: str) -> Grid:
        """Return a grid by its name or file; for a rehearsal, a small copy."""
        grid = find_grid(name)
        return rehearsal(grid) if self.rehearse and not grid.views else grid


@dataclass(frozen=True)
class GridRun:
    """How the runs of a grid ended."""

    grid: str
    done: int
    """Cells that had a result before."""
    counts: RunCounts
    is_interrupted: bool = False
    """Whether Ctrl-C ended it; the results of the runs that ended are stored."""


def grid_table(name: str, options: BenchOptions, results: Results) -> Table:
    """Return the table of a grid; with a pool of LiRA, only the results of this pool."""
    grid = options.grid(name)
    if grid.attack is not None and options.pool is not None:
        grid = replace(grid, attack=attacker(grid.attack, options.pool).attack)
    return make_table(grid, results, parse_only(options.only, grid))


def find_grids(names: Sequence[str]) -> list[Grid]:
    """Return grids by their names or files, by default all grids of the paper."""
    papers = [name for name in built_in() if name.startswith("paper/")]
    return [find_grid(name) for name in names or papers]


def next_steps(
    names: Sequence[str], minutes: float, options: BenchOptions, results: Results
) -> list[Step]:
    """Return the commands that fill the most important missing cells within these minutes."""
    if not minutes >= 0:  # NaN is not
        raise BadInput(f"--next must be 0 or more, got {minutes}.")
    default = BenchOptions()
    flags: list[str] = []
    for name in ("root", "out", "models"):
        folder = getattr(options, name)
        if folder != getattr(default, name):
            flags += [f"--{name}", str(folder)]
    return Planner(results, options.store).next_steps(find_grids(names), minutes, flags)


def run_grid(
    name: str,
    options: BenchOptions,
    results: Results | None = None,
    *,
    engine: Engine = INLINE,
    display: Display | None = None,
    report: Callable[[JobProgress[Result]], None] = lambda _: None,
) -> GridRun:
    """Execute the missing runs of a grid and append their results, as `duck bench` does.

    results   the results of the folder, if they were read before
    """
    started_at = time.monotonic()
    options.check()
    results = results or Results(options.results_folder)
    display = display or Display()
    device = pick_device(options.device)
    grid = options.grid(name)
    only = parse_only(options.only, grid)
    _check_grid(grid, options)
    attack = None
    if grid.attack is not None:
        attack = attacker(grid.attack, options.pool)
        grid = replace(grid, attack=attack.attack)
    results.check_writable()
    data = _load(grid, only, options, display)
    runner = Runner(
        data,
        options.store,
        device,
        attack,
        compiled=options.compile,
        keep_models=options.keep_models,
        alone=not options.shared_device and engine.workers == 1,
    )
    facts = {name: facts_of(part) for name, part in data.items()}
    missing = plan(grid, facts, results, only, partial(runner.is_stored, grid))
    for method in missing.skipped:
        display.message(f"Skipped: No method {method!r}. {suggest(method, METHODS)}")
    if not missing.jobs and not missing.done:
        raise BadInput(f"Nothing of the grid {grid.name} can be run here.")
    check_requests(missing.jobs, data)
    if attack is not None:
        attack.check(job.experiment for job in missing.jobs if job.measurement)
    limit = None
    if options.limit_minutes is not None:
        # Reading the data counts, too.
        limit = 60 * options.limit_minutes - (time.monotonic() - started_at)
    try:
        counts = execute(
            missing.jobs,
            runner,
            results,
            grid.name,
            device=device_name(device),
            engine=engine,
            limit=limit,
            report=report,
        )
    except KeyboardInterrupt:
        # Read again: the interruption may have come between storing a result and counting it.
        stored = Results(results.folder).results
        ended = [stored[job.id] for job in missing.jobs if job.id in stored]
        failed = sum(result.failed for result in ended)
        counts = RunCounts(len(ended), failed, len(missing.jobs) - len(ended))
        return GridRun(grid.name, missing.done, counts, is_interrupted=True)
    return GridRun(grid.name, missing.done, counts)


def _check_grid(grid: Grid, options: BenchOptions) -> None:
    """Raise errors that are known before the data are read."""
    if grid.views:
        raise BadInput(
            f"{grid.name} shows the runs of {', '.join(grid.views)} and has none of its own: "
            f"run those, then print it with `duck bench {grid.name} --table`."
        )
    for block in grid.blocks:
        check_model_code(block.model, grid.file or grid.name, options.trust_model_code)
    if grid.study is not None and grid.study.name == "bias" and grid.study.images:
        require_captum()
    if grid.attack and grid.attack.needs_pool and options.pool is None:
        block = grid.blocks[0]
        words = ["--data", block.dataset, "--model", block.model]
        words += ["--models", str(grid.attack.shadows)]
        for key, value in block.recipe.items():
            words += [f"--{key.replace('_', '-')}", str(value)]
        raise BadInput(
            f"LiRA compares with shadow models: make some with `duck pool {shlex.join(words)} "
            "--out shadows` and add --pool shadows."
        )


def _load(grid: Grid, only: Only, options: BenchOptions, display: Display) -> dict[str, Data]:
    """Load the data sets of a grid that are available, and name the others."""
    names = dict.fromkeys(block.dataset for block in grid.blocks)
    wanted = [name for name in names if name in only.get("dataset", {name})]
    data: dict[str, Data] = {}
    for name in wanted:
        try:
            with display.progress("reading data") as progress:
                data[name] = load(name, options.root, download=options.download, progress=progress)
        except UnknownName:
            raise
        except (DuckError, OSError) as error:
            display.message(f"Skipped the data set {name}: {error}")
    if not data:
        raise BadInput(
            f"None of the data sets {', '.join(wanted)} is under {options.root}: nothing to run."
        )
    return data
