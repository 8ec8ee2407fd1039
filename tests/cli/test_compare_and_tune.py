"""duck compare and duck tune as a user runs them."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from duck import cli, files
from duck.methods import NegGrad, Retrained
from duck.methods.base import clone
from tests.cli.commands import Runner, train_digits


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "original"
    train_digits(folder, 6)
    return folder


def stored_method(duck: Runner, run: str) -> Any:
    return duck("show", run)["experiment"]["method"]


def test_compare_reports_the_scores_and_gaps_of_each_method(
    original: Path, workdir: Path, duck: Runner
) -> None:
    methods = "--methods retrained duck boundary-shrink --out kept"
    rows = duck("compare --run", original, "--fraction 0.1", methods)
    found = {row["method"]: row for row in rows}
    assert list(found) == ["retrained", "duck", "boundary-shrink"]
    assert found["retrained"]["gaps"]["test"] == 0
    assert "can only forget whole classes" in found["boundary-shrink"]["error"]
    assert found["duck"]["processed"] == found["duck"]["forget_samples"]
    assert sorted(path.name for path in Path("kept").iterdir()) == ["duck", "retrained"]
    assert duck("show kept/duck")["scores"]["aus"] == found["duck"]["scores"]["aus"]
    # The curves are those that `duck forget` stores.
    duck("forget --run", original, "--fraction 0.1 --method duck --out alone")
    curves = {
        folder: json.loads(Path(folder, "run.json").read_text())["history"]
        for folder in ("kept/duck", "kept/retrained", "alone")
    }
    assert curves["kept/duck"] == curves["alone"]
    assert [(epoch["phase"], epoch["epoch"]) for epoch in curves["kept/retrained"]] == [
        ("train", epoch) for epoch in range(1, 7)
    ]
    assert duck("report kept -o report.html")["runs"] == 2
    assert Path("report.html").read_text().count("Accuracy during unlearning</strong>") == 2


TIMES = ("seconds", "prepare_seconds")


@pytest.mark.slow
def test_compare_prints_the_same_rows_with_several_workers(
    original: Path, workdir: Path, duck: Runner
) -> None:
    methods = ["retrained", "original", "duck", "neg-grad"]
    words = ["--run", original, "--classes", "3", "--device", "cpu", "--methods", *methods]
    inline = duck("compare", words)
    parallel = duck("compare", words, "--engine processes --workers 2 --out stored")
    for row in (*inline, *parallel):
        for name in TIMES:
            row.pop(name)
    assert [row["method"] for row in inline] == methods
    assert parallel == inline
    assert sorted(folder.name for folder in Path("stored").iterdir()) == sorted(methods)


@pytest.mark.parametrize("command", ["compare", "tune duck"])
@pytest.mark.parametrize("flags", ["--engine inline --workers 2", "--address auto"])
def test_flags_of_an_engine_that_does_not_take_them_are_refused(
    command: str, flags: str, duck: Runner
) -> None:
    duck(command, "--data digits --classes 3", flags, code=2)


def test_the_table_names_n_and_the_failures(original: Path, duck: Runner) -> None:
    words = "--fraction 0.1 --methods original boundary-expand"
    out = duck.run("compare --run", original, words).out
    title, _, counts = out.splitlines()[0].partition("; ")
    assert title == "Forget 10 % of the samples of digits"
    assert counts.startswith("n: forget 147, retain 1325, test 157")
    assert "boundary-expand failed: BadInput" in out


def _diverged(self: NegGrad, model: nn.Module, task: Any) -> nn.Module:
    broken = clone(model)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    return broken


def test_a_model_that_diverged_is_named_first_and_leaves_valid_json(
    original: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    monkeypatch.setattr(NegGrad, "__call__", _diverged)
    words = ["compare", "--run", original, "--fraction", "0.1", "--methods"]
    found = duck(words, "original neg-grad --out kept")
    assert [row["status"] for row in found] == ["nothing forgotten", "damaged"]
    record = json.loads(Path("kept/neg-grad/run.json").read_text(), parse_constant=pytest.fail)
    assert record["scores"]["forget_loss"] is None
    assert record["kept_accuracy"] == found[1]["kept_accuracy"]
    lines = duck.run(words, "neg-grad", code=1).out.splitlines()
    assert lines[0] == f"neg-grad: {found[1]['notes'][0]}"
    assert sum(found[1]["notes"][0] in line for line in lines) == 1


def test_tune_writes_a_preset_for_forget(original: Path, workdir: Path, duck: Runner) -> None:
    tune = ["tune", "neg-grad", "--run", original, "--classes", "3", "--budget"]
    printed = duck(tune, "3")
    assert len(printed["trials"]) == 3
    file = Path(printed["preset"])
    assert file == Path("neg-grad-digits-class.toml")
    preset = tomllib.loads(file.read_text())["neg-grad"]["digits"]["tuned"]["class"]
    assert preset.items() >= printed["best"].items()
    comment = file.read_text().splitlines()[0]
    assert comment.startswith("# ")
    for part in ("best of 3 trials", "digits: class 3; seed 0, ", "the preset 'tuned'"):
        assert part in comment
    file.write_text("[neg-grad.digits.tuned.class]\nlr = 0.000123\n")
    forget = ["forget", "--run", original, "--classes", "3", "--method", "neg-grad"]
    forget += ["--presets", file, "--out", "forgot"]
    duck(forget)
    assert stored_method(duck, "forgot")["lr"] == 0.000123
    assert "exists: choose another --out" in duck(tune, "1", code=2)
    file.write_text("[neg-grad.digits.tuned.class]\nrate = 1\n")
    assert "neg-grad has no setting 'rate'" in duck(forget, code=2)


@pytest.mark.slow
def test_forget_runs_the_settings_that_tune_found_whatever_the_preset(
    original: Path, workdir: Path, duck: Runner
) -> None:
    """The search starts from `paper`; `tuned` of l1-sparse has another batch size and rate."""
    words = "--classes 3 --budget 1 --start paper --out l1.toml"
    best = duck("tune l1-sparse --run", original, words)["trials"][0]
    for preset in ("paper", "tuned"):
        words = f"--method l1-sparse --preset {preset} --presets l1.toml --out {preset}"
        duck("forget --run", original, "--classes 3", words, code=1)  # few steps forget nothing
        ran = stored_method(duck, preset)
        assert {name: ran[name] for name in best["settings"]} == best["settings"]
        assert (ran["batch_size"], ran["epochs"]) == (256, 10)


def test_tune_refuses_before_it_runs(workdir: Path, duck: Runner) -> None:
    Path("taken.toml").touch()
    Path("file").touch()
    Path("folder").mkdir()
    for more, message in (
        ("--out taken.toml", "taken.toml exists"),
        ("--out file/x.toml", "is not a folder"),
        ("--out folder --overwrite", "folder is a folder"),
        ("--protocol paper", "tune with --protocol holdout"),
        ("--each --draws 2", "needs --fraction; got 2"),
    ):
        # There is no original: it would be trained first.
        assert message in duck("tune ssd --data digits --classes 3", more, code=2)
    assert not Path("runs").exists()


def test_trials_before_an_interruption_are_stored(
    original: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    calls = iter(range(9))
    monkeypatch.setattr(
        NegGrad, "__call__", lambda self, model, task: _interrupted() if next(calls) == 2 else model
    )
    _, out, err = duck.run("tune neg-grad --run", original, "--classes 3 --budget 5", code=130)
    assert "Interrupted after 2 of 5 trials" in err
    assert len([line for line in out.splitlines() if line.strip()[:1] in "01234"]) == 2
    assert Path("neg-grad-digits-class.toml").read_text().startswith("# The best of 2 trials")
    # Of a comparison, the table so far.
    calls = iter(range(2, 9))
    words = "--classes 3 --methods original neg-grad duck --out kept"
    _, out, err = duck.run("compare --run", original, words, code=130)
    assert "Interrupted: 1 of 3 methods ended." in err
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["method", "original"]
    assert [path.name for path in Path("kept").iterdir()] == ["original"]


def test_a_search_in_which_every_trial_failed_writes_nothing(
    original: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    monkeypatch.setattr(NegGrad, "__call__", _failed)
    words = ["tune neg-grad --run", original, "--classes 3 --budget 2 --objective aus"]
    err = duck.run(words, code=1).err
    assert "Every trial failed" in err
    assert "no memory left" in err
    printed = duck(words, code=1)
    assert printed["preset"] is None
    assert printed["best"] is None
    assert not list(Path().glob("*.toml"))


def _failed(self: NegGrad, model: nn.Module, task: Any) -> nn.Module:
    raise RuntimeError("no memory left")


def _interrupted() -> None:
    raise KeyboardInterrupt


def test_a_comparison_refuses_a_place_that_is_taken_before_it_runs(
    original: Path, workdir: Path, duck: Runner
) -> None:
    duck("compare --run", original, "--classes 3 --methods original --out kept")
    words = "--classes 4 --methods duck original --out kept"
    assert "kept/original holds another run" in duck("compare --run", original, words, code=2)
    assert [path.name for path in Path("kept").iterdir()] == ["original"]


def test_a_comparison_in_which_everything_failed_fails(original: Path, duck: Runner) -> None:
    words = ["compare", "--run", original, "--fraction", "0.1", "--methods"]
    duck.run(words, "erm-ktp boundary-shrink", code=1)
    duck(words, "erm-ktp boundary-shrink", code=1)
    out = duck.run(words, "original neg-grad ssd boundary-shrink").out
    assert "neg-grad, ssd: AUS " in out
    assert "imprecise: only 147 forget samples" in out
    assert "original: " not in out


@pytest.mark.slow
def test_tune_takes_classes_one_at_a_time(original: Path, workdir: Path, duck: Runner) -> None:
    words = ["tune", "neg-grad", "--run", original, "--budget", "1"]
    each = "--classes 3 8 --each --device cpu"
    both = duck(words, each, "--out both.toml")["trials"][0]
    parallel = duck(words, each, "--out parallel.toml --workers 2")["trials"][0]
    assert {**parallel, "seconds": 0.0} == {**both, "seconds": 0.0}
    alone = [duck(words, f"--classes {name} --out {name}.toml")["trials"][0] for name in (3, 8)]
    assert both["score"] == pytest.approx((alone[0]["score"] + alone[1]["score"]) / 2)
    assert "classes 3, 8, each alone" in Path("both.toml").read_text()
    assert "--each takes the --classes" in duck(words, "--fraction 0.1 --each", code=2)
    message = duck(words, "--classes 3 --draws 2", code=2)
    assert "--draws is a number of random" in message


def test_a_retraining_of_a_model_from_elsewhere_notes_that_its_recipe_is_a_guess(
    original: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    monkeypatch.setattr(Retrained, "__call__", lambda self, model, task: _blank(task.new_model()))
    asked = "--classes 3 --max-accuracy-loss 1"  # a blank model is worth nothing
    weights = original / "model.safetensors"
    foreign = ["--model", "convnet", "--weights", weights, "--data", "digits"]
    note = "30 epochs of sgd, batch size 64, learning rate 0.1 (one-cycle), augment none."
    alone = duck("forget", foreign, asked, "--method retrained --out alone")
    assert [one for one in alone["notes"] if note in one]
    rows = duck("compare", foreign, asked, "--methods original retrained --out kept")
    noted = [row["method"] for row in rows if any(note in one for one in row["notes"])]
    assert noted == ["retrained"]
    assert duck("show kept/retrained")["notes"] == duck("show alone")["notes"]
    out = duck.run("compare", foreign, asked, "--methods retrained").out
    (line,) = (line for line in out.splitlines() if note in line)
    assert line.startswith("retrained: ")
    assert "gap to Retrained" in line
    known = duck("compare --run", original, asked, "--methods retrained")
    assert not [one for one in known[0]["notes"] if "recipe" in one]


def _blank(model: nn.Module) -> nn.Module:
    """Says class 0 of everything."""
    for weight in model.parameters():
        nn.init.zeros_(weight)
    return model


@pytest.mark.slow
def test_what_tune_finds_is_never_worse_on_holdout_than_going_without_its_file(
    original: Path, workdir: Path, duck: Runner
) -> None:
    """The first trial is what forget runs by default, to the last setting."""
    out = duck.run("tune duck --run", original, "--classes 3 --budget 1 --out found.toml").out
    assert "Best: the preset 'tuned'" in out
    ids = []
    for name, more in (("without", ""), ("with", "--presets found.toml")):
        duck("forget --run", original, "--classes 3 --method duck --out", name, more)
        ids.append(json.loads(Path(name, "run.json").read_text())["id"])
    assert ids[0] == ids[1]


@pytest.mark.slow
def test_a_file_of_presets_must_be_about_one_of_the_compared_methods(
    original: Path, workdir: Path, duck: Runner
) -> None:
    Path("found.toml").write_text("[neg-grad.digits.tuned.class]\nlr = 0.000123\n")
    words = [
        "compare",
        "--run",
        original,
        *["--classes", "3", "--presets", "found.toml", "--methods"],
    ]
    duck(words, "original neg-grad --out kept")
    assert stored_method(duck, "kept/neg-grad")["lr"] == 0.000123
    message = duck(words, "original ssd", code=2)
    assert "[METHOD.digits.tuned.class]" in message
    assert "[neg-grad.digits.tuned.class]" in message


def test_compare_again_leaves_stored_runs_unchanged(
    original: Path, workdir: Path, duck: Runner
) -> None:
    words = [
        "compare",
        "--run",
        original,
        *["--classes", "3", "--methods", "original", "ssd", "--out", "kept"],
    ]
    first = duck(words)
    for name in ("audit-quick.json", "notes.txt"):
        Path("kept/original", name).write_text("{}")
    before = {path: path.stat().st_mtime_ns for path in Path("kept").rglob("*")}
    again = duck(words)
    assert {path: path.stat().st_mtime_ns for path in Path("kept").rglob("*")} == before
    assert [row["scores"] for row in again] == [row["scores"] for row in first]
    message = " ".join(duck.run(words).err.split())
    assert "kept/original already holds this run" in message
    assert "--overwrite" in message
    duck(words, "--overwrite")
    left = sorted(path.name for path in Path("kept/original").iterdir())
    assert left == ["model.safetensors", "notes.txt", "run.json"]


def test_two_commands_cannot_write_one_run(original: Path, workdir: Path, duck: Runner) -> None:
    request = ["--run", original, "--classes", "3"]
    with files.lock(Path("runs/one")):
        for words in (["forget", *request], ["train", "--data", "digits"]):
            assert "runs/one is in use" in duck(words, "--out runs/one", code=2)
    with files.lock(Path("kept/ssd")):
        message = duck("compare", request, "--methods ssd original --out kept", code=2)
        assert "kept/ssd is in use" in message
    assert [path for path in workdir.rglob("*") if path.is_file()] == []


def test_tune_replaces_only_its_own_files(original: Path, workdir: Path, duck: Runner) -> None:
    words = ["tune", "ssd", "--run", original, "--classes", "3", "--budget", "1"]
    words += ["--out", "x.toml", "--overwrite"]
    Path("x.toml").write_text("[project]\n")
    assert "x.toml exists" in duck(words, code=2)
    assert Path("x.toml").read_text() == "[project]\n"
    Path("x.toml").unlink()
    for _ in range(2):
        assert cli.main([str(word) for word in words]) == 0
