"""Tables from a name to what it stands for: methods, data sets, models, scenarios."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from duck.errors import UnknownName

T = TypeVar("T")


def suggest(word: str, known: Mapping[str, object] | list[str]) -> str:
    """The end of an error message: the nearest known name, or all of them."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known) or 'none'}."


class Registry(Mapping[str, T], Generic[T]):
    """Name -> entry. An unknown name answers from the table itself; a name given twice is an error.

    Packages outside add entries under the entry-point group, which is read at the first look-up.
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"There is already a {self.kind} {name!r}: {self._entries[name]!r}.")
            self._entries[name] = entry
            return entry

        return add

    def _load_plugins(self) -> None:
        group, self._group = self._group, None
        for point in entry_points(group=group) if group else ():
            self.register(point.name)(point.load())

    def __getitem__(self, name: str) -> T:
        self._load_plugins()
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownName(f"No {self.kind} {name!r}. {suggest(name, self._entries)}") from None

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load_plugins()
        return len(self._entries)

    def name_of(self, entry: object) -> str:
        """The name under which an entry, or the class of an instance, stands in the table."""
        for name, known in self.items():
            if known is entry or known is type(entry):
                return name
        raise UnknownName(f"{entry!r} is not a registered {self.kind}.")
