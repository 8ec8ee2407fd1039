"""Search a method's settings on holdout data: the same published space and budget for every method, never the test data."""

import dataclasses
import json
import math
import statistics
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from duck.artifacts import ArtifactStore
from duck.engines import Engine, InlineEngine
from duck.errors import BadInput, MissingExtra
from duck.experiment import Training
from duck.json_text import to_json
from duck.methods.base import METHODS, Method
from duck.metrics import aus
from duck.predict import logits_on, outcomes
from duck.preparation import Preparations
from duck.retraining import Retraining
from duck.runtime import Stopwatch, device_of
from duck.types import Examples, Recipe, Scenario, Task

INLINE = InlineEngine()
Objective = Literal["aus", "gap"]
Settings = dict[str, Any]
Space = dict[str, dict[str, Any]]
EDGE = 0.05
"""Share of a range that counts as its edge."""
FEWEST = 3
"""Trials before a range is widened: of fewer, the best says little."""
FAILED = -2.0
"""Score of a trial that failed: the lowest that an objective can have."""
BOUND = 1e6
"""Largest log-odds: those of a sample whose other classes are all masked are infinite."""
WIDER = 4.0
"""Factor by which a range on a log scale is widened; a linear one grows by half of its width."""


@dataclass(frozen=True)
class Trial:
    """One setting and what it reached on holdout data."""

    number: int
    settings: Settings
    score: float
    """By the objective, higher is better; FAILED where the method failed."""
    kept: float | None
    """Holdout accuracy; of class removal, on the classes that are kept."""
    forgotten: float | None
    """Accuracy on holdout samples of the removed classes or, of single samples, on the forget set."""
    seconds: float
    error: str | None = None
    objective: Objective = "aus"
    auc: float | None = None
    """Of telling forget from holdout samples by confidence, where the objective is `gap`."""
    pruned: bool = False
    """Not run on all scenarios: even perfect scores on the others would not have made it the best."""


@cache
def spaces() -> dict[str, Space]:
    """Return spaces.toml: for each method the settings that are searched."""
    return tomllib.loads(files("duck.methods").joinpath("spaces.toml").read_text(encoding="utf-8"))


