"""The smallest pools: a small net on toy data, a short training, a short unlearning."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from duck.display import JobProgress
from duck.experiment import Experiment, Training, fingerprint
from duck.methods.base import METHODS, Method
from duck.pools.build import BuildCounts, build_pool
from duck.pools.files import ModelInfo
from duck.pools.plan import Design, Plan
from duck.pools.reader import Pool, Stack
from duck.scenarios import ForgetClasses, Request
from duck.types import Recipe
from tests.toys import toy_data

RECIPE = Recipe(epochs=2, batch_size=64, lr=0.05)
METHOD: Method = METHODS["finetune"](epochs=1, batch_size=64)  # type: ignore[call-arg]


def experiment(request: Request | None = None, **changes: Any) -> Experiment:
    training = Training("toy", "convnet", RECIPE, fingerprint=fingerprint(toy_data()))
    return replace(Experiment(training, request or ForgetClasses([2]), METHOD), **changes)


def plan(design: Design = "request", request: Request | None = None, **changes: Any) -> Plan:
    wanted = experiment(request, **changes)
    return Plan(wanted if design == "request" else replace(wanted, request=None, method=None))


def build(
    folder: Path,
    what: Plan,
    models: int,
    report: Callable[[JobProgress[ModelInfo]], None] = lambda _: None,
    **options: Any,
) -> BuildCounts:
    return build_pool(folder, what, toy_data(), models, device="cpu", report=report, **options)


def pool(folder: Path, what: Plan, models: int, **options: Any) -> Pool:
    build(folder, what, models, **options)
    return Pool(folder)


def all_logits(stack: Stack) -> npt.NDArray[np.float16]:
    """Return the logits of all models, (models, samples, classes)."""
    return np.stack([stack.logits(model) for model in range(len(stack))])
