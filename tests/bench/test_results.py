"""Files of results survive kills, merge, and know their runs again."""

import json
from pathlib import Path
from typing import Any

import pytest

from duck.bench import Results, find_grid
from duck.errors import BadInput
from tests.bench.lines import cell_of, line_of

CR = find_grid("paper/table-cr")


def line(case: int, **values: Any) -> dict[str, Any]:
    return line_of(CR, cell_of(CR, "duck", case), **values)


def test_lines_come_back(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.append("paper/table-cr", line(0))
    results.append("paper/table-cr", line(1))
    assert [path.name for path in tmp_path.iterdir()] == ["paper-table-cr.jsonl"]
    assert Results(tmp_path).lines == results.lines == {line(case)["id"]: line(case) for case in (0, 1)}


def test_half_a_line_is_ignored_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    Results(tmp_path).append("grid", line(0))
    Results(tmp_path).append("grid", line(1))
    path = tmp_path / "grid.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    killed = Results(tmp_path)
    assert list(killed.done) == [line(0)["id"]]
    assert killed.broken == ["grid.jsonl"]
    killed.append("grid", line(2))
    killed.append("grid", line(1))
    assert list(Results(tmp_path).done) == [line(case)["id"] for case in (0, 2, 1)]
    assert len(path.read_text().splitlines()) == 4


def test_half_a_letter_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json.dumps(line(0)).encode() + b'\n{"id": "\xc3')
    assert list(Results(tmp_path).done) == [line(0)["id"]]


def test_files_merge_and_the_first_of_two_counts(tmp_path: Path) -> None:
    for name, rows in (("a", [line(0, seconds=1.0)]), ("b", [line(0, seconds=2.0), line(1, seconds=3.0)])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row["seconds"] for row in Results(tmp_path).done.values()] == [1.0, 3.0]


def test_a_result_beats_an_error_wherever_it_lies(tmp_path: Path) -> None:
    rows = [line(0, error="boom"), line(0, seconds=5.0), line(0, error="later"), line(1, error="boom")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = Results(tmp_path)
    assert [row["seconds"] for row in results.done.values()] == [5.0]
    assert results.lines[line(1)["id"]]["error"] == "boom"


def test_other_files_of_json_lines_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"name": "original", "id": 1}\n[1]\n\n')
    results = Results(tmp_path)
    assert results.lines == {}
    assert results.broken == []


def test_a_setting_that_came_later_does_not_orphan_a_result(tmp_path: Path) -> None:
    old = line(0)
    del old["experiment"]["method"]["check_every"]
    (tmp_path / "a.jsonl").write_text(json.dumps({**old, "id": "of then"}) + "\n")
    assert list(Results(tmp_path).done) == [line(0)["id"]]
    old["experiment"]["method"]["gone"] = 1
    (tmp_path / "a.jsonl").write_text(json.dumps({**old, "id": "of then"}) + "\n")
    assert list(Results(tmp_path).done) == ["of then"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot be written to .*: Not a directory. Choose another --out"):
        Results(tmp_path / "file" / "results").check_writable()
    with pytest.raises(BadInput, match="File exists"):
        Results(tmp_path / "file").check_writable()
    Results(tmp_path / "new" / "results").check_writable()
    assert list((tmp_path / "new" / "results").iterdir()) == []
