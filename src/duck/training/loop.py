"""The one training loop. Methods bring batches and a loss; everything about steps, epochs and devices is here."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from duck import files
from duck.checks import check_settings
from duck.errors import BadInput, Diverged, OutOfMemory
from duck.models.head import logits_of
from duck.models.weights import check_weights
from duck.runtime import autocast, device_of, global_seed
from duck.training.batching import Batches, Passes, Step
from duck.training.cuda_graphs import Recorded
from duck.types import Batch, Examples, Progress, Recipe, Report

Loss = Callable[[nn.Module, Step], Tensor]
Masks = Mapping[str, Tensor]


def train(
    model: nn.Module,
    examples: Examples,
    recipe: Recipe,
    generator: torch.Generator,
    report: Report | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Plain supervised training, in place: how originals and retrained models are made."""

    def loss(net: nn.Module, step: Step) -> Tensor:
        batch = step["train"]
        return cross_entropy(
            logits_of(net(batch.images)), batch.labels, label_smoothing=recipe.label_smoothing
        )

    batches = Passes("train", examples, recipe.batch_size, recipe.augment)
    fit(model, batches, loss, recipe, generator, report=report, checkpoint=checkpoint, steady=True)


def fit(
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    recipe: Recipe,
    generator: torch.Generator,
    *,
    phase: str = "train",
    stop: Callable[[], bool] | None = None,
    check_every: int | None = None,
    masks: Masks | None = None,
    report: Report | None = None,
    checkpoint: Path | None = None,
    steady: bool = False,
) -> int:
    """Train `model` in place and return the number of epochs begun.

    stop         asked after each epoch, or after every `check_every` steps; True ends the training
    masks        parameter name -> True where a weight may move; the others hold, also under decay and momentum
    checkpoint   a file to go on from after a kill: the result is the same as without the kill
    steady       the loss does the same tensor work on every batch of a shape, and nothing of it depends on Python state: on CUDA the
                 step is then recorded once and replayed
    """
    check_recipe(recipe)
    if len(batches) == 0:
        raise BadInput("There is nothing to train on.")
    device, total = device_of(model), recipe.epochs * len(batches)
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    recorded = steady and device.type == "cuda" and not dist.is_initialized()
    optimizer = _optimizer(model, recipe, recorded)
    hold = _Hold(model, masks or {})
    net = _wrapped(model, recipe, device)

    def advance(step: Step) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with autocast(recipe.precision, device):
            value = loss(net, step)
        value.backward()
        optimizer.step()
        hold.back()
        return value.detach()

    take = Recorded(advance, device) if recorded else advance
    news = _News(report, phase, recipe.epochs, len(batches), model)
    with _training(model, optimizer), global_seed(generator, device), _explained(recipe):
        begun = start = (
            _resume(checkpoint, model, optimizer, generator, device) if checkpoint else 0
        )
        saver = _Saver(checkpoint) if checkpoint and _rank() == 0 else None
        for epoch in range(start, recipe.epochs):
            begun = epoch + 1
            before = {name: value.clone() for name, value in model.state_dict().items()}
            losses: list[Tensor] = []
            stopped = False
            for index, step in enumerate(batches.epoch(generator)):
                _set_rate(optimizer, recipe, epoch * len(batches) + index, total, epoch)
                value = take(_share(step))
                losses.append(value)
                news.step(epoch, index, value)
                last = index + 1 == len(batches)
                if stop and (last or (check_every and (index + 1) % check_every == 0)):
                    stopped = _agreed(stop(), device)
                    if stopped:
                        break
            mean = _finite_mean(losses, model, before, batches, epoch, recipe, checkpoint)
            news.epoch(epoch, mean)
            if stopped:
                break
            if saver:
                saver(model, optimizer, generator, device, epoch + 1)
    return begun


def rate(recipe: Recipe, step: int, total: int, epoch: int) -> float:
    """The factor on the learning rate at a step: 1 at the peak, exactly 0 at the last step of `cosine` and `one-cycle`."""
    done = step / max(1, total - 1)
    match recipe.schedule:
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * done)) if total > 1 else 1.0
        case "one-cycle":
            rise = (step + 1) / max(1.0, recipe.warmup * total)
            return min(rise, (1 - done) / (1 - recipe.warmup)) if total > 1 else 1.0
        case "step":
            return recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones)
        case "constant":
            return 1.0


