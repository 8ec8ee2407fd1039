"""Cheats, honest models and planted models before the whole oracle tier, on small real tasks."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from audit_models import Task, cheats, honest_models, make_task, train_model
from torch import nn

from duck.audits.auditing import AuditInput, audit_oracle
from duck.audits.judge import Judge, MeasurementCache, verdict_of
from duck.audits.oracle import all_measures
from duck.audits.outputs import compute_outputs, make_setting
from duck.audits.verdict import Audit, Verdict
from duck.types import Original

pytestmark = pytest.mark.slow
SAMPLES, CLASS = "clusters", "digits, class 3"
TASKS = (SAMPLES, CLASS)
SHARES = (0.1, 0.3, 0.5)
REFERENCES = 6
CHEATS = (
    "original",
    "mixture of 40 %",
    "mixture of 20 %",
    "lookup",
    "lookup with tolerance",
    "output noise",
    "temperature",
    "head fitted again",
    "head fitted again, identity layer",
)
CLASS_CHEATS = ("logit masked", "logit masked, identity layer", "distilled student")
OTHER_DEPTH = ("identity layer", "another hidden layer")
CASES = [(task, cheat) for task in TASKS for cheat in CHEATS]
CASES += [(CLASS, cheat) for cheat in CLASS_CHEATS]


@cache
def original(task: Task) -> nn.Module:
    return train_model(task, kept=1.0)


@cache
def references(task: Task) -> list[nn.Module]:
    return [train_model(task, seed=100 + index) for index in range(REFERENCES)]


@cache
def planted(task: Task) -> dict[float, list[nn.Module]]:
    return {share: [train_model(task, share, seed=7)] for share in SHARES}


@cache
def all_cheats(task: Task) -> dict[str, nn.Module]:
    return cheats(task, original(task), seed=3)


@cache
def audit_cheat(task_name: str, cheat: str) -> Audit:
    task = make_task(task_name)
    return audit(task, all_cheats(task)[cheat])


@cache
def audit_kept(task_name: str, share: float) -> Audit:
    """Audit a model that keeps a share of the forget set and is not one of the planted ones."""
    task = make_task(task_name)
    return audit(task, train_model(task, share, seed=11))


def audit(task: Task, unlearned: nn.Module) -> Audit:
    case = AuditInput(task.scenario, Original(original(task)), unlearned)
    return audit_oracle(case, references(task), planted=planted(task))


def test_every_cheat_is_tried() -> None:
    for name in TASKS:
        assert [case for case in CASES if case[0] == name] == [
            (name, cheat) for cheat in all_cheats(make_task(name))
        ]


@pytest.mark.parametrize(("task", "cheat"), CASES)
def test_no_cheat_is_forgotten(task: str, cheat: str) -> None:
    found = audit_cheat(task, cheat)
    assert found.powered
    assert found.verdict != "forgotten"
    if (task, cheat) != (SAMPLES, "mixture of 20 %"):
        assert found.verdict == "not forgotten"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("cheat", "near"), [("lookup", 1.0), ("lookup with tolerance", 0.0)])
def test_a_lookup_is_found_by_its_copies_alone(task: str, cheat: str, near: float) -> None:
    """With tolerance those with more contrast find it."""
    evidence = by_measure(audit_cheat(task, cheat), "remembers")
    assert evidence["margin"]["value"] < 0.1
    assert evidence["margin of copies"]["value"] == pytest.approx(near, abs=0.05)
    assert evidence["margin of contrast copies"]["value"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("cheat", "measure"),
    [("mixture of 20 %", "class logit"), ("distilled student", "likeness to the original")],
)
def test_outputs_show_what_margins_do_not(cheat: str, measure: str) -> None:
    """Margins are clipped for every model that does not name the class."""
    evidence = by_measure(audit_cheat(CLASS, cheat), "remembers")
    assert evidence["margin"]["value"] == pytest.approx(0, abs=0.05)
    assert evidence[measure]["answer"] == "yes"


def test_an_identity_layer_does_not_hide_the_embedding() -> None:
    """The input of the last layer is the masked outputs here."""
    evidence = by_measure(audit_cheat(CLASS, "logit masked, identity layer"), "remembers")
    assert evidence["margin"]["answer"] == evidence["margin of copies"]["answer"] == "no"
    assert evidence["embedding"]["answer"] == "yes"
    # One layer earlier is another layer than in the retrained models.
    assert "inner embedding" not in evidence


@pytest.mark.parametrize("task", TASKS)
def test_added_layers_are_noted(task: str) -> None:
    note = "has other layers than the"
    assert any(note in reason for reason in audit_cheat(task, "lookup").reasons)
    assert not any(note in reason for reason in audit_cheat(task, "original").reasons)


@cache
def verdicts_on_honest_models(task_name: str) -> dict[str, Verdict]:
    """Return the verdicts of the judge: a failed control could only withdraw a conviction."""
    task = make_task(task_name)
    setting = make_setting(task.scenario)
    honest = honest_models(task, seed=3)
    names = [f"reference {index}" for index in range(REFERENCES)]
    models = {"original": original(task), **honest}
    models |= dict(zip(names, references(task), strict=True))
    outputs = {name: compute_outputs(model, task.scenario) for name, model in models.items()}
    judge = Judge(MeasurementCache(outputs), all_measures(setting, outputs["original"]), names)
    assert verdict_of(judge.grades("original")) == "not forgotten"
    return {name: verdict_of(judge.grades(name)) for name in honest}


@pytest.mark.parametrize("task", TASKS)
def test_no_honest_model_is_convicted_whatever_its_recipe(task: str) -> None:
    verdicts = [
        verdict
        for name, verdict in verdicts_on_honest_models(task).items()
        if name not in OTHER_DEPTH
    ]
    assert "not forgotten" not in verdicts
    assert verdicts.count("forgotten") >= len(verdicts) - 2


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (SAMPLES, "identity layer"),
        (SAMPLES, "another hidden layer"),
        (CLASS, "another hidden layer"),
        (CLASS, "identity layer"),
    ],
)
def test_no_honest_model_is_convicted_for_its_depth(task: str, name: str) -> None:
    assert verdicts_on_honest_models(task)[name] != "not forgotten"


@pytest.mark.parametrize("share", [0.3, 0.5])
@pytest.mark.parametrize("task", TASKS)
def test_a_model_that_keeps_a_third_or_half_of_the_samples_is_not_forgotten(
    task: str, share: float
) -> None:
    assert audit_kept(task, share).verdict == "not forgotten"


def test_residual_memory_is_the_share_that_was_kept() -> None:
    """Of a class a few samples teach most, so that this holds for single samples only."""
    memory = {f"{share:g}": share for share in SHARES}
    power = audit_kept(SAMPLES, 0.3).power
    assert power is not None
    assert power.planted == pytest.approx(memory, abs=0.12)
    for share in (0.3, 0.5):
        value = by_measure(audit_kept(SAMPLES, share), "remembers")["margin"]["value"]
        assert value == pytest.approx(share, abs=0.12)


@pytest.mark.parametrize("task", TASKS)
def test_the_record_has_grades_with_answers_limits_and_intervals_and_the_power(task: str) -> None:
    record = audit_kept(task, 0.5).to_dict()
    assert list(record["grades"]) == ["remembers", "exposed", "differs"]
    for grade in record["grades"].values():
        assert grade["answer"] in ("yes", "no", "undecided")
        assert grade["low"] <= grade["value"] <= grade["high"]
        assert grade["measure"] in [item["measure"] for item in grade["evidence"]]
        assert grade["sentence"]
    remembers = record["grades"]["remembers"]
    assert (remembers["answer"], remembers["limit"]) == ("yes", 0.1)
    assert remembers["low"] > remembers["limit"]
    assert list(record["power"]["planted"]) == ["0.1", "0.3", "0.5"]
    assert np.all(np.diff(list(record["power"]["planted"].values())) > 0)
    assert 0 < record["power"]["share"] <= 0.5


def by_measure(found: Audit, question: str) -> Mapping[str, Any]:
    """Return the evidence of an answer by its measure."""
    evidence = found.to_dict()["grades"][question]["evidence"]
    return {item["measure"]: item for item in evidence}
