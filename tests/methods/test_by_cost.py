"""The order of the methods for a request, and what is said of their cost."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import duck
from duck.experiment import to_dict
from duck.methods.by_cost import known, measured_method, methods_by_cost, name_of
from duck.methods.presets import default_recipe
from duck.methods.warm_restart import WarmRestart
from duck.types import Data, Recipe, Scenario

ROOT = Path(__file__).parents[2]
KINDS = ("class", "samples")
REQUESTS = [duck.ForgetClasses([3]), duck.ForgetFraction(0.1)]


def noisy() -> tuple[Data, Recipe]:
    data = duck.load("noisy-digits")
    return data, default_recipe(data.name, len(data.train), data.augment)


def results(source: str) -> list[dict[str, Any]]:
    lines = (ROOT / source).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_has_a_measured_share(kind: str) -> None:
    for step in known()["steps"]:
        measured = [
            pool["methods"][name_of(step)]["share"]
            for pool in known()["measured"]
            if pool["kind"] == kind and name_of(step) in pool["methods"]
        ]
        assert measured
        assert all(share > 0 for share in measured)


@pytest.mark.parametrize(
    "pool", known()["measured"], ids=lambda pool: f"{pool['data']} {pool['kind']}"
)
def test_the_measurements_are_those_of_the_results(pool: dict[str, Any]) -> None:
    """Each entry is a row with the same settings in the file that the pool names."""
    rows = [
        row
        for row in results(pool["source"])
        if (row["data"], row["kind"], row["epochs"]) == (pool["data"], pool["kind"], pool["epochs"])
        and row["requests"] == 1
    ]
    (retrained,) = (row for row in rows if row["variant"] == "retrained")
    low, high = retrained["auc_band"]["low"], retrained["auc_band"]["high"]
    assert pool["retrained"] == pytest.approx([low, high], abs=5e-4)
    steps = {name_of(step): step for step in known()["steps"]}
    for name, measured in pool["methods"].items():
        method = to_dict(measured_method(steps.get(name, {"method": name}), pool))
        same = [row for row in rows if settings_of(row) == without_effect_left_out(method, pool)]
        # The variant with the name of the method was measured first.
        assert same, (name, method)
        assert measured["share"] == pytest.approx(same[0]["time_share"], abs=5e-4)
        assert measured["leak"] == pytest.approx(same[0]["auc"]["value"], abs=5e-4)


def settings_of(row: dict[str, Any]) -> dict[str, Any]:
    return without_effect_left_out(row.get("method", {}), row)


def without_effect_left_out(method: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without `fresh_rows` for single samples, which do not use it."""
    left_out = {"fresh_rows"} if about["kind"] == "samples" else set()
    return {name: value for name, value in method.items() if name not in left_out}


@pytest.mark.parametrize("request_", REQUESTS)
def test_the_cost_rises_to_retraining(request_: Callable[[Data], Scenario]) -> None:
    data, recipe = noisy()
    steps = methods_by_cost(request_(data), recipe)
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert steps[-1].name == "retrained"
    assert all(0 < share <= 1 for share in shares)
    short = methods_by_cost(request_(data), replace(recipe, epochs=7))
    assert "warm-restart-long" not in [step.name for step in short]  # as long as retraining
    named = methods_by_cost(request_(data), recipe, "scrub")
    assert [step.name for step in named] == ["scrub", "retrained"]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_share_is_that_of_the_measurement(request_: Callable[[Data], Scenario]) -> None:
    """A method without epochs has a measured time, too; half the epochs take half of it."""
    data, recipe = noisy()
    scenario = request_(data)
    (pool,) = (
        pool
        for pool in known()["measured"]
        if (pool["data"], pool["kind"]) == (data.name, scenario.kind)
    )
    for name in ("duck", "ssd", "warm-restart"):
        share = pool["methods"][name]["share"]
        assert methods_by_cost(scenario, recipe, name)[0].share == pytest.approx(share)
        longer = replace(recipe, epochs=2 * recipe.epochs)
        assert methods_by_cost(scenario, longer, name)[0].share == pytest.approx(share / 2)
    usual = methods_by_cost(scenario, recipe, "warm-restart")[0].method
    assert isinstance(usual, WarmRestart)
    shorter = methods_by_cost(scenario, recipe, replace(usual, epochs=2))[0]
    assert shorter.share == pytest.approx(pool["methods"]["warm-restart"]["share"] / 2)


def test_what_was_reached_elsewhere_is_marked() -> None:
    data, recipe = noisy()
    request_ = duck.ForgetClasses([3])
    usual = methods_by_cost(request_(data), recipe, "warm-restart")[0]
    assert usual.reached.startswith("leak AUC")
    assert isinstance(usual.method, WarmRestart)
    changed = methods_by_cost(request_(data), recipe, replace(usual.method, peak=0.1))[0]
    assert changed.reached == f"with other settings: {usual.reached}"
    other = methods_by_cost(request_(replace(data, name="mine")), recipe, "warm-restart")[0]
    assert other.reached == f"on other data: {usual.reached}"
    # The plan says what the audits said.
    images = replace(data, name="cifar10")
    for of, rejected in ((request_, "3 of 3"), (duck.ForgetFraction(0.1), "6 of 6")):
        scenario = of(images)
        assert rejected in methods_by_cost(scenario, recipe, "warm-restart")[0].reached
