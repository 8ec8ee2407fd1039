from pathlib import Path

import pytest
import torch
from torch import Tensor

from duck.data.cache import cached, user_cache
from duck.files import CacheWarning
from tests.data.image_files import noise


class Maker:
    """Counts how often it had to work."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return torch.from_numpy(noise((5, 2, 3)))


def test_made_once_and_read_back(tmp_path: Path) -> None:
    make = Maker()
    first, second = (cached("x", "key", [tmp_path], make) for _ in range(2))
    assert make.calls == 1
    assert torch.equal(first, second)
    assert torch.equal(second, torch.from_numpy(noise((5, 2, 3))))
    assert [entry.name for entry in tmp_path.iterdir()] == [".x-key.npy"]


def test_what_is_read_back_cannot_change_the_file(tmp_path: Path) -> None:
    make = Maker()
    cached("x", "key", [tmp_path], make)
    cached("x", "key", [tmp_path], make).zero_()
    assert cached("x", "key", [tmp_path], make).sum() > 0


def test_another_key_computes_the_array_again_and_replaces_it(tmp_path: Path) -> None:
    make = Maker()
    for key in ("first", "second", "first"):
        cached("x", key, [tmp_path], make)
    cached("other", "key", [tmp_path], make)
    assert make.calls == 4
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".other-key.npy", ".x-first.npy"]


@pytest.mark.parametrize("keep", [0, 20, -1])
def test_a_truncated_file_is_made_again(tmp_path: Path, keep: int) -> None:
    make = Maker()
    expected = cached("x", "key", [tmp_path], make)
    file = tmp_path / ".x-key.npy"
    file.write_bytes(file.read_bytes()[:keep])
    assert torch.equal(cached("x", "key", [tmp_path], make), expected)
    assert torch.equal(cached("x", "key", [tmp_path], make), expected)
    assert make.calls == 2


def test_where_the_first_folder_cannot_be_written_the_next_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made below a file")
    folders, make = [tmp_path / "file" / "below", tmp_path / "new" / "folder"], Maker()
    for _ in range(2):
        cached("x", "key", folders, make)
    assert make.calls == 1
    assert (folders[1] / ".x-key.npy").exists()


def test_nowhere_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folders = [tmp_path / "file" / "one", tmp_path / "file" / "two"]
    with pytest.warns(
        CacheWarning,
        match=r"cannot be stored in .*one \(Not a directory\) or .*two \(Not a directory\)",
    ):
        found = cached("x", "key", folders, Maker())
    assert torch.equal(found, Maker()())


def test_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert user_cache() == Path("/somewhere/duck-unlearning")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert user_cache() == Path("/home/someone/.cache/duck-unlearning")
