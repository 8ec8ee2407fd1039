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
from tests.cli.commands import duck as run_json
from tests.cli.commands import split, train_digits


def duck(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return run_json(capsys, *words, "--json")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "original"
    train_digits(folder, 6)
    return str(folder)


def test_compare_reports_the_scores_and_gaps_of_each_method(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = split(
        "--run {} --fraction 0.1 --methods retrained duck boundary-shrink --out kept", original
    )
    found = {row["method"]: row for row in duck(capsys, "compare", *words)}
    assert list(found) == ["retrained", "duck", "boundary-shrink"]
    assert found["retrained"]["gaps"]["test"] == 0
    assert "can only forget whole classes" in found["boundary-shrink"]["error"]
    assert found["duck"]["processed"] == found["duck"]["forget_samples"]
    assert sorted(path.name for path in Path("kept").iterdir()) == ["duck", "retrained"]
    assert duck(capsys, "show", "kept/duck")["scores"]["aus"] == found["duck"]["scores"]["aus"]
    # The curves are those that `duck forget` stores.
    alone = ["--run", original, "--fraction", "0.1", "--method", "duck", "--out", "alone"]
    duck(capsys, "forget", *alone)
    curves = {
        folder: json.loads(Path(folder, "run.json").read_text())["history"]
        for folder in ("kept/duck", "kept/retrained", "alone")
    }
    assert curves["kept/duck"] == curves["alone"]
    assert [(epoch["phase"], epoch["epoch"]) for epoch in curves["kept/retrained"]] == [
        ("train", epoch) for epoch in range(1, 7)
    ]
    assert duck(capsys, "report", "kept", "-o", "report.html")["runs"] == 2
    assert Path("report.html").read_text().count("Accuracy during unlearning</strong>") == 2


TIMES = ("seconds", "prepare_seconds")


@pytest.mark.slow
def test_compare_prints_the_same_rows_with_several_workers(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run", original, "--classes", "3", "--device", "cpu", "--methods"]
    methods = ["retrained", "original", "duck", "neg-grad"]
    inline = duck(capsys, "compare", *words, *methods)
    engine = ["--engine", "processes", "--workers", "2", "--out", "stored"]
    parallel = duck(capsys, "compare", *words, *methods, *engine)
    for row in (*inline, *parallel):
        for name in TIMES:
            row.pop(name)
    assert [row["method"] for row in inline] == methods
    assert parallel == inline
    assert sorted(folder.name for folder in Path("stored").iterdir()) == sorted(methods)


@pytest.mark.parametrize("command", [["compare"], ["tune", "duck"]])
@pytest.mark.parametrize("flags", [["--engine", "inline", "--workers", "2"], ["--address", "auto"]])
def test_flags_of_an_engine_that_does_not_take_them_are_refused(
    command: list[str], flags: list[str]
) -> None:
    assert cli.main([*command, "--data", "digits", "--classes", "3", *flags]) == 2


def test_the_table_names_n_and_the_failures(
    original: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert (
        cli.main(
            split("compare --run {} --fraction 0.1 --methods original boundary-expand", original)
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith(
        "Forget 10 % of the samples of digits; n: forget 147, retain 1325, test 157"
    )
    assert "boundary-expand failed: BadInput" in out


def _diverged(self: NegGrad, model: nn.Module, task: Any) -> nn.Module:
    broken = clone(model)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    return broken


def test_a_model_that_diverged_is_named_first_and_leaves_valid_json(
    original: str,
    workdir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(NegGrad, "__call__", _diverged)
    words = ["compare", "--run", original, "--fraction", "0.1", "--methods"]
    found = duck(capsys, *words, "original", "neg-grad", "--out", "kept")
    assert [row["status"] for row in found] == ["nothing forgotten", "damaged"]
    record = json.loads(Path("kept/neg-grad/run.json").read_text(), parse_constant=pytest.fail)
    assert record["scores"]["forget_loss"] is None
    assert record["kept_accuracy"] == found[1]["kept_accuracy"]
    assert cli.main([*words, "neg-grad"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"neg-grad: {found[1]['notes'][0]}"
    assert sum(found[1]["notes"][0] in line for line in lines) == 1


def test_tune_writes_a_preset_that_forget_takes(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = duck(capsys, "tune", "neg-grad", "--run", original, "--classes", "3", "--budget", "3")
    assert len(printed["trials"]) == 3
    file = Path(printed["preset"])
    assert file == Path("neg-grad-digits-class.toml")
    assert (
        tomllib.loads(file.read_text())["neg-grad"]["digits"]["tuned"]["class"].items()
        >= printed["best"].items()
    )
    assert file.read_text().startswith(
        "# The best of 3 trials on the holdout of digits: class 3; seed 0, from the preset 'tuned'."
    )
    file.write_text("[neg-grad.digits.tuned.class]\nlr = 0.000123\n")
    words = split(
        "forget --run {} --classes 3 --method neg-grad --presets {} --out forgot", original, file
    )
    duck(capsys, *words)
    assert duck(capsys, "show", "forgot")["experiment"]["method"]["lr"] == 0.000123
    assert cli.main(["tune", "neg-grad", "--run", original, "--classes", "3", "--budget", "1"]) == 2
    assert "exists: choose another --out" in capsys.readouterr().err
    file.write_text("[neg-grad.digits.tuned.class]\nrate = 1\n")
    assert cli.main(words) == 2
    assert "NegGrad has no setting 'rate'" in capsys.readouterr().err


@pytest.mark.slow
def test_forget_runs_the_settings_that_tune_found_whatever_the_preset(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The search starts from `paper`; `tuned` of l1-sparse has another batch size and rate."""
    words = split("--run {} --classes 3 --budget 1 --start paper --out l1.toml", original)
    best = duck(capsys, "tune", "l1-sparse", *words)["trials"][0]
    for preset in ("paper", "tuned"):
        words = split(
            "--classes 3 --method l1-sparse --preset {} --presets l1.toml --out {}", preset, preset
        )
        assert cli.main(["forget", "--run", original, *words]) == 1  # so few steps forget nothing
        ran = duck(capsys, "show", preset)["experiment"]["method"]
        assert {name: ran[name] for name in best["settings"]} == best["settings"]
        assert (ran["batch_size"], ran["epochs"]) == (256, 10)


def test_tune_refuses_before_it_runs(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken.toml").touch()
    words = split("tune ssd --data digits --classes 3")  # no original: it would be trained first
    for more, message in (
        (["--out", "taken.toml"], "taken.toml exists"),
        (["--protocol", "paper"], "tune with --protocol holdout"),
        (["--each", "--draws", "2"], "needs --fraction; got 2"),
    ):
        assert cli.main([*words, *more]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()


def test_trials_before_an_interruption_are_stored(
    original: str,
    workdir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls = iter(range(9))
    monkeypatch.setattr(
        NegGrad, "__call__", lambda self, model, task: _interrupted() if next(calls) == 2 else model
    )
    assert (
        cli.main(["tune", "neg-grad", "--run", original, "--classes", "3", "--budget", "5"]) == 130
    )
    out, err = capsys.readouterr()
    assert "Interrupted after 2 of 5 trials" in err
    assert len([line for line in out.splitlines() if line.strip()[:1] in "01234"]) == 2
    assert Path("neg-grad-digits-class.toml").read_text().startswith("# The best of 2 trials")
    # Of a comparison, the table so far.
    calls = iter(range(2, 9))
    words = split(
        "compare --run {} --classes 3 --methods original neg-grad duck --out kept", original
    )
    assert cli.main(words) == 130
    out, err = capsys.readouterr()
    assert "Interrupted: 1 of 3 methods ended." in err
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["method", "original"]
    assert [path.name for path in Path("kept").iterdir()] == ["original"]


def _interrupted() -> None:
    raise KeyboardInterrupt


def test_a_comparison_refuses_a_place_that_is_taken_before_it_runs(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    duck(
        capsys,
        *split("compare --run {} --classes 3 --methods original --out kept", original),
    )
    assert (
        cli.main(split("compare --run {} --classes 4 --methods duck original --out kept", original))
        == 2
    )
    assert "kept/original holds another run" in "".join(capsys.readouterr().err.split("\n"))
    assert [path.name for path in Path("kept").iterdir()] == ["original"]


def test_a_comparison_in_which_everything_failed_fails(
    original: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = split("compare --run {} --fraction 0.1 --methods erm-ktp boundary-shrink", original)
    assert cli.main(words) == 1
    assert cli.main([*words, "--json"]) == 1
    capsys.readouterr()
    assert cli.main([*words[:-2], "original", "neg-grad", "ssd", "boundary-shrink"]) == 0
    out = capsys.readouterr().out
    assert "neg-grad, ssd: AUS is imprecise: only 147 forget samples" in out
    assert "original: " not in out


@pytest.mark.slow
def test_tune_takes_classes_one_at_a_time(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "neg-grad", "--run", original, "--budget", "1"]
    each = [*words, "--classes", "3", "8", "--each", "--device", "cpu", "--out"]
    both = duck(capsys, *each, "both.toml")["trials"][0]
    parallel = duck(capsys, *each, "parallel.toml", "--workers", "2")["trials"][0]
    assert {**parallel, "seconds": 0.0} == {**both, "seconds": 0.0}
    alone = [
        duck(capsys, *words, "--classes", name, "--out", f"{name}.toml")["trials"][0]
        for name in ("3", "8")
    ]
    assert both["score"] == pytest.approx((alone[0]["score"] + alone[1]["score"]) / 2)
    assert "classes 3, 8, each alone" in Path("both.toml").read_text()
    assert cli.main([*words, "--fraction", "0.1", "--each"]) == 2
    assert "--each takes the --classes" in capsys.readouterr().err
    assert cli.main([*words, "--classes", "3", "--draws", "2"]) == 2
    assert "--draws is a number of random fractions" in capsys.readouterr().err


def test_a_retraining_of_a_model_from_elsewhere_notes_that_its_recipe_is_a_guess(
    original: str,
    workdir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Retrained, "__call__", lambda self, model, task: _blank(task.new_model()))
    asked = ["--classes", "3", "--max-accuracy-loss", "1"]  # a blank model is worth nothing
    foreign = [
        "--model",
        "convnet",
        "--weights",
        f"{original}/model.safetensors",
        "--data",
        "digits",
        *asked,
    ]
    note = (
        "The original's recipe is not known: retrained with 30 epochs of sgd, batch size 64, "
        "learning rate 0.1 (one-cycle), augment none."
    )
    alone = duck(capsys, "forget", *foreign, "--method", "retrained", "--out", "alone")
    assert [one for one in alone["notes"] if one.startswith(note)]
    rows = duck(capsys, "compare", *foreign, "--methods", "original", "retrained", "--out", "kept")
    assert [row["method"] for row in rows if any(one.startswith(note) for one in row["notes"])] == [
        "retrained"
    ]
    assert duck(capsys, "show", "kept/retrained")["notes"] == duck(capsys, "show", "alone")["notes"]
    assert cli.main(["compare", *foreign, "--methods", "retrained"]) == 0
    assert f"retrained: {note} A gap to Retrained may come from that." in capsys.readouterr().out
    known = duck(capsys, "compare", "--run", original, *asked, "--methods", "retrained")
    assert not [one for one in known[0]["notes"] if "recipe" in one]


def _blank(model: nn.Module) -> nn.Module:
    """Says class 0 of everything."""
    for weight in model.parameters():
        nn.init.zeros_(weight)
    return model


@pytest.mark.slow
def test_what_tune_finds_is_never_worse_on_holdout_than_going_without_its_file(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first trial is what forget runs by default, to the last setting."""
    assert (
        cli.main(split("tune duck --run {} --classes 3 --budget 1 --out found.toml", original)) == 0
    )
    assert "Best: the preset 'tuned'" in capsys.readouterr().out
    ids = []
    for name, more in (("without", []), ("with", ["--presets", "found.toml"])):
        words = ["--run", original, "--classes", "3", "--method", "duck", *more, "--out", name]
        duck(capsys, "forget", *words)
        ids.append(json.loads(Path(name, "run.json").read_text())["id"])
    assert ids[0] == ids[1]


def test_tune_refuses_a_place_that_cannot_be_written(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    Path("folder").mkdir()
    words = ["tune", "ssd", "--data", "digits", "--classes", "3"]
    for more, message in (
        (["--out", "file/x.toml"], "is not a folder"),
        (["--out", "folder", "--overwrite"], "folder is a folder: name a file"),
    ):
        assert cli.main([*words, *more]) == 2
        assert message in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_file_of_presets_must_be_about_one_of_the_compared_methods(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("found.toml").write_text("[neg-grad.digits.tuned.class]\nlr = 0.000123\n")
    words = ["compare", "--run", original, "--classes", "3", "--presets", "found.toml", "--methods"]
    duck(capsys, *words, "original", "neg-grad", "--out", "kept")
    assert duck(capsys, "show", "kept/neg-grad")["experiment"]["method"]["lr"] == 0.000123
    assert cli.main([*words, "original", "ssd"]) == 2
    err = capsys.readouterr().err
    assert "[METHOD.digits.tuned.class]" in err
    assert "[neg-grad.digits.tuned.class]" in err


def test_compare_again_leaves_stored_runs_unchanged(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run", original, "--classes", "3", "--methods", "original", "ssd", "--out", "kept"]
    first = duck(capsys, "compare", *words)
    for name in ("audit-quick.json", "notes.txt"):
        Path("kept/original", name).write_text("{}")
    before = {path: path.stat().st_mtime_ns for path in Path("kept").rglob("*")}
    again = duck(capsys, "compare", *words)
    assert {path: path.stat().st_mtime_ns for path in Path("kept").rglob("*")} == before
    assert [row["scores"] for row in again] == [row["scores"] for row in first]
    capsys.readouterr()
    assert cli.main(["compare", *words]) == 0
    assert (
        "kept/original already holds this run, which stays; --overwrite replaces it."
        in " ".join(capsys.readouterr().err.split())
    )
    duck(capsys, "compare", *words, "--overwrite")
    assert sorted(path.name for path in Path("kept/original").iterdir()) == [
        "model.safetensors",
        "notes.txt",
        "run.json",
    ]


def test_two_commands_cannot_write_one_run(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget = ["forget", "--run", original, "--classes", "3"]
    with files.lock(Path("runs/one")):
        for words in (
            [*forget, "--out", "runs/one"],
            ["train", "--data", "digits", "--out", "runs/one"],
        ):
            assert cli.main(words) == 2
            assert "runs/one is in use" in " ".join(capsys.readouterr().err.split())
    with files.lock(Path("kept/ssd")):
        assert (
            cli.main(["compare", *forget[1:], "--methods", "ssd", "original", "--out", "kept"]) == 2
        )
        assert "kept/ssd is in use" in " ".join(capsys.readouterr().err.split())
    assert [path for path in workdir.rglob("*") if path.is_file()] == []


def test_tune_replaces_only_files_that_it_wrote(
    original: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = split("tune ssd --run {} --classes 3 --budget 1 --out x.toml --overwrite", original)
    Path("x.toml").write_text("[project]\n")
    assert cli.main(words) == 2
    assert "x.toml exists" in " ".join(capsys.readouterr().err.split())
    assert Path("x.toml").read_text() == "[project]\n"
    Path("x.toml").unlink()
    for _ in range(2):
        assert cli.main(words) == 0
