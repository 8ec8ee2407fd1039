"""`duck forget --assure`: the plan, the run that is stored, and the exit codes."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from duck import cli, runs
from duck.assurance import Assured, assure
from duck.audits.verdict import Audit
from duck.records import read_record
from tests.cli.commands import duck, split


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "original"
    words = split("train --data noisy-digits --epochs 20 --out {} --json", folder)
    assert cli.main(words) == 0
    return folder


def test_a_dry_run_prints_the_plan_and_trains_nothing(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "forgot"
    words = split("forget --run {} --classes 3 --assure oracle --dry-run --out {}", original, out)
    steps = duck(capsys, *words, "--json")
    assert steps[-1]["method"] == "retrained"
    shares = [step["share"] for step in steps]
    assert shares == sorted(shares)
    assert all(step["seconds"] > 0 for step in steps)
    assert list(tmp_path.iterdir()) == []


def test_the_chosen_model_is_stored_with_every_method_that_was_tried(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "forgot"
    words = split("forget --run {} --classes 3 --assure quick --out {}", original, out)
    printed = duck(capsys, *words, "--json")
    assurance = printed["assurance"]
    assert assurance["passed"]
    assert assurance == json.loads((out / "assurance.json").read_text())
    assert assurance["attempts"][-1]["method"] == assurance["chosen"]
    assert assurance["chosen"].startswith(printed["method"])
    assert read_record(out / "audit-quick.json", Audit).verdict == assurance["verdict"]
    assert duck(capsys, *words, code=2)  # the folder holds a run


def test_a_named_method_is_tried_alone_before_retraining(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = split("forget --run {} --classes 3 --method original --assure quick", original)
    printed = duck(capsys, *request, "--out", str(tmp_path / "forgot"), "--json")
    attempts = printed["assurance"]["attempts"]
    assert [attempt["method"] for attempt in attempts] == ["original", "retrained"]
    assert printed["method"] == "retrained"


@pytest.mark.slow
def test_a_budget_that_is_too_small_is_exit_code_1(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = split("forget --run {} --classes 3 --method duck --assure oracle", original)
    words = [
        *request,
        *split("--models 5 --margin 0.001 --budget-seconds 0.01 --out {} --json", tmp_path / "run"),
    ]
    printed = duck(capsys, *words, code=1)
    assert not printed["assurance"]["passed"]
    assert printed["method"] == "duck"
    audit = read_record(tmp_path / "run" / "audit-quick.json", Audit)
    assert audit.verdict == printed["assurance"]["verdict"]
    assert audit.next_steps


@pytest.mark.parametrize(
    "flags",
    [
        "--dry-run",
        "--budget-seconds 3",
        "--models 3",
        "--margin 0.2",
        "--max-advantage 0.1",
        "--max-epsilon 2",
        "--no-planted",
    ],
)
def test_flags_of_assurance_need_it(
    flags: str, original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = split("forget --run {} --classes 3 --out {}", original, tmp_path / "run")
    message = duck(capsys, *request, *flags.split(), code=2)
    assert f"{flags.split()[0]} needs --assure" in " ".join(message.split())


def test_the_default_method_is_chosen_and_named_in_the_notes(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = split("forget --run {} --classes 3 --out {} --json", original, tmp_path / "run")
    printed = duck(capsys, *request)
    assert printed["method"] == "warm-restart"
    assert any("warm-restart was chosen" in note for note in printed["notes"])


@pytest.mark.parametrize(
    "flags",
    [
        "--assure oracle --models 4",
        "--assure quick --budget-seconds -1",
        "--assure oracle --margin 2",
        "--assure quick --protocol paper",
        "--assure quick --method warm-restart --epochs 0",
        "--assure quick --method warm-restart --shrink 1.5",
    ],
)
def test_wrong_values_are_refused(
    flags: str, original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = split("forget --run {} --classes 3 --out {}", original, tmp_path / "run")
    duck(capsys, *request, *flags.split(), code=2)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_run_is_refused_before_the_work(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir()
    words = split(
        "forget --run {} --classes 3 --assure quick --out {}", original, tmp_path / "notes"
    )
    assert "is not a run" in duck(capsys, *words, code=2)


def test_a_model_that_knows_an_earlier_request_does_not_pass(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    weak = split("--classes 3 --method finetune --epochs 1 --lr 1e-9 --out {} --json", first)
    duck(capsys, "forget", "--run", str(original), *weak, code=1)
    words = split("forget --run {} --classes 5 --method delete --out {}", first, second)
    printed = duck(capsys, *words, "--assure", "quick", "--json")
    attempts = printed["assurance"]["attempts"]
    assert [attempt["passed"] for attempt in attempts] == [False, True]
    assert printed["method"] == "retrained"


def test_a_second_assurance_keeps_the_audits_of_the_same_model(
    original: Path, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = split("forget --run {} --classes 3 --method retrained --assure quick --json", original)
    first = duck(capsys, *words)
    folder = Path(first["run"])
    (folder / "audit-oracle.json").write_text("{}")
    second = duck(capsys, *words)
    assert second["run"] == first["run"]
    assert (folder / "audit-oracle.json").read_text() == "{}"
    assert second["notes"][-1] != first["notes"][-1]  # it has the times of the second
    shutil.copy(original / "model.safetensors", folder)
    third = duck(capsys, *words)
    assert third["run"] == f"{first['run']}-2"
    assert (folder / "audit-oracle.json").exists()
    assert not (Path(third["run"]) / "audit-oracle.json").exists()
    assert duck(capsys, *words, "--overwrite")["run"] == first["run"]
    assert not (folder / "audit-oracle.json").exists()


def test_a_run_that_was_stored_meanwhile_is_not_replaced(
    original: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "run"

    def assure_while_another_run_is_stored(*arguments: Any) -> Assured:
        other = split("forget --run {} --classes 5 --method delete --out {}", original, out)
        assert cli.main(other) == 0
        return assure(*arguments)

    monkeypatch.setattr("duck.commands.assure.assure", assure_while_another_run_is_stored)
    request = split("forget --run {} --classes 3 --method retrained --assure quick", original)
    assert cli.main([*request, "--out", str(out)]) == 0
    assert runs.load(out).request_text == "class 5"
    assert runs.load(tmp_path / "run-2").request_text == "class 3"
    assert str(tmp_path / "run-2") in capsys.readouterr().err


@pytest.mark.slow
def test_an_interruption_keeps_the_models_to_compare_with(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = original.parent / "interrupted"
    words = split("forget --run {} --classes 4 --assure oracle --models 5 --out {}", original, out)
    process = subprocess.Popen(
        [sys.executable, "-m", "duck", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    stored = original.parent / ".artifacts" / "retrained"
    before = set(stored.glob("*.safetensors"))
    deadline = time.monotonic() + 120
    while not set(stored.glob("*.safetensors")) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not out.exists()
    kept = {path: path.stat().st_mtime_ns for path in set(stored.glob("*.safetensors")) - before}
    assert kept
    printed = duck(capsys, *words, "--budget-seconds", "0.01", "--json", code=1)
    assert f"{len(kept)} of 5" in printed["assurance"]["attempts"][0]["reason"]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_model_from_elsewhere_is_refused_before_the_work(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = original / "model.safetensors"
    model = split("--model convnet --weights {} --data noisy-digits --classes 3", weights)
    for tier in ("quick", "oracle", "full"):
        words = [*model, "--assure", tier, "--out", str(tmp_path / "run")]
        assert "recipe" in duck(capsys, "forget", *words, code=2)
    assert not list(tmp_path.iterdir())