def check_recipe(recipe: Recipe) -> None:
    """Before anything is made for a training that cannot begin."""
    for name in ("epochs", "batch_size"):
        if getattr(recipe, name) < 1:
            raise BadInput(f"{name} must be at least 1, got {getattr(recipe, name)}.")
    check_settings(recipe)
    if not 0 <= recipe.warmup < 1:
        raise BadInput(
            f"warmup is a share of the steps and must be in [0, 1), got {recipe.warmup}."
        )
    if recipe.label_smoothing > 1:
        raise BadInput(f"label_smoothing must be in [0, 1], got {recipe.label_smoothing}.")
    if recipe.optimizer == "sgd" and recipe.nesterov and recipe.momentum == 0:
        raise BadInput(
            "nesterov needs a momentum above 0: turn it off (--no-nesterov), or give a momentum."
        )


def _optimizer(model: nn.Module, recipe: Recipe, recorded: bool) -> torch.optim.Optimizer:
    parameters, device = [p for p in model.parameters() if p.requires_grad], device_of(model)
    if not parameters:
        raise BadInput(
            "Nothing of the model can be trained: all its weights are frozen. Thaw some, as with model.requires_grad_(True)."
        )
    # A recording holds the rate's place in memory, not its number.
    lr = torch.tensor(recipe.lr, device=device) if recorded else recipe.lr
    common: dict[str, Any] = {
        "lr": lr,
        "weight_decay": recipe.weight_decay,
        "fused": device.type == "cuda" or None,
    }
    match recipe.optimizer:
        case "sgd":
            return torch.optim.SGD(
                parameters, momentum=recipe.momentum, nesterov=recipe.nesterov, **common
            )
        case "adam":
            return torch.optim.Adam(parameters, capturable=recorded, **common)
        case "adamw":
            return torch.optim.AdamW(parameters, capturable=recorded, **common)


