"""duck pool as a user runs it: build, kill, resume, add, merge, show, and one line for an error."""

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

from duck import cli
from duck.experiment import to_dict
from duck.methods.presets import preset
from duck.pools import build
from duck.pools.files import ModelInfo
from duck.pools.plan import Job
from duck.pools.reader import Pool, State
from tests.audits.pools import all_logits
from tests.cli.commands import split

QUICK = ["pool", "--data", "digits", "--epochs", "1", "--batch-size", "256", "--workers", "1"]
REQUEST = [*QUICK, "--classes", "3", "--method", "neg-grad"]
STATES: tuple[State, ...] = ("before", "after", "oracle")


def duck(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    got = cli.main(list(words))
    out, err = capsys.readouterr()
    assert got == code, err
    return out, err


def test_make_show_add_and_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, both = (str(tmp_path / name) for name in ("first", "second", "both"))
    out, err = duck(capsys, *REQUEST, "--models", "4", "--share", "1/2", "--out", first, "--json")
    printed: dict[str, Any] = json.loads(out)
    assert (
        printed["design"],
        printed["models"],
        printed["oracles"],
        printed["trained"],
        printed["left"],
    ) == (
        "request",
        2,
        1,
        3,
        0,
    )
    assert printed["samples"] == {"candidate": 140, "holdout": 168, "retain": 1332, "test": 157}
    assert 0.2 < printed["accuracy"]["before"]["train"]["mean"] <= 1
    assert "0 of 3 are there" in err
    assert "[1/3] model 0" in err
    assert "2 left, expected end" in err
    duck(capsys, *REQUEST, "--models", "4", "--share", "2/2", "--out", second)
    out, _ = duck(capsys, "pool", "merge", first, second, "--out", both)
    assert out.startswith(
        f"request pool {both}: 4 models, 2 oracles; watched samples: 140 candidate"
    )
    out, err = duck(capsys, *REQUEST, "--models", "4", "--out", both, "--json")
    assert json.loads(out)["there"] == 6
    assert json.loads(duck(capsys, "pool", "show", both, "--json")[0])["models"] == 4
    _, err = duck(capsys, "pool", "merge", first, "--out", str(tmp_path), code=2)
    assert "not a pool" in err


@pytest.mark.slow
def test_a_killed_pool_resumes_and_ends_with_the_same_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*REQUEST, "--models", "4"]
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "duck", *words, "--out", str(killed)],
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    begun = time.monotonic()
    while len(list(killed.glob("*.safetensors"))) < 1 and time.monotonic() - begun < 120:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = {path: path.stat().st_mtime_ns for path in killed.glob("*.safetensors")}
    assert 1 <= len(there) < 6
    ending = json.loads(duck(capsys, *words, "--out", str(killed), "--json")[0])
    assert ending["there"] == len(there)
    assert ending["trained"] == 6 - len(there)
    assert {path: path.stat().st_mtime_ns for path in there} == there
    duck(capsys, *words, "--out", str(tmp_path / "whole"))
    one, other = Pool(killed), Pool(tmp_path / "whole")
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.members, other.members)
    for state in STATES:
        assert np.array_equal(one.stack(state).margins, other.stack(state).margins)
        assert np.array_equal(all_logits(one.stack(state)), all_logits(other.stack(state)))


def test_ctrl_c_keeps_the_models_that_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = build.Trainer.__call__

    def interrupted(self: build.Trainer, job: Job) -> tuple[Job, ModelInfo]:
        if job.number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(build.Trainer, "__call__", interrupted)
        _, err = duck(capsys, *QUICK, "--models", "4", "--out", str(tmp_path / "p"), code=130)
    assert "Finished models are stored" in err
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [
        "model-0000.safetensors", "model-0001.safetensors", "pool.json", "samples.npz",
    ]  # fmt: skip
    out, _ = duck(capsys, *QUICK, "--models", "4", "--out", str(tmp_path / "p"), "--json")
    assert (json.loads(out)["there"], json.loads(out)["trained"]) == (2, 2)


