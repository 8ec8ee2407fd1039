"""The search looks at holdout data alone, starts from the preset, and its space fits the
methods."""

import copy
import dataclasses
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from duck.api import train
from duck.audits.memory import ResidualMemory
from duck.data import load
from duck.data.examples import examples
from duck.engines import InlineEngine, ProcessEngine
from duck.errors import BadInput, MissingExtra, UnknownName
from duck.methods import METHODS, Duck
from duck.methods.presets import default_recipe, preset
from duck.models import build
from duck.predict import logits_on
from duck.retraining import Retraining
from duck.runtime import seeded
from duck.scenarios import ForgetClasses, ForgetFraction
from duck.search_spaces import Values, settings_in, space_of, spaces
from duck.training import loop
from duck.tuning import (
    FAILED,
    Objective,
    Trial,
    _Judge,
    _run,
    _run_part,
    at_edge,
    best,
    changes,
    mean,
    tune,
    widened,
    with_settings,
)
from duck.types import Examples, Scenario, Task
from tests.toys import (
    RECIPE,
    ToyNet,
    class_scenario,
    samples_scenario,
    toy_data,
    toy_net,
    toy_original,
    trained_net,
)

DUCK = Duck(batch_size=64, lr=3e-3, low_batch=32, max_epochs=2, low_epochs=1)


def test_every_space_names_settings_of_its_method() -> None:
    assert set(spaces()) == {name for name in METHODS if name not in ("original", "retrained")}
    for method, space in spaces().items():
        known = {field.name for field in dataclasses.fields(METHODS[method])}  # type: ignore[arg-type]
        assert {name for key in space for name in key.split(", ")} <= known
        for values in space.values():
            kinds = [values.is_range, bool(values.choices), values.fixed is not None]
            assert sum(kinds) == 1
            # A linear range that is widened would reach values without meaning.
            if values.is_range and not values.grid and not values.log:
                assert values.min > -math.inf
            if values.grid:
                assert list(values.grid) == sorted(values.grid)
                assert {str(values.low), str(values.high)} <= set(map(str, values.grid))


def trials_at(name: str, *values: float) -> list[Trial]:
    """Trials of one setting; the last is the best."""
    return [
        Trial(number, {name: value}, 0.1 * number, 1.0, 0.0, 1.0)
        for number, value in enumerate(values)
    ]


def test_a_range_is_widened_where_the_best_lies_at_its_edge() -> None:
    rate = Values(1e-4, 1e-2, log=True)
    log = {"lr": rate}
    inside = trials_at("lr", 1e-3, 1e-4, 2e-3)
    assert widened(log, inside) == log
    assert widened(log, trials_at("lr", 1e-3, 2e-3, 1.1e-4))["lr"] == replace(rate, low=0.25e-4)
    assert widened(log, trials_at("lr", 1e-3, 2e-3, 1e-2))["lr"] == replace(rate, high=4e-2)
    # One that lies far outside is inside afterwards.
    assert widened(log, trials_at("lr", 1e-3, 2e-3, 0.3))["lr"].high == pytest.approx(1e-2 * 4**3)
    # Of two trials the best says little, and a best that failed nothing.
    assert widened(log, trials_at("lr", 1e-3, 1e-4)) == log
    assert (
        widened(
            log,
            [
                replace(trial, score=FAILED, error="x")
                for trial in trials_at("lr", 1e-3, 2e-3, 1e-4)
            ],
        )
        == log
    )


def test_a_range_is_not_widened_beyond_its_limits() -> None:
    share = {"share": Values(0.1, 0.9, min=0.05, max=1.0)}
    assert widened(share, trials_at("share", 0.5, 0.4, 0.89))["share"].high == 1.0
    assert widened(share, trials_at("share", 0.5, 0.4, 0.1))["share"].low == 0.05
    epochs = {"epochs": Values(2, 10, log=True, integer=True, min=1, max=15)}
    assert widened(epochs, trials_at("epochs", 5, 4, 10))["epochs"].high == 15
    assert widened(epochs, trials_at("epochs", 5, 4, 9)) == epochs
    assert widened(epochs, trials_at("epochs", 5, 4, 2))["epochs"].low == 1


