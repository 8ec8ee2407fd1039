"""The oracle and full tiers: compare with models that were retrained without the forget samples.

Controls check whether the audit would find a model that did not forget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from duck.audits import controls, text
from duck.audits.attacks.base import ModelAttack, model_attacks
from duck.audits.judge import Judge, MeasurementCache, verdict_of
from duck.audits.measurements import (
    Measure,
    accuracies,
    aus_measures,
    distances,
    membership,
    neighbours,
    zrf,
)
from duck.audits.memory import memory_measures
from duck.audits.outputs import ModelOutputs, Setting
from duck.audits.probes import probes
from duck.audits.quick import (
    Coverage,
    Curves,
    coverage_row,
    curves,
    lost_accuracy,
    missed,
    not_tested,
    quick,
)
from duck.audits.verdict import (
    FORGOTTEN,
    NO_VERDICT,
    NOT_FORGOTTEN,
    RETRAINED_ACCURACY,
    Audit,
    Control,
    Evidence,
    Grade,
    Limits,
    Power,
    Question,
    Row,
    Verdict,
)

LEAST, ENOUGH = 3, 5
"""Retrained models: fewer than LEAST give no verdict, fewer than ENOUGH no "forgotten"."""
MAX_UNRESOLVED = 0.4
"""An audit is not powered if it needs this much residual memory beyond the margin to recognise a
model that did not forget: with the default margin, a model that keeps half of the forget set."""


@dataclass(frozen=True, eq=False)
class PoolEvidence:
    """What a pool of models adds to the table and to the verdict."""

    measures: Sequence[Measure] = ()
    rows: Mapping[str, Row] = field(default_factory=dict)
    exposed: Sequence[Evidence] = ()
    """Evidence of exposure from attacks on the pool."""
    roc: Curves = field(default_factory=dict)
    attacks: Mapping[str, ModelAttack] = field(default_factory=dict)
    """Attacks on the audited models themselves, of which ROC curves are reported."""


@dataclass(frozen=True, eq=False)
class Models:
    """The outputs of every model of an audit."""

    unlearned: ModelOutputs
    original: ModelOutputs
    retrained: Sequence[ModelOutputs]
    untrained: ModelOutputs | None = None
    planted: Mapping[float, Sequence[ModelOutputs]] = field(default_factory=dict)
    """Models that keep a share of the forget set, by that share."""


def oracle(
    setting: Setting,
    models: Models,
    subject: str,
    *,
    limits: Limits | None = None,
    relearned: Row | None = None,
    coverage: Coverage | None = None,
    notes: Sequence[str] = (),
    pool: PoolEvidence | None = None,
) -> Audit:
    """Compare with retrained models and return the audit; with a pool it is of the full tier."""
    evidence = pool or PoolEvidence()
    count = len(models.retrained)
    limits = limits or Limits()
    judge, disguised = _make_judge(setting, models, limits, evidence)
    if count < LEAST:
        audit = quick(setting, models.unlearned, models.original, subject, coverage, limits)
        rows = _rows(judge, {}, evidence, relearned, coverage)
        audit = _with_few_references(audit, count, rows, notes)
        return replace(audit, tier="full" if pool else "oracle")
    grades = {
        question: replace(grade, sentence=text.describe(question, grade, count, limits))
        for question, grade in judge.grades("unlearned", evidence.exposed).items()
    }
    checked = controls.check(judge, disguised)
    power = controls.find_power(judge, list(models.planted))
    larger = _size_reason(models)
    verdict, powered, reasons = decide(
        grades, checked, power, count, limits.margin, missed(coverage), larger
    )
    if verdict == NO_VERDICT and any(
        not checked[name].passed for name in controls.REFERENCE_CONTROLS
    ):
        # The reference models decide nothing, and the quick tier needs none.
        audit = quick(setting, models.unlearned, models.original, subject, limits=limits)
        if audit.verdict == NOT_FORGOTTEN:
            verdict = NOT_FORGOTTEN
            reasons = [*(f"Quick tier: {reason}" for reason in audit.reasons), *reasons]
    lost = lost_accuracy(setting, models.unlearned, models.original)
    attacks = {
        **model_attacks(setting, "quick", "oracle", retrained=models.retrained),
        **evidence.attacks,
    }
    return Audit(
        subject=subject,
        verdict=verdict,
        powered=powered,
        tier="full" if pool else "oracle",
        reasons=(*lost, *reasons, *notes),
        attacks=_rows(judge, grades, evidence, relearned, coverage),
        controls=checked,
        roc={**curves(attacks, models.unlearned, models.original), **evidence.roc},
        not_tested=not_tested(setting, coverage, "full" if pool else "oracle"),
        models=count,
        grades=grades,
        power=power,
        in_words=text.in_words(models.unlearned, attacks, models.retrained),
    )


def _with_few_references(
    audit: Audit, count: int, rows: Mapping[str, Row], notes: Sequence[str]
) -> Audit:
    """Return what the quick tier finds: there are too few retrained models to judge by."""
    few = f"{_models(count)} too few to estimate how much such models differ: {ENOUGH} are needed."
    reasons = [*audit.reasons, few] if audit.verdict == NOT_FORGOTTEN else [few, *audit.reasons]
    return replace(
        audit,
        powered=False,
        reasons=(*reasons, *notes),
        attacks={**rows, **audit.attacks},
        models=count,
    )


def _make_judge(
    setting: Setting, models: Models, limits: Limits, evidence: PoolEvidence
) -> tuple[Judge, list[str]]:
    """Return the judge of all models, and the names of the originals with modified outputs."""
    references = {f"retrained {index}": outputs for index, outputs in enumerate(models.retrained)}
    few = len(references) < LEAST
    disguised = {} if few else controls.disguise(models.original, setting)
    planted: dict[str, ModelOutputs] = {}
    for share, group in models.planted.items():
        planted |= {f"planted {share} {index}": outputs for index, outputs in enumerate(group)}
    outputs = {
        "unlearned": models.unlearned,
        "original": models.original,
        **references,
        **disguised,
        **planted,
    }
    measures = [*all_measures(setting, models.original, models.untrained), *evidence.measures]
    judge = Judge(MeasurementCache(outputs), measures, list(references), limits)
    return judge, list(disguised)


def _size_reason(models: Models) -> str:
    """Return why a model that holds more numbers than all others cannot be called forgotten."""
    most = max(outputs.size for outputs in (models.original, *models.retrained))
    more = models.unlearned.size - most
    if more <= 0:
        return ""
    return (
        f"The unlearned model has {more:,} more parameters and buffers than the original and the "
        "retrained models: it could store the forget samples. Compare it with retrained models of "
        "the same architecture."
    )


def _rows(
    judge: Judge,
    grades: Mapping[Question, Grade],
    evidence: PoolEvidence,
    relearned: Row | None,
    coverage: Coverage | None,
) -> dict[str, Row]:
    """Return the rows of the table."""
    p = {item.measure: item.p for grade in grades.values() for item in grade.evidence}
    found = judge.rows(p, p)
    if relearned:
        found["relearning"] = relearned
    for name, row in evidence.rows.items():
        found[name] = replace(row, judged=name in p, p=p.get(name))
    if coverage is not None:
        found["coverage"] = coverage_row(coverage)
    return found


def all_measures(
    setting: Setting, original: ModelOutputs, untrained: ModelOutputs | None = None
) -> list[Measure]:
    """Return every measure of outputs and embeddings, in the order of the table."""
    return [
        *accuracies(setting),
        *aus_measures(setting, original),
        *memory_measures(setting, original),
        *membership(model_attacks(setting, "quick", "oracle")),
        *distances(setting),
        *probes(setting, original.forget.labels),
        *zrf(untrained),
        *neighbours(setting, original),
    ]


def decide(
    grades: Mapping[Question, Grade],
    checked: Mapping[str, Control],
    power: Power,
    count: int,
    margin: float,
    uncovered: Sequence[str] = (),
    larger: str = "",
) -> tuple[Verdict, bool, list[str]]:
    """Return the verdict, whether the audit is powered, and the reasons.

    uncovered   sentences about samples that the method did not process
    larger      why the model is too large to be called forgotten; "" if it is not
    """
    answers = [grade.sentence for grade in grades.values()]
    wrong = [name for name, control in checked.items() if not control.passed]
    failures = [_failure(name, checked[name]) for name in wrong]
    is_weak = power.memory is None or power.memory - margin > MAX_UNRESOLVED
    (failures if is_weak else answers).append(text.describe_power(power))
    if not controls.REFERENCE_CONTROLS.isdisjoint(wrong):
        # The reference models themselves are not to be trusted: they decide nothing.
        verdict = NOT_FORGOTTEN if uncovered else NO_VERDICT
        return verdict, False, [*uncovered, *failures, *answers]
    verdict = NOT_FORGOTTEN if uncovered else verdict_of(grades)
    if verdict == FORGOTTEN and failures:
        # An audit that calls a control forgotten must not call any model forgotten.
        return NO_VERDICT, False, [*failures, *answers]
    if verdict == FORGOTTEN and count < ENOUGH:
        few = (
            f"{_models(count)} too few to call a model forgotten: the intervals are wide, "
            f"and {ENOUGH} are needed for that."
        )
        return NO_VERDICT, True, [few, *answers]
    if verdict == FORGOTTEN and larger:
        return NO_VERDICT, True, [larger, *answers]
    return verdict, not failures, [*uncovered, *answers, *failures]


def _models(count: int) -> str:
    return "1 retrained model is" if count == 1 else f"{count} retrained models are"


def _failure(name: str, control: Control) -> str:
    """Return what went wrong with a control."""
    if name == "retrained":
        return (
            f"Retrained models are judged wrongly: {control.got}. "
            "The audit gives false positives on these data."
        )
    if name == RETRAINED_ACCURACY:
        return (
            f"A retrained model got {control.got}, but {control.expected} were expected (the "
            f"accuracy of the original minus {100 * controls.SHORTFALL:.0f} points). It was not "
            "trained like the original (recipe, mean and std of the pixels)."
        )
    return (
        f"The control '{name}' has not forgotten and does not differ from retrained models: "
        "the audit cannot decide on these data."
    )
