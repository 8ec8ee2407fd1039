"""Registries: names of methods, data sets, models and requests with their entries."""

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from duck.errors import UnknownName

T = TypeVar("T")
_names: dict[type, str] = {}


def registered_name(cls: type) -> str:
    """Return the name under which a class is registered; its own name if it is not."""
    return _names.get(cls, cls.__name__)


def suggest(word: str, known: Mapping[str, object] | list[str]) -> str:
    """Return the end of an error message: the most similar known name, or all names."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known) or 'none'}."


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to entries. An unknown name is an error with a suggestion.

    Other packages add entries through the entry-point group, which is read at the first look-up. An
    entry that cannot be loaded, or whose name is taken, causes a warning and is left out.
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds an entry."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(
                    f"There is already a {self.kind} {name!r}: {self._entries[name]!r}."
                )
            self._entries[name] = entry
            if isinstance(entry, type):
                _names[entry] = name
            return entry

        return add

    def _loaded(self) -> dict[str, T]:
        """Return all entries, after those of other packages are loaded."""
        group, self._group = self._group, None
        for point in entry_points(group=group) if group else ():
            try:
                self.register(point.name)(point.load())
            except Exception as error:  # whatever a package does when it is imported
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                warnings.warn(
                    f"The {self.kind} {point.name!r} from {point.value} cannot be loaded: "
                    f"{reason}. Update or uninstall its package.",
                    stacklevel=3,
                )
        return self._entries

    def __getitem__(self, name: str) -> T:
        entries = self._loaded()
        if name not in entries:
            raise UnknownName(f"No {self.kind} {name!r}. {suggest(name, entries)}")
        return entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def name_of(self, entry: object) -> str:
        """Return the registered name of an entry or of the class of an instance."""
        for name, known in self._loaded().items():
            if known is entry or known is type(entry):
                return name
        raise UnknownName(f"{entry!r} is not a registered {self.kind}.")