def test_a_range_of_a_grid_grows_by_its_next_value() -> None:
    batches = Values(low=16, high=64, grid=(8, 16, 32, 64, 256))
    space = {"batch_size": batches}
    assert widened(space, trials_at("batch_size", 16, 64, 32)) == space
    assert widened(space, trials_at("batch_size", 16, 32, 64))["batch_size"].high == 256
    assert widened(space, trials_at("batch_size", 64, 32, 16))["batch_size"].low == 8
    # The ends of the grid are limits.
    assert replace(batches, high=256).edges(256) == (False, False)
    # The preset that the search starts from need not be in the grid.
    assert batches.covering(128) == Values(low=16, high=128, grid=(8, 16, 32, 64, 128, 256))
    assert batches.covering(4).low == 4


def test_the_best_is_at_an_edge_until_a_trial_has_looked_beyond() -> None:
    def trials(*rates: float) -> list[Trial]:
        start = settings_in(spaces()["l1-sparse"], METHODS["l1-sparse"]())
        return [
            Trial(number, {**start, "lr": lr}, 0.1 * (lr == 0.1), 1.0, 0.0, 1.0)
            for number, lr in enumerate(rates)
        ]

    assert at_edge("l1-sparse", trials(1e-2, 2e-2, 0.1)) == ["lr"]
    assert at_edge("l1-sparse", trials(1e-2, 2e-2, 0.1, 0.3)) == []
    start = settings_in(spaces()["scrub"], METHODS["scrub"]())
    longest = Trial(0, {**start, "epochs": 10, "forget_epochs": 5}, 1.0, 1.0, 0.0, 1.0)
    assert at_edge("scrub", [longest]) == ["epochs, forget_epochs"]
    shortest = replace(longest, settings={**start, "epochs": 1, "forget_epochs": 1})
    assert at_edge("scrub", [shortest]) == []  # fewer epochs make no sense
    longer = replace(longest, settings={**start, "epochs": 10, "forget_epochs": 8}, score=0.9)
    assert at_edge("scrub", [longest, longer]) == []


def test_settings_that_belong_together_are_drawn_together() -> None:
    start = METHODS["scrub"](milestones=(3,), batch_size=64, lr=1e-3, forget_batch=32)  # type: ignore[call-arg]
    trials = list(tune(start, toy_original(), [class_scenario()], 6))
    assert trials[0].settings["milestones"] == [3]
    assert all(trial.settings["milestones"] == [] for trial in trials[1:])
    pairs = {(trial.settings["epochs"], trial.settings["forget_epochs"]) for trial in trials}
    assert len(pairs) > 1
    grid = spaces()["scrub"]["epochs, forget_epochs"].grid
    assert pairs <= set(map(tuple, grid))
    assert all(trial.error is None for trial in trials)
    rest = list(tune(start, toy_original(), [class_scenario()], 6, done=trials[:4]))
    assert [trial.settings for trial in rest] == [trial.settings for trial in trials[4:]]
    assert with_settings(start, trials[1].settings).milestones == ()  # type: ignore[attr-defined]


def judge_and_retrained(scenario: Scenario, objective: Objective) -> tuple[_Judge, ToyNet]:
    task = scenario.task(recipe=RECIPE)
    retrained = toy_net()
    loop.train(retrained, task.retain, RECIPE, seeded(3, "retrained"))
    return _Judge(trained_net(), scenario, task, objective, retrained.eval()), retrained


def test_the_gap_to_a_retrained_model_is_the_objective_for_samples() -> None:
    """A retrained model has no gap to itself; the score of a trial is worked out from its
    measures."""
    scenario = samples_scenario()
    judge, retrained = judge_and_retrained(scenario, "gap")
    itself = judge(0, Fixed(retrained), {})  # type: ignore[arg-type]
    assert (itself.score, itself.objective) == (1.0, "gap")
    trial = judge(0, Fixed(toy_net().eval()), {})  # type: ignore[arg-type]
    values = [trial.kept or 0.0, trial.forgotten or 0.0, trial.auc or 0.0]
    assert judge.reference is not None
    references = [known or 0.0 for known in judge.reference[:3]]
    assert trial.score == pytest.approx(
        1 - sum(abs(value - known) for value, known in zip(values, references, strict=True))
    )
    assert trial.score < 0.5
    # AUC by counting pairs: how often a forget sample has the higher confidence.
    sure, unsure = (odds(retrained, side) for side in (judge.task.forget, judge.holdout))
    pairs = (sure[:, None] > unsure).mean() + 0.5 * (sure[:, None] == unsure).mean()
    assert itself.auc == pytest.approx(pairs)
    found = next(tune(DUCK, toy_original(), [scenario], 1, retrained=[retrained]))
    assert found.objective == "gap"
    assert found.auc is not None
    with pytest.raises(BadInput, match="there are 2 for 1"):
        next(tune(DUCK, toy_original(), [scenario], 1, retrained=[retrained, retrained]))
    with pytest.raises(BadInput, match="gap is for single samples"):
        next(tune(DUCK, toy_original(), [class_scenario()], 1, retrained=[retrained]))


