"""Against models retrained without the samples: is this one like them, and could the audit have told if it were not?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from duck.audits import controls
from duck.audits.attacks.base import model_attacks
from duck.audits.intervals import holm, prediction_interval
from duck.audits.judge import ALPHA, Judgement, MeasurementCache, rows
from duck.audits.measurements import (
    Measure,
    ScoringFunction,
    accuracies,
    distances,
    membership,
    neighbours,
    score,
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
    hand_picked,
    left_out,
    lost_accuracy,
    missed,
    p_values,
)
from duck.audits.verdict import (
    FORGOTTEN,
    NO_VERDICT,
    NOT_FORGOTTEN,
    Audit,
    Control,
    Interval,
    Row,
    Tier,
    p_text,
)

LEAST, ENOUGH = 3, 5
"""Retrained models: fewer than the first give no verdict; fewer than the second can convict and not acquit."""


@dataclass(frozen=True, eq=False)
class More:
    """What a pool of models adds to the table and to the judgement."""

    measures: Sequence[Measure] = ()
    rows: Mapping[str, Row] = field(default_factory=dict)
    p: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of further attacks that decide, by the name of the model: unlearned, a control, or retrained."""
    roc: Curves = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)
    """What those found, in words: they are not judged by the retrained models, so that a range of these would say nothing."""
    attacks: Mapping[str, ScoringFunction] = field(default_factory=dict)
    """On the audited models themselves; their curves are shown."""


def oracle(
    setting: Setting, unlearned: ModelOutputs, original: ModelOutputs, retrained: Sequence[ModelOutputs], subject: str, *,
    untrained: ModelOutputs | None = None, relearned: Row | None = None, coverage: Coverage | None = None, notes: Sequence[str] = (),
    more: More | None = None,
) -> Audit:  # fmt: skip
    """The whole table; four primary measures decide, by the 95 % prediction interval of a further retrained model, Holm-corrected."""
    references, extra = [f"retrained {index}" for index in range(len(retrained))], more or More()
    models = {
        "unlearned": unlearned,
        "original": original,
        **dict(zip(references, retrained, strict=True)),
    }
    measures, few = (
        [*all_measures(setting, original, untrained), *extra.measures],
        len(references) < LEAST,
    )
    forgeries = {} if few else controls.forged(original, setting)
    readings = MeasurementCache({**models, **forgeries})
    judged = (
        Judgement({})
        if few
        else readings.judge(measures, "unlearned", references, extra.p.get("unlearned"))
    )
    checked = (
        {}
        if few
        else controls.check(readings, measures, ["original", *forgeries], references, extra.p)
    )
    found = {
        **rows(readings, measures, references, judged.p, judged.p),
        **({"relearning": relearned} if relearned else {}),
    }
    found |= {
        name: replace(row, judged=name in judged.p, p=judged.p.get(name))
        for name, row in extra.rows.items()
    }
    if coverage is not None:
        found["coverage"] = coverage_row(coverage)
    tier: Tier = "full" if more else "oracle"
    by_quick, excused = _by_quick(setting, readings, measures, references, found)
    for name, finding in by_quick.items():
        found[name] = (
            found[name] if found[name].judged else replace(found[name], judged=True, p=finding.p)
        )
    verdict, powered, reasons = decide(
        judged, checked, found, len(references), missed(coverage), extra.told
    )
    lower = [finding.said for finding in by_quick.values()]
    if verdict != NOT_FORGOTTEN:
        lower += missed(coverage)
    if more and verdict == NO_VERDICT and not few:
        base = Judgement(
            {
                name: value
                for name, value in judged.p.items()
                if name not in extra.p.get("unlearned", {})
            }
        )
        checked_alone = controls.check(readings, measures, ["original", *forgeries], references, {})
        alone, _, why = decide(base, checked_alone, found, len(references), missed(coverage))
        lower += [f"Oracle tier: {reason}" for reason in why if alone == NOT_FORGOTTEN]
    verdict, reasons = carry(tier, verdict, reasons, lower)
    lost = lost_accuracy(setting, unlearned, original)
    return Audit(
        subject, verdict, powered, tier, (*lost, *reasons, *excused, *notes), found, checked,
        {**curves({**model_attacks(setting, "quick", "oracle"), **extra.attacks}, readings), **extra.roc}, _not_tested(setting, coverage, more is not None),
        len(references),
    )  # fmt: skip


class QuickFinding(NamedTuple):
    """A test of the quick tier that convicts the model."""

    p: float
    said: str


def _by_quick(
    setting: Setting,
    readings: MeasurementCache,
    measures: Sequence[Measure],
    references: Sequence[str],
    found: Mapping[str, Row],
) -> tuple[dict[str, QuickFinding], list[str]]:
    """What the quick tier finds, and in words those of its findings that retrained models show as well."""
    p = holm(
        p_values(
            setting, readings.models["unlearned"], hand_picked(setting, readings.models["original"])
        )
    )
    by_name = {measure.name: measure for measure in measures}
    standing, excused = {}, []
    for name, said in findings(p, found, setting).items():
        if _shown_by_retrained(readings, by_name[name], references):
            excused.append(f"Quick tier: {said} Not counted: the retrained models show the same.")
        else:
            standing[name] = QuickFinding(p[name], f"Quick tier: {said}")
    return standing, excused


