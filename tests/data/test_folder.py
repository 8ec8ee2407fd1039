from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from duck.data.examples import Resident, Streamed
from duck.data.folder import load
from duck.errors import BadInput
from tests.data.image_files import noise, write_classes, write_image


def test_class_folders_with_a_test_split(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 8)
    write_classes(tmp_path / "test", 5)
    data = load(tmp_path)
    assert isinstance(data.train, Resident)
    assert isinstance(data.test, Resident)
    assert (data.name, data.classes, data.augment) == (tmp_path.name, ("a", "b", "c"), "crop-flip")
    assert data.train.ids[:2].tolist() == ["train/a/0.png", "train/a/1.png"]
    assert data.train.labels.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert data.test.ids[-1] == "test/c/4.png"
    assert torch.bincount(data.test.labels[data.holdout]).tolist() == [1, 1, 1]
    np.testing.assert_array_equal(
        data.train.images[10].numpy(), noise((6, 6, 3), 1002).transpose(2, 0, 1)
    )


def test_val_stands_for_test(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 3)
    write_classes(tmp_path / "val", 2)
    test = load(tmp_path).test
    assert test is not None
    assert test.ids[0] == "val/a/0.png"


def test_without_a_test_split_by_the_hash_of_the_path(tmp_path: Path) -> None:
    data = load(write_classes(tmp_path / "set", 60))
    assert data.test is not None
    assert len(data.train) + len(data.test) == 180
    assert 15 < len(data.test) < 60
    assert 0 < len(data.holdout) < len(data.test)
    moved = tmp_path / "elsewhere"
    (tmp_path / "set").rename(moved)
    again = load(moved)
    assert again.train.fingerprint() == data.train.fingerprint()
    assert torch.equal(again.holdout, data.holdout)


def test_mean_and_std_come_from_train(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 10)
    write_image(tmp_path / "test" / "a" / "white.png", np.full((6, 6, 3), 255, np.uint8))
    data = load(tmp_path)
    images = next(data.train.batches(100)).images
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(
        images.std((0, 2, 3), correction=0), torch.ones(3), rtol=0, atol=1e-5
    )
    assert isinstance(data.train, Resident)
    assert data.test is not None
    seen = data.train.images.double() / 255
    white = (1 - seen.mean((0, 2, 3))) / seen.std((0, 2, 3), correction=0)
    torch.testing.assert_close(next(data.test.batches(1)).images[0, :, 0, 0], white.float())


def test_what_has_no_room_is_streamed_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_classes(tmp_path / "train", 8)
    write_classes(tmp_path / "test", 3)
    held = load(tmp_path)
    monkeypatch.setattr("duck.data.images.free_memory", lambda: 2 * 24 * 108 - 1)
    late = load(tmp_path)
    assert isinstance(held.train, Resident)
    assert isinstance(late.train, Streamed)
    for one, other in zip(
        held.train.batches(7, torch.Generator().manual_seed(1), "crop-flip"),
        late.train.batches(7, torch.Generator().manual_seed(1), "crop-flip"),
        strict=True,
    ):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.rows, other.rows)
    assert held.train.fingerprint() == late.train.fingerprint()


def test_grey_stays_grey_only_if_all_are(tmp_path: Path) -> None:
    write_classes(tmp_path, 8, (5, 5))
    data = load(tmp_path)
    assert data.train.shape == (1, 5, 5)
    write_image(tmp_path / "a" / "colour.png", noise((5, 5, 3)))
    train = load(tmp_path).train
    assert isinstance(train, Resident)
    assert train.shape == (3, 5, 5)
    grey = train.images[train.ids.tolist().index("b/1.png")]
    assert torch.equal(grey[0], grey[2])


def test_many_file_types_nested_and_hidden(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 2)
    for name in ("x.bmp", "y.WEBP", "deep/er/z.tiff", "p.gif"):
        write_image(tmp_path / "train" / "a" / name, noise((6, 6, 3)))
    (tmp_path / "train" / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / "a" / "._0.png").write_text("not an image either")
    (tmp_path / "train" / ".hidden").mkdir()
    write_image(tmp_path / "test" / "a" / "t.png", noise((6, 6, 3)))
    data = load(tmp_path)
    assert [name.removeprefix("train/a/") for name in data.train.ids.tolist()[:6]] == [
        "0.png",
        "1.png",
        "deep/er/z.tiff",
        "p.gif",
        "x.bmp",
        "y.WEBP",
    ]
    assert data.classes == ("a", "b", "c")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write_classes(tmp_path, 20)
    for number in range(20):
        write_image(tmp_path / "train" / f"{number}.png", noise((6, 6, 3), number))
    assert load(tmp_path).classes == ("a", "b", "c", "train")


