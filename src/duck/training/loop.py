"""The one training loop.

Methods supply batches and a loss. Everything about steps, epochs and devices is here.
"""

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast

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
from duck.runtime import autocast, device_of, global_seed, is_first, restoring_modes
from duck.training.batching import Batches, ShuffledPass, Step
from duck.training.cuda_graphs import GraphedStep
from duck.types import Batch, Examples, Progress, Recipe, Report

Loss = Callable[[nn.Module, Step], Tensor]
Masks = Mapping[str, Tensor]
"""Parameter name -> True where a weight may change."""
SECONDS_BETWEEN_REPORTS = 0.5
CHECKPOINT_COST = 1 / 20
"""Share of the time that writing checkpoints may take."""


def train(
    model: nn.Module,
    examples: Examples,
    recipe: Recipe,
    generator: torch.Generator,
    report: Report | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Train a model in place with cross-entropy, as originals and retrained models are trained."""

    def loss(net: nn.Module, step: Step) -> Tensor:
        logits = logits_of(net(step["train"].images))
        smoothing = recipe.label_smoothing
        return cross_entropy(logits, step["train"].labels, label_smoothing=smoothing)

    batches = ShuffledPass("train", examples, recipe.batch_size, recipe.augment)
    options: dict[str, Any] = {"report": report, "checkpoint": checkpoint, "capturable": True}
    fit(model, batches, loss, recipe, generator, **options)


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
    capturable: bool = False,
) -> int:
    """Train `model` in place and return the number of the last epoch.

    stop         checked after each epoch and every `check_every` steps; True ends the training
    masks        parameter name -> True where a weight may change; the others are fixed, also under
                 weight decay and momentum
    checkpoint   a file to resume from after an interruption; the result is the same as without one
    capturable   the loss does the same tensor operations on every batch of a shape and does not
                 depend on Python state: on CUDA the step is recorded once and replayed
    """
    check_recipe(recipe)
    if len(batches) == 0:
        raise BadInput("There are no samples to train on.")
    trainer = _Trainer(
        model,
        batches,
        loss,
        recipe,
        generator,
        phase,
        stop,
        check_every,
        masks or {},
        report,
        checkpoint,
        capturable,
    )
    with (
        _train_mode(model),
        global_seed(generator, trainer.device),
        _explain_out_of_memory(recipe),
    ):
        last_epoch = start = trainer.resume()
        for epoch in range(start, recipe.epochs):
            last_epoch = epoch + 1
            if trainer.run_epoch(epoch):
                break
            trainer.save(epoch + 1)
    return last_epoch


@dataclass
class _Trainer:
    """A model in training with its optimizer."""

    model: nn.Module
    batches: Batches
    loss: Loss
    recipe: Recipe
    generator: torch.Generator
    phase: str
    stop: Callable[[], bool] | None
    check_every: int | None
    masks: Masks
    report: Report | None
    checkpoint: Path | None
    capturable: bool

    def __post_init__(self) -> None:
        self.last_report = time.monotonic()
        self.next_save = 0.0
        self.device = device_of(self.model)
        if self.device.type == "cuda":
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        uses_graphs = self.capturable and self.device.type == "cuda" and not dist.is_initialized()
        self.optimizer = _make_optimizer(self.model, self.recipe, uses_graphs)
        self.fixed_weights = _FixedWeights(self.model, self.masks)
        self.net = _wrap(self.model, self.recipe, self.device)
        self.run_step: Callable[[Step], Tensor] = (
            GraphedStep(self._train_step, self.device) if uses_graphs else self._train_step
        )

    def _train_step(self, step: Step) -> Tensor:
        self.model.zero_grad()
        with autocast(self.recipe.precision, self.device):
            value = self.loss(self.net, step)
        value.backward()
        with torch.no_grad():
            self.optimizer.step()
        self.fixed_weights.restore()
        return value.detach()

    def run_epoch(self, epoch: int) -> bool:
        """Train for an epoch, or until the stop rule ends it; return whether it did."""
        weights_before = {name: value.clone() for name, value in self.model.state_dict().items()}
        losses: list[Tensor] = []
        stopped = False
        for index, step in enumerate(self.batches.epoch(self.generator)):
            self._set_rate(epoch, index)
            value = self.run_step(_own_part(step))
            losses.append(value)
            self._report_step(epoch, index, value)
            stopped = self._is_stopped(index)
            if stopped:
                break
        values = torch.stack(losses).float()
        if not self._is_finite(values):
            self.model.load_state_dict(weights_before)
            self._raise_diverged(values, epoch, weights_before)
        self._report(epoch, len(self.batches), values.mean())
        return stopped

    def _report_step(self, epoch: int, index: int, loss: Tensor) -> None:
        """Report a step, at most twice a second: reading a loss waits for the device."""
        is_due = time.monotonic() >= self.last_report + SECONDS_BETWEEN_REPORTS
        if is_due and index + 1 < len(self.batches):
            self._report(epoch, index + 1, loss)
            self.last_report = time.monotonic()

    def _report(self, epoch: int, step: int, loss: Tensor) -> None:
        if self.report:
            steps = len(self.batches)
            position = (epoch + 1, self.recipe.epochs, step, steps)
            self.report(Progress(self.phase, *position, float(loss), self.model, step == steps))

    def _is_stopped(self, index: int) -> bool:
        """Ask the stop rule, after the last step of an epoch and every `check_every` steps."""
        is_last = index + 1 == len(self.batches)
        is_due = is_last or (self.check_every and (index + 1) % self.check_every == 0)
        if self.stop is None or not is_due:
            return False
        return _any_process(self.stop(), self.device)

    def _set_rate(self, epoch: int, index: int) -> None:
        steps = len(self.batches)
        factor = rate(self.recipe, epoch * steps + index, self.recipe.epochs * steps, epoch)
        lr = self.recipe.lr * factor
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def _is_finite(self, losses: Tensor) -> bool:
        norm = nn.utils.get_total_norm(list(self.model.parameters()))
        return bool(losses.isfinite().all()) and bool(norm.isfinite())

    def _raise_diverged(
        self, losses: Tensor, epoch: int, weights_before: dict[str, Tensor]
    ) -> NoReturn:
        """Raise an error about the weights or the images if they caused it, else about the loss."""
        check_weights(weights_before, "The model")
        _check_images(self.batches)
        broken = (~losses.isfinite()).nonzero()
        step = int(broken[0]) + 1 if len(broken) else len(losses)
        stored = ""
        if self.checkpoint and self.checkpoint.exists():
            stored = f"; {self.checkpoint} contains the last good epoch"
        raise Diverged(
            f"The loss became {float(losses[step - 1])} at step {step} of epoch {epoch + 1}. "
            f"The weights are those from before that epoch{stored}. "
            f"Lower the learning rate (now {self.recipe.lr:g})."
        )

    def save(self, epoch: int) -> None:
        """Write a checkpoint after an epoch, as often as `CHECKPOINT_COST` allows."""
        start = time.monotonic()
        if self.checkpoint is None or not is_first() or start < self.next_save:
            return
        random = {"generator": self.generator.get_state(), "cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "epoch": epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": random,
        }
        try:
            with files.writing(self.checkpoint) as file:
                torch.save(state, file)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            raise BadInput(
                f"The checkpoint {self.checkpoint} cannot be written: {error} Choose another --out."
            ) from error
        now = time.monotonic()
        self.next_save = now + (now - start) / CHECKPOINT_COST

    def resume(self) -> int:
        """Load the checkpoint, if there is one, and return the number of epochs that are done."""
        if self.checkpoint is None or not self.checkpoint.exists():
            return 0
        try:
            state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            random = state["random"]
        except Exception as error:
            raise BadInput(
                f"The checkpoint {self.checkpoint} cannot be read or is of another run. Delete it "
                "to start again."
            ) from error
        self.generator.set_state(random["generator"].cpu())
        torch.set_rng_state(random["cpu"].cpu())
        if self.device.type == "cuda" and "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"].cpu(), self.device)
        return int(state["epoch"])


def rate(recipe: Recipe, step: int, total: int, epoch: int) -> float:
    """Return the factor on the learning rate at a step.

    It is 1 at the peak, and exactly 0 at the last step of `cosine` and `one-cycle`.
    """
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
    """Raise an error if a value of the recipe is out of range."""
    for name in ("epochs", "batch_size"):
        if getattr(recipe, name) < 1:
            raise BadInput(f"{name} must be at least 1, got {getattr(recipe, name)}.")
    check_settings(recipe)
    if not 0 <= recipe.warmup < 1:
        raise BadInput(f"warmup must be a share of the steps, in [0, 1), got {recipe.warmup}.")
    if recipe.label_smoothing > 1:
        raise BadInput(f"label_smoothing must be in [0, 1], got {recipe.label_smoothing}.")
    if recipe.optimizer == "sgd" and recipe.nesterov and recipe.momentum == 0:
        raise BadInput(
            "nesterov needs a momentum above 0: turn it off (--no-nesterov), or set a momentum."
        )


def _make_optimizer(model: nn.Module, recipe: Recipe, uses_graphs: bool) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = device_of(model)
    if not parameters:
        raise BadInput(
            "All parameters are frozen. Unfreeze at least one layer: model.requires_grad_(True)."
        )
    # A CUDA graph reads the learning rate from memory, so that it must be a tensor.
    lr = torch.tensor(recipe.lr, device=device) if uses_graphs else recipe.lr
    fused = device.type == "cuda" or None
    options: dict[str, Any] = {"lr": lr, "weight_decay": recipe.weight_decay, "fused": fused}
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if recipe.optimizer == "sgd":
        options |= {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
    else:
        options["capturable"] = uses_graphs
    optimizer = _without_decorators(kinds[recipe.optimizer])(parameters, **options)
    if fused and recipe.optimizer == "sgd" and recipe.momentum:
        add_momentum_buffers(optimizer)
    return optimizer


def add_momentum_buffers(optimizer: torch.optim.Optimizer) -> None:
    """Start the momentum of every parameter at zero, which gives the same steps as starting late.

    Fused SGD fails where a parameter has its first gradient after the others had theirs.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


@cache
def _without_decorators(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return a subclass of an optimizer whose methods are not decorated.

    The decorators import the compiler of torch, which takes a second and is not used here.
    """
    names = ("add_param_group", "step")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), methods)


@contextmanager
def _train_mode(model: nn.Module) -> Iterator[None]:
    """Switch to train mode; afterwards restore the mode of each module and drop the gradients."""
    with restoring_modes(model):
        model.train()
        try:
            yield
        finally:
            model.zero_grad()


class _FixedWeights:
    """The weights that must not change.

    Weight decay and momentum move masked weights too, so that they are restored after each step.
    """

    def __init__(self, model: nn.Module, masks: Masks) -> None:
        parameters = dict(model.named_parameters())
        unknown = sorted(set(masks) - set(parameters))
        if unknown:
            raise BadInput(f"Masks for unknown parameters of the model: {', '.join(unknown[:5])}.")
        self.entries = []
        for name, mask in masks.items():
            weight = parameters[name]
            self.entries.append((weight, ~mask.to(weight.device), weight.detach().clone()))

    @torch.no_grad()
    def restore(self) -> None:
        for weight, is_fixed, value in self.entries:
            weight.copy_(torch.where(is_fixed, value, weight))


def _wrap(model: nn.Module, recipe: Recipe, device: torch.device) -> nn.Module:
    """Compile the model and make it distributed where this is needed."""
    net = cast(nn.Module, torch.compile(model, dynamic=False)) if recipe.compile else model
    if dist.is_initialized() and dist.get_world_size() > 1:
        device_ids = [device.index] if device.type == "cuda" else None
        net = DistributedDataParallel(net, device_ids=device_ids)
    return net


def _own_part(step: Step) -> Step:
    """Return the part of each batch for this process; all processes draw the same batches."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return step
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, batch in step.items():
        if len(batch.labels) % world:
            raise BadInput(
                f"A {name} batch of {len(batch.labels)} samples cannot be split among {world} "
                "processes: choose a batch size that is divisible by their number."
            )
    return {name: Batch(*(part[rank::world] for part in batch)) for name, batch in step.items()}


def _any_process(decision: bool, device: torch.device) -> bool:
    """Return True on all processes if one of them decided so."""
    if not dist.is_initialized():
        return decision
    flag = torch.tensor(float(decision), device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag)


def _check_images(batches: Batches) -> None:
    """Raise an error if images contain NaN or infinite values.

    This takes a pass over the data, so that it is only called after the loss diverged.
    """
    for step in batches.epoch(torch.Generator().manual_seed(0)):
        for name, batch in step.items():
            broken = ~batch.images.flatten(1).isfinite().all(1).cpu()
            if broken.any():
                rows = batch.rows.cpu()[broken].tolist()
                raise BadInput(
                    f"Images of the {name} samples contain NaN or infinite values, such as "
                    f"sample {rows[0]} (counted from 0). Remove or replace them."
                )


@contextmanager
def _explain_out_of_memory(recipe: Recipe) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"The device ran out of memory. Lower the batch size (now {recipe.batch_size}) "
            "or the image size, or use precision bfloat16."
        ) from error
