"""The only writer of files: whole or not at all, on the disk when it returns, and never over what is not ours; and a safe reader.

`writing`            a file, by any means that takes a path; `write_bytes`, `write_text` and `write_json` are short for it
`replacing`          the files of a folder together; other files in it stay
`temporary_folder`   a folder that is removed at the end, or by the next writer after a kill
`move_folder`        a finished folder of many files
`lock`               one process a run folder
`wait_for_lock`      one process an entry of a cache
`check_replaceable`  an error where a file was written by somebody else
`writing_cache`      what only saves time: a failure is a warning
`read_bytes`, `read_text`, `check_regular`   for files from outside: a named pipe would be waited for without end

What is not finished lies in a hidden folder beside its place, locked by its process. The lock ends with the process, so
that the next writer tells what was left behind from what is in work. Process numbers would not do: in containers they repeat.
"""

import errno
import json
import os
import re
import secrets
import shutil
import socket
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from duck.errors import BadInput
from duck.json_text import to_json

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
"""Not on Windows: nothing is locked there, and what a kill leaves stays."""
TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.writing")
LONGEST = 40
"""Letters of a name that a temporary one repeats: with more it could be too long for the file system."""
REPLACEMENT, CONTENTS = ".replacement", ".contents.json"
LOCK_TEXT = re.compile(rb"(process \d+ on [^\n]*)?")
"""What a lock file of ours holds: nothing where its process was killed before it could write."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""For opening what may be a named pipe, which would wait for somebody to write into it."""
PIPES = re.compile(r"/dev/(stdin|fd/\d+)|/proc/(self|\d+)/fd/\d+")
"""Pipes of the shell, which have a writer: `... | duck ... /dev/stdin` and `<(...)`."""

WRITE_ERRORS = (OSError, SafetensorError)
"""What a file that cannot be written raises."""


class NotOurs(Exception):
    """Something is in the place of a file of ours."""


class CacheWarning(UserWarning):
    """A file that only saves time could not be read or written. The result is the same."""


