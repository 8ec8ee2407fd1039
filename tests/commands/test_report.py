"""A report from options: one call does what the command does."""

from pathlib import Path

import pytest

from duck.errors import BadInput
from duck.report.report_runs import ReportOptions, report_runs
from tests.report.folders import write_run


def test_a_page_with_figures_names_what_it_could_not_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "duck")
    (run / "audit-quick.json").write_text("{")
    options = ReportOptions(figures=tmp_path / "figures")
    written = report_runs([tmp_path / "runs"], tmp_path / "page.html", options)
    assert [stored.folder for stored in written.contents.runs] == [run]
    assert "audit-quick.json" in written.problems[0]
    assert len(written.problems) == 1
    assert "audit-quick.json" in written.page.read_text()
    assert {figure.suffix for figure in written.figures} == {".png", ".pdf"}


def test_nothing_is_read_if_the_page_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Name the runs"):
        report_runs([])
    with pytest.raises(BadInput, match="is a folder"):
        report_runs([tmp_path / "nowhere"], tmp_path)
    (tmp_path / "notes.html").write_text("mine")
    with pytest.raises(BadInput, match="not written by this command"):
        report_runs([tmp_path / "nowhere"], tmp_path / "notes.html")
