"""The methods for a request in the order of their cost, from ladder.toml, and the choice of one."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from duck.errors import BadInput
from duck.files import package_toml
from duck.methods.base import METHODS, Method, check_kind
from duck.methods.presets import preset
from duck.types import Recipe, Scenario

AUTO = "auto"
FEW_SAMPLES = 20
"""Up to this number DUCK was seen to bring each sample to the loss of unseen ones. Of 89 samples it
took longer than retraining, and leaked (benchmarks/notes.md)."""

ENOUGH_FOR_AMUN = 5
"""With fewer samples and no retain data AMUN lost 4 to 7 points of accuracy (docs/tutorial.md)."""


@dataclass(frozen=True)
class Candidate:
    """A method that can be tried for a request, and what is known of it."""

    name: str
    method: Method
    share: float
    """Expected time, as a share of retraining."""
    reached: str = ""
    """What the method has reached before."""


@cache
def _steps() -> dict[str, list[dict[str, Any]]]:
    return package_toml("duck.methods", "ladder.toml")


def ladder(scenario: Scenario, recipe: Recipe, method: str | Method = AUTO) -> list[Candidate]:
    """Return the methods to try for a request, the cheapest first and retraining last.

    method   `auto`: those of ladder.toml; otherwise this one alone, and retraining
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
        shares = {step["method"]: step.get("share") for step in _steps()[scenario.kind]}
        return [Candidate(name, chosen, _share(chosen, recipe, shares.get(name))), exact]
    found = []
    for step in _steps()[scenario.kind]:
        tried = _preset(step["method"], scenario)
        tried = replace(tried, **step.get("settings", {}))  # type: ignore[type-var]
        share = _share(tried, recipe, step.get("share"))
        found.append(Candidate(step.get("name", step["method"]), tried, share, step["reached"]))
    cheaper = [candidate for candidate in found if candidate.share < exact.share]
    return [*sorted(cheaper, key=lambda candidate: candidate.share), exact]


def _share(method: Method, recipe: Recipe, known: float | None) -> float:
    """Return the expected time of a method as a share of retraining: measured, or by its epochs."""
    return known or min(1.0, getattr(method, "epochs", 1) / recipe.epochs)


def configure(
    method: str | Method, scenario: Scenario, recipe: Recipe | None
) -> tuple[Method, tuple[str, ...]]:
    """Return a method with its preset, and a note about the choice where it is `auto`."""
    if not isinstance(method, str):
        return method, ()
    if method != AUTO:
        return _preset(method, scenario), ()
    chosen, why = choose_method(scenario, recipe)
    return chosen, (why,)


def choose_method(scenario: Scenario, recipe: Recipe | None) -> tuple[Method, str]:
    """Return the method that fits the request best, and why.

    recipe   how the original was trained; None: not known
    """
    if not len(scenario.retain):
        name, why = _choose_retain_free(scenario)
    elif recipe is None:
        name = "duck"
        why = "the original's recipe, which warm-restart repeats, is not known"
    elif scenario.kind == "samples" and len(scenario.forget) <= FEW_SAMPLES:
        name = "duck"
        why = f"for up to {FEW_SAMPLES} samples it works sample by sample"
    else:
        name = "warm-restart"
        why = "it leaks least among the methods that take a fraction of the time of retraining"
    return _preset(name, scenario), f"Method {name} was chosen: {why}."


def _choose_retain_free(scenario: Scenario) -> tuple[str, str]:
    """Return the name of a method that needs no retain samples, and why it was chosen."""
    why = "it needs no retain samples, and there are none"
    if scenario.kind == "class":
        return "delete", why
    if len(scenario.forget) < ENOUGH_FOR_AMUN and len(scenario.holdout):
        return "neg-grad", f"{why}; for so few samples it keeps the accuracy"
    return "amun", why


def _preset(name: str, scenario: Scenario) -> Method:
    data = scenario.data
    check_kind(name, scenario.kind, len(scenario.retain) > 0)
    return preset(name, data.name, scenario.kind, len(data.train))
