"""Predictions of a model on a split: logits and embeddings in float32."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.errors import TooFewOutputs
from duck.models.head import (
    PROBE_IMAGES,
    Head,
    check_logits,
    compute_logits,
    explaining_errors,
    logits_of,
    with_embeddings,
)
from duck.runtime import Precision, autocast, device_of, evaluating
from duck.types import Examples, Predictions

MAX_BATCH_VALUES = 2**22
"""Pixel values in a batch: 1,365 images of CIFAR or 27 of ImageNet. With four times as many, a
ResNet-18 on CIFAR took 8.5 GiB."""


def batch_size(examples: Examples) -> int:
    """Return the number of images in a batch for prediction."""
    return max(1, MAX_BATCH_VALUES // max(1, math.prod(examples.shape)))


def predict(
    model: nn.Module,
    examples: Examples,
    head: str | Head | None = None,
    change: Callable[[Tensor], Tensor] = lambda images: images,
) -> Predictions:
    """Return logits and embeddings of every sample, in order, on the host.

    `change` is applied to the images of each batch before the model sees them.
    """
    logits, embeddings = [], []
    probe = next(examples.batches(PROBE_IMAGES)).images
    with with_embeddings(model, head, probe) as net, evaluating(net):
        for batch in examples.batches(batch_size(examples)):
            output, embedding = net(change(batch.images))
            check_width(output, examples)
            logits.append(output.float().cpu())
            embeddings.append(embedding.float().cpu())
    return Predictions(torch.cat(logits), torch.cat(embeddings), examples.labels, examples.ids)


def check_model(model: nn.Module, examples: Examples) -> None:
    """Raise an error if the model cannot process the samples or does not return logits."""
    check_logits(compute_logits(model, next(examples.batches(PROBE_IMAGES)).images))


def check_width(logits: Tensor, examples: Examples) -> None:
    """Raise an error if a label has no output."""
    highest = int(examples.labels.max())
    if highest >= logits.shape[1]:
        raise TooFewOutputs(highest, logits.shape[1])


def logits_on(model: nn.Module, examples: Examples, precision: Precision = "float32") -> Tensor:
    """Return the logits of every sample, in order, in float32 on the model's device."""
    logits = []
    with evaluating(model), autocast(precision, device_of(model)):
        for batch in examples.batches(batch_size(examples)):
            with explaining_errors(model, batch.images):
                logits.append(logits_of(model(batch.images)).float())
            check_width(logits[-1], examples)
    return torch.cat(logits)


class Outcomes(NamedTuple):
    """One value per sample, in order, on the model's device."""

    correct: Tensor
    losses: Tensor
    predicted: Tensor


def outcomes(model: nn.Module, examples: Examples, precision: Precision = "float32") -> Outcomes:
    """Return whether each sample is classified correctly, its cross-entropy and predicted class."""
    logits = logits_on(model, examples, precision)
    labels = examples.labels.to(logits.device)
    predicted = logits.argmax(1)
    losses = cross_entropy(logits, labels, reduction="none")
    return Outcomes(predicted == labels, losses, predicted)


def accuracy(model: nn.Module, examples: Examples, precision: Precision = "float32") -> float:
    """Return the share of samples that are classified correctly."""
    return float(outcomes(model, examples, precision).correct.double().mean())
