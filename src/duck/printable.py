"""Text from outside, safe to print."""

import unicodedata

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that move the cursor, colour the terminal or turn the direction of writing; and broken file names."""


def printable(text: str) -> str:
    """Return the text with control characters, terminal escapes among them, written as in a Python literal; line ends stay."""
    return text if text.isprintable() else "".join(map(_shown, text))


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: "1 sample", "1,200 samples"."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in HIDDEN:
        return character
    return character.encode("unicode_escape").decode()
