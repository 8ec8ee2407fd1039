"""The quick tier: attacks and accuracies of the model itself, in seconds, without other models.

It can find that samples were not forgotten, and never that they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest, mannwhitneyu

from duck.audits.attacks.base import OutputsAttack, ThresholdAttack, model_attacks
from duck.audits.intervals import clopper_pearson, holm
from duck.audits.judge import MeasurementCache, table_rows
from duck.audits.measurements import (
    ScoringFunction,
    accuracies,
    aus_measures,
    class_accuracies,
    membership,
)
from duck.audits.outputs import ModelOutputs, Setting, match_unseen
from duck.audits.roc import roc
from duck.audits.verdict import NO_VERDICT, NOT_FORGOTTEN, Audit, RocCurve, Row, p_text
from duck.metrics import kept_accuracy
from duck.printable import counted
from duck.types import Estimate

ALPHA = 0.01
"""Stricter than in the other tiers, since no control checks these tests."""
Curves = dict[str, dict[str, RocCurve]]
NO_TRACE = (
    "No trace was found, but without retrained models "
    "none of these tests would expose a masked output."
)
NO_TRACE_OF_DAMAGED = (
    "No trace was found, which says little: a model that lost so much accuracy would show none."
)
UNCOUNTED = "Whether every forget sample was processed: only runs and results record that."
OTHER_COPIES = (
    "Other copies of the data or of the model: back-ups, caches, models made from this one."
)
HAND_PICKED = (
    "The forget samples are not like other training samples: the original treats them differently "
    "from retained ones. A difference to unseen samples would prove nothing, so the attacks are "
    "reported and not judged. The oracle tier can decide."
)


@dataclass(frozen=True)
class Coverage:
    """How many of the requested samples the method processed."""

    processed: int
    asked: int


def quick(
    setting: Setting,
    unlearned: ModelOutputs,
    original: ModelOutputs,
    subject: str,
    coverage: Coverage | None = None,
) -> Audit:
    """Measure accuracies, AUS, attacks and coverage, and return the audit of the quick tier."""
    measurements = MeasurementCache({"unlearned": unlearned, "original": original})
    measures = [
        *accuracies(setting),
        *aus_measures(setting, original),
        *membership(setting, "quick"),
        *class_accuracies(setting, unlearned.unseen.labels),
    ]
    hand_picked = is_hand_picked(setting, original)
    p = holm(p_values(setting, unlearned, hand_picked))
    rows = table_rows(measurements, measures, (), p, p)
    if coverage is not None:
        rows["coverage"] = coverage_row(coverage)
    lost = lost_accuracy(setting, unlearned, original)
    evidence = (*findings(p, rows, setting).values(), *missed(coverage))
    reasons = (*lost, *evidence, *([HAND_PICKED] if hand_picked else []))
    if not evidence:
        reasons = (*reasons, NO_TRACE_OF_DAMAGED if lost else NO_TRACE)
    return Audit(
        subject=subject,
        verdict=NOT_FORGOTTEN if evidence else NO_VERDICT,
        powered=None,
        tier="quick",
        reasons=reasons,
        attacks=rows,
        roc=curves(model_attacks(setting, "quick"), measurements),
        not_tested=not_tested(setting, coverage),
    )


def is_hand_picked(setting: Setting, original: ModelOutputs) -> bool:
    """Return whether single samples were chosen for their properties.

    The original saw both forget and retain samples. Where it treats them differently, the forget
    samples are no random draw.
    """
    if setting.kind == "class":
        return False
    forget_labels, retain_labels = original.forget.labels, original.retain.labels
    forget_rows, retain_rows = match_unseen(forget_labels, retain_labels, setting.seed)
    if not len(forget_rows):
        return False
    for attack in decisive_attacks(setting).values():
        if isinstance(attack, ThresholdAttack):
            forget = attack.score(original.forget.take())[forget_rows]
            retain = attack.score(original.retain.take())[retain_rows]
            if mannwhitneyu(forget, retain).pvalue < ALPHA:
                return True
    return False


def decisive_attacks(setting: Setting) -> dict[str, OutputsAttack]:
    """Return the attacks that can decide the quick tier's verdict, by title."""
    return {
        name: attack
        for name, attack in model_attacks(setting, "quick").items()
        if attack.decisive and isinstance(attack, OutputsAttack)
    }


