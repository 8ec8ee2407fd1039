"""Engines execute picklable tasks: the models of a pool, the cells of a grid."""

from typing import Literal

from duck.engines.base import ENGINES as ENGINES
from duck.engines.base import Engine as Engine
from duck.engines.base import check_workers
from duck.engines.inline import INLINE as INLINE
from duck.engines.inline import InlineEngine as InlineEngine
from duck.engines.processes import ProcessEngine as ProcessEngine
from duck.engines.ray import RayEngine as RayEngine
from duck.errors import BadInput

EngineName = Literal["inline", "processes", "ray"]
"""The engines of the command line; a test compares them with ENGINES."""


def create_engine(
    name: str | None, workers: int, address: str | None = None, gpus_per_worker: float = 0.0
) -> Engine:
    """Return the named engine; by default `processes` for several workers, else `inline`.

    address           the address of a Ray cluster, only for the engine `ray`
    gpus_per_worker   GPUs that each worker reserves, only for the engine `ray`
    """
    check_workers(workers)
    if name == "ray":
        return RayEngine(workers, address, gpus_per_worker)
    if address is not None or gpus_per_worker:
        raise BadInput("--address and --gpus-per-worker need --engine ray.")
    if name is None:
        name = "processes" if workers > 1 else "inline"
    return ENGINES[name](workers)
