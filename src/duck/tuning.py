"""Search the settings of a method on holdout data; test data are never used.

The search space is published, and the budget is the same for every method.
"""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from duck.audits.memory import ResidualMemory
from duck.audits.scores import margins
from duck.audits.statistics import rank_auc
from duck.audits.sub_scenarios import restrict
from duck.engines import INLINE, Engine
from duck.errors import BadInput, MissingExtra
from duck.methods.base import METHODS, Method
from duck.metrics import aus
from duck.predict import accuracy, logits_on
from duck.preparation import Preparations
from duck.runtime import Stopwatch, device_of
from duck.scenarios import check_retain
from duck.search_spaces import (
    Settings,
    Space,
    by_name,
    covering,
    plain,
    settings_in,
    space_of,
    value_of,
)
from duck.types import Original, Recipe, Scenario, Task

T = TypeVar("T")
Objective = Literal["aus", "gap", "memory"]
MIN_TRIALS_TO_WIDEN = 3
"""Trials before a range is widened. The best of fewer trials means little."""
FAILED = -2.0
"""Score of a trial that failed: the lowest that an objective can have."""


@dataclass(frozen=True)
class Trial:
    """One setting and its scores on holdout data."""

    number: int
    settings: Settings
    score: float
    """The objective, higher is better; FAILED if the method failed."""
    kept: float | None
    """Holdout accuracy; in class removal, on the retained classes."""
    forgotten: float | None
    """Accuracy on holdout samples of the removed classes or, in sample removal, on the forget set.
    """
    seconds: float
    error: str | None = None
    objective: Objective = "aus"
    auc: float | None = None
    """How well confidence separates forget from holdout samples, for the objective `gap`."""
    memory: float | None = None
    """Residual memory, for the objective `memory`: 0 as a retrained model, 1 as the original."""
    aus: float | None = None
    """AUS on holdout data, whatever the objective is."""
    pruned: bool = False
    """Whether scenarios were skipped because no scores on them could have made it the best."""


def tune(
    method: Method,
    original: Original,
    scenarios: Sequence[Scenario],
    budget: int,
    *,
    retrained: Sequence[nn.Module] | None = None,
    objective: Objective | None = None,
    done: Sequence[Trial] = (),
    engine: Engine = INLINE,
) -> Iterator[Trial]:
    """Yield trials as they end; the first one has the settings of `method`.

    One half of the holdout is for stop rules, the other half for scores. Each trial runs on all
    scenarios, which are of one kind, and its score is the mean. A trial that cannot become the
    best is pruned, but counts. A range is widened if the best setting is at its edge.

    retrained   models trained without the forget set, one for each scenario, for the objectives
                `memory` and `gap`
    objective   as in `TuneOptions`; None: `gap` if there are retrained models, else `aus`
    done        the first trials of the same search, which is resumed after them
    engine      with several workers, the scenarios of a trial run at the same time; the trials are
                the same with every engine
    """
    published = space_of(METHODS.name_of(method))
    chosen: Objective = objective or ("aus" if retrained is None else "gap")
    check_search(scenarios, budget, chosen)
    if chosen != "aus" and retrained is None:
        raise BadInput(f"The objective {chosen} needs retrained models.")
    if retrained is not None and len(retrained) != len(scenarios):
        raise BadInput(
            f"Tuning needs one retrained model for each scenario: there are {len(retrained)} for "
            f"{len(scenarios)}."
        )
    study = _create_study(scenarios[0].seed, budget)
    recipe = original.recipe or Recipe()
    options = {"new_model": original.new_model, "recipe": recipe, "head": original.head}
    references: Sequence[nn.Module | None] = retrained or [None] * len(scenarios)
    judges = [
        _Judge(original.model, scenario, scenario.task(**options), chosen, reference)
        for scenario, reference in zip(scenarios, references, strict=True)
    ]
    start = settings_in(published, method)
    base = covering(published, start)
    trials: list[Trial] = []
    # The workers, with their copies of the models and data, serve all trials.
    with engine.open(partial(_run_part, judges=judges, method=method), len(judges)) as execute:
        for number in range(budget):
            first = start if number == 0 else None
            suggestion, settings = _propose(study, widened(base, trials), first)
            if number < len(done):
                trial = done[number]
                if trial.settings != settings:
                    raise BadInput(
                        f"Trial {number} of those done is of another search: it has "
                        f"{trial.settings}, not {settings}."
                    )
            else:
                best_score = max((trial.score for trial in trials), default=FAILED)
                trial = _run(judges, number, settings, best_score, execute)
                yield trial
            study.tell(suggestion, trial.score)
            trials.append(trial)


