"""Model families by name, and a user's own by "package.module:function"."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from duck.checks import check_seed
from duck.errors import BadInput
from duck.models import allcnn, convnet, resnet, vit
from duck.models.imported import build_imported
from duck.models.registry import MODELS, Shape

__all__ = ["MODELS", "Shape", "allcnn", "build", "convnet", "resnet", "vit"]


def build(name: str, num_classes: int, shape: Sequence[int], seed: int | None = None) -> nn.Module:
    """Build a new model on the CPU; the same seed gives the same weights.

    `shape` is that of an image: (channels, height, width).
    """
    if num_classes < 1:
        raise BadInput(f"A model needs at least one class, got num_classes={num_classes}.")
    size = _checked(shape)
    with torch.device("cpu"), _seeded(seed):
        return (
            build_imported(name, num_classes, size)
            if ":" in name
            else MODELS[name](num_classes, size)
        )


def _checked(shape: Sequence[int]) -> Shape:
    if len(shape) != 3 or min(shape) < 1:
        raise BadInput(f"The shape of an image is (channels, height, width), got {tuple(shape)}.")
    channels, height, width = shape
    return channels, height, width


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Initialisers take no generator: seed the global one and put it back afterwards."""
    if seed is None:
        yield
        return
    check_seed(seed)
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the accelerators too, whose generators are not put back.
        torch.default_generator.manual_seed(seed)
        yield