def curves(attacks: Mapping[str, ScoringFunction], measurements: MeasurementCache) -> Curves:
    """Return the ROC curves of these attacks on the original and the unlearned model."""
    models = {
        name: outputs
        for name, outputs in measurements.models.items()
        if name in ("original", "unlearned")
    }
    result: Curves = {}
    for title, attack in attacks.items():
        result[title] = {name: roc(attack(outputs)).curve() for name, outputs in models.items()}
    return result


def p_values(
    setting: Setting, unlearned: ModelOutputs, hand_picked: bool = False
) -> dict[str, float]:
    """Return the uncorrected p-values of the decisive tests.

    A removed class must not be recognised above chance. The scores of forgotten samples must not
    differ from those of unseen ones in either direction.
    """
    p: dict[str, float] = {}
    if setting.kind == "class":
        correct = unlearned.forget.correct
        chance = 1 / setting.num_classes
        p["accuracy forget"] = float(
            binomtest(int(correct.sum()), len(correct), chance, "greater").pvalue
        )
    if not hand_picked:
        for name, attack in decisive_attacks(setting).items():
            p[name] = _rank_test(attack, unlearned)
    return p


def _rank_test(attack: OutputsAttack, unlearned: ModelOutputs) -> float:
    """Return the p-value that members and non-members have the same scores."""
    scored = attack(unlearned)
    members, others = scored.scores[scored.members], scored.scores[~scored.members]
    return float(mannwhitneyu(members, others, alternative=attack.alternative).pvalue)


def findings(p: Mapping[str, float], rows: Mapping[str, Row], setting: Setting) -> dict[str, str]:
    """Return a sentence for each test whose corrected p-value is below the level."""
    return {
        name: _finding(name, value, rows[name].unlearned, setting)
        for name, value in p.items()
        if value < ALPHA
    }


def _finding(name: str, p: float, measured: Estimate | None, setting: Setting) -> str:
    assert measured is not None
    if name == "accuracy forget":
        return (
            f"The model still recognises the forgotten class: {100 * measured.value:.1f} % of its "
            f"samples, chance is {100 / setting.num_classes:.1f} %."
        )
    if decisive_attacks(setting)[name].alternative == "greater":
        how = "by their outputs"
    elif measured.value > 0.5:
        how = "as members do"
    else:
        how = "their outputs are less like members' than unseen samples' are, as if pushed away"
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
    share = coverage.processed / coverage.asked
    about = "share of the forget samples that the method worked on or, where it retrains, left out"
    interval = (share, share)
    if 0 < share < 1:
        interval = clopper_pearson(coverage.processed, coverage.asked)
    return Row(about, "%", coverage.asked, None, Estimate(share, *interval), None, judged=True)


def missed(coverage: Coverage | None) -> Sequence[str]:
    """Return a sentence where the method did not process every sample."""
    if coverage is None or coverage.processed >= coverage.asked:
        return ()
    total = counted(coverage.asked, "forget sample")
    return (f"Only {coverage.processed} of {total} were processed.",)


def without_match(setting: Setting) -> tuple[str, ...]:
    """Return a sentence where attacks cannot compare some forget samples with unseen ones."""
    count = setting.num_forget - len(setting.members)
    if not count:
        return ()
    return (
        f"Attacks on {count} of {setting.num_forget} forget samples: "
        "of their classes there are too few unseen samples.",
    )


def not_tested(setting: Setting, coverage: Coverage | None) -> tuple[str, ...]:
    """Return what the quick tier leaves open, a sentence each."""
    sentences = (
        *without_match(setting),
        "Whether unseen samples are drawn like the training samples: where they are not, "
        "outputs differ without any memory.",
        "Whether the model is like one that never saw the samples: "
        "that needs retrained models (--tier oracle).",
        "What its embeddings still hold, and attacks that compare many models (--tier full).",
        OTHER_COPIES,
    )
    return sentences if coverage is not None else (UNCOUNTED, *sentences)
