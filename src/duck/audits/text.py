"""Sentences of an audit: the answers to its questions, and what an attacker can do."""

from collections.abc import Callable, Mapping, Sequence
from math import exp
from statistics import fmean

from duck.audits.attacks.base import ModelAttack
from duck.audits.judge import MAX_RATIO
from duck.audits.outputs import ModelOutputs
from duck.audits.pool_measures import AMONG_UNLEARNED, EPSILON_EXCESS, EXCESS
from duck.audits.statistics import RATES, Roc, resolved_rates, roc
from duck.audits.verdict import MAX_ADVANTAGE, Grade, Limits, Power, Question

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


def describe(question: Question, grade: Grade, count: int, limits: Limits) -> str:
    """Return the answer to a question in one sentence.

    count    number of retrained models
    limits   those of the request; the limit of a grade is larger where the audit resolves less
    """
    if grade.value is None and question == "exposed":
        return "Exposed: undecided. There are too few samples for any attack."
    if grade.value is None:
        return (
            "Remembers: undecided. The original does not stand out from retrained models on these "
            "samples, so there is no memory to measure."
        )
    if question == "differs" and grade.answer == "no":
        return f"Differs: no. On other samples the model is like retrained models (n = {count})."
    if question == "differs":
        amount = f"{_numbers(grade)} by the {grade.measure}"
        if grade.measure in LOGARITHMIC:
            times = _numbers(grade, exp)
            amount = f"its outputs are {times} times as far from theirs as theirs from each other"
        return (
            f"Differs: yes. On other samples the model differs from retrained models (n = "
            f"{count}): {amount}. This does not decide the verdict."
        )
    meaning = MEANING[question, grade.answer]
    amount = _amount(question, grade, count, limits)
    return f"{question.capitalize()}: {grade.answer}. {meaning}: {amount}."


def _amount(question: Question, grade: Grade, count: int, limits: Limits) -> str:
    """Return the value that answered the question, with its limit and the models behind it."""
    compared = f"n = {count} retrained models"
    if question == "remembers":
        return (
            f"residual memory {_numbers(grade)} by the {grade.measure} (limit {grade.limit:g}), "
            f"{compared}"
        )
    if grade.measure in LOGARITHMIC:
        limit = _limit(exp(grade.limit), MAX_RATIO)
        return (
            f"its outputs are {_numbers(grade, exp)} times as far from those of retrained models "
            f"as these are from each other ({limit}), {compared}"
        )
    if grade.measure == EPSILON_EXCESS:
        return (
            f"ε is at least {grade.value:.2f} higher than on unseen samples (limit "
            f"{grade.limit:g}), by the models of the pool"
        )
    wanted = MAX_ADVANTAGE if limits.max_advantage is None else limits.max_advantage
    limit = f"by {grade.measure} ({_limit(grade.limit, wanted)})"
    if grade.measure in (EXCESS, AMONG_UNLEARNED):
        return f"advantage {_numbers(grade)} {limit}, by the models of the pool"
    return f"advantage {_numbers(grade)} over retrained models {limit}, {compared}"


def _limit(limit: float, wanted: float) -> str:
    """Return the limit in words; it is larger than wanted where the audit resolves no less."""
    unresolved = f": this audit does not resolve {wanted:g}" if limit > wanted else ""
    return f"limit {limit:.2g}{unresolved}"


def _numbers(grade: Grade, convert: Callable[[float], float] = float) -> str:
    """Return the value with its interval."""
    assert grade.value is not None
    assert grade.low is not None
    assert grade.high is not None
    value, low, high = (convert(end) for end in (grade.value, grade.low, grade.high))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def describe_power(power: Power) -> str:
    """Return what the audit recognises, in one or two sentences."""
    if power.memory is None:
        return (
            "Residual memory cannot be measured on these data: even the original is too similar to "
            "retrained models."
        )
    recognised = (
        f"With a power of 80 %, the audit recognises residual memory from {power.memory:.2f} on"
    )
    if not power.planted:
        return f"{recognised}."
    planted = ", ".join(
        f"{100 * float(share):.0f} %: {memory:.2f}" for share, memory in power.planted.items()
    )
    share = "which no share of the forget samples reaches"
    if power.share is not None:
        kept = f"{100 * power.share:.0f} %{' or less' if power.is_bound else ''}"
        share = f"that of a model which keeps {kept} of the forget samples"
    return (
        f"{recognised}, {share}. Residual memory of models that keep a share of them (one model "
        f"each): {planted}."
    )


def in_words(
    unlearned: ModelOutputs,
    attacks: Mapping[str, ModelAttack],
    retrained: Sequence[ModelOutputs] = (),
) -> tuple[str, ...]:
    """Return what the strongest attack on the model finds, compared with retrained models."""
    curves = {name: roc(attack(unlearned)) for name, attack in attacks.items()}
    if not curves:
        return ()
    aucs = {name: curve.auc.value for name, curve in curves.items()}
    name = max(aucs, key=lambda key: abs(aucs[key] - 0.5))
    usual = [roc(attacks[name](outputs)).auc.value for outputs in retrained] or [0.5]
    # If members have lower scores, the attacker reverses the order.
    chances = [auc if aucs[name] >= 0.5 else 1 - auc for auc in (aucs[name], fmean(usual))]
    compared = "for retrained models" if retrained else "by guessing"
    pairs = (
        f"Of one forget sample and one unseen sample, the strongest attack ({name}) finds the "
        f"forget sample in {_of_100(chances[0])} cases; {compared} it is {_of_100(chances[1])}."
    )
    return (pairs, *_rate_in_words(unlearned, curves, attacks, retrained))


def _rate_in_words(
    unlearned: ModelOutputs,
    curves: Mapping[str, Roc],
    attacks: Mapping[str, ModelAttack],
    retrained: Sequence[ModelOutputs],
) -> tuple[str, ...]:
    """Return how many samples an attack finds with few errors, where there are enough samples."""
    found: dict[str, tuple[float, float]] = {}
    for name, curve in curves.items():
        if RATE in resolved_rates(curve.others):
            rates = [roc(attacks[name](outputs)).tpr_at(RATE).value for outputs in retrained]
            found[name] = curve.tpr_at(RATE).value, fmean(rates or [RATE])
    if not found:
        return ()
    name = max(found, key=lambda key: found[key][0] - found[key][1])
    rate, usual = map(_of_100, found[name])
    compared = "for retrained models" if retrained else "by guessing"
    return (
        f"An attacker who may be wrong on {_of_100(RATE)} unseen samples finds {rate} forget "
        f"samples ({name}); {compared} it is {usual}.",
    )


def _of_100(share: float) -> str:
    return f"{100 * share:.2g} of 100"
