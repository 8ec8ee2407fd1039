"""A grid runs, stops, goes on and survives what fails in it; nothing is done twice."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from duck.bench import Results, find_grid
from duck.bench.estimates import Estimates
from duck.bench.executor import Plan, RunCounts, execute, plan
from duck.bench.grids import Grid, facts_of, parse_only
from duck.bench.results import Result, Values
from duck.bench.runner import Job, Runner, short_message
from duck.commands.train import Machine
from duck.display import JobProgress
from duck.engines import ProcessEngine
from duck.experiment import from_dict
from duck.files import CacheWarning
from duck.methods import METHODS
from duck.methods.base import ForgetsBy, Kinds, clone
from duck.metrics import evaluate
from duck.models import build
from duck.models.weights import load_weights
from duck.runtime import device_name
from duck.types import Task
from tests.bench.stored import FACTS, FEW, append, cell_of, digits, expected, line_of

CPU = torch.device("cpu")
DIVERGING = {"epochs": 1, "batch_size": 256, "lr": 1e30, "schedule": "constant"}


def left(grid: Grid, results: Results, only: str = "") -> Plan:
    return plan(
        grid,
        {name: facts_of(data) for name, data in digits().items()},
        results,
        parse_only(only, grid),
    )


def run(grid: Grid, folder: Path, only: str = "", limit: float | None = None) -> RunCounts:
    results, runner = Results(folder / "results"), Runner(digits(), folder / "models", CPU)
    results.check_writable()
    return execute(
        left(grid, results, only).jobs,
        runner,
        results,
        grid.name,
        device=device_name(CPU),
        limit=limit,
    )


def lines(folder: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The stored results, as plain data."""
    return {
        (line.scenario, line.case, line.method): line.to_dict()
        for line in Results(folder / "results").results.values()
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("ran")
    assert run(FEW, folder) == RunCounts(ran=10, failed=0, left=0)
    return folder


def test_a_grid_leaves_a_line_for_each_cell_and_for_its_original(ran: Path) -> None:
    found = lines(ran)
    asked = [
        (kind, case, m)
        for kind, case in (("class", 3), ("class", 8), ("samples", 0))
        for m in ("original", "duck", "retrained")
    ]
    assert list(found) == [(None, None, None), *asked]
    original, forgot, retrained = (
        found[None, None, None],
        found["class", 3, "duck"],
        found["class", 8, "retrained"],
    )
    assert set(original["scores"]) == {"train", "test"}
    assert 0.1 < original["scores"]["test"] < 1
    assert original["seconds"] > 0
    assert forgot["processed"] == forgot["forget_samples"] > 100
    assert forgot["scores"] != forgot["original"]
    assert retrained["scores"]["forget_test"] == 0
    assert (forgot["preset"], forgot["dataset"], forgot["torch"], forgot["device_gib"]) == (
        "paper",
        "digits",
        torch.__version__,
        None,
    )
    assert forgot["wall_seconds"] > forgot["seconds"] > 0
    assert forgot["host_gib"] > 0.05
    assert from_dict(forgot["experiment"]).id == forgot["id"]


def test_the_originals_scores_are_those_of_its_own_row(ran: Path) -> None:
    found = lines(ran)
    assert (
        found["class", 3, "duck"]["original"]
        == found["class", 3, "retrained"]["original"]
        == found["class", 3, "original"]["scores"]
    )
    assert found["class", 3, "duck"]["original"] != found["class", 8, "duck"]["original"]


def test_a_line_says_what_the_unlearning_cost(ran: Path) -> None:
    for line in (found for key, found in lines(ran).items() if key[0] == "class"):
        kept = line["kept_accuracy"]
        assert (kept["original"], kept["unlearned"]) == (
            line["original"]["retain_test"],
            line["scores"]["retain_test"],
        )
        assert kept["damaged"] == (kept["original"] - kept["unlearned"] > kept["limit"])
        assert (
            (line["status"] == "damaged")
            == kept["damaged"]
            == any(note.startswith("The model lost too much") for note in line.get("notes", ()))
        )


def test_results_contain_no_paths_of_the_machine(ran: Path) -> None:
    text = (ran / "results" / "toy-few.jsonl").read_text()
    assert str(ran) not in text
    assert str(Path.cwd()) not in text


def test_errors_are_reported_in_one_line_without_the_machines_paths() -> None:
    printed = short_message(
        OSError("'/home/someone/data/x.bin' is\n  1/2 read/written, see https://a.org/b/c")
    )
    assert printed == "OSError: 'x.bin' is 1/2 read/written, see https://a.org/b/c"
    assert len(short_message(ValueError("x" * 5000))) < 500


def test_what_is_done_is_not_done_again(ran: Path) -> None:
    assert left(FEW, Results(ran / "results")) == Plan([], 9, set())
    assert run(FEW, ran) == RunCounts(0, 0, 0)


def test_a_killed_grid_resumes_and_ends_with_the_same_scores(ran: Path, tmp_path: Path) -> None:
    whole = (ran / "results" / "toy-few.jsonl").read_text().splitlines()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "toy-few.jsonl").write_text(
        "\n".join(whole[:8]) + "\n" + whole[8][:100]
    )
    todo = left(FEW, Results(tmp_path / "results"))
    assert [str(job) for job in todo.jobs] == [
        "digits, seed 0: duck (paper)",
        "digits, seed 0: retrained (standard)",
    ]
    assert run(FEW, tmp_path, only="method=duck") == RunCounts(1, 0, 0)
    assert (
        lines(tmp_path)["samples", 0, "duck"]["scores"]
        == lines(ran)["samples", 0, "duck"]["scores"]
    )


