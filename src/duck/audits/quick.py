"""The quick tier: attacks and accuracies of the model itself, in seconds, without other models.

It can find that samples were not forgotten, and never that they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest, mannwhitneyu, norm

from duck.audits import text
from duck.audits.attacks.base import (
    ModelAttack,
    OutputsAttack,
    ThresholdAttack,
    model_attacks,
)
from duck.audits.attacks.loss import losses
from duck.audits.judge import Judge, MeasurementCache
from duck.audits.measurements import accuracies, aus_measures, class_accuracies, membership
from duck.audits.outputs import ModelOutputs, Setting, match_unseen
from duck.audits.scores import Scored
from duck.audits.statistics import (
    NORMAL_QUANTILE,
    Alternative,
    SampleEstimate,
    clopper_pearson,
    holm,
    roc,
)
from duck.audits.verdict import (
    MAX_ADVANTAGE,
    NO_VERDICT,
    NOT_FORGOTTEN,
    Audit,
    Limits,
    RocCurve,
    Row,
    Tier,
    p_text,
)
from duck.errors import BadInput
from duck.metrics import kept_accuracy
from duck.printable import counted
from duck.types import Estimate

ALPHA = 0.01
"""Stricter than in the other tiers, since no control checks these tests."""
HAND_PICKED_ALPHA = 0.001
"""For all attacks together. It is strict, because a hand-picked request is hardly judged."""
BOUND_LEVEL = 0.99
MIN_EXCESS = 0.1
"""How much more the unlearned model must separate hand-picked samples than the original does."""
USUAL_PERCENTILES = (0.05, 0.95)
"""In a model that never saw a sample, its loss lies between them in 90 % of the cases."""
LOSS_PERCENTILE = "loss percentile"
Curves = dict[str, dict[str, RocCurve]]
NO_TRACE = (
    "No trace was found, but without retrained models "
    "none of these tests would expose a model that hides the output of a class."
)
NO_TRACE_OF_DAMAGED = (
    "No trace was found, which says little: a model that lost so much accuracy would show none."
)
UNCOUNTED = "Whether every forget sample was processed: only runs and results record that."
NOT_IN_QUICK_TIER = (
    "Whether unseen samples are drawn like the training samples: where they are not, "
    "outputs differ without any memory.",
    "Whether the model is like one that never saw the samples: "
    "that needs retrained models (--tier oracle).",
    "What its embeddings still hold, and attacks that compare many models (--tier full).",
)
OTHER_COPIES = (
    "Other copies of the data or of the model: back-ups, caches, models made from this one."
)
HAND_PICKED = (
    "The forget samples are not like other training samples: the original treats them differently "
    "from retained ones. A difference to unseen samples alone would prove nothing. The oracle tier "
    "can decide (--tier oracle)."
)


@dataclass(frozen=True)
class Coverage:
    """How many of the requested samples the method processed."""

    processed: int
    requested: int


def quick(
    setting: Setting,
    unlearned: ModelOutputs,
    original: ModelOutputs,
    subject: str,
    coverage: Coverage | None = None,
    limits: Limits | None = None,
) -> Audit:
    """Measure accuracies, AUS, attacks and coverage, and return the audit of the quick tier.

    limits   an attack counts if its advantage is surely larger than `max_advantage`
    """
    attacks = model_attacks(setting, "quick")
    tests = decisive_attacks(attacks)
    limits = limits or Limits()
    limit = MAX_ADVANTAGE if limits.max_advantage is None else limits.max_advantage
    measurements = MeasurementCache({"unlearned": unlearned, "original": original})
    measures = [
        *accuracies(setting),
        *aus_measures(setting, original),
        *membership(attacks),
        *class_accuracies(setting, unlearned.unseen.labels),
    ]
    hand_picked = is_hand_picked(setting, original, tests)
    beyond = {}
    if hand_picked:
        beyond = not_explained_by_choice(setting, unlearned, original, tests)
    p = holm(p_values(setting, unlearned, tests))
    rows = Judge(measurements, measures, ()).rows(p, beyond if hand_picked else p)
    if coverage is not None:
        rows["coverage"] = coverage_row(coverage)
    lost = lost_accuracy(setting, unlearned, original)
    significant = [name for name, value in p.items() if value < ALPHA]
    # With many samples a difference that no attacker can use is significant, too.
    small = [
        name
        for name in significant
        if name in tests and separation(roc(tests[name](unlearned)).auc)[0] <= limit
    ]
    found = {
        name: _finding(name, p[name], rows[name].unlearned, setting, tests)
        for name in significant
        if name not in small
    }
    evidence = (*(beyond if hand_picked else found).values(), *missed(coverage))
    reasons = [*lost, *evidence]
    if hand_picked:
        reasons.append(HAND_PICKED)
        explained = [f"{name} (p {p_text(p[name])})" for name in significant if name not in beyond]
        if explained:
            reasons.append(
                f"These attacks tell forgotten from unseen samples: {', '.join(explained)}. The "
                "choice of the samples may explain it, so that they do not count; --tier oracle "
                "can decide."
            )
    elif small:
        reasons.append(_describe_small(small, rows, limit))
    if not evidence and not significant:
        reasons.append(NO_TRACE_OF_DAMAGED if lost else NO_TRACE)
    return Audit(
        subject=subject,
        verdict=NOT_FORGOTTEN if evidence else NO_VERDICT,
        powered=None,
        tier="quick",
        reasons=tuple(reasons),
        attacks=rows,
        roc=curves(attacks, unlearned, original),
        not_tested=not_tested(setting, coverage, "quick"),
        in_words=text.in_words(unlearned, attacks),
    )


def _describe_small(names: Sequence[str], rows: Mapping[str, Row], limit: float) -> str:
    """Return the sentence about differences that are significant and within the limit."""
    values = [rows[name].unlearned for name in names]
    listed = [
        f"{name} (AUC {value.value:.3f})"
        for name, value in zip(names, values, strict=True)
        if value is not None
    ]
    return (
        f"These attacks differ from chance, but not surely by more than the limit of {limit:g} on "
        f"the advantage (2 AUC - 1): {', '.join(listed)}. --tier oracle can decide."
    )


def is_hand_picked(
    setting: Setting, original: ModelOutputs, attacks: Mapping[str, OutputsAttack]
) -> bool:
    """Return whether single samples were chosen for their properties.

    The original saw both forget and retain samples. Where it treats them differently, the forget
    samples are no random draw.
    """
    p = [_p_value(scored) for scored in _against_retained(setting, original, attacks).values()]
    return bool(p) and min(p) < HAND_PICKED_ALPHA / len(p)


def _against_retained(
    setting: Setting, original: ModelOutputs, attacks: Mapping[str, OutputsAttack]
) -> dict[str, Scored]:
    """Score forget samples and retained samples of their classes in the original, by attack."""
    if setting.kind == "class":
        return {}
    forget_labels, retain_labels = original.forget.labels, original.retain.labels
    forget_rows, retain_rows = match_unseen(forget_labels, retain_labels, setting.seed)
    if min(len(forget_rows), len(retain_rows)) < 2:
        return {}
    forget, retain = original.forget.take(forget_rows), original.retain.take(retain_rows)
    is_forget = np.repeat([True, False], [len(forget), len(retain)])
    ids = np.concatenate([forget.ids, retain.ids])
    return {
        name: Scored(ids, np.concatenate([attack.score(forget), attack.score(retain)]), is_forget)
        for name, attack in attacks.items()
        if isinstance(attack, ThresholdAttack)
    }


def not_explained_by_choice(
    setting: Setting,
    unlearned: ModelOutputs,
    original: ModelOutputs,
    attacks: Mapping[str, OutputsAttack],
) -> dict[str, str]:
    """Return a sentence for each attack that the choice of hand-picked samples cannot explain.

    The unlearned model separates forget from unseen samples by far more than the original separates
    forget from retained ones: |2 AUC - 1| is larger by MIN_EXCESS, with 99 % bounds.
    """
    sentences = {}
    for name, scored in _against_retained(setting, original, attacks).items():
        before, after = roc(scored).auc, roc(attacks[name](unlearned)).auc
        if separation(after)[0] > separation(before)[1] + MIN_EXCESS:
            sentences[name] = (
                f"{name}: forgotten samples stand out from unseen ones (AUC {after.value:.3f}) by "
                f"far more than the original tells them from retained ones (AUC "
                f"{before.value:.3f}): the choice of the samples does not explain it."
            )
    return sentences


def separation(auc: SampleEstimate) -> tuple[float, float]:
    """Return 99 % bounds of |2 AUC - 1|: 0 where the AUC may be 0.5, 1 for full separation."""
    widening = float(norm.ppf((1 + BOUND_LEVEL) / 2)) / NORMAL_QUANTILE
    low = max(0.0, auc.value - widening * (auc.value - auc.low))
    high = min(1.0, auc.value + widening * (auc.high - auc.value))
    return max(0.0, 2 * low - 1, 1 - 2 * high), max(abs(2 * low - 1), abs(2 * high - 1))


def decisive_attacks(attacks: Mapping[str, ModelAttack]) -> dict[str, OutputsAttack]:
    """Return the attacks that can decide the quick tier's verdict, by title."""
    return {
        name: attack
        for name, attack in attacks.items()
        if attack.decisive and isinstance(attack, OutputsAttack)
    }