def space_of(method: str) -> Space:
    """Return the settings that are searched for a method."""
    METHODS[method]
    if method not in spaces():
        raise BadInput(
            f"{method} has nothing to tune. Methods with a search space: {', '.join(spaces())}."
        )
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
    retrained: Sequence[nn.Module] | None = None,
    done: Sequence[Trial] = (),
    also: Sequence[Method] = (),
    engine: Engine = INLINE,
) -> Iterator[Trial]:
    """Yield trials as they end; the first is `method` as it is.

    Half of the holdout steers stop rules, the other half scores. Each trial runs on all scenarios, which are of one kind, and its score
    is the mean. A trial that cannot become the best is pruned, and counts. A range grows where the best setting lies at its edge.

    retrained   models trained without the forget set, one for each scenario: the objective is then `gap`, 1 minus the differences to
                them in holdout accuracy, forget accuracy and confidence AUC. Without them it is `aus`.
    done        the first trials of the same search, which continues after them
    also        settings known from elsewhere, tried before others are drawn; they count as trials
    engine      with several workers, the scenarios of a trial run at the same time; the trials are
                the same with every engine
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("Tuning needs Optuna: pip install 'duck-unlearning[tune]'") from error
    if budget < 1:
        raise BadInput(f"The budget is a number of trials and must be at least 1, got {budget}.")
    published = space_of(METHODS.name_of(method))
    if len({scenario.kind for scenario in scenarios}) != 1:
        raise BadInput(
            "Tuning needs one or more scenarios, all of one kind: whole classes, or single samples."
        )
    if retrained is not None and scenarios[0].kind == "class":
        raise BadInput(
            "Retrained models serve the search for single samples; of whole classes the objective is AUS."
        )
    if retrained is not None and len(retrained) != len(scenarios):
        raise BadInput(
            f"Tuning needs one retrained model for each scenario: there are {len(retrained)} for {len(scenarios)}."
        )
    rest = {"new_model": new_model, "recipe": recipe or Recipe(), "head": head}
    references: Sequence[nn.Module | None] = retrained or [None] * len(scenarios)
    judges = [
        _Judge(model, one.task(**rest), one.kind, known)
        for one, known in zip(scenarios, references, strict=True)
    ]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Random settings first, but not the ten that Optuna's default would take of a small budget.
    sampler = optuna.samplers.TPESampler(
        seed=scenarios[0].seed, n_startup_trials=max(3, budget // 4)
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    known = [_settings_of(one, published) for one in (method, *also)]
    base, trials = _covering(published, known[0]), list[Trial]()
    for number in range(budget):
        space = widened(base, trials)
        # A search that was done without some of `also` goes on with them.
        given = done[number].settings if number < len(done) else next(iter(known), None)
        if given in known:
            known.remove(given)
            study.enqueue_trial(_drawable(given, space))
        else:
            given = None
        asked = study.ask()
        drawn = {name: _suggest(asked, name, options) for name, options in space.items()}
        settings = (
            _flat(drawn) if given is None else given
        )  # what is given is taken as it is, also where it lies outside the space
        if number < len(done):
            if done[number].settings != settings:
                raise BadInput(
                    f"Trial {number} of those done is of another search: it has {done[number].settings}, not {settings}."
                )
            trial = done[number]
        else:
            best_score = max((one.score for one in trials), default=FAILED)
            trial = _run(judges, number, method, settings, best_score, engine)
        study.tell(asked, trial.score)
        trials.append(trial)
        if number >= len(done):
            yield trial


def retrain(
    model: nn.Module,
    scenarios: Sequence[Scenario],
    *,
    new_model: Callable[[], nn.Module],
    recipe: Recipe,
    training: Training | None = None,
    store: ArtifactStore | None = None,
    engine: Engine = INLINE,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[nn.Module]:
    """Return a model without the forget set of each scenario, for the objective `gap`.

    training, store   models that were stored for this training of the original are reused
    report            progress callback: called with (done, total)
    """
    retrainings = [
        Retraining(scenario, model, new_model, recipe, training, store or ArtifactStore())
        for scenario in scenarios
    ]
    models: dict[int, nn.Module] = {}
    work = _RetrainScenario(retrainings)
    for place, retrained in engine(work, range(len(retrainings)), lambda _: True):
        models[place] = retrained
        report(len(models), len(retrainings))
    return [models[place] for place in range(len(retrainings))]


@dataclass(frozen=True)
class _RetrainScenario:
    """Loads or trains the model of one scenario, which is given by its place."""

    retrainings: Sequence[Retraining]

    def __call__(self, place: int) -> tuple[int, nn.Module]:
        retraining = self.retrainings[place]
        return place, retraining.load_or_train(retraining.scenario.seed)


def mean(parts: Sequence[Trial]) -> Trial:
    """Return one trial of its runs on several scenarios; one that failed fails it."""
    failed = next((part for part in parts if part.error), None)
    seconds = sum(part.seconds for part in parts)
    if failed:
        return replace(failed, seconds=seconds)
    names = [
        name
        for name in ("score", "kept", "forgotten", "auc")
        if getattr(parts[0], name) is not None
    ]
    means: dict[str, Any] = {
        name: statistics.fmean(getattr(part, name) for part in parts) for name in names
    }
    return replace(parts[0], **means, seconds=seconds)


def best(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the highest score; the earliest of equals."""
    return max(trials, key=lambda trial: (trial.score, -trial.number))


