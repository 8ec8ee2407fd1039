"""The embedding of any model: the input of its classifier head, found by a probe, not by the order of its children."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from duck.errors import BadInput, DuckError
from duck.registry import suggest

PROBES = 8
"""Images of a probe; the outputs of every layer that could be the head are kept while it runs."""

# A head is affine, so what pools its outputs into the logits also pools its inputs into the embedding.
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": lambda x: x,
    "space": lambda x: x.flatten(2).mean(2),
    "first token": lambda x: x.flatten(1, -2)[:, 0],
    "last token": lambda x: x.flatten(1, -2)[:, -1],
    "mean token": lambda x: x.flatten(1, -2).mean(1),
}


class Head(NamedTuple):
    """The classifier head of a model, and how its inputs become one embedding a sample (a key of POOLS)."""

    name: str
    pool: str


class Call(NamedTuple):
    """What went in and out of a module in its last call."""

    module: nn.Module
    input: Tensor
    output: Tensor


def logits_of(output: Any) -> Tensor:
    """The logits (N, K) in what a model returns: a tensor, `.logits`, ["logits"] or the first of a tuple."""
    logits = output
    if isinstance(output, Mapping):
        logits = output.get("logits")
    elif not isinstance(output, Tensor) and hasattr(output, "logits"):
        logits = output.logits
    elif isinstance(output, tuple | list) and output:
        logits = output[0]
    if not isinstance(logits, Tensor):
        raise BadInput(
            f"No logits in the model's output, a {type(output).__name__}; return a tensor, or an object with .logits."
        )
    if logits.dim() > 2 and all(size == 1 for size in logits.shape[2:]):
        logits = logits.flatten(1)
    if logits.dim() != 2:
        raise BadInput(
            f"The model's logits have shape {tuple(logits.shape)}; expected (samples, classes)."
        )
    return logits


def probe(model: nn.Module, images: Tensor, head: str | None = None) -> Head:
    """Find the head, or how to read the given one, in one forward pass that leaves the model as it was."""
    model = uncompiled(model)
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise BadInput(
            "This model was compiled in place by model.compile(), which hides its head; hand over the model before compiling."
        )
    named = dict(model.named_modules())
    if head is not None and head not in named:
        raise BadInput(
            f"The model has no module {head!r} to be its head. {suggest(head, [name for name in named if name])}"
        )
    watched = {
        name: module
        for name, module in named.items()
        if name == head or (head is None and _may_be_head(module))
    }
    output, calls = _probe(model, images[:PROBES], watched)
    logits = logits_of(output)
    check_logits(logits)
    if head is None:
        return _search(calls, logits, _first_of(output))
    found, width = _read(head, calls, logits), calls[head].output.shape[-1]
    # Of a linear classifier the image is the embedding.
    is_linear = _may_be_head(calls[head].module) and _matching([found], calls, logits) is not None
    if not is_linear and _is_image(calls[head].input, images[:PROBES]):
        raise BadInput(
            f"The head {head!r} takes the image itself, which is no embedding: name the last layer, which gives the logits."
        )
    # An inner module may be given as well; one that gives another element of the tuple shows that the logits are not the first.
    if (
        _first_of(output)
        and width != logits.shape[1]
        and any(_width(part) == width for part in output[1:])
    ):
        raise BadInput(
            f"The head {head!r} gives {width} outputs a sample, and the logits are {logits.shape[1]}.{_first_of(output)}"
        )
    return found


def _is_image(given: Tensor, images: Tensor) -> bool:
    """Whether a module's input is the images, in whatever shape."""
    return given.numel() == images.numel() and torch.equal(
        given.flatten(), images.to(given.dtype).flatten()
    )


def classified(model: nn.Module, images: Tensor) -> Tensor:
    """The logits of these images, in one forward pass that leaves the model as it was."""
    return logits_of(_probe(uncompiled(model), images, {})[0])


def check_logits(logits: Tensor) -> None:
    """Raise BadInput for probabilities: a softmax of them is almost the same for every class."""
    values = logits.float()
    rounding = max(1e-4, 16 * torch.finfo(logits.dtype).eps if logits.is_floating_point() else 0.0)
    if (
        values.shape[1] > 1
        and (values >= 0).all()
        and ((values.sum(1) - 1).abs() <= rounding).all()
    ):
        raise BadInput(
            "The model returns probabilities, not logits: the values of each sample are at least 0 and sum to 1. Losses would be wrong. "
            "Return what goes into the softmax, or the logarithm of the probabilities."
        )