def test_a_run_brings_data_model_recipe_request_and_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, forgot = str(tmp_path / "original"), str(tmp_path / "forgot")
    duck(
        capsys,
        *split("train --data digits --epochs 1 --batch-size 128 --out {}", original),
    )
    duck(
        capsys,
        *split(
            "forget --run {} --fraction 0.1 --seed 3 --method neg-grad --lr 0.05 --out {}",
            original,
            forgot,
        ),
    )
    duck(
        capsys,
        *split("pool --run {} --models 2 --workers 1 --out {}", forgot, tmp_path / "p"),
    )
    held = Pool(tmp_path / "p").fingerprint
    assert held["recipe"]["batch_size"] == 128
    assert held["request"] == {"name": "fraction", "fraction": 0.1}
    assert (held["method"]["name"], held["method"]["lr"], held["seed"]) == ("neg-grad", 0.05, 3)
    _, err = duck(
        capsys,
        "pool",
        "--run",
        forgot,
        "--models",
        "2",
        "--epochs",
        "2",
        "--out",
        str(tmp_path / "p"),
        code=2,
    )
    assert "recipe.epochs is 1" in err
    duck(
        capsys,
        *split(
            "pool --run {} --method original --models 2 --workers 1 --out {}",
            forgot,
            tmp_path / "d",
        ),
    )
    held = Pool(tmp_path / "d").fingerprint
    assert (held["method"]["name"], held["recipe"]["batch_size"]) == ("original", 128)
    words = split("--method neg-grad --models 2 --limit-minutes 0 --out {}", tmp_path / "n")
    duck(capsys, "pool", "--run", forgot, *words)
    held = json.loads((tmp_path / "n" / "pool.json").read_text())["fingerprint"]
    assert held["method"] == json.loads(
        json.dumps(to_dict(preset("neg-grad", "digits", "samples")))
    )  # asked for, not the run's
    shadow = json.loads(
        duck(
            capsys,
            *split(
                "pool --run {} --models 2 --workers 1 --out {} --json", original, tmp_path / "s"
            ),
        )[0]
    )
    assert shadow["design"] == "shadow"


@pytest.mark.slow
def test_an_original_from_elsewhere_has_no_recipe_to_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    duck(
        capsys, "train", "--data", "digits", "--epochs", "1", "--out", str(tmp_path / "o"), "--json"
    )
    words = split(
        "--model convnet --weights {} --classes 3 --out {}",
        tmp_path / "o" / "model.safetensors",
        tmp_path / "f",
    )
    cli.main(["forget", "--data", "digits", *words])
    words = ["pool", "--run", str(tmp_path / "f"), "--models", "2", "--limit-minutes", "0"]
    assert "default recipe" in " ".join(
        duck(capsys, *words, "--out", str(tmp_path / "p"))[1].split()
    )
    assert (
        "is not known" not in duck(capsys, *words, "--epochs", "2", "--out", str(tmp_path / "q"))[1]
    )


def test_wrong_words_are_reported_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "p")]
    for words, message in (
        (["--share", "two"], "--share is K/N"),
        (["--share", "3/2"], "got 3 of 2"),
        (["--models", "5"], "even number of models"),
        (["--method", "dcuk"], "Did you mean 'duck'"),
        (["--limit-minutes", "-1"], "--limit-minutes must be 0 or more, got -1.0."),
        (["--limit-minutes", "nan"], "limit_minutes must be a finite number, got nan."),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--fraction", "0"], "fraction"),
    ):
        _, err = duck(capsys, *QUICK, *out, *words, code=2)
        assert message in err
        assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "p").exists()
    printed = json.loads(
        duck(capsys, *QUICK, *out, "--models", "2", "--limit-minutes", "0", "--json")[0]
    )
    assert (printed["trained"], printed["left"]) == (0, 2)


def test_after_a_start_that_failed_the_corrected_command_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--models", "2", "--out", str(tmp_path / "p")]
    _, err = duck(capsys, *QUICK, *out, "--lr", "1e12", code=2)
    assert "Lower the learning rate" in err
    printed = json.loads(duck(capsys, *QUICK, *out, "--json")[0])
    assert (printed["models"], printed["trained"]) == (2, 2)


def test_broken_files_of_a_pool_are_reported_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "p"
    duck(capsys, *QUICK, "--models", "2", "--out", str(folder))
    for name, content, message in (
        ("samples.npz", b"", "samples.npz cannot be read"),
        ("samples.npz", (folder / "samples.npz").read_bytes()[:-50], "samples.npz cannot be read"),
        ("pool.json", b"[]", "pool.json does not say which pool this is"),
        ("pool.json", b'{"fingerprint": {}}', "pool.json does not say which pool this is"),
    ):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        for words in (
            ["pool", "show", str(folder)],
            ["pool", "merge", str(folder), "--out", str(tmp_path / "out")],
        ):
            _, err = duck(capsys, *words, code=2)
            assert message in err
            assert len(err.strip().splitlines()) == 1
        (folder / name).write_bytes(whole)
    duck(capsys, "pool", "show", str(folder))
    (tmp_path / "other").mkdir()
    _, err = duck(capsys, "pool", "show", str(tmp_path / "other"), code=2)
    assert "it has no pool.json" in err
