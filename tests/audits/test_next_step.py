"""What an audit suggests keeps the number of retrained models that was asked for before."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from duck.audits.next_call import PythonNames, next_calls
from duck.audits.next_step import is_pushed_away, next_steps, softer_method
from duck.audits.options import AuditOptions
from duck.audits.verdict import Audit, Control, Grade, Question, Row, Verdict
from duck.cli.audit_command import AuditFlags
from duck.cli.parsing import parse
from duck.methods import METHODS
from duck.methods.presets import preset
from duck.report.commands import suggested_audit
from duck.report.records import read_runs
from duck.types import Estimate
from tests.report.folders import write_run

NAMES = PythonNames("result", "result.original, result.data")


LOSS = Row("", "AUC", 100, unlearned=Estimate(0.4, 0.35, 0.45), judged=True, p=1e-4)
PUSHED_AWAY = Audit(
    verdict="not forgotten",
    tier="oracle",
    attacks={"loss attack": LOSS},
    grades={
        "remembers": Grade("no", "margin", 0.0, -0.1, 0.05, 0.1, ""),
        "exposed": Grade("yes", "loss attack", -0.2, -0.3, -0.1, 0.05, ""),
    },
)
"""Forget samples have a higher loss than unseen ones, and this decided."""


def audit_by(models: int, verdict: Verdict) -> Audit:
    return Audit(verdict=verdict, tier="oracle", models=models, powered=True)


def flag_of(step: str) -> str | None:
    """Return the number of models of the command in a sentence."""
    (command,) = re.findall("`([^`]*)`", step)
    words = shlex.split(command)
    return words[words.index("--models") + 1] if "--models" in words else None


@pytest.mark.parametrize(("models", "expected"), [(5, None), (6, None), (12, "12")])
def test_the_suggested_higher_tier_keeps_the_number_of_models(
    models: int, expected: str | None, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run")
    (stored,) = read_runs([folder])
    audit = audit_by(models, "no verdict")
    more, full = next_steps(stored.run, folder, audit, AuditOptions("oracle"), tmp_path)
    assert (flag_of(more), flag_of(full)) == (str(2 * models), expected)
    assert flag_of(f"`{suggested_audit(replace(stored, audit=audit))}`") == expected


@pytest.mark.parametrize(("models", "expected"), [(6, None), (12, "12")])
def test_the_suggested_assurance_keeps_the_number_of_models(
    models: int, expected: str | None, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run")
    (stored,) = read_runs([folder])
    audit = audit_by(models, "not forgotten")
    steps = next_steps(stored.run, folder, audit, AuditOptions("oracle"), tmp_path)
    assert [flag_of(step) for step in steps if "--assure" in step] == [expected]
    assert not [step for step in steps if "--assure" not in step and flag_of(step)]
    (call,) = [
        step for step in next_calls(audit, NAMES, AuditOptions("oracle"), 50) if "assure=" in step
    ]
    assert (f"models={models}" in call) == (expected is not None)


@pytest.mark.parametrize("verdict", ["no verdict", "not forgotten"])
def test_retrained_models_of_another_recipe_are_replaced_and_not_added_to(
    verdict: Verdict, tmp_path: Path
) -> None:
    wrong = {"retrained accuracy": Control("at least 80.0 %", "60.0 %", False)}
    audit = replace(audit_by(6, verdict), controls=wrong)
    names = replace(NAMES, retrained="retrained", recipe="result.recipe")
    calls = next_calls(audit, names, AuditOptions("oracle"), 50)
    folder = write_run(tmp_path / "run")
    (stored,) = read_runs([folder])
    steps = next_steps(stored.run, folder, audit, AuditOptions("oracle"), tmp_path)
    for first, second, *others in (calls, steps):
        assert "Give its recipe" in first
        assert "mean" in second
        assert bool(others) is (verdict == "not forgotten")
        assert not any("narrower intervals" in step for step in others)
    assert "recipe=recipe" in calls[0]
    assert "retrained=" not in calls[0]


def with_grade(question: Question, **changes: Any) -> Audit:
    grade = replace(PUSHED_AWAY.grades[question], **changes)
    return replace(PUSHED_AWAY, grades={**PUSHED_AWAY.grades, question: grade})


def with_row(**changes: Any) -> Audit:
    return replace(PUSHED_AWAY, attacks={"loss attack": replace(LOSS, **changes)})


@pytest.mark.parametrize(
    ("audit", "expected"),
    [
        (PUSHED_AWAY, True),
        (replace(PUSHED_AWAY, tier="quick", grades={}), True),
        (replace(PUSHED_AWAY, verdict="no verdict"), False),
        (with_grade("remembers", answer="yes"), False),
        (with_grade("exposed", answer="undecided"), False),
        (with_grade("exposed", value=0.2), False),
        # The other way round, or a distance of outputs: nothing is known of the direction.
        (with_row(unlearned=Estimate(0.6, 0.55, 0.65)), False),
        (with_row(unit="distance"), False),
        (replace(with_row(p=0.2), grades={}), False),
        (replace(with_row(judged=False), grades={}), False),
    ],
)
def test_pushed_away_is_said_only_where_an_attack_found_harder_samples(
    audit: Audit, expected: bool
) -> None:
    assert is_pushed_away(audit) is expected
    names = PythonNames("result", "result.original, result.data", softer="method=softer")
    steps = next_calls(audit, names, AuditOptions(), 50)
    assert any("method=softer" in step for step in steps) is expected


def test_a_softer_method() -> None:
    paper, tuned = (preset("duck", "cifar10", "class", None, name) for name in ("paper", "tuned"))
    assert softer_method(paper, "cifar10", "class", 45_000) == "duck"
    assert softer_method(tuned, "cifar10", "class", 45_000) == tuned.lr / 2  # type: ignore[attr-defined]
    assert softer_method(METHODS["warm-restart"](), "cifar10", "class", 45_000) is None


def test_a_retrained_run_is_not_retrained_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "retrained")
    (stored,) = read_runs([folder])
    for verdict in get_args(Verdict):
        audit = audit_by(6, verdict)
        steps = next_steps(stored.run, folder, audit, AuditOptions("oracle"), tmp_path)
        assert steps
        assert not [step for step in steps if "duck forget" in step]
        calls = next_calls(audit, replace(NAMES, method="retrained"), AuditOptions(), 50)
        assert calls
        assert not [call for call in calls if "duck.forget" in call]


def test_flags_are_those_that_differ_and_can_be_read_again() -> None:
    options = AuditOptions(
        "full", 8, (Path("a b.pt"), Path("c.pt")), margin=0.2, planted=False, data="x y"
    )
    args = parse(AuditFlags, ["run", *options.flags()], "audit")
    assert args.audit == options
    assert AuditOptions().flags() == []
    assert options.flags("margin", "root") == ["--margin", "0.2"]


def test_python_calls_keep_what_was_asked() -> None:
    options = AuditOptions("oracle", margin=0.2, max_advantage=0.1, planted=False, pool=Path("p"))
    (call,) = next_calls(audit_by(0, "no verdict"), NAMES, options, 50)
    assert all(text in call for text in ("margin=0.2", "max_advantage=0.1", "planted=False"))
    assert "pool='p'" in call
    steps = next_calls(audit_by(6, "not forgotten"), NAMES, options, 50)
    limits = 'duck.AssureOptions("oracle", planted=False, limits=duck.Limits(margin=0.2, '
    assert len([step for step in steps if limits in step]) == 1
