"""PairedTest comparisons: the two-sided Wilcoxon signed-rank test, with the least p that so few pairs can give."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import wilcoxon


@dataclass(frozen=True)
class PairedTest:
    """Whether pairs differ in one direction."""

    p: float
    n: int
    """Pairs that differ at all: the others say nothing of a direction."""
    least_p: float
    """Of the same differences, every one of the n on the same side; no evidence could give less. 2^(1-n) as long as p is exact: to 50."""
    difference: float
    """Median of the first less the second."""


def paired_test(
    first: Sequence[float] | npt.NDArray[np.float64],
    second: Sequence[float] | npt.NDArray[np.float64],
) -> PairedTest:
    """Of values that belong together two by two: models on the same images, or on the same runs."""
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    median = float(np.median(differences)) if len(differences) else 0.0
    differences = differences[differences != 0]
    if not len(differences):
        return PairedTest(1.0, 0, 1.0, median)
    p, least = (float(wilcoxon(values).pvalue) for values in (differences, np.abs(differences)))
    return PairedTest(p, len(differences), least, median)
