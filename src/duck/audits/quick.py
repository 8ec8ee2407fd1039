"""Without a retrained model: what the model itself gives away, in seconds. It can convict, and never acquit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest, mannwhitneyu

from duck.audits.intervals import clopper_pearson, holm
from duck.audits.judge import Readings, rows
from duck.audits.measurements import (
    Attack,
    accuracies,
    attacks,
    class_accuracies,
    entropies,
    losses,
    membership,
    runner_ups,
    score,
)
from duck.audits.outputs import Observed, Setting, compared
from duck.audits.roc import roc
from duck.audits.verdict import NO_VERDICT, NOT_FORGOTTEN, Audit, Reading, Row, p_text
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
    where: Setting,
    unlearned: Observed,
    original: Observed,
    subject: str,
    coverage: Coverage | None = None,
) -> Audit:
    """Accuracies, AUS, attacks on forgotten against unseen samples, and whether every sample was processed."""
    readings = Readings({"unlearned": unlearned, "original": original})
    measures = [
        *accuracies(where),
        *score(where, original),
        *membership(where),
        *class_accuracies(where, unlearned.unseen.labels),
    ]
    chosen = hand_picked(where, original)
    p = holm(p_values(where, unlearned, chosen))
    found = rows(readings, measures, (), p, p)
    if coverage is not None:
        found["coverage"] = coverage_row(coverage)
    lost = lost_accuracy(where, unlearned, original)
    guilty = (*findings(p, found, where).values(), *missed(coverage))
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
        roc=curves(attacks(where), readings),
        not_tested=not_tested(where, coverage),
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


def hand_picked(where: Setting, original: Observed) -> bool:
    """Whether single samples were chosen for what they are: the original, which saw both, treats them unlike retained ones."""
    if where.kind == "class":
        return False
    some, alike = compared(original.forget.labels, original.retain.labels, where.seed)
    if not len(some):
        return False
    return any(
        mannwhitneyu(what(original.forget)[some], what(original.retain)[alike]).pvalue < ALPHA for what in (losses, entropies, runner_ups)
    )  # fmt: skip


def curves(some: Mapping[str, Attack], readings: Readings) -> Curves:
    """ROC curves of these attacks on each model that is named."""
    return {
        name: {
            who: roc(attack(seen)).curve()
            for who, seen in readings.models.items()
            if who in ("original", "unlearned")
        }
        for name, attack in some.items()
    }


def p_values(where: Setting, unlearned: Observed, chosen: bool = False) -> dict[str, float]:
    """Uncorrected. A removed class must not be recognised above chance; forgotten samples must look like unseen ones, on either side."""
    found: dict[str, float] = {}
    if where.kind == "class":
        correct = unlearned.forget.correct
        found["accuracy forget"] = float(
            binomtest(int(correct.sum()), len(correct), 1 / where.num_classes, "greater").pvalue
        )
    for name, attack in attacks(where).items() if not chosen else ():
        scored = attack(unlearned)
        # The SVM was fitted to tell them apart: only success counts.
        side = "greater" if name == "SVM attack" else "two-sided"
        found[name] = float(
            mannwhitneyu(
                scored.scores[scored.members], scored.scores[~scored.members], alternative=side
            ).pvalue
        )
    return found


def findings(p: Mapping[str, float], found: Mapping[str, Row], where: Setting) -> dict[str, str]:
    """What convicts by these corrected p-values, in words."""
    return {
        name: _finding(name, value, found[name].unlearned, where)
        for name, value in p.items()
        if value < ALPHA
    }


def lost_accuracy(where: Setting, unlearned: Observed, original: Observed) -> tuple[str, ...]:
    """Whether the model lost too much accuracy on unseen samples of what it was to keep, in words."""
    rows = where.reported
    if not len(rows):
        return ()
    before, after = (float(seen.unseen.correct[rows].mean()) for seen in (original, unlearned))
    kept = kept_accuracy(
        "retain_test" if where.kind == "class" else "test", before, after, len(rows)
    )
    return (str(kept),) if kept.damaged else ()


def _finding(name: str, p: float, reading: Reading | None, where: Setting) -> str:
    assert reading is not None
    if name == "accuracy forget":
        chance = f"chance is {100 / where.num_classes:.1f} %"
        return f"The model still recognises the forgotten class: {100 * reading.value:.1f} % of its samples, {chance}."
    pushed = "their outputs are less like members' than unseen samples' are, as if pushed away"
    how = (
        "by their outputs"
        if name == "SVM attack"
        else "as members do"
        if reading.value > 0.5
        else pushed
    )
    return f"{name}: forgotten samples stand out from unseen ones, {how} (AUC {reading.value:.3f}, chance 0.5, p {p_text(p)})."


def coverage_row(coverage: Coverage) -> Row:
    share = coverage.processed / coverage.asked
    about = "share of the forget samples that the method worked on or, where it retrains, left out"
    interval = (
        clopper_pearson(coverage.processed, coverage.asked) if 0 < share < 1 else (share, share)
    )
    return Row(about, "%", coverage.asked, None, Reading(share, *interval), None, judged=True)


def missed(coverage: Coverage | None) -> Sequence[str]:
    if coverage is None or coverage.processed >= coverage.asked:
        return ()
    return (
        f"Only {coverage.processed} of {counted(coverage.asked, 'forget sample')} were processed.",
    )


def left_out(where: Setting) -> tuple[str, ...]:
    """Forget samples that the attacks cannot compare with anybody."""
    count = where.asked - len(where.members)
    return (
        (
            f"Attacks on {count} of {where.asked} forget samples: of their classes there are too few unseen samples.",
        )
        if count
        else ()
    )


def not_tested(where: Setting, coverage: Coverage | None) -> tuple[str, ...]:
    said = (
        *left_out(where),
        "Whether unseen samples are drawn like the training samples: where they are not, outputs differ without any memory.",
        "Whether the model is like one that never saw the samples: that needs retrained models (--tier oracle).",
        "What its embeddings still hold, and attacks that compare many models (--tier full).",
        OTHER_COPIES,
    )
    return said if coverage is not None else (UNCOUNTED, *said)
