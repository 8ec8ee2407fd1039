import torch

import duck
from duck.data import digits
from duck.data.digits import read_table
from duck.predict import accuracy


def test_half_of_the_digits_are_test_samples_and_some_labels_are_wrong() -> None:
    data = digits.load_noisy()
    assert data.test is not None
    assert len(data.train) == 899
    assert len(data.test) == 898
    true_labels = torch.from_numpy(read_table()[:, -1])
    for split in (data.train, data.test):
        rows = torch.tensor([int(name) for name in split.ids])
        wrong = (split.labels != true_labels[rows]).double().mean()
        # A twentieth is drawn at random, and a tenth of that is right by chance.
        assert 0.02 < wrong < 0.07


def test_the_pixels_are_noisy_and_always_the_same() -> None:
    first, second = digits.load_noisy(), digits.load_noisy()
    assert first.train.fingerprint() == second.train.fingerprint()
    assert first.train.fingerprint() != digits.load().train.fingerprint()


def test_a_model_learns_the_training_samples_by_heart() -> None:
    data = duck.load("noisy-digits")
    assert data.test is not None
    model = duck.train("convnet", data)
    assert accuracy(model, data.train) > 0.995
    assert 0.85 < accuracy(model, data.test) < 0.95
