"""The registry of model families."""

from collections.abc import Callable

from torch import nn

from duck.registry import Registry

Shape = tuple[int, int, int]
"""The shape of one image: channels, height, width."""

MODELS: Registry[Callable[[int, Shape], nn.Module]] = Registry("model")
"""Each entry is called with the number of classes and the shape of an image."""
