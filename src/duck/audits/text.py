"""Sentences of an audit: the answers to its questions, and what an attacker can do."""

from collections.abc import Callable, Mapping, Sequence
from math import exp

import numpy as np

from duck.audits.attacks.base import ModelAttack
from duck.audits.outputs import ModelOutputs
from duck.audits.pool_measures import AMONG_UNLEARNED, EPSILON, EXCESS
from duck.audits.statistics import RATES, resolved_rates, roc
from duck.audits.verdict import Grade, Power, Question

RATE = RATES[0]
LOGARITHMIC = ("excess distance", "distance elsewhere")
"""Measures whose evidence is the logarithm of a ratio."""

MEANING = {
    ("remembers", "yes"): "The model still knows part of what the original knew of these samples",
    ("remembers", "no"): "The model knows no more of these samples than models that never saw them",
    ("remembers", "undecided"): "The audit cannot exclude that the model knows part of these "
    "samples",
    ("exposed", "yes"): "The forget samples stand out",
    ("exposed", "no"): "The forget samples do not stand out",
    ("exposed", "undecided"): "The audit cannot exclude that the forget samples stand out",
}


def describe(question: Question, grade: Grade, count: int) -> str:
    """Return the answer to a question in one sentence; `count` is that of retrained models."""
    if grade.value is None and question == "exposed":
        return "Exposed: undecided. There are too few samples for any attack."
    if grade.value is None:
        return (
            "Remembers: undecided. The original does not stand out from retrained models on these "
            "samples, so there is no memory to measure."
        )
    if question == "differs" and grade.answer == "no":
        return f"Differs: no. Elsewhere the model is like {count} retrained models."
    if question == "differs":
        amount = f"{_numbers(grade)} by the {grade.measure}"
        if grade.measure in LOGARITHMIC:
            times = _numbers(grade, exp)
            amount = f"its outputs are {times} times as far from theirs as theirs from each other"
        return (
            f"Differs: yes. On other samples the model is unlike {count} retrained models: "
            f"{amount}. This does not decide the verdict."
        )
    meaning = MEANING[question, grade.answer]
    return f"{question.capitalize()}: {grade.answer}. {meaning}: {_amount(question, grade, count)}."


def _amount(question: Question, grade: Grade, count: int) -> str:
    """Return the value that answered the question, with its limit and the models behind it."""
    compared = f"n = {count} retrained models"
    if question == "remembers":
        return (
            f"residual memory {_numbers(grade)} by the {grade.measure} (limit {grade.limit:g}), "
            f"{compared}"
        )
    if grade.measure in LOGARITHMIC:
        return (
            f"its outputs are {_numbers(grade, exp)} times as far from those of retrained models "
            f"as these are from each other (limit {exp(grade.limit):.2f}), {compared}"
        )
    if grade.measure == EPSILON:
        return f"ε is at least {grade.value:.2f} (limit {grade.limit:g}), by the models of the pool"
    limit = f"by the {grade.measure} (limit {grade.limit:.2g})"
    if grade.measure in (EXCESS, AMONG_UNLEARNED):
        return f"advantage {_numbers(grade)} {limit}, by the models of the pool"
    return f"advantage {_numbers(grade)} over retrained models {limit}, {compared}"


def _numbers(grade: Grade, convert: Callable[[float], float] = float) -> str:
    """Return the value with its interval."""
    assert grade.value is not None
    assert grade.low is not None
    assert grade.high is not None
    value, low, high = (convert(end) for end in (grade.value, grade.low, grade.high))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def describe_power(power: Power) -> str:
    """Return what planted models show, in one sentence."""
    sentence = "The audit would not recognise a model that was trained on the forget samples."
    if power.share is not None:
        sentence = (
            f"The audit recognises a model that still keeps {100 * power.share:.0f} % of the "
            "forget samples with a power of 80 %."
        )
    if not power.planted:
        return sentence
    planted = ", ".join(
        f"{100 * float(share):.0f} %: {memory:.2f}" for share, memory in power.planted.items()
    )
    return f"{sentence} Residual memory of models that keep a share of them: {planted}."


def in_words(
    unlearned: ModelOutputs,
    retrained: Sequence[ModelOutputs],
    attacks: Mapping[str, ModelAttack],
) -> tuple[str, ...]:
    """Return what the strongest attack on the model finds, compared with retrained models."""
    found: dict[str, tuple[float, float]] = {}
    for name, attack in attacks.items():
        curve = roc(attack(unlearned))
        if RATE in resolved_rates(curve.others):
            others = [roc(attack(outputs)).tpr_at(RATE).value for outputs in retrained]
            found[name] = (curve.tpr_at(RATE).value, float(np.mean(others)))
    if not found:
        return ()
    name = max(found, key=lambda key: found[key][0] - found[key][1])
    allowed, rate, usual = (f"{100 * share:.3g} of 100" for share in (RATE, *found[name]))
    return (
        f"An attacker who may be wrong on {allowed} others finds {rate} forgotten samples "
        f"({name}); for a model that never saw them it is {usual}.",
    )
