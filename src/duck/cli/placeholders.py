"""Placeholders for packages that are slow to import, for commands that only print.

`duck list`, `duck show` and `--help` print names, docstrings and records. The modules that hold
them import torch, which takes two seconds, and use it only to compute. These commands import
placeholders instead, as Sphinx does with `autodoc_mock_imports`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

SLOW_PACKAGES = ("torch", "numpy", "scipy", "sklearn", "safetensors.torch", "joblib")


def can_use_placeholders() -> bool:
    """Return whether no slow package is imported yet and no other package extends this one.

    What the modules of other packages do with torch when they are imported is not known.
    """
    is_imported = any(package in sys.modules for package in SLOW_PACKAGES)
    return not is_imported and not any(group.startswith("duck.") for group in entry_points().groups)


@contextmanager
def use_placeholders() -> Iterator[None]:
    """Import placeholders for slow packages.

    Afterwards the modules that were imported with placeholders are removed: the next import of
    them is the usual one.
    """
    modules_before = set(sys.modules)
    finder = _PlaceholderFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - modules_before:
            if name.startswith("duck.") or _is_slow(name):
                _remove_module(name)


def _is_slow(module: str) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in SLOW_PACKAGES)


def _remove_module(name: str) -> None:
    del sys.modules[name]
    package, _, attribute = name.rpartition(".")
    # `from duck import runs` looks at the attributes of the package first.
    if package in sys.modules:
        vars(sys.modules[package]).pop(attribute, None)


class _PlaceholderType(type):
    """The class of placeholders: an attribute of a placeholder is a placeholder."""

    def __getattr__(cls, name: str) -> "_PlaceholderType":
        return _make_placeholder(name)


class _Placeholder(metaclass=_PlaceholderType):
    """A class, function or constant of a slow package.

    It can be named in annotations, derived from, and used as a decorator. Its instances have
    neither attributes nor a truth value, so computing with one is an error.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, decorated: Any) -> Any:
        return decorated

    def __bool__(self) -> bool:
        raise TypeError("A placeholder has no truth value.")

    def __class_getitem__(cls, item: Any) -> type["_Placeholder"]:
        return cls


def _make_placeholder(name: str) -> _PlaceholderType:
    if name.startswith("__"):
        raise AttributeError(name)
    return _PlaceholderType(name, (_Placeholder,), {})


class _PlaceholderModule(ModuleType):
    def __getattr__(self, name: str) -> _PlaceholderType:
        return _make_placeholder(name)


class _PlaceholderFinder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if _is_slow(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _PlaceholderModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a placeholder has no code."""
