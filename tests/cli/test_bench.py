"""duck bench as a user runs it: run, kill, resume, narrow, print, and one line for an error."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from duck import cli
from duck.bench.grids import built_in
from duck.methods import METHODS, Original
from duck.types import Task

GRID = """
about = "the smallest"
methods = ["original", "duck"]
presets = ["paper"]
settings.duck = { max_epochs = 1, low_epochs = 0, batch_ratio = 1 }

[[blocks]]
dataset = "digits"
model = "convnet"
seeds = [0, 1]
recipe = { epochs = 1, batch_size = 256 }
"""
LONG = (
    GRID.replace("[0, 1]", str(list(range(300))))
    .replace('["original", "duck"]', '["original"]')
    .replace("settings.duck", "#")
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(GRID)
    (tmp_path / "long.toml").write_text(LONG)
    return tmp_path


def bench(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    got = cli.main(["bench", *words])
    out, err = capsys.readouterr()
    assert got == code, err
    return out, err


def test_run_narrow_resume_and_print(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = bench(capsys, "small.toml", "--only", "method=duck,case=1", "--json")
    assert json.loads(out) == {"grid": "small", "skipped": 0, "ran": 2, "failed": 0, "left": 0}
    assert "[1/2] digits: train convnet: test accuracy 0." in err
    assert "[2/2] digits, seed 1: duck (paper): AUS " in err
    out, err = bench(capsys, "small.toml", "--device", "cpu")
    assert out == "small: 3 runs ended, 0 of them failed; 1 were there before, 0 are left.\n"
    assert "2 left, expected end" in err
    out, err = bench(capsys, "small.toml", "--json")
    assert json.loads(out) == {"grid": "small", "skipped": 4, "ran": 0, "failed": 0, "left": 0}
    assert len((here / "results" / "small.jsonl").read_text().splitlines()) == 5
    assert sorted(path.name for path in here.iterdir()) == [
        "long.toml",
        "results",
        "runs",
        "small.toml",
    ]
    rows = json.loads(bench(capsys, "--table", "small.toml", "--json")[0])
    assert [(row["method"], row["n"], row["of"]) for row in rows] == [
        ("original", 2, 2),
        ("duck", 2, 2),
    ]
    assert bench(capsys, "--table", "small.toml", "--format", "json")[0] == json.dumps(rows) + "\n"
    starts = {
        "text": "digits, samples, convnet",
        "markdown": "**digits, samples",
        "latex": "% digits",
        "csv": "dataset,scenario,model",
    }
    for form, start in starts.items():
        assert bench(capsys, "small.toml", "--table", "--format", form)[0].startswith(start)


def test_a_limit_of_nothing_starts_nothing_and_is_no_failure(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = bench(capsys, "small.toml", "--limit-minutes", "0")
    assert out == "small: 0 runs ended, 0 of them failed; 0 were there before, 5 are left.\n"
    assert "Stopped by --limit-minutes." in err
    assert not (here / "runs").exists()
    table, _ = bench(capsys, "--table", "small.toml")
    assert table.count("0 (missing 2 of 2)") == 2


@pytest.mark.slow
def test_a_killed_grid_resumes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "results" / "long.jsonl"
    words = [sys.executable, "-m", "duck", "bench", "long.toml"]
    with subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        deadline = time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    whole = path.read_bytes().count(b"\n")
    path.write_bytes(path.read_bytes() + b'{"id": "half a li')
    cases = [f"case={case}" for case in range(whole + 1)]
    out, err = bench(capsys, "long.toml", "--only", ",".join(cases), "--json")
    assert json.loads(out) == {
        "grid": "long",
        "skipped": whole - 1,
        "ran": 2,
        "failed": 0,
        "left": 0,
    }
    assert "Skipped 1 of the lines in long.jsonl: half-written, " in err
    assert [row["n"] for row in json.loads(bench(capsys, "--table", "long.toml", "--json")[0])] == [
        whole + 1
    ]


class Impatient(Original):
    """Stands for a person who presses Ctrl-C while it runs."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        raise KeyboardInterrupt


