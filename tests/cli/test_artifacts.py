"""Commands share what they have trained and prepared: one store, and nothing is trained twice."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from duck import cli
from tests.cli.commands import Runner

STORE = Path("runs/.artifacts")
GRID = """
methods = ["original", "ssd"]
presets = ["tuned"]
seed = 0

[[blocks]]
dataset = "digits"
model = "convnet"
classes = [3]
"""
SHORT_GRID = GRID.replace('"original", "ssd"', '"original"') + "recipe = { epochs = 1 }\n"


def stored(kind: str) -> dict[str, int]:
    """Return the artifacts of a kind, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (STORE / kind).iterdir()}


def record(run: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(Path(run, "run.json").read_text())
    return fields


def equal_weights(*files: Path) -> bool:
    first, second = map(load_file, files)
    assert first.keys() == second.keys()
    return all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `duck train` and `duck forget` were run."""
    folder = tmp_path_factory.mktemp("project")
    run = str(folder / "runs" / "first")
    assert cli.main(["train", "--data", "digits", "--out", run, "--json"]) == 0
    forget = ["forget", "--run", run, "--classes", "3", "--method", "ssd", "--json"]
    assert cli.main([*forget, "--out", str(folder / "runs" / "forgot")]) == 0
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, which is the working folder."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_puts_its_model_into_the_store(here: Path) -> None:
    (name,) = stored("originals")
    weights = STORE / "originals" / name
    assert equal_weights(weights, Path("runs/first/model.safetensors"))
    assert len(stored("preparations")) == 1


def test_compare_reuses_the_original_and_the_preparation(here: Path, duck: Runner) -> None:
    before = stored("originals"), stored("preparations")
    (row,) = duck("compare", "--data", "digits", "--classes", "3", "--methods", "ssd")
    assert (stored("originals"), stored("preparations")) == before
    assert row["prepare_seconds"] == record("runs/forgot")["prepare_seconds"]
    assert row["scores"]["aus"] == record("runs/forgot")["scores"]["aus"]
    (made,) = {path.parent for path in Path("runs").glob("*/run.json")} - {
        Path("runs/first"),
        Path("runs/forgot"),
    }
    assert equal_weights(made / "model.safetensors", Path("runs/first/model.safetensors"))
    for field in ("seconds", "scores", "created", "environment", "experiment"):
        assert record(str(made))[field] == record("runs/first")[field]


@pytest.mark.parametrize("command", ["forget", "compare", "tune"])
def test_the_store_is_beside_the_run_that_is_written_or_beside_the_original(
    command: str, here: Path, duck: Runner
) -> None:
    Path("runs").rename("others")
    words = ["--run", "others/first", "--classes", "5"]
    more = {
        "forget": ["--method", "ssd", "--out", "forgotten/ssd"],
        "compare": ["--methods", "ssd"],
        "tune": ["--budget", "1"],
    }
    method = ["ssd"] if command == "tune" else []
    duck(command, *method, *words, *more[command], code=None)
    assert Path("forgotten/.artifacts/preparations").exists() == (command == "forget")
    assert Path("others/.artifacts/retrained").exists() == (command == "tune")
    # `duck compare` reuses the preparation that is there.
    assert len(list(Path("others/.artifacts/preparations").iterdir())) == 1
    assert not Path("runs").exists()


def test_bench_reuses_the_original_and_the_preparation(here: Path, duck: Runner) -> None:
    Path("grid.toml").write_text(GRID)
    before = stored("originals"), stored("preparations")
    assert duck("bench", "grid.toml")["ran"] == 3
    assert (stored("originals"), stored("preparations")) == before
    lines = [json.loads(line) for line in Path("results/grid.jsonl").read_text().splitlines()]
    original, _, ssd = lines
    assert original["seconds"] == record("runs/first")["seconds"]
    assert original["scores"] == record("runs/first")["scores"]
    assert original["alone"] is False  # nobody said so of `duck train`
    assert ssd["prepare_seconds"] == record("runs/forgot")["prepare_seconds"]
    assert ssd["scores"] == record("runs/forgot")["scores"]


@pytest.mark.slow
def test_an_oracle_audit_reuses_the_original_and_the_retrained_models(
    here: Path, duck: Runner
) -> None:
    shutil.rmtree("runs/first")
    before = stored("originals")
    oracle = ["--tier", "oracle", "--models", "1"]
    assert duck("audit", "runs/forgot", *oracle, code=None)["models"] == 1
    assert stored("originals") == before
    retrained = stored("retrained")
    assert len(retrained) == 1
    duck("train", "--data", "digits", "--out", "runs/again")
    for name, label in (("same", "3"), ("other", "5")):
        forget = ["--run", "runs/again", "--method", "original", "--classes", label]
        duck("forget", *forget, "--out", f"runs/{name}", code=1)
    duck("audit", "runs/same", *oracle, code=None)
    assert stored("retrained") == retrained
    duck("audit", "runs/other", *oracle, code=None)
    assert len(stored("retrained")) == 2  # of another forget set
    assert stored("originals") == before


def test_train_reuses_what_bench_has_trained(workdir: Path, duck: Runner) -> None:
    Path("grid.toml").write_text(SHORT_GRID)
    duck("bench", "grid.toml")
    before = stored("originals")
    run = duck("train", "--data", "digits", "--epochs", "1", "--out", "runs/one")
    assert stored("originals") == before
    line = json.loads(Path("results/grid.jsonl").read_text().splitlines()[0])
    assert (run["seconds"], run["scores"]) == (line["seconds"], line["scores"])


def test_other_data_another_recipe_or_another_seed_is_another_original(
    workdir: Path, duck: Runner
) -> None:
    changes: tuple[list[str], ...] = (
        [],
        ["--image-size", "6"],
        ["--mean", "0.5", "--std", "0.2"],
        ["--lr", "0.05"],
        ["--seed", "1"],
    )
    for number, change in enumerate(changes):
        words = ["--data", "digits", "--epochs", "1", "--out", f"runs/{number}", *change]
        duck("train", *words)
        assert len(stored("originals")) == number + 1


@pytest.mark.slow
def test_overwriting_a_run_trains_again(here: Path, duck: Runner) -> None:
    ((name, written),) = stored("originals").items()
    shutil.copytree("runs/first", "before")
    duck("train", "--data", "digits", "--out", "runs/first", "--overwrite")
    assert stored("originals").keys() == {name}
    assert stored("originals")[name] > written
    assert equal_weights(Path("before/model.safetensors"), Path("runs/first/model.safetensors"))


def test_a_damaged_original_is_trained_again(here: Path, duck: Runner) -> None:
    (file,) = (STORE / "originals").iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    duck("train", "--data", "digits", "--out", "runs/again")
    assert equal_weights(Path("runs/again/model.safetensors"), file)
    assert equal_weights(file, Path("runs/first/model.safetensors"))


def test_the_user_can_name_the_folder(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    monkeypatch.setenv("DUCK_ARTIFACTS", str(workdir / "store"))
    duck("train", "--data", "digits", "--epochs", "1", "--out", "runs/one")
    Path("grid.toml").write_text(SHORT_GRID)
    duck("bench", "grid.toml")
    assert len(list((workdir / "store" / "originals").iterdir())) == 1
    assert not STORE.exists()
    duck("bench", "grid.toml", "--out", "others", "--models", "models")
    assert len(list((workdir / "models" / "originals").iterdir())) == 1
