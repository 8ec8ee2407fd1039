"""A second request on the command line: from the run of the first, or from its weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from duck import cli
from duck import runs as runs_module
from duck.methods.base import METHODS, ForgetsBy, Kinds, clone
from duck.models.weights import load_weights
from duck.types import Task
from tests.cli.commands import Runner, write_images

QUICK = ["--data", "digits", "--epochs", "8", "--json"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An original, and the run that forgot class 3 of it."""
    folder = tmp_path_factory.mktemp("runs")
    assert cli.main(["train", *QUICK, "--out", str(folder / "original")]) == 0
    words = ["--classes", "3", "--out", str(folder / "first"), "--json"]
    assert cli.main(["forget", "--run", str(folder / "original"), *words]) == 0
    return folder


def test_a_chain_of_three_requests(runs: Path, tmp_path: Path, duck: Runner) -> None:
    second, third = tmp_path / "second", tmp_path / "third"
    printed = duck("forget --run", runs / "first", "--classes 5 --out", second)
    (earlier,) = printed["earlier"]
    assert earlier["request"] == "class 3"
    assert earlier["after"] <= 0.05
    assert earlier["state"] == "still forgotten"
    assert printed["scores"]["forget_test"] == 0
    assert printed["scores"]["aus"] > 0.9
    before = json.loads((runs / "first" / "run.json").read_text())
    record = json.loads((second / "run.json").read_text())
    assert (second / record["original_run"]).resolve() == (runs / "first").resolve()
    # Class 3 is neither retained nor scored.
    assert record["samples"]["forget"] + record["samples"]["retain"] == before["samples"]["retain"]
    assert record["samples"]["test"] == before["samples"]["retain_test"]
    assert record["earlier"] == printed["earlier"]
    assert [before["drift"]["requests"], record["drift"]["requests"]] == [1, 2]
    # What the original got right stays; the classes that are left become fewer.
    assert record["drift"]["correct_before"] == before["drift"]["correct_before"]
    assert 0 < record["drift"]["n"] < before["drift"]["n"]
    assert printed["drift"] == record["drift"]
    words = ["forget --run", second, "--classes 7 --out", third]
    printed = duck(words)
    assert [(one["request"], one["state"]) for one in printed["earlier"]] == [
        ("class 3", "still forgotten"),
        ("class 5", "still forgotten"),
    ]
    assert printed["scores"]["forget_test"] == 0
    assert (
        printed["forget_samples"] + runs_module.load(third).samples["retain"]
        == record["samples"]["retain"]
    )
    assert [
        one["request"]["classes"] for one in runs_module.read_record(third)["experiment"]["earlier"]
    ] == [[3], [5]]
    assert duck(words)["earlier"] == printed["earlier"]
    assert "forgotten earlier" in duck.run(words).out
    shown = duck.run("show", third).out
    assert "class 3" in shown
    assert "class 5" in shown
    message = duck("forget --run", third, "--classes 3 --out", tmp_path / "x", code=2)
    assert "forgot class 3 already" in message


