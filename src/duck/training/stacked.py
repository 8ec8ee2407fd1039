"""Train several models of one architecture at once: their weights stacked, each on its own batches, one kernel for all."""

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
from duck.training.batching import Step, steps
from duck.training.loop import fit
from duck.types import Augment, Batch, Examples, Recipe, Report

NAME = "train"


def train_together(
    models: Sequence[nn.Module],
    examples: Sequence[Examples],
    recipe: Recipe,
    generators: Sequence[torch.Generator],
    report: Report | None = None,
) -> None:
    """As `fit.train` of each model on its examples with its generator, in place; dropout draws other numbers than it does there."""
    if not len(models) == len(examples) == len(generators):
        raise BadInput(
            f"{len(models)} models, {len(examples)} sets of examples and {len(generators)} generators: they must be as many."
        )
    stacked, count = Stacked(models), len(models)

    def loss(net: nn.Module, step: Step) -> Tensor:
        batch = step[NAME]
        logits = net(batch.images).flatten(0, 1)
        # The mean of each model's batch, summed: the gradient of a model is that of its own loss.
        return count * cross_entropy(
            logits, batch.labels.flatten(), label_smoothing=recipe.label_smoothing
        )

    batches = Abreast(tuple(examples), tuple(generators), recipe.batch_size, recipe.augment)
    for generator in generators:
        torch.randint(
            2**62, (), generator=generator
        )  # what `fit` takes from a generator before the first epoch
    fit(stacked, batches, loss, recipe, seeded(0, "together"), report=report, steady=True)
    stacked.give(models)


class Stacked(nn.Module):
    """Models of one architecture as one: (models, batch, ...) in, (models, batch, classes) out.

    The leading axes of each weight are kept folded into one, so that the weights of a convolution stay four-dimensional and can lie
    channels-last.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.count = len(models)
        self.net = (
            copy.deepcopy(models[0]).to("meta").train(),
        )  # in a tuple: its empty weights are not ours
        self.weights = nn.ParameterDict()
        for name, first in models[0].named_parameters():
            values = _fold([model.get_parameter(name).detach() for model in models])
            self.weights[_key(name)] = nn.Parameter(values, requires_grad=first.requires_grad)
        self.state = nn.Module()
        for name, _ in models[0].named_buffers():
            self.state.register_buffer(
                _key(name), _fold([model.get_buffer(name) for model in models])
            )
        self.shapes = {
            name: tensor.shape
            for name, tensor in (*models[0].named_parameters(), *models[0].named_buffers())
        }

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = vmap(self._one, randomness="different")(self._unfolded(), images)
        return logits

    def _one(self, tensors: dict[str, Tensor], images: Tensor) -> Tensor:
        return logits_of(functional_call(self.net[0], tensors, (images,)))

    def _unfolded(self) -> dict[str, Tensor]:
        """Views, a model a row: BatchNorm writes its running statistics through them."""
        held = {**dict(self.weights.items()), **dict(self.state.named_buffers())}
        return {
            name: held[_key(name)].view(self.count, *shape) for name, shape in self.shapes.items()
        }

    @torch.no_grad()
    def give(self, models: Sequence[nn.Module]) -> None:
        """Each model its weights and statistics."""
        values = self._unfolded()
        for row, model in enumerate(models):
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                tensor.copy_(values[name][row])


def _key(name: str) -> str:
    return name.replace(".", "/")


def _fold(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(1) if tensor.ndim == 0 else tensor for tensor in tensors])


@dataclass(frozen=True)
class Abreast:
    """A shuffled pass of each model over its own examples, side by side."""

    examples: tuple[Examples, ...]
    generators: tuple[torch.Generator, ...]
    size: int
    augment: Augment = "none"

    def __post_init__(self) -> None:
        if not alike(self.examples, self.size):
            raise BadInput(
                "Models train together only on batches of one size and epochs of one length."
            )

    def __len__(self) -> int:
        return steps(self.examples[0], self.size)

    def epoch(self, generator: torch.Generator) -> Iterator[Step]:
        passes = (
            part.batches(self.size, own, self.augment)
            for part, own in zip(self.examples, self.generators, strict=True)
        )
        for batches in zip(*passes, strict=True):
            yield {NAME: Batch(*(torch.stack(parts) for parts in zip(*batches, strict=True)))}


def alike(examples: Sequence[Examples], size: int) -> bool:
    """Whether models on these examples can train together."""
    return len({(min(size, len(part)), steps(part, size)) for part in examples}) == 1
