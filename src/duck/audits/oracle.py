"""The oracle tier: compare the model with models that were retrained without the samples.

Controls check whether the audit would find a model that did not forget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from duck.audits import controls
from duck.audits.attacks.base import model_attacks
from duck.audits.intervals import holm, prediction_interval
from duck.audits.judge import ALPHA, Judgement, MeasurementCache, table_rows
from duck.audits.measurements import (
    Measure,
    ScoringFunction,
    accuracies,
    aus_measures,
    distances,
    membership,
    neighbours,
    zrf,
)
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.probes import probes
from duck.audits.quick import (
    OTHER_COPIES,
    UNCOUNTED,
    Coverage,
    Curves,
    coverage_row,
    curves,
    findings,
    is_hand_picked,
    lost_accuracy,
    missed,
    p_values,
    without_match,
)
from duck.audits.verdict import (
    FORGOTTEN,
    NO_VERDICT,
    NOT_FORGOTTEN,
    Audit,
    Control,
    Row,
    Tier,
    Verdict,
    p_text,
)
from duck.types import Estimate

LEAST, ENOUGH = 3, 5
"""Retrained models: fewer than LEAST give no verdict, fewer than ENOUGH no "forgotten"."""


@dataclass(frozen=True, eq=False)
class PoolEvidence:
    """What a pool of models adds to the table and to the verdict."""

    measures: Sequence[Measure] = ()
    rows: Mapping[str, Row] = field(default_factory=dict)
    p: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """P-values of decisive attacks on the pool, by model: unlearned, a control, or retrained."""
    roc: Curves = field(default_factory=dict)
    statements: Mapping[str, str] = field(default_factory=dict)
    """The results of these attacks in words. They are not judged by retrained models."""
    attacks: Mapping[str, ScoringFunction] = field(default_factory=dict)
    """Attacks on the audited models themselves, of which ROC curves are reported."""


def oracle(
    setting: Setting,
    unlearned: ModelOutputs,
    original: ModelOutputs,
    retrained: Sequence[ModelOutputs],
    subject: str,
    *,
    untrained: ModelOutputs | None = None,
    relearned: Row | None = None,
    coverage: Coverage | None = None,
    notes: Sequence[str] = (),
    pool: PoolEvidence | None = None,
) -> Audit:
    """Compare with retrained models and return the audit; with a pool it is of the full tier.

    The decisive measures are judged by the 95 % prediction interval of a further retrained model,
    corrected by Holm's method.
    """
    evidence = pool or PoolEvidence()
    models = {"unlearned": unlearned, "original": original}
    comparison = _compare(setting, models, retrained, untrained, evidence)
    judgement = comparison.judge()
    checked = comparison.check_controls(evidence.p)
    rows = comparison.rows(judgement, relearned, coverage)
    quick_findings, excused = comparison.quick_findings(rows)
    for name, finding in quick_findings.items():
        if not rows[name].judged:
            rows[name] = replace(rows[name], judged=True, p=finding.p)
    count, uncovered = len(retrained), missed(coverage)
    verdict, powered, reasons = decide(
        judgement, checked, rows, count, uncovered, evidence.statements
    )
    lower = [finding.sentence for finding in quick_findings.values()]
    if verdict != NOT_FORGOTTEN:
        lower += uncovered
    if pool and verdict == NO_VERDICT:
        lower += comparison.oracle_findings(judgement, rows, uncovered)
    tier: Tier = "full" if pool else "oracle"
    verdict, reasons = carry(tier, verdict, reasons, lower)
    lost = lost_accuracy(setting, unlearned, original)
    return Audit(
        subject=subject,
        verdict=verdict,
        powered=powered,
        tier=tier,
        reasons=(*lost, *reasons, *excused, *notes),
        attacks=rows,
        controls=checked,
        roc=comparison.curves(),
        not_tested=_not_tested(setting, coverage, pool is not None),
        models=count,
    )


class QuickFinding(NamedTuple):
    """A test of the quick tier that finds a trace of the samples."""

    p: float
    sentence: str


def _compare(
    setting: Setting,
    models: Mapping[str, ModelOutputs],
    retrained: Sequence[ModelOutputs],
    untrained: ModelOutputs | None,
    evidence: PoolEvidence,
) -> "_Comparison":
    """Gather the models, the controls and the measures of one audit."""
    original = models["original"]
    references = {f"retrained {index}": outputs for index, outputs in enumerate(retrained)}
    few = len(references) < LEAST
    forgeries = {} if few else controls.make_forgeries(original, setting)
    return _Comparison(
        setting,
        MeasurementCache({**models, **references, **forgeries}),
        [*all_measures(setting, original, untrained), *evidence.measures],
        list(references),
        [] if few else ["original", *forgeries],
        evidence,
    )


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The models of one audit, their measures, and the evidence of a pool."""

    setting: Setting
    measurements: MeasurementCache
    measures: Sequence[Measure]
    references: Sequence[str]
    controls: Sequence[str]
    """Models that did not forget. Empty where there are too few reference models to judge them."""
    evidence: PoolEvidence

    def judge(self) -> Judgement:
        """Judge the unlearned model by the reference models, if there are enough."""
        if not self.controls:
            return Judgement({})
        attack_p = self.evidence.p.get("unlearned")
        return self.measurements.judge(self.measures, "unlearned", self.references, attack_p)

    def check_controls(self, attack_p: Mapping[str, Mapping[str, float]]) -> dict[str, Control]:
        """Judge the controls, if there are enough reference models."""
        if not self.controls:
            return {}
        return controls.check(
            self.measurements, self.measures, self.controls, self.references, attack_p
        )

    def rows(
        self, judgement: Judgement, relearned: Row | None, coverage: Coverage | None
    ) -> dict[str, Row]:
        """Return the rows of the table."""
        p = judgement.p
        found = table_rows(self.measurements, self.measures, self.references, p, p)
        if relearned:
            found["relearning"] = relearned
        for name, row in self.evidence.rows.items():
            found[name] = replace(row, judged=name in p, p=p.get(name))
        if coverage is not None:
            found["coverage"] = coverage_row(coverage)
        return found

    def quick_findings(self, rows: Mapping[str, Row]) -> tuple[dict[str, QuickFinding], list[str]]:
        """Return the findings of the quick tier, and notes on those that do not count.

        A finding does not count where retrained models show the same.
        """
        models = self.measurements.models
        hand_picked = is_hand_picked(self.setting, models["original"])
        p = holm(p_values(self.setting, models["unlearned"], hand_picked))
        by_name = {measure.name: measure for measure in self.measures}
        counting: dict[str, QuickFinding] = {}
        excused = []
        for name, finding in findings(p, rows, self.setting).items():
            sentence = f"Quick tier: {finding}"
            if _shown_by_retrained(self.measurements, by_name[name], self.references):
                excused.append(f"{sentence} Not counted: the retrained models show the same.")
            else:
                counting[name] = QuickFinding(p[name], sentence)
        return counting, excused

    def oracle_findings(
        self, judgement: Judgement, rows: Mapping[str, Row], uncovered: Sequence[str]
    ) -> list[str]:
        """Return what the oracle tier finds without the pool."""
        if not self.controls:
            return []
        pool_attacks = self.evidence.p.get("unlearned", {})
        base = Judgement(
            {name: value for name, value in judgement.p.items() if name not in pool_attacks}
        )
        checked = self.check_controls({})
        verdict, _, reasons = decide(base, checked, rows, len(self.references), uncovered)
        return [f"Oracle tier: {reason}" for reason in reasons if verdict == NOT_FORGOTTEN]

    def curves(self) -> Curves:
        """Return the ROC curves of all attacks."""
        attacks: dict[str, ScoringFunction] = {
            **model_attacks(self.setting, "quick", "oracle"),
            **self.evidence.attacks,
        }
        return {**curves(attacks, self.measurements), **self.evidence.roc}


