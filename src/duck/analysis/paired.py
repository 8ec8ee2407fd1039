"""The two-sided Wilcoxon signed-rank test, with the least p that this number of pairs can give."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import wilcoxon


@dataclass(frozen=True)
class PairedTest:
    """The result of a paired test."""

    p: float
    n: int
    """Pairs that differ. Equal pairs have no direction and are not counted."""
    least_p: float
    """The p of the same differences if all had the same sign: the smallest possible p.

    It is 2^(1-n) while p is exact, which is up to 50 pairs.
    """
    difference: float
    """Median of first minus second."""


def paired_test(
    first: Sequence[float] | npt.NDArray[np.float64],
    second: Sequence[float] | npt.NDArray[np.float64],
) -> PairedTest:
    """Test whether paired values differ: two models on the same images, or over the same runs."""
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    median = float(np.median(differences)) if len(differences) else 0.0
    differences = differences[differences != 0]
    if not len(differences):
        return PairedTest(1.0, 0, 1.0, median)
    p = float(wilcoxon(differences).pvalue)
    least_p = float(wilcoxon(np.abs(differences)).pvalue)
    return PairedTest(p, len(differences), least_p, median)
