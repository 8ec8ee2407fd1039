"""The verdict against retrained models, on models whose verdict is known."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from duck.audits import controls
from duck.audits.oracle import Models, PoolEvidence, decide, oracle
from duck.audits.outputs import ModelOutputs, Rows, Setting, SplitOutputs
from duck.audits.quick import Coverage, quick
from duck.audits.verdict import Audit, Control, Evidence, Grade, Limits, Power
from tests.audits.witnesses import GONE, class_setting, model, sample_model, samples_setting


@cache
def retrained(count: int = 6) -> list[ModelOutputs]:
    return [model(100 + index, knows=False) for index in range(count)]


@cache
def never_saw(count: int = 6) -> list[ModelOutputs]:
    return [sample_model(100 + index, 0.0) for index in range(count)]


@cache
def fresh() -> Audit:
    """Of a further retrained model."""
    return judged(model(50, knows=False))


def judged(unlearned: ModelOutputs, count: int = 6, coverage: Coverage | None = None) -> Audit:
    models = Models(unlearned, model(0, knows=True), retrained(count))
    return oracle(class_setting(), models, "A method ran on 90 samples.", coverage=coverage)


def judged_samples(
    unlearned: ModelOutputs,
    original: ModelOutputs | None = None,
    references: Sequence[ModelOutputs] = (),
    setting: Setting | None = None,
) -> Audit:
    models = Models(unlearned, original or sample_model(0, 4.0), references or never_saw())
    return oracle(setting or samples_setting(), models, "subject")


def test_original_and_masked_are_not_forgotten() -> None:
    original = model(0, knows=True)
    masked = controls.mask_forgotten(original, class_setting())
    for unlearned, measure in ((original, "margin"), (masked, "embedding")):
        audit = judged(unlearned)
        assert (audit.verdict, audit.powered, audit.tier) == ("not forgotten", True, "oracle")
        assert audit.grades["remembers"].answer == "yes"
        by_name = {item.measure: item for item in audit.grades["remembers"].evidence}
        assert by_name[measure].answer == "yes"


@pytest.mark.parametrize("make", [controls.retrain_head, controls.add_noise])
def test_forged_models_are_never_forgotten(make: object) -> None:
    assert callable(make)
    assert judged(make(model(0, knows=True), class_setting())).verdict != "forgotten"


def test_a_further_retrained_model_is_forgotten_and_every_question_has_an_answer() -> None:
    audit = fresh()
    assert (audit.verdict, audit.powered) == ("forgotten", True)
    assert {name: grade.answer for name, grade in audit.grades.items()} == {
        "remembers": "no",
        "exposed": "no",
        "differs": "no",
    }
    # No attack resolves an advantage of 0.5 here.
    assert [name for name, row in audit.attacks.items() if row.judged] == [
        "accuracy retain-test", "margin", "margin of copies",
            "margin of contrast copies", "class logit",
        "likeness to the original", "embedding", "inner embedding",
        "excess distance", "distance elsewhere",
    ]  # fmt: skip


def test_a_head_that_knows_half_of_the_forget_samples_is_found_where_few_are_unseen() -> None:
    """It is a retrained model, except that it knows one of four unseen samples of the class."""
    clean = model(50, knows=False)
    setting = replace(class_setting(), forget_test=class_setting().forget_test[:4])

    def knowing(part: SplitOutputs, rows: Rows) -> SplitOutputs:
        logits = part.logits.copy()
        logits[rows, GONE] = 20.0
        return replace(part, logits=logits)

    leaky = replace(
        clean,
        forget=knowing(clean.forget, np.arange(0, 90, 2)),
        unseen=knowing(clean.unseen, setting.forget_test[:1]),
    )
    for unlearned, verdict in ((clean, "forgotten"), (leaky, "not forgotten")):
        models = Models(unlearned, model(0, knows=True), retrained())
        audit = oracle(setting, models, "subject")
        assert audit.verdict == verdict
    assert audit.grades["remembers"].value == pytest.approx(0.5, abs=0.1)


def test_unprocessed_samples_convict_even_a_model_that_looks_right() -> None:
    audit = judged(model(50, knows=False), coverage=Coverage(80, 90))
    assert audit.verdict == "not forgotten"
    assert "80 of 90 forget samples" in audit.reasons[0]


def test_two_retrained_models_give_no_verdict() -> None:
    audit = judged(model(50, knows=False), count=2)
    assert (audit.verdict, audit.powered, dict(audit.controls)) == ("no verdict", False, {})
    assert "too few" in audit.reasons[0]


@pytest.mark.parametrize("count", [0, 2])
def test_too_few_retrained_models_do_not_take_back_what_the_quick_tier_found(count: int) -> None:
    original = model(0, knows=True)
    first = quick(class_setting(), original, original, "subject")
    assert first.verdict == "not forgotten"
    audit = judged(original, count)
    assert audit.verdict == "not forgotten"
    assert audit.reasons[: len(first.reasons)] == first.reasons
    assert "too few" in audit.reasons[-1]
    assert "not powered" not in str(audit)
    assert audit.attacks["accuracy forget"].p == first.attacks["accuracy forget"].p
    uncounted = judged(model(50, knows=False), count, Coverage(80, 90))
    assert uncounted.verdict == "not forgotten"
    assert "80 of 90" in uncounted.reasons[0]


def test_reference_models_that_are_poor_decide_nothing_and_the_quick_tier_does() -> None:
    """Retrained models that are far from as good as the original cannot be compared with."""
    poor = [
        replace(one, retain=replace(one.retain, logits=-one.retain.logits)) for one in never_saw()
    ]
    unlearned = sample_model(51, 4.0)
    first = quick(samples_setting(), unlearned, sample_model(0, 4.0), "subject")
    assert first.verdict == "not forgotten"
    audit = judged_samples(unlearned, references=poor)
    assert not audit.controls["retrained accuracy"].passed
    assert (audit.verdict, audit.powered) == ("not forgotten", False)
    assert audit.reasons[0] == f"Quick tier: {first.reasons[0]}"
    assert judged_samples(sample_model(51, 0.0), references=poor).verdict == "no verdict"


def test_what_retrained_models_show_as_well_is_no_conviction() -> None:
    """The forget samples are easier than unseen ones, whoever looks at them."""

    def with_easy_samples(one: ModelOutputs) -> ModelOutputs:
        logits = one.forget.logits.copy()
        logits[np.arange(len(logits)), one.forget.labels] += 2.0
        return replace(one, forget=replace(one.forget, logits=logits))

    models = [with_easy_samples(one) for one in never_saw()]
    unlearned = with_easy_samples(sample_model(51, 0.0))
    original = with_easy_samples(sample_model(0, 4.0))
    setting = samples_setting()
    assert quick(setting, unlearned, sample_model(0, 4.0), "subject").verdict == "not forgotten"
    assert judged_samples(unlearned, original, models).verdict != "not forgotten"
    knowing = with_easy_samples(sample_model(51, 2.0))
    assert judged_samples(knowing, original, models).verdict == "not forgotten"


def test_residual_memory_follows_the_memory_of_a_model() -> None:
    """The margin grows with what is added to the right logit: 4 for the original, 0 for others."""
    found = {}
    for memory in (0.0, 1.0, 2.0, 4.0):
        audit = judged_samples(sample_model(51, memory))
        by_name = {item.measure: item.value for item in audit.grades["remembers"].evidence}
        found[memory] = by_name["margin"]
    assert found == pytest.approx({0.0: 0.0, 1.0: 0.25, 2.0: 0.5, 4.0: 1.0}, abs=0.12)


def test_samples_that_were_pushed_away_are_exposed_and_not_remembered() -> None:
    audit = judged_samples(sample_model(51, -3.0))
    assert (audit.verdict, audit.grades["remembers"].answer) == ("not forgotten", "no")
    exposed = audit.grades["exposed"]
    assert exposed.answer == "yes"
    assert exposed.value is not None


@pytest.mark.parametrize("count", [3, 4])
def test_fewer_than_five_retrained_models_can_convict_and_not_acquit(count: int) -> None:
    clean = judged(model(50, knows=False), count)
    assert clean.verdict == "no verdict"
    assert judged(model(0, knows=True), count).verdict == "not forgotten"
    assert judged(model(50, knows=False), 5).verdict == "forgotten"


def grade(answer: str) -> Grade:
    return Grade(answer, "margin", 0.0, -0.1, 0.05, 0.1, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("remembers", "failed", "memory", "verdict", "powered"),
    [
        ("no", None, 0.2, "forgotten", True),
        ("no", None, 0.5, "forgotten", True),
        ("no", None, 0.51, "no verdict", False),
        ("no", None, None, "no verdict", False),
        ("no", "original", 0.2, "no verdict", False),
        ("yes", "original", 0.2, "not forgotten", False),
        ("yes", "retrained", 0.2, "no verdict", False),
        ("yes", "retrained accuracy", 0.2, "no verdict", False),
        ("undecided", None, 0.2, "no verdict", True),
    ],
)
def test_which_grades_decide_the_verdict(
    remembers: str, failed: str | None, memory: float | None, verdict: str, powered: bool
) -> None:
    """Without power, or with a wrong control, no model is forgotten.

    Poor retrained models show nothing at all.
    """
    grades = {"remembers": grade(remembers), "exposed": grade("no"), "differs": grade("no")}
    names = ("original", "retrained", "retrained accuracy")
    checked = {name: Control("a", "b", name != failed) for name in names}
    found = decide(grades, checked, Power(memory), 6, margin=0.1)  # type: ignore[arg-type]
    assert found[:2] == (verdict, powered)


def test_a_wide_margin_needs_no_more_resolution() -> None:
    """What counts is the residual memory beyond the margin that the audit recognises."""
    grades = {"remembers": grade("no"), "exposed": grade("no"), "differs": grade("no")}
    found = [decide(grades, {}, Power(0.8), 6, margin)[:2] for margin in (0.1, 0.5)]  # type: ignore[arg-type]
    assert found == [("no verdict", False), ("forgotten", True)]


def test_power_is_known_without_planted_models() -> None:
    models = Models(model(50, knows=False), model(0, knows=True), retrained())
    audit = oracle(class_setting(), models, "subject")
    assert audit.power is not None
    assert audit.power.memory is not None
    assert 0.1 < audit.power.memory < 0.5
    assert (audit.power.share, audit.powered) == (None, True)


def test_an_audit_that_does_not_recognise_the_original_is_not_powered() -> None:
    weak = sample_model(0, 0.1)
    audit = oracle(samples_setting(), Models(sample_model(51, 0.0), weak, never_saw()), "subject")
    assert not audit.controls["original"].passed
    assert (audit.verdict, audit.powered) == ("no verdict", False)


@pytest.mark.parametrize(
    ("own", "of_retrained", "verdict"),
    [(100, 100, "forgotten"), (101, 100, "no verdict"), (101, 101, "forgotten")],
)
def test_a_model_that_holds_more_numbers_than_all_others_is_not_forgotten(
    own: int, of_retrained: int, verdict: str
) -> None:
    """It could store the forget samples and what to answer on them."""
    models = Models(
        replace(model(50, knows=False), size=own),
        replace(model(0, knows=True), size=100),
        [replace(one, size=of_retrained) for one in retrained()],
    )
    audit = oracle(class_setting(), models, "subject")
    assert audit.verdict == verdict
    assert ("1 more parameters" in audit.reasons[0]) == (verdict == "no verdict")


@pytest.mark.parametrize(("answer", "verdict"), [("yes", "not forgotten"), ("no", "forgotten")])
def test_evidence_of_a_pool_joins_the_answer(answer: str, verdict: str) -> None:
    excess = Evidence("U-LiRA excess", 0.5, 0.4, 0.6, 0.05, 1e-9, answer)  # type: ignore[arg-type]
    audit = oracle(
        class_setting(),
        Models(model(50, knows=False), model(0, knows=True), retrained()),
        "subject",
        pool=PoolEvidence(exposed=[excess]),
    )
    assert (audit.verdict, audit.tier) == (verdict, "full")
    assert excess in audit.grades["exposed"].evidence


def test_a_stricter_margin_leaves_it_undecided() -> None:
    models = Models(model(50, knows=False), model(0, knows=True), retrained())
    audit = oracle(class_setting(), models, "subject", limits=Limits(margin=0.001))
    assert (audit.verdict, audit.grades["remembers"].answer) == ("no verdict", "undecided")


def test_planted_models_state_the_power() -> None:
    """Half of the rows of a planted model are those of the original."""
    original, clean = sample_model(0, 4.0), sample_model(60, 0.0)

    def planted(share: float) -> ModelOutputs:
        rows = np.arange(len(clean.forget)) < share * len(clean.forget)
        logits = np.where(rows[:, None], original.forget.logits, clean.forget.logits)
        return replace(clean, forget=replace(clean.forget, logits=logits))

    groups = {share: [planted(share)] for share in (0.1, 0.3, 0.5)}
    models = Models(sample_model(51, 0.0), original, never_saw(), planted=groups)
    power = oracle(samples_setting(), models, "subject").power
    assert power is not None
    assert power.planted == pytest.approx({"0.1": 0.1, "0.3": 0.3, "0.5": 0.5}, abs=0.1)
    assert power.share is not None
    assert 0.1 < power.share < 0.5
    strict = oracle(samples_setting(), models, "subject", limits=Limits(margin=0.3)).power
    assert strict is not None
    assert strict.share is not None
    assert strict.share > power.share + 0.1


def test_where_the_original_is_like_a_retrained_model_the_audit_is_not_powered() -> None:
    """Single samples that nobody memorises: the original says of them what every model says."""
    audit = judged_samples(sample_model(51, 0.0), sample_model(0, 0.0))
    assert audit.verdict == "no verdict"
    assert (audit.grades["remembers"].answer, audit.grades["remembers"].value) == (
        "undecided",
        None,
    )


def test_an_attacker_is_described_in_words() -> None:
    text = " ".join(judged_samples(sample_model(51, 4.0)).in_words)
    assert "; for retrained models" in text


def test_the_table_gives_every_number_for_three_models_with_n_and_interval() -> None:
    row = fresh().attacks["output distance"]
    assert row.n == 90
    for reading in (row.original, row.unlearned, row.retrained):
        assert reading is not None
        assert reading.low is not None
        assert reading.high is not None
        assert reading.low < reading.value < reading.high
    assert row.original is not None
    assert row.retrained is not None
    assert row.retrained.high is not None
    assert row.original.value > row.retrained.high


def test_json_holds_what_the_contract_names() -> None:
    printed = json.loads(json.dumps(fresh().to_dict()))
    assert {
        "verdict",
        "powered",
        "tier",
        "reasons",
        "attacks",
        "controls",
        "roc",
        "seconds",
        "date",
        "grades",
        "power",
    } <= set(printed)
    assert {"answer", "value", "low", "high", "limit", "evidence"} <= set(
        printed["grades"]["remembers"]
    )
    assert {"about", "unit", "n", "original", "unlearned", "retrained", "judged"} <= set(
        printed["attacks"]["1-shot probe"]
    )
    assert set(printed["controls"]["retrained"]) == {"expected", "got", "passed"}
    curve = printed["roc"]["loss attack"]["unlearned"]
    assert len(curve["fpr"]) == len(curve["tpr"]) > 2