@contextmanager
def taking(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Around a forward pass: where it fails, an error that says what went in."""
    try:
        yield
    except (DuckError, torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        given, kept = images.dtype, dtype_of(model)
        what = f"{given} of shape {tuple(images.shape)}" + (
            f", its weights are {kept}" if kept else ""
        )
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"The model cannot take these samples, {what}: {_remedy(given, kept)} ({said})"
        ) from error


def _remedy(given: torch.dtype, kept: torch.dtype | None) -> str:
    if not given.is_floating_point:
        return "give floats, or uint8 images."
    if kept in (None, given):
        return "give samples of the shape that it was trained on."
    return "give float32 samples." if kept == torch.float32 else "hand over model.float()."


def dtype_of(model: nn.Module) -> torch.dtype | None:
    """Of the first weights that are floats."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), None)


def uncompiled(model: nn.Module) -> nn.Module:
    """The module inside torch.compile(module): a compiled graph does not see hooks that come after it."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def _may_be_head(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return set(module.kernel_size) == {1}
    return isinstance(module, nn.Linear)


def _probe(
    model: nn.Module, images: Tensor, watched: Mapping[str, nn.Module]
) -> tuple[Any, dict[str, Call]]:
    """What the model returns, and the last call of each watched module in the order in which they ran."""
    calls: dict[str, Call] = {}

    def watch(name: str) -> Callable[..., None]:
        def keep(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
        ) -> None:
            given = _input(args, kwargs)
            calls.pop(name, None)
            if isinstance(given, Tensor) and isinstance(output, Tensor):
                calls[name] = Call(module, given, output)

        return keep

    with ExitStack() as stack:
        stack.enter_context(_untouched(model, images.device))
        for name, module in watched.items():
            stack.callback(module.register_forward_hook(watch(name), with_kwargs=True).remove)
        # Copies stand in for the buffers: a module may count or average in eval mode too.
        buffers = {
            name: buffer.clone()
            for name, buffer in model.named_buffers()
            if not nn.parameter.is_lazy(buffer)
        }
        with taking(model, images):
            output = functional_call(model, buffers, (images,))
    return output, calls


def _width(part: Any) -> int | None:
    return part.shape[1] if isinstance(part, Tensor) and part.dim() == 2 else None


def _first_of(output: Any) -> str:
    """What to say where the logits are not what they should be, of a model that returns several things."""
    if not isinstance(output, tuple | list) or hasattr(output, "logits"):
        return ""
    return f" The model returns a {type(output).__name__}, of which the first element is taken as the logits: return the logits first."


@contextmanager
def _untouched(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the modes and the random generators are as they were."""
    devices = [] if device.type == "cpu" else [device.index or 0]
    modes = [(module, module.training) for module in model.modules()]
    with (
        torch.no_grad(),
        torch.random.fork_rng(devices, device_type="cuda" if device.type == "cpu" else device.type),
    ):
        try:
            # Not model.eval(): modules may override it with more than the flag, which could not be undone.
            for module, _ in modes:
                module.training = False
            yield
        finally:
            for module, mode in modes:
                module.training = mode


def _input(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return args[0] if args else next(iter(kwargs.values()), None)


def _search(calls: Mapping[str, Call], logits: Tensor, aside: str) -> Head:
    """The last module whose output is the logits, or becomes them by a scale and a shift; else the last one that is as wide."""
    latest_first = [(name, pool) for name in reversed(list(calls)) for pool in _pools(calls[name])]
    found = _matching(latest_first, calls, logits)
    if found:
        return found
    for name, pool in latest_first:
        if POOLS[pool](calls[name].output).shape == logits.shape:
            return _read(name, calls, logits)
    raise BadInput(
        f'Found no layer that gives the {logits.shape[1]} logits; pass head="name", the module whose input is the embedding. '
        f"Candidates: {', '.join(calls) or 'none, no Linear or 1x1 convolution ran'}.{aside}"
    )


def _read(name: str, calls: Mapping[str, Call], logits: Tensor) -> Head:
    """How to turn the inputs of this head into one embedding a sample."""
    if name not in calls:
        raise BadInput(
            f"The head {name!r} does not run when the model classifies, or takes no tensor; pass another head."
        )
    call, pools = calls[name], _pools(calls[name])
    head = (
        Head(name, pools[0])
        if len(pools) == 1
        else _matching([(name, pool) for pool in pools], calls, logits)
    )
    if head is None or len(call.input) != len(logits):
        raise BadInput(
            f"The head {name!r} takes inputs of shape {tuple(call.input.shape)} and gives {tuple(call.output.shape)}, "
            f"which is not the logits of one token nor a mean; pass a head that takes one vector a sample."
        )
    return head


def _matching(
    candidates: list[tuple[str, str]], calls: Mapping[str, Call], logits: Tensor
) -> Head | None:
    for agrees in (_same, _same_but_for_scale):
        for name, pool in candidates:
            output = POOLS[pool](calls[name].output)
            if output.shape == logits.shape and agrees(output, logits):
                return Head(name, pool)
    return None


def _pools(call: Call) -> list[str]:
    """The ways in which the inputs of this module could become one vector a sample."""
    if call.input.dim() <= 2:
        return ["flat"]
    if isinstance(call.module, nn.Conv1d) or (
        call.input.dim() > 3 and not isinstance(call.module, nn.Linear)
    ):
        return ["space"]
    return (
        ["first token", "last token", "mean token"] if call.output.dim() == call.input.dim() else []
    )


def _same(output: Tensor, logits: Tensor) -> bool:
    return bool(
        (output.cpu().double() - logits.cpu().double()).abs().max() <= _rounding(output, logits)
    )


def _same_but_for_scale(output: Tensor, logits: Tensor) -> bool:
    """As a temperature or a log_softmax leave them: each row shifted, all of them scaled by one number."""
    a, b = (x.cpu().double() - x.cpu().double().mean(1, keepdim=True) for x in (output, logits))
    scale = (a * b).sum() / a.square().sum()
    return bool((scale * a - b).abs().max() <= _rounding(output, logits))


def _rounding(output: Tensor, logits: Tensor) -> float:
    """How far apart two equal things may lie: means are summed in another order, logits cast to another precision."""
    return max(16 * torch.finfo(x.dtype).eps for x in (output, logits)) * max(
        float(x.abs().max()) for x in (output, logits)
    )


class Tap:
    """A forward pre-hook that keeps the input of its module while it is open.

    Closed, it keeps nothing: a copy of the model made meanwhile carries a copy of the hook.
    """

    def __init__(self) -> None:
        self.open = False
        self.caught: Any = None

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.open:
            self.caught = _input(args, kwargs)


class WithEmbedding(nn.Module):
    """The model, returning (logits, embeddings) from one forward pass; `unwrap` takes its hook off again.

    Weights, modes and devices are the model's own, and so are the names in `state_dict`.
    """

    def __init__(self, model: nn.Module, head: Head) -> None:
        super().__init__()
        self.model = uncompiled(model)
        self.head = head
        self.training = model.training
        self._tap = Tap()
        self._hook = self.model.get_submodule(head.name).register_forward_pre_hook(
            self._tap, with_kwargs=True
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        tap = self._tap
        tap.open = True
        try:
            logits = logits_of(self.model(images))
        finally:
            caught, tap.caught, tap.open = tap.caught, None, False
        name, pool = self.head
        if caught is None:
            raise BadInput(
                f"The head {name!r} did not run in this forward pass; is this model unwrapped, or compiled inside?"
            )
        embeddings: Tensor = POOLS[pool](caught)
        if embeddings.dim() != 2 or len(embeddings) != len(logits):
            raise BadInput(
                f"The head {name!r} took {tuple(caught.shape)} for logits of shape {tuple(logits.shape)}; pass another head."
            )
        return logits, embeddings

    def unwrap(self) -> nn.Module:
        """The model itself, without the hook."""
        self._hook.remove()
        return self.model

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.load_state_dict(*args, **kwargs)


@contextmanager
def embedded(model: nn.Module, head: str | None, images: Tensor) -> Iterator[WithEmbedding]:
    """The model with its embeddings for the length of a `with`; the head is found by a probe with these images where None."""
    net = WithEmbedding(model, probe(model, images, head))
    try:
        yield net
    finally:
        net.unwrap()
