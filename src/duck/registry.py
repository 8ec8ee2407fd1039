"""Registries: names of methods, data sets, models and requests with their entries."""

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from duck.errors import DuckError, UnknownName

T = TypeVar("T")


def suggest(word: str, known: Mapping[str, object] | list[str]) -> str:
    """Return the end of an error message: the most similar known name, or all names."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known) or 'none'}."


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to entries. An unknown name is an error with a suggestion.

    Other packages add entries through the entry-point group, which is read at the first look-up. An
    entry that cannot be loaded causes a warning, is not listed, and is an error if it is used.
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._entries: dict[str, T] = {}
        self._failed: dict[str, tuple[str, Exception]] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds an entry."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(
                    f"There is already a {self.kind} {name!r}: {self._entries[name]!r}."
                )
            self._entries[name] = entry
            return entry

        return add

    def _load_plugins(self) -> None:
        if self._group is None:
            return
        group, self._group = self._group, None
        for point in entry_points(group=group):
            try:
                self.register(point.name)(point.load())
            except Exception as error:  # whatever a package does when it is imported
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                message = (
                    f"The {self.kind} {point.name!r} from {point.value} cannot be loaded: "
                    f"{reason}. Update or uninstall its package."
                )
                self._failed[point.name] = message, error
        for message, _ in self._failed.values():
            warnings.warn(message, stacklevel=3)

    def __getitem__(self, name: str) -> T:
        self._load_plugins()
        if name in self._failed:
            message, error = self._failed[name]
            raise DuckError(message) from error
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownName(
                f"No {self.kind} {name!r}. {suggest(name, [*self._entries, *self._failed])}"
            ) from None

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._entries or name in self._failed

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return (name for name in self._entries if name not in self._failed)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def name_of(self, entry: object) -> str:
        """Return the registered name of an entry or of the class of an instance."""
        self._load_plugins()
        for name, known in self._entries.items():
            if known is entry or known is type(entry):
                return name
        raise UnknownName(f"{entry!r} is not a registered {self.kind}.")
