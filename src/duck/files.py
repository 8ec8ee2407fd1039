"""The only writer of files: atomic, durable, and never over a file of someone else. Safe readers.

An unfinished file is in a hidden folder next to its destination, locked by its process. The system
releases the lock when the process ends, so the next writer can tell abandoned folders from folders
in use. Process ids do not suffice: they repeat in containers.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import stat
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import resources
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from duck.errors import BadInput
from duck.json_text import to_json

TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.writing")
MAX_NAME_LENGTH = 40
"""Characters of a file name that the name of its temporary folder repeats. With more, it could be
too long for the file system."""
REPLACEMENT = ".replacement"
CONTENTS = ".contents.json"
LOCK_TEXT = re.compile(rb"(process \d+ on [^\n]*)?")
"""Content of a lock file. It is empty if the process was killed before it could write."""
PIPES = re.compile(r"/dev/(stdin|fd/\d+)|/proc/(self|\d+)/fd/\d+")
"""Pipes of the shell, which have a writer: `... | duck ... /dev/stdin` and `<(...)`."""

WRITE_ERRORS = (OSError, SafetensorError)
"""Errors of a file that cannot be written."""


class CacheWarning(UserWarning):
    """A file that only saves time could not be read or written. The result is the same."""


@contextmanager
def writing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end, rename the file to `path`.

    private     only the owner may read the file, as for sample ids; else its mode follows the umask
    """
    # A link stays, and its target is replaced.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with temporary_folder(target.parent, target.name, private=private) as folder:
        file = folder / target.name
        try:
            yield file
            # Some libraries create private files whatever the umask is. The folder follows it.
            file.chmod(0o600 if private else folder.stat().st_mode & 0o666)
            _sync(file)
            os.replace(file, target)
        except OSError as error:
            # If the disk is full, the system names no file; users do not know the temporary one.
            if error.errno is None or error.filename not in (None, str(file)):
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error
        _sync(target.parent)


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file atomically."""
    with writing(path, private=private) as file:
        file.write_bytes(content)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a UTF-8 file atomically; bytes of file names that are not valid text are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"), private=private)


def write_json(path: Path, value: Any, *, indent: int | None = 1, private: bool = False) -> None:
    """Write a JSON file atomically."""
    write_text(path, to_json(value, indent=indent) + "\n", private=private)


def append_line(path: Path, line: str) -> None:
    """Append a line in one write, and wait until it is on the disk.

    A killed process may have left half a line: then the new one starts on a line of its own.
    """
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        separator = b"" if file.read() in (b"", b"\n") else b"\n"
        file.write(separator + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_bytes(path: Path, *, pipes: bool = False) -> bytes:
    """Read a regular file or, with `pipes`, a pipe of the shell; anything else is an error."""
    with _open_regular(path, pipes) as file:
        return file.read()


def read_text(path: Path, *, encoding: str = "utf-8", pipes: bool = False) -> str:
    """Read a text file, as `read_bytes` does."""
    return read_bytes(path, pipes=pipes).decode(encoding)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file that a user wrote."""
    try:
        return tomllib.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read as TOML: {error}") from error


def package_text(package: str, name: str) -> str:
    """Return a text file that comes with the package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def package_toml(package: str, name: str) -> dict[str, Any]:
    """Return a TOML file that comes with the package."""
    return tomllib.loads(package_text(package, name))


def check_regular(path: Path) -> None:
    """Raise an error if a file cannot be opened or is not regular, for readers that take a path."""
    _open_regular(path, pipes=False).close()


@contextmanager
def temporary_folder(parent: Path, name: str, *, private: bool = False) -> Iterator[Path]:
    """Yield a new hidden folder, which is removed at the end unless it was moved.

    Folders that killed processes left in the same parent are removed first.
    """
    parent.mkdir(parents=True, exist_ok=True)
    remove_stale(parent)
    folder, handle = _new_folder(parent, name, 0o700 if private else 0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def move_folder(source: Path, path: Path) -> None:
    """Move a folder with many files to a free path, after all of them are on the disk."""
    os.sync()  # to sync one file after another would take minutes
    os.rename(source, path)
    _sync(path.parent)


def remove_stale(folder: Path) -> None:
    """Remove unfinished files of killed processes from a folder.

    They may be copies of models that know samples which were since forgotten.
    """
    try:
        unfinished = [
            Path(entry)
            for entry in os.scandir(folder)
            if entry.is_dir(follow_symlinks=False) and is_temporary(Path(entry))
        ]
    except OSError:
        return
    for path in unfinished:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)


def is_temporary(path: Path) -> bool:
    """Return whether this is the name of a temporary folder."""
    return TEMPORARY.fullmatch(path.name) is not None


@contextmanager
def replacing(folder: Path, run_files: Sequence[str]) -> Iterator[Path]:
    """Yield an empty folder to fill; at the end, move all of its files to `folder`, or none.

    If the process is killed meanwhile, `finish_replacing` completes the move.

    run_files   all names that may be written, first the record that makes the folder a run; those
                that are not written are removed, and other files in the folder stay
    """
    exists = folder.exists()
    with suppress(FileNotFoundError):
        if _replacement_names(folder / REPLACEMENT, run_files) is None:
            raise _name_taken(folder / REPLACEMENT)
    with temporary_folder(folder if exists else folder.parent, folder.name) as new:
        yield new
        for file in new.iterdir():
            _sync(file)
        if not exists:
            _sync(new)
            os.rename(new, folder)
            _sync(folder.parent)
            return
        write_json(new / CONTENTS, sorted(file.name for file in new.iterdir()))
        # This commits the new files: if the process stops later, the next reader completes it.
        os.rename(new, folder / REPLACEMENT)
        _move_replacement(folder, run_files)


def finish_replacing(folder: Path, run_files: Sequence[str]) -> None:
    """Complete a replacement whose process was killed, or wait for one in progress.

    A replacement that this module did not write is ignored.
    """
    try:
        handle = os.open(folder / REPLACEMENT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # its own process has completed it meanwhile
            _move_replacement(folder, run_files)
    finally:
        os.close(handle)


class InUse(BadInput):
    """Another process writes the same folder."""


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep other processes from writing the same run; raise an error if one does so already."""
    real = Path(os.path.realpath(folder))
    file = real.with_name(f".{real.name}.lock")
    new_folders = [parent for parent in file.parents if not parent.exists()]
    try:
        handle = _acquire(file)
    except BlockingIOError:
        raise InUse(
            f"{folder} is in use: {_owner(file)} writes it. Wait until it ends, or choose another "
            "--out."
        ) from None
    except OSError:
        # The folder is not writable or has no locks. An error comes with the first write, if any.
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
    with suppress(OSError, BadInput):  # a cache must not stop the work
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
    """Remove a lock, and the folders made for it: a command that failed leaves no empty ones."""
    if handle is None:
        return
    file.unlink(missing_ok=True)
    os.close(handle)
    with suppress(OSError):  # folders in use are not empty
        for parent in new_folders:
            parent.rmdir()


