"""What an audit suggests keeps the number of retrained models that was asked for before."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from duck.audits.next_step import PythonNames, next_calls, next_steps
from duck.audits.verdict import Audit, Verdict
from duck.report.commands import suggested_audit
from duck.report.records import read_runs
from tests.report.folders import write_run

NAMES = PythonNames("result", "result.original, result.data")


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
    more, full = next_steps(stored.run, folder, audit, None)
    assert (flag_of(more), flag_of(full)) == (str(2 * models), expected)
    assert flag_of(f"`{suggested_audit(replace(stored, audit=audit))}`") == expected


@pytest.mark.parametrize(("models", "expected"), [(6, None), (12, "12")])
def test_the_suggested_assurance_keeps_the_number_of_models(
    models: int, expected: str | None, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run")
    (stored,) = read_runs([folder])
    audit = audit_by(models, "not forgotten")
    steps = next_steps(stored.run, folder, audit, tmp_path)
    assert [flag_of(step) for step in steps if "--assure" in step] == [expected]
    assert not [step for step in steps if "--assure" not in step and flag_of(step)]
    (call,) = [step for step in next_calls(audit, NAMES, 50) if "assure=" in step]
    assert (f"models={models}" in call) == (expected is not None)
