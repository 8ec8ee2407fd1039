"""Tables that answer for themselves."""

import pytest

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
