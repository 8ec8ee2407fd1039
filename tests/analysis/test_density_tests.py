"""Tests of densities over several runs."""

import pytest

from duck.analysis.density_tests import density_tests
from duck.analysis.study import Analysis


def run_of(forgotten: int, forgotten_classes: float, kept: float) -> Analysis:
    changed = {str(label): forgotten_classes if label == forgotten else kept for label in range(3)}
    same: dict[str, float | None] = dict.fromkeys(("0", "1", "2"), kept)
    return Analysis(
        density={
            "original": {"train": same, "test": same},
            "unlearned": {"train": dict(changed), "test": dict(changed)},
        },
        forgotten=[forgotten],
    )


def test_tests_over_runs() -> None:
    rows = density_tests(
        [run_of(label, -9.0 - step, -4.0 - step / 3) for step, label in enumerate((0, 1, 2, 0, 1))]
    )
    found = {(row.split, row.compared): row.result for row in rows}
    assert len(found) == 6
    within = found["train", "unlearned: forget - retain"]
    assert within.difference == pytest.approx(-5 - 2 / 3 * 2)
    assert within.p == within.least_p == 2 / 32
    assert found["test", "forget: original - unlearned"].difference > 0
    assert found["train", "original: forget - retain"].p == 1


def test_models_that_a_run_lacks_and_runs_without_a_forgotten_class_are_not_compared() -> None:
    whole, part = run_of(0, -9.0, -4.0), run_of(1, -8.0, -4.0)
    alone = Analysis(density={"unlearned": part.density["unlearned"]}, forgotten=[1])
    assert {row.compared for row in density_tests([whole, alone])} == {"unlearned: forget - retain"}
    assert density_tests([whole, Analysis(density=whole.density)]) == []