def test_the_chain_is_in_the_experiment_and_leaves_other_ids_alone(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    out, file = tmp_path / "second", tmp_path / "experiment.toml"
    words = "--fraction 0.1 --method finetune --epochs 1 --max-accuracy-loss 1"
    duck("forget --run", runs / "first", words, "--out", out)
    assert "earlier" not in runs_module.read_record(runs / "first")["experiment"]
    file.write_text(duck.run("show --toml", out).out)
    again = ["forget --config", file, "--max-accuracy-loss 1 --out", tmp_path / "again"]
    duck(again, "--run", runs / "first")
    assert runs_module.read_record(out)["id"] == runs_module.read_record(tmp_path / "again")["id"]
    message = duck(again, "--run", runs / "original", "--overwrite", code=2)
    assert "follows earlier requests" in message


def test_an_earlier_class_that_is_remembered_again_is_reported_first_and_exits_1(
    runs: Path, tmp_path: Path, duck: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Recall:
        """A method that ends with the weights of the original, which knows all classes."""

        paper: ClassVar[str] = "none"
        scenarios: ClassVar[Kinds] = ("class",)
        needs_retain: ClassVar[bool] = False
        forgets_by: ClassVar[ForgetsBy] = "omission"

        def __call__(self, model: nn.Module, task: Task) -> nn.Module:
            recalled = clone(model)
            load_weights(recalled, runs / "original" / "model.safetensors")
            return recalled

    monkeypatch.setitem(METHODS._entries, "recall", Recall)
    out = tmp_path / "second"
    words = ["forget --run", runs / "first", "--classes 5 --method recall --out", out]
    printed = duck(words, code=1)
    assert printed["earlier"][0]["state"] == "remembered again"
    assert printed["earlier"][0]["after"] > 0.9
    assert "remembered again: class 3" in printed["notes"][0]
    out_text = duck.run(words, code=1).out
    assert out_text.startswith(printed["notes"][0])
    assert "remembered again" in duck.run("show", out).out
    # The next request does not bring it back: it is back, and is not called forgotten.
    words = ["forget --run", out, "--classes 7 --method recall --out", tmp_path / "third"]
    assert [one["state"] for one in duck(words, code=1)["earlier"]] == [
        "remembered again",
        "not forgotten",
    ]


def test_a_request_that_forgot_nothing_is_not_called_forgotten_later(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    weak = "--method finetune --lr 1e-6 --epochs 1"
    assert duck("forget --run", runs / "original", "--classes 3", weak, "--out", first, code=1)
    words = ["forget --run", first, "--classes 5 --method duck --out", second]
    printed = duck(words, code=1)
    assert (printed["status"], printed["earlier"][0]["state"]) == ("done", "not forgotten")


@pytest.mark.slow
def test_weights_that_forgot_something_are_noticed(
    runs: Path, tmp_path: Path, duck: Runner
) -> None:
    weights = runs / "first" / "model.safetensors"
    with safe_open(weights, "pt") as file:
        digest = file.metadata()["duck.request_digest"]
    assert digest == runs_module.read_record(runs / "first")["request_digest"]
    with safe_open(runs / "original" / "model.safetensors", "pt") as file:
        assert not file.metadata()
    words = ["forget --model convnet --weights", weights, "--data digits --classes 5"]
    message = duck(words, "--out", tmp_path / "x", code=2)
    assert f"--run {runs / 'first'}" in message
    assert "--ignore-earlier" in message
    assert digest in message
    assert not (tmp_path / "x").exists()
    printed = duck(words, "--ignore-earlier --out", tmp_path / "x", code=None)
    assert any(digest in note for note in printed["notes"])
    bare = tmp_path / "bare.safetensors"
    save_file(load_file(weights), bare)
    words[1] = bare
    printed = duck(words, "--out", tmp_path / "y", code=None)
    assert not any(digest in note for note in printed["notes"])


@pytest.mark.slow
def test_compare_and_audit_of_a_chain_start_from_the_earlier_run(
    runs: Path, workdir: Path, duck: Runner
) -> None:
    words = ["--run", runs / "first", "--classes 5 --methods original duck retrained --out all"]
    found = {row["method"]: row for row in duck("compare", words)}
    assert found["duck"]["scores"]["retain_test"] > 0.9
    earlier = {name: runs_module.read_record(Path("all") / name)["earlier"][0] for name in found}
    assert earlier["retrained"]["after"] == 0
    assert earlier["original"]["after"] == earlier["original"]["before"]
    audited = duck("audit all/duck --original", runs / "first", "--tier quick", code=3)
    assert "other data" not in str(audited)
    message = duck("audit all/duck --original", runs / "original", "--tier quick", code=2)
    assert "all/duck started from" in message
    assert "earlier requests" in duck("pool --run all/duck --models 2 --out pool", code=2)


BUILDER = """
from torch import nn
def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, num_classes))
"""


def test_a_second_request_to_a_model_from_elsewhere(workdir: Path, duck: Runner) -> None:
    write_images(workdir / "images", ("circle", "square", "star"))
    Path("home_made_nets.py").write_text(BUILDER)
    trained = "--epochs 15 --augment none --out mine"
    duck("train --data images --model home_made_nets:build", trained)
    foreign = "--model home_made_nets:build --weights mine/model.safetensors --data images"
    duck("forget", foreign, "--classes circle --out first")
    printed = duck("forget --run first --trust-model-code --classes square --out second")
    assert [(one["request"], one["samples"], one["after"]) for one in printed["earlier"]] == [
        ("class circle", 40, 0.0)
    ]
    # As in the first run, all images count as seen.
    assert printed["forget_samples"] == runs_module.load(Path("second")).samples["retain"] == 40
    foreign = foreign.replace("mine/", "first/")
    assert "--run first" in duck("forget", foreign, "--classes square --out third", code=2)
