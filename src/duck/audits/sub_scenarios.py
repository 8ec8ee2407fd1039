"""Scenarios derived from another one: for audits of some samples, and for planted models."""

from dataclasses import replace

import torch
from torch import Tensor

from duck.errors import BadInput
from duck.runtime import seeded
from duck.types import Scenario

MIN_SAMPLES_TO_SPLIT = 50
"""With fewer forget samples, both parts contain all of them."""
SHARES = (0.1, 0.3, 0.5)
"""Shares of the forget set that planted models keep, one model each."""
CHOICE_SHARE = 1 / 3
"""Share of the forget samples for the choice. The choice needs fewer than the final audit."""


def split_for_choice(scenario: Scenario) -> tuple[Scenario, Scenario]:
    """Return the part for the choice of a method, and the part for the final audit.

    The first has a third of the forget samples and the holdout, the second the other forget samples
    and the test samples.
    """
    first = second = scenario.forget
    if len(scenario.forget) >= MIN_SAMPLES_TO_SPLIT:
        generator = seeded(scenario.seed, "assurance")
        order = torch.randperm(len(scenario.forget), generator=generator)
        count = round(len(order) * CHOICE_SHARE)
        first, second = scenario.forget[order[:count]], scenario.forget[order[count:]]
    choice = restrict(scenario, first.sort().values, scenario.holdout)
    return choice, restrict(scenario, second.sort().values, scenario.test)


def restrict(scenario: Scenario, forget: Tensor, unseen: Tensor) -> Scenario:
    """Return a scenario whose audit looks at these forget samples and unseen samples alone.

    unseen   rows of the test split
    """
    data = scenario.data
    if data.test is None or not len(unseen):
        raise BadInput("There are no unseen samples to audit with: give test data.")
    test = data.test.take(unseen)
    rows = torch.arange(len(unseen))
    is_forgotten = torch.isin(test.labels, data.train.labels[scenario.forget].unique())
    is_class = scenario.kind == "class"
    return replace(
        scenario,
        data=replace(data, test=test, holdout=rows),
        forget=forget,
        holdout=rows,
        test=rows,
        forget_test=rows[is_forgotten] if is_class else rows[:0],
        retain_test=rows[~is_forgotten] if is_class else rows[:0],
    )


def plant(scenario: Scenario, share: float) -> Scenario:
    """Return the scenario of a model that keeps a random share of the forget set."""
    generator = seeded(scenario.seed, "audit", "planted", str(share))
    order = torch.randperm(len(scenario.forget), generator=generator)
    count = max(1, round(share * len(scenario.forget)))
    remembered, forgotten = scenario.forget[order[:count]], scenario.forget[order[count:]]
    retain = torch.cat([scenario.retain, remembered]).sort().values
    return replace(scenario, forget=forgotten.sort().values, retain=retain)
