"""Measures of a model's outputs as pure functions: accuracies, membership attacks, distances to retrained models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from duck.audits.attacks.svm import quick_svm
from duck.audits.intervals import binomial_error, clopper_pearson
from duck.audits.margins import softmax
from duck.audits.outputs import Array, Observed, Part, Rows, Setting, renormalised
from duck.audits.ridge import ridge
from duck.audits.roc import roc
from duck.audits.scores import Scored
from duck.audits.verdict import Unit
from duck.metrics import aus

FOLDS = 5
FEWEST_SVM = 6
"""Unseen samples that the SVM attack needs."""
NEAR_CLASSES = 3
ABOUT_SPLIT = {
    "forget": "share of the forget samples that are classified right",
    "retain": "share of retained training samples that are classified right",
    "test": "share of the test samples that are classified right",
    "forget-test": "share of unseen samples of the forgotten class that are classified right",
    "retain-test": "share of unseen samples of the other classes that are classified right",
}
Attack = Callable[[Observed], Scored]


class Value(NamedTuple):
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
    own: Callable[[Observed], Value] | None = None
    pair: Callable[[Observed, Observed], Array] | None = None
    primary: bool = False
    """Decides; the others are shown."""
    positive: bool = False
    """A distance: its spread grows with it, so it is judged on a logarithmic scale."""


def rate(correct: npt.NDArray[np.bool_] | Array, n: int | None = None) -> Value:
    """A share, with Clopper and Pearson's interval; `n` where the rows are not independent samples."""
    value, count = float(np.mean(correct)), len(correct) if n is None else n
    return Value(value, *clopper_pearson(value * count, count), binomial_error(value, count), count)


def mean(rows: Array) -> Value:
    """Of one number for each sample."""
    value, n = float(rows.mean()), len(rows)
    error = float(rows.std(ddof=1)) / n**0.5 if n > 1 else 0.0
    half = float(norm.ppf(0.975)) * error
    return Value(value, value - half, value + half, error, n)


