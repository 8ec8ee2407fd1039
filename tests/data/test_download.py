import hashlib
import io
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from duck.data.cifar import CIFAR10, CIFAR100
from duck.data.download import Archive, fetch_archive, locate
from duck.data.tiny_imagenet import ARCHIVE
from duck.errors import BadInput
from duck.files import is_temporary
from tests.data.image_files import noise


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def publish(site: tuple[Path, str], content: bytes) -> Archive:
    """Serve an archive of the folder `set`."""
    (site[0] / "archive").write_bytes(content)
    return Archive(f"{site[1]}/archive", hashlib.sha256(content).hexdigest(), "set")


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_is_fetched_and_unpacked(
    site: tuple[Path, str], tmp_path: Path, pack: Any
) -> None:
    big = noise((3_000_000,)).tobytes()
    archive = publish(site, pack({"set/a.txt": b"one", "set/deep/b.bin": big}))
    calls: list[tuple[int, int]] = []
    root = tmp_path / "new" / "root"
    fetch_archive(archive, root, lambda done, total: calls.append((done, total)))
    folder = root / "set"
    assert (folder / "a.txt").read_bytes() == b"one"
    assert (folder / "deep" / "b.bin").read_bytes() == big
    assert [entry.name for entry in root.iterdir()] == ["set"]
    size = (site[0] / "archive").stat().st_size
    assert calls[-1] == (size, size)
    assert len(calls) > 1


def test_a_wrong_sha256_leaves_nothing(site: tuple[Path, str], tmp_path: Path) -> None:
    archive = publish(site, tar_of({"set/a": b"1"}))
    with pytest.raises(BadInput, match=f"is {archive.sha256}, not {'0' * 64}. .*deleted"):
        fetch_archive(archive._replace(sha256="0" * 64), tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


def test_an_interruption_leaves_nothing(site: tuple[Path, str], tmp_path: Path) -> None:
    archive = publish(site, tar_of({"set/a": noise((3_000_000,)).tobytes()}))

    def interrupt(done: int, total: int) -> None:
        assert [is_temporary(entry) for entry in (tmp_path / "root").iterdir()] == [True]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_archive(archive, tmp_path / "root", interrupt)
    assert list((tmp_path / "root").iterdir()) == []


def test_an_address_that_does_not_answer(site: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"/nothing: .*404"):
        fetch_archive(Archive(f"{site[1]}/nothing", "0" * 64, "set"), tmp_path / "root")
    with pytest.raises(BadInput, match=r"http://127\.0\.0\.1:9/x: .*refused"):
        fetch_archive(Archive("http://127.0.0.1:9/x", "0" * 64, "set"), tmp_path / "root")


def test_locate_downloads_only_what_is_missing(site: tuple[Path, str], tmp_path: Path) -> None:
    archive = publish(site, tar_of({"set/a": b"1"}))
    with pytest.raises(
        BadInput, match=rf"No data at .*root/set\. Add --download .* from {archive.url}"
    ):
        locate(archive, ("a",), tmp_path / "root", download=False)
    assert not (tmp_path / "root").exists()
    assert locate(archive, ("a",), tmp_path / "root", download=True) == tmp_path / "root" / "set"
    (site[0] / "archive").unlink()
    assert locate(archive, ("a",), tmp_path / "root", download=True) == tmp_path / "root" / "set"
    with pytest.raises(BadInput, match=r"set is incomplete: b"):
        locate(archive, ("a", "b"), tmp_path / "root", download=True)


def test_published_archives_come_by_https_and_are_pinned_by_sha_256() -> None:
    for archive in (CIFAR10.archive, CIFAR100.archive, ARCHIVE):
        assert archive.url.startswith("https://")
        assert re.fullmatch("[0-9a-f]{64}", archive.sha256)
