"""Compare five attacks that order samples by the outputs of one model of paper/svm.

    python benchmarks/orderings.py --models models --out benchmarks/results/orderings.jsonl

The AUC says how well an ordering separates forget samples from unseen samples. One JSON line per
data set, scenario, method and preset, with a value for each case. The outputs are those that `duck
bench` stores.
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from result_files import run_on_outputs

from duck.audits.scores import Outputs, Scored
from duck.audits.statistics import roc
from duck.bench.outputs import Target

Ordering = Callable[[npt.NDArray[np.float64], Outputs], npt.NDArray[np.float64]]
ORDERINGS: dict[str, Ordering] = {
    "largest": lambda p, outputs: p.max(1),
    "own class": lambda p, outputs: p[np.arange(len(outputs)), outputs.labels],
    "second largest": lambda p, outputs: -np.sort(p, 1)[:, -2],
    "largest over second": lambda p, outputs: np.subtract(
        *np.sort(outputs.logits.astype(np.float64), 1)[:, [-1, -2]].T
    ),
    "entropy": lambda p, outputs: (p * np.log(np.maximum(p, 1e-300))).sum(1),
}
"""Scores from probabilities p, one row per sample; higher for members."""


def compare(runs: list[tuple[dict[str, Any], Target]]) -> dict[str, Any]:
    """Return the AUC of each ordering and case, and the means."""
    results = [aucs(target) for _, target in runs]
    values = {name: [round(result[name], 4) for result in results] for name in ORDERINGS}
    means = {name: round(statistics.mean(cases), 4) for name, cases in values.items()}
    return {"cases": [row["case"] for row, _ in runs], "mean": means, "auc": values}


def aucs(target: Target) -> dict[str, float]:
    """Return the AUC of each ordering."""
    ids = np.concatenate([target.forgotten.ids, np.char.add("test:", target.unseen.ids)])
    members = np.repeat([True, False], [len(outputs) for outputs in target])
    result = {}
    for name, order in ORDERINGS.items():
        scores = np.concatenate([order(outputs.probabilities, outputs) for outputs in target])
        result[name] = roc(Scored(ids, scores, members)).auc.value
    return result


if __name__ == "__main__":
    run_on_outputs(__doc__, "orderings.jsonl", compare)