def odds(model: nn.Module, samples: Examples) -> npt.NDArray[np.float64]:
    """The odds of the most probable class."""
    shares = logits_on(model, samples).double().softmax(1).sort(1, descending=True).values
    return (shares[:, 0] / shares[:, 1:].sum(1)).numpy()


def first_class() -> Scenario:
    """The half of the holdout that scores has samples of class 1, and none of class 2."""
    return ForgetClasses([1])(toy_data())


@pytest.mark.parametrize("make_scenario", [first_class, samples_scenario])
def test_the_objective_memory_is_one_without_memory_and_loss(
    make_scenario: Callable[[], Scenario],
) -> None:
    judge, retrained = judge_and_retrained(make_scenario(), "memory")
    itself = judge(0, Fixed(retrained), {})  # type: ignore[arg-type]
    assert (itself.score, itself.memory) == (1.0, 0.0)
    assert itself.aus is not None
    # A model that lost accuracy pays for it, and one with more accuracy gains nothing.
    model = copy.deepcopy(retrained)
    with torch.no_grad():
        model.head.bias[0] += 50  # every sample is taken for class 0
    ruined = judge(0, Fixed(model), {})  # type: ignore[arg-type]
    assert itself.kept is not None
    assert ruined.kept is not None
    assert ruined.memory is not None
    lost = itself.kept - ruined.kept
    assert lost > 0.2
    assert ruined.score == pytest.approx(1 - ruined.memory - lost)


def test_an_original_has_all_of_its_memory_of_a_class() -> None:
    judge, _ = judge_and_retrained(first_class(), "memory")
    untouched = judge(0, Fixed(trained_net()), {})  # type: ignore[arg-type]
    assert untouched.memory == pytest.approx(1.0)
    assert untouched.score < 0.1


