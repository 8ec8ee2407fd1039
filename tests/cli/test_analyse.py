"""duck analyse and duck debias as a user runs them."""

import html
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from duck import cli
from duck.data import load
from tests.cli.commands import Runner, duck, split, train_digits, words_of

SMALL = ["--points", "60", "--json"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train_digits(folder / "original", 4)
    for method in ("duck", "retrained"):
        words = ["--run", folder / "original", "--classes 3 --json --out", folder / method]
        assert cli.main(words_of("forget", words, "--method", method)) == 0
    return folder


def test_a_run_with_its_original_and_retrained_model(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    printed = duck("analyse", runs / "duck", SMALL, "--shap 2 --png", tmp_path / "figures")
    assert json.loads((runs / "duck" / "analysis.json").read_text()) == printed
    assert list(printed["tsne"]) == ["original", "unlearned", "retrained"]
    assert list(printed["density"]) == ["original", "unlearned", "retrained"]
    assert printed["forgotten"] == [3]
    assert [image["label"] for image in printed["shap"]["images"]] == [3, 3]
    first = printed["shap"]["images"][0]["numbers"]
    assert first["original"]["probability"] > 0.9
    assert first["unlearned"]["probability"] < 0.5
    assert first["retrained"]["probability"] < 0.5
    figures = {path.name for path in (tmp_path / "figures").iterdir() if path.suffix == ".png"}
    assert figures == {"features.png", "density.png", "shap.png"}
    assert not list((runs / "duck").glob(".*"))


def test_the_models_are_not_mixed_up(runs: Path, tmp_path: Path, duck: Runner) -> None:
    printed = duck("analyse", runs / "duck", SMALL)
    for name in ("original", "retrained"):
        # Of bare weights nobody knows what they are.
        (tmp_path / name).mkdir()
        shutil.copy(runs / name / "model.safetensors", tmp_path / name)
    models = ["--original", tmp_path / "retrained", "--retrained", tmp_path / "original"]
    swapped = duck("analyse", runs / "duck", SMALL, models)
    assert swapped["density"]["original"] == printed["density"]["retrained"]
    assert swapped["density"]["retrained"] == printed["density"]["original"]
    assert swapped["density"]["unlearned"] == printed["density"]["unlearned"]
    assert printed["density"]["original"] != printed["density"]["unlearned"]


@pytest.mark.slow
def test_runs_that_are_called_alike_have_figures_of_their_own_and_broken_neighbours_do_no_harm(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    for name in ("a", "b"):
        shutil.copytree(runs / "duck", tmp_path / name / "duck")
    (tmp_path / "a" / "broken").mkdir()
    (tmp_path / "a" / "broken" / "run.json").write_text("{half")
    words = ["--original", runs / "original", "--png", tmp_path / "figures"]
    printed = duck("analyse", tmp_path / "a" / "duck", tmp_path / "b" / "duck", SMALL, words)
    assert len(printed["runs"]) == 2
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["a-duck", "b-duck"]


@pytest.mark.slow
def test_a_related_run_must_have_the_role_that_it_is_given(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    forget = ["forget", "--run", runs / "original", "--method retrained"]
    duck(forget, "--classes 5 --out", tmp_path / "other")
    duck(forget, "--fraction 0.1 --out", tmp_path / "tenth")

    def refused(*words: object) -> Any:
        return duck("analyse", runs / "duck", SMALL, words, code=2)

    assert "made by retrained" in refused("--original", runs / "retrained")
    assert "made by original" in refused("--retrained", runs / "original")
    assert "made by duck" in refused("--retrained", runs / "duck")
    for name in ("other", "tenth"):
        assert f"{name} is of another request" in refused("--retrained", tmp_path / name)
    duck("train --data digits --image-size 16 --epochs 1 --out", tmp_path / "larger")
    assert "made on other data" in refused("--original", tmp_path / "larger")
    models = ["--original", runs / "original", "--retrained", runs / "retrained"]
    duck("analyse", runs / "duck", SMALL, models)


def test_several_runs_give_tests_with_the_least_p(runs: Path, duck: Runner) -> None:
    printed = duck("analyse", runs / "duck", runs / "retrained", SMALL)
    assert len(printed["runs"]) == 2
    assert {test["n"] for test in printed["tests"]} <= {0, 1, 2}
    assert min(test["p"] for test in printed["tests"]) == 0.5
    out = duck.run("analyse", runs / "duck", runs / "retrained", "--points 60").out
    assert "no p below 0.5" in out
    assert "3 (forgotten)" in out
    assert "original 9 (" in out


def test_images_by_id(runs: Path, duck: Runner) -> None:
    images = duck("analyse", runs / "duck", SMALL, "--images 1 2")["shap"]["images"]
    assert [(image["id"], image["label"]) for image in images] == [("1", 1), ("2", 2)]
    assert [image["forgotten"] for image in images] == [False, False]
    assert "Not all of 1, x" in duck("analyse", runs / "duck", "--images 1 x", code=2)


def test_maps_of_a_forgotten_training_image_are_never_drawn(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    train = load("digits").train
    sample = train.ids[train.labels.numpy() == 3][0]
    words = ["--images", sample, "--png", tmp_path / "figures"]
    _, out, err = duck.run("analyse", runs / "duck", SMALL, words, "--json")
    assert [image["forgotten"] for image in json.loads(out)["shap"]["images"]] == [True]
    assert "forgotten training images" in " ".join(err.split())
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"features", "density"}
    duck("report", runs / "duck", "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"3 ({sample})" not in page
    assert "SHAP maps of 1 image" in page


def test_missing_originals_and_retrained_models_are_named_and_left_out(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    # A record names its original by the path from its folder.
    shutil.copytree(runs / "original", tmp_path / "original")
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("run.json", "model.safetensors"):
        (alone / name).write_bytes((runs / "duck" / name).read_bytes())
    assert list(duck("analyse", alone, SMALL)["tsne"]) == ["original", "unlearned"]
    message = " ".join(duck.run("analyse", alone, SMALL).err.split())
    assert "no retrained model was found" in message


def test_what_cannot_be_analysed(runs: Path, tmp_path: Path, duck: Runner) -> None:
    file = tmp_path / "other.npz"
    np.savez(file, images=np.zeros((90, 8, 8), np.uint8), labels=np.arange(90) % 3)
    for words, message in (
        ([runs / "original"], "original is an original model"),
        (["nowhere"], "nowhere is not a run"),
        ([runs / "duck", "--points 3"], "--points must be at least 8"),
        ([runs / "duck", "--dimensions 2.5"], "dimensions is a whole number"),
        ([runs / "duck", "--data", file], "the fingerprints differ"),
    ):
        assert message in duck("analyse", words, code=2)


def test_without_captum_the_error_comes_before_the_work(
    runs: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    for command, words in (("debias", "--data digits"), ("analyse", [runs / "duck", "--shap 2"])):
        printed = duck.run(command, words, code=2).err
        assert printed.startswith(f"duck {command}: ")
        assert printed.endswith("pip install 'duck-unlearning[explain]'\n")
        assert len(printed.splitlines()) == 1


def test_debias_on_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = split(
        "debias --true 7 --wrong 0 --epochs 8 --shap 6 --seed 2 --out {}", tmp_path / "bias"
    )
    printed = duck(capsys, *words, "--json")
    assert json.loads((tmp_path / "bias" / "bias.json").read_text()) == printed
    assert printed["predicted"]["biased"]["wrong"]["share"] >= 0.95
    assert printed["predicted"]["duck"]["right"]["share"] >= 0.95
    assert printed["shap"]["factor"]["duck"] >= 5
    assert (
        printed["true"],
        printed["wrong"],
        printed["seed"],
        printed["patch"],
        printed["shap"]["n"],
    ) == (
        "7",
        "0",
        2,
        4,
        6,
    )
    assert 20 < printed["count"] < 40
    assert printed["recipe"]["epochs"] == 8
    with np.load(tmp_path / "bias" / "shap.npz") as maps:
        assert {name: maps[name].shape for name in maps} == dict.fromkeys(
            ("biased", "duck", "corrected"), (6, 8, 8)
        )
    weights = [
        load_file(tmp_path / "bias" / f"{name}.safetensors")["head.weight"]
        for name in ("biased", "duck", "corrected")
    ]
    assert len({float(weight.sum()) for weight in weights}) == 3
    assert "exists: choose another --out" in duck(capsys, *words, code=2)


@pytest.mark.slow
def test_the_command_in_the_report_does_the_same_again(workdir: Path, duck: Runner) -> None:
    digits = load("digits")
    images, labels = next(digits.train.batches(1000)).images, digits.train.labels[:1000]
    pixels = (255 * (images - images.min()) / (images.max() - images.min())).byte()
    file = workdir / "the images.npz"
    np.savez(file, images=pixels.permute(0, 2, 3, 1).numpy(), labels=labels.numpy())
    recipe = "--epochs 3 --no-nesterov --schedule step --milestones 1 2 --lr 0.05"
    bias = "--true 1 --wrong 7 --patch 3 --colour 0 90 7 --seed 5 --shap 2 --preset paper"
    seen = "--mean 0.4 --std 0.3 --model convnet"
    first = duck("debias --data", file, recipe, bias, seen, "--out first")
    assert str(workdir) not in first["command"]
    assert duck("report first -o report.html")["removals"] == 1
    (shown,) = re.findall(
        r"<pre><code>(duck debias.*?)</code></pre>", Path("report.html").read_text(), re.DOTALL
    )
    assert cli.main(shlex.split(html.unescape(shown))[1:]) == 0
    again = json.loads(Path("again/bias.json").read_text())
    timed = {"seconds", "train_seconds", "created"}
    assert {name: value for name, value in again.items() if name not in timed} == {
        name: value for name, value in first.items() if name not in timed
    }
    assert first["recipe"]["milestones"] == [1, 2]
    assert first["method"]["target_class"] == 1
    assert first["shape"] == [1, 8, 8]


@pytest.mark.slow
def test_without_shap_no_maps_of_an_earlier_study_stay(tmp_path: Path, duck: Runner) -> None:
    out = tmp_path / "bias"
    duck("debias --epochs 1 --shap 2 --out", out)
    assert (out / "shap.npz").exists()
    duck("debias --epochs 1 --shap 0 --overwrite --out", out)
    assert not (out / "shap.npz").exists()


@pytest.mark.slow
def test_a_study_replaces_only_a_study(tmp_path: Path, duck: Runner) -> None:
    out = tmp_path / "bias"
    out.mkdir()
    (out / "duck.safetensors").write_text("a model of mine")
    words = ["debias --epochs 1 --shap 0 --overwrite --out", out]
    assert "not a bias removal" in duck(words, code=2)
    assert (out / "duck.safetensors").read_text() == "a model of mine"
    (out / "duck.safetensors").rename(out / "mine")
    (out / "bias.json").write_text("{}")
    duck(words)
    models = [f"{name}.safetensors" for name in ("biased", "corrected", "duck")]
    assert sorted(path.name for path in out.iterdir()) == ["bias.json", *models, "mine"]


@pytest.mark.slow
def test_debias_says_what_it_saw(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(split("debias --epochs 2 --shap 0 --count 20 --patch 3 --preset paper")) == 0
    out = capsys.readouterr().out
    assert out.startswith("digits, seed 0: 20 images of class 1 with a 3 x 3 square, labelled 9.")
    assert "14 unseen images" in out
    assert "A_f against the wrong label:" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--true 3 --wrong 3", "both are '3'"),
        ("--true x", "has no class 'x'"),
        ("--count 5000", "5000 of the"),
        ("--count 0", "0 of the"),
        ("--shap -3", "--shap is a number of images, 0 for none; got -3"),
        ("--patch 9", "does not fit images"),
        ("--colour 300", "values in 0..255"),
        ("--model resnet19", "Did you mean 'resnet18'?"),
    ],
)
def test_biases_that_cannot_be_planted(words: str, message: str, duck: Runner) -> None:
    assert message in duck("debias", words, code=2)
