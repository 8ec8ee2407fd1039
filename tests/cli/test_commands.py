"""The command as a user runs it: files in, JSON out, exit codes, and one line for an error."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from duck import cli, runs
from duck.cli import console
from duck.cli.parsing import given_values, read_flags
from duck.comparison import COLUMNS
from duck.data import load
from duck.methods import Duck
from duck.methods.presets import preset
from duck.types import Recipe
from tests.cli.commands import Runner, duck, split, train_digits, words_of, write_images

QUICK = ["--data", "digits", "--epochs", "3", "--json"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "original"
    train_digits(folder, 8)
    return folder


def test_train_stores_a_run_and_does_it_once(original: Path, duck: Runner) -> None:
    written = (original / "model.safetensors").stat().st_mtime_ns
    printed = duck("train --data digits --epochs 8 --out", original)
    assert printed["scores"]["test"] > 0.9
    assert printed["scores"]["train"] > printed["scores"]["test"] - 0.1
    assert (original / "model.safetensors").stat().st_mtime_ns == written
    record = json.loads((original / "run.json").read_text())
    assert record["experiment"]["training"]["recipe"]["epochs"] == 8
    assert sum(record["samples"][name] for name in ("train", "test", "holdout")) == 1797
    assert record["environment"]["packages"]["torch"] == torch.__version__
    assert sorted(path.name for path in original.parent.iterdir()) == [".artifacts", "original"]


def test_forget_a_class(original: Path, tmp_path: Path, duck: Runner) -> None:
    out = tmp_path / "forgot"
    printed = duck("forget --run", original, "--classes 3 --method duck --out", out)
    assert (printed["method"], printed["scenario"]) == ("duck", "class 3")
    assert printed["scores"]["forget_test"] == 0
    assert printed["scores"]["aus"] > 0.9
    assert printed["processed"] == printed["forget_samples"] > 100
    assert printed["run"] == str(out)
    assert set(printed["scores"]) == set(COLUMNS)
    changed = load_file(out / "model.safetensors")
    assert any(
        not torch.equal(value, changed[name])
        for name, value in load_file(original / "model.safetensors").items()
    )
    shown = duck("show", out)
    assert shown["scores"]["forget_test"] == 0
    assert shown["original"]["forget_test"] > 0.8
    assert shown["original_run"] == os.path.relpath(original, out)
    assert [epoch["phase"] for epoch in shown["history"]][-2:] == ["low-forget", "low-forget"]


def test_settings_of_the_method_are_flags_and_presets_fill_the_rest(
    original: Path, tmp_path: Path, duck: Runner
) -> None:
    out = tmp_path / "forgot"
    words = "--fraction 0.2 --seed 3 --method duck --batch-ratio 2 --low-epochs 1 --protocol paper"
    printed = duck("forget --run", original, words, "--out", out)
    assert printed["scores"]["forget_test"] is None
    assert printed["protocol"] == "paper"
    assert any("Protocol 'paper'" in note for note in printed["notes"])
    method = duck("show", out)["experiment"]["method"]
    settings = {"batch_ratio": 2, "low_epochs": 1, "lambda_retain": 1.4, "batch_size": 1024}
    assert {name: method[name] for name in settings} == settings


@pytest.mark.parametrize("method", ["", "--method scrub"])
def test_a_setting_of_another_method_is_refused_with_the_methods_that_have_it(
    method: str, duck: Runner
) -> None:
    words = ["forget", "--run", "x", "--classes", "3"]
    assert "of warm-restart:" in duck(words, method, "--shrink 0.5", code=2)
    assert ", duck-soft" in duck(words, method, "--lambda-retain 2", code=2)


class Stopped(Exception):
    """In the place of the work."""


def method_of(monkeypatch: pytest.MonkeyPatch, *parts: object) -> Any:
    """The method with which `duck forget` would begin."""
    found: list[Any] = []

    def unlearn(method: Any, *_: Any, **__: Any) -> None:
        found.append(method)
        raise Stopped

    monkeypatch.setattr("duck.commands.forget.unlearn", unlearn)
    cli.main(words_of("forget", *parts))
    return found[0]


@pytest.mark.parametrize(
    "words",
    [
        "--batch-size 256",
        "--batch_size=256",
        "--batch_size 256",
    ],
)
def test_a_flag_wins_also_where_it_asks_for_the_default_of_other_data(
    words: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a count of samples the preset of FineTuning has this value; for digits another."""
    request = ["--run", original, "--out", tmp_path / "forgot"]
    method = method_of(monkeypatch, request, "--classes 3 --method finetune", words)
    assert (method.batch_size, method.milestones) == (256, (6, 11))


