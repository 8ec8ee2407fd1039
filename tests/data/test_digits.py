import numpy as np
import torch
from sklearn.datasets import load_digits

from duck.data import digits
from duck.data.examples import Resident


def test_digits_are_scikit_learns_scaled_to_bytes() -> None:
    data = digits.load()
    official = load_digits()
    assert isinstance(data.train, Resident)
    assert data.test is not None
    assert len(data.train) + len(data.test) == 1797
    assert data.train.shape == (1, 8, 8)
    assert data.classes == tuple("0123456789")
    assert data.augment == "none"
    for place in (0, 500, 1000):
        row = int(data.train.ids[place])
        assert data.train.labels[place] == official.target[row]
        pixels = data.train.images[place, 0].numpy().astype(float) * 16 / 255
        np.testing.assert_allclose(pixels, official.images[row], atol=0.05)


def test_digits_constants_are_the_mean_and_std_of_train() -> None:
    images = next(digits.load().train.batches(2000)).images
    assert abs(images.mean().item()) < 1e-3
    assert abs(images.std().item() - 1) < 1e-3


def test_digits_can_be_resized() -> None:
    assert digits.load(image_size=16).train.shape == (1, 16, 16)


def test_digits_split_never_changes() -> None:
    first, second = digits.load(), digits.load()
    assert first.test is not None
    assert second.test is not None
    assert first.train.fingerprint() == second.train.fingerprint()
    assert torch.equal(first.holdout, second.holdout)
    assert first.test.ids[:3].tolist() == ["8", "12", "15"]