@contextmanager
def writing(place: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a path to write to; at the end the file there takes its place in one step.

    `private`: only its owner may read it, as for files that hold sample ids; else the mode follows the umask.
    """
    named, place = (
        place,
        Path(os.path.realpath(place)),
    )  # a link stays, and what it points to is replaced
    if place.exists() and not place.is_file() and not place.is_dir():
        raise OSError(errno.EINVAL, "not a regular file", str(named))
    with temporary_folder(place.parent, place.name, private=private) as folder:
        file = folder / place.name
        try:
            yield file
            _settle(file, private)
            os.replace(file, place)
        except OSError as error:
            # Of a full disk the system names no file, and of the temporary one nobody knows.
            if error.errno is None or error.filename not in (None, str(file)):
                raise
            raise OSError(error.errno, error.strerror, str(named)) from error
        _sync(place.parent)


def write_bytes(place: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file in one step."""
    with writing(place, private=private) as file:
        file.write_bytes(content)


def write_text(place: Path, text: str, *, private: bool = False) -> None:
    """Write a file in one step, as UTF-8. What it cannot hold, bytes of file names that are no text, is written as an escape."""
    write_bytes(place, text.encode(errors="backslashreplace"), private=private)


def write_json(place: Path, value: Any, *, indent: int | None = 1, private: bool = False) -> None:
    """Write a JSON file in one step."""
    write_text(place, to_json(value, indent=indent) + "\n", private=private)


def read_bytes(place: Path, *, pipes: bool = False) -> bytes:
    """Read a file. What is not a regular file raises an error, except pipes of the shell where `pipes` says so."""
    with _open_regular(place, pipes) as file:
        return file.read()


def read_text(place: Path, *, encoding: str = "utf-8", pipes: bool = False) -> str:
    """Read a text file; as `read_bytes`."""
    return read_bytes(place, pipes=pipes).decode(encoding)


def check_regular(place: Path) -> None:
    """Raise an error where a file cannot be opened or is not a regular one: for readers that take a path."""
    _open_regular(place, pipes=False).close()


@contextmanager
def temporary_folder(parent: Path, name: str, *, private: bool = False) -> Iterator[Path]:
    """Yield a new hidden folder, which is removed at the end unless it was moved; what killed processes left beside it is removed first."""
    parent.mkdir(parents=True, exist_ok=True)
    remove_stale(parent)
    folder, handle = _new_folder(parent, name, 0o700 if private else 0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def move_folder(source: Path, place: Path) -> None:
    """Move a folder with many files to where nothing is, after they are all on the disk."""
    os.sync()  # one file after another would take minutes
    os.rename(source, place)
    _sync(place.parent)


def remove_stale(folder: Path) -> None:
    """Remove what processes that were killed left half-written in a folder: hidden copies of models that knew the data."""
    try:
        found = [
            Path(entry)
            for entry in os.scandir(folder)
            if entry.is_dir(follow_symlinks=False) and is_temporary(Path(entry))
        ]
    except OSError:
        return
    for path in found:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            try:
                if HAS_LOCKS:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)


def is_temporary(path: Path) -> bool:
    """Whether this is the name of something that is being written."""
    return TEMPORARY.fullmatch(path.name) is not None


@contextmanager
def replacing(folder: Path, ours: Sequence[str]) -> Iterator[Path]:
    """Yield an empty folder to fill; at the end its files are those of `folder`, all or none of them.

    `ours`: the names that we write there, first the record without which the folder counts for nothing. Of these, the ones that are not
    written again are removed. All else in the folder stays. Killed on the way, `finish_replacing` does the rest.
    """
    there = folder.exists()
    if there:
        _check_no_foreign_replacement(folder, ours)
    with temporary_folder(folder if there else folder.parent, folder.name) as new:
        yield new
        for file in new.iterdir():
            _sync(file)
        if not there:
            _sync(new)
            os.rename(new, folder)
            _sync(folder.parent)
            return
        write_json(new / CONTENTS, sorted(file.name for file in new.iterdir()))
        # From here on the new files count: whatever stops this process, the next reader goes on with it.
        os.rename(new, folder / REPLACEMENT)
        _finish(folder, ours)


def finish_replacing(folder: Path, ours: Sequence[str]) -> None:
    """Go on with a replacement whose process was killed; wait for one that is at work. What we did not write there is left alone."""
    try:
        handle = os.open(folder / REPLACEMENT, os.O_RDONLY | NO_LINK | NO_WAIT)
    except OSError:
        return
    try:
        if HAS_LOCKS:
            fcntl.flock(handle, fcntl.LOCK_EX)
        _finish(folder, ours)
    except FileNotFoundError:
        pass  # its own process was quicker
    finally:
        os.close(handle)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep other processes from writing the same run; an error where one does so already."""
    real = Path(os.path.realpath(folder))
    file = real.with_name(f".{real.name}.lock")
    new_folders = [parent for parent in file.parents if not parent.exists()]
    try:
        handle = _acquire(file)
    except BlockingIOError:
        raise BadInput(
            f"{folder} is in use: {_owner(file)} writes it. Wait until it ends, or choose another --out."
        ) from None
    except NotOurs:
        raise BadInput(
            f"{file} was not written by this command, which needs that name: remove it, or choose another --out."
        ) from None
    except (
        OSError
    ):  # a place that cannot be written, or knows no locks: whoever writes there says so
        handle = None
    try:
        yield
    finally:
        _release(file, handle, new_folders)


@contextmanager
def wait_for_lock(folder: Path, name: str) -> Iterator[bool]:
    """Let only one process make an entry of a cache; yield whether this one had to wait.

    On a disk that cannot be written or locked, nothing is locked: work may be done twice.
    """
    file = folder / f".{name}.lock"
    new_folders = [parent for parent in file.parents if not parent.exists()]
    waited = False
    handle = None
    with suppress(Exception):  # a cache must not stop the work
        try:
            handle = _acquire(file)
        except BlockingIOError:
            waited = True
            handle = _acquire(file, wait=True)
    try:
        yield waited
    finally:
        _release(file, handle, new_folders)


def _release(file: Path, handle: int | None, new_folders: Sequence[Path]) -> None:
    """Remove a lock, and the folders made for it that are still empty."""
    if handle is None:
        return
    file.unlink(missing_ok=True)
    os.close(handle)
    with suppress(OSError):  # folders in use are not empty
        for parent in new_folders:
            parent.rmdir()


def check_replaceable(place: Path, mark: bytes) -> None:
    """An error where a file is there that does not hold the mark of what we write."""
    try:
        ours = not place.exists() or (place.is_file() and mark in place.read_bytes())
    except OSError as error:
        raise BadInput(f"{place} cannot be read: {error.strerror}. Choose another name.") from error
    if not ours:
        raise BadInput(
            f"{place} exists and was not written by this command: choose another name, or remove it first."
        )


@contextmanager
def writing_cache(place: Path) -> Iterator[None]:
    """Warn where a file or folder that only saves time cannot be written; the result is not lost."""
    try:
        yield
    except WRITE_ERRORS as error:
        warn(
            f"{place} cannot be written ({reason(error)}): what it would hold is made again the next time."
        )


def warn(message: str) -> None:
    """Warn of a cache that cannot be used."""
    warnings.warn(message, CacheWarning, stacklevel=3)


def reason(error: Exception) -> str:
    """Why a file cannot be read or written, in the system's words where it has some."""
    return str(getattr(error, "strerror", None) or error)


def _new_folder(parent: Path, name: str, mode: int) -> tuple[Path, int]:
    while True:
        folder = parent / f".{name[:LONGEST]}.{secrets.token_hex(8)}.writing"
        folder.mkdir(mode)
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks
            if HAS_LOCKS:
                fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_open(folder, handle):
            return folder, handle
        os.close(handle)  # another writer took it for stale before it was locked


def _is_open(path: Path, handle: int) -> bool:
    """Whether the handle is of what is at the path now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _settle(file: Path, private: bool) -> None:
    """Mode and content. Some libraries make private files whatever the umask: the folder around it knows the umask."""
    file.chmod(0o600 if private else file.parent.stat().st_mode & 0o666)
    _sync(file)


def _sync(path: Path) -> None:
    """On the disk, not only in memory. Some systems cannot do that with folders."""
    folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        if folder:
            return
        raise
    try:
        os.fsync(handle)
    except OSError:
        if not folder:
            raise
    finally:
        os.close(handle)


def _finish(folder: Path, ours: Sequence[str]) -> None:
    new, record = folder / REPLACEMENT, ours[0]
    try:
        names = _replacement_names(new, ours)
    except (
        NotOurs
    ):  # it may come from another person: nothing outside the folder is touched, nor anything in it
        return
    if (new / record).exists():
        # First the old record: it must not be read with new files, nor the new one with old files.
        for name in (record, *(name for name in ours if name not in names)):
            (folder / name).unlink(missing_ok=True)
        for name in names:
            if name != record and (new / name).exists():
                os.replace(new / name, folder / name)
        _sync(folder)
        os.replace(new / record, folder / record)
        _sync(folder)
    shutil.rmtree(new, ignore_errors=True)


def _replacement_names(new: Path, ours: Sequence[str]) -> list[str]:
    """Return the names of the files that a replacement brings, those that were moved already included; `NotOurs` if we did not write it."""
    if not stat.S_ISDIR(new.lstat().st_mode):
        raise NotOurs
    present = {entry.name for entry in os.scandir(new)}
    if not present:  # killed before its last step
        return []
    if any(not stat.S_ISREG((new / name).lstat().st_mode) for name in present):
        raise NotOurs
    try:
        names = json.loads(read_text(new / CONTENTS))
    except FileNotFoundError:
        if new.exists():
            raise NotOurs from None
        raise  # its own process has just finished
    except (ValueError, RecursionError):
        raise NotOurs from None
    # A record comes with every replacement. Paths, and names that we do not write, come with none.
    if (
        not isinstance(names, list)
        or ours[0] not in names
        or any(name not in ours for name in names)
    ):
        raise NotOurs
    if not present - {CONTENTS} <= set(names):
        raise NotOurs
    return names


def _check_no_foreign_replacement(folder: Path, ours: Sequence[str]) -> None:
    with suppress(FileNotFoundError):
        try:
            _replacement_names(folder / REPLACEMENT, ours)
        except NotOurs:
            raise BadInput(
                f"{folder / REPLACEMENT} was not written by this command, which needs that name: remove it, or choose another --out."
            ) from None


def _open_regular(place: Path, pipes: bool) -> IO[bytes]:
    handle = os.open(place, os.O_RDONLY | NO_WAIT)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
        pipe = pipes and stat.S_ISFIFO(mode) and PIPES.fullmatch(str(place)) is not None
        if not pipe and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(place))
        if pipe:
            os.set_blocking(handle, True)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _acquire(file: Path, wait: bool = False) -> int | None:
    if not HAS_LOCKS:
        return None
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(file) and not stat.S_ISREG(_mode(file)):
            raise NotOurs
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | NO_LINK | NO_WAIT, 0o666)
        except FileNotFoundError:
            if file.parent.exists():
                raise
            continue  # another process has just removed the empty folder
        try:
            _check_lock_file(handle)
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except (OSError, NotOurs):
            os.close(handle)
            raise
        if _is_open(file, handle):
            with suppress(OSError):  # a full disk: it is locked all the same
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return handle
        os.close(handle)  # its owner has just removed it


def _mode(file: Path) -> int:
    """Of the file itself, not of what it links to; an ordinary one where it has just been removed."""
    try:
        return file.lstat().st_mode
    except FileNotFoundError:
        return stat.S_IFREG


def _check_lock_file(handle: int) -> None:
    if not LOCK_TEXT.fullmatch(os.pread(handle, 4096, 0)):
        raise NotOurs


def _owner(file: Path) -> str:
    try:
        return read_bytes(file).decode(errors="replace") or "another process"
    except OSError:
        return "another process"
