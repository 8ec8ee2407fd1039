"""Files of results survive kills, merge, and know their runs again."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from duck.bench import Attack, Results, find_grid
from duck.bench.executor import plan
from duck.bench.formats import Format, render
from duck.bench.grids import Block, Grid, training
from duck.bench.tables import make_table
from duck.errors import BadInput
from duck.experiment import to_dict
from tests.bench.stored import FACTS, append, cell_of, expected, line_of

CR = find_grid("paper/table-cr")
FORMS: tuple[Format, ...] = get_args(Format)


def line(case: int, **values: Any) -> dict[str, Any]:
    return line_of(CR, cell_of(CR, "duck", case), **values)


def test_lines_come_back(tmp_path: Path) -> None:
    results = Results(tmp_path)
    append(results, "paper/table-cr", line(0))
    append(results, "paper/table-cr", line(1))
    assert [path.name for path in tmp_path.iterdir()] == ["paper-table-cr.jsonl"]
    assert Results(tmp_path).results == results.results
    stored = {name: result.to_dict() for name, result in results.results.items()}
    made = {line(case)["id"]: line(case) for case in (0, 1)}
    defaults = ("prepare_seconds", "notes")
    assert stored == {
        name: {key: value for key, value in plain.items() if key not in defaults}
        for name, plain in made.items()
    }


def test_half_a_line_is_ignored_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    append(Results(tmp_path), "grid", line(0))
    append(Results(tmp_path), "grid", line(1))
    path = tmp_path / "grid.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    killed = Results(tmp_path)
    assert list(killed.done) == [line(0)["id"]]
    (((file, problem), count),) = killed.broken.items()
    assert (file, problem.split(",")[0], count) == ("grid.jsonl", "half-written", 1)
    append(killed, "grid", line(2))
    append(killed, "grid", line(1))
    assert list(Results(tmp_path).done) == [line(case)["id"] for case in (0, 2, 1)]
    assert len(path.read_text().splitlines()) == 4


def test_half_a_letter_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json.dumps(line(0)).encode() + b'\n{"id": "\xc3')
    assert list(Results(tmp_path).done) == [line(0)["id"]]


def test_files_merge_and_the_first_of_two_counts(tmp_path: Path) -> None:
    for name, rows in (
        ("a", [line(0, seconds=1.0)]),
        ("b", [line(0, seconds=2.0), line(1, seconds=3.0)]),
    ):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row.seconds for row in Results(tmp_path).done.values()] == [1.0, 3.0]


def test_a_result_beats_an_error_wherever_it_lies(tmp_path: Path) -> None:
    rows = [
        line(0, error="boom"),
        line(0, seconds=5.0),
        line(0, error="later"),
        line(1, error="boom"),
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = Results(tmp_path)
    assert [row.seconds for row in results.done.values()] == [5.0]
    assert results.results[line(1)["id"]].error == "boom"


def test_other_files_of_json_lines_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"name": "original", "id": 1}\n[1]\n\n')
    results = Results(tmp_path)
    assert results.results == {}
    assert results.broken == {}


SMALL = Grid((Block("cifar10", classes=(0, 1)),), ("duck",), ("paper",))
WHOLE: dict[str, tuple[Attack | None, dict[str, Any]]] = {
    "run": (None, line(0)),
    "failure": (None, line(0, error="boom")),
    "svm": (
        Attack("svm"),
        {**line(0, scores={"f1": 0.7, "chance": 0.75}), "attack": {"name": "svm", "splits": 5}},
    ),
    "lira": (
        Attack("lira"),
        {
            **line(0, scores={"tpr_1": 0.1, "tpr_0.1": None, "auc": 0.6, "f1": 0.7}),
            "attack": {"name": "lira", "shadows": 128, "pool": "abc"},
            "shadows": {
                "models": 128,
                "pool": "abc",
                "epochs": 16,
                "train": 1.0,
                "test": 0.9,
                "recipe": {"epochs": 16},
            },
        },
    ),
    "original": (
        None,
        {
            **line(0, scores={"train": 1.0, "test": 0.9}),
            **dict.fromkeys(("scenario", "case", "method", "preset")),
            "experiment": to_dict(training(CR, CR.blocks[0], FACTS)),
        },
    ),
}
OTHERS = ("x", [None], None, -1, 1.5, True, {"a": [1]})


def spoilt(whole: Any, but: str = "", others: Sequence[Any] = OTHERS) -> Iterator[tuple[str, Any]]:
    """Every part of it gone or something else, one at a time."""
    for name in whole if isinstance(whole, dict) else ():
        if name == but:
            continue
        yield name, {key: value for key, value in whole.items() if key != name}
        for other in others:
            yield name, {**whole, name: other}
        for below, part in spoilt(whole[name], others=OTHERS[:3]):
            yield f"{name}.{below}", {**whole, name: part}


@pytest.mark.parametrize("kind", list(WHOLE))
def test_whatever_is_missing_or_wrong_in_a_line_stops_nothing(kind: str, tmp_path: Path) -> None:
    attack, whole = WHOLE[kind]
    other = line(1)
    grid, passed_over = replace(SMALL, attack=attack), set()
    for name, bad in spoilt(whole, but="" if kind == "run" else "experiment"):
        # The line of another case must be found beside it.
        (tmp_path / "a.jsonl").write_text(f"{json.dumps(bad)}\n{json.dumps(other)}\n")
        results = Results(tmp_path)
        passed_over |= {(name, why) for _, why in results.broken}
        table = make_table(grid, results, {})
        for form in FORMS:
            render(table, form)
        jobs = plan(SMALL, {"cifar10": FACTS}, results, {}).jobs
        for job in jobs:
            expected(job, results)
        assert other["id"] in results.done
    assert ("train_samples", "train_samples is missing") in passed_over
    if kind == "run":
        assert "experiment.training" in {name for name, _ in passed_over}
    if kind not in ("failure", "original"):
        assert ("notes", "notes[0] is null, not text") in passed_over
        assert any(why.startswith("scores is null") for name, why in passed_over)
        assert any(why.startswith("scores.") for name, why in passed_over if name == "scores")


def test_incomplete_lines_are_skipped_and_counted_by_file(tmp_path: Path) -> None:
    nameless = {key: value for key, value in line(0).items() if key != "scenario"}
    (tmp_path / "a.jsonl").write_text(
        f"{json.dumps(nameless)}\n" * 2 + json.dumps({**line(0), "scores": None})
    )
    results = Results(tmp_path)
    assert results.results == {}
    assert {file for file, _ in results.broken} == {"a.jsonl"}
    counts = {problem.split(",")[0]: count for (_, problem), count in results.broken.items()}
    assert counts == {"scenario is missing": 2, "scores is null": 1}


def test_a_line_that_says_it_is_of_an_original_but_is_not_is_passed_over(tmp_path: Path) -> None:
    nobody = dict.fromkeys(("scenario", "case", "method", "preset"))
    (tmp_path / "a.jsonl").write_text(json.dumps({**line(0), **nobody}) + "\n")
    (((file, problem), count),) = Results(tmp_path).broken.items()
    assert (file, count) == ("a.jsonl", 1)
    assert "of another method" in problem


def test_a_setting_that_came_later_does_not_orphan_a_result(tmp_path: Path) -> None:
    old = line(0)
    del old["experiment"]["method"]["check_every"]
    (tmp_path / "a.jsonl").write_text(json.dumps({**old, "id": "of then"}) + "\n")
    assert list(Results(tmp_path).done) == [line(0)["id"]]
    old["experiment"]["method"]["gone"] = 1
    (tmp_path / "a.jsonl").write_text(json.dumps({**old, "id": "of then"}) + "\n")
    assert not Results(tmp_path).results
    assert sum(Results(tmp_path).broken.values()) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"Not a directory.*--out"):
        Results(tmp_path / "file" / "results").check_writable()
    with pytest.raises(BadInput, match="File exists"):
        Results(tmp_path / "file").check_writable()
    Results(tmp_path / "new" / "results").check_writable()
    assert list((tmp_path / "new" / "results").iterdir()) == []


TRIAL = {
    "dataset": "cifar10",
    "scenario": "class",
    "method": "scrub",
    "number": 0,
    "settings": {},
    "score": 0.9,
    "seconds": 3.0,
    "start": "paper",
}


def test_trials_are_counted_once_and_only_those_alone_are_timed(tmp_path: Path) -> None:
    rows = [
        TRIAL,
        {**TRIAL, "number": 1, "jobs": 5, "seconds": 99.0},
        {**TRIAL, "number": 2, "alone": False},
    ]
    for name in ("a.jsonl", "copy.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = Results(tmp_path)
    key = "cifar10", "class", "scrub"
    assert results.trials[key] == 3
    assert results.trial_seconds[key] == [3.0]


@pytest.mark.parametrize(
    "bad",
    [
        json.dumps({**TRIAL, "seconds": None}),
        json.dumps({**TRIAL, "dataset": ["x"]}),
        json.dumps({**TRIAL, "seconds": 10.0}).replace("10.0", "NaN"),
        json.dumps(line(0, scores={"aus": float("nan")})),
        json.dumps(line(0)).replace('"seconds": 1.0', '"seconds": 1' + "0" * 400),
        "[" * 100_000,
        '{"id": 1' + "0" * 5000 + "}",
    ],
)
def test_a_damaged_line_stops_nothing(bad: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(bad + "\n" + json.dumps(line(1)) + "\n")
    results = Results(tmp_path)
    assert list(results.done) == [line(1)["id"]]
    assert sum(results.trials.values()) == 0


@pytest.mark.parametrize(
    "change", [{"request": None}, {"request": {"name": "random-classes"}}, {"method": []}]
)
def test_an_experiment_that_plans_cannot_use_is_passed_over(
    change: dict[str, Any], tmp_path: Path
) -> None:
    whole = line(0)
    (tmp_path / "a.jsonl").write_text(
        json.dumps({**whole, "experiment": {**whole["experiment"], **change}}) + "\n"
    )
    assert not Results(tmp_path).results
    assert sum(Results(tmp_path).broken.values()) == 1
