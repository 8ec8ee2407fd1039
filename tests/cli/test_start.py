"""Commands that only print start without torch, numpy, scipy and scikit-learn."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from duck.cli import COMMANDS, main

SCRIPT = """
import sys
from duck.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
slow = [name for name in ("torch", "numpy", "scipy", "sklearn") if name in sys.modules]
print(code, ",".join(slow), sep=";", file=sys.stderr)
"""
KINDS = ("methods", "presets", "requests", "datasets", "models", "attacks", "grids")


class Start(NamedTuple):
    """What a command printed, its exit code, and the slow packages it imported."""

    output: str
    code: str
    slow_packages: str


def run_fresh(*words: str, script: str = SCRIPT) -> Start:
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
    )
    code, slow_packages = done.stderr.strip().splitlines()[-1].split(";")
    return Start(done.stdout, code, slow_packages)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An original of one epoch, and an unlearning of it."""
    folder = tmp_path_factory.mktemp("runs")
    original, unlearned = folder / "original", folder / "unlearned"
    fast = ["--device", "cpu", "--json"]
    main(["train", "--data", "digits", "--out", str(original), "--epochs", "1", *fast])
    request = ["--run", str(original), "--classes", "3", "--out", str(unlearned)]
    words = ["--method", "duck", "--max-epochs", "1", "--low-epochs", "0"]
    main(["forget", *request, *words, *fast])
    return original, unlearned


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_is_the_same_without_torch(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    start = run_fresh("list", kind, "--json")
    assert start.code == "0"
    assert start.slow_packages == ""
    assert main(["list", kind, "--json"]) == 0
    assert json.loads(start.output) == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_torch(command: str) -> None:
    start = run_fresh(command, "--help")
    assert start.code == "0"
    assert start.slow_packages == ""
    assert f"duck {command}" in start.output


def test_showing_a_run_needs_no_torch(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in runs:
        for flags in ([], ["--json"], ["--toml"]):
            capsys.readouterr()
            assert main(["show", str(folder), *flags]) == 0
            start = run_fresh("show", str(folder), *flags)
            assert start.code == "0"
            assert start.slow_packages == ""
            assert start.output == capsys.readouterr().out


def test_an_error_is_reported_as_with_torch(tmp_path: Path) -> None:
    start = run_fresh("show", str(tmp_path))
    assert start.code == "2"
    assert start.slow_packages == "torch,numpy"


def test_modules_are_usable_after_a_list() -> None:
    use = "import duck, torch\nassert duck.ForgetClasses([torch.tensor(3)]).classes == (3,)\n"
    script = SCRIPT.replace("slow =", f"{use}slow =")
    start = run_fresh("list", "methods", script=script)
    assert "torch" in start.slow_packages


def test_forgetting_imports_nothing_that_it_does_not_use(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    unused = '("joblib", "scipy", "sklearn.manifold", "plotly", "matplotlib", "captum")'
    script = SCRIPT.replace('("torch", "numpy", "scipy", "sklearn")', unused)
    request = ["--run", str(runs[0]), "--classes", "3", "--out", str(tmp_path / "forgot")]
    request += ["--method", "duck", "--low-epochs", "0", "--device", "cpu"]
    start = run_fresh("forget", *request, script=script)
    assert start.code == "0"
    assert start.slow_packages == ""