def check_replaceable(path: Path, mark: bytes) -> None:
    """Raise an error if a file exists that does not contain the mark of our files."""
    try:
        is_replaceable = not path.exists() or (path.is_file() and mark in path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}. Choose another name.") from error
    if not is_replaceable:
        raise BadInput(f"{path} exists and was not written by this command: choose another name.")


@contextmanager
def writing_cache(path: Path) -> Iterator[None]:
    """Warn if a cache cannot be written; the result is not lost."""
    try:
        yield
    except WRITE_ERRORS as error:
        warn(f"{path} cannot be written ({reason(error)}). The next run computes it again.")


def warn(message: str) -> None:
    """Warn of a cache that cannot be used."""
    warnings.warn(message, CacheWarning, stacklevel=3)


def reason(error: Exception) -> str:
    """Return why a file cannot be read or written: the system's text if it has one."""
    return str(getattr(error, "strerror", None) or error)


def _new_folder(parent: Path, name: str, mode: int) -> tuple[Path, int]:
    while True:
        folder = parent / f".{name[:MAX_NAME_LENGTH]}.{secrets.token_hex(8)}.writing"
        folder.mkdir(mode)
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_open(folder, handle):
            return folder, handle
        os.close(handle)  # another writer removed it as stale before it was locked


def _is_open(path: Path, handle: int) -> bool:
    """Return whether the handle is that of the file now at the path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    """Write a file or folder to the disk. Some systems cannot do that with folders."""
    with suppress(OSError) if path.is_dir() else nullcontext():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _move_replacement(folder: Path, run_files: Sequence[str]) -> None:
    new = folder / REPLACEMENT
    record = run_files[0]
    names = _replacement_names(new, run_files)
    if names is None:
        return  # someone else may have planted it: no file is moved or removed
    if (new / record).exists():
        # The old record goes first and the new one comes last: records and files never mix.
        for name in (record, *(name for name in run_files if name not in names)):
            (folder / name).unlink(missing_ok=True)
        for name in names:
            if name != record and (new / name).exists():
                os.replace(new / name, folder / name)
        _sync(folder)
        os.replace(new / record, folder / record)
        _sync(folder)
    shutil.rmtree(new, ignore_errors=True)


def _replacement_names(new: Path, run_files: Sequence[str]) -> list[str] | None:
    """Return the names of all files of a replacement, moved or not; None if it is not ours."""
    try:
        entries = list(os.scandir(new))
    except NotADirectoryError:
        return None
    if new.is_symlink() or not all(entry.is_file(follow_symlinks=False) for entry in entries):
        return None
    if not entries:  # its process was killed before the last step
        return []
    present = {entry.name for entry in entries} - {CONTENTS}
    try:
        names = json.loads(read_text(new / CONTENTS))
    except FileNotFoundError:
        if new.exists():
            return None
        raise  # its own process has just finished
    except (ValueError, RecursionError):
        return None
    # Every replacement has a record, and none has paths or other names.
    is_ours = isinstance(names, list) and run_files[0] in names
    return names if is_ours and all(name in run_files for name in (*names, *present)) else None


def _name_taken(path: Path) -> BadInput:
    return BadInput(
        f"{path} was not written by this command, which needs that name: remove it, or choose "
        "another --out."
    )


def _open_regular(path: Path, pipes: bool) -> IO[bytes]:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        pipe = pipes and stat.S_ISFIFO(mode) and PIPES.fullmatch(str(path)) is not None
        if not pipe and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if pipe:
            os.set_blocking(handle, True)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _acquire(file: Path, wait: bool = False) -> int:
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise _name_taken(file)
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except FileNotFoundError:
            if file.parent.exists():
                raise
            continue  # another process has just removed the empty folder
        try:
            if not LOCK_TEXT.fullmatch(os.pread(handle, 4096, 0)):
                raise _name_taken(file)
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except (OSError, BadInput):
            os.close(handle)
            raise
        if _is_open(file, handle):
            with suppress(OSError):  # if the disk is full, the file is locked all the same
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return handle
        os.close(handle)  # its owner has just removed it


def _owner(file: Path) -> str:
    with suppress(OSError):
        return read_bytes(file).decode(errors="replace") or "another process"
    return "another process"
