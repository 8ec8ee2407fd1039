"""Class folders with numeric names: a word is a name first, and an index where no class has it."""

from pathlib import Path

import pytest

from duck import cli, runs
from duck.scenarios import ForgetClasses
from tests.cli.commands import Runner, words_of, write_images


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders 1, 2 and 3, whose indices are 0, 1 and 2, and a model trained on them."""
    place = tmp_path_factory.mktemp("numbered")
    write_images(place / "images", ("1", "2", "3"))
    words = ["train --data", place / "images", "--model convnet --epochs 4 --augment none --out"]
    assert cli.main(words_of(*words, place / "original")) == 0
    return place


CHEAP = "--method finetune --lr 1e-6 --epochs 1"
"""It forgets nothing, so that the exit code is 1."""


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
    numbered: Path, tmp_path: Path, duck: Runner, word: str, name: str, stored: str, shown: str
) -> None:
    out = tmp_path / "run"
    run = ["--run", numbered / "original"]
    printed = duck("forget", run, "--classes", word, CHEAP, "--out", out, code=1)
    assert forgotten_classes(out) == [name]
    assert printed["scenario"] == shown
    assert runs.load(out).experiment.request == ForgetClasses([stored])
    assert shown in duck.run("show", out).out


def test_compare_and_debias_take_a_class_name(numbered: Path, tmp_path: Path, duck: Runner) -> None:
    words = "--classes 2 --methods neg-grad --max-accuracy-loss 1 --out"
    duck("compare --run", numbered / "original", words, tmp_path / "all")
    assert forgotten_classes(tmp_path / "all" / "neg-grad") == ["2"]
    words = "--model convnet --epochs 1 --augment none --shap 0 --true 1 --wrong 2 --count 3"
    printed = duck("debias --data", numbered / "images", words)
    assert (printed["true"], printed["wrong"]) == ("1", "2")


def test_tune_names_the_class_in_its_file(numbered: Path, tmp_path: Path, duck: Runner) -> None:
    out = tmp_path / "found.toml"
    duck("tune finetune --run", numbered / "original", "--classes 1 --budget 1 --out", out)
    assert "class '1' (index 0)" in out.read_text()


def test_a_config_says_index_or_name_by_its_type(
    numbered: Path, tmp_path: Path, duck: Runner
) -> None:
    first, file = tmp_path / "first", tmp_path / "experiment.toml"
    run = ["forget", "--run", numbered / "original"]
    duck(run, "--classes 1", CHEAP, "--out", first, code=1)
    text = duck.run("show --toml", first).out
    assert text.count('"1",') == 1
    for name, written, forgotten in (("name", '"1",', "1"), ("index", "1,", "2")):
        file.write_text(text.replace('"1",', written))
        duck(run, "--config", file, "--out", tmp_path / name, code=1)
        assert forgotten_classes(tmp_path / name) == [forgotten]
    assert runs.read_record(tmp_path / "name")["id"] == runs.read_record(first)["id"]


def test_digits_are_stored_by_index_as_before(tmp_path: Path, duck: Runner) -> None:
    """Their names equal their indices: the ids of stored runs stay."""
    original, out = tmp_path / "original", tmp_path / "run"
    duck("train --data digits --epochs 1 --out", original)
    duck("forget --run", original, "--classes 3", CHEAP, "--out", out, code=1)
    assert runs.read_record(out)["experiment"]["request"] == {"name": "classes", "classes": [3]}
