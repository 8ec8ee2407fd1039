"""Fixtures of the tests of commands."""

from pathlib import Path

import pytest


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the working folder of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
