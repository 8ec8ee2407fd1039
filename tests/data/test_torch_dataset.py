import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from duck.data.examples import Pixels, Resident, Streamed
from duck.data.torch_dataset import from_dataset
from duck.errors import BadInput
from duck.runtime import seeded
from duck.training import loop
from duck.types import Examples, Recipe
from tests.data.image_files import noise

ROOM = pytest.mark.parametrize("free", [2**40, 0])
"""With and without memory for the images."""


class Made(Dataset[Any]):
    """Items from a function of the index; counts how often each was read."""

    def __init__(self, item: Callable[[int], Any], count: int = 40) -> None:
        self.item, self.reads = item, [0] * count

    def __len__(self) -> int:
        return len(self.reads)

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        return self.item(index)


def features(index: int) -> torch.Tensor:
    return torch.full((3,), float(index))


def test_float_tensors_are_taken_as_they_are() -> None:
    x = torch.randn(20, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    data = from_dataset(TensorDataset(x, torch.arange(20) % 4))
    assert isinstance(data.train, Resident)
    assert torch.equal(next(data.train.batches(20)).images, x)
    assert data.train.labels.tolist() == [row % 4 for row in range(20)]
    assert data.train.ids.tolist() == [str(row) for row in range(20)]
    assert (data.classes, data.augment, data.name) == (("0", "1", "2", "3"), "none", "dataset")


def test_without_a_test_set_nothing_is_split_off() -> None:
    data = from_dataset(Made(lambda index: (features(index), index % 2)))
    assert data.test is None
    assert (len(data.train), len(data.holdout)) == (40, 0)


def test_a_fifth_of_the_test_set_is_held_out() -> None:
    data = from_dataset(
        Made(lambda index: (features(index), index % 2)),
        Made(lambda index: (features(index), index % 2), 20),
    )
    assert data.test is not None
    assert torch.bincount(data.test.labels[data.holdout]).tolist() == [2, 2]


def grey(index: int) -> Image.Image:
    return Image.fromarray(noise((5, 6), index))


def colour(index: int) -> Image.Image:
    return Image.fromarray(noise((5, 6, 3), index))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (colour, lambda index: noise((5, 6, 3), index).transpose(2, 0, 1)),
        (grey, lambda index: noise((5, 6), index)[np.newaxis]),
        (
            lambda index: noise((5, 6, 3), index),
            lambda index: noise((5, 6, 3), index).transpose(2, 0, 1),
        ),
        (lambda index: noise((3, 5, 6), index), lambda index: noise((3, 5, 6), index)),
        (
            lambda index: torch.from_numpy(noise((3, 5, 6), index)),
            lambda index: noise((3, 5, 6), index),
        ),
        (
            lambda index: torch.from_numpy(noise((5, 6), index)),
            lambda index: noise((5, 6), index)[np.newaxis],
        ),
        (lambda index: grey(index) if index % 2 else colour(index), None),
    ],
)
@ROOM
def test_bytes_become_images_with_the_mean_and_std_of_the_data(
    item: Any, expected: Any, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duck.data.images.free_memory", lambda: free)
    data = from_dataset(Made(lambda index: (item(index), index % 2), 10))
    images = next(data.train.batches(10)).images
    torch.testing.assert_close(
        images.mean((0, 2, 3)), torch.zeros(images.shape[1]), rtol=0, atol=1e-5
    )
    torch.testing.assert_close(
        images.std((0, 2, 3), correction=0), torch.ones(images.shape[1]), rtol=0, atol=1e-5
    )
    if expected is not None:
        plain = from_dataset(
            Made(lambda index: (item(index), index % 2), 10),
            pixels=Pixels((0.0,) * len(images[0]), (1.0,) * len(images[0])),
        )
        np.testing.assert_allclose(
            next(plain.train.batches(10)).images[7].numpy() * 255, expected(7), atol=1e-3
        )


def test_the_test_set_is_normalised_as_the_training_set() -> None:
    bright = torch.full((1, 2, 2), 255, dtype=torch.uint8)
    data = from_dataset(
        Made(lambda index: (bright // (1 + index % 2), index % 2)),
        Made(lambda index: (bright, 0), 4),
    )
    assert data.test is not None
    assert next(data.test.batches(4)).images.unique().numel() == 1
    assert next(data.test.batches(4)).images[0, 0, 0, 0].item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "label",
    [
        lambda i: i % 2,
        lambda i: torch.tensor(i % 2),
        lambda i: np.int64(i % 2),
        lambda i: np.array(i % 2),
    ],
    ids=["int", "tensor", "numpy", "array"],
)
def test_labels_of_any_whole_kind(label: Callable[[int], Any]) -> None:
    assert (
        from_dataset(Made(lambda index: (features(index), label(index)))).train.labels.tolist()
        == [0, 1] * 20
    )


@pytest.mark.parametrize(
    ("image", "label"), [("pixel_values", "labels"), ("image", "label"), ("img", "label")]
)
def test_dicts(image: str, label: str) -> None:
    data = from_dataset(Made(lambda index: {"id": "x", image: features(index), label: index % 2}))
    assert torch.equal(
        next(data.train.batches(3)).images, torch.stack([features(index) for index in range(3)])
    )


def test_plain_lists_whole_numbers_and_flat_bytes() -> None:
    as_list = from_dataset([([1.0, 2.0], 0), ([3.0, 4.0], 1)])
    assert next(as_list.train.batches(2)).images.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    tokens = from_dataset([(torch.tensor([5, 6]), 0), (torch.tensor([7, 8]), 1)])
    assert next(tokens.train.batches(2)).images.dtype == torch.int64
    flat = from_dataset(
        [
            (torch.tensor([5, 255], dtype=torch.uint8), 0),
            (torch.tensor([7, 8], dtype=torch.uint8), 1),
        ]
    )
    assert next(flat.train.batches(2)).images.tolist() == [[5.0, 255.0], [7.0, 8.0]]


def test_a_subset_and_class_names() -> None:
    whole = TensorDataset(torch.arange(12).view(6, 2).float(), torch.tensor([0, 1, 2, 0, 1, 2]))
    data = from_dataset(Subset(whole, [1, 3]), classes=["a", "b"])
    assert data.train.labels.tolist() == [1, 0]
    made = Made(lambda index: (features(index), index % 2))
    made.classes = ["cat", "dog"]  # type: ignore[attr-defined]
    assert from_dataset(made).classes == ("cat", "dog")


DRAWS = pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(()).item(), lambda: random.random(), lambda: float(np.random.rand())],  # noqa: NPY002
    ids=["torch", "random", "numpy"],
)