def _shown_by_retrained(
    readings: MeasurementCache, measure: Measure, references: Sequence[str]
) -> bool:
    """Whether a further retrained model could show what the unlearned one shows on these samples.

    The quick tier takes unseen samples for what a model says of samples it never saw, which may not hold on these data. All models are
    asked about the same samples, so that only the spread between models counts, not the error of drawing samples.
    """
    if len(references) < ENOUGH:
        return False
    values = [readings.value(measure, name, references).value for name in references]
    return (
        prediction_interval(values).p_value(readings.value(measure, "unlearned", references).value)
        >= ALPHA
    )


def carry(
    tier: Tier, verdict: str, reasons: Sequence[str], lower: Sequence[str]
) -> tuple[str, list[str]]:
    """The verdict and reasons of a tier with the findings of lower ones: further evidence does not take back a conviction."""
    if not lower or verdict == NOT_FORGOTTEN:
        return verdict, [*reasons, *lower]
    return NOT_FORGOTTEN, [*lower, f"The {tier} tier alone gives: {verdict}.", *reasons]


def all_measures(
    setting: Setting, original: ModelOutputs, untrained: ModelOutputs | None = None
) -> list[Measure]:
    """Every measure that looks at outputs and embeddings, in the order of the table."""
    return [
        *accuracies(setting), *score(setting, original), *distances(setting), *probes(setting, original.forget.labels), *zrf(untrained),
        *neighbours(setting, original), *membership(setting, "quick", "oracle"),
    ]  # fmt: skip


def decide(
    judged: Judgement,
    checked: Mapping[str, Control],
    found: Mapping[str, Row],
    count: int,
    uncovered: Sequence[str] = (),
    told: Mapping[str, str] | None = None,
) -> tuple[str, bool, list[str]]:
    """The verdict, whether the audit could tell, and why; `told` of attacks that are not judged by retrained models."""
    told = told or {}
    if count < LEAST:
        why = f"{_models(count)} too few to say how much such models differ: {ENOUGH} are needed."
        return NO_VERDICT, False, [why]
    findings = [
        f"{name}: {told[name]}, p {p_text(judged.p[name])}."
        if name in told
        else _finding(name, judged.p[name], found[name], count)
        for name in judged.outside
    ] + list(uncovered)
    wrong = {name: control for name, control in checked.items() if not control.passed}
    if wrong:
        return (
            NO_VERDICT,
            False,
            [*(_failure(name, control) for name, control in wrong.items()), *findings],
        )
    if findings:
        return NOT_FORGOTTEN, True, findings
    names = ", ".join(name for name in judged.p if name not in told)
    nothing = [
        f"By {names} the model is not told from {count} models that never saw the samples.",
        *(
            f"{name}: {said}, p {p_text(judged.p[name])}: no more than chance."
            for name, said in told.items()
        ),
    ]
    if count < ENOUGH:
        few = f"{_models(count)} too few to call a model forgotten: the intervals are wide, and {ENOUGH} are needed for that."
        return NO_VERDICT, True, [few, *nothing]
    return FORGOTTEN, True, nothing


def _models(count: int) -> str:
    return "1 retrained model is" if count == 1 else f"{count} retrained models are"


def _finding(name: str, p: float, row: Row, count: int) -> str:
    ours, theirs = row.unlearned, row.retrained
    assert ours is not None
    assert theirs is not None
    side = "above" if ours.value > theirs.value else "below"
    return f"{name}: {_amount(ours, row)} lies {side} what retrained models show, {_range(theirs, row)} (n = {count}, p {p_text(p)})."


def _amount(reading: Interval, row: Row) -> str:
    return f"{100 * reading.value:.1f} %" if row.unit == "%" else f"{reading.value:.3f} {row.unit}"


def _range(reading: Interval, row: Row) -> str:
    assert reading.low is not None
    assert reading.high is not None
    scale, form = (100, "{:.1f}") if row.unit == "%" else (1, "{:.3f}")
    return f"{form.format(scale * reading.low)} to {form.format(scale * reading.high)}{' %' * (row.unit == '%')}"


def _failure(name: str, control: Control) -> str:
    if name == "retrained":
        return f"Retrained models do not pass as such: {control.got}. The audit raises false alarms on these data."
    if name == controls.AS_GOOD:
        return (
            f"A retrained model got {control.got}, and {control.expected} were expected, the original's accuracy less "
            f"{100 * controls.SHORTFALL:.0f} points: it was not trained as the original was (recipe, mean and std of the pixels)."
        )
    return f"The control '{name}' has not forgotten and was not told from retrained models: the audit cannot tell on these data."


def _not_tested(setting: Setting, coverage: Coverage | None, pooled: bool) -> tuple[str, ...]:
    said = [*left_out(setting), OTHER_COPIES]
    if not pooled:
        said.insert(
            0,
            "Attacks that compare many models sample by sample (--tier full): a few samples among many may still be known.",
        )
    if coverage is None:
        said.insert(0, UNCOUNTED)
    return tuple(said)
