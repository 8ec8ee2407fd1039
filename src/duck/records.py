"""Records on disk: dataclasses that cattrs reads and writes. Errors name the first wrong field.

The types below are annotations for the fields of records. A type checker sees the plain type; a
record that is read is also checked for the range of its values. Messages do not repeat the values.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import cattrs
from cattrs.cols import (
    homogenous_tuple_structure_factory,
    list_structure_factory,
    mapping_structure_factory,
)
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn

from duck.errors import BadInput, DuckError
from duck.files import read_text
from duck.registry import registered_name, suggest

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]
MAX_NUMBER = 1e100
"""Larger numbers are damage: their squares overflow."""
ROUNDING = 1e-9


class InvalidRecord(ValueError):
    """A stored value that is not what it should be."""


@dataclass(frozen=True)
class Rule:
    """What a value must be: in words for messages, and as a function."""

    words: str
    accepts: Callable[[Any], bool]
    null: float | None = None
    """The value that null stands for, if null is accepted."""

    def check(self, value: Any, _: Any = None) -> Any:
        """Return the value, or raise an error."""
        if value is None and self.null is not None:
            return self.null
        if not self.accepts(value):
            raise InvalidRecord(f"is {_kind(value)}, not {self.words}")
        return value


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -MAX_NUMBER < value < MAX_NUMBER


def _is_date(value: Any) -> bool:
    try:
        datetime.fromisoformat(value or "2026-11-15")
    except (ValueError, TypeError):
        return False
    return type(value) is str


Share = Annotated[
    float,
    Rule(
        "a share between 0 and 1",
        lambda value: _is_finite(value) and -ROUNDING <= value <= 1 + ROUNDING,
    ),
]
Count = Annotated[
    int, Rule("a count", lambda value: type(value) is int and 0 <= value < MAX_NUMBER)
]
Bits = Annotated[
    str,
    Rule(
        "hexadecimal digits in pairs",
        lambda value: type(value) is str and re.fullmatch(r"([0-9a-f]{2})*", value) is not None,
    ),
]
"""Yes or no for each sample of a set, in order."""
Loss = Annotated[float, Rule("a number", lambda value: type(value) in (int, float), math.nan)]
"""The loss of a model, which may have diverged. JSON stores NaN and infinity as null."""
Measured = Annotated[
    float,
    Rule("a number", lambda value: _is_finite(value) or value in (math.inf, -math.inf), math.nan),
]
"""A number that may be infinite. JSON stores infinity as null, which is read as NaN."""
Label = Annotated[str | int, Rule("a class", lambda value: type(value) in (str, int))]
"""A class: its name or its index."""
ClassIndex = Annotated[
    str,
    Rule(
        "the index of a class",
        lambda value: type(value) is str and value.isascii() and value.isdigit(),
    ),
]
"""A class as the key of a JSON object."""
Date = Annotated[str, Rule("a date", _is_date)]
"""A date, or empty if it is unknown."""

RULES: dict[Any, Rule] = {
    str: Rule("text", lambda value: type(value) is str),
    bool: Rule("true or false", lambda value: type(value) is bool),
    int: Rule("a whole number", lambda value: type(value) is int),
    float: Rule("a number", _is_finite),
}
OBJECT = Rule("an object", lambda value: isinstance(value, dict))
LIST = Rule("a list", lambda value: isinstance(value, list | tuple))


def build_converter(forbid_extra_keys: bool = False) -> cattrs.Converter:
    """Return a converter that checks values and does not convert them: "1" is not 1.

    By default keys that a dataclass does not have are ignored, as files of other versions may have
    them.
    """
    converter = cattrs.Converter(forbid_extra_keys=forbid_extra_keys)
    for kind, rule in RULES.items():
        converter.register_structure_hook(kind, rule.check)
    hooks: list[tuple[Callable[[Any], bool], Callable[[Any], Hook]]] = [
        (lambda kind: _rule_of(kind) is not None, lambda kind: cast(Rule, _rule_of(kind)).check),
        (lambda kind: get_origin(kind) is Literal, _literal_hook),
        (
            lambda kind: get_origin(kind) in (list, tuple),
            lambda kind: _sequence_hook(kind, converter),
        ),
        (
            lambda kind: get_origin(kind) in (dict, Mapping),
            lambda kind: _checked(OBJECT, mapping_structure_factory(kind, converter)),
        ),
        (
            dataclasses.is_dataclass,
            lambda kind: _checked(OBJECT, make_dict_structure_fn(kind, converter)),
        ),
    ]
    for is_kind, hook_of in hooks:
        converter.register_structure_hook_factory(is_kind, hook_of)
    return converter


def structure(plain: Any, cls: type[T], converter: cattrs.Converter | None = None) -> T:
    """Convert plain data to a record, or raise an error that names the first wrong field."""
    try:
        return (converter or CONVERTER).structure(plain, cls)
    except (cattrs.BaseValidationError, InvalidRecord) as error:
        raise InvalidRecord(_explain(error)) from error


def structure_input(plain: Any, cls: type[T], converter: cattrs.Converter | None = None) -> T:
    """Convert what a user wrote like `structure`, but an unknown key is an error, too."""
    try:
        return structure(plain, cls, converter or INPUT_CONVERTER)
    except InvalidRecord as error:
        message = str(error)
        raise BadInput(message if message.endswith((".", "?")) else f"{message}.") from error


def to_plain(record: Any) -> dict[str, Any]:
    """Return a record as plain data for JSON."""
    plain: dict[str, Any] = CONVERTER.unstructure(record)
    return plain


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return json.loads(read_text(path))
    except OSError as error:
        raise InvalidRecord(f"it cannot be opened: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"it is not complete JSON: {error}") from error


def read_record(path: Path, cls: type[T]) -> T:
    """Read a record from a JSON file."""
    return structure(read_json(path), cls)


def check_equal_lengths(record: Any, *names: str) -> None:
    """Raise an error if these lists of a record have different lengths."""
    if len({len(getattr(record, name)) for name in names}) > 1:
        raise InvalidRecord(f"has {', '.join(names)} of different lengths")


def _rule_of(kind: Any) -> Rule | None:
    """Return the rule of a type: its annotation, or the rule of a plain type."""
    if get_origin(kind) is Annotated:
        return next((extra for extra in get_args(kind)[1:] if isinstance(extra, Rule)), None)
    return RULES.get(kind) if isinstance(kind, type) else None


def _checked(rule: Rule, hook: Hook) -> Hook:
    return lambda value, kind: hook(rule.check(value), kind)


def _literal_hook(kind: Any) -> Hook:
    known = get_args(kind)
    return Rule(f"one of {', '.join(map(str, known))}", lambda value: value in known).check


def _sequence_hook(kind: Any, converter: cattrs.Converter) -> Hook:
    is_list = get_origin(kind) is list
    factory = list_structure_factory if is_list else homogenous_tuple_structure_factory
    by_item = _checked(LIST, factory(kind, converter))
    rule = _rule_of(get_args(kind)[0])
    if rule is None or not is_list:
        return by_item

    def hook(value: Any, _: Any) -> Any:
        # One pass is fast enough for every point of a map; only an error needs the index.
        if isinstance(value, list) and all(map(rule.accepts, value)):
            return value
        return by_item(value, kind)

    return hook


def _explain(error: BaseException) -> str:
    """Return the first problem of an error of a converter, in one line."""
    place, problem = _first_problem(error)
    if isinstance(problem, ForbiddenExtraKeysError):
        wrong = sorted(problem.extra_fields)[0]
        known = [field.name for field in dataclasses.fields(problem.cl)]
        owner = registered_name(problem.cl)
        return f"{owner} has no setting {wrong!r}. {suggest(wrong, known)}"
    if isinstance(problem, DuckError):
        return f"{place}: {problem}" if place else str(problem)
    if type(problem) is KeyError:
        return f"{place} is missing"
    is_known = isinstance(problem, InvalidRecord)
    return f"{place or 'it'} {problem if is_known else f'is not valid: {problem}'}"


def _first_problem(error: BaseException, place: str = "") -> tuple[str, BaseException]:
    """Return the first error inside an error, and the place of its field."""
    if not isinstance(error, cattrs.BaseValidationError):
        return place.removeprefix("."), error
    # A misspelt key is both unknown and missing: the message about the unknown key is clearer.
    inner = min(error.exceptions, key=lambda part: not isinstance(part, ForbiddenExtraKeysError))
    for note in getattr(inner, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            place += f".{note.name}"
        elif isinstance(note, IterableValidationNote):
            place += f"[{note.index}]" if isinstance(note.index, int) else f".{note.index}"
    return _first_problem(inner, place)


def _kind(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    if value is None:
        return "null"
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return kinds.get(type(value), "a number")


@dataclass(frozen=True)
class Environment:
    """Versions and hardware that a result may depend on."""

    python: str
    packages: dict[str, str]
    platform: str
    device: str
    threads: int | None = None
    git_commit: str | None = None


def build_input_converter() -> cattrs.Converter:
    """Return a converter for what a user wrote: unknown keys are errors, and 1 is 1.0."""
    converter = build_converter(forbid_extra_keys=True)
    # A whole number for a float has the id of the float.
    converter.register_structure_hook(float, lambda value, _: float(RULES[float].check(value)))
    return converter


CONVERTER = build_converter()
INPUT_CONVERTER = build_input_converter()
