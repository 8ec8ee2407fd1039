import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duck.data.assemble import Samples, assemble, finish, numbered_classes, statistics
from duck.data.examples import Pixels, examples
from duck.errors import BadInput
from tests.data.image_files import noise


def samples(labels: list[int], shape: tuple[int, ...] = (1, 4, 4)) -> Samples:
    images = torch.from_numpy(noise((len(labels), *shape)))
    return Samples(images, torch.tensor(labels), np.arange(len(labels)).astype(np.str_))


def test_a_given_test_split_is_kept_and_a_fifth_of_it_held_out() -> None:
    data = assemble("set", samples([0, 1] * 30), samples([0, 1] * 10), ["a", "b"])
    assert data.test is not None
    assert (len(data.train), len(data.test), len(data.holdout)) == (60, 20, 4)
    assert torch.bincount(data.test.labels[data.holdout]).tolist() == [2, 2]


def test_without_a_test_split_a_fifth_goes_there() -> None:
    data = assemble("set", samples([0, 1] * 200), None, ["a", "b"])
    assert data.test is not None
    assert len(data.train) + len(data.test) == 400
    assert not set(data.train.ids) & set(data.test.ids)
    assert 50 < len(data.test) < 110
    assert 0 < len(data.holdout) < len(data.test)


def test_no_split_when_it_is_off() -> None:
    data = assemble("set", samples([0, 1] * 20), None, ["a", "b"], split=False)
    assert data.test is None
    assert (len(data.train), data.holdout.tolist(), data.holdout.dtype) == (40, [], torch.int64)


def test_mean_and_std_are_those_of_train() -> None:
    bright = samples([0, 1])._replace(images=torch.full((2, 1, 4, 4), 255, dtype=torch.uint8))
    train = samples([0, 1] * 20)
    data = assemble("set", train, bright, ["a", "b"])
    images = next(data.train.batches(40)).images
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std(correction=0).item() == pytest.approx(1, abs=1e-5)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_statistics_against_numpy(count: int, channels: int, seed: int) -> None:
    images = noise((count, channels, 5, 3), seed)
    pixels = statistics(torch.from_numpy(images).split(2))
    np.testing.assert_allclose(pixels.mean, (images / 255).mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(pixels.std, (images / 255).std((0, 2, 3)), rtol=1e-9)


def test_a_constant_channel_is_not_divided_by_zero() -> None:
    assert statistics([torch.full((3, 1, 2, 2), 51, dtype=torch.uint8)]).std == (1.0,)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ([0, 2, 2], "0, 2"),
        ([1, 2, 3], "1, 2, 3"),
        ([0, 1, 2, 3], "0, 1, 2, 3"),
        ([-1, 0, 1, 2], "-1, 0, 1, 2"),
    ],
)
def test_labels_must_be_every_number_up_to_the_classes(labels: list[int], found: str) -> None:
    with pytest.raises(
        BadInput,
        match=rf"labels of set must be 0 to 2 .*found {found}\.",
    ):
        assemble("set", samples(labels), None, ["a", "b", "c"])


def test_a_long_list_of_labels_is_cut() -> None:
    with pytest.raises(BadInput, match=r"found 0, 1, .*, 11 and 8 more"):
        assemble("set", samples(list(range(20))), None, ["a", "b"])


def test_one_class_is_not_enough() -> None:
    with pytest.raises(BadInput, match=r"two classes, .* 1"):
        assemble("set", samples([0, 0]), None, ["a"])


def test_a_class_that_the_split_takes_whole() -> None:
    # The hash of "8" puts it into the test part.
    with pytest.raises(BadInput, match=r" 9 samples .* none .*in class 'rare'"):
        assemble("set", samples([0] * 8 + [1]), None, ["often", "rare"])


def test_ids_must_differ() -> None:
    train = samples([0, 1])._replace(ids=np.array(["x", "x"]))
    with pytest.raises(BadInput, match=r"ids of set must differ .*'x'.* 2 times"):
        assemble("set", train, samples([0, 1]), ["a", "b"])
    with pytest.raises(BadInput, match="test split of set"):
        assemble("set", samples([0, 1]), train, ["a", "b"])


def test_the_test_split_must_fit() -> None:
    with pytest.raises(BadInput, match=r"0 to 1 .* also 7"):
        assemble("set", samples([0, 1]), samples([0, 7]), ["a", "b"])
    with pytest.raises(
        BadInput,
        match=r"\(1, 4, 5\).*\(1, 4, 4\)",
    ):
        assemble("set", samples([0, 1]), samples([0, 1], (1, 4, 5)), ["a", "b"])


def test_classes_may_lack_samples_where_that_is_allowed() -> None:
    train = examples(*samples([0, 2, 2]), Pixels((0.5,), (0.5,)))
    assert finish("set", train, None, ["a", "b", "c"], augment="none", gaps=True).num_classes == 3
    with pytest.raises(
        BadInput,
        match=r"must be 0 to 2 .* renumber them.* For a trained model keep",
    ):
        finish("set", train, None, ["a", "b", "c"], augment="none")
    with pytest.raises(
        BadInput,
        match=r"must be 0 to 1 \(it has 2 classes\); found 0, 2\. Correct the labels",
    ):
        finish("set", train, None, ["a", "b"], augment="none", gaps=True)


def test_a_model_says_how_many_classes_there_are() -> None:
    assert numbered_classes("set", torch.tensor([0, 2]), 4) == ["0", "1", "2", "3"]
    with pytest.raises(BadInput, match="labels go up to 4, so the model needs 5 outputs"):
        numbered_classes("set", torch.tensor([1, 4]), 4)
