"""Ids of forgotten samples on disk: in one private file of a run; everywhere else a digest stands for them.

Who knows how ids look could find a few of them from a plain digest by trying all. The digests of a run are keyed with a random salt, which
is in the private file alone.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from duck.errors import BadInput
from duck.files import read_text, write_json

FILE = "sample_ids.json"
Lists = dict[str, list[str]]
"""Lists of ids by their digests."""
NO_SALT = ""
"""For what is private itself, and for runs of versions that had no salt."""


def new_salt() -> str:
    """Return a random key for the digests of a run."""
    return secrets.token_hex(32)


def ids_digest(ids: Iterable[str], salt: str) -> str:
    """Tells whether two requests name the same samples, to those who know the salt."""
    text = "\n".join(sorted(ids)).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=16 if salt else 8, key=bytes.fromhex(salt)).hexdigest()


def names_samples(plain: Any) -> bool:
    """Whether plain data hold a request for samples, with or without their ids."""
    if isinstance(plain, Mapping):
        return (plain.get("name") == "samples" and "ids" in plain) or any(
            map(names_samples, plain.values())
        )
    return isinstance(plain, list | tuple) and any(map(names_samples, plain))


def without_ids(plain: Any) -> Any:
    """Plain data with the count alone in place of the ids of each request for samples."""
    if isinstance(plain, Mapping):
        if plain.get("name") == "samples" and isinstance(plain.get("ids"), list | tuple):
            return {**plain, "ids": {"count": len(plain["ids"])}}
        return {key: without_ids(value) for key, value in plain.items()}
    return [without_ids(value) for value in plain] if isinstance(plain, list | tuple) else plain


def hide_ids(plain: Any, salt: str) -> tuple[Any, Lists]:
    """Plain data with a digest and a count in place of the ids of each request for samples; and those ids."""
    if isinstance(plain, Mapping):
        if plain.get("name") == "samples" and isinstance(plain.get("ids"), list | tuple):
            ids = list(plain["ids"])
            digest = ids_digest(ids, salt)
            return {**plain, "ids": {"digest": digest, "count": len(ids)}}, {digest: ids}
        parts = {key: hide_ids(value, salt) for key, value in plain.items()}
        return {key: value for key, (value, _) in parts.items()}, _merged(
            lists for _, lists in parts.values()
        )
    if isinstance(plain, list | tuple):
        items = [hide_ids(value, salt) for value in plain]
        return [value for value, _ in items], _merged(lists for _, lists in items)
    return plain, {}


def restore_ids(plain: Any, folder: Path) -> Any:
    """The inverse, with the ids from the private file of the folder; data that hold their ids come back as they are."""
    if isinstance(plain, Mapping):
        ids = plain.get("ids")
        if plain.get("name") == "samples" and isinstance(ids, Mapping):
            return {**plain, "ids": _read_list(folder / FILE, str(ids.get("digest")))}
        return {key: restore_ids(value, folder) for key, value in plain.items()}
    return [restore_ids(value, folder) for value in plain] if isinstance(plain, list) else plain


def write_ids(lists: Lists, salt: str, folder: Path) -> None:
    """Write the private file; no file where there are no ids."""
    if lists:
        write_json(folder / FILE, {"salt": salt, "ids": lists}, private=True)


def read_salt(folder: Path) -> str:
    """Return the salt of a run; `NO_SALT` where its file of ids cannot be read or has none."""
    try:
        return _read_file(folder / FILE)[0]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return NO_SALT


def _merged(parts: Iterable[Lists]) -> Lists:
    return {digest: ids for lists in parts for digest, ids in lists.items()}


def _read_file(path: Path) -> tuple[str, Lists]:
    held = json.loads(read_text(path))
    if "salt" not in held:  # written by a version that had none
        return NO_SALT, held
    bytes.fromhex(held["salt"])
    return held["salt"], held["ids"]


def _read_list(path: Path, digest: str) -> list[str]:
    try:
        salt, lists = _read_file(path)
        ids = lists[digest]
        if ids_digest(ids, salt) == digest:
            return ids
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it does not hold them"
        raise BadInput(
            f"{path}, which holds the ids of the forgotten samples, cannot be read: {reason}. Copy it beside the run."
        ) from error
    raise BadInput(
        f"{path} was changed: its ids are not those of the run. Copy it from where the run was made."
    )
