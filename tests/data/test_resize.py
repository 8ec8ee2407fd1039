import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from duck.data.arrays import from_arrays
from duck.data.decode import decode
from duck.data.examples import Pixels, Resident, Streamed, examples
from duck.data.images import evenly_spaced_rows, free_memory, resize, resized
from duck.errors import BadInput
from tests.data.image_files import noise, write_image


def smooth(height: int, width: int) -> npt.NDArray[np.uint8]:
    y, x = np.mgrid[:height, :width]
    return np.stack(
        [y * 255 // height, x * 255 // width, (x + y) * 255 // (height + width)], -1
    ).astype(np.uint8)


@pytest.mark.parametrize(
    ("height", "width", "size"), [(12, 8, 4), (8, 13, 4), (9, 9, 15), (5, 7, 5)]
)
def test_short_side_then_centre_against_pillow(height: int, width: int, size: int) -> None:
    pixels = smooth(height, width)
    scale = size / min(height, width)
    tall, wide = round(height * scale), round(width * scale)
    scaled = np.asarray(
        Image.fromarray(pixels).resize((wide, tall), Image.Resampling.BILINEAR)
    ).astype(int)
    top, left = (tall - size) // 2, (wide - size) // 2
    expected = scaled[top : top + size, left : left + size].transpose(2, 0, 1)
    ours = (
        resize(torch.from_numpy(pixels.transpose(2, 0, 1)).unsqueeze(0), size)[0]
        .numpy()
        .astype(int)
    )
    assert np.abs(ours - expected).max() <= 1


@pytest.mark.parametrize(("height", "width", "size"), [(12, 8, 4), (8, 13, 4), (9, 9, 15)])
def test_a_decoded_file_is_resized_as_an_array_is(
    tmp_path_factory: pytest.TempPathFactory, height: int, width: int, size: int
) -> None:
    pixels = smooth(height, width)
    file = write_image(tmp_path_factory.mktemp("one") / "image.png", pixels)
    array = (
        resize(torch.from_numpy(pixels.transpose(2, 0, 1)).unsqueeze(0), size)[0]
        .numpy()
        .astype(int)
    )
    assert np.abs(decode(file, (3, size, size), size).astype(int) - array).max() <= 1


def test_what_has_no_room_is_resized_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.from_numpy(noise((600, 3, 6, 9)))
    source = examples(
        images, torch.arange(600), np.arange(600).astype(np.str_), Pixels((0.0,) * 3, (1.0,) * 3)
    )
    monkeypatch.setattr("duck.data.images.free_memory", lambda: 2 * 600 * 48)
    held = resized(source, 4)
    monkeypatch.setattr("duck.data.images.free_memory", lambda: 2 * 600 * 48 - 1)
    late = resized(source, 4)
    assert isinstance(held, Resident)
    assert isinstance(late, Streamed)
    assert held.shape == late.shape == (3, 4, 4)
    assert held.fingerprint() == late.fingerprint()
    assert torch.equal(held.images[599], resize(images[599:], 4)[0])


def test_the_right_size_is_left_alone() -> None:
    images = torch.from_numpy(noise((2, 1, 5, 5)))
    source = examples(images, torch.arange(2), np.array(["a", "b"]), Pixels((0.0,), (1.0,)))
    assert resized(source, 5) is source
    assert resized(source, None) is source


def test_only_images_can_be_resized() -> None:
    with pytest.raises(BadInput, match=r"shape \(7,\)"):
        from_arrays(np.zeros((4, 7)), [0, 1, 0, 1], split=False, image_size=4)


def test_spread_and_room() -> None:
    assert evenly_spaced_rows(10, 4).tolist() == [0, 3, 6, 9]
    assert evenly_spaced_rows(3, 4).tolist() == [0, 1, 2]
    assert 2**20 < free_memory() < 2**50
