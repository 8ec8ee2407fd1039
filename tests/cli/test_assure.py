"""`duck forget --assure`: the plan, the run that is stored, and the exit codes."""

import json
from pathlib import Path

import pytest

from duck import cli
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
    words = [*request, *split("--models 3 --budget-seconds 0.01 --out {} --json", tmp_path / "run")]
    printed = duck(capsys, *words, code=1)
    assert not printed["assurance"]["passed"]
    assert printed["method"] == "duck"


@pytest.mark.parametrize(
    "flags",
    ["--dry-run", "--budget-seconds 3", "--models 3", "--margin 0.2", "--max-advantage 0.1"],
)
def test_flags_of_assurance_need_it(
    flags: str, original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = split("forget --run {} --classes 3 --out {}", original, tmp_path / "run")
    assert "--assure" in duck(capsys, *request, *flags.split(), code=2)


def test_the_default_method_is_chosen_and_named_in_the_notes(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = split("forget --run {} --classes 3 --out {} --json", original, tmp_path / "run")
    printed = duck(capsys, *request)
    assert printed["method"] == "warm-restart"
    assert any("warm-restart was chosen" in note for note in printed["notes"])
