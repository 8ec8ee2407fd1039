import random
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from duck.data import examples as module
from duck.data.examples import Pixels, RandomCrops, Resident, Streamed, examples, prefetch
from duck.errors import BadInput
from duck.types import Augment, Batch

PIXELS = Pixels((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))


def resident(count: int = 37, shape: tuple[int, ...] = (3, 8, 8), seed: int = 0) -> Resident:
    images = torch.randint(
        0, 256, (count, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    return examples(
        images, torch.arange(count) % 5, np.array([f"id{row}" for row in range(count)]), PIXELS
    )


def streamed(source: Resident) -> Streamed:
    return source.streamed(source.images.__getitem__, source.shape)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_same(first: Iterator[Batch], second: Iterator[Batch]) -> None:
    for one, other in zip(first, second, strict=True):
        for left, right in zip(one, other, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=0)


@pytest.mark.parametrize("augment", ["none", "crop", "crop-flip"])
@given(count=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_streamed_gives_the_batches_of_resident(
    augment: Augment, count: int, size: int, seed: int
) -> None:
    source = resident(count)
    assert_same(
        source.batches(size, seeded(seed), augment),
        streamed(source).batches(size, seeded(seed), augment),
    )


@pytest.mark.parametrize("augment", ["none", "crop-flip"])
def test_an_epoch_in_parts_is_the_epoch_at_once(
    augment: Augment, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = resident()
    whole = list(source.batches(5, seeded(), augment))
    monkeypatch.setattr(module, "EPOCH_BYTES", source.images[:11].nbytes)
    assert_same(iter(whole), source.batches(5, seeded(), augment))


def test_in_order_without_a_generator() -> None:
    source = resident()
    for view in (source, streamed(source)):
        batches = list(view.batches(10))
        assert [len(batch.rows) for batch in batches] == [10, 10, 10, 7]
        assert torch.cat([batch.rows for batch in batches]).tolist() == list(range(37))
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (PIXELS.mean, PIXELS.std))
        torch.testing.assert_close(
            torch.cat([batch.images for batch in batches]), (source.images / 255 - mean) / std
        )


@given(count=st.integers(1, 60), size=st.integers(1, 80), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_shuffled_pass_sees_every_sample_in_full_batches(
    count: int, size: int, seed: int
) -> None:
    batches = list(resident(count).batches(size, seeded(seed)))
    rows = torch.cat([batch.rows for batch in batches]).tolist()
    assert {len(batch.rows) for batch in batches} == {min(size, count)}
    assert sorted(rows[:count]) == list(range(count))
    assert rows[count:] == rows[: len(rows) - count]
    assert len(rows) - count < min(size, count)


def test_a_shuffled_pass_is_shuffled() -> None:
    rows = torch.cat([batch.rows for batch in resident().batches(5, seeded())])
    assert rows[:37].tolist() != list(range(37))


@pytest.mark.parametrize("generator", [None, seeded()])
def test_no_samples_make_no_batches(generator: torch.Generator | None) -> None:
    empty = resident().take(torch.empty(0, dtype=torch.int64))
    assert list(empty.batches(4, generator)) == []


def test_take_of_take_composes() -> None:
    source = resident()
    first, second = torch.tensor([9, 3, 30, 3, 7]), torch.tensor([4, 0, 2])
    for view in (source, streamed(source)):
        twice, once = view.take(first).take(second), view.take(first[second])
        assert twice.ids.tolist() == once.ids.tolist() == ["id7", "id9", "id30"]
        assert twice.labels.tolist() == [2, 4, 0]
        assert_same(twice.batches(2), once.batches(2))
        assert twice.fingerprint() == once.fingerprint()


def test_take_copies_no_image() -> None:
    source = resident()
    assert source.take(torch.tensor([1, 2])).images.data_ptr() == source.images.data_ptr()


def test_augmentation_keeps_images_labels_and_rows_together() -> None:
    # An image of one value looks the same under every crop: its value tells which sample it is.
    flat = torch.arange(37, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    source = examples(
        flat, torch.arange(37) * 3, np.arange(37).astype(np.str_), Pixels((0.0,), (1.0,))
    )
    for view in (source, streamed(source)):
        for batch in view.take(torch.arange(36, -1, -1)).batches(8, seeded(), "crop-flip"):
            values = (batch.images * 255).round().long()
            assert torch.equal(values, values[:, :1, :1, :1].expand_as(values))
            assert torch.equal(values[:, 0, 0, 0] * 3, batch.labels)
            assert torch.equal(36 - values[:, 0, 0, 0], batch.rows)


def one_by_one(image: Tensor, down: int, right: int, mirrored: bool) -> npt.NDArray[np.uint8]:
    """A crop of the reflected image, then mirrored."""
    reach = max(abs(down), abs(right))
    padded = np.pad(image.numpy(), ((0, 0), (reach, reach), (reach, reach)), mode="reflect")
    height, width = image.shape[-2:]
    crop = padded[:, reach + down : reach + down + height, reach + right : reach + right + width]
    return crop[..., ::-1] if mirrored else crop


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 17, 9), (2, 64, 4), (2, 4, 64)])
def test_crops_and_mirroring_against_one_image_at_a_time(shape: tuple[int, ...]) -> None:
    images = resident(50, shape).images
    moves = RandomCrops("crop-flip", 50, shape, seeded())
    rows = torch.randperm(50, generator=seeded())
    moved = moves(images, rows[10:40], slice(10, 40))
    for place in range(30):
        down, right = moves.shifts[:, 10 + place].tolist()
        expected = one_by_one(
            images[rows[10 + place]], down, right, bool(moves.mirrored[10 + place])
        )
        np.testing.assert_array_equal(moved[place].numpy(), expected)


def test_moves_reach_an_eighth_and_mirror_half_of_the_images() -> None:
    flips, crops = (
        RandomCrops("crop-flip", 4000, (3, 32, 32), seeded()),
        RandomCrops("crop", 4000, (3, 32, 32), seeded()),
    )
    assert sorted(set(flips.shifts.flatten().tolist())) == list(range(-4, 5))
    assert 0.45 < flips.mirrored.float().mean() < 0.55
    assert not crops.mirrored.any()


def test_global_generators_are_left_alone() -> None:
    source = resident()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    for view in (source, streamed(source)):
        list(view.batches(5, seeded(), "crop-flip"))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # type: ignore[index]  # noqa: NPY002


def test_an_error_while_fetching_is_raised_in_the_caller() -> None:
    source = resident()

    def fetch(rows: Tensor) -> Tensor:
        if 20 in rows:
            raise BadInput("the disk is gone")
        return source.images[rows]

    batches = source.streamed(fetch, source.shape).batches(10)
    assert [next(batches).rows[0].item(), next(batches).rows[0].item()] == [0, 10]
    with pytest.raises(BadInput, match="the disk is gone"):
        next(batches)


def test_leaving_a_pass_early_ends_its_thread() -> None:
    before = threading.active_count()
    batches = streamed(resident()).batches(1)
    next(batches)
    assert threading.active_count() == before + 1
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


@given(st.integers(0, 20), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_ahead_keeps_the_order(count: int, depth: int) -> None:
    assert list(prefetch(lambda start: start * start, range(count), depth)) == [
        start * start for start in range(count)
    ]


def test_the_fingerprint_is_of_ids_labels_and_pixels() -> None:
    source = resident(5)
    images, labels, ids = source.images, source.labels, source.ids
    other_image = images.clone()
    other_image[4, 2, 7, 7] ^= 1
    variants = [
        examples(other_image, labels, ids, PIXELS),
        examples(images, labels + 1, ids, PIXELS),
        examples(images, labels, np.array([*ids[:4], "x"]), PIXELS),
        source.take(torch.tensor([1, 0, 2, 3, 4])),
    ]
    prints = [source.fingerprint(), *(variant.fingerprint() for variant in variants)]
    assert len(set(prints)) == 5
    assert streamed(source).fingerprint() == source.fingerprint()


def test_moving_to_where_it_is_changes_nothing() -> None:
    source = resident()
    assert source.to("cpu") is source
    assert_same(
        source.batches(7, seeded(), "crop"), streamed(source).to("cpu").batches(7, seeded(), "crop")
    )


def test_float_features_pass_through() -> None:
    features = torch.randn(6, 4, generator=seeded())
    source = examples(features, torch.arange(6), np.arange(6).astype(np.str_))
    assert torch.equal(next(source.batches(6)).images, features)
    with pytest.raises(BadInput, match=r"Crops need images .* shape \(4,\)"):
        next(source.batches(2, seeded(), "crop"))


def test_misuse() -> None:
    source = resident()
    with pytest.raises(BadInput, match="at least 1, got 0"):
        next(source.batches(0))
    with pytest.raises(BadInput, match="needs a generator"):
        next(source.batches(4, augment="crop"))
    with pytest.raises(BadInput, match="37 images, 36 labels and 37 ids"):
        examples(source.images, source.labels[:36], source.ids, PIXELS)
    with pytest.raises(BadInput, match="There are no samples"):
        examples(source.images[:0], source.labels[:0], source.ids[:0], PIXELS)
    with pytest.raises(BadInput, match="need a mean and std"):
        examples(source.images, source.labels, source.ids)
