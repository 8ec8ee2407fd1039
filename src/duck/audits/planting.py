"""Power by planting: models that keep a known share of the forget set show what an audit finds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from duck.audits.judge import Judge
from duck.audits.memory import PRIMARY
from duck.audits.verdict import Power
from duck.runtime import seeded
from duck.types import Scenario

SHARES = (0.1, 0.3, 0.5)
"""Shares of the forget set that planted models keep, one model each."""
POWER = 0.8


def plant(scenario: Scenario, share: float) -> Scenario:
    """Return the scenario of a model that keeps a random share of the forget set."""
    generator = seeded(scenario.seed, "audit", "planted", str(share))
    order = torch.randperm(len(scenario.forget), generator=generator)
    count = max(1, round(share * len(scenario.forget)))
    kept, left = scenario.forget[order[:count]], scenario.forget[order[count:]]
    retain = torch.cat([scenario.retain, kept]).sort().values
    return replace(scenario, forget=left.sort().values, retain=retain)


def find_power(judge: Judge, shares: Sequence[float]) -> Power:
    """Return the smallest share that the audit recognises with a power of 80 %.

    The residual memory of planted models is interpolated between their shares.
    """
    memory = {}
    for share in sorted(shares):
        names = [name for name in judge.measurements.models if name.startswith(f"planted {share} ")]
        found = [judge.residual_memory(name).get(PRIMARY[0]) for name in names]
        values = [item.value for item in found if item is not None]
        if values:
            memory[share] = float(np.mean(values))
    needed = judge.detectable_memory(POWER)
    by_share = {f"{share:g}": value for share, value in memory.items()}
    if not memory or needed is None:
        return Power(None, by_share)
    grid = np.linspace(0, 1, 1001)
    points = {0.0: 0.0, **memory, 1.0: 1.0}
    expected = np.maximum.accumulate(np.interp(grid, list(points), list(points.values())))
    reached = expected >= needed
    return Power(float(grid[reached.argmax()]) if reached.any() else None, by_share)