@contextmanager
def _training(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Train mode; afterwards, also after an error, each submodule is back in its own mode and no gradient is left."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        optimizer.zero_grad(set_to_none=True)
        for module, training in modes:
            module.training = training


def _set_rate(
    optimizer: torch.optim.Optimizer, recipe: Recipe, step: int, total: int, epoch: int
) -> None:
    now = recipe.lr * rate(recipe, step, total, epoch)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(now)
        else:
            group["lr"] = now


class _Hold:
    """Weight decay and momentum move masked weights too: put them back after each step."""

    def __init__(self, model: nn.Module, masks: Masks) -> None:
        named = dict(model.named_parameters())
        unknown = sorted(set(masks) - set(named))
        if unknown:
            raise BadInput(
                f"Masks for parameters that the model does not have: {', '.join(unknown[:5])}."
            )
        self.held = [
            (named[name], ~mask.to(named[name].device), named[name].detach().clone())
            for name, mask in masks.items()
        ]

    @torch.no_grad()
    def back(self) -> None:
        for weight, fixed, value in self.held:
            weight.copy_(torch.where(fixed, value, weight))


def _wrapped(model: nn.Module, recipe: Recipe, device: torch.device) -> nn.Module:
    net = cast(nn.Module, torch.compile(model, dynamic=False)) if recipe.compile else model
    if dist.is_initialized() and dist.get_world_size() > 1:
        net = DistributedDataParallel(
            net, device_ids=[device.index] if device.type == "cuda" else None
        )
    return net


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _share(step: Step) -> Step:
    """This process's part of each batch; all processes draw the same batches."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return step
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, batch in step.items():
        if len(batch.labels) % world:
            raise BadInput(
                f"A {name} batch of {len(batch.labels)} cannot be shared by {world} processes: choose a divisible batch size."
            )
    return {name: Batch(*(part[rank::world] for part in batch)) for name, batch in step.items()}


def _agreed(decision: bool, device: torch.device) -> bool:
    """A decision that all processes share: one that says stop stops all."""
    if not dist.is_initialized():
        return decision
    flag = torch.tensor(float(decision), device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag)


def _finite_mean(
    losses: list[Tensor],
    model: nn.Module,
    before: dict[str, Tensor],
    batches: Batches,
    epoch: int,
    recipe: Recipe,
    checkpoint: Path | None,
) -> float:
    values = torch.stack(losses).float()
    finite = values.isfinite()
    if finite.all() and nn.utils.get_total_norm(list(model.parameters())).isfinite():
        return float(values.mean())
    model.load_state_dict(before)
    check_weights(before, "The model")
    _check_images(batches)
    step = int((~finite).nonzero()[0]) + 1 if not finite.all() else len(values)
    kept = f"; {checkpoint} holds the last good epoch" if checkpoint and checkpoint.exists() else ""
    raise Diverged(
        f"The loss became {float(values[step - 1])} at step {step} of epoch {epoch + 1}. The weights are those from before that epoch"
        f"{kept}. Lower the learning rate (now {recipe.lr:g})."
    )


def _check_images(batches: Batches) -> None:
    """Raise an error for images that hold NaN or infinite values: asked only after the loss did, as it takes a pass over the data."""
    for step in batches.epoch(torch.Generator().manual_seed(0)):
        for name, batch in step.items():
            broken = ~batch.images.flatten(1).isfinite().all(1).cpu()
            if broken.any():
                rows = batch.rows.cpu()[broken].tolist()
                raise BadInput(
                    f"Images of the {name} samples hold NaN or infinite values, such as sample {rows[0]} (counted from 0). "
                    "Remove or replace them."
                )


@contextmanager
def _explained(recipe: Recipe) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"The device ran out of memory. Lower the batch size (now {recipe.batch_size}) or the image size, or use precision bfloat16."
        ) from error


class _News:
    """Progress for a callback, rarely enough not to slow the device down: reading a loss waits for it."""

    def __init__(
        self, report: Report | None, phase: str, epochs: int, steps: int, model: nn.Module
    ) -> None:
        self.report, self.phase, self.epochs, self.steps, self.model = (
            report,
            phase,
            epochs,
            steps,
            model,
        )
        self.next = time.monotonic() + 0.5

    def step(self, epoch: int, index: int, loss: Tensor) -> None:
        if self.report and index + 1 < self.steps and time.monotonic() >= self.next:
            self._send(epoch, index + 1, float(loss.detach()), ended=False)
            self.next = time.monotonic() + 0.5

    def epoch(self, epoch: int, loss: float) -> None:
        if self.report:
            self._send(epoch, self.steps, loss, ended=True)

    def _send(self, epoch: int, step: int, loss: float, ended: bool) -> None:
        if self.report:
            self.report(
                Progress(
                    self.phase, epoch + 1, self.epochs, step, self.steps, loss, self.model, ended
                )
            )


class _Saver:
    """Checkpoints after an epoch, as often as costs at most a twentieth of the time."""

    def __init__(self, path: Path) -> None:
        self.path, self.next = path, 0.0

    def __call__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        device: torch.device,
        epoch: int,
    ) -> None:
        begun = time.monotonic()
        if begun < self.next:
            return
        state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        random = {"generator": generator.get_state(), "cpu": torch.get_rng_state()}
        if device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(device)
        try:
            with files.writing(self.path) as file:
                torch.save({**state, "random": random}, file)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            raise BadInput(
                f"The checkpoint {self.path} cannot be written: {error} Free some space or choose another --out."
            ) from error
        self.next = time.monotonic() + 20 * (time.monotonic() - begun)


def _resume(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    device: torch.device,
) -> int:
    if not path.exists():
        return 0
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        random = state["random"]
    except Exception as error:
        raise BadInput(
            f"The checkpoint {path} cannot be read or is of another run: delete it to start anew."
        ) from error
    generator.set_state(random["generator"].cpu())
    torch.set_rng_state(random["cpu"].cpu())
    if device.type == "cuda" and "cuda" in random:
        torch.cuda.set_rng_state(random["cuda"].cpu(), device)
    return int(state["epoch"])
