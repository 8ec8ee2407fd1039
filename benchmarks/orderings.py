"""Does an attack by confidence see all that one model's outputs show? Five ways to order the samples, on the models of paper/svm.

    python benchmarks/orderings.py --models models --out benchmarks/results/orderings.jsonl

AUC of telling forgotten from unseen samples, a line for each data set, scenario, method and preset, with a value for each case. Outputs are
those that `duck bench` keeps.
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from result_files import run_on_outputs

from duck.audits.roc import roc
from duck.audits.scores import Outputs, Scored
from duck.bench.outputs import Target

Ordering = Callable[[npt.NDArray[np.float64], Outputs], npt.NDArray[np.float64]]
ORDERINGS: dict[str, Ordering] = {
    "largest": lambda p, said: p.max(1),
    "own class": lambda p, said: p[np.arange(len(said)), said.labels],
    "second largest": lambda p, said: -np.sort(p, 1)[:, -2],
    "largest over second": lambda p, said: np.subtract(
        *np.sort(said.logits.astype(np.float64), 1)[:, [-1, -2]].T
    ),
    "entropy": lambda p, said: (p * np.log(np.maximum(p, 1e-300))).sum(1),
}
"""Higher = "was trained on"; from probabilities p, a row a sample."""


def compared(runs: list[tuple[dict[str, Any], Target]]) -> dict[str, Any]:
    found = [aucs(target) for _, target in runs]
    values = {how: [round(one[how], 4) for one in found] for how in ORDERINGS}
    means = {how: round(statistics.mean(some), 4) for how, some in values.items()}
    return {"cases": [row["case"] for row, _ in runs], "mean": means, "auc": values}


def aucs(target: Target) -> dict[str, float]:
    names = np.concatenate([target.forgotten.ids, np.char.add("test:", target.unseen.ids)])
    members = np.repeat([True, False], [len(side) for side in target])
    shares = [side.probabilities for side in target]
    return {
        how: roc(
            Scored(
                names,
                np.concatenate([order(p, said) for p, said in zip(shares, target, strict=True)]),
                members,
            )
        ).auc.value
        for how, order in ORDERINGS.items()
    }


if __name__ == "__main__":
    run_on_outputs(__doc__, "orderings.jsonl", compared)
