"""A user's own model, built by the function "package.module:function"."""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from duck.errors import BadInput
from duck.files import read_bytes
from duck.models.registry import Shape
from duck.models.user_models import accept_images, check_given
from duck.registry import suggest


def build_imported(name: str, num_classes: int, shape: Shape) -> nn.Module:
    """Call the named function with `num_classes` and `shape`, if it has these parameters.

    A function with **options gets only `num_classes`: model zoos pass their options to
    constructors that have no parameter `shape`.
    """
    with _working_folder_importable():
        builder = _find(name)
        arguments = _arguments(name, builder, {"num_classes": num_classes, "shape": shape})
        try:
            model = builder(**arguments)
        except Exception as error:
            raise BadInput(
                f"{name} failed when called with {arguments}: {type(error).__name__}: {error}"
            ) from error
    if not isinstance(model, nn.Module):
        raise BadInput(
            f"{name} returned a {type(model).__name__}; it must return a torch.nn.Module."
        )
    accept_images(check_given(model))
    return model


def source_digest(name: str) -> str:
    """Return a digest of the file in which a user's builder is; "" for a model of our own."""
    if ":" not in name:
        return ""
    with _working_folder_importable():
        _find(name)
    file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    try:
        return hashlib.blake2b(read_bytes(Path(file or "")), digest_size=8).hexdigest()
    except OSError:  # a module without a file of its own
        return ""


@contextmanager
def _working_folder_importable() -> Iterator[None]:
    """Make modules in the working folder importable, which an installed command does not see."""
    folder = os.getcwd()
    importlib.invalidate_caches()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _find(name: str) -> Callable[..., Any]:
    module_name, _, function = name.partition(":")
    if not module_name or not function:
        raise BadInput(
            f"{name!r} is not the name of a function; write it as package.module:function."
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever its code does when it is imported
        raise BadInput(
            f"Cannot import {module_name!r} for {name}: {type(error).__name__}: {error}. Install "
            f"what is missing, or run from the folder that contains it ({os.getcwd()} is searched)."
        ) from error
    builder: Callable[..., Any] | None = getattr(module, function, None)
    if not callable(builder):
        public = [key for key in vars(module) if not key.startswith("_")]
        known = [key for key in public if callable(getattr(module, key))]
        raise BadInput(
            f"Module {module_name!r} has no function {function!r}. {suggest(function, known)}"
        )
    return builder


def _arguments(name: str, builder: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    try:
        signature = inspect.signature(builder)
    except ValueError:  # some builtins have none
        return {}
    parameters = signature.parameters
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [key for key in offered if key in parameters and parameters[key].kind in by_name]
    arguments = {key: offered[key] for key in names}
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        arguments["num_classes"] = offered["num_classes"]
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise BadInput(
            f"{name}{signature} cannot be called: {error}. It is called with num_classes and shape."
        ) from None
    return arguments
