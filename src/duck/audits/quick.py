"""Without a retrained model: what the model itself gives away, in seconds. It can convict, and never acquit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest, mannwhitneyu

from duck.audits.attacks.base import (
    OutputsAttack,
    ThresholdAttack,
    model_attacks,
)
from duck.audits.intervals import clopper_pearson, holm
from duck.audits.judge import MeasurementCache, rows
from duck.audits.measurements import (
    ScoringFunction,
    accuracies,
    class_accuracies,
    membership,
    score,
)
from duck.audits.outputs import ModelOutputs, Setting, compared
from duck.audits.roc import roc
from duck.audits.verdict import NO_VERDICT, NOT_FORGOTTEN, Audit, Interval, Row, p_text
from duck.metrics import kept_accuracy
from duck.printable import counted

ALPHA = 0.01
"""Stricter than the other tiers: no control stands beside these tests."""
Curves = dict[str, dict[str, dict[str, list[float]]]]


@dataclass(frozen=True)
class Coverage:
    """How many of the asked samples the method worked on."""

    processed: int
    asked: int


def quick(
    setting: Setting,
    unlearned: ModelOutputs,
    original: ModelOutputs,
    subject: str,
    coverage: Coverage | None = None,
) -> Audit:
    """Accuracies, AUS, attacks on forgotten against unseen samples, and whether every sample was processed."""
    readings = MeasurementCache({"unlearned": unlearned, "original": original})
    measures = [
        *accuracies(setting),
        *score(setting, original),
        *membership(setting, "quick"),
        *class_accuracies(setting, unlearned.unseen.labels),
    ]
    chosen = hand_picked(setting, original)
    p = holm(p_values(setting, unlearned, chosen))
    found = rows(readings, measures, (), p, p)
    if coverage is not None:
        found["coverage"] = coverage_row(coverage)
    lost = lost_accuracy(setting, unlearned, original)
    guilty = (*findings(p, found, setting).values(), *missed(coverage))
    reasons = (*lost, *guilty, *([PICKED] if chosen else []))
    if not guilty:
        reasons = (*reasons, NO_TRACE_OF_DAMAGED if lost else NO_TRACE)
    verdict = NOT_FORGOTTEN if guilty else NO_VERDICT
    return Audit(
        subject,
        verdict,
        None,
        "quick",
        reasons,
        found,
        roc=curves(model_attacks(setting, "quick"), readings),
        not_tested=not_tested(setting, coverage),
    )


NO_TRACE = "No trace was found, but without retrained models none of these tests would expose a masked output."
NO_TRACE_OF_DAMAGED = (
    "No trace was found, which says little: a model that lost so much accuracy would show none."
)
UNCOUNTED = "Whether every forget sample was processed: only runs and results say that."
OTHER_COPIES = (
    "Other copies of the data or of the model: back-ups, caches, models made from this one."
)
PICKED = (
    "The forget samples are not like other training samples (the original treats them differently from retained ones), so that a "
    "difference to unseen samples would prove nothing: the attacks are shown, not judged. The oracle tier can tell."
)


def hand_picked(setting: Setting, original: ModelOutputs) -> bool:
    """Whether single samples were chosen for what they are: the original, which saw both, treats them unlike retained ones."""
    if setting.kind == "class":
        return False
    some, alike = compared(original.forget.labels, original.retain.labels, setting.seed)
    if not len(some):
        return False
    forget, retain = original.forget.take(), original.retain.take()
    return any(
        mannwhitneyu(attack.score(forget)[some], attack.score(retain)[alike]).pvalue < ALPHA
        for attack in decisive_attacks(setting).values()
        if isinstance(attack, ThresholdAttack)
    )


def decisive_attacks(setting: Setting) -> dict[str, OutputsAttack]:
    """Return the attacks that can decide the quick tier's verdict, by title."""
    return {
        name: attack
        for name, attack in model_attacks(setting, "quick").items()
        if attack.decisive and isinstance(attack, OutputsAttack)
    }