def _shown_by_retrained(
    measurements: MeasurementCache, measure: Measure, references: Sequence[str]
) -> bool:
    """Return whether a further retrained model could show the same as the unlearned one.

    The quick tier assumes that unseen samples look like samples the model never saw, which may not
    hold on these data. All models are measured on the same samples, so that only the spread
    between models counts and not the error of drawing samples.
    """
    if len(references) < ENOUGH:
        return False
    values = [measurements.value(measure, name, references).value for name in references]
    unlearned = measurements.value(measure, "unlearned", references).value
    return prediction_interval(values).p_value(unlearned) >= ALPHA


def carry(
    tier: Tier, verdict: Verdict, reasons: Sequence[str], lower: Sequence[str]
) -> tuple[Verdict, list[str]]:
    """Return verdict and reasons of a tier, joined with the findings of lower tiers.

    Further evidence does not take back what a lower tier found.
    """
    if not lower or verdict == NOT_FORGOTTEN:
        return verdict, [*reasons, *lower]
    return NOT_FORGOTTEN, [*lower, f"The {tier} tier alone gives: {verdict}.", *reasons]


def all_measures(
    setting: Setting, original: ModelOutputs, untrained: ModelOutputs | None = None
) -> list[Measure]:
    """Return every measure of outputs and embeddings, in the order of the table."""
    return [
        *accuracies(setting),
        *aus_measures(setting, original),
        *distances(setting),
        *probes(setting, original.forget.labels),
        *zrf(untrained),
        *neighbours(setting, original),
        *membership(setting, "quick", "oracle"),
    ]


