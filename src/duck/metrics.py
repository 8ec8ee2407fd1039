"""Scores of an unlearned model: accuracies of every split and AUS."""

from dataclasses import dataclass

import torch
from torch import nn

from duck.errors import BadInput
from duck.predict import accuracy, outcomes
from duck.types import Data, Scenario

SMALL = 200
"""Below so many forget samples an accuracy on them is too coarse for AUS to rank by."""


Confusion = dict[str, dict[str, int]]
"""True class -> class by the model -> how many; pairs that do not occur are left out. The keys are text, as in JSON."""


@dataclass(frozen=True)
class Scores:
    """Accuracies in 0..1 and the AUS; a split that does not exist is None."""

    aus: float | None
    forget: float
    retain: float
    test: float | None
    forget_test: float | None
    retain_test: float | None
    forget_loss: float
    """Mean cross-entropy on the forget samples: moves where the accuracy of few samples cannot."""


def aus(kind: str, original_test: float, test: float, forget: float) -> float:
    """Adaptive Unlearning Score (DUCK, eq. 6): kept accuracy over what is still remembered.

    In class removal the accuracies are those on the test split (retained classes; forgotten class). Else `forget` is the accuracy
    on the forgotten training samples, which should be that of unseen ones.
    """
    for name, value in (("original_test", original_test), ("test", test), ("forget", forget)):
        if not 0 <= value <= 1:
            raise BadInput(f"{name} must be an accuracy in [0, 1], got {value}.")
    delta = forget if kind == "class" else abs(test - forget)
    return (1 - (original_test - test)) / (1 + delta)


def evaluate(model: nn.Module, scenario: Scenario, original: Scores | None = None) -> Scores:
    """Scores on data that no stop rule saw. Without `original` the model is its own original."""
    data = scenario.data
    forget = outcomes(model, data.train.take(scenario.forget))
    forget_accuracy = float(forget.correct.double().mean())
    retain = accuracy(model, data.train.take(scenario.retain))
    if data.test is None or not len(scenario.test):
        return Scores(None, forget_accuracy, retain, None, None, None, float(forget.losses.double().mean()))
    correct = outcomes(model, data.test).correct.double().cpu()
    part = {
        name: float(correct[rows].mean()) if len(rows) else None
        for name, rows in (("test", scenario.test), ("forget_test", scenario.forget_test), ("retain_test", scenario.retain_test))
    }
    kept, gone = ("retain_test", part["forget_test"]) if scenario.kind == "class" else ("test", forget_accuracy)
    before = part[kept] if original is None else getattr(original, kept)
    score = None if part[kept] is None or gone is None or before is None else aus(scenario.kind, before, part[kept] or 0.0, gone)
    return Scores(score, forget_accuracy, retain, **part, forget_loss=float(forget.losses.double().mean()))


def confusion(model: nn.Module, scenario: Scenario) -> Confusion | None:
    """How often each class of the reported test samples is taken for which; None where there are none."""
    data = scenario.data
    if data.test is None or not len(scenario.test):
        return None
    reported = data.test.take(scenario.test)
    pairs, counts = torch.stack([reported.labels, outcomes(model, reported).predicted.cpu()], 1).unique(dim=0, return_counts=True)
    counted: Confusion = {}
    for (true, seen), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        counted.setdefault(str(true), {})[str(seen)] = count
    return counted


def training_scores(model: nn.Module, data: Data) -> dict[str, float | None]:
    """Of an original: on its training data, and on the test data that no stop rule sees."""
    if data.test is None:
        return {"train": accuracy(model, data.train), "test": None}
    rows = torch.arange(len(data.test))
    reported = data.test.take(rows[~torch.isin(rows, data.holdout)])
    return {"train": accuracy(model, data.train), "test": accuracy(model, reported)}


def forgot_nothing(original: Scores, unlearned: Scores) -> bool:
    """Neither the accuracy nor the loss on the forget samples got worse; where classes go, the accuracy alone decides."""
    surer = unlearned.forget_loss <= original.forget_loss * 1.001 + 1e-6
    return unlearned.forget >= original.forget and (surer or original.forget_test is not None)