def curves(
    attacks: Mapping[str, ModelAttack], unlearned: ModelOutputs, original: ModelOutputs
) -> Curves:
    """Return the ROC curves of these attacks on both models."""
    models = {"unlearned": unlearned, "original": original}
    return {
        title: {name: roc(attack(outputs)).curve() for name, outputs in models.items()}
        for title, attack in attacks.items()
    }


def p_values(
    setting: Setting, unlearned: ModelOutputs, attacks: Mapping[str, OutputsAttack]
) -> dict[str, float]:
    """Return the uncorrected p-values of the decisive tests.

    A removed class must not be recognised above chance. The scores of forgotten samples must not
    differ from those of unseen ones in either direction.
    """
    p: dict[str, float] = {}
    if setting.kind == "class":
        correct = unlearned.forget.correct
        test = binomtest(int(correct.sum()), len(correct), 1 / setting.num_classes, "greater")
        p["accuracy forget"] = float(test.pvalue)
    for name, attack in attacks.items():
        p[name] = _p_value(attack(unlearned), attack.alternative)
    return p


def _p_value(scored: Scored, alternative: Alternative = "two-sided") -> float:
    """Return the p-value that members and non-members have the same scores."""
    members, others = scored.scores[scored.members], scored.scores[~scored.members]
    return float(mannwhitneyu(members, others, alternative=alternative).pvalue)


