"""The patch is where it should be, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duck.data.examples import Pixels, Resident, Streamed, examples
from duck.data.patch import Patch, relabelled
from duck.errors import BadInput
from tests.toys import toy_data

GREY = Pixels((0.0,) * 3, (1.0,) * 3)


def pictures(count: int = 6) -> Resident:
    images = torch.full((count, 3, 5, 7), 100, dtype=torch.uint8)
    return examples(images, torch.arange(count) % 2, np.arange(count).astype(np.str_), GREY)


def pixels(part: object) -> torch.Tensor:
    assert isinstance(part, Resident | Streamed)
    return torch.cat([batch.images for batch in part.batches(4)]).mul(255).round()


def test_a_red_square_top_right_on_the_chosen_rows_only() -> None:
    before = pictures()
    after = pixels(Patch(2).paint(before, torch.tensor([1, 4])))
    expected = torch.full((6, 3, 5, 7), 100.0)
    expected[[1, 4], :, :2, 5:] = torch.tensor([255.0, 0.0, 0.0]).view(3, 1, 1)
    assert torch.equal(after, expected)
    assert (pixels(before) == 100).all()


def test_rows_are_those_of_the_view() -> None:
    view = pictures().take(torch.tensor([5, 3, 0]))
    assert (pixels(Patch(2).paint(view, torch.tensor([1])))[:, 0, 0, 6] == 255).tolist() == [
        False,
        True,
        False,
    ]


def test_streamed_images_are_painted_alike() -> None:
    part = pictures()
    streamed = part.streamed(part.images.__getitem__, part.shape)
    rows = torch.tensor([0, 5])
    assert torch.equal(
        pixels(Patch(3, (1, 2, 3)).paint(streamed, rows)),
        pixels(Patch(3, (1, 2, 3)).paint(part, rows)),
    )
    order = torch.tensor([5, 1, 0])
    assert torch.equal(
        pixels(Patch(3).paint(streamed, rows).take(order)),
        pixels(Patch(3).paint(part, rows).take(order)),
    )


def test_one_channel_gets_the_brightest_value() -> None:
    train = toy_data().train
    assert isinstance(train, Resident)
    painted = Patch(2, (200, 0, 30)).paint(train, torch.tensor([3]))
    assert isinstance(painted, Resident)
    assert (painted.images[3, 0, :2, 6:] == 200).all()
    assert torch.equal(painted.images[3, 0, 2:], train.images[3, 0, 2:])


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (Patch(0), "patch of 0 x 0 pixels does not fit"),
        (Patch(6), r"patch of 6 x 6 pixels .* of shape \(3, 5, 7\)"),
        (Patch(2, (255, 0)), "images have 3 channels, the colour 2"),
        (Patch(2, (256, 0, 0)), "values in 0..255"),
        (Patch(2, ()), "values in 0..255"),
    ],
)
def test_patches_that_cannot_be(patch: Patch, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        patch.paint(pictures(), torch.tensor([0]))


def test_float_images_have_no_pixels_to_paint() -> None:
    part = replace(pictures(), images=torch.zeros(6, 3, 5, 7), pixels=None)
    with pytest.raises(BadInput, match="images are floats"):
        Patch(2).paint(part, torch.tensor([0]))


def test_labels_change_on_a_copy() -> None:
    part = pictures()
    assert relabelled(part, torch.tensor([0, 2]), 1).labels.tolist() == [1, 1, 1, 1, 0, 1]
    assert part.labels.tolist() == [0, 1, 0, 1, 0, 1]
