"""Checks of numbers from a user: finite, not negative, a valid seed."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from duck.errors import BadInput

MAX_SEED = 2**63 - 1


def check_settings(settings: object) -> None:
    """Raise an error for a number of a recipe or method that is negative or not finite."""
    check_numbers(settings)
    for name, value in _numbers(settings):
        if not math.isfinite(value):
            raise BadInput(f"{name} must be a finite number, got {value}.")
        if value < 0:
            raise BadInput(f"{name} must be 0 or more, got {value}.")


def check_numbers(settings: object) -> None:
    """Raise an error for NaN and for a seed out of range, in a dataclass and those inside it."""
    for name, value in _numbers(settings):
        if value != value:  # NaN alone differs from itself
            raise BadInput(f"{name} must be a finite number, got {value}.")
        if name == "seed":
            check_seed(value)


def check_seed(seed: float) -> None:
    """Raise an error for a seed that is negative, or too large for a generator."""
    if not 0 <= seed <= MAX_SEED:
        raise BadInput(f"seed must be a whole number from 0 to 2^63 - 1, got {seed}.")


def _numbers(settings: object) -> Iterator[tuple[str, float]]:
    """Iterate over the numbers of a dataclass and those inside it, with their field names."""
    if not is_dataclass(settings):
        return
    for field in fields(settings):
        value = getattr(settings, field.name)
        yield from _numbers(value)
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, int | float) and not isinstance(item, bool):
                yield field.name, item


def check_model_code(model: str, source: Path | str, trusted: bool) -> None:
    """Raise an error if `source` names model code that the user has neither named nor trusted.

    A model of this package is only a name. "package.module:function" is imported and executed.
    """
    if ":" in model and not trusted:
        raise BadInput(
            f"{source} names the model builder {model!r}, which would be imported and executed. "
            "Look at that code first; if you trust it, add --trust-model-code."
        )
