"""The original model, unchanged: the baseline of every table."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from duck.methods.base import METHODS, BaseMethod, ForgetsBy, clone
from duck.types import Task


@METHODS.register("original")
@dataclass(frozen=True)
class Original(BaseMethod):
    """Forgets nothing."""

    paper: ClassVar[str] = "baseline"
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[ForgetsBy] = "nothing"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        return clone(model)
