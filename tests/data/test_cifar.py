import builtins
import hashlib
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from duck.data.cifar import CIFAR10, CIFAR100, load, read_pickle
from duck.data.examples import Resident
from duck.errors import BadInput
from tests.data.image_files import (
    noise,
    python2_pickle,
    write_cifar10,
    write_cifar100,
    write_pickle,
)


def test_cifar10_in_official_order_with_the_index_as_id(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    data = load(CIFAR10, tmp_path)
    assert isinstance(data.train, Resident)
    assert isinstance(data.test, Resident)
    assert (data.name, data.augment, data.classes[3]) == ("cifar10", "crop-flip", "class 3")
    assert data.train.images.shape == (100, 3, 32, 32)
    assert data.train.ids.tolist() == [str(row) for row in range(100)]
    assert data.train.labels.tolist() == [row % 10 for row in range(100)]
    np.testing.assert_array_equal(
        data.train.images[45].numpy().reshape(-1), noise((20, 3072), 2)[5]
    )
    np.testing.assert_array_equal(data.test.images[7].numpy().reshape(-1), noise((20, 3072), 5)[7])
    assert torch.bincount(data.test.labels[data.holdout]).tolist() == [1] * 10


def test_red_is_the_first_plane_and_rows_run_downwards(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    rows = np.zeros((10, 3072), dtype=np.uint8)
    rows[0, 1024 + 2 * 32 + 5] = 200
    write_pickle(folder / "test_batch", {b"data": rows, b"labels": list(range(10))})
    test = load(CIFAR10, tmp_path).test
    assert isinstance(test, Resident)
    assert test.images[0, 1, 2, 5] == 200
    assert test.images.sum() == 200


def test_official_files_of_python_2(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    for part in range(1, 6):
        names = [f"photo_s_{part}_{row}.png".encode() for row in range(20)]
        (folder / f"data_batch_{part}").write_bytes(
            python2_pickle(noise((20, 3072), part), [row % 10 for row in range(20)], names)
        )
    train = load(CIFAR10, tmp_path).train
    assert isinstance(train, Resident)
    assert train.ids[[0, 25, 99]].tolist() == [
        "photo_s_1_0.png",
        "photo_s_2_5.png",
        "photo_s_5_19.png",
    ]
    np.testing.assert_array_equal(train.images[25].numpy().reshape(-1), noise((20, 3072), 2)[5])


def test_names_in_some_files_only_are_not_used(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    names = [b"name"] * 20
    (folder / "data_batch_2").write_bytes(
        python2_pickle(noise((20, 3072)), [row % 10 for row in range(20)], names)
    )
    assert load(CIFAR10, tmp_path).train.ids.tolist() == [str(row) for row in range(100)]


def test_cifar100_has_fine_labels_and_file_names(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    data = load(CIFAR100, tmp_path)
    assert data.num_classes == 100
    assert data.train.labels.tolist() == list(range(100))
    assert data.train.ids[:2].tolist() == ["train_0.png", "train_1.png"]


def test_a_name_that_two_images_share_gets_its_class_or_a_number(tmp_path: Path) -> None:
    names = ["same.png", "same.png", *(f"{row}.png" for row in range(2, 100))]
    folder = write_cifar100(tmp_path, names)
    assert load(CIFAR100, tmp_path).train.ids[:3].tolist() == [
        "class 0/same.png",
        "class 1/same.png",
        "2.png",
    ]
    content = {
        b"data": noise((101, 3072)),
        b"fine_labels": [*range(100), 0],
        b"filenames": [*(n.encode() for n in names), b"same.png"],
    }
    write_pickle(folder / "train", content)
    assert load(CIFAR100, tmp_path).train.ids[[0, 1, 100]].tolist() == [
        "class 0/same.png",
        "class 1/same.png",
        "class 0/same.png#2",
    ]


@pytest.mark.parametrize("protocol", [4, 5])
def test_arrays_are_read_from_newer_pickles(tmp_path: Path, protocol: int) -> None:
    file = write_pickle(tmp_path / "file", {b"data": noise((2, 3))}, protocol)
    np.testing.assert_array_equal(read_pickle(file)["data"], noise((2, 3)))


class Attack:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
def test_no_code_in_a_pickle_is_run(tmp_path: Path, protocol: int) -> None:
    folder, victim = write_cifar10(tmp_path), tmp_path / "made by the attack"
    write_pickle(
        folder / "data_batch_4", {"data": Attack(os.mkdir, str(victim)), "labels": []}, protocol
    )
    with pytest.raises(BadInput, match=r"Cannot read .*data_batch_4: it refers to posix\.mkdir"):
        load(CIFAR10, tmp_path)
    assert not victim.exists()


@pytest.mark.parametrize("function", [builtins.eval, builtins.getattr, np.load, pickle.loads])
def test_neither_builtins_nor_other_numpy_functions_are_allowed(
    tmp_path: Path, function: object
) -> None:
    file = write_pickle(tmp_path / "file", {b"data": Attack(function, "1")})
    with pytest.raises(BadInput, match="which no CIFAR file needs"):
        read_pickle(file)


@pytest.mark.parametrize("keep", [0, 10, 30_000, -1])
def test_a_file_cut_short_is_named(tmp_path: Path, keep: int) -> None:
    file = write_cifar10(tmp_path) / "data_batch_3"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(BadInput, match=r"Cannot read .*data_batch_3: .* --download"):
        load(CIFAR10, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {b"labels": [0]},
        {b"data": noise((1, 3072))},
        {b"data": noise((2, 3072)), b"labels": [0]},
        {b"data": noise((1, 100)), b"labels": [0]},
        {b"data": noise((1, 3072)).astype(float), b"labels": [0]},
        {b"data": noise((1, 3072)), b"labels": [0], b"filenames": [b"a", b"b"]},
        {b"data": noise((1, 3072)), b"labels": [10]},
        {b"data": noise((1, 3072)), b"labels": [0.5]},
    ],
)
def test_a_file_of_something_else_is_named(tmp_path: Path, content: object) -> None:
    write_pickle(write_cifar10(tmp_path) / "test_batch", content)
    with pytest.raises(BadInput, match="test_batch is not a CIFAR file"):
        load(CIFAR10, tmp_path)


def test_a_wrong_number_of_class_names(tmp_path: Path) -> None:
    write_pickle(write_cifar10(tmp_path) / "batches.meta", {b"label_names": [b"a", b"b"]})
    with pytest.raises(BadInput, match=r"batches\.meta does not name 10 classes"):
        load(CIFAR10, tmp_path)


def test_missing_data_say_where_they_were_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput,
        match=r"No data at .*cifar-100-python\. Add --download .* https://www.cs.toronto.edu",
    ):
        load(CIFAR100, tmp_path)


@pytest.mark.parametrize("download", [False, True])
def test_an_incomplete_folder_is_not_overwritten(tmp_path: Path, download: bool) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "data_batch_5").unlink()
    with pytest.raises(BadInput, match=r"cifar-10-batches-py.*data_batch_5"):
        load(CIFAR10, tmp_path, download=download)


def test_download_fetches_and_unpacks(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "made")
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    # A file address is enough here; the network is in the tests of the download.
    sha256 = hashlib.sha256((tmp_path / "cifar.tar.gz").read_bytes()).hexdigest()
    archive = CIFAR10.archive._replace(url=(tmp_path / "cifar.tar.gz").as_uri(), sha256=sha256)
    data = load(CIFAR10._replace(archive=archive), tmp_path / "root", download=True)
    assert len(data.train) == 100
    assert [entry.name for entry in (tmp_path / "root").iterdir()] == ["cifar-10-batches-py"]