def _finding(
    name: str,
    p: float,
    measured: Estimate | None,
    setting: Setting,
    attacks: Mapping[str, OutputsAttack],
) -> str:
    """Return the finding of a test whose corrected p-value is below the level."""
    assert measured is not None
    if name == "accuracy forget":
        return (
            f"The model still recognises the forgotten class: {100 * measured.value:.1f} % of its "
            f"samples, chance is {100 / setting.num_classes:.1f} %."
        )
    if attacks[name].alternative == "greater":
        how = "by their outputs"
    elif measured.value > 0.5:
        how = "as members do"
    else:
        how = "the model is less sure of them than of unseen ones"
    return (
        f"{name}: forgotten samples stand out from unseen ones, {how} "
        f"(AUC {measured.value:.3f}, chance 0.5, p {p_text(p)})."
    )


def lost_accuracy(
    setting: Setting, unlearned: ModelOutputs, original: ModelOutputs
) -> tuple[str, ...]:
    """Return a sentence where the model lost too much accuracy on unseen samples."""
    rows = setting.reported
    if not len(rows):
        return ()
    before = float(original.unseen.correct[rows].mean())
    after = float(unlearned.unseen.correct[rows].mean())
    split = "retain_test" if setting.kind == "class" else "test"
    accuracy = kept_accuracy(split, before, after, len(rows))
    return (str(accuracy),) if accuracy.damaged else ()


