"""What is read from run folders, and what is said of what is not there."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from duck import runs
from duck.audits.verdict import TIERS, file_of
from duck.errors import BadInput
from duck.experiment import to_dict
from duck.methods.presets import preset
from duck.report import Contents, read_runs, render
from duck.report.class_table import choose_classes, class_rows, find_neighbours
from duck.report.groups import Group
from duck.report.plots_attacks import plot_bench_attacks
from duck.report.records import ANALYSIS_FILE
from duck.report.results import Result
from duck.report.series import make_series
from duck.sample_ids import FILE
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetRandomClasses
from duck.types import Recipe
from duck.unlearning import unlearn
from tests.bench.stored import MACHINE
from tests.report.folders import TEST, bench, bench_curve, bench_line, write_run
from tests.test_runs import EXPERIMENT
from tests.toys import RECIPE, TOYS, class_scenario, trained_net


def attacks(lines: Sequence[dict[str, Any]]) -> list[Result]:
    return [result for result in bench(lines) if result.roc]


def test_overwriting_a_run_removes_its_audits_and_analysis() -> None:
    assert {*map(file_of, TIERS), ANALYSIS_FILE} == {*runs.RUN_FILES} - {
        runs.RECORD,
        runs.WEIGHTS,
        runs.ASSURANCE,
        FILE,
    }


def test_a_folder_of_runs_stands_for_its_unlearnings(tmp_path: Path) -> None:
    write_run(tmp_path / "b")
    write_run(tmp_path / "a", "retrained")
    write_run(tmp_path / ".hidden")
    record = json.loads((tmp_path / "b" / "run.json").read_text())
    record["experiment"] |= {"request": None, "method": None}
    (tmp_path / "original").mkdir()
    (tmp_path / "original" / "run.json").write_text(json.dumps(record))
    assert [run.folder.name for run in read_runs([tmp_path])] == ["a", "b"]
    assert [run.anchor for run in read_runs([tmp_path / "b", tmp_path])] == ["run-1-b", "run-2-a"]
    with pytest.raises(BadInput, match="is an original model"):
        read_runs([tmp_path / "original"])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"audit-quick.json": "quick", "audit-oracle.json": "oracle", "audit-full.json": "full"},
            "audit-full.json",
        ),
        ({"audit-quick.json": "quick", "audit-oracle.json": "oracle"}, "audit-oracle.json"),
        ({"audit-quick.json": "quick"}, "audit-quick.json"),
    ],
)
def test_the_audit_of_the_highest_tier_is_read(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    folder = write_run(tmp_path / "run")
    for name, tier in files.items():
        (folder / name).write_text(
            json.dumps({"verdict": "forgotten", "tier": tier, "reasons": [name]})
        )
    (stored,) = read_runs([folder])
    assert stored.audit is not None
    assert stored.audit.reasons == (expected,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": None}, "not a valid run record"),
        ({"scores": {}}, "not a valid run record"),
        ({"experiment": 3}, "run-7"),
        ({"newfield": 1}, "has no setting 'newfield'"),
    ],
)
def test_a_broken_run_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    record = write_run(tmp_path / "run-7") / "run.json"
    plain = json.loads(record.read_text())
    if "newfield" in change:
        plain["experiment"]["method"] |= change
    else:
        plain |= change
    record.write_text(json.dumps(plain))
    with pytest.raises(BadInput, match=message) as caught:
        read_runs([tmp_path / "run-7"])
    assert str(tmp_path / "run-7") in str(caught.value)


def test_no_verdict_hides_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for tier, verdict in (("quick", "not forgotten"), ("full", "no verdict")):
        (folder / f"audit-{tier}.json").write_text(json.dumps({"verdict": verdict, "tier": tier}))
    assert read_runs([folder])[0].verdict == "not forgotten"
    (folder / "audit-quick.json").write_text(json.dumps({"verdict": "no verdict", "tier": "quick"}))
    audit = read_runs([folder])[0].audit
    assert audit is not None
    assert audit.tier == "full"


def test_a_higher_tier_without_a_verdict_is_named_and_what_it_tested_is_not_open(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "run")
    open_questions = {"oracle": ["other copies", "attacks of pools"], "full": ["other copies"]}
    for tier, verdict in (("oracle", "forgotten"), ("full", "no verdict")):
        audit = {"verdict": verdict, "tier": tier, "not_tested": open_questions[tier]}
        (folder / f"audit-{tier}.json").write_text(json.dumps(audit))
    (stored,) = read_runs([folder])
    assert stored.audit is not None
    assert (stored.audit.tier, stored.verdict) == ("oracle", "forgotten")
    assert stored.audit.not_tested == ("other copies",)
    (reason,) = stored.audit.reasons
    assert "audit-full.json" in reason


def test_a_report_of_a_higher_tier_carries_what_a_lower_one_found(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lower = {
        "verdict": "not forgotten",
        "tier": "quick",
        "reasons": ["loss attack: found.", "SVM attack: found."],
    }
    higher = {
        "verdict": "forgotten",
        "tier": "oracle",
        "reasons": ["Quick tier: SVM attack: found. Not counted."],
    }
    (folder / "audit-quick.json").write_text(json.dumps(lower))
    (folder / "audit-oracle.json").write_text(json.dumps(higher))
    audit = read_runs([folder])[0].audit
    assert audit is not None
    assert audit.tier == "oracle"
    assert audit.reasons == (
        *higher["reasons"],
        f"Quick tier, not forgotten: {lower['reasons'][0]}",
    )


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no unlearning.*`duck forget"):
        read_runs([tmp_path])
    with pytest.raises(BadInput, match="nowhere is not a run"):
        read_runs([tmp_path / "nowhere"])


def test_a_real_run_keeps_its_confusion_matrix(tmp_path: Path) -> None:
    scenario, model = class_scenario(), trained_net()
    outcome = unlearn(
        TOYS["duck"].method("class"), model, scenario, recipe=RECIPE, watch=lambda _: None
    )
    runs.save(runs.record(EXPERIMENT, scenario, outcome), outcome.model, tmp_path / "run")
    (stored,) = read_runs([tmp_path / "run"])
    before, after = stored.run.by_class.original, stored.run.by_class.unlearned
    assert before is not None
    assert after is not None
    assert sum(sum(row.values()) for row in after.values()) == len(scenario.test)
    assert {true: sum(row.values()) for true, row in before.items()} == dict.fromkeys("0123", 40)
    right = sum(row.get(true, 0) for true, row in after.items() if true != "2")
    assert right / 120 == pytest.approx(stored.run.scores["retain_test"])
    assert after["2"].get("2", 0) / 40 == pytest.approx(stored.run.scores["forget_test"])
    assert before["2"] == {"2": 40}
    assert set(after["2"]) - {"2"}
    assert stored.run.by_class.forget == {"2": 60}
    assert (stored.forgotten_classes, stored.class_names, stored.result.kind) == (
        [2],
        ["a", "b", "c", "d"],
        "class",
    )


def test_a_run_without_test_data_has_no_confusion(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    record = json.loads((folder / "run.json").read_text())
    record["by_class"] |= {"original": None, "unlearned": None}
    record["scores"] |= {"aus": None, "test": None, "forget_test": None, "retain_test": None}
    (folder / "run.json").write_text(json.dumps(record))
    (stored,) = read_runs([folder])
    assert class_rows(stored) == []
    assert (stored.result.aus, stored.result.retain_accuracy, stored.result.delta) == (
        None,
        None,
        None,
    )


def test_two_hundred_classes_stay_small_and_only_some_are_shown(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        request=ForgetClasses([7]),
        names=[f"class {index}" for index in range(200)],
    )
    assert (folder / "run.json").stat().st_size < 100_000
    (stored,) = read_runs([folder])
    assert len(class_rows(stored)) == 200
    chosen = choose_classes(stored)
    assert len(chosen) == 16
    assert {7, *find_neighbours(stored)} <= set(chosen)


def test_neighbours_are_those_it_is_confused_with(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    record = json.loads((folder / "run.json").read_text())
    sure = {str(index): {str(index): TEST} for index in range(10)}
    record["by_class"]["original"] = {
        **sure,
        "3": {"3": 35, "8": 5},
        "5": {"5": 37, "3": 3},
        "1": {"1": 1, "7": 39},
    }
    record["by_class"]["unlearned"] = {**sure, "3": {"9": 36, "8": 4}}
    (folder / "run.json").write_text(json.dumps(record))
    (stored,) = read_runs([folder])
    assert find_neighbours(stored) == [9, 8, 5]
    rows = class_rows(stored)
    assert [row.role for row in rows] == ["forgotten", *["neighbour"] * 3, *["other"] * 6]
    assert {row.index for row in rows[1:4]} == {5, 8, 9}
    assert rows[0].after.value == 0
    assert {row.index: round(row.before.value, 3) for row in rows}[1] == 0.025


def test_a_run_given_twice_is_there_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert len(read_runs([folder, tmp_path / "run" / ".." / "run", tmp_path])) == 1


def test_lines_of_a_bench_join(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run", request=ForgetFraction(0.1))])
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    line: dict[str, Any] = {
        "id": "x",
        "dataset": "digits",
        "scenario": "samples",
        "case": 4,
        "method": "duck",
        "preset": "tuned",
        "train_samples": 4000,
        "wall_seconds": 1.0,
        **MACHINE,
        **{
            name: record[name]
            for name in ("experiment", "scores", "original", "seconds", "prepare_seconds", "notes")
        },
        "forget_samples": 400,
    }
    others = [
        {**line, "method": None},
        {**line, "error": "out of memory"},
        {**line, "scores": {"f1": 0.5}, "attack": {"name": "svm"}},
    ]
    attacked = {
        **line,
        "scores": {"auc": 0.6},
        "attack": {"name": "lira"},
        "roc": asdict(bench_curve([0, 1], [0, 1], 40)),
    }
    group = Group("digits", "convnet", Recipe(epochs=3))
    (curve,) = attacks([line, *others, attacked])
    assert (curve.attack, curve.label, curve.preset, curve.group) == (
        "lira",
        "duck",
        "tuned, other settings",
        group,
    )
    assert curve.roc == bench_curve([0, 1], [0, 1], 40)
    pools = [attacked | {"attack": {"name": "lira", "pool": letter * 16}} for letter in "ab"]
    assert [curve.attack for curve in attacks([*pools, attacked])] == [
        "lira with pool aaaaaaaa",
        "lira with pool bbbbbbbb",
        "lira",
    ]
    assert [curve.attack for curve in attacks(pools[:1] * 2)] == ["lira"] * 2
    other = json.loads(json.dumps(attacked))
    other["experiment"]["training"]["model"] = "resnet18"
    assert [curve.group.model for curve in attacks([attacked, other])] == ["convnet", "resnet18"]
    (result,) = [one for one in bench([line, *others, attacked]) if one.is_unlearning]
    assert (result.name, result.method, result.request_label) == (
        "digits, 10 % of the samples, seed 4",
        "duck",
        stored.result.request_label,
    )
    assert result.preset == "tuned, other settings"
    line["experiment"]["method"] = to_dict(preset("duck", "digits", "samples", None, "tuned"))
    assert bench([line])[0].preset == "tuned"
    assert attacks([attacked])[0].preset == "tuned"
    assert result.forget_accuracy is not None
    assert result.forget_accuracy.low is not None
    assert result.drop == stored.result.drop


def test_lines_of_studies_are_neither_unlearnings_nor_attacks() -> None:
    density = {"train": {"0": 1.5, "3": None}, "test": {"0": 0.5, "3": -2.0}}
    lines = [
        bench_line(),
        bench_line(study={"name": "density"}, density=density, forgotten=[3]),
        bench_line(study={"name": "bias"}),
    ]
    del lines[2]["scores"]
    unlearned, found = bench(lines)
    assert (unlearned.is_unlearning, found.is_unlearning, found.roc) == (True, False, None)
    assert (found.method, found.preset, found.forgotten_classes) == ("duck", "tuned", [3])
    assert found.densities == density
    assert found.group == unlearned.group
    assert found.comparison_key == unlearned.comparison_key


def test_a_variant_of_a_method_has_a_name_of_its_own() -> None:
    changed = bench_line(variant="no forget loss")
    changed["experiment"]["method"]["batch_ratio"] = 99
    plain, empty, variant = bench([bench_line(), bench_line(variant=""), changed])
    assert (plain.label, empty.label, variant.label) == ("duck", "duck", "duck, no forget loss")
    assert (variant.method, variant.preset) == ("duck", "tuned")
    roc = {"attack": {"name": "lira"}, "roc": asdict(bench_curve([0, 1], [0, 1]))}
    assert [curve.label for curve in attacks([changed | roc])] == ["duck, no forget loss"]


def test_requests_of_many_classes(tmp_path: Path) -> None:
    lines = [
        bench_line(request=ForgetRandomClasses(4), case=7),
        bench_line(request=ForgetRandomClasses(1), case=7),
        bench_line(request=ForgetClasses([1, 2]), case="1+2"),
        bench_line(request=ForgetClasses([5]), case=5),
    ]
    results = bench(lines)
    assert [result.class_count for result in results] == [4, 1, 2, 1]
    asked = ["4 random classes", "1 random class", "classes 1, 2", "class 5"]
    assert [result.request_label for result in results] == asked
    assert [result.name for result in results] == [
        "digits, 4 random classes, seed 7",
        "digits, 1 random class, seed 7",
        "digits, classes 1, 2",
        "digits, class 5",
    ]
    roc = {"attack": {"name": "lira"}, "roc": asdict(bench_curve([0, 1], [0, 1]))}
    plot = plot_bench_attacks(make_series(attacks([line | roc for line in lines])))
    assert plot is not None
    assert [panel.title for panel in plot.panels] == [
        f"lira: digits, {request}" for request in ("4 classes", "1 class", "2 classes")
    ]
    folder = write_run(tmp_path / "run", request=ForgetClasses([1, 2]), seed=5)
    record = json.loads((folder / "run.json").read_text())
    record["experiment"]["request"] = {"name": "random-classes", "count": 2}
    (folder / "run.json").write_text(json.dumps(record))
    (stored,) = read_runs([folder])
    expected = "classes “1”, “2”, chosen at random with seed 5: "
    assert expected in render(Contents([stored]))
