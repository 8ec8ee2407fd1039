"""The arithmetic of the table against numbers made by hand, and the five ways to print it."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duck.bench import Results, find_grid
from duck.bench.formats import Format, render
from duck.bench.grids import Facts, parse_only
from duck.bench.table_rows import Table
from duck.bench.tables import make_table
from duck.metrics import kept_accuracy
from tests.bench.stored import append, cell_of, line_of, rows_of, visible_rows_of

CR, HR = find_grid("paper/table-cr"), find_grid("paper/table-hr")


def put(
    results: Results, grid: Any, method: str, case: int, preset: str = "paper", **values: Any
) -> None:
    append(results, "table", line_of(grid, cell_of(grid, method, case, preset), **values))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """DUCK in classes 0, 1, 2; retrained in 1, 2, 3; one that failed; one that forgot nothing."""
    made = Results(tmp_path)
    for case, aus, kept, forgotten, seconds in (
        (0, 0.90, 0.80, 0.0, 2.0),
        (1, 0.98, 0.90, 0.01, 9.0),
        (2, 1.00, 0.94, 0.05, 4.0),
    ):
        scores = {
            "aus": aus,
            "retain_test": kept,
            "forget_test": forgotten,
            "test": 0.123,
            "forget": 0.456,
        }
        put(
            made,
            CR,
            "duck",
            case,
            "tuned",
            scores=scores,
            seconds=seconds,
            prepare_seconds=seconds / 10,
        )
    for case, aus, kept in ((1, 1.00, 0.95), (2, 0.99, 0.93), (3, 0.5, 0.5)):
        put(
            made,
            CR,
            "retrained",
            case,
            scores={"aus": aus, "retain_test": kept, "forget_test": 0.0},
            seconds=40.0,
        )
    put(made, CR, "scrub", 0, error="Diverged: a & b_c")
    put(made, CR, "finetune", 0, notes=["Nothing was forgotten."])
    return made


def row(
    table: Table, method: str, dataset: str = "cifar10", preset: str | None = None
) -> dict[str, Any]:
    (found,) = (
        r
        for r in visible_rows_of(table)
        if (r["method"], r["dataset"]) == (method, dataset)
        and r["preset"] == (preset or r["preset"])
    )
    return found


def test_mean_spread_and_median(results: Results) -> None:
    duck = row(make_table(CR, results, {}), "duck")
    assert (duck["preset"], duck["n"], duck["of"], duck["scenario"]) == ("tuned", 3, 8, "class")
    assert duck["aus"]["mean"] == pytest.approx(0.96)
    assert duck["aus"]["std"] == pytest.approx(0.0028**0.5)  # ((.06)² + .02² + .04²) / 2
    assert duck["kept"]["mean"] == pytest.approx(0.88)
    assert duck["forgotten"]["mean"] == pytest.approx(0.02)
    assert duck["seconds"] == 4.0
    assert duck["prepare_seconds"] == pytest.approx(0.4)


def test_a_single_value_has_no_spread(results: Results) -> None:
    assert row(make_table(CR, results, {}), "finetune")["aus"] == {
        "mean": 0.9,
        "std": None,
        "paper": 0.993,
    }


def test_the_numbers_of_the_paper_have_a_column(results: Results) -> None:
    table = make_table(CR, results, {})
    duck = row(table, "duck")
    assert (
        duck["aus"]["paper"],
        duck["kept"]["paper"],
        duck["forgotten"]["paper"],
    ) == pytest.approx((0.998, 0.8846, 0.0))
    assert row(table, "boundary-shrink", "tiny-imagenet")["forgotten"]["paper"] == pytest.approx(
        0.0425
    )
    assert row(table, "ssd")["aus"]["paper"] is None
    assert row(table, "salun")["kept"]["paper"] is None
    tenth = row(make_table(HR, results, {}), "duck", "cifar100")
    assert (
        tenth["aus"]["paper"],
        tenth["kept"]["paper"],
        tenth["forgotten"]["paper"],
    ) == pytest.approx((0.982, 0.7666, 0.7572))


def test_other_models_and_fractions_have_no_number_of_the_paper(results: Results) -> None:
    for grid, change in ((CR, {"model": "resnet50"}), (HR, {"fraction": 0.2})):
        other = replace(grid, blocks=tuple(replace(block, **change) for block in grid.blocks))
        assert row(make_table(grid, results, {}), "duck")["aus"]["paper"] is not None
        assert row(make_table(other, results, {}), "duck")["aus"]["paper"] is None


def test_the_gap_is_over_the_cases_both_have(results: Results) -> None:
    table = make_table(CR, results, {})
    gap = row(table, "duck")["gap_to_retrained"]
    assert gap == pytest.approx(
        {"aus": (-0.02 + 0.01) / 2, "kept": (-0.05 + 0.01) / 2, "forgotten": 0.03, "n": 2}
    )
    assert row(table, "retrained")["gap_to_retrained"] is None
    assert row(table, "finetune")["gap_to_retrained"] is None  # class 0 was not retrained
    assert (
        row(make_table(CR, results, parse_only("method=duck", CR)), "duck")["gap_to_retrained"]
        == gap
    )


def test_samples_look_at_the_whole_test_split_and_the_forgotten_samples(results: Results) -> None:
    put(
        results,
        HR,
        "duck",
        42,
        scores={"aus": 0.5, "test": 0.7, "forget": 0.6, "retain_test": None, "forget_test": None},
    )
    found = row(make_table(HR, results, {}), "duck")
    assert (found["kept"]["mean"], found["forgotten"]["mean"], found["n"]) == (0.7, 0.6, 1)
    assert row(make_table(CR, results, {}), "duck")["n"] == 3


def test_rows_are_in_the_papers_order_and_each_preset_that_ran_has_one(results: Results) -> None:
    only = parse_only("dataset=cifar10", CR)
    assert [r["method"] for r in visible_rows_of(make_table(CR, results, only))] == list(CR.methods)
    put(results, CR, "duck", 0, "paper")
    table = make_table(CR, results, only)
    assert [(r["preset"], r["n"]) for r in visible_rows_of(table) if r["method"] == "duck"] == [
        ("paper", 1),
        ("tuned", 3),
    ]
    assert len(visible_rows_of(make_table(CR, results, {}))) == 3 * len(CR.methods) + 1
    narrowed = make_table(CR, results, parse_only("dataset=cifar10,method=duck,case=1,case=5", CR))
    # Both ran, if not for these classes: "never run" would not be true.
    assert [(r["preset"], r["n"], r["of"]) for r in visible_rows_of(narrowed)] == [
        ("paper", 0, 2),
        ("tuned", 1, 2),
    ]
    assert narrowed.notes == []


def test_a_preset_that_was_never_run_is_named_below_and_has_a_row_for_programs(
    results: Results,
) -> None:
    table = make_table(
        CR,
        results,
        parse_only("dataset=cifar10,method=duck,method=bad-teacher,method=original", CR),
    )
    assert [(r["method"], r["preset"], r["n"]) for r in visible_rows_of(table)] == [
        ("original", "standard", 0), ("bad-teacher", "paper", 0), ("duck", "tuned", 3),
    ]  # fmt: skip
    assert table.notes[-1] == "Never run in cifar10, class: bad-teacher (tuned), duck (paper)."
    reply = [(r["method"], r["preset"], r["n"], r["of"]) for r in json.loads(render(table, "json"))]
    assert reply[1:] == [
        ("bad-teacher", "paper", 0, 10),
        ("bad-teacher", "tuned", 0, 8),
        ("duck", "paper", 0, 10),
        ("duck", "tuned", 3, 8),
    ]
    rows = csv.DictReader(io.StringIO(render(table, "csv")))
    means = [line["aus_mean"] for line in rows]
    assert means == ["missing"] * 4 + [str(rows_of(table)[-1]["aus"]["mean"])]
    alone = make_table(CR, results, parse_only("dataset=cifar10,method=duck,preset=paper", CR))
    assert ([(r["preset"], r["n"]) for r in visible_rows_of(alone)], alone.notes) == (
        [("paper", 0)],
        [],
    )


def test_failures_and_notes_are_reported(results: Results) -> None:
    table = make_table(CR, results, parse_only("dataset=cifar10", CR))
    assert row(table, "scrub")["n"] == 0
    assert row(table, "scrub")["errors"] == {"Diverged: a & b_c": 1}
    scrub, finetune = row(table, "scrub")["preset"], row(table, "finetune")["preset"]
    assert table.notes[:2] == [
        f"cifar10, class, finetune ({finetune}), 1 of 1: Nothing was forgotten.",
        f"cifar10, class, scrub ({scrub}) failed in 1 of 10: Diverged: a & b_c",
    ]
    assert [note.partition(":")[0] for note in table.notes[2:]] == ["Never run in cifar10, class"]


def test_lost_accuracy_is_one_note_for_all_runs_of_a_row(results: Results) -> None:
    for case, after in ((0, 0.2), (1, 0.3)):
        put(
            results,
            CR,
            "ssd",
            case,
            notes=[str(kept_accuracy("retain_test", 0.9, after, 9000)), "Another note."],
        )
    table = make_table(CR, results, parse_only("dataset=cifar10,method=ssd", CR))
    preset = row(table, "ssd")["preset"]
    lost, another = table.notes[:2]
    assert lost.startswith(f"cifar10, class, ssd ({preset}), 2 of 2: ")
    assert lost.endswith("lost too much accuracy.")
    assert another == f"cifar10, class, ssd ({preset}), 2 of 2: Another note."


def test_results_of_other_settings_and_other_nets_are_left_out(results: Results) -> None:
    line = line_of(CR, cell_of(CR, "duck", 5, "tuned"))
    line["experiment"]["method"]["lr"] = 77.0
    append(results, "table", line)
    table = make_table(CR, results, {})
    assert row(table, "duck")["n"] == 3
    assert any("Left out: 1 results" in note for note in table.notes)
    asked = {
        "dataset=cifar10": True,
        "case=5": True,
        "preset=tuned": True,
        "dataset=cifar100": False,
        "case=6": False,
        "preset=paper": False,
    }
    for only, reply in asked.items():
        assert (
            any("Left out" in note for note in make_table(CR, results, parse_only(only, CR)).notes)
            is reply
        ), only


def test_data_of_another_source_count_too(results: Results) -> None:
    other = Facts("cifar10", "e" * 32, 50_000, "crop-flip")
    append(results, "table", line_of(CR, cell_of(CR, "duck", 5, "tuned"), other))
    assert row(make_table(CR, results, {}), "duck")["n"] == 4


def test_a_table_without_any_result_says_that_all_is_missing(tmp_path: Path) -> None:
    table = make_table(CR, Results(tmp_path / "nothing"), {})
    assert [r["method"] for r in visible_rows_of(table)] == [*CR.methods] * 3
    # Those of `tuned` on CIFAR-10 leave out the two classes on which settings were searched.
    assert {(r["n"], r["of"], r["aus"]["mean"]) for r in rows_of(table)} == {
        (0, 10, None),
        (0, 8, None),
    }
    assert {(r["dataset"], r["preset"]) for r in rows_of(table) if r["of"] == 8} == {
        ("cifar10", "tuned")
    }
    assert not (tmp_path / "nothing").exists()


def printed(results: Results, form: Format) -> str:
    return render(make_table(CR, results, parse_only("dataset=cifar10", CR)), form)


def test_text_and_markdown(results: Results) -> None:
    lines = printed(results, "text").splitlines()
    assert lines[0] == "cifar10, class, resnet18 (kept: retain-test, forgotten: forget-test)"
    duck = next(line for line in lines if line.startswith("duck"))
    words = (
        "duck tuned 0 of 12 3 (missing 5 of 8) 0.960 ± 0.053 0.998 88.00 ± 7.21 88.46 "
        "2.00 ± 2.65 0.00"
    )
    # Class 0 was not retrained: the gaps are over two of the three.
    assert " ".join(duck.split()) == f"{words} -0.005 (n 2) -2.00 (n 2) +3.00 (n 2) 4.00 0.40"
    salun = next(line for line in lines if line.startswith("salun"))
    assert (
        " ".join(salun.split()[2:])
        == "0 of 12 0 (missing 10 of 10) missing - missing - missing - - - - - -"
    )
    assert len({len(line) for line in lines[1:3]}) == 1
    assert lines[-2].startswith("cifar10, class, scrub")
    assert lines[-1].startswith("Never run in cifar10, class: ")
    piped = printed(results, "markdown").splitlines()
    table = [line for line in piped if line.startswith("|")]
    assert (
        "| duck | tuned | 0 of 12 | 3 (missing 5 of 8) | 0.960 ± 0.053 | 0.998 | 88.00 ± 7.21 |"
        in "\n".join(table)
    )
    assert {line.count("|") for line in table} == {16}
    assert piped[-2].startswith("- cifar10, class, scrub")
    assert piped[-1].startswith("- Never run in cifar10, class: ")
    put(results, CR, "retrained", 0)
    again = next(line for line in printed(results, "text").splitlines() if line.startswith("duck"))
    assert "(n " not in again  # as many as the mean


def test_latex(results: Results) -> None:
    lines = printed(results, "latex").splitlines()
    (duck,) = (line for line in lines if line.startswith("duck"))
    assert duck.startswith(
        r"duck & tuned & 0 of 12 & 3 (missing 5 of 8) & 0.960 $\pm$ 0.053 & 0.998 & "
        r"88.00 $\pm$ 7.21 & 88.46 &"
    )
    body = lines[lines.index(r"\hline") : lines.index(r"\end{tabular}")]
    rows = [line for line in body if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {14}
    assert all(r"\%" in line for line in rows[:1])
    assert len([line for line in lines if line.startswith("%")]) == 1 + 1 + 3


def test_csv_and_json(results: Results) -> None:
    csv_rows, plain_rows = (
        list(csv.DictReader(io.StringIO(printed(results, "csv")))),
        json.loads(printed(results, "json")),
    )
    names = [(line["method"], line["preset"]) for line in csv_rows]
    assert names == [(line["method"], line["preset"]) for line in plain_rows]
    assert list(dict.fromkeys(method for method, _ in names)) == list(CR.methods)
    rows, plain = (dict(zip(names, some, strict=True)) for some in (csv_rows, plain_rows))
    duck = "duck", "tuned"
    assert float(rows[duck]["aus_std"]) == pytest.approx(plain[duck]["aus"]["std"])
    assert float(rows[duck]["gap_forgotten"]) == pytest.approx(
        plain[duck]["gap_to_retrained"]["forgotten"]
    )
    salun = rows["salun", "paper"]
    assert (salun["aus_mean"], salun["n"], salun["of"]) == ("missing", "0", "10")
    assert rows["scrub", "paper"]["errors"] == "Diverged: a & b_c"
    assert {
        "dataset",
        "scenario",
        "method",
        "preset",
        "n",
        "aus",
        "kept",
        "forgotten",
        "gap_to_retrained",
        "seconds",
    } <= set(plain[duck])
    assert printed(results, "csv").count("\n") == len(names)


def test_the_numbers_of_the_paper_are_in_the_rows_of_their_cells(tmp_path: Path) -> None:
    ablation, models = find_grid("paper/ablation"), find_grid("paper/architectures")
    nothing = Results(tmp_path / "nothing")
    rows = rows_of(
        make_table(ablation, nothing, parse_only("dataset=cifar100,scenario=class", ablation))
    )
    paper = {(r["method"], r["variant"]): r["aus"]["paper"] for r in rows}
    assert paper == {
        ("original", ""): 0.563,
        ("duck", ""): 0.996,
        ("duck", "no forget loss"): 0.723,
        ("duck", "no retain loss"): 0.819,
    }
    rows = rows_of(
        make_table(models, nothing, parse_only("dataset=tiny-imagenet,method=duck", models))
    )
    assert {r["model"]: r["aus"]["paper"] for r in rows} == {
        "allcnn": 0.994, "resnet18": 1.002, "resnet34": 1.002, "resnet50": 1.001, "vit-b16": 1.0,
    }  # fmt: skip
    many = find_grid("paper/multi-class")
    assert {r["aus"]["paper"] for r in rows_of(make_table(many, nothing, {}))} == {None}
    density = find_grid("paper/density")
    assert {r["retain_test"]["paper"] for r in rows_of(make_table(density, nothing, {}))} == {None}
    bias = find_grid("paper/bias")
    assert {r["method"]: r["shap"]["paper"] for r in rows_of(make_table(bias, nothing, {}))} == {
        "original": 0.06,
        "retrained": 0.007,
        "duck": 0.006,
    }


def test_times_are_a_view_of_the_two_large_tables(results: Results) -> None:
    table = make_table(find_grid("paper/time"), results, {})
    assert {r["method"] for r in rows_of(table)} & {"original"} == set()
    duck = next(
        r
        for r in rows_of(table)
        if (r["dataset"], r["scenario"], r["method"], r["n"] > 0)
        == ("cifar10", "class", "duck", True)
    )
    alone = row(make_table(CR, results, parse_only("dataset=cifar10", CR)), "duck")
    assert duck["aus"]["mean"] == alone["aus"]["mean"]
    # The median time of Retrained, 40 s, over each time of DUCK.
    assert duck["speedup"]["mean"] == pytest.approx((40 / 2 + 40 / 9 + 40 / 4) / 3)
    assert "speed-up over Retrained" in render(table, "text")


def test_runs_that_shared_their_device_are_not_timed(tmp_path: Path) -> None:
    found = Results(tmp_path)
    put(found, CR, "duck", 0, seconds=3.0)
    put(found, CR, "duck", 1, seconds=500.0, alone=False)
    some = parse_only("dataset=cifar10,method=duck,preset=paper", CR)
    (one,) = [r for r in rows_of(make_table(CR, found, some)) if r["preset"] == "paper"]
    assert (one["n"], one["seconds"]) == (2, 3.0)
    times = rows_of(make_table(find_grid("paper/time"), found, {}))
    (time,) = [
        r
        for r in times
        if (r["dataset"], r["scenario"], r["method"], r["preset"])
        == ("cifar10", "class", "duck", "paper")
    ]
    assert time["seconds"]["mean"] == 3.0


def test_times_of_different_devices_are_not_compared(tmp_path: Path) -> None:
    found = Results(tmp_path)
    put(found, CR, "retrained", 0, seconds=40.0)
    put(found, CR, "duck", 0, seconds=2.0)
    put(found, CR, "duck", 1, seconds=100.0, device="a slower one")
    times = rows_of(make_table(find_grid("paper/time"), found, {}))
    (time,) = [
        r
        for r in times
        if (r["dataset"], r["scenario"], r["method"], r["preset"])
        == ("cifar10", "class", "duck", "paper")
    ]
    assert time["speedup"] == {"mean": 20.0, "std": None, "paper": None}