def coverage_row(coverage: Coverage) -> Row:
    """Return the row with the share of processed samples."""
    share = coverage.processed / coverage.requested
    about = (
        "share of the forget samples that the method worked on or, where it retrains, left out; "
        "the method itself declares it"
    )
    interval = (share, share)
    if 0 < share < 1:
        interval = clopper_pearson(coverage.processed, coverage.requested)
    return Row(about, "%", coverage.requested, None, Estimate(share, *interval), None, judged=True)


def missed(coverage: Coverage | None) -> tuple[str, ...]:
    """Return a sentence where the method did not process every sample."""
    if coverage is None or coverage.processed >= coverage.requested:
        return ()
    total = counted(coverage.requested, "forget sample")
    return (f"Only {coverage.processed} of {total} were processed, as the method itself declares.",)


def not_tested(setting: Setting, coverage: Coverage | None, tier: Tier) -> tuple[str, ...]:
    """Return what an audit leaves open, a sentence each."""
    sentences = []
    if coverage is None:
        sentences.append(UNCOUNTED)
    if tier == "oracle":
        sentences.append(
            "Attacks that compare many models sample by sample (--tier full): "
            "a few samples among many may still be known."
        )
    unmatched = setting.num_forget - len(setting.members)
    if unmatched:
        sentences.append(
            f"Attacks on {unmatched} of {setting.num_forget} forget samples: "
            "of their classes there are too few unseen samples."
        )
    if tier == "quick":
        sentences += NOT_IN_QUICK_TIER
    return (*sentences, OTHER_COPIES)


def quick_single(unlearned: ModelOutputs, original: ModelOutputs, subject: str) -> Audit:
    """Return the audit of a request for one sample: its loss among those of its class.

    One sample cannot be judged as a group can: there are numbers and no verdict.
    """
    before, after = (_loss_percentile(outputs) for outputs in (original, unlearned))
    count = int((unlearned.unseen.labels == unlearned.forget.labels[0]).sum())
    meaning = "which is unusual for a sample that a model never saw"
    if _is_usual(after):
        meaning = "as for 90 % of the samples that a model never saw"
    reason = (
        f"One sample gives no verdict. Its loss is higher than that of {100 * after.value:.0f} % "
        f"of {count} unseen samples of its class, {meaning}; in the original it was higher than "
        f"that of {100 * before.value:.0f} %."
    )
    about = "share of unseen samples of the class with a lower loss than the forgotten one"
    return Audit(
        subject=subject,
        verdict=NO_VERDICT,
        powered=None,
        tier="quick",
        reasons=(reason,),
        attacks={LOSS_PERCENTILE: Row(about, "%", count, before, after, None)},
    )


def has_usual_loss(audit: Audit) -> bool:
    """Return whether the loss of a single sample lies in the range of 90 % of unseen samples."""
    after = audit.attacks[LOSS_PERCENTILE].unlearned
    return after is not None and _is_usual(after)


def _is_usual(percentile: Estimate) -> bool:
    low, high = USUAL_PERCENTILES
    return low <= percentile.value <= high


def _loss_percentile(outputs: ModelOutputs) -> Estimate:
    """Return the share of unseen samples of the class whose loss is lower; ties count half."""
    same = outputs.unseen.take(np.flatnonzero(outputs.unseen.labels == outputs.forget.labels[0]))
    if not len(same):
        raise BadInput(
            "There is no unseen sample of the class of the forget sample to compare it with: give "
            "test data that have some."
        )
    own, others = losses(outputs.forget)[0], losses(same)
    below = float((others < own).sum() + 0.5 * (others == own).sum())
    return Estimate(below / len(others), *clopper_pearson(below, len(others)))
