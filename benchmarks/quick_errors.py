"""How often the tests of the quick tier convict the models of paper/svm: retrained ones, where they are wrong, and the others.

    python benchmarks/quick_errors.py --models models --out benchmarks/results/quick-errors.jsonl

A line for each data set, scenario, method and preset: how many of its models are convicted at the tier's level after Holm's correction,
which tests did, and how many would be if one test were left out. Outputs are those that `duck bench` keeps; whether every sample was
processed is not asked.
"""

from typing import Any

import numpy as np
from result_files import run_on_outputs

from duck.audits.intervals import holm
from duck.audits.outputs import ModelOutputs, Setting, SplitOutputs, match_unseen
from duck.audits.quick import ALPHA, p_values
from duck.audits.scores import Outputs
from duck.bench.outputs import Target


def told(runs: list[tuple[dict[str, Any], Target]]) -> dict[str, Any]:
    found = [tested(target, row["scenario"], row["case"]) for row, target in runs]
    each = {test: sum(holm(p)[test] < ALPHA for p in found) for test in found[0]}
    without = {
        test: convicted([{name: p[name] for name in p if name != test} for p in found])
        for test in found[0]
    }
    return {"n": len(runs), "convicted": convicted(found), "by": each, "without": without}


def convicted(found: list[dict[str, float]]) -> int:
    return sum(min(holm(p).values()) < ALPHA for p in found)


def tested(target: Target, kind: str, case: int) -> dict[str, float]:
    """p-values of the tier's tests, uncorrected."""
    forget, unseen = map(as_part, target)
    seed = case if kind == "samples" else 0
    members, matched = match_unseen(forget.labels, unseen.labels, seed)
    gone = np.unique(forget.labels) if kind == "class" else np.empty(0, np.int64)
    none, count = np.empty(0, np.intp), forget.logits.shape[1]
    names = tuple(map(str, range(count)))
    setting = Setting(
        "class" if kind == "class" else "samples",
        count,
        names,
        len(forget),
        gone,
        none,
        none,
        none,
        members,
        matched,
        seed,
    )
    return p_values(setting, ModelOutputs(forget, unseen, unseen))


def as_part(said: Outputs) -> SplitOutputs:
    """As an audit sees it; these tests do not look at embeddings."""
    return SplitOutputs(
        said.logits.astype(np.float64),
        np.empty((len(said), 0)),
        said.labels.astype(np.int64),
        said.ids,
    )


if __name__ == "__main__":
    run_on_outputs(__doc__, "quick-errors.jsonl", told)
