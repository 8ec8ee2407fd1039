"""Model families by name, and a user's own by "package.module:function"."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import nn

from duck.errors import BadInput
from duck.models import allcnn, convnet, resnet, vit
from duck.models.imported import build_imported
from duck.models.registry import MODELS, Shape
from duck.runtime import fixed_seed

__all__ = ["MODELS", "Shape", "allcnn", "build", "convnet", "resnet", "vit"]


def build(name: str, num_classes: int, shape: Sequence[int], seed: int | None = None) -> nn.Module:
    """Build a new model on the CPU; the same seed gives the same weights.

    `shape` is that of an image: (channels, height, width).
    """
    if num_classes < 1:
        raise BadInput(f"A model needs at least one class, got num_classes={num_classes}.")
    if len(shape) != 3 or min(shape) < 1:
        raise BadInput(f"The shape of an image is (channels, height, width), got {tuple(shape)}.")
    image_shape = shape[0], shape[1], shape[2]
    cpu = torch.device("cpu")
    # Initialisers accept no generator.
    with cpu, nullcontext() if seed is None else fixed_seed(seed, cpu):
        if ":" in name:
            return build_imported(name, num_classes, image_shape)
        return MODELS[name](num_classes, image_shape)
