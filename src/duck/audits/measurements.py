"""Measures of a model's outputs: accuracies, attacks, distances to retrained models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import rel_entr
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from duck.audits.attacks.base import ModelAttack, RetrainedAttack
from duck.audits.outputs import (
    ModelOutputs,
    Rows,
    Setting,
    SplitOutputs,
    retained_probabilities,
    temperature_of,
)
from duck.audits.scores import Array, Flags, Scored, softmax
from duck.audits.statistics import NORMAL_QUANTILE, Alternative, clopper_pearson, roc
from duck.audits.verdict import Question, Unit
from duck.metrics import aus

FOLDS = 5
SMALLEST = 1e-9
"""Replaces a distance of 0, which has no logarithm."""
FLOOR = 0.01
"""In nats, added to both distances of a ratio: models that are sure of every sample hardly
differ."""
NEAR_CLASSES = 3
ABOUT_SPLIT = {
    "forget": "share of the forget samples that are classified correctly",
    "retain": "share of retained training samples that are classified correctly",
    "test": "share of the test samples that are classified correctly",
    "forget-test": "share of unseen samples of the forgotten class that are classified correctly",
    "retain-test": "share of unseen samples of the other classes that are classified correctly",
}
OfModel = Callable[[ModelOutputs], "Measurement"]
OfPair = Callable[[ModelOutputs, ModelOutputs], Array]
OfGroup = Callable[[ModelOutputs, Sequence[ModelOutputs]], "Measurement"]


class Measurement(NamedTuple):
    """A number with its 95 % interval, if there is one, and the count of samples behind it."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Measure:
    """A row of the audit: what is measured, and the function that does it.

    `of_model` measures one model. `of_pair` compares two and returns a number for each forget
    sample, or one for all. `of_group` compares a model with all retrained models at once.
    """

    name: str
    about: str
    unit: Unit
    of_model: OfModel | None = None
    of_pair: OfPair | None = None
    of_group: OfGroup | None = None
    question: Question | None = None
    """The question that it is evidence for. None: it is reported only."""
    alternative: Alternative = "greater"
    log_scale: bool = False
    """Whether it is judged on a logarithmic scale: the spread of a distance grows with it."""


def rate(correct: Flags | Array, n: int | None = None) -> Measurement:
    """Return a share with its Clopper-Pearson interval.

    `n` replaces the number of rows where these are not independent samples.
    """
    value = float(np.mean(correct))
    count = len(correct) if n is None else n
    return Measurement(value, *clopper_pearson(value * count, count), count)


def mean(rows: Array) -> Measurement:
    """Return the mean of one number for each sample, with its normal interval."""
    value, n = float(rows.mean()), len(rows)
    half = NORMAL_QUANTILE * (float(rows.std(ddof=1)) / n**0.5 if n > 1 else 0.0)
    return Measurement(value, value - half, value + half, n)


def kl(p: Array, q: Array) -> Array:
    """Return the Kullback-Leibler divergence of each row in nats."""
    rows: Array = rel_entr(p, np.maximum(q, np.finfo(np.float64).tiny)).sum(1)
    return rows


def js(p: Array, q: Array) -> Array:
    """Return the Jensen-Shannon divergence of each row in nats; it is at most ln 2."""
    middle = (p + q) / 2
    rows: Array = (kl(p, middle) + kl(q, middle)) / 2
    return rows


def accuracies(setting: Setting) -> list[Measure]:
    """Return the accuracy on each split that exists."""
    functions: dict[str, OfModel] = {
        "forget": lambda outputs: rate(outputs.forget.correct),
        "retain": lambda outputs: rate(outputs.retain.correct),
    }
    unseen_splits = {
        "test": setting.test,
        "forget-test": setting.forget_test,
        "retain-test": setting.retain_test,
    }
    functions |= {name: _accuracy_at(rows) for name, rows in unseen_splits.items() if len(rows)}
    utility = "retain-test" if setting.kind == "class" else "test"
    measures = [
        Measure(
            f"accuracy {name}",
            ABOUT_SPLIT[name],
            "%",
            function,
            question="differs" if name == utility else None,
            alternative="two-sided",
        )
        for name, function in functions.items()
    ]
    if setting.kind == "samples":
        return measures

    # The test samples of a class are often few: by these alone, a model that still knows half of
    # the forget samples could pass.
    def recognised(outputs: ModelOutputs) -> Measurement:
        unseen = outputs.unseen.correct[setting.forget_test]
        return rate(np.concatenate([outputs.forget.correct, unseen]))

    about = (
        "share of all samples of the forgotten class, forgotten and unseen, "
        "that are classified correctly"
    )
    return [*measures, Measure("recognised", about, "%", recognised)]


