"""What a command suggests next must work as it stands; what cannot be done is not suggested."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duck import cli, runs
from duck.audits.next_step import next_steps
from duck.audits.options import AuditOptions
from duck.experiment import from_toml
from duck.methods import METHODS
from duck.methods.presets import preset
from duck.report import Contents, read_runs, render
from duck.report.commands import suggested_audit
from tests.audits.test_next_step import PUSHED_AWAY
from tests.cli.commands import split, write_images
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


def follow(capsys: pytest.CaptureFixture[str], folder: str, *flags: str) -> list[str]:
    """Audit a run and execute every command that is suggested; return the commands."""
    audited = duck(capsys, "audit", folder, *flags, "--json")[1]
    return execute(capsys, json.loads(audited)["next_steps"])


def execute(capsys: pytest.CaptureFixture[str], steps: list[str]) -> list[str]:
    commands = re.findall("`duck ([^`]*)`", " ".join(steps))
    for command in commands:
        words, _, file = command.partition(" > ")
        code, out = duck(capsys, *shlex.split(words))
        assert code in (0, 1, 3), command
        if file:
            (name,) = shlex.split(file)
            Path(name).write_text(out)
    return commands


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
        Path("many.txt").write_text("\n".join(map(str, range(0, 400, 2))))
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
    assert not [step for step in json.loads(audited)["next_steps"] if "duck audit" in step]
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


OWN = ["--run", "trained here", "--trust-model-code"]
TRUST = "--trust-model-code"
WEAK = "--method finetune --epochs 1 --lr 1e-9"
KEPT_LIMITS = split("--margin 0.3 --max-advantage 0.2 --no-planted")


def forget(capsys: pytest.CaptureFixture[str], original: list[str], text: str) -> None:
    """Store a run; a method that forgets nothing ends with exit code 1."""
    assert duck(capsys, "forget", *original, *split(text))[0] in (0, 1)


def has(command: str, *words: str) -> bool:
    """Whether a command has these words, one after the other."""
    return f" {shlex.join(words)} " in f" {command} "


def test_every_step_after_a_model_that_did_not_forget_works_and_keeps_the_limits(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forget(capsys, OWN, "--classes 3 --method original --out own")
    _, restart, assured, _ = follow(capsys, "own", *KEPT_LIMITS, TRUST)
    assert has(restart, "--method", "warm-restart")
    assert has(assured, "--assure", "quick", *KEPT_LIMITS)
    assert json.loads(Path("own-assured/assurance.json").read_text())["passed"]
    assert runs.load(Path("own-retrained")).experiment.method == METHODS["retrained"]()
    # A second time the folders are there, and others are named.
    steps = json.loads(Path("own/audit-quick.json").read_text())["next_steps"]
    audited = duck(capsys, "audit", "own", TRUST, "--json")[1]
    again = json.loads(audited)["next_steps"]
    assert "own-retrained-2" in again[-1]
    assert "own-retrained-2" not in steps[-1]
    # Without a verdict, the next tier is suggested with the same limits, and never retraining.
    (oracle,) = follow(capsys, "own-retrained", *KEPT_LIMITS, TRUST)
    assert has(oracle, "--tier", "oracle", *KEPT_LIMITS)
    stored = json.loads(Path("own-retrained/audit-oracle.json").read_text())
    assert (stored["limits"]["margin"], stored["power"]["planted"]) == (0.3, {})
    shown = duck(capsys, "show", "own-retrained")[1]
    assert f"{stored['verdict']} within the margin 0.3, advantage 0.2." in shown
    more = [step for step in stored["next_steps"] if "--models 12" in step]
    assert len(more) == (stored["verdict"] != "forgotten")
    assert not [step for step in stored["next_steps"] if "duck forget" in step]


def test_every_step_after_a_model_from_elsewhere_works(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forget(capsys, foreign, "--classes 3 --method original --out elsewhere")
    _, finetune, retrained = follow(capsys, "elsewhere", TRUST)
    assert has(finetune, "--method", "finetune")
    assert has(retrained, "--method", "retrained")
    assert runs.load(Path("elsewhere-retrained")).experiment.training.weights
    # Moved weights, and a run whose own record does not find them.
    Path("moved").mkdir()
    moved = Path("moved/mine.safetensors")
    shutil.copy("trained here/model.safetensors", moved)
    away = [*foreign[:3], str(moved), *foreign[4:]]
    forget(capsys, away, f"--classes 3 {WEAK} --out moved/run")
    forget(capsys, away, "--classes 3 --method retrained --out moved/new")
    moved = moved.rename("mine.safetensors")
    assert duck(capsys, "audit", "moved/run", TRUST)[0] == 2
    named = ("--original", str(moved))
    _, retrained = follow(capsys, "moved/run", *named, TRUST)
    assert has(retrained, "--weights", str(moved))
    (oracle,) = follow(capsys, "moved/new", *named, TRUST)
    assert has(oracle, *named)
    assert has(oracle, "--default-recipe")


def test_every_step_after_a_second_request_works(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forget(capsys, OWN, "--classes 3 --method finetune --epochs 2 --out first")
    second = ["--run", "first", TRUST]
    forget(capsys, second, f"--classes 5 {WEAK} --out second")
    _, restart, *_ = follow(capsys, "second", TRUST)
    assert has(restart, "--run", "first")
    assert runs.load(Path("second-retrained")).experiment.earlier
    # Models of a pool cannot follow an earlier request.
    words = split("--tier oracle --models 3 --no-planted")
    audited = duck(capsys, "audit", "second-retrained", *words, TRUST, "--json")[1]
    (step,) = json.loads(audited)["next_steps"]
    assert "--tier full" not in step


def test_own_images_and_their_normalisation_are_named_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(Path("my images/train"), ("cat", "dog"), 60)
    for image in sorted(Path("my images/train").glob("*/[1-2]?.png")):
        place = Path("my images/test") / image.parent.name
        place.mkdir(parents=True, exist_ok=True)
        image.rename(place / image.name)
    pixels = split("--image-size 8 --mean 0.4 0.4 0.4 --std 0.2 0.2 0.2")
    data = ["--data", "my images", *pixels]
    train = ["train", *data, *split("--model convnet --epochs 2 --out elsewhere/original")]
    assert duck(capsys, *train)[0] == 0
    weights = "elsewhere/original/model.safetensors"
    words = ["--model", "convnet", "--weights", weights, *data, *split(WEAK)]
    assert duck(capsys, "forget", *words, "--classes", "dog", "--out", "runs/weak")[0] in (0, 1)
    _, retrained = follow(capsys, "runs/weak")
    assert has(retrained, "--data", "my images", *pixels)


def test_own_retrained_weights_are_kept_and_no_others_are_trained(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forget(capsys, foreign, "--classes 3 --method retrained --out exact")
    given = ["other/model.safetensors"]
    forget(capsys, foreign, "--classes 3 --method retrained --seed 1 --out other")
    words = ["--tier", "oracle", "--models", "1", "--retrained", *given, TRUST]
    audited = json.loads(duck(capsys, "audit", "exact", *words, "--json")[1])
    assert audited["power"] is None
    (step,) = audited["next_steps"]
    assert "`" not in step
    assert "--retrained" in step


def test_every_step_after_one_sample_works(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forget(capsys, OWN, "--ids one.txt --method original --out single")
    _, assured, retrained = follow(capsys, "single", "--tier", "oracle", TRUST)
    assert has(assured, "--assure", "quick")
    assert has(retrained, "--method", "retrained")
    (page,) = follow(capsys, "single-retrained", TRUST)
    assert page.startswith("report ")
    # Without the recipe nothing is assured.
    forget(capsys, foreign, "--ids one.txt --method original --out single-away")
    _, retrained = follow(capsys, "single-away", TRUST)
    assert has(retrained, "--method", "retrained")


def test_every_step_after_an_assured_run_works(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    request = ["forget", *OWN, "--classes", "3", "--method", "finetune", "--out", "assured"]
    assert duck(capsys, *request, *split("--assure quick --max-advantage 0.2"))[0] == 0
    steps = json.loads(Path("assured/audit-quick.json").read_text())["next_steps"]
    (oracle,) = execute(capsys, steps)
    assert has(oracle, "--tier", "oracle", "--max-advantage", "0.2")


def test_an_original_whose_run_is_gone_is_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        duck(capsys, *split("train --data digits --model convnet --epochs 2 --out first"))[0] == 0
    )
    forget(capsys, ["--run", "first"], f"--classes 3 {WEAK} --out kept")
    shutil.rmtree("first")
    commands = follow(capsys, "kept")
    assert [command.split()[0] for command in commands[:3]] == ["show", "train", "forget"]
    assert runs.is_run(Path("kept-original"))


def test_what_was_pushed_too_far_is_repeated_with_less(
    foreign: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forget(capsys, OWN, "--fraction 0.1 --method duck --preset paper --out far")
    tuned: Any = preset("duck", "digits", "samples")
    lower = replace(tuned, lr=tuned.lr / 2)
    for folder, flags, method in (
        (Path("far"), ["--method", "duck", "--preset", "tuned"], tuned),
        (Path("far-softer"), ["--lr", f"{lower.lr:g}"], replace(lower, lr=float(f"{lower.lr:g}"))),
    ):
        run = runs.load(folder)
        steps = next_steps(run, folder, PUSHED_AWAY, AuditOptions(), Path("trained here"))
        _, softer, *_ = execute(capsys, list(steps))
        assert has(softer, *flags)
        (place,) = shlex.split(softer)[-1:]
        assert runs.load(Path(place)).experiment.method == method
