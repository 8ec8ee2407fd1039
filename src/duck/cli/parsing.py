"""Flags as dataclasses: how the words of a command are parsed."""

import dataclasses
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from duck.checks import check_numbers

T = TypeVar("T")
GivenFlags = dict[str, str]
"""Flags that the user has given, as the help spells them, each with the word after it."""
SHOW_DEFAULT = tyro.conf.arg(
    help_behavior_hint=lambda value: f"(default: {value})" if value not in ("", "None") else ""
)
RULES = ConstructorRegistry()


def parse(cls: type[T], argv: Sequence[str], command: str, default: T | None = None) -> T:
    """Fill a dataclass from flags. Flags of nested dataclasses have no prefix."""
    options: dict[str, Any] = {} if default is None else {"default": default}
    config = (tyro.conf.OmitArgPrefixes,)
    parsed: T = tyro.cli(
        cls, prog=f"duck {command}", args=list(argv), config=config, registry=RULES, **options
    )
    check_numbers(parsed)
    return parsed


@RULES.struct_rule
def _format_help(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Show a default only if it is a value: the text of a flag says what happens without one."""
    if SHOW_DEFAULT in info.markers or not dataclasses.is_dataclass(info.type):
        return None  # the rules of tyro apply
    marked = dataclasses.replace(info, markers=(*info.markers, SHOW_DEFAULT))
    spec = ConstructorRegistry.get_struct_spec(marked)
    assert isinstance(spec, StructConstructorSpec)
    return dataclasses.replace(spec, fields=tuple(map(_format_field, spec.fields)))


def _format_field(field: StructFieldSpec) -> StructFieldSpec:
    def helptext() -> str | None:
        text = field.helptext() if callable(field.helptext) else field.helptext
        return " ".join(text.split()) if text else None

    annotated: Any = Annotated[field.type, SHOW_DEFAULT]
    return dataclasses.replace(field, type=annotated, helptext=helptext)


def read_flags(argv: Sequence[str]) -> GivenFlags:
    """Return the flags among the words, each with the word after it.

    Some flags decide which others there are, so their values are needed before `parse`.
    """
    given: GivenFlags = {}
    for word, next_word in pairwise([*argv, ""]):
        if word.startswith("--"):
            name, separator, value = word.partition("=")
            given.setdefault(name.replace("_", "-"), value if separator else next_word)
    return given


def given_values(parsed: Any, given: Container[str]) -> dict[str, Any]:
    """Return the fields of a dataclass whose flags were given, with their values.

    `parsed` has the values of the flags; of those that were not given, the values of the help.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(parsed):
        flag = field.name.replace("_", "-")
        if f"--{flag}" in given or f"--no-{flag}" in given:
            values[field.name] = getattr(parsed, field.name)
    return values
