"""Fixtures of the tests of commands."""

from pathlib import Path

import pytest

from tests.cli.commands import Runner


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the working folder of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def duck(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Runs commands in this process."""
    return Runner(capsys)
