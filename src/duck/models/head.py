"""The embedding of any model: the input of its classifier head, found by a forward pass."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from duck.errors import BadInput, DuckError
from duck.registry import suggest
from duck.runtime import restoring_modes

WEIGHT_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
PROBE_IMAGES = 8
"""Number of images to find the head. The outputs of all layers that could be it are stored."""

FIRST_ELEMENT = "If the model returns a tuple, its first element must be the logits."

# A head is affine: the pooling of its outputs to logits also pools its inputs to embeddings.
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": lambda x: x,
    "space": lambda x: x.flatten(2).mean(2),
    "first token": lambda x: x.flatten(1, -2)[:, 0],
    "last token": lambda x: x.flatten(1, -2)[:, -1],
    "mean token": lambda x: x.flatten(1, -2).mean(1),
}


class Head(NamedTuple):
    """The classifier head of a model."""

    name: str
    pool: str
    """How its inputs become one embedding per sample: a key of POOLS."""


class Call(NamedTuple):
    """Input and output of the last call of a module."""

    module: nn.Module
    input: Tensor
    output: Tensor


def logits_of(output: Any) -> Tensor:
    """Return the logits (N, K) in a model's output.

    They are the output itself, its `.logits` or ["logits"], or the first element of a tuple.
    """
    logits = output
    if isinstance(output, Mapping):
        logits = output.get("logits")
    elif not isinstance(output, Tensor) and hasattr(output, "logits"):
        logits = output.logits
    elif isinstance(output, tuple | list) and output:
        logits = output[0]
    if not isinstance(logits, Tensor):
        raise BadInput(
            f"No logits in the model's output, a {type(output).__name__}; return a tensor."
        )
    if logits.dim() > 2 and all(size == 1 for size in logits.shape[2:]):
        logits = logits.flatten(1)
    if logits.dim() != 2:
        raise BadInput(
            f"The model's logits have shape {tuple(logits.shape)}; expected (samples, classes)."
        )
    return logits


def find_head(model: nn.Module, images: Tensor, head: str | None = None) -> Head:
    """Find the head, or the pooling of the given one, in one forward pass.

    The model is not changed.
    """
    model = uncompiled(model)
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise BadInput(
            "model.compile() hides the head of this model; give the model before compiling."
        )
    modules = dict(model.named_modules())
    if head is not None and head not in modules:
        known = [name for name in modules if name]
        raise BadInput(f"The model has no module {head!r} to be its head. {suggest(head, known)}")
    candidates = {
        name: module
        for name, module in modules.items()
        if name == head or (head is None and _may_be_head(module))
    }
    output, calls = _record_calls(model, images[:PROBE_IMAGES], candidates)
    logits = logits_of(output)
    check_logits(logits)
    if head is None:
        return _search_head(calls, logits)
    found = _with_pool(head, calls, logits)
    _check_given_head(found, calls, images[:PROBE_IMAGES], output)
    return found


def find_inner_layer(model: nn.Module, images: Tensor, head: Head) -> Head | None:
    """Find the last layer with weights before the head, and how its inputs are pooled.

    Its inputs are another embedding, before the last non-linear function. None: there is no such
    layer, or its input is the image.
    """
    layers = {
        name: module
        for name, module in uncompiled(model).named_modules()
        if isinstance(module, WEIGHT_LAYERS)
    }
    _, calls = _record_calls(uncompiled(model), images[:PROBE_IMAGES], layers)
    earlier = list(calls)[: list(calls).index(head.name)] if head.name in calls else []
    for name in reversed(earlier):
        value = calls[name].input
        if len(value) == len(images[:PROBE_IMAGES]) and not _is_image(value, images[:PROBE_IMAGES]):
            is_token = isinstance(layers[name], nn.Linear) and value.dim() > 2
            return Head(name, "mean token" if is_token else "space" if value.dim() > 2 else "flat")
    return None


def _check_given_head(head: Head, calls: Mapping[str, Call], images: Tensor, output: Any) -> None:
    """Raise an error if a given head reads the images, or is not the head of the logits."""
    call = calls[head.name]
    logits = logits_of(output)
    # The embedding of a linear classifier is the image.
    is_linear = _may_be_head(call.module) and _find_match([head], calls, logits) is not None
    if not is_linear and _is_image(call.input, images):
        raise BadInput(
            f"The input of the head {head.name!r} is the image itself, which is not an embedding: "
            "name the last layer, whose outputs are the logits."
        )
    # An inner module is allowed. But if its outputs are another element of a tuple, the first
    # element is not the logits.
    width = call.output.shape[-1]
    is_tuple = isinstance(output, tuple | list) and not hasattr(output, "logits")
    others = [getattr(part, "shape", None) for part in output[1:]] if is_tuple else []
    if width != logits.shape[1] and (len(logits), width) in others:
        raise BadInput(
            f"The head {head.name!r} has {width} outputs per sample, and there are "
            f"{logits.shape[1]} logits. {FIRST_ELEMENT}"
        )


def _is_image(value: Tensor, images: Tensor) -> bool:
    """Return whether a module's input is the images, in any shape."""
    return value.numel() == images.numel() and torch.equal(
        value.flatten(), images.to(value.dtype).flatten()
    )


