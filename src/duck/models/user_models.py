"""Checks and adapters for a user's model: called with images alone, computed in float32."""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.models.head import uncompiled

HALF_PRECISION = (torch.float16, torch.bfloat16)
IMAGE_ARGUMENTS = ("pixel_values", "images", "image", "img", "inputs", "input", "x")
"""Names of keyword arguments for the images."""


def check_given(model: object) -> nn.Module:
    """Return the model if it can be copied, hooked and trained; else raise an error with advice."""
    if isinstance(model, torch.jit.ScriptModule):
        raise BadInput(
            "A TorchScript module cannot be trained: give the nn.Module that it was made from."
        )
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise BadInput(
            f"The model is wrapped in {type(model).__name__}: give the module inside, model.module."
        )
    if isinstance(model, nn.Module):
        return model
    raise BadInput(
        f"The model must be a torch.nn.Module, got an object of type {type(model).__name__}. Build "
        "the model, then call model.load_state_dict(torch.load(path)). On the command line: "
        "duck forget --model package.module:function --weights FILE."
    )


def check_gradients() -> None:
    """Raise an error if gradients are turned off: no model could be trained."""
    if not torch.is_grad_enabled():
        raise BadInput(
            "Gradients are turned off by torch.no_grad() or inference_mode(): call this outside."
        )


class _ImagesByKeyword:
    """A forward pre-hook that passes the images by keyword."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return ((), {self.name: args[0], **kwargs}) if args else (args, kwargs)


def accept_images(model: nn.Module) -> Callable[[], None]:
    """Allow calls as model(images) even if the forward method has only keyword arguments.

    Return a function that undoes this.
    """
    inner = uncompiled(model)
    name = _image_keyword(inner)
    if name is None or any(
        isinstance(hook, _ImagesByKeyword) for hook in inner._forward_pre_hooks.values()
    ):
        return lambda: None
    return inner.register_forward_pre_hook(_ImagesByKeyword(name), with_kwargs=True).remove


@contextmanager
def accepting_images(*models: nn.Module) -> Iterator[None]:
    """Call `accept_images` on the models; afterwards undo it."""
    with ExitStack() as stack:
        for model in models:
            stack.callback(accept_images(model))
        yield


def without_hooks(model: nn.Module) -> nn.Module:
    """Remove the hook of `accept_images` from a model, in place, such as a copy of a hooked one."""
    hooks = model._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if isinstance(hook, _ImagesByKeyword)]:
        del hooks[key]
        model._forward_pre_hooks_with_kwargs.pop(key, None)
    return model


def _image_keyword(model: nn.Module) -> str | None:
    """Return the keyword argument for the images; None for a positional argument."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):  # written in C++
        return None
    with suppress(TypeError):
        signature.bind(None)
        return None
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    known = [parameter.name for parameter in parameters if parameter.name in IMAGE_ARGUMENTS]
    names = required or known[:1]
    by_keyword = all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    if not by_keyword or len(names) != 1:
        raise BadInput(
            f"The model's forward{signature} cannot be called with images alone. Wrap it in an "
            "nn.Module with forward(self, images)."
        )
    return names[0]


def in_float32(model: nn.Module) -> nn.Module:
    """Return the model, or a float32 copy if it has half-precision weights.

    Half precision is too coarse to train.
    """
    return copy.deepcopy(model).float() if _is_half(model) else model


def in_dtypes_of(model: nn.Module, given: nn.Module) -> nn.Module:
    """Cast a model, in place, to the types of the half-precision model it was computed from.

    If that one is not in half precision, nothing changes.
    """
    if not _is_half(given):
        return model
    dtypes = {name: value.dtype for name, value in _floats(given)}
    for name, value in _floats(model):
        value.data = value.data.to(dtypes.get(name, value.dtype))
    return model


def _is_half(model: nn.Module) -> bool:
    return any(weight.dtype in HALF_PRECISION for weight in model.parameters())


def _floats(model: nn.Module) -> list[tuple[str, Tensor]]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return [(name, value) for name, value in named if value.is_floating_point()]