def separation(scored: Scored) -> Value:
    """The AUC of an attack."""
    auc = roc(scored).auc
    return Value(
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


def accuracies(where: Setting) -> list[Measure]:
    """Of each split that exists."""
    found = {
        "forget": _accuracy_of(lambda seen: seen.forget),
        "retain": _accuracy_of(lambda seen: seen.retain),
    }
    tested = {
        "test": where.test,
        "forget-test": where.forget_test,
        "retain-test": where.retain_test,
    }
    found |= {name: _accuracy_at(rows) for name, rows in tested.items() if len(rows)}
    decisive = {"retain-test"} if where.kind == "class" else {"forget", "test"}
    shown = [
        Measure(f"accuracy {name}", ABOUT_SPLIT[name], "%", own, primary=name in decisive)
        for name, own in found.items()
    ]
    return [*shown, _recognised(where)] if where.kind == "class" else shown


def _recognised(where: Setting) -> Measure:
    """By its test samples alone, often few, a model that knows half of the samples it was to forget could pass."""
    about = "share of all samples of the forgotten class, forgotten and unseen, that are classified right"

    def own(seen: Observed) -> Value:
        return rate(np.concatenate([seen.forget.correct, seen.unseen.correct[where.forget_test]]))

    return Measure("recognised", about, "%", own, primary=True)


def class_accuracies(where: Setting, labels: npt.NDArray[np.int64]) -> list[Measure]:
    """Of each class among the reported test samples; `labels` of the unseen ones."""
    about = "share of this class's test samples that are classified right"
    rows = {
        name: where.test[labels[where.test] == index] for index, name in enumerate(where.classes)
    }
    return [
        Measure(f"accuracy class {name}", about, "%", _accuracy_at(chosen))
        for name, chosen in rows.items()
        if len(chosen)
    ]


def neighbours(where: Setting, original: Observed) -> list[Measure]:
    """Accuracy on the classes that are most confused with the forgotten ones."""
    if where.kind == "samples":
        return []
    shares = renormalised(original.forget, where.kept).mean(0)
    near = where.kept[np.argsort(-shares, kind="stable")[:NEAR_CLASSES]]
    rows = where.test[np.isin(original.unseen.labels[where.test], near)]
    about = f"accuracy on the classes most confused with the forgotten one: {', '.join(where.classes[index] for index in near)}"
    return [Measure("neighbour accuracy", about, "%", _accuracy_at(rows))] if len(rows) else []


def score(where: Setting, original: Observed) -> list[Measure]:
    """AUS (DUCK, eq. 6)."""
    if where.kind == "class" and not len(where.forget_test):
        return []
    before = float(original.unseen.correct[where.reported].mean())

    def own(seen: Observed) -> Value:
        correct = seen.unseen.correct
        gone = correct[where.forget_test] if where.kind == "class" else seen.forget.correct
        value = aus(where.kind, before, float(correct[where.reported].mean()), float(gone.mean()))
        return Value(value, None, None, 0.0, len(gone))

    return [
        Measure(
            "AUS",
            "kept accuracy over what is still remembered; a masked output scores as high as forgetting",
            "score",
            own,
        )
    ]


def membership(where: Setting) -> list[Measure]:
    """Forgotten against unseen samples of the same classes by the model's outputs; 0.5 is chance."""
    about = {
        "loss attack": "forgotten samples have a lower loss than unseen ones",
        "entropy attack": "outputs of forgotten samples are surer than those of unseen ones",
        "runner-up attack": "the second largest probability of forgotten samples is lower than that of unseen ones",
        "SVM attack": "a classifier on the outputs tells forgotten from unseen samples",
    }
    return [
        Measure(name, about[name], "AUC", separated_by(attack))
        for name, attack in attacks(where).items()
    ]


def attacks(where: Setting) -> dict[str, Attack]:
    """Scores, higher = "was a member", of forget samples and of matched unseen ones."""
    found: dict[str, Attack] = {
        "loss attack": lambda seen: member_scores(seen, where, lambda part: -losses(part)),
        "entropy attack": lambda seen: member_scores(seen, where, lambda part: -entropies(part)),
        "runner-up attack": lambda seen: member_scores(seen, where, lambda part: -runner_ups(part)),
        "SVM attack": lambda seen: quick_svm(
            seen.forget.outputs(where.members), seen.unseen.outputs(where.matched), where.seed
        ),
    }
    if min(len(where.matched), len(where.members)) < FEWEST_SVM:
        del found["SVM attack"]
    return found


def separated_by(attack: Attack) -> Callable[[Observed], Value]:
    return lambda seen: separation(attack(seen))


def member_scores(seen: Observed, where: Setting, what: Callable[[Part], Array]) -> Scored:
    """Scores of forget samples, the members, and of matched unseen ones."""
    scores = [what(seen.forget)[where.members], what(seen.unseen)[where.matched]]
    ids = np.concatenate(
        [seen.forget.ids[where.members], np.char.add("unseen:", seen.unseen.ids[where.matched])]
    )
    return Scored(
        ids, np.concatenate(scores), np.repeat([True, False], [len(part) for part in scores])
    )


def losses(part: Part) -> Array:
    """Cross-entropy of each sample."""
    highest = part.logits.max(1)
    total = highest + np.log(np.exp(part.logits - highest[:, None]).sum(1))
    rows: Array = total - part.logits[np.arange(len(part)), part.labels]
    return rows


def entropies(part: Part) -> Array:
    """Of the outputs, in nats."""
    shares = softmax(part.logits)
    return -kl(shares, np.ones_like(shares))


def runner_ups(part: Part) -> Array:
    """The second largest probability: low where a sample was sent to one class, even if that is a wrong one."""
    rows: Array = np.partition(softmax(part.logits), -2, axis=1)[:, -2]
    return rows


def distances(where: Setting) -> list[Measure]:
    """How far outputs on the forget samples are from a retrained model's; the forgotten classes left out of both."""

    def outputs(seen: Observed) -> Array:
        return renormalised(seen.forget, where.kept)

    def by_js(seen: Observed, other: Observed) -> Array:
        return js(outputs(seen), outputs(other))

    def by_kl(seen: Observed, other: Observed) -> Array:
        return kl(outputs(other), outputs(seen))

    def by_l2(seen: Observed, other: Observed) -> Array:
        rows: Array = np.linalg.norm(
            softmax(seen.forget.logits) - softmax(other.forget.logits), axis=1
        )
        return rows

    def by_classifier(seen: Observed, other: Observed) -> Array:
        return np.array([told_apart(outputs(seen), outputs(other))])

    def by_accuracies(seen: Observed, other: Observed) -> Array:
        return np.array([tow(seen, other, where.test)])

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
            if where.asked >= 2 * FOLDS
            else []
        ),
        Measure(
            "ToW",
            "product over forget, retain and test of 1 - gap in accuracy to retrained models",
            "score",
            pair=by_accuracies,
        ),
    ]


def tow(seen: Observed, other: Observed, test: Rows) -> float:
    """Tug of war (Zhao et al. 2024)."""
    pairs = (seen.forget, other.forget), (seen.retain, other.retain)
    gaps = [float(a.correct.mean() - b.correct.mean()) for a, b in pairs]
    gaps.append(float(seen.unseen.correct[test].mean() - other.unseen.correct[test].mean()))
    return float(np.prod(1 - np.abs(gaps)))


def told_apart(ours: Array, theirs: Array) -> float:
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


def zrf(untrained: Observed | None) -> list[Measure]:
    """How like a randomly initialised model it is on the forget samples (Chundawat et al. 2023)."""
    if untrained is None:
        return []
    blank = softmax(untrained.forget.logits)

    def own(seen: Observed) -> Value:
        return mean(1 - js(softmax(seen.forget.logits), blank) / np.log(2))

    return [
        Measure(
            "ZRF",
            "likeness to a randomly initialised model on the forget samples, 1 the highest",
            "score",
            own,
        )
    ]


def _accuracy_of(part: Callable[[Observed], Part]) -> Callable[[Observed], Value]:
    return lambda seen: rate(part(seen).correct)


def _accuracy_at(rows: Rows) -> Callable[[Observed], Value]:
    """On these rows of the unseen samples."""
    return lambda seen: rate(seen.unseen.correct[rows])
