"""Every grid of the paper runs from end to end on digits, resumes, and prints its table."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import get_args

import pytest
import torch

from duck.bench import Results, find_grid
from duck.bench.executor import RunCounts, execute, plan
from duck.bench.formats import Format, render
from duck.bench.grids import (
    Grid,
    built_in,
    cells,
    facts_of,
    original_of,
    parse_only,
    rehearsal,
    unknown_facts,
)
from duck.bench.runner import Runner
from duck.bench.table_rows import Table
from duck.bench.tables import make_table
from duck.runtime import device_name
from tests.bench.stored import digits, rows_of

CPU = torch.device("cpu")
NEW = (
    pytest.param("paper/recipe", marks=pytest.mark.slow),
    pytest.param("paper/ablation", marks=pytest.mark.slow),
    pytest.param("paper/multi-class", marks=pytest.mark.slow),
    "paper/architectures",
    "paper/bias",
    "paper/density",
)


def run(grid: Grid, folder: Path, only: str = "") -> RunCounts:
    results, runner = Results(folder / "results"), Runner(digits(), folder / "models", CPU)
    results.check_writable()
    facts = {"digits": facts_of(digits()["digits"])}
    todo = plan(grid, facts, results, parse_only(only, grid), partial(runner.is_stored, grid))
    return execute(todo.jobs, runner, results, grid.name, device=device_name(CPU))


@dataclass(frozen=True)
class Rehearsal:
    """A grid that ran in two parts: its originals, then the rest."""

    folder: Path
    grid: Grid
    originals: RunCounts
    table_of_originals: Table
    rest: RunCounts


Rehearse = Callable[[str], Rehearsal]


@pytest.fixture(scope="module")
def rehearse(tmp_path_factory: pytest.TempPathFactory) -> Rehearse:
    """A function that runs a grid for the first test that asks for it."""

    @cache
    def run_in_two_parts(name: str) -> Rehearsal:
        folder = tmp_path_factory.mktemp("rehearsal")
        grid = rehearsal(find_grid(name))
        originals = run(grid, folder, "method=original")
        table = make_table(grid, Results(folder / "results"), {})
        return Rehearsal(folder, grid, originals, table, run(grid, folder))

    return run_in_two_parts


@pytest.mark.parametrize("name", NEW)
def test_a_grid_runs_resumes_and_marks_missing_cells(name: str, rehearse: Rehearse) -> None:
    done = rehearse(name)
    assert done.originals.ran > 0
    assert done.originals.failed == 0
    table = done.table_of_originals
    missing = {row["method"] for row in rows_of(table) if not row["n"]}
    assert missing == set(done.grid.methods) - {"original"}
    assert "(missing 1 of 1)" in render(table, "text")
    assert "missing" in render(table, "markdown")
    assert done.rest.failed == 0
    assert done.rest.ran > 0
    assert run(done.grid, done.folder) == RunCounts(ran=0, failed=0, left=0)
    table = make_table(done.grid, Results(done.folder / "results"), {})
    assert {row["n"] for row in rows_of(table)} == {1}
    for form in get_args(Format):
        assert "missing" not in render(table, form)


def test_a_rehearsal_keeps_methods_and_presets_and_is_small() -> None:
    for grid in built_in().values():
        small = rehearsal(grid) if not grid.views else grid
        assert (small.methods, small.presets, small.variants) == (
            grid.methods,
            grid.presets,
            grid.variants,
        )
        assert {block.dataset for block in small.blocks} <= {"digits"}
        assert all(len(block.cases) == 1 for block in small.blocks)
        assert len(cells(small, {})) <= len(cells(grid, {}))


@pytest.mark.slow
def test_variants_have_rows_of_their_own_with_their_settings(rehearse: Rehearse) -> None:
    done = rehearse("paper/ablation")
    results = Results(done.folder / "results").done.values()
    lines = [line.to_dict() for line in results if line.method]
    losses = {
        (line["method"], line.get("variant")): (
            line["experiment"]["method"].get("forget_loss"),
            line["experiment"]["method"].get("retain_loss"),
        )
        for line in lines
    }
    assert losses == {
        ("original", None): (None, None),
        ("duck", None): (True, True),
        ("duck", "no forget loss"): (False, True),
        ("duck", "no retain loss"): (True, False),
    }
    only = parse_only("scenario=class", done.grid)
    table = make_table(done.grid, Results(done.folder / "results"), only)
    assert [(row["method"], row["variant"]) for row in rows_of(table)] == [
        ("original", ""),
        ("duck", ""),
        ("duck", "no forget loss"),
        ("duck", "no retain loss"),
    ]
    # What a variant found belongs to no other row, and is not counted as left out.
    assert not [note for note in table.notes if note.startswith("Left out")]


@pytest.mark.slow
def test_only_asks_for_variants(rehearse: Rehearse) -> None:
    done = rehearse("paper/ablation")
    only = parse_only("scenario=class,variant=none", done.grid)
    table = make_table(done.grid, Results(done.folder / "results"), only)
    assert [row["variant"] for row in rows_of(table)] == ["", ""]


def test_a_study_of_density_measures_the_model_of_its_cell(rehearse: Rehearse) -> None:
    results = Results(rehearse("paper/density").folder / "results")
    lines = [line.to_dict() for line in results.done.values() if line.study]
    assert {line["method"] for line in lines} == {"original", "retrained", "duck"}
    for line in lines:
        assert line["study"] == {"name": "density", "dimensions": 9}
        assert line["forgotten"] == [3]
        density = line["density"]["train"]
        others = [value for label, value in density.items() if label != "3"]
        assert line["scores"]["forget_train"] == density["3"]
        assert line["scores"]["retain_train"] == pytest.approx(sum(others) / len(others))
    by_method = {line["method"]: line["scores"]["forget_train"] for line in lines}
    assert len(set(by_method.values())) == 3  # three different models


@pytest.mark.slow
def test_a_study_takes_the_model_of_its_own_cell_whatever_ran_last(tmp_path: Path) -> None:
    grid = rehearsal(find_grid("paper/density"))
    run(grid, tmp_path / "alone", "method=duck")
    facts = {"digits": facts_of(digits()["digits"])}
    results, runner = Results(tmp_path / "results"), Runner(digits(), tmp_path / "models", CPU)
    results.check_writable()
    jobs = plan(grid, facts, results, parse_only("", grid)).jobs
    # All models before the first study: the last one is not that of DUCK.
    execute(
        sorted(jobs, key=lambda job: job.measurement is not None),
        runner,
        results,
        grid.name,
        device=device_name(CPU),
    )
    ours, alone = (
        next(
            line.scores
            for line in Results(folder / "results").done.values()
            if line.study and line.method == "duck"
        )
        for folder in (tmp_path, tmp_path / "alone")
    )
    assert ours == pytest.approx(alone, rel=1e-4)


def test_a_bias_has_originals_of_its_own(tmp_path: Path) -> None:
    grid = find_grid("paper/bias")
    made = [
        original_of(grid, cell, unknown_facts("cifar10"))
        for cell in cells(grid, {})
        if cell.method == "duck"
    ]
    assert [one.training.seed for one in made[:4]] == [0, 0, 1, 1]
    assert len({one.id for one in made}) == 10
    run(rehearsal(grid), tmp_path, "method=original")
    (weights,) = (tmp_path / "models" / "originals").iterdir()
    small = rehearsal(grid)
    facts = facts_of(digits()["digits"])
    assert weights.stem == original_of(small, cells(small, {"digits": facts})[0], facts).id


def test_bias_removal_compares_the_biased_the_unlearned_and_the_corrected_model(
    rehearse: Rehearse,
) -> None:
    results = Results(rehearse("paper/bias").folder / "results")
    lines = [line.to_dict() for line in results.done.values()]
    rows = {(line["method"], line["preset"]): line for line in lines if line["method"]}
    assert set(rows) == {
        ("original", "standard"),
        ("retrained", "standard"),
        ("duck", "paper"),
    }
    scores = {method: line["scores"] for (method, _), line in rows.items()}
    assert scores["original"]["wrong"] > 0.5
    assert scores["retrained"]["right"] > 0.8
    assert scores["duck"]["right"] > 0.8
    assert len(rows["duck", "paper"]["shap_values"]) == 4
    assert rows["duck", "paper"]["experiment"]["method"]["target_class"] == 1
    trained = [line for line in lines if line["method"] is None]
    assert [line["experiment"]["request"]["name"] for line in trained] == ["debias"]
