"""Model code that a stored run or a config names is imported only when the user allows it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from duck import cli
from tests.cli.commands import split

HOSTILE = """
from pathlib import Path
from torch import nn
Path("executed").touch()
def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""
TRAIN = ["train", "--data", "digits", "--epochs", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose records name a builder in `hostile.py`: an original and an unlearning."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("hostile.py").write_text(HOSTILE)
        assert cli.main([*TRAIN, "--model", "hostile:build", "--out", "original"]) == 0
        words = split("forget --run original --classes 3 --method finetune --epochs 1 --out forgot")
        assert cli.main([*words, "--trust-model-code"]) in (0, 1)
        with (folder / "config.toml").open("w") as file:
            subprocess.run(
                [sys.executable, "-m", "duck", "show", "original", "--toml"],
                stdout=file,
                check=True,
                timeout=60,
            )
        (folder / "grid.toml").write_text(
            'methods = ["original"]\npresets = ["paper"]\n'
            '[[blocks]]\ndataset = "digits"\nmodel = "hostile:build"\n'
            "classes = [3]\nrecipe = { epochs = 1 }\n"
        )
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the runs, with the code not imported yet and no trace of it.

    Tests of one process come in any order: what one writes must not reach another.
    """
    folder = shutil.copytree(made, tmp_path / "runs")
    monkeypatch.chdir(folder)
    (folder / "executed").unlink(missing_ok=True)
    monkeypatch.delitem(sys.modules, "hostile", raising=False)
    return folder


COMMANDS = {
    "forget": ["forget", "--run", "original", "--classes", "4", "--out", "new"],
    "compare": split("compare --run original --classes 4 --methods original --out new"),
    "tune": split("tune duck --run original --classes 4 --budget 1 --out new.toml"),
    "audit": ["audit", "forgot", "--original", "original"],
    "analyse": ["analyse", "forgot", "--original", "original", "--points", "20"],
    "pool": ["pool", "--run", "original", "--models", "2", "--epochs", "1", "--out", "new"],
    "report": ["report", "forgot", "--show-samples", "-o", "new.html"],
    "train": ["train", "--config", "config.toml", "--out", "new"],
    "bench": ["bench", "grid.toml", "--out", "new"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_code_that_a_record_names_is_not_imported(
    words: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    message = capsys.readouterr().err
    assert "hostile:build" in message
    assert "--trust-model-code" in message
    assert not (runs / "executed").exists()
    assert not (runs / "new").exists()


@pytest.mark.parametrize("name", ["train", "audit", "bench", "report"])
def test_trusted_code_runs(name: str, runs: Path) -> None:
    # An audit ends with the exit code of its verdict.
    codes = (0, 1, 3) if name == "audit" else (0,)
    assert cli.main([*COMMANDS[name], "--trust-model-code"]) in codes
    assert (runs / "executed").exists()


def test_a_builder_named_on_the_command_line_is_trusted(runs: Path) -> None:
    assert cli.main([*COMMANDS["train"][:-1], "named", "--model", "hostile:build"]) == 0
    assert (
        json.loads((runs / "named" / "run.json").read_text())["experiment"]["training"]["model"]
        == "hostile:build"
    )


@pytest.mark.slow
def test_workers_import_nothing_from_the_working_folder(tmp_path: Path) -> None:
    """A file in the working folder must not replace an installed module."""
    for name in ("sklearn", "torch", "numpy", "pickle", "duck"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    code = "import sys; from duck.cli import main; sys.exit(main(sys.argv[1:]))"
    words = split("pool --data digits --models 2 --epochs 1 --workers 2 --device cpu --out pool")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "executed").exists()
