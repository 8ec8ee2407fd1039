from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from duck.data.arrays import channels_first, from_arrays, load
from duck.data.examples import Resident
from duck.errors import BadInput
from tests.data.image_files import noise

LABELS = np.array([0, 1] * 20)


def images_of(images: npt.NDArray[Any], **options: Any) -> torch.Tensor:
    train = from_arrays(images, LABELS[: len(images)], split=False, **options).train
    assert isinstance(train, Resident)
    return train.images


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_three_axes_are_grey_images() -> None:
    images = noise((4, 5, 6))
    np.testing.assert_array_equal(images_of(images).numpy(), images[:, np.newaxis])


@pytest.mark.parametrize("shape", [(32, 32, 3), (5, 9, 1), (4, 4, 3), (16, 16, 7)])
def test_channels_last_is_seen_by_the_shorter_axis(shape: tuple[int, ...]) -> None:
    images = noise((4, *shape))
    np.testing.assert_array_equal(images_of(images).numpy(), images.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 5, 9), (3, 4, 4), (3, 8, 3)])
def test_channels_first_is_taken_as_it_is(shape: tuple[int, ...]) -> None:
    images = noise((4, *shape))
    np.testing.assert_array_equal(images_of(images).numpy(), images)


def test_channels_of_one_image_are_found() -> None:
    np.testing.assert_array_equal(
        channels_first(noise((9, 9, 3))), noise((9, 9, 3)).transpose(2, 0, 1)
    )


def test_bytes_are_normalised_and_floats_are_not() -> None:
    floats = np.linspace(-3, 7, 4 * 48).reshape(4, 3, 4, 4)
    data = from_arrays(floats, LABELS[:4], split=False)
    np.testing.assert_allclose(
        next(data.train.batches(4)).images.numpy(), floats.astype(np.float32)
    )
    data = from_arrays(noise((4, 3, 5, 5)), LABELS[:4], split=False)
    assert next(data.train.batches(4)).images.mean().item() == pytest.approx(0, abs=1e-5)


def test_flat_features() -> None:
    data = from_arrays(np.ones((4, 7)), LABELS[:4], split=False)
    assert (data.train.shape, data.classes, data.augment) == ((7,), ("0", "1"), "none")


def test_the_given_array_may_change_afterwards() -> None:
    images = noise((4, 1, 3, 3))
    held = images_of(images)
    images[:] = 0
    np.testing.assert_array_equal(held.numpy(), noise((4, 1, 3, 3)))


def test_an_npz_file_with_everything(tmp_path: Path) -> None:
    file = save(
        tmp_path / "birds.npz",
        images=noise((40, 6, 6, 3)),
        labels=LABELS,
        ids=np.arange(100, 140),
        test_images=noise((10, 6, 6, 3), 1),
        test_labels=LABELS[:10],
        test_ids=np.array([f"t{row}" for row in range(10)]),
        class_names=np.array(["owl", "duck"]),
    )
    data = load(file)
    assert isinstance(data.train, Resident)
    assert data.test is not None
    assert (data.name, data.classes, data.augment) == ("birds", ("owl", "duck"), "none")
    assert data.train.ids[[0, 39]].tolist() == ["100", "139"]
    assert data.test.ids[9] == "t9"
    assert torch.bincount(data.test.labels[data.holdout]).tolist() == [1, 1]
    np.testing.assert_array_equal(
        data.train.images[7].numpy(), noise((40, 6, 6, 3))[7].transpose(2, 0, 1)
    )
    assert load(file, image_size=3).train.shape == (3, 3, 3)


