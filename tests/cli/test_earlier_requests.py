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
from tests.cli.commands import duck, split, write_images

QUICK = ["--data", "digits", "--epochs", "8", "--json"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An original, and the run that forgot class 3 of it."""
    folder = tmp_path_factory.mktemp("runs")
    assert cli.main(["train", *QUICK, "--out", str(folder / "original")]) == 0
    words = ["--classes", "3", "--out", str(folder / "first"), "--json"]
    assert cli.main(["forget", "--run", str(folder / "original"), *words]) == 0
    return folder


def test_a_chain_of_three_requests(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second, third = tmp_path / "second", tmp_path / "third"
    printed = duck(
        capsys, *split("forget --run {} --classes 5 --out {} --json", runs / "first", second)
    )
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
    assert record["drift"]["right"] == before["drift"]["right"]
    assert 0 < record["drift"]["n"] < before["drift"]["n"]
    assert printed["drift"] == record["drift"]
    words = ["forget", "--run", str(second), "--classes", "7", "--out", str(third)]
    printed = duck(capsys, *words, "--json")
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
    assert duck(capsys, *words, "--json")["earlier"] == printed["earlier"]
    assert cli.main(words) == 0
    assert "forgotten earlier" in capsys.readouterr().out
    assert cli.main(["show", str(third)]) == 0
    shown = capsys.readouterr().out
    assert "class 3" in shown
    assert "class 5" in shown
    message = duck(
        capsys, *split("forget --run {} --classes 3 --out {}", third, tmp_path / "x"), code=2
    )
    assert "forgot class 3 already" in message


def test_the_chain_is_in_the_experiment_and_leaves_other_ids_alone(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "second", tmp_path / "experiment.toml"
    words = split("--fraction 0.1 --method finetune --epochs 1 --max-accuracy-loss 1")
    duck(capsys, "forget", "--run", str(runs / "first"), *words, "--out", str(out), "--json")
    assert "earlier" not in runs_module.read_record(runs / "first")["experiment"]
    assert cli.main(["show", str(out), "--toml"]) == 0
    file.write_text(capsys.readouterr().out)
    again = split("forget --config {} --max-accuracy-loss 1 --out {}", file, tmp_path / "again")
    duck(capsys, *again, "--run", str(runs / "first"), "--json")
    assert runs_module.read_record(out)["id"] == runs_module.read_record(tmp_path / "again")["id"]
    message = duck(capsys, *again, "--run", str(runs / "original"), "--overwrite", code=2)
    assert "follows earlier requests" in message


def test_an_earlier_class_that_is_known_again_is_reported_first_and_exits_1(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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
    words = split("forget --run {} --classes 5 --method recall --out {}", runs / "first", out)
    printed = duck(capsys, *words, "--json", code=1)
    assert printed["earlier"][0]["state"] == "known again"
    assert printed["earlier"][0]["after"] > 0.9
    assert printed["notes"][0].startswith("An earlier request came back: class 3")
    assert cli.main(words) == 1
    assert capsys.readouterr().out.startswith("An earlier request came back: class 3")
    assert cli.main(["show", str(out)]) == 0
    assert "known again" in capsys.readouterr().out
    # The next request does not bring it back: it is back, and is not called forgotten.
    words = split(
        "forget --run {} --classes 7 --method recall --out {} --json", out, tmp_path / "third"
    )
    assert [one["state"] for one in duck(capsys, *words, code=1)["earlier"]] == [
        "known again",
        "was never forgotten",
    ]


def test_a_request_that_forgot_nothing_is_not_called_forgotten_later(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    weak = ["--method", "finetune", "--lr", "1e-6", "--epochs", "1"]
    assert duck(
        capsys,
        *split("forget --run {} --classes 3", runs / "original"),
        *weak,
        "--out",
        str(first),
        "--json",
        code=1,
    )
    words = split("forget --run {} --classes 5 --method duck --out {} --json", first, second)
    printed = duck(capsys, *words, code=1)
    assert (printed["status"], printed["earlier"][0]["state"]) == ("done", "was never forgotten")


@pytest.mark.slow
def test_weights_that_forgot_something_are_noticed(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = runs / "first" / "model.safetensors"
    with safe_open(weights, "pt") as file:
        digest = file.metadata()["duck.request_digest"]
    assert digest == runs_module.read_record(runs / "first")["request_digest"]
    with safe_open(runs / "original" / "model.safetensors", "pt") as file:
        assert "duck.request_digest" not in (file.metadata() or {})
    words = split("forget --model convnet --weights {} --data digits --classes 5", weights)
    message = duck(capsys, *words, "--out", str(tmp_path / "x"), code=2)
    assert f"--run {runs / 'first'}" in message
    assert "--ignore-earlier" in message
    assert digest in message
    assert not (tmp_path / "x").exists()
    printed = duck(capsys, *words, "--ignore-earlier", "--out", str(tmp_path / "x"), "--json")
    assert any(digest in note for note in printed["notes"])
    bare = tmp_path / "bare.safetensors"
    save_file(load_file(weights), bare)
    words[words.index("--weights") + 1] = str(bare)
    assert not any(
        digest in note
        for note in duck(capsys, *words, "--out", str(tmp_path / "y"), "--json")["notes"]
    )


@pytest.mark.slow
def test_compare_and_audit_of_a_chain_start_from_the_earlier_run(
    runs: Path, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = split(
        "--run {} --classes 5 --methods original duck retrained --out all --json", runs / "first"
    )
    found = {row["method"]: row for row in duck(capsys, "compare", *words)}
    assert found["duck"]["scores"]["retain_test"] > 0.9
    earlier = {name: runs_module.read_record(Path("all") / name)["earlier"][0] for name in found}
    assert earlier["retrained"]["after"] == 0
    assert earlier["original"]["after"] == earlier["original"]["before"]
    audited = duck(
        capsys, *split("audit all/duck --original {} --tier quick --json", runs / "first"), code=3
    )
    assert "other data" not in str(audited)
    message = duck(
        capsys, *split("audit all/duck --original {} --tier quick", runs / "original"), code=2
    )
    assert "all/duck started from" in message
    assert "earlier requests" in duck(
        capsys, *split("pool --run all/duck --models 2 --out pool"), code=2
    )


BUILDER = """
from torch import nn
def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, num_classes))
"""


def test_a_second_request_to_a_model_from_elsewhere(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_images(workdir / "images", ("circle", "square", "star"))
    Path("home_made_nets.py").write_text(BUILDER)
    trained = ["--epochs", "15", "--augment", "none", "--out", "mine", "--json"]
    duck(capsys, "train", "--data", "images", "--model", "home_made_nets:build", *trained)
    foreign = split("--model home_made_nets:build --weights mine/model.safetensors --data images")
    duck(capsys, "forget", *foreign, "--classes", "circle", "--out", "first", "--json")
    printed = duck(
        capsys, *split("forget --run first --trust-model-code --classes square --out second --json")
    )
    assert [(one["request"], one["samples"], one["after"]) for one in printed["earlier"]] == [
        ("class circle", 40, 0.0)
    ]
    # As in the first run, all images count as seen.
    assert printed["forget_samples"] == runs_module.load(Path("second")).samples["retain"] == 40
    foreign[3] = "first/model.safetensors"
    assert "--run first" in duck(
        capsys, "forget", *foreign, *split("--classes square --out third"), code=2
    )
