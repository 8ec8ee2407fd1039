"""Make text from outside safe to print."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that control the terminal or the direction of writing, and of
bytes in file names that are not valid text."""


def printable(text: str) -> str:
    """Return the text with control characters escaped as in a Python literal, except line ends."""
    return text if text.isprintable() else "".join(map(_escape, text))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 sample", "1,200 samples"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(values: Sequence[object], most: int = 5) -> str:
    """Return the first values, text in quotes, and how many more there are."""
    rest = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(repr, values[:most])) + rest


def path_from_here(path: Path) -> str:
    """Return a path that a command can use in the working folder, and that others may see.

    An absolute path elsewhere could name persons: its last part alone is returned.
    """
    if not path.is_absolute():
        return str(path)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else path.name


def _escape(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in HIDDEN:
        return character
    return character.encode("unicode_escape").decode()