def decide(
    judgement: Judgement,
    checked: Mapping[str, Control],
    rows: Mapping[str, Row],
    count: int,
    uncovered: Sequence[str] = (),
    statements: Mapping[str, str] | None = None,
) -> tuple[Verdict, bool, list[str]]:
    """Return the verdict, whether the audit is powered, and the reasons.

    `statements` are the results of attacks that are not judged by retrained models.
    """
    statements = statements or {}
    if count < LEAST:
        reason = f"{_models(count)} too few to estimate how much such models differ: "
        return NO_VERDICT, False, [f"{reason}{ENOUGH} are needed."]
    evidence = [*_outside(judgement, rows, count, statements), *uncovered]
    failures = [_failure(name, control) for name, control in checked.items() if not control.passed]
    if failures:
        return NO_VERDICT, False, [*failures, *evidence]
    if evidence:
        return NOT_FORGOTTEN, True, evidence
    reasons = _no_difference(judgement, count, statements)
    if count < ENOUGH:
        few = (
            f"{_models(count)} too few to call a model forgotten: the intervals are wide, "
            f"and {ENOUGH} are needed for that."
        )
        return NO_VERDICT, True, [few, *reasons]
    return FORGOTTEN, True, reasons


def _outside(
    judgement: Judgement, rows: Mapping[str, Row], count: int, statements: Mapping[str, str]
) -> list[str]:
    """Return a sentence for each measure or attack that differs significantly."""
    sentences = []
    for name in judgement.outside:
        p = judgement.p[name]
        if name in statements:
            sentences.append(f"{name}: {statements[name]}, p {p_text(p)}.")
        else:
            sentences.append(_finding(name, p, rows[name], count))
    return sentences


def _no_difference(judgement: Judgement, count: int, statements: Mapping[str, str]) -> list[str]:
    """Return the reasons of an audit that found no difference."""
    names = ", ".join(name for name in judgement.p if name not in statements)
    return [
        f"By {names} the model does not differ from {count} models that never saw the samples.",
        *(
            f"{name}: {statement}, p {p_text(judgement.p[name])}: no more than chance."
            for name, statement in statements.items()
        ),
    ]


def _models(count: int) -> str:
    return "1 retrained model is" if count == 1 else f"{count} retrained models are"


def _finding(name: str, p: float, row: Row, count: int) -> str:
    unlearned, retrained = row.unlearned, row.retrained
    assert unlearned is not None
    assert retrained is not None
    side = "above" if unlearned.value > retrained.value else "below"
    return (
        f"{name}: {_amount(unlearned, row)} lies {side} what retrained models show, "
        f"{_range(retrained, row)} (n = {count}, p {p_text(p)})."
    )


def _amount(interval: Estimate, row: Row) -> str:
    if row.unit == "%":
        return f"{100 * interval.value:.1f} %"
    return f"{interval.value:.3f} {row.unit}"


def _range(interval: Estimate, row: Row) -> str:
    assert interval.low is not None
    assert interval.high is not None
    if row.unit == "%":
        return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"
    return f"{interval.low:.3f} to {interval.high:.3f}"


def _failure(name: str, control: Control) -> str:
    """Return what went wrong with a control."""
    if name == "retrained":
        return (
            f"Retrained models do not pass as such: {control.got}. "
            "The audit gives false positives on these data."
        )
    if name == controls.AS_GOOD:
        return (
            f"A retrained model got {control.got}, and {control.expected} were expected, the "
            f"original's accuracy less {100 * controls.SHORTFALL:.0f} points: it was not trained "
            "as the original was (recipe, mean and std of the pixels)."
        )
    return (
        f"The control '{name}' has not forgotten and does not differ from retrained models: "
        "the audit cannot decide on these data."
    )


def _not_tested(setting: Setting, coverage: Coverage | None, with_pool: bool) -> tuple[str, ...]:
    """Return what the audit leaves open, a sentence each."""
    sentences = [*without_match(setting), OTHER_COPIES]
    if not with_pool:
        few_samples = (
            "Attacks that compare many models sample by sample (--tier full): "
            "a few samples among many may still be known."
        )
        sentences.insert(0, few_samples)
    if coverage is None:
        sentences.insert(0, UNCOUNTED)
    return tuple(sentences)