def class_accuracies(setting: Setting, labels: npt.NDArray[np.int64]) -> list[Measure]:
    """Return the accuracy on each class among the test samples.

    `labels` are those of the unseen samples.
    """
    about = "share of this class's test samples that are classified correctly"
    measures = []
    for index, name in enumerate(setting.classes):
        rows = setting.test[labels[setting.test] == index]
        if len(rows):
            measures.append(Measure(f"accuracy class {name}", about, "%", _accuracy_at(rows)))
    return measures


def neighbours(setting: Setting, original: ModelOutputs) -> list[Measure]:
    """Return the accuracy on the classes that are most confused with the forgotten ones."""
    if setting.kind == "samples":
        return []
    shares = retained_probabilities(original.forget, setting.retained_classes).mean(0)
    near = setting.retained_classes[np.argsort(-shares, kind="stable")[:NEAR_CLASSES]]
    rows = setting.test[np.isin(original.unseen.labels[setting.test], near)]
    names = ", ".join(setting.classes[index] for index in near)
    about = f"accuracy on the classes most confused with the forgotten one: {names}"
    return [Measure("neighbour accuracy", about, "%", _accuracy_at(rows))] if len(rows) else []


def aus_measures(setting: Setting, original: ModelOutputs) -> list[Measure]:
    """Return AUS (DUCK, eq. 6) where it can be computed."""
    if setting.kind == "class" and not len(setting.forget_test):
        return []
    before = float(original.unseen.correct[setting.reported].mean())

    def measure_aus(outputs: ModelOutputs) -> Measurement:
        correct = outputs.unseen.correct
        forget = outputs.forget.correct
        if setting.kind == "class":
            forget = correct[setting.forget_test]
        after = float(correct[setting.reported].mean())
        value = aus(setting.kind, before, after, float(forget.mean()))
        return Measurement(value, None, None, len(forget))

    about = "retained accuracy relative to what is still remembered; a masked output scores as high"
    return [Measure("AUS", about, "score", measure_aus)]


def membership(attacks: Mapping[str, ModelAttack]) -> list[Measure]:
    """Return the AUC of each attack on one model; 0.5 is chance."""
    found = []
    for name, attack in attacks.items():
        measure = Measure(
            name,
            attack.direction,
            "AUC",
            of_model=partial(_auc, attack),
            question="exposed" if attack.decisive else None,
            alternative="two-sided",
        )
        if isinstance(attack, RetrainedAttack):
            measure = replace(measure, of_model=None, of_group=partial(_auc, attack.against))
        found.append(measure)
    return found


def _auc(score: Callable[..., Scored], *models: Any) -> Measurement:
    return Measurement(*roc(score(*models)).auc)


