"""Measures of a model's outputs as pure functions: accuracies, membership attacks, distances to retrained models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from duck.audits.attacks.base import model_attacks
from duck.audits.intervals import binomial_error, clopper_pearson
from duck.audits.margins import softmax
from duck.audits.outputs import Array, ModelOutputs, Rows, Setting, SplitOutputs, renormalised
from duck.audits.ridge import ridge
from duck.audits.roc import roc
from duck.audits.scores import Scored
from duck.audits.verdict import Tier, Unit
from duck.metrics import aus

FOLDS = 5
NEAR_CLASSES = 3
ABOUT_SPLIT = {
    "forget": "share of the forget samples that are classified right",
    "retain": "share of retained training samples that are classified right",
    "test": "share of the test samples that are classified right",
    "forget-test": "share of unseen samples of the forgotten class that are classified right",
    "retain-test": "share of unseen samples of the other classes that are classified right",
}
ScoringFunction = Callable[[ModelOutputs], Scored]
"""An attack on one model, made for a setting."""


class Measurement(NamedTuple):
    """A number, its 95 % interval, the standard error with which it was measured, and the samples behind it."""

    value: float
    low: float | None
    high: float | None
    error: float
    n: int


@dataclass(frozen=True)
class Measure:
    """One line of the audit. `own` looks at one model; `pair` at two, and gives a number for each forget sample or one for all."""

    name: str
    about: str
    unit: Unit
    own: Callable[[ModelOutputs], Measurement] | None = None
    pair: Callable[[ModelOutputs, ModelOutputs], Array] | None = None
    primary: bool = False
    """Decides; the others are shown."""
    positive: bool = False
    """A distance: its spread grows with it, so it is judged on a logarithmic scale."""


def rate(correct: npt.NDArray[np.bool_] | Array, n: int | None = None) -> Measurement:
    """A share, with Clopper and Pearson's interval; `n` where the rows are not independent samples."""
    value, count = float(np.mean(correct)), len(correct) if n is None else n
    return Measurement(
        value, *clopper_pearson(value * count, count), binomial_error(value, count), count
    )


def mean(rows: Array) -> Measurement:
    """Of one number for each sample."""
    value, n = float(rows.mean()), len(rows)
    error = float(rows.std(ddof=1)) / n**0.5 if n > 1 else 0.0
    half = float(norm.ppf(0.975)) * error
    return Measurement(value, value - half, value + half, error, n)


def measure_auc(scored: Scored) -> Measurement:
    """Return the AUC of an attack with its interval."""
    auc = roc(scored).auc
    return Measurement(
        auc.value, auc.low, auc.high, (auc.high - auc.low) / (2 * float(norm.ppf(0.975))), auc.n
    )


