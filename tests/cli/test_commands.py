"""The command as a user runs it: files in, JSON out, exit codes, and one line for what went wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from duck import cli
from duck.cli.inputs import peek

QUICK = ["--data", "digits", "--epochs", "3", "--json"]


def duck(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """Run the command, check its exit code, and return what it printed as JSON or, after an error, its message."""
    capsys.readouterr()
    got = cli.main(list(words))
    out, err = capsys.readouterr()
    assert got == code, err
    return json.loads(out) if code in (0, 1) else err


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "original"
    assert cli.main(["train", *QUICK, "--epochs", "8", "--out", str(folder)]) == 0
    return folder


def test_train_stores_a_run_and_does_it_once(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = (original / "model.safetensors").stat().st_mtime_ns
    told = duck(capsys, "train", *QUICK, "--epochs", "8", "--out", str(original))
    assert told["scores"]["test"] > 0.9
    assert told["scores"]["train"] > told["scores"]["test"] - 0.1
    assert (original / "model.safetensors").stat().st_mtime_ns == written
    record = json.loads((original / "run.json").read_text())
    assert record["experiment"]["training"]["recipe"]["epochs"] == 8
    assert record["samples"]["train"] + record["samples"]["test"] + record["samples"]["holdout"] == 1797
    assert record["environment"]["packages"]["torch"] == torch.__version__
    assert [path.name for path in original.parent.iterdir()] == ["original"]


def test_forget_a_class(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "forgot"
    told = duck(capsys, "forget", "--run", str(original), "--classes", "3", "--out", str(out), "--json")
    assert told["method"] == "duck"
    assert told["scenario"] == "class 3"
    assert told["scores"]["forget_test"] == 0
    assert told["scores"]["aus"] > 0.9
    assert told["processed"] == told["forget_samples"] > 100
    assert told["run"] == str(out)
    assert set(told["scores"]) == {"aus", "forget", "retain", "test", "forget_test", "retain_test"}
    changed = load_file(out / "model.safetensors")
    assert any(not torch.equal(value, changed[name]) for name, value in load_file(original / "model.safetensors").items())
    shown = duck(capsys, "show", str(out), "--json")
    assert shown["scores"]["forget_test"] == 0
    assert shown["original"]["forget_test"] > 0.8
    assert shown["original_run"] == str(original)
    assert [epoch["phase"] for epoch in shown["history"]][-2:] == ["low-forget", "low-forget"]


def test_settings_of_the_method_are_flags_and_presets_fill_the_rest(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "forgot"
    words = ["--fraction", "0.2", "--seed", "3", "--batch-ratio", "2", "--low-epochs", "1", "--protocol", "paper"]
    told = duck(capsys, "forget", "--run", str(original), *words, "--out", str(out), "--json")
    assert told["scores"]["forget_test"] is None
    assert told["protocol"] == "paper"
    assert any("Protocol 'paper'" in note for note in told["notes"])
    method = duck(capsys, "show", str(out), "--json")["experiment"]["method"]
    assert (method["batch_ratio"], method["low_epochs"], method["lambda_retain"], method["batch_size"]) == (2, 1, 1.4, 64)


def test_an_experiment_as_toml_runs_again_and_flags_go_on_top(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "experiment.toml"
    words = ["--classes", "4", "--seed", "7", "--batch-ratio", "3", "--protocol", "paper", "--out", str(tmp_path / "first")]
    first = duck(capsys, "forget", "--run", str(original), *words, "--json")
    assert cli.main(["show", str(tmp_path / "first"), "--toml"]) == 0
    file.write_text(capsys.readouterr().out)
    again = duck(capsys, "forget", "--run", str(original), "--config", str(file), "--out", str(tmp_path / "again"), "--json")
    assert again["scores"] == first["scores"]
    ids = [json.loads((tmp_path / name / "run.json").read_text())["id"] for name in ("first", "again")]
    assert ids[0] == ids[1]
    words = ["--config", str(file), "--classes", "5", "--batch-ratio", "2", "--out", str(tmp_path / "other"), "--json"]
    assert duck(capsys, "forget", "--run", str(original), *words)["scenario"] == "class 5"
    changed = duck(capsys, "show", str(tmp_path / "other"), "--json")["experiment"]
    assert (changed["method"]["batch_ratio"], changed["seed"], changed["protocol"]) == (2, 7, "paper")
    same = duck(capsys, "train", "--config", str(file), "--out", str(original), "--json")
    assert same["run"] == str(original)
    file.write_text(file.read_text().replace("batch_ratio", "batch_ration"))
    err = duck(capsys, "forget", "--run", str(original), "--config", str(file), code=2)
    assert "Duck has no setting 'batch_ration'. Did you mean 'batch_ratio'?" in err


def test_ids_from_a_file(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ids.txt").write_text("1\n2\n5\n")
    words = ["--ids", str(tmp_path / "ids.txt"), "--method", "retrained", "--out", str(tmp_path / "forgot"), "--json"]
    told = duck(capsys, "forget", "--run", str(original), *words)
    assert told["forget_samples"] == told["processed"] == 3
    assert any(note.startswith("n too small") for note in told["notes"])


def test_forgetting_nothing_says_so_first_and_exits_1(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["forget", "--run", str(original), "--classes", "3", "--method", "original", "--out", str(tmp_path / "same")]
    told = duck(capsys, *words, "--json", code=1)
    assert told["processed"] == 0
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert out.startswith("Nothing was forgotten")
    assert "forgot class" not in out


BUILDER = """
from torch import nn
def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, num_classes))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: class folders of images, a builder, weights."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for label, name in enumerate(("cat", "dog", "emu")):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for index in range(40):
            pixels = rng.integers(0, 90, (8, 8, 3), dtype=np.uint8)
            pixels[..., label] += 120
            Image.fromarray(pixels).save(folder / f"{index}.png")
    Path("my_nets.py").write_text(BUILDER)
    return tmp_path