def changes(method: Method, trial: Trial) -> Settings:
    """Return the settings of a trial that differ from the method's."""
    known = {field.name for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    return {
        name: value
        for name, value in trial.settings.items()
        if name in known and _plain(getattr(method, name)) != value
    }


def with_settings(method: Method, settings: Settings) -> Method:
    """Return the method with the settings of a trial."""
    tuples = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    return replace(method, **tuples)  # type: ignore[type-var]


def widened(space: Space, trials: Sequence[Trial]) -> Space:
    """Return the space with those ranges widened at whose edge the best trial lies; never beyond their `min` and `max`."""
    if len(trials) < FEWEST or best(trials).error:
        return space
    settings = best(trials).settings
    return {
        name: _widened(options, settings[name]) if "low" in options else options
        for name, options in space.items()
    }


def at_edge(method: str, trials: Sequence[Trial]) -> list[str]:
    """Return the settings of the best trial that lie at the edge of their range, where no trial has looked beyond them."""
    chosen, found = best(trials), []
    for name, options in _covering(space_of(method), trials[0].settings).items():
        if "low" not in options:
            continue
        value, tried = chosen.settings[name], [trial.settings[name] for trial in trials]
        below, above = _edges(options, value)
        if (below and min(tried) == value) or (above and max(tried) == value):
            found.append(name)
    return found


def _run(
    judges: Sequence["_Judge"],
    number: int,
    method: Method,
    settings: Settings,
    best_score: float,
    engine: Engine,
) -> Trial:
    """Run a setting on the scenarios until it can no longer become the best.

    Several workers run all scenarios at once. What comes after the end is then discarded, so that
    a trial does not depend on the number of workers.
    """
    parts: list[Trial] = []
    for part in _scenario_trials(_ScenarioTrial(judges, number, method, settings), engine):
        parts.append(part)
        left = [judge.highest for judge in judges[len(parts) :]]
        reachable = (sum(part.score for part in parts) + sum(left)) / len(judges)
        if part.error:
            break
        if left and reachable < best_score:
            return replace(mean(parts), pruned=True)
    return mean(parts)


@dataclass(frozen=True)
class _ScenarioTrial:
    """Runs a setting on one scenario, which is given by its place."""

    judges: Sequence["_Judge"]
    number: int
    method: Method
    settings: Settings

    def __call__(self, place: int) -> tuple[int, Trial]:
        method = with_settings(self.method, self.settings)
        return place, self.judges[place](self.number, method, self.settings)


def _scenario_trials(run: _ScenarioTrial, engine: Engine) -> Iterator[Trial]:
    """Yield the trials on the scenarios in their order."""
    finished: dict[int, Trial] = {}
    results = engine(run, range(len(run.judges)), lambda place: True)
    for place in range(len(run.judges)):
        while place not in finished:
            other, trial = next(results)
            finished[other] = trial
        yield finished[place]


def _widened(options: Mapping[str, Any], value: float) -> dict[str, Any]:
    wide = dict(options)
    while True:
        below, above = _edges(wide, value)
        low, high = wide["low"], wide["high"]
        if options.get("log"):
            lower, higher = low / WIDER, high * WIDER
        else:
            lower, higher = low - (high - low) / 2, high + (high - low) / 2
        if options.get("integer"):
            lower, higher = math.floor(lower), math.ceil(higher)
        if below:
            wide["low"] = max(lower, options.get("min", -math.inf))
        if above:
            wide["high"] = min(higher, options.get("max", math.inf))
        if (wide["low"], wide["high"]) == (low, high):
            return wide


def _edges(options: Mapping[str, Any], value: float) -> tuple[bool, bool]:
    """Return whether a value lies at the lower and at the upper edge of a range that could still grow there."""
    scale: Callable[[float], float] = math.log if options.get("log") else float
    low, high = options["low"], options["high"]
    if options.get("log") and value <= 0:
        return False, False
    margin = 0.0 if options.get("integer") else EDGE * (scale(high) - scale(low))
    below = low > options.get("min", -math.inf) and scale(value) <= scale(low) + margin
    above = high < options.get("max", math.inf) and scale(value) >= scale(high) - margin
    return below, above


def _names(key: str) -> list[str]:
    """Return the settings of a key of a space: one, or several that are chosen together."""
    return key.split(", ")


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it."""
    return list(value) if isinstance(value, tuple) else value


def _settings_of(method: Method, space: Space) -> Settings:
    return {name: _plain(getattr(method, name)) for key in space for name in _names(key)}


def _flat(drawn: Settings) -> Settings:
    """Return the settings that were drawn, each by its own name."""
    flat: Settings = {}
    for key, value in drawn.items():
        names = _names(key)
        flat |= dict(zip(names, value, strict=True)) if len(names) > 1 else {key: value}
    return flat


def _value(settings: Settings, key: str) -> Any:
    names = _names(key)
    return [settings[name] for name in names] if len(names) > 1 else settings[key]


def _covering(space: Space, settings: Settings) -> Space:
    """Return the space with ranges and choices that hold these settings, so that the search can start from them."""
    covering: Space = {}
    for key, options in space.items():
        value = _value(settings, key)
        if "choices" in options and value not in options["choices"]:
            options = {**options, "choices": [*options["choices"], value]}
        elif "low" in options and (value > 0 or not options.get("log")):
            options = {
                **options,
                "low": min(options["low"], value),
                "high": max(options["high"], value),
            }
        covering[key] = options
    return covering


def _drawable(settings: Settings, space: Space) -> Settings:
    """Return settings as the sampler can take them: a value outside its range is moved to the edge."""
    drawable: Settings = {}
    for key, options in space.items():
        value = _value(settings, key)
        if "choices" in options:
            drawable[key] = to_json(value if value in options["choices"] else options["choices"][0])
        elif "low" in options:
            drawable[key] = min(max(value, options["low"]), options["high"])
    return drawable


def _suggest(asked: Any, key: str, options: Mapping[str, Any]) -> Any:
    if "fixed" in options:
        return options["fixed"]
    if "choices" in options:
        return json.loads(
            asked.suggest_categorical(key, [to_json(choice) for choice in options["choices"]])
        )
    log = options.get("log", False)
    if options.get("integer"):
        return asked.suggest_int(key, options["low"], options["high"], log=log)
    return asked.suggest_float(key, options["low"], options["high"], log=log)


class _Judge:
    """Runs a setting and scores it on the half of the holdout that its stop rule did not see."""

    def __init__(
        self, model: nn.Module, task: Task, kind: str, retrained: nn.Module | None = None
    ) -> None:
        if task.holdout is None or len(task.holdout) < 2:
            raise BadInput("Tuning needs holdout data: give data with a test split.")
        self.model, self.kind, self.preparations = model, kind, Preparations()
        rows = torch.arange(len(task.holdout))
        self.task = replace(task, holdout=task.holdout.take(rows[::2]))
        self.judged = task.holdout.take(rows[1::2])
        stays = torch.isin(self.judged.labels, task.retain.labels)
        self.kept_rows = stays if kind == "class" else torch.ones_like(stays)
        self.original = self._accuracy(model, self.kept_rows)
        self.objective: Objective = "aus" if retrained is None else "gap"
        self.reference = () if retrained is None else self._measures(retrained)

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
            measures = self._measures(unlearned)
        except Exception as error:
            return Trial(
                number,
                settings,
                FAILED,
                None,
                None,
                stopwatch.seconds,
                f"{type(error).__name__}: {error}",
                self.objective,
            )
        kept, forgotten, auc = (*measures, None)[:3]
        return Trial(
            number,
            settings,
            self._score(measures),
            kept,
            forgotten,
            stopwatch.seconds,
            None,
            self.objective,
            auc,
        )

    def _score(self, measures: Sequence[float]) -> float:
        if self.objective == "aus":
            return aus(self.kind, self.original, *measures)
        return 1 - sum(
            abs(value - reference)
            for value, reference in zip(measures, self.reference, strict=True)
        )

    def _measures(self, model: nn.Module) -> tuple[float, ...]:
        """Return the holdout accuracy, the forget accuracy and, where the objective is the gap, the confidence AUC."""
        accuracies = self._accuracy(model, self.kept_rows), self._forgotten(model)
        return accuracies if self.objective == "aus" else (*accuracies, self._auc(model))

    def _forgotten(self, model: nn.Module) -> float:
        if self.kind == "class" and not self.kept_rows.all():
            return self._accuracy(model, ~self.kept_rows)
        return float(outcomes(model, self.task.forget).correct.double().mean())

    def _accuracy(self, model: nn.Module, rows: Tensor) -> float:
        return float(
            outcomes(model, self.judged.take(rows.nonzero().flatten())).correct.double().mean()
        )

    def _auc(self, model: nn.Module) -> float:
        """How well confidence tells forget samples from holdout samples."""
        members, others = _confidences(model, self.task.forget), _confidences(model, self.judged)
        labels = np.repeat([1, 0], [len(members), len(others)])
        return float(roc_auc_score(labels, np.concatenate([members, others])))


def _confidences(model: nn.Module, examples: Examples) -> npt.NDArray[np.float64]:
    """Return the log-odds of the most probable class of each sample."""
    logits = logits_on(model, examples).double()
    top, place = logits.max(1, keepdim=True)
    others = logits.scatter(1, place, -torch.inf).logsumexp(1)
    return (top[:, 0] - others).clamp(-BOUND, BOUND).cpu().numpy()