def kl(p: Array, q: Array) -> Array:
    """Row by row, in nats."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(
            p > 0, p * (np.log(p) - np.log(np.maximum(q, np.finfo(np.float64).tiny))), 0.0
        )
    rows: Array = parts.sum(1)
    return rows


def js(p: Array, q: Array) -> Array:
    """Jensen-Shannon divergence row by row, in nats: at most ln 2."""
    middle = (p + q) / 2
    rows: Array = (kl(p, middle) + kl(q, middle)) / 2
    return rows


def accuracies(setting: Setting) -> list[Measure]:
    """Of each split that exists."""
    found = {
        "forget": _accuracy_of(lambda seen: seen.forget),
        "retain": _accuracy_of(lambda seen: seen.retain),
    }
    tested = {
        "test": setting.test,
        "forget-test": setting.forget_test,
        "retain-test": setting.retain_test,
    }
    found |= {name: _accuracy_at(rows) for name, rows in tested.items() if len(rows)}
    decisive = {"retain-test"} if setting.kind == "class" else {"forget", "test"}
    shown = [
        Measure(f"accuracy {name}", ABOUT_SPLIT[name], "%", own, primary=name in decisive)
        for name, own in found.items()
    ]
    return [*shown, _recognised(setting)] if setting.kind == "class" else shown


def _recognised(setting: Setting) -> Measure:
    """By its test samples alone, often few, a model that knows half of the samples it was to forget could pass."""
    about = "share of all samples of the forgotten class, forgotten and unseen, that are classified right"

    def own(seen: ModelOutputs) -> Measurement:
        return rate(np.concatenate([seen.forget.correct, seen.unseen.correct[setting.forget_test]]))

    return Measure("recognised", about, "%", own, primary=True)


def class_accuracies(setting: Setting, labels: npt.NDArray[np.int64]) -> list[Measure]:
    """Of each class among the reported test samples; `labels` of the unseen ones."""
    about = "share of this class's test samples that are classified right"
    rows = {
        name: setting.test[labels[setting.test] == index]
        for index, name in enumerate(setting.classes)
    }
    return [
        Measure(f"accuracy class {name}", about, "%", _accuracy_at(chosen))
        for name, chosen in rows.items()
        if len(chosen)
    ]


def neighbours(setting: Setting, original: ModelOutputs) -> list[Measure]:
    """Accuracy on the classes that are most confused with the forgotten ones."""
    if setting.kind == "samples":
        return []
    shares = renormalised(original.forget, setting.kept).mean(0)
    near = setting.kept[np.argsort(-shares, kind="stable")[:NEAR_CLASSES]]
    rows = setting.test[np.isin(original.unseen.labels[setting.test], near)]
    about = f"accuracy on the classes most confused with the forgotten one: {', '.join(setting.classes[index] for index in near)}"
    return [Measure("neighbour accuracy", about, "%", _accuracy_at(rows))] if len(rows) else []


def score(setting: Setting, original: ModelOutputs) -> list[Measure]:
    """AUS (DUCK, eq. 6)."""
    if setting.kind == "class" and not len(setting.forget_test):
        return []
    before = float(original.unseen.correct[setting.reported].mean())

    def own(seen: ModelOutputs) -> Measurement:
        correct = seen.unseen.correct
        gone = correct[setting.forget_test] if setting.kind == "class" else seen.forget.correct
        value = aus(
            setting.kind, before, float(correct[setting.reported].mean()), float(gone.mean())
        )
        return Measurement(value, None, None, 0.0, len(gone))

    return [
        Measure(
            "AUS",
            "kept accuracy over what is still remembered; a masked output scores as high as forgetting",
            "score",
            own,
        )
    ]


def membership(setting: Setting, *tiers: Tier) -> list[Measure]:
    """Return the AUC of each attack of these tiers on one model; 0.5 is chance.

    Attacks of the quick tier are judged there, without retrained models.
    """
    return [
        Measure(
            name,
            attack.direction,
            "AUC",
            auc_of(attack),
            primary=attack.decisive and attack.tier != "quick",
        )
        for name, attack in model_attacks(setting, *tiers).items()
    ]


def auc_of(attack: ScoringFunction) -> Callable[[ModelOutputs], Measurement]:
    """Return the function that measures the AUC of an attack."""
    return lambda outputs: measure_auc(attack(outputs))


def distances(setting: Setting) -> list[Measure]:
    """How far outputs on the forget samples are from a retrained model's; the forgotten classes left out of both."""

    def outputs(seen: ModelOutputs) -> Array:
        return renormalised(seen.forget, setting.kept)

    def by_js(seen: ModelOutputs, other: ModelOutputs) -> Array:
        return js(outputs(seen), outputs(other))

    def by_kl(seen: ModelOutputs, other: ModelOutputs) -> Array:
        return kl(outputs(other), outputs(seen))

    def by_l2(seen: ModelOutputs, other: ModelOutputs) -> Array:
        rows: Array = np.linalg.norm(
            softmax(seen.forget.logits) - softmax(other.forget.logits), axis=1
        )
        return rows

    def by_classifier(seen: ModelOutputs, other: ModelOutputs) -> Array:
        return np.array([classifier_auc(outputs(seen), outputs(other))])

    def by_accuracies(seen: ModelOutputs, other: ModelOutputs) -> Array:
        return np.array([tow(seen, other, setting.test)])

    near = "to retrained models on the forget samples"
    told = "a classifier tells outputs of forget samples from a retrained model's; compare with retrained ones among themselves"
    return [
        Measure(
            "output distance",
            f"Jensen-Shannon divergence {near}",
            "nats",
            pair=by_js,
            primary=True,
            positive=True,
        ),
        Measure(
            "output KL",
            "divergence of retrained models' outputs from this model's on the forget samples",
            "nats",
            pair=by_kl,
            positive=True,
        ),
        Measure(
            "activation distance",
            f"L2 distance of softmax outputs {near}",
            "distance",
            pair=by_l2,
            positive=True,
        ),
        *(
            [Measure("class membership", told, "AUC", pair=by_classifier)]
            if setting.asked >= 2 * FOLDS
            else []
        ),
        Measure(
            "ToW",
            "product over forget, retain and test of 1 - gap in accuracy to retrained models",
            "score",
            pair=by_accuracies,
        ),
    ]


def tow(seen: ModelOutputs, other: ModelOutputs, test: Rows) -> float:
    """Tug of war (Zhao et al. 2024)."""
    pairs = (seen.forget, other.forget), (seen.retain, other.retain)
    gaps = [float(a.correct.mean() - b.correct.mean()) for a, b in pairs]
    gaps.append(float(seen.unseen.correct[test].mean() - other.unseen.correct[test].mean()))
    return float(np.prod(1 - np.abs(gaps)))


def classifier_auc(ours: Array, theirs: Array) -> float:
    """AUC, across folds of samples, of a linear classifier on log outputs; row for row the same samples."""
    samples = np.arange(len(ours)) % FOLDS
    scores = np.empty((2, len(ours)))
    for fold in range(FOLDS):
        inside, outside = samples != fold, samples == fold
        inputs = np.log(np.concatenate([ours[inside], theirs[inside]]) + 1e-6)
        score = ridge(inputs, np.repeat([[-1.0], [1.0]], int(inside.sum()), axis=0))
        scores[:, outside] = [score(np.log(part[outside] + 1e-6))[:, 0] for part in (ours, theirs)]
    names = np.arange(2 * len(ours)).astype(str)
    return roc(Scored(names, scores.ravel(), np.repeat([False, True], len(ours)))).auc.value


def zrf(untrained: ModelOutputs | None) -> list[Measure]:
    """How like a randomly initialised model it is on the forget samples (Chundawat et al. 2023)."""
    if untrained is None:
        return []
    blank = softmax(untrained.forget.logits)

    def own(seen: ModelOutputs) -> Measurement:
        return mean(1 - js(softmax(seen.forget.logits), blank) / np.log(2))

    return [
        Measure(
            "ZRF",
            "likeness to a randomly initialised model on the forget samples, 1 the highest",
            "score",
            own,
        )
    ]


def _accuracy_of(
    part: Callable[[ModelOutputs], SplitOutputs],
) -> Callable[[ModelOutputs], Measurement]:
    return lambda seen: rate(part(seen).correct)


def _accuracy_at(rows: Rows) -> Callable[[ModelOutputs], Measurement]:
    """On these rows of the unseen samples."""
    return lambda seen: rate(seen.unseen.correct[rows])
