"""Make a pool from options: its data, recipe, request and method become a plan, which is built."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from duck import runs
from duck.checks import check_model_code
from duck.commands.options import DataOptions, resolve_classes
from duck.commands.train import TrainOptions
from duck.data.checks import check_data
from duck.display import Display, JobProgress
from duck.engines import INLINE, Engine
from duck.errors import BadInput
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, preset
from duck.models import MODELS
from duck.pools.build import BuildCounts, build_pool
from duck.pools.files import ModelInfo
from duck.pools.plan import Plan
from duck.runtime import pick_device
from duck.scenarios import Request
from duck.types import Data, Protocols

Share = tuple[int, int]
"""(2, 3): the second of three equal parts."""
SLURM = "SLURM_ARRAY_TASK_"


@dataclass(frozen=True)
class PoolOptions:
    """Which pool is made, and how."""

    out: Path
    """Folder of the pool."""
    models: int = 32
    """Number of models; an even number."""
    run: Path | None = None
    """A run of `duck train` or `duck forget`: it has the data, the model, the recipe and, if it
    forgot, the request, the method and the seed."""
    model: str | None = None
    """A name from `duck list models`, or your own package.module:function. Default: that of --run,
    else convnet for digits and resnet18 for other data."""
    trust_model_code: bool = False
    """Import and call the model builder (package.module:function) that a stored run names. This
    runs third-party code."""
    method: str | None = None
    """A name from `duck list methods`. Default: that of --run, else duck."""
    preset: Preset | None = None
    """paper: the settings of the paper; tuned: with what was found on holdout data. Default: tuned,
    or the settings of --run."""
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets."""
    share: str | None = None
    """K/N: only the K-th of N equal parts, one for each of N machines; slurm: the part of this task
    of a Slurm array job. Default: slurm in an array job, else all."""
    limit_minutes: float | None = None
    """Start no model that would not fit into this many minutes."""
    seed: int | None = None
    """Default: that of --run, else 0."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""

    @cached_property
    def experiment(self) -> Experiment | None:
        """The experiment of the run."""
        return runs.load(self.run).experiment if self.run else None

    @property
    def is_foreign(self) -> bool:
        """Whether the model of the run was trained elsewhere, by an unknown recipe."""
        return self.experiment is not None and bool(self.experiment.training.weights)

    def check(self) -> None:
        """Raise errors that are known before the data are read."""
        parse_share(self.share)
        pick_device(self.device)
        if self.limit_minutes is not None and not self.limit_minutes >= 0:  # NaN is not
            raise BadInput(f"--limit-minutes must be 0 or more, got {self.limit_minutes}.")
        model = self.model or (self.experiment.training.model if self.experiment else "convnet")
        if ":" not in model:
            MODELS[model]
        is_trusted = self.trust_model_code or self.model is not None
        check_model_code(model, str(self.run), is_trusted)
        METHODS[self.method or "duck"]


def make_pool(
    options: PoolOptions,
    source: DataOptions | None = None,
    request: Request | None = None,
    protocol: Protocols | None = None,
    recipe: Mapping[str, Any] | None = None,
    *,
    engine: Engine = INLINE,
    display: Display | None = None,
    report: Callable[[JobProgress[ModelInfo]], None] = lambda _: None,
) -> BuildCounts:
    """Make a pool or resume it, as `duck pool` does.

    source    None: the data of the run, else digits
    request   None: that of the run; without one the pool has shadow models
    protocol  None: that of the run, else holdout
    recipe    changes to the recipe of the run, or to the default one
    """
    started_at = time.monotonic()
    options.check()
    display = display or Display()
    share = parse_share(options.share)
    if options.share is None and share[1] > 1:
        display.message(
            f"Task {share[0]} of {share[1]} of a Slurm array: it trains this part of the pool. "
            "--share 1/1 trains all."
        )
    source = source or DataOptions()
    if options.run:
        source = source.completed(options.run)
    with display.progress(f"reading {source.name}") as progress:
        data = source.load(not options.is_foreign, progress)
    if options.is_foreign and not recipe:
        display.message(
            f"The recipe of the original of {options.run} is not known: the pool is trained with "
            "the default recipe. Recipe flags set another one."
        )
    device = pick_device(options.device)
    # Many models are worth the time of compiling, which the CPU does not gain from.
    changes = {"compile": device.type == "cuda", **(recipe or {})}
    training = _training(options, source, data, changes)
    plan = _plan(options, training, data, request, protocol, display)
    limit = None
    if options.limit_minutes is not None:
        limit = 60 * options.limit_minutes - (time.monotonic() - started_at)
    return build_pool(
        options.out,
        plan,
        data,
        options.models,
        device=device,
        compiled=training.recipe.compile,
        engine=engine,
        share=share,
        limit=limit,
        report=report,
    )


def parse_share(text: str | None) -> Share:
    """Return K and N from "K/N", or from the variables of a Slurm array job."""
    if text == "slurm" or (text is None and f"{SLURM}ID" in os.environ):
        return _slurm_share()
    number, _, parts = (text or "1/1").partition("/")
    if not (number.isdecimal() and parts.isdecimal()):
        raise BadInput(
            "--share is K/N, such as 1/2 on the first of two machines, or slurm in a task of an "
            f"array job; got {text!r}."
        )
    return int(number), int(parts)


def _slurm_share() -> Share:
    """Return the place of this task in its array, whose ids may begin anywhere and have gaps."""
    try:
        task, count, first = (int(os.environ[SLURM + name]) for name in ("ID", "COUNT", "MIN"))
        step = int(os.environ.get(f"{SLURM}STEP", "1"))
    except (KeyError, ValueError) as error:
        raise BadInput(
            f"The share of a Slurm array job needs the numbers {SLURM}ID, {SLURM}COUNT and "
            f"{SLURM}MIN in the environment ({error}). Outside of a job give --share K/N."
        ) from error
    place, rest = divmod(task - first, step)
    if rest or not 0 <= place < count:
        raise BadInput(
            f"The tasks of the Slurm array are not numbered evenly ({task} of {count} from "
            f"{first} in steps of {step}): give --share K/N."
        )
    return place + 1, count


def _training(
    options: PoolOptions, source: DataOptions, data: Data, changes: Mapping[str, Any]
) -> Training:
    """Return how the models are trained: as the original of the run, or by default."""
    if options.experiment is None:
        return TrainOptions(source, options.model, changes=changes).training(data)
    known = options.experiment.training
    if known.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those of {options.run}: the fingerprints differ. Name them with "
            "--data, --root."
        )
    recipe = replace(known.recipe, **changes)
    return source.training(data, options.model or known.model, recipe)


def _plan(
    options: PoolOptions,
    training: Training,
    data: Data,
    request: Request | None,
    protocol: Protocols | None,
    display: Display,
) -> Plan:
    """Return the plan of a pool: of shadow models, or of models that unlearn a request."""
    known = options.experiment or Experiment(training)
    seed = known.seed if options.seed is None else options.seed
    protocol = protocol or known.protocol
    request = known.request if request is None else resolve_classes(request, data)
    if request is None:
        return Plan(Experiment(training, seed=seed))
    scenario = request(data, seed, protocol)
    for finding in check_data(scenario):
        display.message(str(finding))
    method = _method(options, data, scenario.kind)
    return Plan(Experiment(training, request, method, seed, protocol, known.earlier))


def _method(options: PoolOptions, data: Data, kind: str) -> Method:
    """Return the method of the run, unless an option names one."""
    known = options.experiment.method if options.experiment else None
    if known is not None and not (options.method or options.preset or options.presets):
        return known
    name = options.method or (METHODS.name_of(known) if known else "duck")
    chosen = options.preset or "tuned"
    return preset(name, data.name, kind, len(data.train), chosen, options.presets)