def test_ctrl_c_stores_finished_runs_and_names_the_command_that_resumes(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._entries, "impatient", Impatient)
    (here / "small.toml").write_text(LONG.replace('["original"]', '["original", "impatient"]'))
    _, err = bench(capsys, "small.toml", "--only", "case=0,case=1", code=130)
    assert err.splitlines()[-1].startswith("Interrupted: 2 runs ended, 3 are left. Rerun ")
    assert len((here / "results" / "small.jsonl").read_text().splitlines()) == 2
    assert (
        json.loads(bench(capsys, "small.toml", "--only", "case=0,method=original", "--json")[0])[
            "skipped"
        ]
        == 1
    )


def test_data_that_are_missing_are_skipped_with_a_note(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = GRID + '\n[[blocks]]\ndataset = "cifar10"\nclasses = [0]\n'
    (here / "two.toml").write_text(
        two.replace('["original", "duck"]', '["original", "no-such", "duck"]')
    )
    out, err = bench(
        capsys,
        "two.toml",
        "--root",
        "nowhere",
        "--only",
        "method=original,method=no-such",
        "--json",
    )
    assert json.loads(out)["ran"] == 3
    assert "Skipped the data set cifar10: " in err
    assert "Skipped: No method 'no-such'." in err
    err = bench(capsys, "two.toml", "--root", "nowhere", "--only", "dataset=cifar10", code=2)[1]
    assert "cifar10 is under nowhere" in err


def test_runs_that_failed_are_exit_code_1_until_they_succeed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["small.toml", "--only", "case=0"]
    (here / "small.toml").write_text(GRID.replace("max_epochs = 1", "target_class = 99"))
    out, err = bench(capsys, *words, code=1)
    assert out == "small: 3 runs ended, 1 of them failed; 0 were there before, 0 are left.\n"
    assert "failed: BadInput: target_class 99" in err
    assert json.loads(bench(capsys, *words, "--json", code=1)[0]) == {
        "grid": "small",
        "skipped": 1,
        "ran": 1,
        "failed": 1,
        "left": 0,
    }
    bench(capsys, *words, "--table")  # printing is no failure
    (here / "small.toml").write_text(GRID)
    assert json.loads(bench(capsys, *words, "--json")[0])["failed"] == 0


def test_a_table_of_a_folder_that_is_not_there_says_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = bench(capsys, "--table", "small.toml", "--out", "typo")
    assert "no folder typo" in err
    assert out.count("0 (missing 2 of 2)") == 2
    (here / "typo").mkdir()
    assert bench(capsys, "--table", "small.toml", "--out", "typo") == (out, "")


def test_incomplete_lines_are_named_and_skipped(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "results").mkdir()
    (here / "results" / "odd.jsonl").write_text(
        '{"id": "x", "experiment": {}, "dataset": "digits"}\n'
    )
    message = "Skipped 1 of the lines in odd.jsonl: scenario is missing"
    assert message in bench(capsys, "--table", "small.toml")[1]
    assert message in bench(capsys, "small.toml", "--only", "case=0,method=original")[1]


def test_the_status_what_to_run_next_and_the_claims(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(capsys, "small.toml", "--only", "case=0")
    (row,) = json.loads(bench(capsys, "--status", "small.toml", "--json")[0])
    assert (row["grid"], row["dataset"], row["done"], row["missing"], row["failed"]) == (
        "small",
        "digits",
        2,
        2,
        0,
    )
    assert row["minutes"] > 0
    text, _ = bench(capsys, "--status", "small.toml")
    assert text.splitlines()[1].split()[:6] == ["small", "digits", "runs", "2", "2", "0"]
    (step,) = json.loads(bench(capsys, "--next", "60", "small.toml", "--json")[0])
    assert (step["command"], step["count"], step["unit"]) == ("duck bench small.toml", 2, "cells")
    text, err = bench(capsys, "--next", "60", "small.toml", "--out", "elsewhere")
    assert text == ""
    assert "Nothing that is missing" in err
    assert bench(capsys, "--next", "60", "small.toml", "--root", "d")[0].startswith(
        "duck bench small.toml --root d  # 2 cells, about"
    )
    assert bench(capsys, "--next", "0", "small.toml")[0] == ""
    papers = json.loads(bench(capsys, "--status", "--json")[0])
    assert {row["grid"] for row in papers} >= {
        "paper/table-cr",
        "paper/ablation",
        "paper/multi-class",
        "paper/bias",
    }
    assert {row["done"] for row in papers} == {0}
    claims = json.loads(bench(capsys, "--claims", "--json")[0])
    assert {claim["answer"] for claim in claims} == {"not run"}
    assert bench(capsys, "--claims", "--format", "markdown")[0].startswith("**1. ")


def test_a_rehearsal_runs_a_papers_grid_and_prints_its_table(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = bench(capsys, "paper/recipe", "--rehearse", "--device", "cpu")
    assert "rehearsal/paper/recipe: 4 runs ended, 0" in out
    assert "digits, samples, convnet" in out
    assert (here / "results" / "rehearsal" / "rehearsal-paper-recipe.jsonl").exists()
    assert json.loads(bench(capsys, "paper/recipe", "--rehearse", "--json")[0])["ran"] == 0
    # Nothing of it counts as a result of the paper's grid.
    (row,) = json.loads(bench(capsys, "--status", "paper/recipe", "--json")[0])
    assert row["done"] == 0


def test_runs_on_a_shared_device_are_marked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench(capsys, "small.toml", "--only", "case=0,method=original", "--shared-device")
    lines = [
        json.loads(line) for line in (here / "results" / "small.jsonl").read_text().splitlines()
    ]
    assert {line["alone"] for line in lines} == {False}
    (row,) = json.loads(
        bench(capsys, "--table", "small.toml", "--only", "method=original", "--json")[0]
    )
    assert (row["n"], row["seconds"]) == (1, None)


WRONG: dict[str, tuple[list[str], str]] = {
    "grid": (["paper/table-crr"], "No grid 'paper/table-crr'. Did you mean 'paper/table-cr'?"),
    "file": (["no-such.toml"], "no-such.toml cannot be read"),
    "key": (
        ["small.toml", "--only", "mehtod=duck"],
        "case, variant, method, preset; got 'mehtod=duck'",
    ),
    "value": (
        ["small.toml", "--only", "method=dukc"],
        "no method 'dukc'. Known: original, duck.",
    ),
    "two grids": (
        ["small.toml", "long.toml"],
        "one grid to run, got 2. Known: paper/table-cr",
    ),
    "no grid": ([], "to run, got none. Known: paper/table-cr"),
    "a view": (
        ["paper/time"],
        "paper/time shows the runs of paper/table-cr, paper/table-hr and has none",
    ),
    "unknown status": (
        ["--status", "paper/tabel-cr"],
        "No grid 'paper/tabel-cr'. Did you mean 'paper/table-cr'?",
    ),
    "status of a part": (
        ["--status", "small.toml", "--only", "case=0"],
        "--status cannot be combined with --only",
    ),
    "status and table": (["--status", "--table", "small.toml"], "--status cannot be combined"),
    "status as latex": (
        ["--status", "--format", "latex"],
        "--format latex is for tables",
    ),
    "claims of a grid": (["--claims", "small.toml"], "--claims takes no grid, got 'small.toml'"),
    "no such class": (["class.toml"], "Class 12 is out of range: "),
    "next": (["--next", "-3"], "--next must be 0 or more, got -3.0."),
    "minutes": (
        ["small.toml", "--limit-minutes", "-1"],
        "--limit-minutes must be 0 or more, got -1.0.",
    ),
    "no minutes": (
        ["small.toml", "--limit-minutes", "nan"],
        "limit_minutes must be a finite number",
    ),
    "out": (
        ["small.toml", "--out", "small.toml/results"],
        "Results cannot be written to small.toml/results: Not a directory",
    ),
    "device": (["small.toml", "--device", "cuda:77"], "No device 'cuda:77' here"),
    "data set": (["typo.toml"], "No data set 'digts'. Did you mean 'digits'?"),
    "method alone": (["unknown.toml"], "of the grid unknown can "),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_wrong_input_is_one_message_and_exit_code_2(
    case: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "typo.toml").write_text(GRID.replace('"digits"', '"digts"'))
    (here / "class.toml").write_text(GRID.replace("seeds = [0, 1]", "classes = [12]"))
    (here / "unknown.toml").write_text(LONG.replace('["original"]', '["no-such"]'))
    words, message = WRONG[case]
    err = bench(capsys, *words, code=2)[1]
    (last,) = (line for line in err.splitlines() if line.startswith("duck bench:"))
    assert message in last
    assert "Traceback" not in err


def test_grids_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "grids", "--json"]) == 0
    rows: dict[str, Any] = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(built_in())
    assert rows["paper/time"]["runs"] == 0
    assert rows["paper/table-cr"]["runs"] >= 3 * 10 * 15
    assert all(row["about"] for row in rows.values())