def test_an_npz_file_without_a_test_split_is_split_by_id(tmp_path: Path) -> None:
    data = load(save(tmp_path / "x.npz", images=noise((40, 6, 6)), labels=LABELS))
    assert data.test is not None
    assert sorted(map(int, [*data.train.ids, *data.test.ids])) == list(range(40))
    for ids, rows in ((data.train.ids, data.train.labels), (data.test.ids, data.test.labels)):
        assert rows.tolist() == [int(name) % 2 for name in ids]


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"images": noise((4, 5, 5))}, "has no .*'labels'.* images"),
        (
            {"image": noise((4, 5, 5)), "labels": LABELS[:4]},
            "array 'image'. Did you mean 'images'",
        ),
        ({"images": noise((4, 5, 5)), "labels": LABELS[:3]}, "x has 4 images, 3 labels and 3 ids"),
        (
            {"images": noise((4, 5, 5)), "labels": LABELS[:4], "ids": ["a"]},
            "4 images, 4 labels and 1 ids",
        ),
        ({"images": noise((0, 5, 5)), "labels": LABELS[:0]}, "x has no images"),
        (
            {"images": noise((4, 5, 5)).astype(int), "labels": LABELS[:4]},
            "images of x must be uint8 or float, got int64",
        ),
        (
            {"images": noise((4, 5)), "labels": LABELS[:4]},
            r"shape \(N, H, W\), .* got \(4, 5\)",
        ),
        (
            {"images": np.full((4, 2), np.nan), "labels": LABELS[:4]},
            "images of x .*not finite",
        ),
        (
            {"images": noise((4, 5, 5)), "labels": LABELS[:4] / 2},
            r"labels of x .*got float64 of shape \(4,\)",
        ),
        (
            {"images": noise((4, 5, 5)), "labels": LABELS[:4, None]},
            r"got int64 of shape \(4, 1\)",
        ),
        (
            {"images": noise((4, 5, 5)), "labels": [0, 0, 10**12, 3]},
            r"must be 0 to 1000000000000 .* found 0, 3, 1000000000000",
        ),
        (
            {"images": noise((4, 5, 5)), "labels": LABELS[:4], "class_names": ["a", "b", "c"]},
            "it has 3 classes.; found 0, 1",
        ),
        (
            {"images": noise((4, 5, 5)), "labels": LABELS[:4], "test_images": noise((4, 5, 5))},
            "both test_images and test_labels",
        ),
        (
            {
                "images": noise((4, 5, 5)),
                "labels": LABELS[:4],
                "test_images": noise((2, 5, 5)),
                "test_labels": [0.5, 1],
            },
            "test_labels of x must be",
        ),
        (
            {"images": noise((4, 5, 5)), "labels": np.array([{}, 1, 2, 3], dtype=object)},
            r"Cannot read .*x\.npz: Object arrays",
        ),
    ],
)
def test_what_an_npz_file_may_not_hold(
    tmp_path: Path, arrays: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        load(save(tmp_path / "x.npz", **arrays))


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    whole = save(tmp_path / "y.npz", images=noise((40, 9, 9)), labels=LABELS).read_bytes()
    np.save(tmp_path / "z.npy", noise((3, 3)))
    for content in (b"", b"hello", (tmp_path / "z.npy").read_bytes(), whole[: len(whole) // 2]):
        file.write_bytes(content)
        with pytest.raises(BadInput, match=r"x\.npz is not an \.npz file"):
            load(file)
    file.write_bytes(whole.replace(noise((40, 9, 9)).tobytes()[:50], bytes(50)))
    with pytest.raises(BadInput, match=r"Cannot read .*x\.npz: Bad CRC-32"):
        load(file)


def test_a_model_from_elsewhere_may_know_classes_without_training_samples() -> None:
    images = noise((4, 5, 5))
    labels = np.full(4, 1)
    named = from_arrays(images, labels, class_names=["a", "b", "c"], split=False)
    assert named.classes == ("a", "b", "c")
    tested = from_arrays(images, labels, images, np.array([0, 1, 2, 3]), split=False)
    assert tested.num_classes == 4
    for options in (
        {"class_names": ["a", "b"]},
        {"test_images": images, "test_labels": LABELS[:4]},
    ):
        with pytest.raises(BadInput, match="without gaps"):
            from_arrays(images, labels, **options)
