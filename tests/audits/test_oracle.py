"""The verdict against retrained models, on models whose verdict is known."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from duck.audits import controls
from duck.audits.judge import Judgement, MeasurementCache
from duck.audits.oracle import PoolEvidence, all_measures, decide, oracle
from duck.audits.outputs import ModelOutputs, Rows, SplitOutputs
from duck.audits.quick import Coverage, quick
from duck.audits.verdict import Audit, Control, Row
from duck.types import Estimate
from tests.audits.witnesses import GONE, class_setting, model, sample_model, samples_setting


@cache
def retrained(count: int = 6) -> list[ModelOutputs]:
    return [model(100 + index, knows=False) for index in range(count)]


@cache
def fresh() -> Audit:
    """Of a further retrained model."""
    return judged(model(50, knows=False))


def judged(unlearned: ModelOutputs, count: int = 6, coverage: Coverage | None = None) -> Audit:
    return oracle(
        class_setting(),
        unlearned,
        model(0, knows=True),
        retrained(count),
        "A method ran on 90 samples.",
        coverage=coverage,
    )


def test_original_and_masked_are_not_forgotten() -> None:
    original = model(0, knows=True)
    for unlearned in (original, controls.mask_forgotten(original, class_setting())):
        audit = judged(unlearned)
        assert (audit.verdict, audit.powered, audit.tier) == ("not forgotten", True, "oracle")
        assert any(reason.startswith("output distance:") for reason in audit.reasons)


@pytest.mark.parametrize("make", [controls.retrain_head, controls.add_noise])
def test_forged_models_are_never_forgotten(make: object) -> None:
    assert callable(make)
    assert judged(make(model(0, knows=True), class_setting())).verdict != "forgotten"


def test_a_further_retrained_model_is_forgotten_and_the_reason_names_what_was_tried() -> None:
    audit = fresh()
    assert (audit.verdict, audit.powered) == ("forgotten", True)
    assert "accuracy retain-test, recognised, output distance, 1-shot probe" in audit.reasons[0]
    assert [name for name, row in audit.attacks.items() if row.judged] == [
        "accuracy retain-test", "recognised", "output distance", "1-shot probe",
    ]  # fmt: skip


def test_a_head_that_knows_half_of_the_forget_samples_is_told_where_few_are_unseen() -> None:
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
    references = [model(100 + index, knows=False) for index in range(6)]
    assert (
        oracle(setting, clean, model(0, knows=True), references, "subject").verdict == "forgotten"
    )
    audit = oracle(setting, leaky, model(0, knows=True), references, "subject")
    assert audit.verdict == "not forgotten"
    assert [
        reason.partition(":")[0] for reason in audit.reasons if not reason.startswith("Quick tier")
    ] == ["recognised"]
    assert audit.attacks["recognised"].n == 94


def test_unprocessed_samples_convict_even_a_model_that_looks_right() -> None:
    audit = judged(model(50, knows=False), coverage=Coverage(80, 90))
    assert audit.verdict == "not forgotten"
    assert audit.reasons == ("Only 80 of 90 forget samples were processed.",)


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
    assert audit.reasons[: len(first.reasons)] == tuple(
        f"Quick tier: {reason}" for reason in first.reasons
    )
    assert "too few" in audit.reasons[-1]
    assert "not powered" not in str(audit)
    assert audit.attacks["accuracy forget"].p == first.attacks["accuracy forget"].p
    uncounted = judged(model(50, knows=False), count, Coverage(80, 90))
    assert (uncounted.verdict, uncounted.reasons[0]) == (
        "not forgotten",
        "Only 80 of 90 forget samples were processed.",
    )


def test_a_failed_control_does_not_take_back_what_the_quick_tier_found() -> None:
    """Retrained models that are far from as good as the original cannot be compared with."""
    models = [sample_model(100 + index, 0.0) for index in range(6)]
    poor = [replace(one, retain=replace(one.retain, logits=-one.retain.logits)) for one in models]
    unlearned = sample_model(51, 4.0)
    first = quick(samples_setting(), unlearned, sample_model(0, 4.0), "subject")
    assert first.verdict == "not forgotten"
    audit = oracle(samples_setting(), unlearned, sample_model(0, 4.0), poor, "subject")
    assert not audit.controls[controls.AS_GOOD].passed
    assert (audit.verdict, audit.powered) == ("not forgotten", False)
    assert audit.reasons[0] == f"Quick tier: {first.reasons[0]}"
    assert any("gives: no verdict" in reason for reason in audit.reasons)


def test_what_retrained_models_show_as_well_is_no_conviction() -> None:
    """The forget samples are easier than unseen ones, whoever looks at them."""

    def with_easy_samples(one: ModelOutputs) -> ModelOutputs:
        logits = one.forget.logits.copy()
        logits[np.arange(len(logits)), one.forget.labels] += 2.0
        return replace(one, forget=replace(one.forget, logits=logits))

    models = [with_easy_samples(sample_model(100 + index, 0.0)) for index in range(6)]
    unlearned, original = with_easy_samples(sample_model(51, 0.0)), sample_model(0, 4.0)
    assert quick(samples_setting(), unlearned, original, "subject").verdict == "not forgotten"
    audit = oracle(samples_setting(), unlearned, original, models, "subject")
    assert audit.verdict != "not forgotten"
    assert any(
        reason.startswith("Quick tier") and "Not counted" in reason for reason in audit.reasons
    )
    told = oracle(
        samples_setting(), with_easy_samples(sample_model(51, 2.0)), original, models, "subject"
    )
    assert told.verdict == "not forgotten"


def test_a_pool_whose_controls_fail_does_not_take_back_what_retrained_models_showed() -> None:
    """The control of the attack on the pool fails, and that of the oracle tier does not."""
    told = {"U-LiRA": "AUC 0.5"}
    rows = {"U-LiRA": Row("", "AUC", 99, Estimate(1.0, 0.9, 1.0), Estimate(0.5, 0.4, 0.6), None)}
    evidence = PoolEvidence(
        rows=rows, p={"unlearned": {"U-LiRA": 0.5}, "retrained": {"U-LiRA": 1e-9}}, statements=told
    )
    masked = controls.mask_forgotten(model(0, knows=True), class_setting())
    alone = judged(masked)
    audit = oracle(
        class_setting(), masked, model(0, knows=True), retrained(), "subject", pool=evidence
    )
    assert not audit.controls["retrained"].passed
    assert (alone.verdict, audit.verdict, audit.tier) == ("not forgotten", "not forgotten", "full")
    assert {
        f"Oracle tier: {reason}" for reason in alone.reasons if not reason.startswith("Quick tier")
    } <= set(audit.reasons)


def test_a_further_attack_does_not_raise_the_p_values_of_the_others() -> None:
    measurements = MeasurementCache(
        {"unlearned": model(0, knows=True), **{f"r{at}": one for at, one in enumerate(retrained())}}
    )
    measures = [
        measure
        for measure in all_measures(class_setting(), model(0, knows=True))
        if measure.decisive
    ]
    references = [f"r{at}" for at in range(6)]
    alone = measurements.judge(measures, "unlearned", references)
    more = measurements.judge(measures, "unlearned", references, {"U-LiRA": 0.9})
    assert min(alone.p.values()) > 0
    assert {name: more.p[name] for name in alone.p} == alone.p
    first = measurements.judge(measures, "unlearned", references, {"U-LiRA": 1e-30}).p["U-LiRA"]
    assert first == pytest.approx(5e-30)


@pytest.mark.parametrize("count", [3, 4])
def test_fewer_than_five_retrained_models_can_convict_and_not_acquit(count: int) -> None:
    clean, knowing = judged(model(50, knows=False), count), judged(model(0, knows=True), count)
    assert (clean.verdict, clean.powered) == ("no verdict", True)
    assert f"{count} retrained models are too few" in clean.reasons[0]
    assert "does not differ from" in clean.reasons[1]
    assert knowing.verdict == "not forgotten"
    assert judged(model(50, knows=False), 5).verdict == "forgotten"


def test_a_failed_control_silences_what_was_found() -> None:
    rows = {
        "output distance": Row(
            "", "nats", 90, None, Estimate(0.5, 0.4, 0.6), Estimate(0.1, 0.0, 0.2)
        )
    }
    failed = {"original": Control("not forgotten", "forgotten", False)}
    verdict, powered, reasons = decide(
        Judgement({"output distance": 1e-4}), failed, rows, 6, ["Only 1 of 2 were processed."]
    )
    assert (verdict, powered) == ("no verdict", False)
    assert reasons[0].startswith("The control 'original' has not forgotten")
    assert reasons[1].startswith("output distance: 0.500 nats lies above")
    passed = {"original": Control("not forgotten", "not forgotten", True)}
    assert decide(Judgement({"output distance": 1e-4}), passed, rows, 6)[:2] == (
        "not forgotten",
        True,
    )


@pytest.mark.parametrize(
    ("p", "verdict", "said"),
    [(1e-4, "not forgotten", "p 0.0005."), (0.4, "forgotten", "p 1: no more than chance.")],
)
def test_an_attack_on_a_pool_speaks_of_its_own_models(p: float, verdict: str, said: str) -> None:
    told = {
        "U-LiRA": "AUC 0.979 against chance, 0.5, with 32 models of the method and 16 that never "
        "saw the samples"
    }
    rows = {"U-LiRA": Row("", "AUC", 99, Estimate(1.0, 0.9, 1.0), Estimate(0.979, 0.9, 1.0), None)}
    evidence = PoolEvidence(
        rows=rows, p={"unlearned": {"U-LiRA": p}, "retrained": {"U-LiRA": 0.9}}, statements=told
    )
    audit = oracle(
        class_setting(),
        model(50, knows=False),
        model(0, knows=True),
        retrained(),
        "subject",
        pool=evidence,
    )
    assert (audit.verdict, audit.tier) == (verdict, "full")
    assert audit.reasons[-1] == f"U-LiRA: {told['U-LiRA']}, {said}"
    assert not any("U-LiRA" in reason for reason in audit.reasons[:-1])


def test_where_the_original_is_like_a_retrained_model_the_audit_is_not_powered() -> None:
    """Single samples that nobody memorises: the original says of them what every model says."""
    models = [sample_model(100 + index, 0.0) for index in range(6)]
    audit = oracle(
        samples_setting(), sample_model(51, 0.0), sample_model(0, 0.0), models, "subject"
    )
    assert (audit.verdict, audit.powered) == ("no verdict", False)
    assert not audit.controls["original"].passed
    assert "'original' has not forgotten" in audit.reasons[0]


def test_single_samples_that_were_memorised_are_found() -> None:
    models = [sample_model(100 + index, 0.0) for index in range(6)]
    original = sample_model(0, 4.0)
    found = oracle(samples_setting(), original, original, models, "subject")
    assert found.attacks["accuracy forget"].p is not None
    assert found.attacks["accuracy forget"].p < 0.05
    assert found.controls["original"].passed


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
    told = json.loads(json.dumps(fresh().to_dict()))
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
    } <= set(told)
    assert {"about", "unit", "n", "original", "unlearned", "retrained", "judged"} <= set(
        told["attacks"]["1-shot probe"]
    )
    assert set(told["controls"]["retrained"]) == {"expected", "got", "passed"}
    curve = told["roc"]["loss attack"]["unlearned"]
    assert len(curve["fpr"]) == len(curve["tpr"]) > 2