def states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002


def scatter(seed: int) -> None:
    """Global generators as a caller may have left them."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def drawn(examples: Examples, size: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """All images of one pass, by row."""
    batches = list(examples.batches(size, generator))
    return torch.cat([batch.images for batch in batches])[
        torch.cat([batch.rows for batch in batches]).argsort()
    ]


@DRAWS
def test_a_set_that_augments_is_read_again_in_each_epoch(draw: Callable[[], float]) -> None:
    before = states()
    data = from_dataset(Made(lambda index: (features(index) + draw(), index % 2)))
    assert isinstance(data.train, Streamed)
    generator = seeded(0)
    first, second = (drawn(data.train, 8, generator) for _ in range(2))
    assert not (first == second).any()
    assert torch.equal(first[:, 0].floor(), torch.arange(40.0))
    assert len((first[:, 0] % 1).unique()) == 40
    assert states() == before


@DRAWS
def test_what_a_set_draws_depends_on_the_seed_alone(draw: Callable[[], float]) -> None:
    found = []
    for caller in (1, 2):
        scatter(caller)
        data = from_dataset(Made(lambda index: (features(index) + draw(), index % 2)))
        part = data.train.take(torch.arange(39, 9, -1))
        found.append(
            [
                drawn(data.train, 8, seeded(0)),
                drawn(data.train, 8),
                drawn(data.train, 40),
                drawn(part, 7).flip(0),
            ]
        )
        assert data.train.fingerprint() == data.train.fingerprint()
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    # Without a generator a sample is the same in every pass, whichever other samples are read.
    _, look, again, some = found[0]
    assert torch.equal(look, again)
    assert torch.equal(look[10:], some)


def test_the_mean_and_std_of_a_set_that_augments_do_not_depend_on_the_callers_generators() -> None:
    found = []
    for caller in (1, 2):
        scatter(caller)
        data = from_dataset(
            Made(lambda index: (torch.randint(256, (1, 2, 2), dtype=torch.uint8), index % 2))
        )
        assert isinstance(data.train, Streamed)
        found.append(data.train.pixels)
    assert found[0] == found[1]


@DRAWS
@ROOM
def test_same_seed_same_weights_with_a_set_and_a_net_that_both_draw(
    draw: Callable[[], float], free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duck.data.images.free_memory", lambda: free)

    def item(index: int) -> tuple[torch.Tensor, int]:
        return features(index) / 40 + draw(), index % 2

    found = []
    for caller in (1, 2):
        scatter(caller)
        data = from_dataset(Made(item, 200))
        net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        net.load_state_dict(
            {
                name: torch.linspace(-1, 1, value.numel()).view(value.shape)
                for name, value in net.state_dict().items()
            }
        )
        before = states()
        loop.train(net, data.train, Recipe(epochs=4, batch_size=8), seeded(0))
        assert states() == before
        found.append(torch.cat([value.flatten() for value in net.state_dict().values()]))
    assert torch.equal(*found)


def test_an_augmentation_of_few_samples_is_noticed() -> None:
    data = from_dataset(
        Made(
            lambda index: (features(index) + (torch.rand(()) if index % 10 == 3 else 0), index % 2),
            200,
        )
    )
    assert isinstance(data.train, Streamed)


def test_a_set_without_room_is_streamed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(lambda index: (features(index), index % 2))
    monkeypatch.setattr("duck.data.images.free_memory", lambda: 2 * 40 * 12)
    held = from_dataset(made)
    monkeypatch.setattr("duck.data.images.free_memory", lambda: 2 * 40 * 12 - 1)
    late = from_dataset(made)
    assert isinstance(held.train, Resident)
    assert isinstance(late.train, Streamed)
    assert held.train.fingerprint() == late.train.fingerprint()


def test_a_resident_set_is_not_read_again() -> None:
    made = Made(lambda index: (features(index), index % 2))
    data = from_dataset(made)
    reads = list(made.reads)
    list(data.train.batches(8))
    assert made.reads == reads


def test_progress() -> None:
    calls: list[tuple[int, int]] = []
    from_dataset(
        Made(lambda index: (features(index), index % 2), 3),
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(1, 3), (2, 3), (3, 3)]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.zeros(2), 0)])

    def __len__(self) -> int:
        return 1


def at(place: int, special: Any, otherwise: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda index: special if index == place else otherwise(index)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (
            at(33, (torch.zeros(4), 0), lambda i: (features(i), i % 2)),
            r"sample 33 is torch.float32 of shape \(4,\), sample 0 is .* \(3,\)",
        ),
        (
            at(33, (torch.zeros(3).double(), 0), lambda i: (features(i), i % 2)),
            r"sample 33 is torch.float64",
        ),
        (
            at(7, (colour(7), 0), lambda i: (grey(i), i % 2)),
            r"sample 7 is torch.uint8 of shape \(3, 5, 6\)",
        ),
        (
            at(9, (features(9), 0.5), lambda i: (features(i), i % 2)),
            r"sample 9 must have one whole number .* label, got float 0\.5",
        ),
        (
            at(9, (features(9), torch.tensor([1])), lambda i: (features(i), i % 2)),
            r"sample 9 .* label, got Tensor of shape \(1,\)",
        ),
        (
            at(9, (features(9), torch.tensor(1.0)), lambda i: (features(i), i % 2)),
            r"sample 9 must have one whole number",
        ),
        (
            at(9, (features(9), "cat"), lambda i: (features(i), i % 2)),
            r"sample 9 .* label, got str of length 3",
        ),
        (
            at(4, ("text", 0), lambda i: (features(i), i % 2)),
            r"sample 4 must be a tensor, .* 8-bit image, got str",
        ),
        (
            at(4, features(4), lambda i: (features(i), i % 2)),
            r"sample 4 must be a pair .*, got Tensor of shape \(3,\)",
        ),
        (
            lambda i: (i % 2, features(i)),
            r"sample 0 has the wrong order: .* got \(int .*, Tensor of shape \(3,\)\)",
        ),
        (
            lambda i: (i, features(i), i % 2),
            r"expected \(image, label\), got \(int 0, Tensor of shape \(3,\), int 0\)",
        ),
        (lambda i: (torch.tensor(i % 2), features(i)), r"expected \(image, label\)"),
        (
            lambda i: (features(i),),
            r"sample 0 must be a pair \(image, .*, got tuple of length 1",
        ),
        (
            lambda i: {"text": "x", "label": 0},
            r"sample 0 must have one of .*'image'.* it has text, label",
        ),
        (
            lambda i: (Image.new("I;16", (4, 4)), i % 2),
            r"sample 0 must be .* 8-bit image, got Image.*: its pixels have more than 8 bits",
        ),
        (
            lambda i: (features(i), i % 2 + 1),
            r"labels of dataset must be 0 to 2 .* found 1, 2",
        ),
        (
            at(5, (features(5) / 0, 0), lambda i: (features(i), i % 2)),
            r"sample 5 contains NaN or infinite values",
        ),
        (lambda i: (features(i), 0), r"needs at least two classes, .* it has 1"),
    ],
)
def test_a_sample_that_does_not_fit_is_named(item: Callable[[int], Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        from_dataset(Made(item))


def test_sets_that_cannot_be_used() -> None:
    with pytest.raises(BadInput, match=r"\(train\) .* map-style .* Endless"):
        from_dataset(Endless())
    with pytest.raises(BadInput, match=r"dataset \(train\) has no samples"):
        from_dataset([])
    good = Made(lambda index: (features(index), index % 2))
    with pytest.raises(BadInput, match=r"\(test\), sample 2"):
        from_dataset(good, Made(lambda index: (features(index), index if index < 2 else None), 4))
    with pytest.raises(BadInput, match=r"have shape \(2,\)"):
        from_dataset(good, Made(lambda index: (torch.zeros(2), 0)))


@pytest.mark.parametrize(
    "item",
    [
        lambda i: (features(i), i % 2, i),
        lambda i: [features(i), i % 2, "name", {}],
        lambda i: {"pixel_values": features(i), "target": i % 2},
        lambda i: {"image": features(i), "targets": torch.tensor(i % 2), "index": i},
    ],
)
def test_further_elements_and_other_names_of_the_label(item: Callable[[int], Any]) -> None:
    data = from_dataset(Made(item))
    assert torch.equal(
        next(data.train.batches(3)).images, torch.stack([features(i) for i in range(3)])
    )
    assert data.train.labels.tolist() == [i % 2 for i in range(40)]
