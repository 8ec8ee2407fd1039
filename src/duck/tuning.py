"""Search a method's settings on holdout data: the same published space and budget for everyone, test data never."""

import dataclasses
import statistics
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor, nn

from duck.errors import BadInput, MissingExtra
from duck.methods.base import METHODS, Method
from duck.metrics import aus
from duck.predict import outcomes
from duck.preparation import Preparations
from duck.runtime import Stopwatch, device_of
from duck.types import Recipe, Scenario, Task


@dataclass(frozen=True)
class Trial:
    """One setting and what it reached on holdout data."""

    number: int
    settings: dict[str, Any]
    score: float
    """AUS with holdout data in the place of test data; -1 where the method failed."""
    kept: float | None
    forgotten: float | None
    seconds: float
    error: str | None = None


@cache
def spaces() -> dict[str, dict[str, dict[str, Any]]]:
    """spaces.toml."""
    return tomllib.loads(files("duck.methods").joinpath("spaces.toml").read_text(encoding="utf-8"))


def space_of(method: str) -> dict[str, dict[str, Any]]:
    """The settings that are searched for a method."""
    METHODS[method]
    if method not in spaces():
        raise BadInput(f"{method} has nothing to tune. Methods with a search space: {', '.join(spaces())}.")
    return spaces()[method]


def tune(
    method: Method,
    model: nn.Module,
    scenarios: Sequence[Scenario],
    budget: int,
    *,
    new_model: Callable[[], nn.Module] | None = None,
    recipe: Recipe | None = None,
    head: str | None = None,
    done: Sequence[Trial] = (),
    also: Sequence[Method] = (),
) -> Iterator[Trial]:
    """Trials as they end; the first is `method` as it is. Half of the holdout steers stop rules, the other half scores.

    Several scenarios of one kind: each trial runs on all of them, and its score is the mean. `done`: the first trials of the same search,
    which then goes on after them. `also`: settings known from elsewhere, tried before further ones are drawn; they count as trials.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("Tuning needs Optuna: pip install 'duck-unlearning[tune]'") from error
    if budget < 1:
        raise BadInput(f"The budget is a number of trials and must be at least 1, got {budget}.")
    space = space_of(METHODS.name_of(method))
    if len({scenario.kind for scenario in scenarios}) != 1:
        raise BadInput("Tuning needs one or more scenarios, all of one kind: whole classes, or single samples.")
    rest = {"new_model": new_model, "recipe": recipe or Recipe(), "head": head}
    judges = [_Judge(model, scenario.task(**rest), scenario.kind) for scenario in scenarios]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Random settings first, but not the ten that Optuna's default would take of a small budget.
    sampler = optuna.samplers.TPESampler(seed=scenarios[0].seed, n_startup_trials=max(3, budget // 4))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    known = [{name: getattr(each, name) for name in space} for each in (method, *also)]
    for number in range(budget):
        # A search that was done without some of `also` goes on with them.
        given = done[number].settings if number < len(done) else next(iter(known), None)
        if given in known:
            known.remove(given)
            study.enqueue_trial(_inside(given, space))
        else:
            given = None
        asked = study.ask()
        drawn = {name: _suggest(asked, name, options) for name, options in space.items()}
        settings = given or drawn  # what is given is taken as it is, also where it lies outside the space
        if number < len(done):
            if done[number].settings != settings:
                raise BadInput(f"Trial {number} of those done is of another search: it has {done[number].settings}, not {settings}.")
            study.tell(asked, done[number].score)
            continue
        trial = mean([judge(number, replace(method, **settings), settings) for judge in judges])  # type: ignore[type-var]
        study.tell(asked, trial.score)
        yield trial


def mean(parts: Sequence[Trial]) -> Trial:
    """One trial of its runs on several scenarios; one that failed fails it."""
    failed = next((part for part in parts if part.error), None)
    seconds = sum(part.seconds for part in parts)
    if failed:
        return replace(failed, seconds=seconds)
    kept, forgotten = (statistics.fmean(getattr(part, name) for part in parts) for name in ("kept", "forgotten"))
    return replace(parts[0], score=statistics.fmean(part.score for part in parts), kept=kept, forgotten=forgotten, seconds=seconds)


def best(trials: list[Trial]) -> Trial:
    """The one with the highest score; the earliest of equals."""
    return max(trials, key=lambda trial: (trial.score, -trial.number))


def changes(method: Method, trial: Trial) -> dict[str, Any]:
    """The settings of a trial that differ from the method's."""
    known = {field.name for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    return {name: value for name, value in trial.settings.items() if name in known and getattr(method, name) != value}


def _suggest(asked: Any, name: str, options: dict[str, Any]) -> Any:
    if "choices" in options:
        return asked.suggest_categorical(name, options["choices"])
    return asked.suggest_float(name, options["low"], options["high"], log=options.get("log", False))


def _inside(settings: dict[str, Any], space: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The start of the search must lie in the space: a value outside is moved to its edge."""
    return {
        name: (value if value in space[name]["choices"] else space[name]["choices"][0])
        if "choices" in space[name]
        else min(max(value, space[name]["low"]), space[name]["high"])
        for name, value in settings.items()
    }


class _Judge:
    """Runs a setting and scores it on the half of the holdout that its stop rule did not see."""

    def __init__(self, model: nn.Module, task: Task, kind: str) -> None:
        if task.holdout is None or len(task.holdout) < 2:
            raise BadInput("Tuning needs holdout data: give data with a test split.")
        self.model, self.kind, self.preparations = model, kind, Preparations()
        rows = torch.arange(len(task.holdout))
        self.task = replace(task, holdout=task.holdout.take(rows[::2]))
        self.judged = task.holdout.take(rows[1::2])
        stays = torch.isin(self.judged.labels, task.retain.labels)
        self.kept_rows = stays if kind == "class" else torch.ones_like(stays)
        self.original = self._accuracy(model, self.kept_rows)

    def __call__(self, number: int, method: Method, settings: dict[str, Any]) -> Trial:
        stopwatch = Stopwatch(device_of(self.model))
        try:
            prepared, _ = self.preparations(method, self.model, self.task)
            with stopwatch:
                unlearned = method(self.model, replace(self.task, prepared=prepared))
        except Exception as error:
            return Trial(number, settings, -1.0, None, None, stopwatch.seconds, f"{type(error).__name__}: {error}")
        kept = self._accuracy(unlearned, self.kept_rows)
        gone = self._forgotten(unlearned)
        return Trial(number, settings, aus(self.kind, self.original, kept, gone), kept, gone, stopwatch.seconds)

    def _forgotten(self, model: nn.Module) -> float:
        if self.kind == "class" and not self.kept_rows.all():
            return self._accuracy(model, ~self.kept_rows)
        return float(outcomes(model, self.task.forget).correct.double().mean())

    def _accuracy(self, model: nn.Module, rows: Tensor) -> float:
        return float(outcomes(model, self.judged.take(rows.nonzero().flatten())).correct.double().mean())
