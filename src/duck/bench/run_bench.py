"""Run a grid from options: load its data, plan the missing runs and execute them."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from duck.artifacts import default_root
from duck.bench.attacks import Attacker, attacker
from duck.bench.executor import INLINE, Plan, Progress, RunCounts, check_requests, execute, plan
from duck.bench.grids import Grid, facts_of, find_grid, parse_only, rehearsal
from duck.bench.results import Results
from duck.bench.runner import Runner, load_all
from duck.bench.studies import check_study
from duck.bench.tables import Table, make_table
from duck.checks import check_model_code
from duck.display import Display
from duck.engines import Engine
from duck.errors import BadInput
from duck.runtime import device_name, pick_device
from duck.types import Data

ShowJobs = Callable[[int], AbstractContextManager[Callable[[Progress], None]]]


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
    Its code can do anything."""
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


class GridInterrupted(KeyboardInterrupt):
    """Ctrl-C during the runs of a grid; the results of those that ended are stored."""

    def __init__(self, stored: int, left: int) -> None:
        super().__init__()
        self.stored = stored
        self.left = left


def grid_table(name: str, options: BenchOptions, results: Results) -> Table:
    """Return the table of a grid; with a pool of LiRA, only the results of this pool."""
    grid = options.grid(name)
    if grid.attack is not None and options.pool is not None:
        grid = replace(grid, attack=attacker(grid.attack, options.pool).attack)
    return make_table(grid, results, parse_only(options.only, grid))


def _ignore_jobs(total: int) -> AbstractContextManager[Callable[[Progress], None]]:
    return nullcontext(lambda state: None)


def run_grid(
    name: str,
    options: BenchOptions,
    results: Results | None = None,
    *,
    engine: Engine = INLINE,
    display: Display | None = None,
    show_jobs: ShowJobs = _ignore_jobs,
) -> GridRun:
    """Execute the missing runs of a grid and append their results, as `duck bench` does.

    results     the results of the folder, if they were read before
    show_jobs   called with the number of runs; its context gives a progress callback
    """
    results = results or Results(options.results_folder)
    run = _GridRun(name, options, results, engine, display or Display())
    return run(show_jobs)


class _GridRun:
    """One execution of a grid."""

    def __init__(
        self, name: str, options: BenchOptions, results: Results, engine: Engine, display: Display
    ) -> None:
        self.started_at = time.monotonic()
        self.options = options
        self.results = results
        self.engine = engine
        self.display = display
        self.device = pick_device(options.device)
        self.grid = options.grid(name)
        self.only = parse_only(options.only, self.grid)
        self._check_grid()
        self.attack = self._attacker()
        if self.attack is not None:
            self.grid = replace(self.grid, attack=self.attack.attack)

    def _check_grid(self) -> None:
        grid = self.grid
        if grid.views:
            raise BadInput(
                f"{grid.name} shows the runs of {', '.join(grid.views)} and has none of its own: "
                f"run those, then print it with `duck bench {grid.name} --table`."
            )
        for block in grid.blocks:
            source = grid.file or grid.name
            check_model_code(block.model, source, self.options.trust_model_code)
        if grid.study is not None:
            check_study(grid.study)

    def _attacker(self) -> Attacker | None:
        attack = self.grid.attack
        if attack is None:
            return None
        if self.options.rehearse and self.options.pool is None and attack.name == "lira":
            recipe = "--epochs {epochs} --batch-size {batch_size}"
            recipe = recipe.format(**self.grid.blocks[0].recipe)
            raise BadInput(
                "LiRA compares with shadow models: make some with `duck pool --data digits --model "
                f"convnet --models {attack.shadows} {recipe} --out shadows` and add --pool shadows."
            )
        return attacker(attack, self.options.pool)

    def __call__(self, show_jobs: ShowJobs) -> GridRun:
        self.results.check_writable()
        data = self._load()
        runner = Runner(
            data,
            self.options.store,
            self.device,
            self.attack,
            compiled=self.options.compile,
            keep_models=self.options.keep_models,
            alone=not self.options.shared_device and self.engine.workers == 1,
        )
        facts = {name: facts_of(part) for name, part in data.items()}
        missing = plan(self.grid, facts, self.results, self.only, runner.ready(self.grid))
        for reason in missing.skipped.values():
            self.display.message(f"Skipped: {reason}")
        self._check_plan(missing, data)
        with show_jobs(len(missing.jobs)) as report:
            counts = self._execute(missing, runner, report)
        return GridRun(self.grid.name, missing.done, counts)

    def _load(self) -> dict[str, Data]:
        names = [block.dataset for block in self.grid.blocks]
        wanted = [name for name in names if name in self.only.get("dataset", {name})]
        options = self.options
        with self.display.progress("reading data") as progress:
            data, missing = load_all(wanted, options.root, options.download, progress)
        for name, reason in missing.items():
            self.display.message(f"Skipped the data set {name}: {reason}")
        if not data:
            listed = ", ".join(dict.fromkeys(wanted))
            raise BadInput(
                f"None of the data sets {listed} is under {options.root}: nothing to run."
            )
        return data

    def _check_plan(self, missing: Plan, data: Mapping[str, Data]) -> None:
        """Raise an error for a plan that cannot be run, before anything is trained."""
        if not missing.jobs and not missing.done:
            raise BadInput(f"Nothing of the grid {self.grid.name} can be run here.")
        check_requests(missing.jobs, data)
        if self.attack is not None:
            self.attack.check(job.experiment for job in missing.jobs if job.measurement)

    def _execute(
        self, missing: Plan, runner: Runner, report: Callable[[Progress], None]
    ) -> RunCounts:
        limit = None
        if self.options.limit_minutes is not None:
            # Reading the data counts, too.
            limit = 60 * self.options.limit_minutes - (time.monotonic() - self.started_at)
        try:
            return execute(
                missing.jobs,
                runner,
                self.results,
                self.grid.name,
                device=device_name(self.device),
                engine=self.engine,
                limit=limit,
                report=report,
            )
        except KeyboardInterrupt:
            # Read again: the interruption may have come between storing a result and counting it.
            done = Results(self.results.folder).done
            stored = sum(job.id in done for job in missing.jobs)
            raise GridInterrupted(stored, len(missing.jobs) - stored) from None
