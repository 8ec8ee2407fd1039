"""Download, verify and unpack official archives; a failure leaves nothing behind."""

import hashlib
import http.client
import tarfile
import urllib.request
import zipfile
from pathlib import Path
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
        fetch_archive(archive, root, progress)
    missing = [name for name in needed if not (folder / name).exists()]
    if missing:
        raise BadInput(
            f"{folder} is incomplete: {missing[0]} is missing. Remove the folder and download it "
            "again with --download."
        )
    return folder


def fetch_archive(archive: Archive, root: Path, progress: ProgressCallback | None = None) -> None:
    """Download a .tar.gz or .zip file, verify it, and unpack its one folder under the root."""
    try:
        with temporary_folder(root, "download") as temporary:
            file = temporary / "archive"
            sha256 = _stream(archive.url, file, progress)
            if sha256 != archive.sha256:
                raise BadInput(
                    f"The download from {archive.url} is damaged or not the official archive: its "
                    f"SHA-256 is {sha256}, not {archive.sha256}. It was deleted; try again."
                )
            content = temporary / "content"
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as packed:
                    packed.extractall(content)
            else:
                with tarfile.open(file) as tar:
                    tar.extractall(content, filter="data")
            move_folder(content / archive.folder, root / archive.folder)
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
