"""The automatic choice of a method: `method="auto"`."""

from duck.methods.base import Method, check_kind
from duck.methods.presets import preset
from duck.types import Recipe, Scenario

AUTO = "auto"
ENOUGH_FOR_AMUN = 5
"""With fewer samples and no retain data AMUN lost 4 to 7 points of accuracy (docs/tutorial.md)."""


def configure(
    method: str | Method, scenario: Scenario, recipe: Recipe | None
) -> tuple[Method, tuple[str, ...]]:
    """Return a method with its preset, and a note about the choice where it is `auto`."""
    if not isinstance(method, str):
        return method, ()
    if method != AUTO:
        return tuned(method, scenario), ()
    chosen, why = choose_method(scenario, recipe)
    return chosen, (why,)


def choose_method(scenario: Scenario, recipe: Recipe | None) -> tuple[Method, str]:
    """Return the method that fits the request best, and why.

    recipe   how the original was trained; None: not known
    """
    if not len(scenario.retain):
        name, why = _choose_retain_free(scenario)
    elif recipe is None:
        name, why = _choose_without_recipe(scenario)
    else:
        name = "warm-restart"
        why = "it leaks least among the methods that take a fraction of the time of retraining"
    return tuned(name, scenario), f"Method {name} was chosen: {why}."


def _choose_without_recipe(scenario: Scenario) -> tuple[str, str]:
    """Return the name of a method that does not depend on the recipe, and why it was chosen."""
    why = "the original's recipe, which warm-restart repeats, is not known"
    if scenario.kind == "class":
        return "duck-soft", f"{why}; this method ends when the class is not recognised any more"
    return "finetune", f"{why}, and of the methods that do not depend on it this one leaks least"


def _choose_retain_free(scenario: Scenario) -> tuple[str, str]:
    """Return the name of a method that needs no retain samples, and why it was chosen."""
    why = "it needs no retain samples, and there are none"
    if scenario.kind == "class":
        return "delete", why
    if len(scenario.forget) < ENOUGH_FOR_AMUN and len(scenario.holdout):
        return "neg-grad", f"{why}; for so few samples it keeps the accuracy"
    return "amun", why


def tuned(name: str, scenario: Scenario) -> Method:
    """Return a method with its preset `tuned` for the data and the kind of the request."""
    data = scenario.data
    check_kind(name, scenario.kind, len(scenario.retain) > 0)
    return preset(name, data.name, scenario.kind, len(data.train))
