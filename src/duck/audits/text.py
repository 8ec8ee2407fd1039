"""Sentences of an audit: the answers to its questions, and what an attacker can do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp

import numpy as np

from duck.audits.attacks.base import model_attacks
from duck.audits.measurements import ScoringFunction
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.roc import RATES, least_others, roc
from duck.audits.verdict import Grade, Power, Question

RATE = RATES[0]
LOGARITHMIC = ("excess distance", "distance elsewhere")
"""Measures whose evidence is the logarithm of a ratio."""


def with_sentences(grades: Mapping[Question, Grade], count: int) -> dict[Question, Grade]:
    """Add the sentence to each grade."""
    return {
        question: replace(grade, sentence=describe(question, grade, count))
        for question, grade in grades.items()
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
    if question == "remembers":
        return _remembers(grade, count)
    if question == "exposed":
        return _exposed(grade, count)
    return _differs(grade, count)


def _remembers(grade: Grade, count: int) -> str:
    amount = f"residual memory {_numbers(grade)} by the {grade.measure} (limit {grade.limit:g})"
    meaning = {
        "yes": "The model still knows part of what the original knew of these samples",
        "no": "The model knows no more of these samples than models that never saw them",
        "undecided": "The audit cannot exclude that the model knows part of these samples",
    }[grade.answer]
    return f"Remembers: {grade.answer}. {meaning}: {amount}, n = {count} retrained models."


def _exposed(grade: Grade, count: int) -> str:
    if grade.measure in LOGARITHMIC:
        amount = (
            f"its outputs are {_numbers(grade, exp)} times as far from those of retrained models "
            f"as these are from each other (limit {exp(grade.limit):.2f})"
        )
    else:
        amount = (
            f"advantage {_numbers(grade)} over retrained models by the {grade.measure} "
            f"(limit {grade.limit:.2g})"
        )
    meaning = {
        "yes": "The forget samples stand out",
        "no": "The forget samples do not stand out",
        "undecided": "The audit cannot exclude that the forget samples stand out",
    }[grade.answer]
    return f"Exposed: {grade.answer}. {meaning}: {amount}, n = {count} retrained models."


def _differs(grade: Grade, count: int) -> str:
    if grade.answer == "no":
        return f"Differs: no. Elsewhere the model is like {count} retrained models."
    amount = f"{_numbers(grade)} by the {grade.measure}"
    if grade.measure in LOGARITHMIC:
        amount = f"its outputs are {_numbers(grade, exp)} times as far as these from each other"
    return (
        f"Differs: yes. On other samples the model is unlike {count} retrained models: {amount}. "
        "This does not decide the verdict."
    )


def _numbers(grade: Grade, convert: Callable[[float], float] = float) -> str:
    """Return the value with its interval."""
    assert grade.value is not None
    assert grade.low is not None
    assert grade.high is not None
    value, low, high = (convert(end) for end in (grade.value, grade.low, grade.high))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def describe_power(power: Power) -> str:
    """Return what planted models show, in one sentence."""
    planted = ", ".join(
        f"{100 * float(share):.0f} %: {memory:.2f}" for share, memory in power.planted.items()
    )
    measured = (
        f" Residual memory of models that keep a share of them: {planted}." if planted else ""
    )
    if power.share is None:
        return (
            "The audit would not recognise a model that was trained on the forget samples."
            f"{measured}"
        )
    return (
        f"The audit recognises a model that still keeps {100 * power.share:.0f} % of the forget "
        f"samples with a power of 80 %.{measured}"
    )


def in_words(
    setting: Setting,
    unlearned: ModelOutputs,
    retrained: Sequence[ModelOutputs],
    attacks: Mapping[str, ScoringFunction],
) -> tuple[str, ...]:
    """Return what the strongest attack on the model finds, beside retrained models."""
    found: dict[str, tuple[float, float]] = {}
    run: dict[str, ScoringFunction] = {**model_attacks(setting, "quick"), **attacks}
    for name, attack in run.items():
        curve = roc(attack(unlearned))
        if curve.others >= least_others(RATE):
            others = [roc(attack(outputs)).tpr_at(RATE).value for outputs in retrained]
            found[name] = (curve.tpr_at(RATE).value, float(np.mean(others)))
    if not found:
        return ()
    name = max(found, key=lambda key: found[key][0] - found[key][1])
    rate, usual = found[name]
    return (
        f"An attacker who may be wrong on {_of_hundred(RATE)} others finds {_of_hundred(rate)} "
        f"forgotten samples ({name}); for a model that never saw them it is "
        f"{_of_hundred(usual)}.",
    )


def _of_hundred(rate: float) -> str:
    return f"{100 * rate:.3g} of 100"
