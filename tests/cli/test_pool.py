"""duck pool as a user runs it: build, kill, resume, add, merge, show, and one line for an error."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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
from tests.cli.commands import Runner

QUICK = "pool --data digits --epochs 1 --batch-size 256 --workers 1"
REQUEST = f"{QUICK} --classes 3 --method neg-grad"
STATES: tuple[State, ...] = ("before", "after", "oracle")


def test_make_show_add_and_merge(tmp_path: Path, duck: Runner) -> None:
    first, second, both = (tmp_path / name for name in ("first", "second", "both"))
    _, out, err = duck.run(REQUEST, "--models 4 --share 1/2 --json --out", first)
    printed = json.loads(out)
    counts = {"design": "request", "models": 2, "oracles": 1, "trained": 3, "left": 0}
    assert {name: printed[name] for name in counts} == counts
    assert printed["samples"] == {"candidate": 140, "holdout": 168, "retain": 1332, "test": 157}
    assert 0.2 < printed["accuracy"]["before"]["train"]["mean"] <= 1
    assert "0 of 3 are there" in err
    assert "[1/3] model 0" in err
    assert "2 left, expected end" in err
    duck(REQUEST, "--models 4 --share 2/2 --out", second)
    out = duck.run("pool merge", first, second, "--out", both).out
    assert out.startswith(
        f"request pool {both}: 4 models, 2 oracles; watched samples: 140 candidate"
    )
    assert duck(REQUEST, "--models 4 --out", both)["there"] == 6
    assert duck("pool show", both)["models"] == 4
    assert "not a pool" in duck("pool merge", first, "--out", tmp_path, code=2)


@pytest.mark.slow
def test_a_killed_pool_resumes_and_ends_with_the_same_bits(tmp_path: Path, duck: Runner) -> None:
    words = [*REQUEST.split(), "--models", "4", "--out"]
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "duck", *words, str(killed)],
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
    ending = duck(words, killed)
    assert ending["there"] == len(there)
    assert ending["trained"] == 6 - len(there)
    assert {path: path.stat().st_mtime_ns for path in there} == there
    duck(words, tmp_path / "whole")
    one, other = Pool(killed), Pool(tmp_path / "whole")
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.members, other.members)
    for state in STATES:
        assert np.array_equal(one.stack(state).margins, other.stack(state).margins)
        assert np.array_equal(all_logits(one.stack(state)), all_logits(other.stack(state)))


def test_ctrl_c_keeps_the_models_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duck: Runner
) -> None:
    real = build.Trainer.__call__
    folder = tmp_path / "p"

    def interrupted(self: build.Trainer, job: Job) -> tuple[Job, ModelInfo]:
        if job.number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(build.Trainer, "__call__", interrupted)
        message = duck(QUICK, "--models 4 --out", folder, code=130)
    assert "Finished models are stored" in message
    names = ["model-0000.safetensors", "model-0001.safetensors", "pool.json", "samples.npz"]
    assert sorted(path.name for path in folder.iterdir()) == names
    ending = duck(QUICK, "--models 4 --out", folder)
    assert (ending["there"], ending["trained"]) == (2, 2)


def test_a_run_brings_data_model_recipe_request_and_method(tmp_path: Path, duck: Runner) -> None:
    original, forgot = tmp_path / "original", tmp_path / "forgot"
    duck.run("train --data digits --epochs 1 --batch-size 128 --out", original)
    request = "--fraction 0.1 --seed 3 --method neg-grad --lr 0.05 --out"
    duck.run("forget --run", original, request, forgot)
    duck("pool --run", forgot, "--models 2 --workers 1 --out", tmp_path / "p")
    held = Pool(tmp_path / "p").fingerprint
    assert held["recipe"]["batch_size"] == 128
    assert held["request"] == {"name": "fraction", "fraction": 0.1}
    assert (held["method"]["name"], held["method"]["lr"], held["seed"]) == ("neg-grad", 0.05, 3)
    other = duck("pool --run", forgot, "--models 2 --epochs 2 --out", tmp_path / "p", code=2)
    assert "recipe.epochs is 1" in other
    words = "--method original --models 2 --workers 1 --out"
    duck("pool --run", forgot, words, tmp_path / "d")
    held = Pool(tmp_path / "d").fingerprint
    assert (held["method"]["name"], held["recipe"]["batch_size"]) == ("original", 128)
    words = "--method neg-grad --models 2 --limit-minutes 0 --out"
    duck("pool --run", forgot, words, tmp_path / "n")
    held = json.loads((tmp_path / "n" / "pool.json").read_text())["fingerprint"]
    asked_for = to_dict(preset("neg-grad", "digits", "samples"))  # not that of the run
    assert held["method"] == json.loads(json.dumps(asked_for))
    shadow = duck("pool --run", original, "--models 2 --workers 1 --out", tmp_path / "s")
    assert shadow["design"] == "shadow"


@pytest.mark.slow
def test_an_original_from_elsewhere_has_no_recipe_to_take(tmp_path: Path, duck: Runner) -> None:
    original, forgot = tmp_path / "o", tmp_path / "f"
    duck("train --data digits --epochs 1 --out", original)
    weights = original / "model.safetensors"
    request = ["--data", "digits", "--classes", "3", "--out", str(forgot)]
    cli.main(["forget", "--model", "convnet", "--weights", str(weights), *request])
    words = ["pool", "--run", forgot, "--models", "2", "--limit-minutes", "0", "--out"]
    assert "default recipe" in " ".join(duck.run(words, tmp_path / "p").err.split())
    assert "is not known" not in duck.run(words, tmp_path / "q", "--epochs 2").err


def test_wrong_words_are_reported_in_a_line(tmp_path: Path, duck: Runner) -> None:
    out = ["--out", tmp_path / "p"]
    for words, message in (
        ("--share two", "--share is K/N"),
        ("--share 3/2", "got 3 of 2"),
        ("--models 5", "even number of models"),
        ("--method dcuk", "Did you mean 'duck'"),
        ("--limit-minutes -1", "--limit-minutes must be 0 or more, got -1.0."),
        ("--limit-minutes nan", "limit_minutes must be a finite number"),
        ("--workers 0", "--workers must be at least 1"),
        ("--epochs 0", "epochs must be at least 1"),
        ("--fraction 0", "fraction"),
    ):
        err = duck.run(QUICK, out, words, code=2).err
        assert message in err
        assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "p").exists()
    printed = duck(QUICK, out, "--models 2 --limit-minutes 0")
    assert (printed["trained"], printed["left"]) == (0, 2)


def test_after_a_failed_start_the_corrected_command_works(tmp_path: Path, duck: Runner) -> None:
    words = [*QUICK.split(), "--models", "2", "--out", tmp_path / "p"]
    assert "Lower the learning rate" in duck(words, "--lr 1e12", code=2)
    printed = duck(words)
    assert (printed["models"], printed["trained"]) == (2, 2)


def test_broken_files_of_a_pool_are_reported_in_a_line(tmp_path: Path, duck: Runner) -> None:
    folder = tmp_path / "p"
    duck(QUICK, "--models 2 --out", folder)
    for name, content, message in (
        ("samples.npz", b"", "samples.npz cannot be read"),
        ("samples.npz", (folder / "samples.npz").read_bytes()[:-50], "samples.npz cannot be read"),
        ("pool.json", b"[]", "pool.json does not say which pool"),
        ("pool.json", b'{"fingerprint": {}}', "pool.json does not say which pool"),
    ):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        for words in (["pool", "show", folder], ["pool", "merge", folder, "--out", tmp_path / "x"]):
            err = duck.run(words, code=2).err
            assert message in err
            assert len(err.strip().splitlines()) == 1
        (folder / name).write_bytes(whole)
    duck("pool show", folder)
    (tmp_path / "other").mkdir()
    assert "it has no pool.json" in duck("pool show", tmp_path / "other", code=2)