def test_an_original_is_trained_once_and_known_to_the_next_folder_of_results(
    ran: Path, tmp_path: Path
) -> None:
    folder = ran / "models" / "originals"
    made = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(made) == 1
    results = Results(tmp_path)
    jobs = left(FEW, results, "case=3,method=original").jobs
    assert [job.cell is None for job in jobs] == [True, False]
    execute(jobs, Runner(digits(), ran / "models", CPU), results, "other", device="cpu")
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == made
    again, first = results.results[jobs[0].experiment.id], lines(ran)[None, None, None]
    assert (again.seconds, again.scores, again.date) == (
        first["seconds"],
        first["scores"],
        first["date"],
    )
    assert (
        results.results[jobs[1].experiment.id].scores
        == lines(ran)["class", 3, "original"]["scores"]
    )


@pytest.mark.parametrize("damage", [b"", b"half", None])
def test_an_original_that_cannot_be_read_is_trained_again(
    damage: bytes | None, tmp_path: Path
) -> None:
    job = left(FEW, Results(tmp_path / "results"), "case=3,method=original").jobs[0]
    before = Runner(digits(), tmp_path, CPU)(job)
    (file,) = (tmp_path / "originals").iterdir()
    file.write_bytes(file.read_bytes()[:-5] if damage is None else damage)
    with pytest.warns(CacheWarning, match=f"{file.name} cannot be read"):
        assert Runner(digits(), tmp_path, CPU)(job).scores == before.scores
    assert Runner(digits(), tmp_path, CPU)(job).scores == before.scores


def test_an_original_that_cannot_be_stored_costs_no_result(tmp_path: Path) -> None:
    job = left(FEW, Results(tmp_path / "results"), "case=3,method=original").jobs[0]
    (tmp_path / "file").touch()
    with pytest.warns(CacheWarning, match=r"written \(Not a directory\)"):
        assert not Runner(digits(), tmp_path / "file" / "models", CPU)(job).failed


@dataclass(frozen=True)
class Moody:
    """Fails until it is told not to."""

    paper: ClassVar[str] = "none"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[ForgetsBy] = "nothing"
    mood: ClassVar[list[str]] = []

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        if self.mood:
            raise ZeroDivisionError(f"{self.mood[0]} in /some/where/file.py")
        return model


