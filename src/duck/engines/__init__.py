"""Engines execute picklable tasks: the models of a pool, the cells of a grid."""

from typing import Literal

from duck.engines.base import ENGINES, Engine
from duck.engines.inline import InlineEngine
from duck.engines.processes import ProcessEngine

__all__ = ["ENGINES", "Engine", "EngineName", "InlineEngine", "ProcessEngine", "create_engine"]

EngineName = Literal["inline", "processes"]
"""The engines that a command line can name; a test compares them with ENGINES."""


def create_engine(name: str | None, workers: int) -> Engine:
    """Return the named engine; by default `processes` for several workers, else `inline`."""
    if name is None:
        name = "processes" if workers > 1 else "inline"
    return ENGINES[name](workers)
