"""The verdict against retrained models: right on models whose truth is known, and silent where it cannot tell."""

import json
from functools import cache

import pytest

from duck.audits import controls
from duck.audits.observed import Observed
from duck.audits.oracle import oracle
from duck.audits.quick import Coverage
from duck.audits.verdict import Audit
from tests.audits.witnesses import class_setting, model, sample_model, samples_setting


@cache
def retrained(count: int = 6) -> list[Observed]:
    return [model(100 + index, knows=False) for index in range(count)]


@cache
def fresh() -> Audit:
    """Of a further retrained model."""
    return judged(model(50, knows=False))


def judged(unlearned: Observed, count: int = 6, coverage: Coverage | None = None) -> Audit:
    return oracle(class_setting(), unlearned, model(0, knows=True), retrained(count), "A method ran on 90 samples.", coverage=coverage)


def test_original_and_masked_are_not_forgotten() -> None:
    original = model(0, knows=True)
    for unlearned in (original, controls.masked(original, class_setting())):
        audit = judged(unlearned)
        assert (audit.verdict, audit.powered, audit.tier) == ("not forgotten", True, "oracle")
        assert any(reason.startswith("output distance:") for reason in audit.reasons)


@pytest.mark.parametrize("make", [controls.head_retrained, controls.noisy])
def test_forged_models_are_never_forgotten(make: object) -> None:
    assert callable(make)
    assert judged(make(model(0, knows=True), class_setting())).verdict != "forgotten"


def test_a_further_retrained_model_is_forgotten_and_the_reason_names_what_was_tried() -> None:
    audit = fresh()
    assert (audit.verdict, audit.powered) == ("forgotten", True)
    assert "accuracy forget-test, accuracy retain-test, output distance, 1-shot probe" in audit.reasons[0]
    assert [name for name, row in audit.attacks.items() if row.judged] == [
        "accuracy forget-test", "accuracy retain-test", "output distance", "1-shot probe",
    ]  # fmt: skip


def test_unprocessed_samples_convict_even_a_model_that_looks_right() -> None:
    audit = judged(model(50, knows=False), coverage=Coverage(80, 90))
    assert audit.verdict == "not forgotten"
    assert audit.reasons == ("Only 80 of 90 forget samples were processed.",)


def test_two_retrained_models_give_no_verdict() -> None:
    audit = judged(model(0, knows=True), count=2)
    assert (audit.verdict, audit.powered, dict(audit.controls)) == ("no verdict", False, {})
    assert "too few" in audit.reasons[0]


def test_where_the_original_is_like_a_retrained_model_the_audit_is_not_powered() -> None:
    """Single samples that nobody memorises: the original says of them what every model says."""
    models = [sample_model(100 + index, 0.0) for index in range(6)]
    audit = oracle(samples_setting(), sample_model(51, 0.0), sample_model(0, 0.0), models, "subject")
    assert (audit.verdict, audit.powered) == ("no verdict", False)
    assert not audit.controls["original"].passed
    assert "'original' has not forgotten and was not told from retrained models" in audit.reasons[0]


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
    assert {"verdict", "powered", "tier", "reasons", "attacks", "controls", "roc", "seconds", "date"} <= set(told)
    assert {"about", "unit", "n", "original", "unlearned", "retrained", "judged"} <= set(told["attacks"]["1-shot probe"])
    assert set(told["controls"]["retrained"]) == {"expected", "got", "passed"}
    curve = told["roc"]["loss attack"]["unlearned"]
    assert len(curve["fpr"]) == len(curve["tpr"]) > 2
