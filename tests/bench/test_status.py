"""What is missing, how long it will take, and what to run next."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from duck.bench import Planner, Results, find_grid
from duck.bench.estimates import DATA, GIGA_OPERATIONS, Estimates
from duck.bench.grids import (
    Attack,
    Block,
    Facts,
    Grid,
    Priority,
    cells,
    experiment,
    narrow,
    original_of,
    parse_only,
)
from duck.bench.status import Step, render_status
from duck.experiment import to_dict
from duck.models import build
from tests.bench.stored import FACTS, MACHINE, append, cell_of, line_of

GPU = {"device": "NVIDIA H200"}
GRID = Grid(
    blocks=(Block("cifar10", classes=(0, 1, 2)), Block("cifar10", seeds=(0, 1))),
    methods=("original", "retrained", "duck", "scrub"),
    presets=("paper",),
    priority=Priority(cases=1),
    name="mine",
)
TRIAL = {
    "dataset": "cifar10",
    "scenario": "class",
    "method": "scrub",
    "settings": {},
    "score": 0.9,
    "seconds": 30,
    "start": "paper",
}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    found = Results(tmp_path)
    found.check_writable()
    return found


def put(results: Results, method: str, case: int, seconds: float = 10.0, grid: Grid = GRID) -> None:
    timing: dict[str, Any] = {"seconds": seconds, "wall_seconds": seconds, **GPU}
    append(results, "mine", line_of(grid, cell_of(grid, method, case), **timing))


def put_training(results: Results, seconds: float, facts: Facts = FACTS) -> None:
    cell = cells(GRID, {facts.name: facts})[0]
    made = original_of(GRID, cell, facts)
    keys = dict.fromkeys(("scenario", "case", "method", "preset"))
    about = {"id": made.id, "dataset": facts.name, "train_samples": 50_000, **MACHINE, **GPU}
    timing = {"seconds": seconds, "wall_seconds": seconds}
    line = {**about, **keys, **timing, "scores": {"test": 0.9}, "experiment": to_dict(made)}
    append(results, "mine", line)


def test_cells_are_done_missing_or_failed(results: Results) -> None:
    put(results, "duck", 0)
    cell = cell_of(GRID, "scrub", 0)
    append(results, "mine", line_of(GRID, cell, error="boom"))
    (row,) = Planner(results).status([GRID])
    assert (row.grid, row.dataset, row.what) == ("mine", "cifar10", "runs")
    # Three classes and two seeds, four methods each.
    assert (row.done, row.missing, row.failed) == (1, 18, 1)


def test_minutes_come_from_measured_runs_and_count_the_original_once(results: Results) -> None:
    put_training(results, 60.0)
    for method, seconds in (("original", 1.0), ("retrained", 54.0), ("duck", 3.0), ("scrub", 5.0)):
        put(results, method, 0, seconds)
    (row,) = Planner(results).status([GRID])
    # Two classes and two seeds are left.
    runs = 4 * (1.0 + 54.0 + 3.0 + 5.0)
    assert row.minutes == pytest.approx((runs + 60.0) / 60)
    assert row.unmeasured == 0
    models = results.folder / "models"
    original = original_of(GRID, cells(GRID, {})[0], FACTS)
    (models / "originals").mkdir(parents=True)
    (models / "originals" / f"{original.id}.safetensors").touch()
    (row,) = Planner(results, models).status([GRID])
    assert row.minutes == pytest.approx(runs / 60)


def test_a_method_that_was_never_measured_is_counted_apart(results: Results) -> None:
    put_training(results, 60.0)
    put(results, "duck", 0, 3.0)
    (row,) = Planner(results).status([GRID])
    assert row.unmeasured == 5 + 5  # original and scrub
    assert "+ 10 not known" in render_status([row], "text")


def test_times_scale_with_data_model_and_epochs(results: Results) -> None:
    put_training(results, 60.0)
    put(results, "duck", 0, 3.0)
    estimates = Estimates(results)
    tiny = Facts("tiny-imagenet", "t" * 32, 100_000, "crop-flip")
    grid = replace(GRID, blocks=(Block("tiny-imagenet", classes=(0,), model="resnet34"),))
    duck = experiment(grid, cell_of(grid, "duck", 0, facts=tiny), tiny)
    work = 2 * GIGA_OPERATIONS["resnet34"][64] / GIGA_OPERATIONS["resnet18"][32]
    assert estimates.seconds(duck, "class") == pytest.approx(3.0 * work)
    epochs = duck.training.recipe.epochs / 60
    assert estimates.seconds(replace(duck, method=None)) == pytest.approx(60.0 * work * epochs)
    paper = replace(GRID, blocks=(Block("cifar10", classes=(0,), recipe_preset="paper"),))
    long = experiment(paper, cell_of(paper, "retrained", 0), FACTS)
    assert estimates.seconds(long, "class") == pytest.approx(60.0 * 200 / 60)


def test_runs_on_a_cpu_say_nothing_of_a_gpu(results: Results) -> None:
    put(results, "duck", 0, 3.0)
    slow = line_of(GRID, cell_of(GRID, "duck", 1), seconds=500.0, wall_seconds=500.0, device="x86")
    append(results, "mine", slow)
    estimates = Estimates(results)
    assert estimates.device == "NVIDIA H200"
    wanted = experiment(GRID, cell_of(GRID, "duck", 2), FACTS)
    assert estimates.seconds(wanted, "class") == pytest.approx(3.0)


@pytest.mark.parametrize("model", ["allcnn", "resnet18"])
def test_the_operations_of_a_model_are_those_that_torch_counts(model: str) -> None:
    net = build(model, 100, (3, 32, 32)).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(torch.zeros(1, 3, 32, 32))
    assert counter.get_total_flops() / 1e9 == pytest.approx(GIGA_OPERATIONS[model][32], abs=1e-3)


def test_every_data_set_and_model_of_the_papers_grids_has_its_work() -> None:
    for name in ("paper/table-cr", "paper/architectures", "paper/bias"):
        for block in find_grid(name).blocks:
            assert DATA[block.dataset][1] in GIGA_OPERATIONS[block.model]


def everything(results: Results) -> None:
    put_training(results, 60.0)
    for method, seconds in (("original", 1.0), ("retrained", 60.0), ("duck", 3.0), ("scrub", 5.0)):
        put(results, method, 2, seconds)


def asked(step: Step) -> list[tuple[str, ...]]:
    """Return scenario, case and method of the missing cells that a command runs."""
    only = step.command.partition("--only ")[2].strip("'")
    some = narrow(cells(GRID, {}), parse_only(only, GRID))
    keys = [tuple(c.keys[k][0] for k in ("scenario", "case", "method")) for c in some]
    return [key for key in keys if key[:2] != ("class", "2")]  # done


FIRST = [
    (kind, "0", name) for kind in ("class", "samples") for name in ("original", "retrained", "duck")
]
"""Together 128 s, and 60 s for their original."""
OTHERS = [("class", "0", "scrub"), ("samples", "0", "scrub")]


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(188.5, FIRST), (198.5, [*FIRST, *OTHERS]), (60.5, []), (61.5, FIRST[:1])],
)
def test_the_next_steps_fill_the_most_important_cells_that_fit(
    results: Results, seconds: float, wanted: list[tuple[str, ...]]
) -> None:
    everything(results)
    steps = Planner(results).next_steps([GRID], seconds / 60)
    found = [key for step in steps for key in asked(step)]
    assert sorted(found) == sorted(wanted)
    assert sum(step.count for step in steps) == len(wanted)
    assert sum(step.minutes for step in steps) <= seconds / 60 + 0.1


def test_further_cases_come_last_and_one_command_runs_everything(results: Results) -> None:
    everything(results)
    planner = Planner(results)
    found = [key for step in planner.next_steps([GRID], 4.0) for key in asked(step)]
    assert set(found) > {*FIRST, *OTHERS}
    assert ("class", "1", "retrained") not in found
    (step,) = planner.next_steps([GRID], 1000.0)
    assert (step.command, step.count) == ("duck bench mine", 16)


@pytest.mark.parametrize("minutes", [1.1, 2.5, 3.0, 4.4, 6.0])
def test_the_commands_run_no_cell_twice_and_none_that_was_not_chosen(
    results: Results, minutes: float
) -> None:
    everything(results)
    steps = Planner(results).next_steps([GRID], minutes)
    found = [key for step in steps for key in asked(step)]
    assert len(found) == len(set(found)) == sum(step.count for step in steps)


def test_runs_that_grids_share_are_planned_once(results: Results) -> None:
    everything(results)
    twin = replace(GRID, name="twin", rank=GRID.rank + 1)
    steps = Planner(results).next_steps([GRID, twin], 1000.0)
    assert [step.command for step in steps] == ["duck bench mine"]


def test_trials_of_a_search_are_counted(results: Results) -> None:
    put_training(results, 60.0)
    grid = replace(GRID, blocks=(replace(GRID.blocks[0], trials=3, searched=(7,)),))
    rows = [{**TRIAL, "number": number} for number in range(2)]
    (results.folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, search = Planner(Results(results.folder)).status([grid])
    assert search.what == "search"
    # DUCK has had none of three; nobody knows how long one takes.
    assert (search.done, search.missing, search.unmeasured) == (2, 4, 3)
    assert search.minutes == pytest.approx(0.5)


def lira_line(grid: Grid, epochs: int) -> dict[str, object]:
    settings = {"name": "lira", "shadows": 128, "pool": f"p{epochs}"}
    scores = {"tpr_1": 0.1, "tpr_0.1": None, "auc": 0.6, "f1": 0.7}
    recipe = {"epochs": epochs}
    shadows = {"models": 128, "pool": f"p{epochs}", "train": 1.0, "test": 0.9, **recipe}
    shadows["recipe"] = recipe
    line = line_of(grid, cell_of(grid, "duck", 0), scores=scores)
    return {**line, "attack": settings, "shadows": shadows}


def test_shadow_models_of_another_recipe_leave_the_matched_pool_missing(results: Results) -> None:
    put_training(results, 60.0)
    grid = replace(GRID, attack=Attack("lira"), blocks=GRID.blocks[:1], methods=("duck",))
    append(results, "mine", lira_line(grid, 16))
    runs, pool = Planner(results).status([grid])
    assert (runs.done, runs.missing) == (1, 2)
    assert (pool.what, pool.done, pool.missing) == ("matched pool", 0, 3)
    # 128 models on half of the data.
    assert pool.minutes == pytest.approx(128 * 30 / 60)
    append(results, "mine", lira_line(grid, 60))
    assert Planner(results).status([grid])[1].done == 1


def test_the_status_as_text_markdown_and_json(results: Results) -> None:
    everything(results)
    rows = Planner(results).status([GRID])
    text, piped = render_status(rows, "text"), render_status(rows, "markdown")
    assert text.splitlines()[0].split()[:3] == ["grid", "data", "set"]
    assert piped.splitlines()[1] == "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    (plain,) = json.loads(render_status(rows, "json"))
    assert (plain["done"], plain["missing"], plain["failed"]) == (4, 16, 0)


def test_a_pool_and_a_search_take_what_the_minutes_leave(results: Results) -> None:
    everything(results)
    lira = replace(GRID, name="lira", attack=Attack("lira"), blocks=GRID.blocks[:1])
    planner = Planner(results)
    (step,) = planner.next_steps([lira], 10.0)
    # 128 models on half of the data take 64 minutes.
    assert (
        step.command
        == "duck pool --data cifar10 --model resnet18 --models 128 --out pools/cifar10 "
        "--limit-minutes 10"
    )
    assert (step.count, step.minutes) == (20, 10.0)
    (whole,) = planner.next_steps([lira], 100.0)
    assert "--limit-minutes" not in whole.command
    assert whole.minutes == 64.0
    assert planner.next_steps([lira], 1.9) == []
    (results.folder / "t.jsonl").write_text(json.dumps({**TRIAL, "number": 0}) + "\n")
    grid = replace(
        GRID, blocks=(replace(GRID.blocks[0], trials=3, searched=(7,)),), methods=("scrub", "ssd")
    )
    steps = Planner(Results(results.folder)).next_steps([grid], 100.0)
    # Nobody knows how long a trial of SSD takes.
    assert (
        steps[-1].command
        == "python benchmarks/tune_rivals.py --data cifar10 --budget 3 --only class:scrub"
    )
    assert (steps[-1].minutes, steps[-1].count) == (1.0, 2)


def test_stored_originals_cost_nothing_and_lower_ranks_come_first(results: Results) -> None:
    everything(results)
    models = results.folder / "models"
    original = original_of(GRID, cells(GRID, {})[0], FACTS)
    (models / "originals").mkdir(parents=True)
    (models / "originals" / f"{original.id}.safetensors").touch()
    assert Planner(results).next_steps([GRID], 0.5) == []
    (step, *_) = Planner(results, models).next_steps([GRID], 0.5)
    assert "case=0" in step.command
    later = replace(GRID, name="later", rank=GRID.rank + 1, seed=7)
    steps = Planner(results).next_steps([later, GRID], 61.5 / 60)
    assert [step.command.split()[2] for step in steps] == ["mine"]


def test_blocks_that_only_cannot_tell_apart_are_one_command(results: Results) -> None:
    everything(results)
    grid = replace(
        GRID,
        blocks=(Block("cifar10", seeds=(0,)), Block("cifar10", seeds=(0,), fraction=0.2)),
        methods=("original", "duck"),
    )
    steps = Planner(results).next_steps([grid], 62.5 / 60)
    assert steps
    assert all(step.command.startswith("duck bench mine") for step in steps)


def test_times_of_shared_devices_and_of_attacks_are_no_estimates(results: Results) -> None:
    put(results, "duck", 0, 3.0)
    for case, extra in ((1, {"alone": False}), (2, {"attack": {"name": "svm", "splits": 5}})):
        scores = {"f1": 0.7, "chance": 0.75}
        slow = line_of(
            GRID,
            cell_of(GRID, "duck", case),
            scores=scores,
            seconds=500.0,
            wall_seconds=500.0,
            device="NVIDIA H200",
        )
        append(results, "mine", {**slow, **extra})
    wanted = experiment(GRID, cell_of(GRID, "duck", 1), FACTS)
    assert Estimates(results).seconds(wanted, "class") == pytest.approx(3.0)
