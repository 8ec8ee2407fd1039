"""Count the models of paper/svm that the tests of the quick tier reject.

    python benchmarks/quick_errors.py --models models --out benchmarks/results/quick-errors.jsonl

A rejected retrained model is an error of the tier. One JSON line per data set, scenario, method and
preset: the number of models rejected at the tier's level after Holm's correction, the tests that
reject them, and the number without each test. The outputs are those that `duck bench` stores. The
check that every sample was processed is left out.
"""

from typing import Any

import numpy as np
from result_files import run_on_outputs

from duck.audits.attacks.base import model_attacks
from duck.audits.outputs import ModelOutputs, Setting, SplitOutputs, match_unseen
from duck.audits.quick import ALPHA, decisive_attacks, p_values
from duck.audits.scores import Outputs
from duck.audits.statistics import holm
from duck.bench.outputs import Target

PValues = dict[str, float]


def count_rejections(runs: list[tuple[dict[str, Any], Target]]) -> dict[str, Any]:
    """Return the number of rejected models: of all tests, of each, and without each."""
    models = [test_p_values(target, row["scenario"], row["case"]) for row, target in runs]
    by_test = {test: sum(holm(p)[test] < ALPHA for p in models) for test in models[0]}
    without = {test: rejected([omit(p, test) for p in models]) for test in models[0]}
    return {"n": len(runs), "convicted": rejected(models), "by": by_test, "without": without}


def omit(values: PValues, test: str) -> PValues:
    return {name: p for name, p in values.items() if name != test}


def rejected(models: list[PValues]) -> int:
    return sum(min(holm(p).values()) < ALPHA for p in models)


def test_p_values(target: Target, kind: str, case: int) -> PValues:
    """Return the uncorrected p-values of the tier's tests."""
    forget, unseen = map(split_outputs, target)
    seed = case if kind == "samples" else 0
    members, matched = match_unseen(forget.labels, unseen.labels, seed)
    forgotten = np.unique(forget.labels) if kind == "class" else np.empty(0, np.int64)
    none = np.empty(0, np.intp)
    count = forget.logits.shape[1]
    names = tuple(map(str, range(count)))
    setting = Setting(
        "class" if kind == "class" else "samples",
        count,
        names,
        len(forget),
        forgotten,
        none,
        none,
        none,
        members,
        matched,
        seed,
    )
    attacks = decisive_attacks(model_attacks(setting, "quick"))
    return p_values(setting, ModelOutputs(forget, unseen, unseen), attacks)


def split_outputs(outputs: Outputs) -> SplitOutputs:
    """Return the outputs in the form of an audit; these tests use no embeddings."""
    return SplitOutputs(
        outputs.ids,
        outputs.logits.astype(np.float64),
        outputs.labels.astype(np.int64),
        np.empty((len(outputs), 0)),
    )


if __name__ == "__main__":
    run_on_outputs(__doc__, "quick-errors.jsonl", count_rejections)