@pytest.mark.parametrize("command", ["train", "debias"])
def test_recipe_flags_win_also_where_they_ask_for_the_default_of_other_data(
    command: str, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer than 20,000 images have a rate of 0.05 and no augmentation; a large folder differs."""
    recipes = []

    def train(*words: Any, **_: Any) -> None:
        recipes.append(words[3])
        raise Stopped

    monkeypatch.setattr("duck.commands.train.train", train)
    images, labels = np.zeros((40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez("few.npz", images=images, labels=labels, test_images=images, test_labels=labels)
    more = "--true 0 --wrong 1 --shap 0" if command == "debias" else ""
    for flags, expected in (
        ("", ("none", 0.05)),
        ("--augment crop-flip --lr=0.2", ("crop-flip", 0.2)),
    ):
        cli.main(words_of(command, "--data few.npz", more, flags))
        assert (recipes[-1].augment, recipes[-1].lr) == expected


def test_given_flags_are_those_that_stand_in_the_words() -> None:
    asked = Recipe(epochs=1, nesterov=False, milestones=(2,), lr=5.0)
    assert given_values(asked, []) == {}
    given = read_flags(["--epochs=1", "--no-nesterov", "--milestones", "2"])
    assert given_values(asked, given) == {"epochs": 1, "nesterov": False, "milestones": (2,)}
    assert given_values(Recipe(nesterov=True), ["--nesterov"]) == {"nesterov": True}
    given = read_flags(["--data", "epochs", "--lr-like", "1"])
    assert given_values(asked, given) == {}


def test_the_help_shows_the_preset_of_the_data(
    original: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in (["--run", original], "--data digits", "--data images"):
        with pytest.raises(SystemExit):
            cli.main(words_of("forget", source, "--classes 3 --method duck --help"))
        printed = " ".join(capsys.readouterr().out.split())
        assert "--lr FLOAT (default: 0.001)" in printed
        assert "--batch-size INT (default: 1024)" in printed
        assert "None)" not in printed


def test_a_method_in_place_of_that_of_a_config_has_its_own_preset(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    file = tmp_path / "experiment.toml"
    asked = 'request = { name = "classes", classes = [3] }\nmethod = { name = "duck", lr = 0.5 }\n'
    file.write_text(f'{asked}[training]\ndata = "digits"\nmodel = "convnet"\n')
    words = ["--run", original, "--out", tmp_path / "forgot", "--config", file]
    assert method_of(monkeypatch, words) == Duck(lr=0.5)
    other = method_of(monkeypatch, words, "--method scrub")
    assert other == preset("scrub", "digits", "class", 1472)
    assert other != preset("scrub", "digits", "samples", 1472)
    message = duck("forget", words, "--preset paper", code=2)
    assert "leave --preset and --presets out" in message


def test_a_file_of_presets_that_is_not_about_the_run_is_refused(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.toml"
    words = split("forget --run {} --method duck --presets {}", original, file)
    words += ["--out", str(tmp_path / "forgot")]
    for text, who, there in (
        ("[scrub.digits.tuned.class]\nlr = 0.1", ["--classes", "3"], "[scrub.digits.tuned.class]"),
        ("[duck.digits.tuned.class]\nlr = 0.1", ["--fraction", "0.1"], "[duck.digits.tuned.class]"),
        ("", ["--classes", "3"], "no such table"),
    ):
        file.write_text(text)
        kind = "class" if "--classes" in who else "samples"
        message = duck(capsys, *words, *who, code=2)
        assert f"[duck.digits.tuned.{kind}]" in message
        assert there in message
    table = "[duck.digits.tuned.class]\n"
    for text, problem in (
        (f"{table}lr = 0.1\nbatch_szie = 2", "Did you mean 'batch_size'?"),
        (f'{table}lr = "fast"', "lr is text"),
        ("[duck]\nlearning_rate = 0.1", "duck.learning_rate is a number"),
        ("lr = 0.1", "lr is a number"),
    ):
        file.write_text(text)
        message = duck(capsys, *words, "--classes", "3", code=2)
        assert f"{file}: " in message
        assert problem in message


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    original: Path, own: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    Path("file").touch()
    monkeypatch.setattr("duck.commands.forget.unlearn", None)
    monkeypatch.setattr("duck.commands.train.train", None)
    forget = ["forget", "--run", original, "--classes", "3"]
    for words in (forget, "train --data digits", "debias --data digits --shap 0"):
        message = duck(words, "--out file/new/x", code=2)
        assert "cannot be written: " in message
        assert f"{own / 'file'} is not a folder" in message
        assert "space" not in message
    assert "made in /proc" in duck(forget, "--out /proc/duck", code=2)
    assert not [path for path in own.rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_run_that_cannot_be_written_says_why(
    number: int, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    def save(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(runs, "save_weights", save)
    request = ["--run", original, "--out", tmp_path / "x"]
    message = duck("forget", request, "--classes 3 --method original", code=2)
    assert os.strerror(number) in message
    assert "choose another --out" in message


def test_an_experiment_as_toml_reruns_and_flags_take_precedence(
    original: Path, tmp_path: Path, duck: Runner
) -> None:
    file, first, again, other = (tmp_path / name for name in ("x.toml", "first", "again", "other"))
    forget = ["forget", "--run", original]
    words = "--classes 4 --seed 7 --method duck --batch-ratio 3 --protocol paper --out"
    scores = duck(forget, words, first)["scores"]
    file.write_text(duck.run("show --toml", first).out)
    assert duck(forget, "--config", file, "--out", again)["scores"] == scores
    ids = [json.loads((folder / "run.json").read_text())["id"] for folder in (first, again)]
    assert ids[0] == ids[1]
    changes = "--classes 5 --batch-ratio 2 --out"
    assert duck(forget, "--config", file, changes, other)["scenario"] == "class 5"
    changed = duck("show", other)["experiment"]
    assert changed["method"]["batch_ratio"] == 2
    assert (changed["seed"], changed["protocol"]) == (7, "paper")
    assert duck("train --config", file, "--out", original)["run"] == str(original)
    training = tmp_path / "training.toml"
    training.write_text(duck.run("show --toml", original).out)
    assert "it has no method" in duck(forget, "--config", training, code=2)
    file.write_text(file.read_text().replace("batch_ratio", "batch_ration"))
    message = duck(forget, "--config", file, code=2)
    assert "duck has no setting 'batch_ration'. Did you mean 'batch_ratio'?" in message


def test_ids_from_a_file(original: Path, tmp_path: Path, duck: Runner) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("1\n2\n5\n", encoding="utf-8-sig")  # as editors on Windows do
    words = ["--ids", ids, "--out", tmp_path / "forgot"]
    printed = duck("forget --run", original, "--method retrained", words)
    assert printed["forget_samples"] == printed["processed"] == 3
    assert any(note.startswith("AUS is imprecise") for note in printed["notes"])


def test_random_classes_are_forgotten_together(
    original: Path, tmp_path: Path, duck: Runner
) -> None:
    out = tmp_path / "two"
    words = "--random-classes 2 --method duck --seed 1 --out"
    row = duck("forget --run", original, words, out)
    assert row["scenario"] == "2 random classes"
    assert row["processed"] == row["forget_samples"] > 200
    assert row["scores"]["forget_test"] < 0.1
    request = json.loads((out / "run.json").read_text())["experiment"]["request"]
    assert request == {"name": "random-classes", "count": 2}


def test_forgetting_nothing_says_so_first_and_exits_1(
    original: Path, tmp_path: Path, duck: Runner
) -> None:
    words = ["forget", "--run", original, "--classes", "3", "--method", "original"]
    assert duck(words, "--out", tmp_path / "same", code=1)["processed"] == 0
    out = duck.run(words, "--out", tmp_path / "same", code=1).out
    assert out.startswith("Nothing was forgotten")
    assert "forgot class" not in out


def test_a_ruined_model_is_the_first_line_a_field_and_exit_1(
    original: Path, tmp_path: Path, duck: Runner
) -> None:
    words = ["forget", "--run", original, "--fraction", "0.1", "--method", "duck"]
    words += ["--stop", "accuracy", "--lr", "1e9", "--out"]
    ruined, accepted = tmp_path / "ruined", tmp_path / "accepted"
    printed = duck(words, ruined, code=1)
    kept = printed["kept_accuracy"]
    assert kept["original"] - kept["unlearned"] > kept["limit"] >= 0.05
    assert (printed["status"], kept["split"], kept["damaged"]) == ("damaged", "test", True)
    record = json.loads((ruined / "run.json").read_text(), parse_constant=pytest.fail)
    assert (record["status"], record["kept_accuracy"]) == ("damaged", kept)
    first = duck.run(words, ruined, code=1).out.splitlines()[0]
    assert f"{100 * kept['unlearned']:.1f} %" in first
    # The limit is no part of the run: a stored one is judged by another.
    assert duck(words, ruined, "--max-accuracy-loss 1")["status"] == "done"
    assert duck(words, accepted, "--max-accuracy-loss 1")["kept_accuracy"]["limit"] == 1
    strict = duck(words, accepted, "--max-accuracy-loss 0.05", code=1)
    limit = f"{100 * kept['limit']:.1f} points"
    assert strict["notes"][0] == printed["notes"][0].replace(limit, "5.0 points")
    assert "got 5.0" in duck(words, ruined, "--max-accuracy-loss 5", code=2)


def test_a_stored_run_is_judged_by_the_limit_that_is_given_now(
    original: Path, tmp_path: Path, duck: Runner
) -> None:
    """A limit holds for one command: without one the default holds."""
    out = tmp_path / "accepted"
    words = ["forget", "--run", original, "--out", out, *["--classes", "8", "--method", "neg-grad"]]
    words += ["--lr", "5"]
    assert duck(words, "--max-accuracy-loss 1")["status"] == "done"
    printed = duck(words, code=1)
    assert (printed["status"], printed["kept_accuracy"]["damaged"]) == ("damaged", True)
    assert printed["notes"][0] in duck.run("show", out).out.splitlines()
    shown = duck("show", out)
    for name in ("status", "kept_accuracy", "notes"):
        assert shown[name] == printed[name]
    duck.run("audit", out, code=None)
    assert printed["notes"][0] in json.loads((out / "audit-quick.json").read_text())["reasons"]
    assert runs.load(out).status == "damaged"
    assert duck(words, "--max-accuracy-loss 1")["status"] == "done"


@pytest.mark.slow
def test_another_head_is_another_run_and_is_checked_before_a_stored_one_is_shown(
    original: Path, tmp_path: Path, duck: Runner
) -> None:
    out, other, file = tmp_path / "run", tmp_path / "other", tmp_path / "experiment.toml"
    forget = ["forget", "--run", original]
    words = [*forget, "--classes", "3", "--method", "duck", "--out"]
    first = duck(words, out)
    assert "no module 'nosuch'" in duck(words, out, "--head nosuch", code=2)
    finetune = ["--classes", "3", "--method", "finetune", "--out", tmp_path / "x"]
    assert "nosuch" in duck(forget, finetune, "--head nosuch", code=2)
    # The head that the probe finds: the same run, the same id.
    assert duck(words, out, "--head head") == first
    inner = "features.9"
    assert "holds another run" in duck(words, out, "--head", inner, code=2)
    limit = "--max-accuracy-loss 1"
    duck(words, other, "--head", inner, limit, code=None)
    assert runs.load(other).experiment.head == inner
    assert "head" not in runs.read_record(out)["experiment"]
    file.write_text(duck.run("show --toml", other).out)
    duck(forget, "--config", file, limit, "--out", tmp_path / "again", code=None)
    assert runs.load(tmp_path / "again").experiment.id == runs.load(other).experiment.id
    second = ["--classes", "5", "--out", tmp_path / "second"]
    duck("forget --run", other, second, limit, code=None)
    assert runs.load(tmp_path / "second").experiment.head == inner


BUILDER = """
from torch import nn
def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, num_classes))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: class folders of images, a builder, weights."""
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "images", ("cat", "dog", "emu"))
    Path("my_nets.py").write_text(BUILDER)
    return tmp_path


def test_a_users_own_model_and_images(own: Path, duck: Runner) -> None:
    trained = "--model my_nets:build --epochs 15 --augment none --out runs/mine"
    assert duck("train --data images", trained)["scores"]["test"] > 0.9
    foreign = "--model my_nets:build --weights runs/mine/model.safetensors --data images"
    dogs = ["forget", *foreign.split(), "--classes", "dog", "--out"]
    printed = duck(dogs, "runs/forgot")
    # Nobody knows which images a model from elsewhere has not seen: all are training data.
    assert printed["forget_samples"] == 40
    assert printed["scores"]["aus"] is None
    assert any(note.startswith("No unseen data") for note in printed["notes"])
    own_pixels = "Pixels were normalised with mean"
    (note,) = (note for note in printed["notes"] if note.startswith(own_pixels))
    assert "Give --mean and --std" in note
    pixels = "--mean 0.5 0.5 0.5 --std 0.25 0.25 0.25"
    normalised = duck(dogs, "runs/half", pixels)
    assert not any(note.startswith(own_pixels) for note in normalised["notes"])
    assert printed["scores"]["forget"] <= 0.01
    assert printed["scores"]["retain"] > 0.9
    first = sorted(Path("images/emu").iterdir())[0]
    ids = own / "ids.txt"
    for text, message in (
        ("emu/no-such.png\n", "'emu/no-such.png'"),
        ("C:\\0001\n", "look like 'cat/0.png'"),
    ):
        ids.write_text(text)
        assert message in duck("forget", foreign, "--ids", ids, "--out runs/ids", code=2)
    assert first.exists()
    assert not Path("runs/ids").exists()


def test_a_record_names_neither_ids_nor_absolute_paths(
    own: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    mine, forgot = own / "runs" / "mine", own / "runs" / "forgot"
    train = "--model my_nets:build --epochs 1 --augment none --out"
    duck("train --data", own / "images", train, mine)
    ids = load(own / "images").train.ids[:20].tolist()
    (own / "ids.txt").write_text("\n".join(ids))
    words = "--ids ids.txt --method finetune --epochs 1 --trust-model-code --out runs/forgot"
    duck.run("forget --run", mine, words, code=None)
    for run in (mine, forgot):
        record = (run / "run.json").read_text()
        assert str(own) not in record
        assert not [name for name in ids if name in record]
    assert (forgot / "sample_ids.json").stat().st_mode & 0o777 == 0o600
    # Data and original are found from the folder of the run, also where all of it was moved.
    (own / "moved").mkdir()
    for name in ("runs", "images", "my_nets.py"):
        (own / name).rename(own / "moved" / name)
    (own / "elsewhere").mkdir()
    monkeypatch.chdir(own / "elsewhere")
    monkeypatch.syspath_prepend(own / "moved")
    moved = own / "moved" / "runs" / "forgot"
    assert duck.run("audit", moved, "--trust-model-code", code=None).code in (1, 3)


def test_lists(duck: Runner) -> None:
    methods = {row["name"]: row for row in duck("list methods")}
    assert {"original", "retrained", "duck"} <= set(methods)
    assert set(methods["duck"]) == {"name", "paper", "scenarios", "needs_retain"}
    kinds = {"requests": "classes", "datasets": "tiny-imagenet", "models": "resnet18"}
    for kind, name in kinds.items():
        rows = {row["name"]: row["about"] for row in duck("list", kind)}
        assert rows[name]
        assert all(rows.values())


def weights_that_run_code(folder: Path) -> Path:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {folder}/owned",)

    torch.save({"model": Evil()}, folder / "evil.pt")
    return folder / "evil.pt"


WRONG = {
    "trian": "no command 'trian'. Did you mean 'train'?",
    "forget --run RUN --classes 3 --method duckk": "No method 'duckk'. Did you mean 'duck'?",
    "train --data cifar11": "No data set 'cifar11'. Did you mean 'cifar10'?",
    "train --data digits --model resnet19": "No model 'resnet19'. Did you mean 'resnet18'?",
    "train --data cifar10 --root nowhere": "--download",
    "forget --run RUN --classes 10": "Class 10 is out of range: ",
    "forget --run RUN --classes 0 1 2 3 4 5 6 7 8 9": "All 10 classes",
    "forget --run RUN": "one of --classes, --fraction, --random-classes, --ids; given: none",
    "forget --run RUN --classes 1 --fraction 0.1": "given: --classes, --fraction",
    "forget --run RUN --fraction 0": "must lie between 0 and 1, got 0.0",
    "forget --run RUN --random-classes 10": "must lie between 1 and 9, got 10",
    "train --data digits --recipe-preset paper": "digits has no recipe 'paper'",
    "forget --run RUN --fraction 0.0001": "nothing to forget",
    "forget --run RUN --ids UNKNOWN": "not in the training data: 'x1'",
    "forget --run RUN --ids TWICE": "Duplicated ids: '2'",
    "forget --run nowhere --classes 1": "nowhere is not a run",
    "forget --data digits --classes 1": "Give the model as --run RUN",
    "forget --data digits --model convnet --classes 1": "also needs --weights",
    "forget --data digits --model allcnn --weights WEIGHTS --classes 1": "does not fit this model",
    "forget --data digits --model convnet --weights EVIL --classes 1": "run code",
    "train --data digits --lr 1e30 --epochs 2": "Lower the learning rate",
    "train --data digits --device cuda:99": "No device 'cuda:99' here",
    "forget --run RUN --classes 1 --head haed": "no module 'haed'",
    "train --data ONECLASS": "at least two",
    "train --data BROKEN": "2.png",
    "train --data PIPE": "3.png: it is not a regular",
    "train --data digits --momentum 0 --nesterov": "nesterov needs a momentum above 0",
    "train --data digits --weight-decay -1": "weight_decay must be 0 or more, got -1.0",
    "train --data digits --momentum -1": "momentum must be 0 or more, got -1.0",
    "train --data digits --momentum nan": "momentum must be a finite",
    "train --data digits --label-smoothing 2": "label_smoothing must be in [0, 1], got 2",
    "train --data digits --label-smoothing nan": "label_smoothing must be a finite number",
    "train --data digits --schedule step --gamma -1": "gamma must be 0 or more, got -1.0",
    "train --data digits --mean nan --std 1": "mean must be a finite",
    "train --data digits --image-size 100000000": "must be from 1 to 16384, got 100000000",
    "train --data digits --seed -1": "0 to 2^63 - 1, got -1",
    "forget --run RUN --classes 1 --seed 18446744073709551616": "from 0 to 2^63 - 1",
    "forget --run RUN --classes 1 --method duck --temperature -1": "must be 0 or more, got -1.0",
    "forget --run RUN --classes 1 --method duck --lambda-forget nan": "must be a finite number",
    "forget --run RUN --classes ²": "digits has no class '²'",
    "pool --data digits --share ²/2 --out pool": "--share is K/N",
    "train --config LATIN": "LATIN cannot be read as",
    "forget --run LATINRUN --classes 1": "run.json cannot be read",
    "forget --data digits --model convnet --weights NAN.safetensors --classes 1": "numbers (NaN)",
}
"""A command line, and a part of its message. Names in capitals are places that the test makes."""


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_one_message_exit_code_2_and_nothing_written(
    line: str, original: Path, own: Path, duck: Runner
) -> None:
    dogs, cats = own / "images" / "dog", own / "images" / "cat"
    places: dict[str, object] = {"RUN": original, "WEIGHTS": original / "model.safetensors"}
    (own / "UNKNOWN").write_text("x1\n")
    (own / "TWICE").write_text("2\n3\n2\n")
    (own / "LATIN").write_bytes(b"\xff\xfe[training]\n")
    (own / "LATINRUN").mkdir()
    (own / "LATINRUN" / "run.json").write_bytes(b"\xff\xfe{}")
    if "NAN" in line:
        weights = load_file(original / "model.safetensors")
        weights["head.weight"][0, 0] = float("nan")
        save_file(weights, own / "NAN.safetensors")
    if "PIPE" in line:
        places["PIPE"] = "images"
        (dogs / "3.png").unlink()
        os.mkfifo(dogs / "3.png")
    if "ONECLASS" in line:
        (own / "ONECLASS" / "cat").mkdir(parents=True)
        (cats / "1.png").rename(own / "ONECLASS" / "cat" / "1.png")
    if "BROKEN" in line:
        places["BROKEN"] = "images"
        (dogs / "2.png").write_bytes((dogs / "2.png").read_bytes()[:60])
    if "EVIL" in line:
        places["EVIL"] = weights_that_run_code(own)
    words = [places.get(word, word) for word in line.split()]
    out = own / "out"
    more = ["--out", out] if words[0] in ("train", "forget") else []
    err = duck.run(words, more, code=2).err
    last = [text for text in err.strip().splitlines() if text.startswith("duck")]
    assert len(last) == 1, err
    assert WRONG[line] in last[0]
    assert "Traceback" not in err
    assert not out.exists()
    assert not (own / "owned").exists()


def test_a_config_of_other_data_is_refused(original: Path, tmp_path: Path, duck: Runner) -> None:
    text = duck.run("show --toml", original).out
    config, out = tmp_path / "experiment.toml", tmp_path / "out"
    config.write_text(re.sub(r'fingerprint = "..', 'fingerprint = "zz', text))
    words = ["train", "--config", config, "--epochs", "1", "--out"]
    assert "data are not those" in duck(words, out, code=2)
    assert not out.exists()
    duck(words, out, "--data digits")  # other data, as the user asks
    config.write_text(text)
    duck(words, tmp_path / "same")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "--eopchs", "3"], "--epochs"),
        (["forget", "--clases", "3"], "--classes"),
        (["list", "methodz"], "methods"),
    ],
)
def test_unknown_flags_exit_with_2_and_a_hint(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--help"], ["train", "--help"], ["forget", "--method", "duck", "--help"], ["list", "--help"]],
)
def test_help_teaches(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "duck", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    wanted = {
        "--help": "duck demo",
        "train": "--batch-size",
        "forget": "--lambda-forget",
        "list": "methods",
    }[words[0]]
    assert wanted in done.stdout


def test_the_help_names_the_exit_codes() -> None:
    text = " ".join(cli._help().split())
    codes = text[text.index("Exit codes:") :]
    assert all(
        words in codes
        for words in ("accuracy lost", "earlier request is remembered", "130 interrupted")
    )


@pytest.mark.parametrize(
    "words",
    [["--help"], ["train", "--help"], ["list", "methods"], ["list", "methods", "--json"]],
)
def test_a_reader_that_stops_reading_is_no_error(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "duck", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode in (
        (1, 141) if "--help" in words[1:] else (141,)
    )  # 1: as Rich ends where it prints the help


@pytest.mark.slow
def test_a_log_that_nobody_reads_ends_no_work_and_changes_no_exit_code(tmp_path: Path) -> None:
    train = ["train", "--data", "digits", "--epochs", "1", "--out", str(tmp_path / "run")]
    for words, code in ((train, 0), (["show", str(tmp_path / "nowhere")], 2)):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "duck", *words],
            stdout=subprocess.DEVNULL,
            stderr=write,
            timeout=120,
            check=False,
        )
        os.close(write)
        assert done.returncode == code
    assert (tmp_path / "run" / "run.json").exists()


@pytest.mark.slow
def test_a_killed_training_resumes_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    def command(name: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "duck",
            "train",
            *QUICK,
            *split("--epochs 12 --out {}", tmp_path / name / "run"),
        ]

    subprocess.run(command("whole"), check=True, capture_output=True, timeout=120)
    with subprocess.Popen(
        command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("killed/.run-*.unfinished/checkpoint.pt")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "killed" / "run").exists()
    again = subprocess.run(
        command("killed"), check=True, capture_output=True, text=True, timeout=120
    )
    assert "Resuming from" in again.stderr
    whole, resumed = (
        load_file(tmp_path / name / "run" / "model.safetensors") for name in ("whole", "killed")
    )
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == [".artifacts", "run"]


@pytest.mark.slow
def test_ctrl_c_leaves_no_run(tmp_path: Path) -> None:
    words = ["train", *QUICK, "--epochs", "500", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [sys.executable, "-m", "duck", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".run-*.unfinished/checkpoint.pt")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "the last finished epoch" in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_the_demo_reaches_what_it_promises(demo: Path) -> None:
    rows = json.loads(demo.with_suffix(".json").read_text())
    scores = {Path(row["run"]).name: row["scores"] for row in rows}
    assert scores["class-original"]["test"] > 0.85
    assert scores["class-duck"]["forget_test"] == 0
    assert scores["class-assured"]["forget_test"] == 0
    assert scores["class-assured"]["retain_test"] > scores["class-retrained"]["retain_test"] - 0.03
    assert scores["quarter-original"]["forget"] > scores["quarter-retrained"]["forget"] + 0.03
    assert all(
        row["processed"] == row["forget_samples"] for row in rows if row["method"] != "original"
    )
    page = (demo / "report.html").read_text()
    assert page.count("<tr data-method=") == page.count('<details class="run"') == len(rows)
    assert page.count("Feature space: ") >= 1
    assert page.count("Density of") >= 1
    assert (demo / "class-duck" / "model.safetensors").exists()


def test_in_the_demo_duck_does_not_pass_and_the_assured_run_does(demo: Path) -> None:
    rows = json.loads(demo.with_suffix(".json").read_text())
    methods = {Path(row["run"]).name: row["method"] for row in rows}
    verdicts = {
        name: json.loads((demo / f"class-{name}" / "audit-oracle.json").read_text())["verdict"]
        for name in ("original", "retrained", "duck", "assured")
    }
    assert verdicts["original"] == "not forgotten"
    assert verdicts["retrained"] != "not forgotten"
    assert verdicts["duck"] != "forgotten"
    # Which method passes depends on the last digits; a retrained model needs no verdict.
    passed = {(name, "forgotten") for name in ("duck-soft", "warm-restart", "retrained")}
    found = methods["class-assured"], verdicts["assured"]
    assert found in passed | {("retrained", "no verdict")}


def _code(words: list[str]) -> object:
    try:
        return cli.main(words)
    except SystemExit as ended:  # of the flags' parser
        return ended.code


@pytest.mark.parametrize("command", ["tune", "pool", "audit", "show", "list"])
def test_a_command_without_its_required_words_names_its_help(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _code([command]) == 2
    assert f"duck {command} --help" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["forget", "compare", "analyse", "report", "bench"])
def test_a_command_without_words_says_what_it_needs(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _code([command]) == 2
    assert capsys.readouterr().err.startswith(f"duck {command}: ")


def test_a_flag_is_seen_before_the_flags_are_known() -> None:
    assert read_flags([]) == {}
    assert read_flags(["merge", "--data", "cifar10"]) == {"--data": "cifar10"}
    words = ["--seed", "1", "--image_size=8", "--data=a=b", "--json"]
    values = {"--seed": "1", "--image-size": "8", "--data": "a=b", "--json": ""}
    assert read_flags(words) == values


BRACKETS = ["[unknown]", "a [/b]", "runs[old]", "[red]x", ":cat:"]


def test_brackets_in_names_and_paths_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table([{"[class]": name} for name in BRACKETS])
    out = capsys.readouterr().out
    assert [line.strip() for line in out.splitlines()] == ["[class]", *BRACKETS]
    for name in BRACKETS:
        console.say(name)
    assert capsys.readouterr().err.splitlines() == BRACKETS


def test_brackets_in_titles_and_bars_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(
        console, "stderr", console._Console(file=shown, force_terminal=True, width=160)
    )
    for name in BRACKETS:
        with console.progress_bar(f"reading {name}") as progress:
            progress(1, 2)
        with console.training_progress(f"train {name}"):
            pass
    lines = [
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip()
        for line in shown.getvalue().replace("\r", "\n").splitlines()
    ]
    for name in BRACKETS:
        assert [line for line in lines if line.startswith(f"reading {name}")]
        assert f"train {name}" in lines
