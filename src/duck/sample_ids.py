"""Ids of forgotten samples on disk: in one private file of a run; everywhere else a digest stands for them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from duck.errors import BadInput
from duck.files import write_json

FILE = "sample_ids.json"
Lists = dict[str, list[str]]
"""Lists of ids by their digests."""


def ids_digest(ids: Iterable[str]) -> str:
    """Tells whether two requests name the same samples without naming them."""
    return hashlib.blake2b("\n".join(sorted(ids)).encode(), digest_size=8).hexdigest()


def hide_ids(plain: Any) -> tuple[Any, Lists]:
    """Plain data with a digest and a count in place of the ids of each request for samples; and those ids."""
    if isinstance(plain, Mapping):
        if plain.get("name") == "samples" and isinstance(plain.get("ids"), list | tuple):
            ids = list(plain["ids"])
            digest = ids_digest(ids)
            return {**plain, "ids": {"digest": digest, "count": len(ids)}}, {digest: ids}
        parts = {key: hide_ids(value) for key, value in plain.items()}
        return {key: value for key, (value, _) in parts.items()}, _merged(lists for _, lists in parts.values())
    if isinstance(plain, list | tuple):
        items = [hide_ids(value) for value in plain]
        return [value for value, _ in items], _merged(lists for _, lists in items)
    return plain, {}


def restore_ids(plain: Any, folder: Path) -> Any:
    """The inverse, with the ids from the private file of the folder; data that hold their ids come back as they are."""
    if isinstance(plain, Mapping):
        ids = plain.get("ids")
        if plain.get("name") == "samples" and isinstance(ids, Mapping):
            return {**plain, "ids": _read(folder / FILE, str(ids.get("digest")))}
        return {key: restore_ids(value, folder) for key, value in plain.items()}
    return [restore_ids(value, folder) for value in plain] if isinstance(plain, list) else plain


def write_ids(lists: Lists, folder: Path) -> None:
    """Write the private file; no file where there are no ids."""
    if lists:
        write_json(folder / FILE, lists, private=True)


def _merged(parts: Iterable[Lists]) -> Lists:
    return {digest: ids for lists in parts for digest, ids in lists.items()}


def _read(path: Path, digest: str) -> list[str]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        ids: list[str] = held[digest]
        if ids_digest(ids) == digest:
            return ids
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "it does not hold them"
        raise BadInput(
            f"{path}, which holds the ids of the forgotten samples, cannot be read: {reason}. Copy it beside the run."
        ) from error
    raise BadInput(f"{path} was changed: its ids are not those of the run. Copy it from where the run was made.")
