"""Make a pool from options: its data, recipe, request and method become a plan, which is built."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from duck import runs
from duck.checks import check_model_code
from duck.data import SMALL_IMAGES
from duck.data.checks import check_data
from duck.engines import INLINE, Engine
from duck.errors import BadInput
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, default_recipe, preset
from duck.models import MODELS
from duck.pools.build import BuildCounts, Progress, build_pool
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
    """Import and call the model builder (package.module:function) that a stored run names. Its code
    can do anything."""
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


@dataclass(frozen=True)
class Inputs:
    """What a pool is about."""

    data: Data
    request: Request | None = None
    """Default: that of the run. Without one the pool has shadow models."""
    protocol: Protocols = "holdout"
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the recipe of the run or to the default one."""
    image_size: int | None = None
    """As the data were loaded, like `mean` and `std`."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


def make_pool(
    inputs: Inputs,
    options: PoolOptions,
    *,
    engine: Engine = INLINE,
    report: Callable[[Progress], None] = lambda _: None,
    message: Callable[[str], None] = lambda text: None,
    started_at: float | None = None,
) -> BuildCounts:
    """Make a pool or resume it, as `duck pool` does.

    started_at   time.monotonic() from which the time limit counts
    """
    started_at = time.monotonic() if started_at is None else started_at
    options.check()
    device = pick_device(options.device)
    share = parse_share(options.share)
    if options.share is None and share[1] > 1:
        message(
            f"Task {share[0]} of {share[1]} of a Slurm array: it trains this part of the pool. "
            "--share 1/1 trains all."
        )
    plan = make_plan(inputs, options, device.type == "cuda", message)
    limit = None
    if options.limit_minutes is not None:
        limit = 60 * options.limit_minutes - (time.monotonic() - started_at)
    return build_pool(
        options.out,
        plan,
        inputs.data,
        options.models,
        device=device,
        compiled=plan.experiment.training.recipe.compile,
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


def make_plan(
    inputs: Inputs, options: PoolOptions, compiled: bool, message: Callable[[str], None]
) -> Plan:
    """Return the plan of a pool: of shadow models, or of models that unlearn a request."""
    data = inputs.data
    known = options.experiment
    if known is not None and known.training.fingerprint != fingerprint(data):
        raise BadInput(
            f"The data are not those of {options.run}: the fingerprints differ. Name them with "
            "--data, --root."
        )
    if options.is_foreign and not inputs.recipe:
        message(
            f"The recipe of the original of {options.run} is not known: the pool is trained with "
            "the default recipe. Recipe flags set another one."
        )
    if known is not None:
        model = options.model or known.training.model
        recipe = known.training.recipe
    else:
        model = options.model or ("convnet" if data.name in SMALL_IMAGES else "resnet18")
        recipe = default_recipe(data.name, len(data.train), data.augment, model)
    training = Training(
        data.name,
        model,
        # Many models are worth the time of compiling, which the CPU does not gain from.
        replace(recipe, **{"compile": compiled, **inputs.recipe}),
        0,
        inputs.image_size,
        inputs.mean,
        inputs.std,
        fingerprint(data),
    )
    seed = options.seed
    if seed is None:
        seed = known.seed if known else 0
    request = inputs.request or (known.request if known else None)
    if request is None:
        return Plan(Experiment(training, seed=seed))
    scenario = request(data, seed, inputs.protocol)
    for finding in check_data(scenario):
        message(str(finding))
    earlier = known.earlier if known else ()
    method = _method(options, data, scenario.kind)
    return Plan(Experiment(training, request, method, seed, inputs.protocol, earlier))


def _method(options: PoolOptions, data: Data, kind: str) -> Method:
    """Return the method of the run, unless an option names one."""
    known = options.experiment.method if options.experiment else None
    if known is not None and not (options.method or options.preset or options.presets):
        return known
    name = options.method or (METHODS.name_of(known) if known else "duck")
    chosen = options.preset or "tuned"
    return preset(name, data.name, kind, len(data.train), chosen, options.presets)