def test_a_users_own_model_and_images(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = [
        "train",
        "--data",
        "images",
        "--model",
        "my_nets:build",
        "--epochs",
        "15",
        "--augment",
        "none",
        "--out",
        "runs/mine",
        "--json",
    ]
    assert duck(capsys, *trained)["scores"]["test"] > 0.9
    foreign = ["--model", "my_nets:build", "--weights", "runs/mine/model.safetensors", "--data", "images"]
    told = duck(capsys, "forget", *foreign, "--classes", "dog", "--out", "runs/forgot", "--json")
    # Nobody knows which images a model from elsewhere has not seen: all are training data.
    assert told["forget_samples"] == 40
    assert told["scores"]["aus"] is None
    assert told["notes"][0].startswith("No unseen data")
    assert told["scores"]["forget"] <= 0.01
    assert told["scores"]["retain"] > 0.9
    first = sorted(Path("images/emu").iterdir())[0]
    ids = own / "ids.txt"
    ids.write_text("emu/no-such.png\n")
    message = duck(capsys, "forget", *foreign, "--ids", str(ids), "--out", "runs/ids", code=2)
    assert "'emu/no-such.png'" in message
    assert first.exists()
    assert not Path("runs/ids").exists()


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    methods = {row["name"]: row for row in duck(capsys, "list", "methods", "--json")}
    assert {"original", "retrained", "duck"} <= set(methods)
    assert set(methods["duck"]) == {"name", "paper", "scenarios", "needs_retain"}
    for kind, name in (("scenarios", "classes"), ("datasets", "tiny-imagenet"), ("models", "resnet18")):
        rows = {row["name"]: row["about"] for row in duck(capsys, "list", kind, "--json")}
        assert rows[name]
        assert all(rows.values())


def weights_that_run_code(folder: Path) -> Path:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {folder}/owned",)

    torch.save({"model": Evil()}, folder / "evil.pt")
    return folder / "evil.pt"


WRONG: dict[str, tuple[list[str], str]] = {
    "command": (["trian"], "no command 'trian'. Did you mean 'train'?"),
    "method": (["forget", "--run", "RUN", "--classes", "3", "--method", "duckk"], "No method 'duckk'. Did you mean 'duck'?"),
    "data set": (["train", "--data", "cifar11"], "No data set 'cifar11'. Did you mean 'cifar10'?"),
    "model": (["train", "--data", "digits", "--model", "resnet19"], "No model 'resnet19'. Did you mean 'resnet18'?"),
    "missing data": (["train", "--data", "cifar10", "--root", "nowhere"], "--download"),
    "class out of range": (["forget", "--run", "RUN", "--classes", "10"], "Class 10 is out of range: digits has classes 0 to 9"),
    "every class": (["forget", "--run", "RUN", "--classes", *map(str, range(10))], "All 10 classes"),
    "nobody": (["forget", "--run", "RUN"], "one of --classes, --fraction and --ids; given: none"),
    "two requests": (["forget", "--run", "RUN", "--classes", "1", "--fraction", "0.1"], "given: --classes, --fraction"),
    "empty forget set": (["forget", "--run", "RUN", "--fraction", "0.0001"], "nothing to forget"),
    "unknown ids": (["forget", "--run", "RUN", "--ids", "UNKNOWN"], "not in the training data: 'x1'"),
    "duplicated ids": (["forget", "--run", "RUN", "--ids", "TWICE"], "Duplicated ids: '2'"),
    "no run": (["forget", "--run", "nowhere", "--classes", "1"], "nowhere is not a run"),
    "no model": (["forget", "--data", "digits", "--classes", "1"], "Give the model as --run RUN"),
    "no weights": (["forget", "--data", "digits", "--model", "convnet", "--classes", "1"], "also needs --weights"),
    "weights of another model": (
        ["forget", "--data", "digits", "--model", "allcnn", "--weights", "RUN/model.safetensors", "--classes", "1"],
        "does not fit this model",
    ),
    "weights that run code": (["forget", "--data", "digits", "--model", "convnet", "--weights", "EVIL", "--classes", "1"], "run code"),
    "a rate too high": (["train", "--data", "digits", "--lr", "1e30", "--epochs", "2"], "Lower the learning rate"),
    "device": (["train", "--data", "digits", "--device", "cuda:99"], "No device 'cuda:99' here"),
    "head": (["forget", "--run", "RUN", "--classes", "1", "--head", "haed"], "no module 'haed' to be its head"),
    "one class": (["train", "--data", "ONECLASS"], "at least two"),
    "broken image": (["train", "--data", "BROKEN"], "2.png"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_wrong_input_is_one_message_exit_code_2_and_nothing_written(
    case: str, original: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = WRONG[case]
    (own / "unknown.txt").write_text("x1\n")
    (own / "twice.txt").write_text("2\n3\n2\n")
    places = {"UNKNOWN": "unknown.txt", "TWICE": "twice.txt", "ONECLASS": "one", "BROKEN": "images"}
    if case == "one class":
        (own / "one" / "cat").mkdir(parents=True)
        (own / "images" / "cat" / "1.png").rename(own / "one" / "cat" / "1.png")
    if case == "broken image":
        (own / "images" / "dog" / "2.png").write_bytes((own / "images" / "dog" / "2.png").read_bytes()[:60])
    if case == "weights that run code":
        places["EVIL"] = str(weights_that_run_code(own))
    words = [places.get(word, word.replace("RUN", str(original))) for word in words]
    out = own / "out"
    err = duck(capsys, *words, *(["--out", str(out)] if words[0] in ("train", "forget") else []), code=2)
    last = [line for line in err.strip().splitlines() if line.startswith("duck")]
    assert len(last) == 1, err
    assert message in last[0]
    assert "Traceback" not in err
    assert not out.exists()
    assert not (own / "owned").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["train", "--eopchs", "3"], "--epochs"), (["forget", "--clases", "3"], "--classes"), (["list", "methodz"], "methods")],
)
def test_unknown_flags_exit_with_2_and_a_hint(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["forget", "--method", "duck", "--help"], ["list", "--help"]])
def test_help_teaches(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "duck", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    wanted = {"--help": "duck demo", "train": "--batch-size", "forget": "--lambda-forget", "list": "methods"}[words[0]]
    assert wanted in done.stdout


@pytest.mark.parametrize("words", [["train", "--help"], ["list", "methods"], ["list", "methods", "--json"]])
def test_a_reader_that_stops_reading_is_no_error(words: list[str]) -> None:
    with subprocess.Popen([sys.executable, "-m", "duck", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode in (1, 141)  # 1: where the table was being printed


def test_a_killed_training_goes_on_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    def command(name: str) -> list[str]:
        return [sys.executable, "-m", "duck", "train", *QUICK, "--epochs", "12", "--out", str(tmp_path / name)]

    subprocess.run(command("whole"), check=True, capture_output=True, timeout=120)
    with subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".killed-*.unfinished/checkpoint.pt")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "killed").exists()
    again = subprocess.run(command("killed"), check=True, capture_output=True, text=True, timeout=120)
    assert "Going on from" in again.stderr
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


def test_ctrl_c_leaves_no_run(tmp_path: Path) -> None:
    words = ["train", *QUICK, "--epochs", "500", "--out", str(tmp_path / "run")]
    with subprocess.Popen([sys.executable, "-m", "duck", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".run-*.unfinished/checkpoint.pt")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_the_demo_reaches_what_it_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = duck(capsys, "demo", "--out", str(tmp_path / "demo"), "--json")
    scores = {(row["scenario"], row["method"]): row["scores"] for row in rows}
    assert scores["class 3", "original"]["test"] >= 0.97
    assert scores["class 3", "duck"]["forget_test"] == 0
    assert scores["class 3", "duck"]["aus"] >= 0.98
    assert scores["10 % of the samples", "duck"]["aus"] >= 0.97
    assert all(row["processed"] == row["forget_samples"] for row in rows if row["method"] != "original")
    page = (tmp_path / "demo" / "report.html").read_text()
    assert page.count("<tr data-method=") == page.count('<details class="run"') == len(rows)
    assert page.count("Feature space: where the model puts its samples") >= 1
    assert page.count("Density of each class's cluster") + page.count("Density of each class&#39;s cluster") >= 1
    assert (tmp_path / "demo" / "class-duck" / "model.safetensors").exists()
    audits = {name: (tmp_path / "demo" / name / "audit-quick.json").read_text() for name in ("class-original", "class-retrained")}
    verdicts = {name: json.loads(text)["verdict"] for name, text in audits.items()}
    assert verdicts == {"class-original": "not forgotten", "class-retrained": "no verdict"}


def _code(words: list[str]) -> object:
    try:
        return cli.main(words)
    except SystemExit as ended:  # of the flags' parser
        return ended.code


@pytest.mark.parametrize("command", ["forget", "compare", "tune", "pool", "audit", "analyse", "report", "show", "bench", "list"])
def test_a_command_without_words_says_what_it_needs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _code([command]) == 2
    assert "--help" in (err := capsys.readouterr().err) or err.startswith(f"duck {command}: ")


def test_a_flag_is_seen_before_the_flags_are_known() -> None:
    assert peek([], "--data", "digits") == peek(["--seed", "1"], "--data", "digits") == "digits"
    assert peek(["--data", "cifar10"], "--data") == peek(["--seed", "1", "--data=cifar10"], "--data") == "cifar10"
    assert peek(["--data"], "--data", "digits") == "digits"