def distances(setting: Setting) -> list[Measure]:
    """Return how far outputs on the forget samples are from a retrained model's.

    Most leave the forgotten classes out of both outputs.
    """

    def outputs_of(outputs: ModelOutputs) -> Array:
        return retained_probabilities(outputs.forget, setting.retained_classes)

    def by_l2(outputs: ModelOutputs, other: ModelOutputs) -> Array:
        difference = softmax(outputs.forget.logits) - softmax(other.forget.logits)
        rows: Array = np.linalg.norm(difference, axis=1)
        return rows

    def by_classifier(outputs: ModelOutputs, other: ModelOutputs) -> Array:
        return np.array([classifier_auc(outputs_of(outputs), outputs_of(other))])

    def by_excess(outputs: ModelOutputs, other: ModelOutputs) -> Array:
        forget = js(*(calibrated(model, model.forget, setting) for model in (outputs, other)))
        ratio: Array = (forget.mean() + FLOOR) / (by_unseen(outputs, other) + FLOOR)
        return ratio

    def by_unseen(outputs: ModelOutputs, other: ModelOutputs) -> Array:
        rows = (calibrated(model, model.unseen, setting) for model in (outputs, other))
        return np.array([js(*(part[setting.reported] for part in rows)).mean()])

    measures = [
        _distance(
            "output distance",
            "Jensen-Shannon divergence to retrained models on the forget samples",
            "nats",
            lambda outputs, other: js(outputs_of(outputs), outputs_of(other)),
        ),
        _distance(
            "excess distance",
            "calibrated divergence from retrained models on the forget samples, divided by that on "
            "unseen samples; another recipe alone changes both",
            "score",
            by_excess,
            "exposed",
        ),
        _distance(
            "distance elsewhere",
            "calibrated divergence from retrained models on unseen samples",
            "nats",
            by_unseen,
            "differs",
        ),
        _distance(
            "output KL",
            "divergence of the outputs of retrained models from those of this model on the forget "
            "samples",
            "nats",
            lambda outputs, other: kl(outputs_of(other), outputs_of(outputs)),
        ),
        _distance(
            "activation distance",
            "L2 distance of softmax outputs to retrained models on the forget samples",
            "distance",
            by_l2,
        ),
    ]
    if setting.num_forget >= 2 * FOLDS:
        about = (
            "a classifier separates outputs on forget samples from those of a retrained model; "
            "compare with retrained models against each other"
        )
        measures.append(Measure("class membership", about, "AUC", of_pair=by_classifier))
    about = "product over forget, retain and test of 1 - gap in accuracy to retrained models"
    return [*measures, Measure("ToW", about, "score", of_pair=partial(tow, test=setting.test))]


def _distance(
    name: str, about: str, unit: Unit, function: OfPair, question: Question | None = None
) -> Measure:
    return Measure(name, about, unit, of_pair=function, question=question, log_scale=True)


def calibrated(outputs: ModelOutputs, split: SplitOutputs, setting: Setting) -> Array:
    """Return the probabilities of retained classes, at the temperature of the model."""
    logits: Array = split.logits / temperature_of(outputs, setting)
    return softmax(logits[:, setting.retained_classes])


def tow(outputs: ModelOutputs, other: ModelOutputs, test: Rows) -> Array:
    """Return the tug of war of two models (Zhao et al. 2024), one number."""
    gaps = [
        outputs.forget.correct.mean() - other.forget.correct.mean(),
        outputs.retain.correct.mean() - other.retain.correct.mean(),
        outputs.unseen.correct[test].mean() - other.unseen.correct[test].mean(),
    ]
    product: Array = np.prod(1 - np.abs(gaps), keepdims=True)
    return product


def ridge_classifier(class_weight: str | None = None) -> Pipeline:
    """Return a linear classifier in closed form. An audit fits hundreds, so that speed matters."""
    return make_pipeline(StandardScaler(), RidgeClassifier(class_weight=class_weight))


def classifier_auc(outputs: Array, other: Array) -> float:
    """Return the cross-validated AUC of a linear classifier on the log outputs of two models.

    Both hold the same samples row by row; a fold holds the same samples of both.
    """
    inputs = np.log(np.concatenate([outputs, other]) + 1e-6)
    is_other = np.repeat([False, True], len(outputs))
    folds = PredefinedSplit(np.tile(np.arange(len(outputs)) % FOLDS, 2))
    scores = cross_val_predict(
        ridge_classifier(), inputs, is_other, cv=folds, method="decision_function"
    )
    ids = np.arange(len(inputs)).astype(str)
    return roc(Scored(ids, scores, is_other)).auc.value


def zrf(untrained: ModelOutputs | None) -> list[Measure]:
    """Return the likeness to a randomly initialised model (Chundawat et al. 2023)."""
    if untrained is None:
        return []
    random_outputs = softmax(untrained.forget.logits)

    def measure_zrf(outputs: ModelOutputs) -> Measurement:
        return mean(1 - js(softmax(outputs.forget.logits), random_outputs) / np.log(2))

    about = "likeness to a randomly initialised model on the forget samples, 1 the highest"
    return [Measure("ZRF", about, "score", measure_zrf)]


def _accuracy_at(rows: Rows) -> OfModel:
    """Return the function that measures the accuracy on these rows of the unseen samples."""
    return lambda outputs: rate(outputs.unseen.correct[rows])
