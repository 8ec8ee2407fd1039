"""Tables that answer for themselves."""

import sys
from importlib.metadata import EntryPoint

import pytest

from duck import registry
from duck.errors import UnknownName
from duck.methods import METHODS, Duck
from duck.registry import Registry


def table() -> Registry[int]:
    numbers: Registry[int] = Registry("number")
    numbers.register("one")(1)
    numbers.register("two")(2)
    return numbers


def test_an_unknown_name_gets_the_nearest_or_all() -> None:
    with pytest.raises(UnknownName, match=r"^No number 'tow'. Did you mean 'two'\?$"):
        table()["tow"]
    with pytest.raises(UnknownName, match=r"^No number 'seventeen'. Known: one, two.$"):
        table()["seventeen"]


def test_a_name_given_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="already a number 'one'"):
        table().register("one")(3)


def test_it_is_a_mapping() -> None:
    assert dict(table()) == {"one": 1, "two": 2}
    assert len(table()) == 2
    assert "one" in table()
    assert "three" not in table()


def test_the_name_of_an_entry_or_of_an_instance_of_it() -> None:
    assert METHODS.name_of(Duck()) == METHODS.name_of(Duck) == "duck"
    with pytest.raises(UnknownName, match="not a registered method"):
        METHODS.name_of(3)


def with_plugins(monkeypatch: pytest.MonkeyPatch, **plugins: str) -> Registry[int]:
    points = [EntryPoint(name, value, "numbers") for name, value in plugins.items()]
    monkeypatch.setattr(
        registry, "entry_points", lambda group: points if group == "numbers" else []
    )
    numbers: Registry[int] = Registry("number", "numbers")
    numbers.register("one")(1)
    return numbers


def test_a_plugin_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dict(with_plugins(monkeypatch, most="sys:maxsize")) == {"one": 1, "most": sys.maxsize}


def test_a_plugin_that_cannot_be_loaded_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = with_plugins(monkeypatch, bad="no_such_package:seven", most="sys:maxsize")
    why = r"'bad' from no_such_package:seven cannot be loaded: ModuleNotFoundError"
    with pytest.warns(UserWarning, match=why):
        assert numbers["one"] == 1
    assert dict(numbers) == {"one": 1, "most": sys.maxsize}
    with pytest.raises(UnknownName):
        numbers["bad"]


def test_a_plugin_with_a_name_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = with_plugins(monkeypatch, one="sys:maxsize", most="sys:maxsize")
    with pytest.warns(UserWarning, match=r"'one' from sys:maxsize .*ValueError"):
        assert numbers["one"] == 1
