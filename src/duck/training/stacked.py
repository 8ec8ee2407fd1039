"""Train several models of one architecture at once.

Their weights are stacked, and each model has its own batches: one kernel serves all models.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from duck.errors import BadInput
from duck.models.head import logits_of
from duck.runtime import seeded
from duck.training.batching import Step, count_steps
from duck.training.loop import fit
from duck.types import Augment, Batch, Examples, Recipe, Report

NAME = "train"


def train_stacked(
    models: Sequence[nn.Module],
    examples: Sequence[Examples],
    recipe: Recipe,
    generators: Sequence[torch.Generator],
    report: Report | None = None,
) -> None:
    """Train each model in place on its examples with its generator.

    The result is that of `loop.train` for each model, except that dropout draws other numbers.
    """
    if not len(models) == len(examples) == len(generators):
        raise BadInput(
            f"{len(models)} models, {len(examples)} sets and {len(generators)} generators."
        )
    stacked = StackedModels(models)
    count = len(models)

    def loss(net: nn.Module, step: Step) -> Tensor:
        logits = net(step[NAME].images).flatten(0, 1)
        labels = step[NAME].labels.flatten()
        # The sum of the mean losses of the models: each model gets the gradient of its own loss.
        return count * cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)

    batches = ParallelPasses(tuple(examples), tuple(generators), recipe.batch_size, recipe.augment)
    for generator in generators:
        # `fit` draws this number from a generator before the first epoch.
        torch.randint(2**62, (), generator=generator)
    fit(stacked, batches, loss, recipe, seeded(0, "together"), report=report, capturable=True)
    stacked.copy_to(models)


class StackedModels(nn.Module):
    """Several models as one: input (models, batch, ...), output (models, batch, classes).

    The first two axes of each weight are folded into one, so that the weights of a convolution stay
    four-dimensional and can be channels-last.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.count = len(models)
        # In a tuple, so that its empty weights are not registered as parameters.
        self.net = (copy.deepcopy(models[0]).to("meta").train(),)
        self.weights = nn.ParameterDict()
        for name, first in models[0].named_parameters():
            values = _fold([model.get_parameter(name).detach() for model in models])
            self.weights[_key(name)] = nn.Parameter(values, requires_grad=first.requires_grad)
        self.state = nn.Module()
        for name, _ in models[0].named_buffers():
            values = _fold([model.get_buffer(name) for model in models])
            self.state.register_buffer(_key(name), values)
        tensors = (*models[0].named_parameters(), *models[0].named_buffers())
        self.shapes = {name: tensor.shape for name, tensor in tensors}

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = vmap(self._forward_one, randomness="different")(self._unfolded(), images)
        return logits

    def _forward_one(self, tensors: dict[str, Tensor], images: Tensor) -> Tensor:
        return logits_of(functional_call(self.net[0], tensors, (images,)))

    def _unfolded(self) -> dict[str, Tensor]:
        """Return views with one row per model. BatchNorm writes its statistics through them."""
        tensors = dict([*self.weights.items(), *self.state.named_buffers()])
        shapes = self.shapes.items()
        return {name: tensors[_key(name)].view(self.count, *shape) for name, shape in shapes}

    @torch.no_grad()
    def copy_to(self, models: Sequence[nn.Module]) -> None:
        """Copy the weights and buffers back to the models."""
        values = self._unfolded()
        for row, model in enumerate(models):
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                tensor.copy_(values[name][row])


def _key(name: str) -> str:
    return name.replace(".", "/")


def _fold(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(1) if tensor.ndim == 0 else tensor for tensor in tensors])


@dataclass(frozen=True)
class ParallelPasses:
    """A shuffled pass of each model over its own examples, in parallel."""

    examples: tuple[Examples, ...]
    generators: tuple[torch.Generator, ...]
    size: int
    augment: Augment = "none"

    def __post_init__(self) -> None:
        if not can_stack(self.examples, self.size):
            raise BadInput(
                "Stacked models need batches of the same size and epochs of the same length."
            )

    def __len__(self) -> int:
        return count_steps(self.examples[0], self.size)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        passes = (
            examples.batches(self.size, own_generator, self.augment)
            for examples, own_generator in zip(self.examples, self.generators, strict=True)
        )
        for batches in zip(*passes, strict=True):
            yield {NAME: Batch(*(torch.stack(parts) for parts in zip(*batches, strict=True)))}


def can_stack(examples: Sequence[Examples], size: int) -> bool:
    """Return whether models on these examples can be trained as a stack."""
    return len({(min(size, len(part)), count_steps(part, size)) for part in examples}) == 1
