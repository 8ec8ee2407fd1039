import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from duck.data import DATASETS, load
from duck.errors import BadInput, UnknownName
from tests.data.image_files import noise, write_cifar10, write_cifar100, write_classes


def test_the_names() -> None:
    assert list(DATASETS) == ["digits", "noisy-digits", "cifar10", "cifar100", "tiny-imagenet"]


def test_names_are_looked_up_under_the_root(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100(tmp_path)
    assert load("cifar10", tmp_path).num_classes == 10
    assert load("cifar100", str(tmp_path)).num_classes == 100
    assert load("cifar10", tmp_path, image_size=8).train.shape == (3, 8, 8)
    assert load("digits", tmp_path / "not there").train.device == torch.device("cpu")
    with pytest.raises(BadInput, match=r"tiny-imagenet-200.*--download"):
        load("tiny-imagenet", tmp_path)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classes(tmp_path / "pictures", 20)
    np.savez(tmp_path / "arrays.npz", images=noise((20, 4, 4)), labels=[0, 1] * 10)
    assert load(tmp_path / "pictures").classes == ("a", "b", "c")
    assert load(str(tmp_path / "pictures"), image_size=4).train.shape == (3, 4, 4)
    assert load(str(tmp_path / "arrays.npz"), image_size=2).train.shape == (1, 2, 2)
    monkeypatch.chdir(tmp_path)
    assert load("pictures").name == "pictures"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("~/pictures").name == "pictures"


def test_a_folder_with_the_name_of_a_data_set_needs_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_classes(tmp_path / "digits", 20)
    monkeypatch.chdir(tmp_path)
    assert load("digits").num_classes == 10
    assert load(Path("digits")).num_classes == 3
    assert load("./digits").num_classes == 3


def test_neither_a_name_nor_a_path(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"'cifar-10'\. Did you mean 'cifar10'"):
        load("cifar-10")
    with pytest.raises(BadInput, match=r"nowhere does not exist\. .*digits, cifar10"):
        load(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"gone\.npz does not exist"):
        load("gone.npz")
    (tmp_path / "table.csv").write_text("1,2")
    with pytest.raises(BadInput, match=r"table\.csv.*\.npz"):
        load(tmp_path / "table.csv")


@pytest.mark.parametrize("size", [0, -3])
def test_the_image_size_must_be_positive(size: int) -> None:
    with pytest.raises(BadInput, match=f"1 to 16384, got {size}"):
        load("digits", image_size=size)


def test_listing_the_names_loads_no_torch() -> None:
    code = (
        "import sys; from duck.data import DATASETS; list(DATASETS); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'sklearn', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
