"""JSON text that every parser reads."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import duck
from duck.json_text import to_json

SOURCE = Path(duck.__file__).parent


def strict(text: str) -> Any:
    """Parse JSON as its standard has it: NaN and Infinity are errors."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_numbers_that_json_does_not_have_become_null() -> None:
    value = {
        "loss": float("nan"),
        "rows": [1.5, float("inf"), (float("-inf"), 2)],
        "name": "NaN",
        "none": None,
    }
    assert strict(to_json(value)) == {
        "loss": None,
        "rows": [1.5, None, [None, 2]],
        "name": "NaN",
        "none": None,
    }


def test_options_are_those_of_the_standard_library() -> None:
    assert (
        to_json({"b": 1, "a": "é"}, sort_keys=True, indent=1, ensure_ascii=False)
        == '{\n "a": "é",\n "b": 1\n}'
    )


def test_what_is_no_json_is_an_error() -> None:
    with pytest.raises(TypeError):
        to_json({"a": object()})


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE))
)
def test_no_other_module_writes_json(file: Path) -> None:
    if file.name == "json_text.py":
        return
    calls = [
        node
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("dump", "dumps")
    ]
    assert [
        call.lineno
        for call in calls
        if isinstance(call.value, ast.Name) and call.value.id == "json"
    ] == []
