"""The methods for a request in the order of their measured cost, from by_cost.toml."""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from duck.errors import BadInput
from duck.files import package_toml
from duck.methods.automatic import AUTO, configure, tuned
from duck.methods.base import METHODS, Method
from duck.methods.presets import preset
from duck.types import Recipe, Scenario

Table = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A method that can be tried for a request, and what is known of it."""

    name: str
    method: Method
    share: float
    """Expected time, as a share of retraining."""
    reached: str = ""
    """What the method has reached before, and on which data."""


def methods_by_cost(
    scenario: Scenario, recipe: Recipe, method: str | Method = AUTO
) -> list[Candidate]:
    """Return the methods to try for a request, the cheapest first and retraining last.

    method   `auto`: the steps of by_cost.toml; otherwise this one alone, and retraining
    """
    if not len(scenario.retain):
        raise BadInput(
            "Assurance compares with retrained models and may end with retraining, and there are "
            "no retain samples to train on. Forget without it: duck.forget(..., method='auto'), or "
            "duck forget without --assure."
        )
    exact = Candidate("retrained", METHODS["retrained"](), 1.0, "exact: it never saw the samples")
    if method != AUTO:
        chosen, _ = configure(method, scenario, recipe)
        name = METHODS.name_of(chosen)
        if name == exact.name:
            return [exact]
        return [_candidate({"method": name}, chosen, scenario, recipe), exact]
    found = []
    for step in known()["steps"]:
        changed = replace(tuned(step["method"], scenario), **step.get("settings", {}))  # type: ignore[type-var]
        found.append(_candidate(step, changed, scenario, recipe))
    cheaper = [candidate for candidate in found if candidate.share < exact.share]
    return [*sorted(cheaper, key=lambda candidate: candidate.share), exact]


@cache
def known() -> Table:
    """Return the content of by_cost.toml."""
    return package_toml("duck.methods", "by_cost.toml")


def name_of(step: Table) -> str:
    """Return how a step is called."""
    return str(step.get("name", step["method"]))


def measured_method(step: Table, pool: Table) -> Method:
    """Return a step with the settings that it had when it was measured."""
    start = preset(step["method"], pool["data"], pool["kind"], pool["samples"])
    measured = pool["methods"][name_of(step)]
    return replace(start, **step.get("settings", {}), **measured.get("settings", {}))  # type: ignore[type-var]


def _candidate(step: Table, method: Method, scenario: Scenario, recipe: Recipe) -> Candidate:
    pool = _nearest_pool(name_of(step), scenario)
    if pool is None:
        share = min(1.0, getattr(method, "epochs", recipe.epochs) / recipe.epochs)
        return Candidate(name_of(step), method, share)
    before = measured_method(step, pool)
    share = pool["methods"][name_of(step)]["share"] * pool["epochs"] / recipe.epochs
    if hasattr(method, "epochs"):
        share *= method.epochs / before.epochs  # type: ignore[attr-defined]
    about = ""
    if pool["data"] != scenario.data.name:
        about = "on other data: "
    elif before != method:
        about = "with other settings: "
    return Candidate(name_of(step), method, share, about + _describe(name_of(step), pool))


def _nearest_pool(name: str, scenario: Scenario) -> Table | None:
    """Return the measurements on the same data or else on data of a similar size."""
    data = scenario.data
    pools = [
        pool
        for pool in known()["measured"]
        if pool["kind"] == scenario.kind and name in pool["methods"]
    ]
    return min(
        pools,
        key=lambda pool: (
            pool["data"] != data.name,
            abs(math.log(pool["samples"] / len(data.train))),
        ),
        default=None,
    )


def _describe(name: str, pool: Table) -> str:
    """Return what a method has reached."""
    measured = pool["methods"][name]
    low, high = pool["retrained"]
    text = f"leak AUC {measured['leak']:.3f} on {pool['data']} (retrained {low:.3f} to {high:.3f})"
    if "rejected" in measured:
        text += f"; the oracle audit rejected {measured['rejected']} models"
    return text
