"""Download, verify and unpack official archives; a failure leaves nothing behind."""

import hashlib
import http.client
import tarfile
import urllib.request
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from duck.data.progress import ProgressCallback
from duck.errors import BadInput
from duck.files import move_folder, temporary_folder

BLOCK = 2**20


class Archive(NamedTuple):
    """Where a data set is published, and the folder it unpacks to."""

    url: str
    sha256: str
    folder: str


def locate(
    archive: Archive,
    needed: tuple[str, ...],
    root: Path,
    download: bool,
    progress: ProgressCallback | None = None,
) -> Path:
    """Return the folder of a data set; download it first if it is missing and `download` is set.

    needed      names that must exist in the folder
    """
    folder = root / archive.folder
    if not folder.exists():
        if not download:
            raise BadInput(
                f"No data at {folder}. Add --download to download them from {archive.url}, or give "
                "the parent folder of the data as root."
            )
        fetch_archive(archive.url, archive.sha256, root, progress)
    missing = [name for name in needed if not (folder / name).exists()]
    if missing:
        raise BadInput(
            f"{folder} is incomplete: {missing[0]} is missing. Remove the folder and download it "
            "again with --download."
        )
    return folder


def fetch_archive(
    url: str, sha256: str, root: Path, progress: ProgressCallback | None = None
) -> Path:
    """Download a .tar.gz or .zip file, verify it, and unpack its one folder under the root."""
    try:
        with temporary_folder(root, "download") as temporary:
            file = temporary / "archive"
            content = temporary / "content"
            _verify(url, _stream(url, file, progress), sha256)
            _unpack(url, file, content)
            return _move(url, content, root)
    except PermissionError as error:
        raise BadInput(
            f"Cannot write to {root}: {error.strerror}. Give a root folder that can be written to."
        ) from error


def _stream(url: str, file: Path, progress: ProgressCallback | None) -> str:
    """Download to a file and return its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    try:
        with urllib.request.urlopen(url, timeout=60) as response, file.open("wb") as out:
            total = int(response.headers.get("Content-Length") or 0)
            while block := response.read(BLOCK):
                out.write(block)
                digest.update(block)
                done += len(block)
                if progress:
                    progress(done, max(total, done))
    except (OSError, http.client.HTTPException) as error:
        raise BadInput(f"Could not download {url}: {error}. Check the connection.") from error
    return digest.hexdigest()


def _verify(url: str, found: str, expected: str) -> None:
    if found != expected:
        raise BadInput(
            f"The download from {url} is damaged or not the official archive: its SHA-256 is "
            f"{found}, not {expected}. It was deleted; try again."
        )


def _unpack(url: str, file: Path, target: Path) -> None:
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                _check_names(archive.namelist())
                archive.extractall(target)
        else:
            with tarfile.open(file) as tar:
                tar.extractall(target, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise BadInput(
            f"The archive from {url} cannot be unpacked: {error}. It was deleted."
        ) from error


def _check_names(names: list[str]) -> None:
    for name in names:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{name!r} would be outside of the folder")


def _move(url: str, content: Path, root: Path) -> Path:
    entries = list(content.iterdir())
    if len(entries) != 1 or not entries[0].is_dir():
        names = ", ".join(sorted(entry.name for entry in entries)) or "nothing"
        raise BadInput(
            f"The archive from {url} must contain one folder, it contains {names}. It was deleted."
        )
    target = root / entries[0].name
    if target.exists():
        raise BadInput(f"{target} exists already. Remove it first to download it again.")
    move_folder(entries[0], target)
    return target