def test_a_method_that_fails_is_a_line_stops_nothing_and_is_tried_again(
    ran: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(METHODS._entries, "moody", Moody)
    monkeypatch.setattr(Moody, "mood", ["bad"])
    grid = replace(FEW, methods=("moody", "original"), settings={})
    (tmp_path / "models").symlink_to(ran / "models")
    assert run(grid, tmp_path, only="scenario=class") == RunCounts(ran=5, failed=2, left=0)
    failed = lines(tmp_path)["class", 3, "moody"]
    assert failed["error"] == "ZeroDivisionError: bad in file.py"
    assert "scores" not in failed
    assert "scores" in lines(tmp_path)["class", 8, "original"]
    monkeypatch.setattr(Moody, "mood", [])
    assert run(grid, tmp_path, only="scenario=class") == RunCounts(ran=2, failed=0, left=0)
    assert "error" not in lines(tmp_path)["class", 3, "moody"]


@dataclass(frozen=True)
class Nowhere(Moody):
    """Leaves a model that says nothing but NaN."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        broken = clone(model)
        with torch.no_grad():
            next(iter(broken.parameters())).fill_(float("nan"))
        return broken


def test_scores_that_are_no_numbers_are_a_failure_at_once(
    ran: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(METHODS._entries, "nowhere", Nowhere)
    (tmp_path / "models").symlink_to(ran / "models")
    assert run(
        replace(FEW, methods=("nowhere",), settings={}), tmp_path, only="case=3"
    ) == RunCounts(ran=2, failed=1, left=0)
    assert lines(tmp_path)["class", 3, "nowhere"]["error"] == "Not a number: forget_loss."
    assert "NaN" not in (tmp_path / "results" / "toy-few.jsonl").read_text()


def test_impossible_settings_are_an_error_of_their_row(ran: Path, tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(ran / "models")
    grid = replace(FEW, settings={"duck": {"target_class": 99}})
    assert run(grid, tmp_path, only="case=3,method=duck").failed == 1
    assert lines(tmp_path)["class", 3, "duck"]["error"].startswith(
        "BadInput: target_class 99 has no retain samples"
    )


def test_an_original_that_cannot_be_made_fails_its_cells_without_being_tried_for_each(
    tmp_path: Path,
) -> None:
    grid = replace(FEW, blocks=(replace(FEW.blocks[0], recipe=DIVERGING),))
    assert run(grid, tmp_path, only="method=original") == RunCounts(ran=3, failed=3, left=0)
    found = lines(tmp_path)
    assert found[None, None, None]["error"].startswith("Diverged: The loss became")
    error = found["class", 8, "original"]["error"]
    assert error.startswith("BadInput: Its original ")
    assert ": Diverged: The loss became" in error
    assert list((tmp_path / "models").glob("*")) == []


def test_methods_that_are_not_installed_are_skipped_and_named(tmp_path: Path) -> None:
    todo = left(replace(FEW, methods=("original", "dukc"), settings={}), Results(tmp_path))
    assert todo.skipped == {"dukc"}
    assert {job.cell.method for job in todo.jobs if job.cell} == {"original"}


def test_data_that_are_not_there_have_no_jobs(tmp_path: Path) -> None:
    assert plan(FEW, {}, Results(tmp_path), {}) == Plan([], 0, set())


# From here on the work is a stand-in that takes no time: what counts is when it is asked.
CR = find_grid("paper/table-cr")


def jobs_and_results(
    folder: Path, finished: Sequence[dict[str, Any]] = ()
) -> tuple[list[Job], Results]:
    results = Results(folder)
    results.check_writable()
    for line in finished:
        append(results, "before", line)
    return plan(
        CR,
        {"cifar10": FACTS},
        results,
        parse_only("case=0,method=original,method=duck,method=retrained", CR),
    ).jobs, results


def instant(job: Job) -> Result:
    values = Values(scores={"test": 0.9}, seconds=1.0)
    return job.result(values, 1, 2.0, True, Machine("here", "2", "2026-11-18", None, 1.0))


def test_no_time_no_run(tmp_path: Path) -> None:
    jobs, results = jobs_and_results(tmp_path)
    assert execute(jobs, instant, results, "g", device="here", limit=0) == RunCounts(
        0, 0, len(jobs)
    )
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_would_not_fit_is_not_started(tmp_path: Path) -> None:
    jobs, results = jobs_and_results(
        tmp_path, [line_of(CR, cell_of(CR, "duck", 1, "tuned"), wall_seconds=1000.0)]
    )
    assert [str(job).partition(": ")[2] for job in jobs][:4] == [
        "train resnet18",
        "original (standard)",
        "duck (paper)",
        "duck (tuned)",
    ]
    ending = execute(jobs, instant, results, "g", device="elsewhere", limit=999)
    assert ending.left == 0  # what another machine needed says nothing here
    jobs, results = jobs_and_results(
        tmp_path / "b", [line_of(CR, cell_of(CR, "duck", 1, "tuned"), wall_seconds=1000.0)]
    )
    assert execute(jobs, instant, results, "g", device="here", limit=999) == RunCounts(
        2, 0, len(jobs) - 2
    )
    assert execute(jobs[2:], instant, results, "g", device="here", limit=1001).left == 0


def test_what_is_prepared_once_is_not_expected_again(tmp_path: Path) -> None:
    first = line_of(
        CR, cell_of(CR, "duck", 1), wall_seconds=61.0, seconds=9.0, prepare_seconds=50.0
    )
    jobs, results = jobs_and_results(tmp_path, [first])
    assert expected(jobs[2], results) == 11.0
    append(
        results,
        "g",
        line_of(CR, cell_of(CR, "duck", 2), wall_seconds=13.0, seconds=9.0, prepare_seconds=50.0),
    )
    assert expected(jobs[2], results) == 12.0


def test_times_are_expected_from_the_same_method(tmp_path: Path) -> None:
    duck = [
        line_of(CR, cell_of(CR, "duck", case), wall_seconds=seconds)
        for case, seconds in ((1, 10.0), (2, 20.0), (3, 60.0))
    ]
    jobs, results = jobs_and_results(tmp_path, duck)
    train, original, paper, tuned, retrained = jobs
    assert [expected(job, results) for job in jobs] == [None, None, 20.0, 20.0, None]
    append(results, "g", line_of(CR, cell_of(CR, "duck", 4, "tuned"), wall_seconds=7.0))
    assert expected(tuned, results) == 7.0
    assert expected(paper, results) == 20.0
    append(results, "g", {**instant(train).to_dict(), "dataset": "cifar10", "wall_seconds": 100.0})
    assert expected(retrained, results) == 100.0
    mean = (10 + 20 + 60 + 7 + 100) / 5
    seconds = [expected(job, results) for job in (original, paper, retrained)]
    assert Estimates(results, "here").total(seconds) == pytest.approx(mean + 20 + 100)
    assert Estimates(results, "elsewhere").total([None]) is None
    assert Estimates(results, "elsewhere").total([]) == 0


def test_progress_is_reported_before_and_after_each_run(tmp_path: Path) -> None:
    jobs, results = jobs_and_results(tmp_path)
    news: list[JobProgress[Result]] = []
    execute(jobs, instant, results, "g", device="here", report=news.append)
    assert [(state.done, state.left, state.result is not None) for state in news[:4]] == [
        (0, 5, False),
        (1, 4, True),
        (1, 4, False),
        (2, 3, True),
    ]
    assert (news[0].seconds_left, news[1].seconds_left) == (None, 8.0)
    assert news[-1].left == 0


def test_ctrl_c_keeps_finished_tasks(tmp_path: Path) -> None:
    jobs, results = jobs_and_results(tmp_path)

    def impatient(job: Job) -> Result:
        if job.cell is not None:
            raise KeyboardInterrupt
        return instant(job)

    with pytest.raises(KeyboardInterrupt):
        execute(jobs, impatient, results, "g", device="here")
    assert list(Results(tmp_path).done) == [jobs[0].experiment.id]


def test_unlearned_models_are_kept_where_that_is_asked_for(ran: Path, tmp_path: Path) -> None:
    data, (job,) = (
        digits(),
        [job for job in left(FEW, Results(tmp_path), "method=duck,case=3").jobs if job.cell],
    )
    made = Runner(data, tmp_path / "models", CPU, keep_models=True)(job)
    model = build(job.experiment.training.model, 10, data["digits"].train.shape)
    load_weights(model, tmp_path / "models" / "unlearned" / f"{job.id}.safetensors")
    assert job.experiment.request is not None
    found = asdict(evaluate(model, job.experiment.request(data["digits"], job.experiment.seed)))
    assert {**found, "aus": None} == {
        **made.scores,
        "aus": None,
    }  # which compares with the original
    assert not (ran / "models" / "unlearned").exists()


def test_only_retraining_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []

    def keep(model: nn.Module, **_: object) -> nn.Module:
        compiled.append(model)
        return model

    monkeypatch.setattr(torch, "compile", keep)
    runner = Runner(digits(), tmp_path / "models", CPU, compiled=True)
    made = [runner(job) for job in left(FEW, Results(tmp_path), "case=3").jobs]
    assert [line.compiled for line in made] == [False, False, False, True]
    assert len(compiled) == 1
    assert not any(line.failed for line in made)


@pytest.mark.slow
def test_processes_give_the_scores_of_one_process(ran: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.check_writable()
    runner = Runner(digits(), tmp_path / "models", CPU, alone=False)
    progress: list[JobProgress[Result]] = []
    counts = execute(
        left(FEW, results).jobs,
        runner,
        results,
        FEW.name,
        device=device_name(CPU),
        engine=ProcessEngine(2),
        report=progress.append,
    )
    assert counts == RunCounts(ran=10, failed=0, left=0)
    assert len(list((tmp_path / "models" / "originals").iterdir())) == 1
    first = next(state.result for state in progress if state.result)
    assert first.method is None  # the original, before any worker needs it
    found = lines(tmp_path)
    assert {key: line["scores"] for key, line in found.items()} == {
        key: line["scores"] for key, line in lines(ran).items()
    }
    assert all(line["alone"] is False for line in found.values())


def test_processes_start_nothing_after_the_limit(tmp_path: Path) -> None:
    jobs, results = jobs_and_results(tmp_path)
    counts = execute(jobs, instant, results, "g", device="here", engine=ProcessEngine(2), limit=0)
    assert counts == RunCounts(0, 0, len(jobs))
