"""Requests on the command line by users who hold nothing but the forget samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duck.data import load
from tests.cli.commands import Runner, train_digits


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "run"
    train_digits(folder, 8)
    return folder / "model.safetensors"


@pytest.fixture
def forget(tmp_path: Path, weights: Path, duck: Runner) -> Any:
    """Runs `duck forget` on digits of class 3 alone."""
    data = load("digits")
    batch = next(data.train.batches(len(data.train)))
    rows = (data.train.labels == 3).nonzero().flatten()
    assert data.test is not None
    test = next(data.test.batches(len(data.test)))
    ids = data.train.ids[rows.numpy()]
    np.savez(
        tmp_path / "threes.npz",
        images=batch.images[rows].numpy(),
        labels=batch.labels[rows].numpy(),
        ids=ids,
        test_images=test.images.numpy(),
        test_labels=test.labels.numpy(),
        test_ids=data.test.ids,
    )
    (tmp_path / "all.txt").write_text("\n".join(ids))
    flags = ["--model convnet --weights", weights, "--data", tmp_path / "threes.npz"]

    def run(*words: object, code: int = 0) -> Any:
        out = tmp_path / "run"
        return duck("forget", flags, "--out", out, words, code=code)

    return run


def test_a_class_without_retain_samples(forget: Any, tmp_path: Path, duck: Runner) -> None:
    printed = forget("--classes", 3)
    assert printed["method"] == "delete"
    assert printed["scores"]["forget"] < 0.1
    assert printed["scores"]["retain"] is None
    assert printed["scores"]["retain_test"] > 0.8
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["samples"]["retain"] == 0
    page = tmp_path / "report.html"
    duck.run("report", tmp_path / "run", "-o", page)
    duck.run("show", tmp_path / "run")
    duck("audit", tmp_path / "run", code=2)
    duck("forget --run", tmp_path / "run", "--fraction 0.1 --out", tmp_path / "x", code=2)


def test_the_same_samples_by_their_ids_stay_in_their_class(forget: Any, tmp_path: Path) -> None:
    printed = forget("--ids", tmp_path / "all.txt")
    assert printed["method"] == "amun"
    assert printed["scores"]["forget_test"] is None
    assert printed["scores"]["forget"] > 0.5


@pytest.mark.parametrize("method", ["duck", "warm-restart", "retrained"])
def test_a_method_that_needs_retain_samples_is_refused(
    forget: Any, method: str, tmp_path: Path
) -> None:
    message = forget("--classes", 3, "--method", method, code=2)
    assert "delete" in message
    assert not (tmp_path / "run").exists()