def _create_study(seed: int, budget: int) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("Tuning needs Optuna: pip install 'duck-unlearning[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Optuna would start with ten random settings: too many for a small budget.
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(3, budget // 4))
    return optuna.create_study(direction="maximize", sampler=sampler)


def check_search(scenarios: Sequence[Scenario], budget: int, objective: Objective) -> None:
    """Raise an error for a search that cannot be run."""
    if budget < 1:
        raise BadInput(f"The budget is a number of trials and must be at least 1, got {budget}.")
    if len({scenario.kind for scenario in scenarios}) != 1:
        raise BadInput(
            "Tuning needs one or more scenarios, all of one kind: whole classes, or single samples."
        )
    for scenario in scenarios:
        check_retain(scenario)
    if objective == "gap" and scenarios[0].kind == "class":
        raise BadInput("The objective gap is for single samples: take memory or aus for classes.")


def _propose(study: Any, space: Space, first: Settings | None) -> tuple[Any, Settings]:
    """Return the study's next suggestion and the settings of the next trial.

    The settings of the first trial are used even outside the space.
    """
    if first is not None:
        drawn = {key: values for key, values in space.items() if values.fixed is None}
        study.enqueue_trial({key: drawn[key].nearest(value_of(first, key)) for key in drawn})
    suggestion = study.ask()
    suggested = {key: values.suggest(suggestion, key) for key, values in space.items()}
    return suggestion, first or by_name(suggested)


def mean(parts: Sequence[Trial]) -> Trial:
    """Return one trial from its runs on several scenarios; if one run failed, the trial failed."""
    seconds = sum(part.seconds for part in parts)
    for part in parts:
        if part.error:
            return replace(part, seconds=seconds)
    means: dict[str, Any] = {}
    for name in ("score", "kept", "forgotten", "auc", "memory", "aus"):
        if getattr(parts[0], name) is not None:
            means[name] = statistics.fmean(getattr(part, name) for part in parts)
    return replace(parts[0], **means, seconds=seconds)


def best(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the highest score; of equal ones, the earliest."""
    return max(trials, key=lambda trial: (trial.score, -trial.number))


def changes(method: Method, trial: Trial) -> Settings:
    """Return the settings of a trial that differ from the method's."""
    known = {field.name for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    return {
        name: value
        for name, value in trial.settings.items()
        if name in known and plain(getattr(method, name)) != value
    }


def with_settings(method: Method, settings: Settings) -> Method:
    """Return the method with the settings of a trial."""
    tuples = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    return replace(method, **tuples)  # type: ignore[type-var]


def widened(space: Space, trials: Sequence[Trial]) -> Space:
    """Return the space with wider ranges where the best trial is at the edge."""
    if len(trials) < MIN_TRIALS_TO_WIDEN or best(trials).error:
        return space
    settings = best(trials).settings
    return {
        key: values.widened(value_of(settings, key)) if values.is_range else values
        for key, values in space.items()
    }


def at_edge(method: str, trials: Sequence[Trial]) -> list[str]:
    """Return the settings of the best trial at the edge of their range that no trial exceeded."""
    settings = best(trials).settings
    keys = []
    for key, values in covering(space_of(method), trials[0].settings).items():
        value = value_of(settings, key)
        if values.is_range and not values.is_limit(value):
            tried = [value_of(trial.settings, key) for trial in trials]
            below, above = values.edges(value)
            is_lowest = below and min(tried) == value
            is_highest = above and max(tried) == value
            keys += [key] if is_lowest or is_highest else []
    return keys


def _run_part(
    task: tuple[int, int, Settings], judges: Sequence["_Judge"], method: Method
) -> tuple[int, Trial]:
    """Run a setting on one scenario, which is given by its place."""
    place, number, settings = task
    return place, judges[place](number, with_settings(method, settings), settings)


def _run(
    judges: Sequence["_Judge"],
    number: int,
    settings: Settings,
    best_score: float,
    execute: Callable[..., Iterator[tuple[int, Trial]]],
) -> Trial:
    """Run a setting on the scenarios until it can no longer become the best.

    Several workers run all scenarios at once. What comes after the end is then discarded, so that
    a trial does not depend on the number of workers.
    """
    results = execute([(place, number, settings) for place in range(len(judges))])
    parts: list[Trial] = []
    for part in in_order(results):
        parts.append(part)
        left = [judge.highest for judge in judges[len(parts) :]]
        reachable = (sum(part.score for part in parts) + sum(left)) / len(judges)
        if part.error:
            break
        if left and reachable < best_score:
            return replace(mean(parts), pruned=True)
    return mean(parts)


def in_order(results: Iterable[tuple[int, T]]) -> Iterator[T]:
    """Yield results in the order of their places, as soon as those before them are there."""
    finished: dict[int, T] = {}
    next_place = 0
    for place, result in results:
        finished[place] = result
        while next_place in finished:
            yield finished.pop(next_place)
            next_place += 1


class _Measures(NamedTuple):
    """What a judge measures of a model on holdout data."""

    kept: float
    forgotten: float
    auc: float | None
    """How well confidence separates forget from holdout samples."""
    memory: float | None


class _Judge:
    """Runs a setting and scores it on the half of the holdout that its stop rule does not use."""

    def __init__(
        self,
        model: nn.Module,
        scenario: Scenario,
        task: Task,
        objective: Objective,
        retrained: nn.Module | None = None,
    ) -> None:
        if task.holdout is None or len(task.holdout) < 2:
            raise BadInput("Tuning needs holdout data: give data with a test split.")
        self.model = model
        self.kind = scenario.kind
        self.objective = objective
        self.preparations = Preparations()
        rows = torch.arange(len(task.holdout))
        # Each sample twice: the limits of stop rules depend on the number of samples. With half of
        # them, a rule would allow twice the loss of accuracy that it allows later.
        self.task = replace(task, holdout=task.holdout.take(rows[::2].repeat(2)))
        self.holdout = task.holdout.take(rows[1::2])
        is_retained = torch.isin(self.holdout.labels, task.retain.labels)
        self.retained = is_retained if self.kind == "class" else torch.ones_like(is_retained)
        self.original = self._accuracy(model, self.retained)
        self.memory: ResidualMemory | None = None
        if objective == "memory" and retrained is not None:
            part = restrict(scenario, scenario.forget, scenario.holdout[1::2])
            self.memory = ResidualMemory(part, model, retrained, task.head)
        self.reference = None if retrained is None else self._measure(retrained)

    @property
    def highest(self) -> float:
        """The highest score that a model can reach."""
        return 2 - self.original if self.objective == "aus" else 1.0

    def __call__(self, number: int, method: Method, settings: Settings) -> Trial:
        stopwatch = Stopwatch(device_of(self.model))
        try:
            prepared, _ = self.preparations(method, self.model, self.task)
            with stopwatch:
                unlearned = method(self.model, replace(self.task, prepared=prepared))
            found = self._measure(unlearned)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            return Trial(
                number, settings, FAILED, None, None, stopwatch.seconds, message, self.objective
            )
        holdout_aus = aus(self.kind, self.original, found.kept, found.forgotten)
        return Trial(
            number,
            settings,
            self._score(found, holdout_aus),
            seconds=stopwatch.seconds,
            objective=self.objective,
            aus=holdout_aus,
            **found._asdict(),
        )

    def _score(self, found: "_Measures", holdout_aus: float) -> float:
        reference = self.reference
        if self.objective == "aus" or reference is None:
            return holdout_aus
        if self.objective == "memory":
            return 1 - (found.memory or 0.0) - max(0.0, reference.kept - found.kept)
        pairs = zip(found[:3], reference[:3], strict=True)
        return 1 - sum(abs((value or 0.0) - (other or 0.0)) for value, other in pairs)

    def _measure(self, model: nn.Module) -> "_Measures":
        return _Measures(
            self._accuracy(model, self.retained),
            self._forget_accuracy(model),
            self._auc(model) if self.objective == "gap" else None,
            self.memory(model) if self.memory else None,
        )

    def _forget_accuracy(self, model: nn.Module) -> float:
        if self.kind == "class" and not self.retained.all():
            return self._accuracy(model, ~self.retained)
        return accuracy(model, self.task.forget)

    def _accuracy(self, model: nn.Module, rows: Tensor) -> float:
        return accuracy(model, self.holdout.take(rows.nonzero().flatten()))

    def _auc(self, model: nn.Module) -> float:
        """Return how well confidence separates forget samples from holdout samples."""
        sides = (self.task.forget, self.holdout)
        logits = torch.cat([logits_on(model, examples) for examples in sides]).cpu().numpy()
        is_member = np.arange(len(logits)) < len(self.task.forget)
        return rank_auc(margins(logits, logits.argmax(1)), is_member)
