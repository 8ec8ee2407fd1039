import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from duck.data.examples import Resident
from duck.data.tiny_imagenet import ARCHIVE, load
from duck.errors import BadInput
from tests.data.image_files import noise, write_image

WNIDS = ["n03", "n01", "n02"]


def write_tiny(root: Path, per_class: int = 3) -> Path:
    folder = root / "tiny-imagenet-200"
    for label, wnid in enumerate(WNIDS):
        for number in range(per_class):
            pixels = (
                noise((64, 64), number) if number == 0 else noise((64, 64, 3), 10 * label + number)
            )
            write_image(folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", pixels)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("not an image")
    lines = []
    for number in range(6):
        write_image(
            folder / "val" / "images" / f"val_{number}.JPEG", noise((64, 64, 3), 100 + number)
        )
        lines.append(f"val_{number}.JPEG\t{WNIDS[number % 3]}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (folder / "words.txt").write_text(
        "n01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tcrane\nn99\tnothing\n"
    )
    return folder


def caches(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("."))


def test_labels_are_the_places_of_the_sorted_wordnet_ids(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    data = load(tmp_path)
    assert isinstance(data.train, Resident)
    assert isinstance(data.test, Resident)
    assert data.classes == ("goldfish", "crane (n02)", "crane (n03)")
    assert data.train.ids.tolist() == [
        f"{wnid}_{number}.JPEG" for wnid in sorted(WNIDS) for number in range(3)
    ]
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.test.labels.tolist() == [2, 0, 1, 2, 0, 1]
    assert data.test.ids[4] == "val_4.JPEG"
    assert (data.name, data.augment, len(data.holdout)) == ("tiny-imagenet", "crop-flip", 3)
    for row, wnid in ((1, "n01"), (3, "n02")):
        with Image.open(folder / "train" / wnid / "images" / str(data.train.ids[row])) as image:
            np.testing.assert_array_equal(
                data.train.images[row].numpy(), np.asarray(image.convert("RGB")).transpose(2, 0, 1)
            )


def test_images_are_decoded_once(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    calls: list[tuple[int, int]] = []
    first = load(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(9, 9), (6, 6)]
    # Same length, no image any more: it is not looked at again.
    file = folder / "train" / "n01" / "images" / "n01_1.JPEG"
    file.write_bytes(b"x" * file.stat().st_size)
    calls.clear()
    second = load(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == []
    assert second.train.fingerprint() == first.train.fingerprint()


def test_a_change_of_the_files_is_noticed_and_the_old_cache_removed(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    load(tmp_path)
    before = caches(folder)
    write_image(folder / "train" / "n02" / "images" / "n02_9.JPEG", noise((64, 64, 3), 77))
    data = load(tmp_path)
    after = caches(folder)
    assert data.train.ids[6] == "n02_9.JPEG"
    assert len(data.train) == 10
    assert len(before) == len(after) == 2
    assert len(set(before) & set(after)) == 1
    write_image(folder / "val" / "images" / "val_0.JPEG", np.zeros((64, 64, 3), np.uint8))
    test = load(tmp_path).test
    assert isinstance(test, Resident)
    assert test.images[0].sum() == 0


def test_an_interruption_leaves_no_cache(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(tmp_path, progress=interrupt)
    assert caches(folder) == []


def test_without_words_the_wordnet_ids_are_the_names(tmp_path: Path) -> None:
    (write_tiny(tmp_path) / "words.txt").unlink()
    assert load(tmp_path).classes == ("n01", "n02", "n03")


def test_a_damaged_or_odd_image_is_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    file = folder / "train" / "n02" / "images" / "n02_1.JPEG"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"n02_1\.JPEG: .*truncated"):
        load(tmp_path)
    write_image(file, noise((64, 60, 3)))
    with pytest.raises(BadInput, match=r"n02_1\.JPEG .*\(3, 64, 60\), .*\(3, 64, 64\)"):
        load(tmp_path)


@pytest.mark.parametrize(
    "line", ["val_77.JPEG\tn01\t0\t0\t1\t1", "val_0.JPEG\tn77\t0\t0\t1\t1", "nonsense", ""]
)
def test_a_wrong_annotation_is_named(tmp_path: Path, line: str) -> None:
    table = write_tiny(tmp_path) / "val" / "val_annotations.txt"
    table.write_text(f"val_1.JPEG\tn01\t0\t0\t1\t1\n{line}\nval_2.JPEG\tn01\t0\t0\t1\t1\n")
    with pytest.raises(BadInput, match=r"val_annotations\.txt, line 2"):
        load(tmp_path)


def test_a_missing_class_folder_is_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    os.rename(folder / "train" / "n02", folder / "train" / "elsewhere")
    with pytest.raises(BadInput, match=r"tiny-imagenet must be 0 to 2 without gaps"):
        load(tmp_path)


def test_missing_data_and_download(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"tiny-imagenet-200.*--download"):
        load(tmp_path / "root")
    folder = write_tiny(tmp_path / "made")
    file = tmp_path / "tiny.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder.parent))
    source = ARCHIVE._replace(
        url=file.as_uri(), sha256=hashlib.sha256(file.read_bytes()).hexdigest()
    )
    assert len(load(tmp_path / "root", download=True, archive=source).train) == 9
    (tmp_path / "root" / "tiny-imagenet-200" / "val" / "val_annotations.txt").unlink()
    with pytest.raises(BadInput, match="is incomplete: val/val_annotations"):
        load(tmp_path / "root")


def test_resized_on_top_of_the_cache(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    assert load(tmp_path, image_size=32).train.shape == (3, 32, 32)
