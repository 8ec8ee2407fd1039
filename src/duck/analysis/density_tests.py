"""Tests over several runs: do forgotten classes differ in density from retained ones?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from duck.analysis.feature_space import mean_densities
from duck.analysis.paired import PairedTest, paired_test
from duck.analysis.study import Analysis


@dataclass(frozen=True)
class DensityTest:
    """A paired test of mean log densities, over runs."""

    split: str
    compared: str
    """Such as "unlearned: forget - retain"."""
    result: PairedTest


def density_tests(analyses: Sequence[Analysis]) -> list[DensityTest]:
    """Test forgotten against retained classes, and forgotten classes between models.

    A model is compared if every run has densities of its forgotten and its retained classes.
    """
    tests = []
    for split in ("train", "test"):
        means = {
            name: [
                mean_densities(analysis.density.get(name, {}).get(split, {}), analysis.forgotten)
                for analysis in analyses
            ]
            for name in analyses[0].density
        }
        models = {name: np.array(pairs).T for name, pairs in means.items() if None not in pairs}
        for name, (forget, retain) in models.items():
            result = paired_test(forget, retain)
            tests.append(DensityTest(split, f"{name}: forget - retain", result))
        for one, other in combinations(models, 2):
            result = paired_test(models[one][0], models[other][0])
            tests.append(DensityTest(split, f"forget: {one} - {other}", result))
    return tests