def compute_logits(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits of these images; the model is not changed."""
    return logits_of(_record_calls(uncompiled(model), images, {})[0])


def check_logits(logits: Tensor) -> None:
    """Raise BadInput for probabilities: a softmax of them is almost the same for every class."""
    values = logits.float()
    rounding = max(1e-4, 16 * torch.finfo(logits.dtype).eps if logits.is_floating_point() else 0.0)
    sums_to_one = ((values.sum(1) - 1).abs() <= rounding).all()
    if values.shape[1] > 1 and (values >= 0).all() and sums_to_one:
        raise BadInput(
            "The model returns probabilities, not logits: the values of each sample are at least 0 "
            "and sum to 1. Losses would be wrong. Return the inputs of the softmax, or the "
            "logarithm of the probabilities."
        )


@contextmanager
def explaining_errors(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Turn an error of a forward pass into one that describes the input."""
    try:
        yield
    except (DuckError, torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"The model cannot process these samples, {images.dtype} of shape "
            f"{tuple(images.shape)}, its weights are {dtype_of(model)}. Give uint8 images or "
            "floats of the shape that it was trained on, and model.float() if it is not float32. "
            f"({reason})"
        ) from error


def dtype_of(model: nn.Module) -> torch.dtype | None:
    """Return the type of the first weights that are floats; None without any."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), None)


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the module inside torch.compile(module): a compiled graph ignores later hooks."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def _may_be_head(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return set(module.kernel_size) == {1}
    return isinstance(module, nn.Linear)


def _record_calls(
    model: nn.Module, images: Tensor, modules: Mapping[str, nn.Module]
) -> tuple[Any, dict[str, Call]]:
    """Return the model's output and the last call of each module, in the order of the calls."""
    calls: dict[str, Call] = {}

    def record(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        value = _input(args, kwargs)
        calls.pop(name, None)
        if isinstance(value, Tensor) and isinstance(output, Tensor):
            calls[name] = Call(module, value, output)

    with ExitStack() as stack:
        stack.enter_context(_unchanged(model, images.device))
        for name, module in modules.items():
            hook = module.register_forward_hook(partial(record, name), with_kwargs=True)
            stack.callback(hook.remove)
        # Copies of the buffers are used: a module may count or average in eval mode, too.
        buffers = {
            name: buffer.clone()
            for name, buffer in model.named_buffers()
            if not nn.parameter.is_lazy(buffer)
        }
        with explaining_errors(model, images):
            output = functional_call(model, buffers, (images,))
    return output, calls


@contextmanager
def _unchanged(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Switch to eval mode without gradients; afterwards restore modes and random generators."""
    on_cpu = device.type == "cpu"
    devices = [] if on_cpu else [device.index or 0]
    fork = torch.random.fork_rng(devices, device_type="cuda" if on_cpu else device.type)
    with torch.no_grad(), fork, restoring_modes(model):
        # Not model.eval(): modules may override it with changes that could not be undone.
        for module in model.modules():
            module.training = False
        yield


def _input(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return next(iter((*args, *kwargs.values())), None)


def _search_head(calls: Mapping[str, Call], logits: Tensor) -> Head:
    """Return the last module whose output is the logits, up to a scale and a shift.

    Without one, return the last module with as many outputs.
    """
    latest_first: list[Head] = []
    for name in reversed(list(calls)):
        latest_first += [Head(name, pool) for pool in _pools(calls[name])]
    match = _find_match(latest_first, calls, logits)
    if match:
        return match
    for name, pool in latest_first:
        if POOLS[pool](calls[name].output).shape == logits.shape:
            return _with_pool(name, calls, logits)
    raise BadInput(
        f'Found no layer that returns the {logits.shape[1]} logits; pass head="name", the module '
        "whose input is the embedding. Candidates: "
        f"{', '.join(calls) or 'none, no Linear or 1x1 convolution ran'}. {FIRST_ELEMENT}"
    )


def _with_pool(name: str, calls: Mapping[str, Call], logits: Tensor) -> Head:
    """Return the named head with the pooling that turns its inputs into embeddings."""
    if name not in calls:
        raise BadInput(
            f"The head {name!r} does not run, or its input is not a tensor; pass another head."
        )
    call = calls[name]
    heads = [Head(name, pool) for pool in _pools(call)]
    head = heads[0] if len(heads) == 1 else _find_match(heads, calls, logits)
    if head is None or len(call.input) != len(logits):
        raise BadInput(
            f"The head {name!r} has inputs of shape {tuple(call.input.shape)} and outputs of shape "
            f"{tuple(call.output.shape)}: neither the logits of one token nor a mean. Pass a head "
            "whose input is one vector per sample."
        )
    return head


def _find_match(candidates: list[Head], calls: Mapping[str, Call], logits: Tensor) -> Head | None:
    """Return the first candidate whose outputs equal the logits, else equal them up to a scale."""
    for agrees in (_equal, _equal_up_to_scale):
        for head in candidates:
            output = POOLS[head.pool](calls[head.name].output)
            if output.shape == logits.shape and agrees(output, logits):
                return head
    return None


def _pools(call: Call) -> list[str]:
    """Return the poolings that could turn the inputs of this module into one vector per sample."""
    if call.input.dim() <= 2:
        return ["flat"]
    is_linear = isinstance(call.module, nn.Linear)
    if isinstance(call.module, nn.Conv1d) or (call.input.dim() > 3 and not is_linear):
        return ["space"]
    tokens = ["first token", "last token", "mean token"]
    return tokens if call.output.dim() == call.input.dim() else []


def _equal(output: Tensor, logits: Tensor) -> bool:
    difference = output.cpu().double() - logits.cpu().double()
    return bool(difference.abs().max() <= _rounding(output, logits))


def _equal_up_to_scale(output: Tensor, logits: Tensor) -> bool:
    """Return whether rows are shifted and scaled by one number, as by a temperature or softmax."""
    a, b = (x.cpu().double() - x.cpu().double().mean(1, keepdim=True) for x in (output, logits))
    scale = (a * b).sum() / a.square().sum()
    return bool((scale * a - b).abs().max() <= _rounding(output, logits))


def _rounding(output: Tensor, logits: Tensor) -> float:
    """Return the rounding error of equal values: of sums in another order, or casts."""
    precision = max(16 * torch.finfo(x.dtype).eps for x in (output, logits))
    return precision * max(float(x.abs().max()) for x in (output, logits))


class InputRecorder:
    """A forward pre-hook that records the input of its module while it is on.

    When off it records nothing, because a copy of the model has a copy of the hook, too.
    """

    def __init__(self) -> None:
        self.on = False
        self.input: Any = None

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.on:
            self.input = _input(args, kwargs)


class WithEmbedding(nn.Module):
    """A wrapper of a model that returns (logits, embeddings) from one forward pass.

    Weights, modes, devices and the names in `state_dict` are those of the model.
    """

    def __init__(self, model: nn.Module, head: Head) -> None:
        super().__init__()
        self.model = uncompiled(model)
        self.head = head
        self.training = model.training
        self._recorder = InputRecorder()
        self._hook = self.model.get_submodule(head.name).register_forward_pre_hook(
            self._recorder, with_kwargs=True
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        recorder = self._recorder
        recorder.on = True
        try:
            logits = logits_of(self.model(images))
        finally:
            inputs = recorder.input
            recorder.input = None
            recorder.on = False
        name, pool = self.head
        if inputs is None:
            raise BadInput(
                f"The head {name!r} did not run. Check that the model is wrapped and not compiled."
            )
        embeddings: Tensor = POOLS[pool](inputs)
        if embeddings.dim() != 2 or len(embeddings) != len(logits):
            raise BadInput(
                f"The head {name!r} has an input of shape {tuple(inputs.shape)} for logits of "
                f"shape {tuple(logits.shape)}; pass another head."
            )
        return logits, embeddings

    def unwrap(self) -> nn.Module:
        """Remove the hook and return the model."""
        self._hook.remove()
        return self.model

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.load_state_dict(*args, **kwargs)


@contextmanager
def with_embeddings(
    model: nn.Module, head: str | Head | None, images: Tensor
) -> Iterator[WithEmbedding]:
    """Yield the model with embeddings; without a head, it is found with these images."""
    found = head if isinstance(head, Head) else find_head(model, images, head)
    net = WithEmbedding(model, found)
    try:
        yield net
    finally:
        net.unwrap()