def test_the_objective_memory_needs_retrained_models() -> None:
    with pytest.raises(BadInput, match="needs retrained models"):
        next(tune(DUCK, toy_original(), [class_scenario()], 1, objective="memory"))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A method that returns the same model whatever it is given."""

    model: nn.Module

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        return self.model


def test_a_trial_that_cannot_become_the_best_is_pruned_and_counts() -> None:
    scenarios = [ForgetClasses([label])(toy_data()) for label in (1, 2)]
    judges = [
        _Judge(trained_net(), scenario, scenario.task(recipe=RECIPE), "aus")
        for scenario in scenarios
    ]
    idle = METHODS["original"]()
    work = partial(_run_part, judges=judges, method=idle)
    with InlineEngine().open(work, 2) as execute:
        assert not _run(judges, 0, {}, FAILED, execute).pruned
        pruned = _run(judges, 1, {}, 1.0, execute)
    assert pruned.pruned
    assert pruned.score == judges[0](1, idle, {}).score
    assert (pruned.score + judges[1].highest) / 2 < 1.0
    # Several workers have run the other scenario too; it does not count.
    with ProcessEngine(2).open(work, 2) as execute:
        parallel = _run(judges, 1, {}, 1.0, execute)
    assert replace(parallel, seconds=0.0) == replace(pruned, seconds=0.0)
    # One that could still tie is run to its end.
    tie = (pruned.score + judges[1].highest) / 2
    with InlineEngine().open(work, 2) as execute:
        assert not _run(judges, 1, {}, tie, execute).pruned


def test_the_workers_of_a_search_serve_all_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    open_workers = InlineEngine.open

    def count_starts(engine: InlineEngine, function: object, most_tasks: int) -> object:
        starts.append(most_tasks)
        return open_workers(engine, function, most_tasks)  # type: ignore[arg-type]

    monkeypatch.setattr(InlineEngine, "open", count_starts)
    scenarios = [ForgetClasses([label])(toy_data()) for label in (0, 1)]
    trials = list(tune(DUCK, toy_original(), scenarios, 3))
    assert len(trials) == 3
    assert starts == [2]


@pytest.mark.slow
def test_trials_do_not_depend_on_the_number_of_workers() -> None:
    scenarios = [ForgetClasses([label])(toy_data()) for label in (0, 1, 2)]
    trials = {}
    for workers, engine in ((1, InlineEngine()), (2, ProcessEngine(2))):
        search = tune(DUCK, toy_original(), scenarios, 3, engine=engine)
        trials[workers] = [replace(trial, seconds=0.0) for trial in search]
    assert trials[1] == trials[2]


@pytest.mark.parametrize("make", [class_scenario, samples_scenario])
def test_trials_start_from_the_preset_and_repeat_with_the_seed(make: object) -> None:
    scenario = make()  # type: ignore[operator]
    trials = list(tune(DUCK, toy_original(), [scenario], 3))
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert trials[0].settings["lr"] == DUCK.lr
    assert changes(DUCK, trials[0]) == {}
    assert len({trial.settings["lr"] for trial in trials}) == 3
    again = list(tune(DUCK, toy_original(), [scenario], 3))
    assert [replace(trial, seconds=0.0) for trial in again] == [
        replace(trial, seconds=0.0) for trial in trials
    ]
    assert all(0 < trial.score <= 1.1 for trial in trials)


def test_a_search_resumes_after_the_finished_trials() -> None:
    whole = list(tune(DUCK, toy_original(), [class_scenario()], 5))
    rest = list(tune(DUCK, toy_original(), [class_scenario()], 5, done=whole[:3]))
    assert [replace(trial, seconds=0.0) for trial in rest] == [
        replace(trial, seconds=0.0) for trial in whole[3:]
    ]
    with pytest.raises(BadInput, match="of another search"):
        next(tune(DUCK, toy_original(), [class_scenario()], 5, done=[whole[0], whole[2]]))


def test_test_data_are_never_looked_at() -> None:
    """With every reported test image blackened the trials are the same."""
    scenario = class_scenario()
    data = toy_data()
    test = data.test
    assert test is not None
    images = test.images.clone()  # type: ignore[attr-defined]
    images[scenario.test] = 0
    dark = replace(data, test=examples(images, test.labels, test.ids, test.pixels))
    seen = [
        list(tune(DUCK, toy_original(), [replace(scenario, data=one)], 2)) for one in (data, dark)
    ]
    assert [trial.score for trial in seen[0]] == [trial.score for trial in seen[1]]
    images[scenario.holdout] = 0
    blind = replace(data, test=examples(images, test.labels, test.ids, test.pixels))
    assert [t.score for t in tune(DUCK, toy_original(), [replace(scenario, data=blind)], 2)] != [
        t.score for t in seen[0]
    ]


def stored_searches() -> list[tuple[str, str, str]]:
    names = set()
    for data in ("cifar10", "digits"):
        for row in read_search(data):
            names.add((data, row["scenario"], row["method"]))
    return sorted(names)


@cache
def read_search(data: str) -> list[dict[str, Any]]:
    file = Path(__file__).parents[1] / "benchmarks" / "results" / f"{data}-search.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("data", "kind", "name"), stored_searches())
def test_stored_searches_can_be_resumed(data: str, kind: str, name: str) -> None:
    """A search whose space has changed belongs to benchmarks/results/superseded."""
    rows = [row for row in read_search(data) if (row["scenario"], row["method"]) == (kind, name)]
    trials = [
        Trial(**{name: row[name] for name in Trial.__dataclass_fields__ if name in row})
        for row in rows
    ]
    start = with_settings(METHODS[name](), trials[0].settings)
    scenario = class_scenario() if kind == "class" else samples_scenario()
    # The seed of the sampler is that of the first scenario; for classes it is the grid's, 42.
    scenario = replace(scenario, seed=rows[0].get("seeds", [42])[0])
    found = tune(start, toy_original(), [scenario], len(trials), objective="aus", done=trials)
    assert list(found) == []


def test_what_steers_the_stop_rule_does_not_score() -> None:
    scenario = class_scenario()
    task = scenario.task(recipe=RECIPE)
    judge = _Judge(trained_net(), scenario, task, "aus")
    assert judge.task.holdout is not None
    assert task.holdout is not None
    steering, scoring = set(judge.task.holdout.ids), set(judge.holdout.ids)
    assert not steering & scoring
    assert steering | scoring == set(task.holdout.ids)


@pytest.mark.slow
def test_the_memory_of_a_trial_is_that_of_the_run() -> None:
    """The stop rule of a small request costs as much accuracy in a trial as in a run.

    With each sample of its half of the holdout once, the rule allowed twice the loss: trials had a
    memory of 0.33 and 0.59, and runs one of 0.92 and 0.91.
    """
    data = load("noisy-digits")
    recipe = default_recipe(data.name, len(data.train), data.augment)
    settings = {"lr": 3.3e-3, "lambda_forget": 2.9, "check_every": 5}
    method = with_settings(preset("duck", data.name, "samples"), settings)
    differences = []
    for seed in (0, 1):
        original = train("convnet", data, seed, recipe)
        scenario = ForgetFraction(0.1)(data, seed)
        new_model = partial(build, "convnet", data.num_classes, data.train.shape)
        (retrained,) = Retraining(scenario, original, new_model, recipe)(1)
        task = scenario.task(recipe=recipe)
        trial = _Judge(original, scenario, task, "memory", retrained)(0, method, {})
        audited = ResidualMemory(scenario, original, retrained)(method(original, task))
        assert trial.memory is not None
        differences.append(audited - trial.memory)
    assert abs(sum(differences)) / 2 < 0.25


def test_a_trial_on_several_scenarios_scores_their_mean() -> None:
    scenarios = [ForgetClasses([label])(toy_data()) for label in (1, 2)]
    alone = [next(tune(DUCK, toy_original(), [scenario], 1)) for scenario in scenarios]
    together = next(tune(DUCK, toy_original(), scenarios, 1))
    assert together.score == pytest.approx((alone[0].score + alone[1].score) / 2)
    assert alone[0].kept is not None
    assert alone[1].kept is not None
    assert together.kept == pytest.approx((alone[0].kept + alone[1].kept) / 2)
    with pytest.raises(BadInput, match="all of one kind"):
        next(tune(DUCK, toy_original(), [class_scenario(), samples_scenario()], 1))


def test_one_failure_among_several_scenarios_fails_the_trial() -> None:
    well, ill = (
        Trial(0, {}, 0.9, 1.0, 0.0, 2.0),
        Trial(0, {}, FAILED, None, None, 1.0, "Diverged: nan"),
    )
    assert mean([well, ill]) == Trial(0, {}, FAILED, None, None, 3.0, "Diverged: nan")
    assert mean([well, replace(well, score=0.5, kept=0.8, forgotten=0.2)]) == Trial(
        0, {}, 0.7, 0.9, 0.1, 4.0
    )


def test_the_first_trial_names_what_ran_also_outside_the_space() -> None:
    trial = next(tune(replace(DUCK, lr=0.02), toy_original(), [class_scenario()], 1))
    assert trial.settings["lr"] == 0.02


def test_a_failing_trial_is_reported_and_not_chosen() -> None:
    method = METHODS["bad-teacher"]()
    without_factory = replace(toy_original(), new_model=None)
    trials = list(tune(method, without_factory, [class_scenario()], 2))
    assert all(trial.score == FAILED for trial in trials)
    assert trials[0].error is not None
    assert trials[0].error.startswith("BadInput")


def test_the_best_is_the_earliest_of_equals() -> None:
    trials = [
        Trial(number, {"lr": 0.1 * number}, score, 1.0, 0.0, 1.0)
        for number, score in enumerate((0.5, 0.9, 0.9, -1.0))
    ]
    assert best(trials).number == 1
    assert changes(DUCK, best(trials)) == {"lr": 0.1}


def test_without_optuna_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"'duck-unlearning\[tune\]'"):
        next(tune(DUCK, toy_original(), [class_scenario()], 1))


def test_what_cannot_be_tuned() -> None:
    with pytest.raises(BadInput, match="retrained has nothing to tune"):
        space_of("retrained")
    with pytest.raises(UnknownName, match="Did you mean 'scrub'"):
        space_of("scrubb")
    with pytest.raises(BadInput, match="at least 1, got 0"):
        next(tune(DUCK, toy_original(), [class_scenario()], 0))
    scenario = class_scenario()
    with pytest.raises(BadInput, match="needs holdout data"):
        next(
            tune(
                DUCK,
                toy_original(),
                [replace(scenario, holdout=torch.empty(0, dtype=torch.int64))],
                1,
            )
        )