def test_a_palette_with_transparency(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 2)
    image = Image.fromarray(noise((6, 6, 3))).convert("P")
    image.save(tmp_path / "train" / "a" / "p.png", transparency=b"\x00\x80\xff")
    write_image(tmp_path / "test" / "a" / "t.png", noise((6, 6, 3)))
    train = load(tmp_path).train
    assert isinstance(train, Resident)
    expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(
        train.images[train.ids.tolist().index("train/a/p.png")].numpy(), expected
    )
    assert load(tmp_path, image_size=3).train.shape == (3, 3, 3)


def test_sizes_that_differ_need_image_size(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 3)
    write_image(tmp_path / "test" / "b" / "wide.png", noise((6, 9, 3)))
    with pytest.raises(
        BadInput,
        match=r"size: .*train/a/0\.png is 6x6, .*test/b/wide\.png is 9x6\. .*--image-size",
    ):
        load(tmp_path)
    data = load(tmp_path, image_size=4)
    assert data.test is not None
    assert data.train.shape == data.test.shape == (3, 4, 4)


def test_the_centre_is_what_stays(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 3, (4, 4, 3))
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = 90
    write_image(tmp_path / "test" / "a" / "wide.png", pixels)
    test = load(tmp_path, image_size=4).test
    assert isinstance(test, Resident)
    assert test.images.unique().tolist() == [90]


@pytest.mark.parametrize("keep", [0, 40, 0.6])
def test_a_damaged_image_is_named(tmp_path: Path, keep: float) -> None:
    write_classes(tmp_path / "train", 3, (30, 30, 3))
    write_classes(tmp_path / "test", 1, (30, 30, 3))
    file = tmp_path / "train" / "b" / "1.png"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else int(keep)])
    with pytest.raises(BadInput, match=r"train/b/1\.png: .* Remove"):
        load(tmp_path)


def test_deep_pixels_are_not_cut_down_in_silence(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 2)
    Image.fromarray(noise((6, 6)).astype(np.uint16) * 200).save(
        tmp_path / "train" / "a" / "deep.png"
    )
    write_classes(tmp_path / "test", 1)
    with pytest.raises(BadInput, match=r"deep\.png: .*8 bits"):
        load(tmp_path)


def test_too_little_to_work_with(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"contains no class folders\. .*<class>"):
        load(tmp_path)
    write_classes(tmp_path, 4, classes="a")
    with pytest.raises(BadInput, match=r"two classes, .* 1"):
        load(tmp_path)
    (tmp_path / "b").mkdir()
    with pytest.raises(BadInput, match=r"class folder .*b contains no images"):
        load(tmp_path)
    write_image(tmp_path / "b" / "9.png", noise((6, 6, 3)))
    with pytest.raises(BadInput, match=r"none to train on .*class 'b'\."):
        load(tmp_path)


def test_a_test_split_that_does_not_fit(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 2)
    (tmp_path / "test").mkdir()
    with pytest.raises(BadInput, match="test contains no class folders"):
        load(tmp_path)
    write_image(tmp_path / "test" / "new" / "0.png", noise((6, 6, 3)))
    with pytest.raises(BadInput, match=r"test/new is a class"):
        load(tmp_path)


def test_progress_counts_the_images(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 4)
    write_classes(tmp_path / "test", 1)
    calls: list[tuple[int, int]] = []
    load(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(12, 12), (3, 3)]


def test_a_model_from_elsewhere_may_know_classes_without_training_images(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", 4, classes="b")
    write_classes(tmp_path / "test", 5, classes="abc")
    (tmp_path / "train" / "d").mkdir()
    data = load(tmp_path, split=False)
    assert data.classes == ("a", "b", "c", "d")
    assert data.train.labels.tolist() == [1] * 4
    assert data.test is not None
    assert data.test.labels.unique().tolist() == [0, 1, 2]
    with pytest.raises(BadInput, match="contains no images"):
        load(tmp_path)
