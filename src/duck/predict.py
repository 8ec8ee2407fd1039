"""What a model says of a split: logits and embeddings, once, in float32."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from duck.models.embedding import PROBES, embedded, logits_of
from duck.runtime import Precision, autocast, device_of, evaluating
from duck.types import Examples, Predictions

BATCH = 1000


def predict(model: nn.Module, examples: Examples, head: str | None = None) -> Predictions:
    """Logits and embeddings of every sample, in order, on the host."""
    logits, embeddings = [], []
    probe = next(examples.batches(PROBES)).images
    with embedded(model, head, probe) as net, evaluating(net):
        for batch in examples.batches(BATCH):
            output, embedding = net(batch.images)
            logits.append(output.float().cpu())
            embeddings.append(embedding.float().cpu())
    return Predictions(torch.cat(logits), torch.cat(embeddings), examples.labels, examples.ids)


class Outcomes(NamedTuple):
    """Per sample, in order, on the model's device."""

    correct: Tensor
    losses: Tensor


def outcomes(model: nn.Module, examples: Examples, precision: Precision = "float32") -> Outcomes:
    """Whether each sample is classified right, and its cross-entropy: all that a stop rule or a score needs."""
    correct, losses = [], []
    with evaluating(model), autocast(precision, device_of(model)):
        for batch in examples.batches(BATCH):
            logits = logits_of(model(batch.images)).float()
            correct.append(logits.argmax(1) == batch.labels)
            losses.append(cross_entropy(logits, batch.labels, reduction="none"))
    return Outcomes(torch.cat(correct), torch.cat(losses))


def accuracy(model: nn.Module, examples: Examples, precision: Precision = "float32") -> float:
    return float(outcomes(model, examples, precision).correct.double().mean())
