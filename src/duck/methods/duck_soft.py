"""DUCK-soft, a variant of DUCK that spreads what it forgets."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._distillation import divergences_from
from duck.methods._relabelling import check_other_class
from duck.methods._stopping import Stop
from duck.methods.base import METHODS
from duck.methods.duck import Duck, StepOutputs, class_centroids, closeness_to
from duck.models.head import WithEmbedding
from duck.types import Task

MIN_TEMPERATURE = 0.02
MAX_TEMPERATURE = 1.0
"""Limits of a fitted temperature. Where every sample is nearest to the centroid of its own class,
the lowest temperature is always the best."""
BISECTIONS = 30


@METHODS.register("duck-soft")
@dataclass(frozen=True)
class DuckSoft(Duck):
    """DUCK whose outputs spread over the remaining classes as a retrained model's do.

    Whole classes: the outputs of each forget sample are trained towards a softmax of its closeness
    to the centroids of the remaining classes, not its embedding towards the nearest centroid.
    Single samples: DUCK's targets, until the losses are as those of unseen samples.
    """

    paper: ClassVar[str] = "ours, a variant of Cotogni 2023, arXiv:2312.02052"

    stop: Stop = "distribution"
    """As in DUCK, which has another default."""
    target_temperature: float | None = None
    """Temperature of the softmax over cosines. None: the one with the lowest negative
    log-likelihood on holdout samples of the remaining classes."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        remains = torch.isin(task.forget.labels, task.retain.labels)
        if remains.any() or self.target_class is not None:
            return super().__call__(model, task)
        return _ClassRemoval(**vars(self))(model, task)


@dataclass(frozen=True)
class _ClassRemoval(Duck):
    """DUCK with probabilities instead of centroids as targets."""

    target_temperature: float | None = None

    def _targets(self, net: WithEmbedding, task: Task) -> Tensor:
        """Return the target of each forget sample, (samples, classes)."""
        centroids, present = class_centroids(net, task.retain, task.num_classes, task.recipe)
        check_other_class(present.any())
        temperature = self.target_temperature
        if temperature == 0:
            raise BadInput("target_temperature must be above 0.")
        if temperature is None:
            temperature = self._fitted_temperature(net, centroids, present, task)
        targets = torch.empty(len(task.forget), task.num_classes, device=centroids.device)
        for batch, closeness in closeness_to(net, centroids, task.forget, task.recipe):
            closeness[:, ~present] = -torch.inf
            targets[batch.rows] = (closeness / temperature).softmax(1)
        return targets

    def _fitted_temperature(
        self, net: WithEmbedding, centroids: Tensor, present: Tensor, task: Task
    ) -> float:
        examples = task.retain if task.holdout is None else task.holdout
        remains = torch.isin(examples.labels, task.retain.labels).nonzero().flatten()
        parts, labels = [], []
        for batch, closeness in closeness_to(net, centroids, examples.take(remains), task.recipe):
            parts.append(closeness[:, present])
            # Labels as columns of the classes that are present.
            labels.append((present.cumsum(0) - 1)[batch.labels])
        return fit_temperature(torch.cat(parts), torch.cat(labels))

    def forget_losses(self, outputs: StepOutputs, targets: Tensor) -> Tensor:
        """Return the divergence of each forget sample's outputs from its target."""
        return divergences_from(targets, outputs.forget_logits.float())


def fit_temperature(closeness: Tensor, labels: Tensor) -> float:
    """Return the temperature of a softmax with the lowest negative log-likelihood.

    The likelihood is concave in the inverse of the temperature, so its slope is bisected.
    """
    own = closeness[torch.arange(len(labels)), labels].double()
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        expected = ((middle * closeness.double()).softmax(1) * closeness).sum(1)
        if float((own - expected).mean()) >= 0:
            low = middle
        else:
            high = middle
    return 2 / (low + high)
