"""What a command suggests next must work as it stands; what cannot be done is not suggested."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duck import cli, runs
from duck.experiment import from_toml
from duck.report import Contents, read_runs, render
from duck.report.commands import suggested_audit
from tests.cli.commands import split
from tests.report.folders import write_run

BUILDER = """
from torch import nn
def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_classes))
"""


def duck(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main(list(words))
    return code, capsys.readouterr().out


def suggested(text: str) -> list[str]:
    """The words of the audit that a text suggests, without `duck`."""
    (command,) = set(re.findall(r"duck (audit [^`<]*)[`<]", text))
    return shlex.split(command)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An original of a user's own builder, in a folder whose name needs quotes."""
    folder = tmp_path_factory.mktemp("a user")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        Path("next_step_nets.py").write_text(BUILDER)
        Path("one.txt").write_text("5\n")
        Path("two.txt").write_text("5\n6\n")
        words = [
            *split("train --data digits --model next_step_nets:build --epochs 8 --out"),
            "trained here",
            "--json",
        ]
        assert cli.main(words) == 0
    return folder


@pytest.fixture
def foreign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return [
        "--model",
        "next_step_nets:build",
        "--weights",
        "trained here/model.safetensors",
        "--data",
        "digits",
    ]


def test_the_suggested_audit_of_a_model_from_elsewhere_works(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = duck(capsys, "forget", *foreign, "--classes", "3", "--out", "runs/forgot")
    assert code == 0
    words = suggested(out)
    assert words == ["audit", "runs/forgot", "--trust-model-code"]
    assert suggested(duck(capsys, "show", "runs/forgot")[1]) == words
    assert json.loads(duck(capsys, *words, "--json")[1])["tier"] == "quick"
    (stored,) = read_runs([Path("runs/forgot")])
    words = shlex.split(suggested_audit(replace(stored, audit=None)))[1:]
    assert words == split("audit runs/forgot --tier oracle --default-recipe --trust-model-code")
    assert "trained here" not in render(Contents([stored]))
    assert json.loads(duck(capsys, *words, "--models", "1", "--json")[1])["models"] == 1
    # A damaged file of an audit is made again by the same flags.
    Path("runs/forgot/audit-oracle.json").write_text("{")
    Path("runs/forgot/audit-quick.json").unlink()
    shown = duck(capsys, "show", "runs/forgot")[1]
    assert all(flag in shown for flag in ("--tier oracle", "--default-recipe"))
    (stored,) = read_runs([Path("runs/forgot")])
    assert "--default-recipe" in stored.problems[0].message


def test_a_compared_run_names_its_original(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, original in {
        "foreign": foreign,
        "own": ["--run", "trained here", "--trust-model-code"],
    }.items():
        words = ["--classes", "3", "--methods", "finetune", "--out", f"compared {name}"]
        assert duck(capsys, "compare", *original, *words)[0] == 0
        words = suggested(duck(capsys, "show", f"compared {name}/finetune")[1])
        assert "--original" not in words
        assert duck(capsys, *words)[0] in (0, 1, 3)


def test_the_audit_of_a_single_sample_is_suggested_and_works(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--ids", "one.txt", "--method", "duck", "--lr", "1e-3", "--out", "one"]
    words += ["--max-accuracy-loss", "1"]
    _, out = duck(capsys, "forget", *foreign, *words)
    assert runs.load(Path("one")).forgot is not False
    words = suggested(out)
    code, audited = duck(capsys, *words, "--json")
    assert code in (1, 3)
    # No tier gives a verdict for one sample, so none is suggested.
    (step,) = json.loads(audited)["next_steps"]
    assert "`" not in step
    (stored,) = read_runs([Path("one")])
    for text in (out, duck(capsys, "show", "one")[1], render(Contents([stored]))):
        assert "1 samples" not in text


def test_the_losses_of_few_samples_are_in_the_output(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = duck(capsys, "forget", *foreign, "--ids", "two.txt", "--out", "two")
    run = runs.load(Path("two"))
    assert run.original is not None
    (line,) = [line for line in out.splitlines() if line.startswith("Forget samples: mean loss")]
    numbers = [float(number) for number in re.findall(r"(?<![\w.])\d+\.?\d*(?:e-?\d+)?", line)]
    wanted = [
        scores[name]
        for name in ("forget_loss", "forget_rank")
        for scores in (run.original, run.scores)
    ]
    assert numbers[:4] == pytest.approx(wanted, rel=5e-3, abs=5e-4)


def test_a_recipe_that_is_not_known_is_marked(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    duck(capsys, "forget", *foreign, "--ids", "two.txt", "--out", "marked")
    record: Any = runs.read_record(Path("marked"))
    assert record["experiment"]["training"]["recipe_assumed"] is True
    assert "recipe_assumed" not in runs.read_record(Path("trained here"))["experiment"]["training"]
    toml = duck(capsys, "show", "marked", "--toml")[1]
    Path("marked.toml").write_text(toml)
    assert from_toml(Path("marked.toml")) == runs.load(Path("marked")).experiment
    for text in (
        toml,
        duck(capsys, "show", "marked")[1],
        render(Contents(read_runs([Path("marked")]))),
    ):
        assert "assumed" in text
    assert "assumed" not in duck(capsys, "show", "trained here")[1]


def test_an_audit_of_a_ruined_model_exits_with_1_and_keeps_its_verdict(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ruin = ["--method", "neg-grad", "--classes", "3", "--lr", "1", "--max-accuracy-loss", "0"]
    assert duck(capsys, "forget", *foreign, *ruin, "--out", "ruined")[0] == 1
    assert runs.load(Path("ruined")).status == "damaged"
    code, out = duck(
        capsys,
        "audit",
        "ruined",
        "--original",
        "trained here/model.safetensors",
        "--trust-model-code",
        "--json",
    )
    assert (code, json.loads(out)["verdict"]) == (1, "no verdict")


def test_the_headline_of_a_ruined_model_is_what_it_lost(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", verdict="no verdict")
    record = json.loads((folder / "run.json").read_text())
    kept = {
        "split": "retain_test",
        "original": 0.9,
        "unlearned": 0.3,
        "n": 360,
        "limit": 0.05,
        "damaged": True,
    }
    (folder / "run.json").write_text(json.dumps({**record, "kept_accuracy": kept}))
    (stored,) = read_runs([folder])
    assert (stored.state, stored.verdict) == ("damaged", "no verdict")
    html = render(Contents([stored]))
    loss, verdict = html.index("from 90.0 % to 30.0 %"), html.index("<li>No verdict.")
    assert html.index('<section class="card verdict state-damaged">') < loss < verdict
    two = render(Contents([stored, replace(stored, anchor="other")]))
    assert two.count('<section class="card verdict state-damaged">') == 3
