"""Ids of forgotten samples on disk: one private file of a run has them, other files have digests.

Someone who knows what ids look like could guess some from a plain digest by trying all of them. So
the digests of a run are keyed with a random salt, and only the private file contains it.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from duck.errors import BadInput
from duck.files import write_json
from duck.records import InvalidRecord, read_record

FILE = "sample_ids.json"
Lists = dict[str, list[str]]
"""Lists of ids by their digests."""
NO_SALT = ""
"""For files that are private themselves, and for runs without sample ids."""


def new_salt() -> str:
    """Return a random key for the digests of a run."""
    return secrets.token_hex(32)


def ids_digest(ids: Iterable[str], salt: str) -> str:
    """Return a digest of ids, in any order, that can be compared by those who know the salt."""
    text = "\n".join(sorted(ids)).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=16 if salt else 8, key=bytes.fromhex(salt)).hexdigest()


def names_samples(plain: Any) -> bool:
    """Return whether plain data contain a request for samples, with or without their ids."""
    if isinstance(plain, Mapping):
        is_request = plain.get("name") == "samples" and "ids" in plain
        return is_request or any(map(names_samples, plain.values()))
    return isinstance(plain, list | tuple) and any(map(names_samples, plain))


def without_ids(plain: Any) -> Any:
    """Return plain data in which each list of sample ids is replaced by its length."""
    return _replace_ids(plain, lambda ids: {"count": len(ids)})


def remove_ids(plain: Any) -> Any:
    """Return plain data in which each list of sample ids, hidden or not, is empty."""
    return _replace_ids(plain, lambda ids: [], Mapping | list | tuple)


def hide_ids(plain: Any, salt: str) -> tuple[Any, Lists]:
    """Replace each list of sample ids in plain data by a digest and a count.

    Return the result and the lists.
    """
    lists: Lists = {}

    def hide(ids: Sequence[str]) -> dict[str, Any]:
        digest = ids_digest(ids, salt)
        lists[digest] = list(ids)
        return {"digest": digest, "count": len(ids)}

    return _replace_ids(plain, hide), lists


def restore_ids(plain: Any, folder: Path) -> Any:
    """Undo `hide_ids` with the private file of a folder; data with their ids do not change."""

    def restore(hidden: Mapping[str, Any]) -> list[str]:
        return _read_list(folder / FILE, str(hidden.get("digest")))

    return _replace_ids(plain, restore, Mapping)


def _replace_ids(plain: Any, replace: Callable[[Any], Any], kind: Any = list | tuple) -> Any:
    """Return plain data in which the ids of each request are replaced, if they are of the kind."""
    if isinstance(plain, Mapping):
        if plain.get("name") == "samples" and isinstance(plain.get("ids"), kind):
            return {**plain, "ids": replace(plain["ids"])}
        return {key: _replace_ids(value, replace, kind) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_replace_ids(value, replace, kind) for value in plain]
    return plain


@dataclass(frozen=True)
class PrivateIds:
    """The content of the private file."""

    salt: str
    ids: Lists

    def __post_init__(self) -> None:
        bytes.fromhex(self.salt)


def write_ids(lists: Lists, salt: str, folder: Path) -> None:
    """Write the private file, unless there are no ids."""
    if lists:
        write_json(folder / FILE, asdict(PrivateIds(salt, lists)), private=True)


def read_salt(folder: Path) -> str:
    """Return the salt of a run, or `NO_SALT` if its file of ids cannot be read."""
    try:
        return read_record(folder / FILE, PrivateIds).salt
    except InvalidRecord:
        return NO_SALT


def _read_list(path: Path, digest: str) -> list[str]:
    try:
        content = read_record(path, PrivateIds)
    except InvalidRecord as error:
        raise BadInput(
            f"{path}, the file with the ids of the forgotten samples, is needed: {error}. "
            "Copy it into the folder of the run."
        ) from error
    ids = content.ids.get(digest)
    if ids is None or ids_digest(ids, content.salt) != digest:
        raise BadInput(
            f"{path} was changed: its ids are not those of the run. Copy it again from the "
            "original folder of the run."
        )
    return ids
