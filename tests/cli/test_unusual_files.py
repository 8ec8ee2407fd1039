"""Unusual files: named pipes, names that are not UTF-8, limits of the system."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from duck import cli
from duck import runs as runs_module
from tests.cli.commands import split

TRAIN = ("train", "--data", "digits", "--epochs", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An original, a run that forgot one sample, and the file that names it."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "ids.txt").write_text("5\n")
    assert cli.main([*TRAIN, "--out", str(folder / "original")]) == 0
    words = split(
        "--run {} --ids {} --method finetune --epochs 1", folder / "original", folder / "ids.txt"
    )
    assert cli.main(["forget", *words, "--out", str(folder / "forgot")]) in (0, 1)
    return folder


def copied(run: Path, folder: Path) -> Path:
    """A copy of a run whose files can be changed."""
    folder.mkdir(parents=True)
    for file in run.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def fails(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Run the command, which must end as for wrong input, and return its message."""
    capsys.readouterr()
    assert cli.main(list(map(str, words))) == 2
    return capsys.readouterr().err


@pytest.mark.timeout(60, func_only=True)
@pytest.mark.parametrize("flag", ["--weights", "--ids", "--config", "--presets"])
def test_a_named_pipe_in_place_of_an_input_is_refused(
    flag: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    words: list[str | Path] = ["--run", runs / "original"]
    if flag == "--weights":
        words = ["--model", "convnet", "--data", "digits"]
    if flag != "--ids":
        words += ["--classes", "3"]
    if flag == "--presets":
        words += ["--method", "duck"]
    message = fails(capsys, "forget", *words, flag, pipe, "--out", tmp_path / "out")
    assert str(pipe) in message
    assert "not a regular file" in message


@pytest.mark.timeout(60, func_only=True)
@pytest.mark.parametrize("name", ["run.json", "sample_ids.json"])
def test_a_named_pipe_in_a_run_is_refused(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(runs / "forgot", tmp_path / "run")
    (run / name).unlink()
    os.mkfifo(run / name)
    for words in shows(run, tmp_path / "page.html")[2:]:
        assert str(run / name) in fails(capsys, *words)


@pytest.mark.timeout(60, func_only=True)
def test_a_named_pipe_in_the_folder_of_a_run_is_reported_and_the_rest_is_shown(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(runs / "forgot", tmp_path / "run")
    for name in ("audit-quick.json", "analysis.json"):
        os.mkfifo(run / name)
    assert cli.main(["show", str(run)]) == 0
    assert f"{run / 'audit-quick.json'} cannot be read" in capsys.readouterr().out.replace(
        "\n", " "
    )
    assert cli.main(["report", str(run), "-o", str(tmp_path / "page.html"), "--json"]) == 0
    unread = json.loads(capsys.readouterr().out)["unread"]
    assert [
        name in message
        for name, message in zip(("audit-quick.json", "analysis.json"), unread, strict=True)
    ] == [True, True]


@pytest.mark.slow
def test_ids_come_through_a_pipe_of_the_shell(runs: Path, tmp_path: Path) -> None:
    forget = f"forget --run {runs / 'original'} --method finetune --epochs 1"
    duck = f"{sys.executable} -m duck"
    for number, command in enumerate(
        (f"{duck} {forget} --ids <(echo 5)", f"echo 5 | {duck} {forget} --ids /dev/stdin")
    ):
        out = tmp_path / str(number)
        done = subprocess.run(
            ["bash", "-c", f"{command} --out {out}"], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        assert (
            runs_module.load(out).experiment.request
            == runs_module.load(runs / "forgot").experiment.request
        )


def write_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(
        path, format="png"
    )


@pytest.mark.parametrize("name", [b"a\xe9/0.png", b"a/0\xe9.png"])
def test_an_image_whose_name_is_not_utf8_is_named(
    name: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for good in ("a/1.png", "b/1.png", "b/2.png"):
        write_image(tmp_path / "images" / good)
    write_image(tmp_path / "images" / os.fsdecode(name))
    message = fails(
        capsys, *split("train --data {} --epochs 1 --out {}", tmp_path / "images", tmp_path / "run")
    )
    assert "\\udce9" in message


def shows(run: Path, page: Path) -> list[list[str]]:
    return [
        ["show", str(run)],
        ["show", str(run), "--json"],
        ["show", str(run), "--toml"],
        ["report", str(run), "-o", str(page)],
    ]


def set_class_name(record: dict[str, object]) -> None:
    record["by_class"]["names"][0] = "\ud800"  # type: ignore[index]


def set_data(record: dict[str, object]) -> None:
    record["experiment"]["training"]["data"] = "\ud800"  # type: ignore[index]


def set_note(record: dict[str, object]) -> None:
    record["notes"] = ["\ud800"]


@pytest.mark.parametrize("change", [set_class_name, set_data, set_note])
def test_half_a_character_in_a_record_is_shown_as_an_escape(
    change: Callable[[dict[str, object]], None], runs: Path, tmp_path: Path
) -> None:
    run = copied(runs / "forgot", tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    change(record)
    (run / "run.json").write_text(json.dumps(record))
    for words in shows(run, tmp_path / "page.html"):
        assert cli.main(words) == 0
    assert b"ud800" in (tmp_path / "page.html").read_bytes()


def test_a_run_in_a_folder_whose_name_is_not_utf8_is_shown_and_reported(
    runs: Path, tmp_path: Path
) -> None:
    run = copied(runs / "forgot", tmp_path / os.fsdecode(b"run\xe9"))
    for words in shows(run, tmp_path / "page.html"):
        assert cli.main(words) == 0
    assert b"run\\udce9" in (tmp_path / "page.html").read_bytes()


@pytest.mark.slow
def test_a_page_that_is_too_large_for_the_system_is_named(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = f"ulimit -f 1; {sys.executable} -B -m duck report {runs / 'forgot'} -o {page}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert str(page) in done.stderr
    assert not page.exists()
