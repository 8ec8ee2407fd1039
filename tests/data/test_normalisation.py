"""Mean and std of the user's choice, and data of which nothing is set aside."""

from pathlib import Path

import numpy as np
import pytest
import torch

from duck.data import load
from duck.errors import BadInput


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "some.npz",
        images=rng.integers(0, 256, (60, 4, 4, 3), dtype=np.uint8),
        labels=np.arange(60) % 3,
    )
    return tmp_path / "some.npz"


def test_given_mean_and_std_replace_the_datas_own(file: Path) -> None:
    plain, changed = load(file), load(file, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.4))
    assert changed.test is not None
    raw = plain.train.images[plain.train.rows]  # type: ignore[attr-defined]
    expected = (raw / 255 - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor(
        [0.1, 0.2, 0.4]
    ).view(3, 1, 1)
    torch.testing.assert_close(
        next(changed.train.batches(1000)).images, expected, rtol=1e-4, atol=1e-5
    )
    assert not torch.allclose(next(plain.train.batches(1000)).images, expected)


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5,), (0.5,)), ((0.5, 0.5, 0.5), ()), ((0.5, 0.5, 0.5), (1.0, 1.0, 0.0))]
)
def test_as_many_numbers_as_channels(
    file: Path, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    with pytest.raises(BadInput, match="has 3 channels"):
        load(file, mean=mean, std=std)


def test_floats_are_taken_as_they_are(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((30, 3, 4, 4), dtype=np.float32)
    np.savez(tmp_path / "floats.npz", images=images, labels=np.arange(30) % 3)
    with pytest.raises(BadInput, match="are floats already"):
        load(tmp_path / "floats.npz", mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0))


def test_without_a_split_everything_is_training_data(file: Path) -> None:
    whole = load(file, split=False)
    assert (len(whole.train), whole.test, len(whole.holdout)) == (60, None, 0)
    assert len(load(file).train) < 60
