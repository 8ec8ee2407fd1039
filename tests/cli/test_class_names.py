"""Class folders with numeric names: a word is a name first, and an index where no class has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from duck import cli, runs
from duck.scenarios import ForgetClasses
from tests.cli.commands import duck as run_json
from tests.cli.commands import split, write_images


def duck(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return run_json(capsys, *words, "--json")


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders 1, 2 and 3, whose indices are 0, 1 and 2, and a model trained on them."""
    place = tmp_path_factory.mktemp("numbered")
    write_images(place / "images", ("1", "2", "3"))
    words = split("--data {} --model convnet --epochs 4 --augment none", place / "images")
    assert cli.main(["train", *words, "--out", str(place / "original"), "--json"]) == 0
    return place


CHEAP = ("--method", "finetune", "--lr", "1e-6", "--epochs", "1")


def forgotten_classes(run: Path) -> list[str]:
    by_class = runs.read_record(run)["by_class"]
    return [by_class["names"][int(index)] for index in by_class["forget"]]


@pytest.mark.parametrize(
    ("word", "name", "stored", "shown"),
    [
        ("1", "1", "1", "class '1' (index 0)"),
        ("3", "3", "3", "class 3"),
        ("0", "1", "1", "class '1' (index 0)"),
    ],
)
def test_a_word_is_a_class_name_first(
    numbered: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    word: str,
    name: str,
    stored: int | str,
    shown: str,
) -> None:
    out = tmp_path / "run"
    capsys.readouterr()
    cli.main(
        [
            *split("forget --run {} --classes {}", numbered / "original", word),
            *CHEAP,
            "--out",
            str(out),
            "--json",
        ]
    )
    printed = json.loads(capsys.readouterr().out)
    assert forgotten_classes(out) == [name]
    assert printed["scenario"] == shown
    assert runs.load(out).experiment.request == ForgetClasses([stored])
    assert cli.main(["show", str(out)]) == 0
    assert shown in capsys.readouterr().out


def test_compare_and_debias_take_the_same_class(
    numbered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = split(
        "compare --run {} --classes 2 --methods neg-grad --out {}",
        numbered / "original",
        tmp_path / "all",
    )
    cli.main([*words, "--max-accuracy-loss", "1", "--json"])
    assert forgotten_classes(tmp_path / "all" / "neg-grad") == ["2"]
    data = split(
        "--data {} --model convnet --epochs 1 --augment none --shap 0", numbered / "images"
    )
    printed = duck(capsys, "debias", *data, "--true", "1", "--wrong", "2", "--count", "3")
    assert (printed["true"], printed["wrong"]) == ("1", "2")


def test_tune_names_the_class_in_its_file(
    numbered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.toml"
    words = split("--run {} --classes 1 --budget 1 --out {}", numbered / "original", out)
    duck(capsys, "tune", "finetune", *words)
    assert "class '1' (index 0)" in out.read_text()


def test_a_config_says_index_or_name_by_its_type(
    numbered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, file = tmp_path / "first", tmp_path / "experiment.toml"
    run = ["forget", "--run", str(numbered / "original"), "--json"]
    cli.main([*run, "--classes", "1", *CHEAP, "--out", str(first)])
    capsys.readouterr()
    cli.main(["show", str(first), "--toml"])
    text = capsys.readouterr().out
    assert text.count('"1",') == 1
    for name, written, forgotten in (("name", '"1",', "1"), ("index", "1,", "2")):
        file.write_text(text.replace('"1",', written))
        cli.main([*run, "--config", str(file), "--out", str(tmp_path / name)])
        assert forgotten_classes(tmp_path / name) == [forgotten]
    assert runs.read_record(tmp_path / "name")["id"] == runs.read_record(first)["id"]


def test_digits_are_stored_by_index_as_before(tmp_path: Path) -> None:
    """Their names equal their indices: the ids of stored runs stay."""
    original, out = tmp_path / "original", tmp_path / "run"
    assert (
        cli.main(["train", "--data", "digits", "--epochs", "1", "--out", str(original), "--json"])
        == 0
    )
    cli.main(
        ["forget", "--run", str(original), "--classes", "3", *CHEAP, "--out", str(out), "--json"]
    )
    assert runs.read_record(out)["experiment"]["request"] == {"name": "classes", "classes": [3]}