def curves(attacks: Mapping[str, ScoringFunction], readings: MeasurementCache) -> Curves:
    """ROC curves of these attacks on each model that is named."""
    return {
        name: {
            who: roc(attack(seen)).curve()
            for who, seen in readings.models.items()
            if who in ("original", "unlearned")
        }
        for name, attack in attacks.items()
    }


def p_values(setting: Setting, unlearned: ModelOutputs, chosen: bool = False) -> dict[str, float]:
    """Uncorrected. A removed class must not be recognised above chance; forgotten samples must look like unseen ones, on either side."""
    found: dict[str, float] = {}
    if setting.kind == "class":
        correct = unlearned.forget.correct
        found["accuracy forget"] = float(
            binomtest(int(correct.sum()), len(correct), 1 / setting.num_classes, "greater").pvalue
        )
    if not chosen:
        found |= {name: _p_value(a, unlearned) for name, a in decisive_attacks(setting).items()}
    return found


def _p_value(attack: OutputsAttack, unlearned: ModelOutputs) -> float:
    """Test whether members and non-members have the same scores."""
    scored = attack(unlearned)
    members, others = scored.scores[scored.members], scored.scores[~scored.members]
    return float(mannwhitneyu(members, others, alternative=attack.alternative).pvalue)


def findings(p: Mapping[str, float], found: Mapping[str, Row], setting: Setting) -> dict[str, str]:
    """What convicts by these corrected p-values, in words."""
    return {
        name: _finding(name, value, found[name].unlearned, setting)
        for name, value in p.items()
        if value < ALPHA
    }


def lost_accuracy(
    setting: Setting, unlearned: ModelOutputs, original: ModelOutputs
) -> tuple[str, ...]:
    """Whether the model lost too much accuracy on unseen samples of what it was to keep, in words."""
    rows = setting.reported
    if not len(rows):
        return ()
    before, after = (float(seen.unseen.correct[rows].mean()) for seen in (original, unlearned))
    kept = kept_accuracy(
        "retain_test" if setting.kind == "class" else "test", before, after, len(rows)
    )
    return (str(kept),) if kept.damaged else ()


def _finding(name: str, p: float, reading: Interval | None, setting: Setting) -> str:
    assert reading is not None
    if name == "accuracy forget":
        chance = f"chance is {100 / setting.num_classes:.1f} %"
        return f"The model still recognises the forgotten class: {100 * reading.value:.1f} % of its samples, {chance}."
    pushed = "their outputs are less like members' than unseen samples' are, as if pushed away"
    if decisive_attacks(setting)[name].alternative == "greater":
        how = "by their outputs"
    else:
        how = "as members do" if reading.value > 0.5 else pushed
    return f"{name}: forgotten samples stand out from unseen ones, {how} (AUC {reading.value:.3f}, chance 0.5, p {p_text(p)})."


def coverage_row(coverage: Coverage) -> Row:
    share = coverage.processed / coverage.asked
    about = "share of the forget samples that the method worked on or, where it retrains, left out"
    interval = (
        clopper_pearson(coverage.processed, coverage.asked) if 0 < share < 1 else (share, share)
    )
    return Row(about, "%", coverage.asked, None, Interval(share, *interval), None, judged=True)


def missed(coverage: Coverage | None) -> Sequence[str]:
    if coverage is None or coverage.processed >= coverage.asked:
        return ()
    return (
        f"Only {coverage.processed} of {counted(coverage.asked, 'forget sample')} were processed.",
    )


def left_out(setting: Setting) -> tuple[str, ...]:
    """Forget samples that the attacks cannot compare with anybody."""
    count = setting.asked - len(setting.members)
    return (
        (
            f"Attacks on {count} of {setting.asked} forget samples: of their classes there are too few unseen samples.",
        )
        if count
        else ()
    )


def not_tested(setting: Setting, coverage: Coverage | None) -> tuple[str, ...]:
    said = (
        *left_out(setting),
        "Whether unseen samples are drawn like the training samples: where they are not, outputs differ without any memory.",
        "Whether the model is like one that never saw the samples: that needs retrained models (--tier oracle).",
        "What its embeddings still hold, and attacks that compare many models (--tier full).",
        OTHER_COPIES,
    )
    return said if coverage is not None else (UNCOUNTED, *said)
