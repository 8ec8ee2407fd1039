"""Plots as data: what is drawn where, and the same in both renderings."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from plotly import graph_objects

from duck.analysis.density_tests import density_tests
from duck.analysis.feature_space import Densities
from duck.analysis.study import Analysis
from duck.audits.verdict import RocCurve
from duck.metrics import aus
from duck.report import (
    Contents,
    class_densities,
    plots_analysis,
    plots_attacks,
    plots_contour,
    plots_run,
    plots_runs,
    read_runs,
    render,
)
from duck.report.bench_records import current_results
from duck.report.groups import Group, group_labels
from duck.report.matplotlib_figures import save_figure
from duck.report.page_budget import PageBudget
from duck.report.plotly_figures import to_plotly
from duck.report.plots import (
    Axis,
    Band,
    Cells,
    Line,
    Mark,
    Panel,
    Plot,
    Points,
    Values,
    centres,
    error_bars,
)
from duck.report.results import Result
from duck.report.series import make_series
from duck.report.styles import BLUE, choose_styles
from duck.scenarios import ForgetClasses, ForgetFraction, ForgetRandomClasses
from duck.types import Estimate, Recipe
from tests.report.folders import (
    attacked,
    bench,
    bench_curve,
    bench_line,
    fifty,
    shap_image,
    write_run,
)


def test_curves_begin_with_the_original(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run")])
    plot = plots_run.plot_curves(stored)
    assert plot is not None
    forget = plot.panels[0].marks[0]
    assert isinstance(forget, Line)
    assert list(forget.y) == pytest.approx([99, 40, 2, 0, 0])
    assert "goes from 99.0 % to 0.0 %" in plot.alt
    assert list(plot.legend) == [
        "forgotten samples",
        "retained samples",
        "holdout (unseen, all classes)",
    ]
    # A dotted line between the second and the third epoch, where the phase changes.
    assert plot.panels[0].marks[-1] == Line("", [2.5, 2.5], [0, 100], "muted", dashed=True)


def test_long_names_are_cut_next_to_axes(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run", names=["x" * 26, "y" * 25, *"23456789"])])
    plot = plots_run.plot_confusion(stored)
    assert plot is not None
    assert list(plot.panels[0].x.ticks[:3]) == ["x" * 24 + "…", "y" * 25, "2"]


def test_confusion_shows_counts_and_shares_of_rows(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run")])
    plot = plots_run.plot_confusion(stored)
    assert plot is not None
    for panel, name in zip(plot.panels, ("original", "unlearned"), strict=True):
        (cells,) = panel.marks
        assert isinstance(cells, Cells)
        for true, row in getattr(stored.run.by_class, name).items():
            assert [cells.texts[int(true)][int(seen)] for seen in row] == [
                str(count) for count in row.values()
            ]
        assert [sum(value or 0 for value in row) for row in cells.values] == pytest.approx(
            [1.0] * 10
        )
        assert panel.y.is_reversed


def test_lines_of_equal_aus_and_runs_lie_on_their_own_height(tmp_path: Path) -> None:
    runs = read_runs(
        [write_run(tmp_path / "duck"), write_run(tmp_path / "original", "original", seed=2)]
    )
    plot = plots_contour.plot_contour(make_series([run.result for run in runs]))
    assert plot is not None
    (panel,) = plot.panels
    assert panel.x.high is not None
    assert panel.y.low is not None
    assert panel.y.high is not None
    *lines, original = [mark for mark in panel.marks if isinstance(mark, Line)]
    assert [line.label for line in lines] == ["0.50", "0.60", "0.70", "0.80", "0.90", "1.00"]
    for line in lines:
        for delta, drop in zip(line.x, line.y, strict=True):
            assert delta is not None
            assert drop is not None
            assert 0 <= delta <= panel.x.high
            assert panel.y.low - 1e-9 <= drop <= panel.y.high + 1e-9
            height = aus("class", 0.9, 0.9 - drop / 100, delta / 100)
            assert height == pytest.approx(float(line.label))
    assert (original.name, list(original.y), original.dashed) == (
        "accuracy of the original",
        [0, 0],
        True,
    )
    marks = [mark for mark in panel.marks if isinstance(mark, Points)]
    for mark, run in zip(marks, runs, strict=True):
        (delta,), (drop,) = centres(mark.x), centres(mark.y)
        assert delta is not None
        assert drop is not None
        assert (1 - drop / 100) / (1 + delta / 100) == pytest.approx(run.result.scores["aus"])
        assert 0 <= delta <= panel.x.high
        assert panel.y.low <= drop <= panel.y.high


def test_a_method_that_lost_all_accuracy_has_lines_of_low_aus() -> None:
    plot = plots_contour.plot_contour(make_series(bench([bench_line(retain=0.0)])))
    assert plot is not None
    labels = [mark.label for mark in plot.panels[0].marks if isinstance(mark, Line) and mark.label]
    assert labels[0] == "0.05"


def bands_of(panel: Panel) -> dict[str, Band]:
    return {mark.name: mark for mark in panel.marks if isinstance(mark, Band)}


def points_of(panel: Panel) -> dict[str, Points]:
    """By name; the hollow points of a name have (paper) behind it."""
    points = [mark for mark in panel.marks if isinstance(mark, Points) and mark.x]
    return {f"{mark.name} (paper)" if mark.hollow else mark.name: mark for mark in points}


def test_the_contour_keeps_scenarios_apart_and_has_a_close_look_at_the_best() -> None:
    classes = [bench_line(case=case, retain=0.9 - case / 100) for case in range(4)]
    tenth = bench_line(request=ForgetFraction(0.1), retain=0.9, forget=0.88)
    plot = plots_contour.plot_contour(make_series(bench([*classes, tenth])))
    assert plot is not None
    assert [panel.title for panel in plot.panels] == ["One class", "Samples"]
    assert [len(points_of(panel)["duck"].x) for panel in plot.panels] == [4, 1]
    plot = plots_contour.plot_contour(
        make_series(bench([*classes, bench_line("ssd", retain=0.2), tenth]))
    )
    assert plot is not None
    titles = ["One class", "One class, near the ideal", "Samples"]
    assert [panel.title for panel in plot.panels] == titles
    assert (plot.panels[1].x.high, plot.panels[1].y.high) == pytest.approx((10.2, 10))


def intervals(values: Values) -> list[tuple[float, float | None, float | None]]:
    estimates = [value for value in values if isinstance(value, Estimate)]
    assert len(estimates) == len(values)
    return [(one.value, one.low, one.high) for one in estimates]


def test_time_of_a_bench_is_a_mean_with_its_spread_for_each_scenario() -> None:
    seconds = (1.0, 2.0, 6.0)
    lines = [
        *(bench_line(case=case, seconds=s, retain=0.8 + s / 100) for case, s in enumerate(seconds)),
        bench_line(preset="paper", seconds=5.0),
        *[bench_line(request=ForgetFraction(0.1), seconds=9, retain=0.5)] * 2,
        *(bench_line(request=ForgetRandomClasses(n), seconds=20, retain=0.6) for n in (2, 2, 5)),
    ]
    plot = plots_runs.plot_time(make_series(bench(lines)))
    assert plot is not None
    titles = [panel.title for panel in plot.panels]
    rows = ("One class", "Several classes", "Samples")
    assert titles[::2] == [f"{row}: AUS" for row in rows]
    assert titles[1::2] == [f"{row}: Retained accuracy" for row in rows]
    assert plot.columns == 2
    one = points_of(plot.panels[1])["duck"]
    spread = math.sqrt(7)
    # The time axis ends at 1 / 1.6 s.
    assert intervals(one.x) == [pytest.approx((3.0, 1 / 1.6, 3 + spread))]
    assert intervals(one.y) == [pytest.approx((83.0, 83 - spread, 83 + spread))]
    assert "mean of 3 runs: 3.00 s, Retained accuracy 83" in one.texts[0]
    # One run of another preset: a hollow point without a spread.
    paper = points_of(plot.panels[1])["duck (paper)"]
    assert (intervals(paper.x), error_bars(paper.y)) == ([(5.0, None, None)], None)
    assert centres(points_of(plot.panels[2])["duck"].x) == [20, 20]
    assert centres(points_of(plot.panels[4])["duck"].x) == [9]
    assert "(n up to 3)" in plot.caption
    assert plot.legend["duck"] == (BLUE, "circle")
    assert plot.legend["preset paper"] == ("muted", "circle-open")


def test_stored_runs_are_points_of_their_own(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / str(at), seed=at) for at in range(3)])
    plot = plots_runs.plot_time(make_series([run.result for run in runs]))
    assert plot is not None
    points = points_of(plot.panels[0])["duck"]
    assert centres(points.x) == [run.result.seconds for run in runs]
    assert error_bars(points.x) is None
    assert "standard deviation" not in plot.caption
    assert [panel.title for panel in plot.panels] == ["AUS", "Retained accuracy"]


def test_time_leaves_the_original_out(tmp_path: Path) -> None:
    runs = read_runs(
        [
            write_run(tmp_path / name, name, seed=at)
            for at, name in enumerate(("duck", "original", "retrained"))
        ]
    )
    plot = plots_runs.plot_time(make_series([run.result for run in runs]))
    assert plot is not None
    assert list(plot.legend) == ["duck", "retrained"]
    assert plots_runs.plot_time(make_series([runs[0].result])) is None


def test_many_classes_are_means_over_runs(tmp_path: Path) -> None:
    requests = [ForgetClasses([3]), ForgetClasses([4]), ForgetClasses([1, 2])]
    results = [
        read_runs([write_run(tmp_path / str(at), request=request, seed=at)])[0].result
        for at, request in enumerate(requests)
    ]
    plot = plots_runs.plot_class_counts(make_series(results))
    assert plot is not None
    points = plot.panels[0].marks[1]
    assert isinstance(points, Points)
    one, other = (result.scores["aus"] or 0 for result in results[:2])
    assert list(points.x) == [1, 2]
    mean, spread = (one + other) / 2, abs(one - other) / math.sqrt(2)
    assert intervals(points.y)[0] == pytest.approx((mean, mean - spread, mean + spread))
    assert plots_runs.plot_class_counts(make_series(results[:2])) is None


def test_many_classes_of_a_bench_are_drawn_with_a_shuffle() -> None:
    values = [(1, 0.9, 0.0), (1, 0.9, 0.02), (5, 0.8, 0.1), (5, 0.7, 0.3)]
    lines = [
        bench_line(request=ForgetRandomClasses(count), case=case, retain=retain, forget=forget)
        for case, (count, retain, forget) in enumerate(values)
    ]
    lines.append(bench_line(request=ForgetClasses([1, 2]), case="1+2", retain=0.85, forget=0.05))
    lines.append(bench_line("ssd", case=1))
    lines.append(bench_line("ssd", ForgetFraction(0.1), case=1, forget=0.9))
    plot = plots_runs.plot_class_counts(make_series(bench(lines)))
    assert plot is not None
    titles = ["AUS", "Retained accuracy", "Accuracy on forgotten classes"]
    assert [panel.title for panel in plot.panels] == titles
    # A method that removes only one class has no line.
    assert list(plot.legend) == ["duck"]
    points = [points_of(panel)["duck"] for panel in plot.panels]
    # The chosen classes 1 and 2 are no case of a shuffle.
    assert [list(each.x) for each in points] == [[1, 5]] * 3
    assert centres(points[1].y) == pytest.approx([90, 75])
    spread = math.sqrt(200)
    assert intervals(points[2].y)[1] == pytest.approx((20, 20 - spread, 20 + spread))
    assert plot.alt == "4 runs that remove 1, 5 classes."


def test_densities_over_runs_are_means_of_forgotten_and_retained_classes(tmp_path: Path) -> None:
    runs = []
    for at, (method, classes) in enumerate((("duck", [0]), ("duck", [0, 1]), ("ssd", [0]))):
        (run,) = read_runs(
            [
                write_run(
                    tmp_path / str(at),
                    method,
                    ForgetClasses(classes),
                    names=["a", "b", "c"],
                    analysis=True,
                )
            ]
        )
        assert run.analysis is not None
        density: dict[str, Densities] = {
            "original": {"train": {"0": 1.0, "1": 3.0, "2": 6.0}},
            "unlearned": {"train": {"0": -2.0 - at, "1": -4.0, "2": 4.0}},
        }
        runs.append(replace(run, analysis=replace(run.analysis, density=density)))
    (samples,) = read_runs(
        [
            write_run(
                tmp_path / "samples",
                request=ForgetFraction(0.1),
                names=["a", "b", "c"],
                analysis=True,
            )
        ]
    )
    plot = class_densities.plot_densities([*runs, samples])
    assert plot is not None
    (panel,) = plot.panels
    assert panel.title == "digits, convnet, train"
    assert list(panel.y.ticks) == ["original", "duck", "ssd"]
    gone_dots, gone_means, kept_dots, kept_means = panel.marks
    for mark, values in (
        # The original of the first and the third run is one, asked the same.
        (gone_dots, [1.0, 2.0, -2.0, -3.5, -4.0]),
        (gone_means, [1.5, -2.75, -4.0]),
        (kept_dots, [4.5, 6.0, 0.0, 4.0, 0.0]),
        (kept_means, [5.25, 2.0, 0.0]),
    ):
        assert isinstance(mark, Points)
        assert centres(mark.x) == pytest.approx(values)
    assert list(plot.legend) == ["forgotten classes", "retained classes"]
    assert "class-densities" in [plot.name for plot in plots_runs.make_plots(runs, [])]
    assert [file.suffix for file in save_figure(plot, tmp_path)] == [".png", ".pdf"]
    assert class_densities.plot_densities([runs[0], samples]) is None


def test_density_tests_are_those_of_the_analysis_and_count_a_request_once(tmp_path: Path) -> None:
    runs = [
        read_runs(
            [write_run(tmp_path / str(at), request=ForgetClasses([at]), seed=at, analysis=True)]
        )[0]
        for at in range(7)
    ]
    expected = {
        (row.split, row.compared.removesuffix(": forget - retain")): row.result
        for row in density_tests(
            [
                Analysis(density=dict(run.analysis.density), forgotten=list(run.forgotten_classes))
                for run in runs
            ]
        )
        if row.compared.endswith("forget - retain")
    }
    found = class_densities.density_tests(runs)
    assert len(found) == len(expected) == 6
    for test in found:
        row = expected[
            test.panel.rpartition(", ")[2], {"duck": "unlearned"}.get(test.method, test.method)
        ]
        assert (test.result.p, test.result.n, test.result.least_p) == pytest.approx(
            (row.p, 7, 2**-6)
        )
        assert test.result.difference == pytest.approx(row.difference)
    # The same request again, by the same method: no more evidence.
    again = read_runs(
        [write_run(tmp_path / "again", request=ForgetClasses([0]), seed=0, analysis=True)]
    )
    for dense in again[0].analysis.density["unlearned"].values():
        dense.update({label: (value or 0.0) + int(label) for label, value in dense.items()})
    assert [test.result.n for test in class_densities.density_tests([*runs, *again])] == [7] * 6
    assert class_densities.density_tests([runs[0], *again]) == []
    assert class_densities.plot_densities([runs[0], *again]) is not None


def density_line(method: str, case: int, dense: float, **rest: Any) -> dict[str, Any]:
    values = {"0": 1.0, "1": 3.0, "2": 5.0, str(case): dense}
    line = bench_line(method, ForgetClasses([case]), case, study={"name": "density"}, **rest)
    return {**line, "forgotten": [case], "density": {"train": values}}


def test_densities_of_a_bench_look_like_those_of_runs() -> None:
    lines = [
        density_line(method, case, -case - shift)
        for case in (0, 1, 2)
        for method, shift in (("retrained", 9.0), ("duck", 4.0), ("original", 0.0))
    ]
    studies = bench([*lines, bench_line()])
    plot = class_densities.plot_densities([], studies)
    assert plot is not None
    assert plot.name == "class-densities"
    (panel,) = plot.panels
    assert panel.title == "digits, convnet, train"
    assert list(panel.y.ticks) == ["original", "duck (tuned)", "retrained"]
    gone_dots, gone_means, kept_dots, kept_means = panel.marks
    for mark, values in (
        (gone_dots, [0, -1, -2, -4, -5, -6, -9, -10, -11]),
        (gone_means, [-1, -5, -10]),
        (kept_dots, [4, 3, 2] * 3),
        (kept_means, [3, 3, 3]),
    ):
        assert isinstance(mark, Points)
        assert centres(mark.x) == pytest.approx(values)
    tests = class_densities.density_tests([], studies)
    assert [test.method for test in tests] == ["original", "duck (tuned)", "retrained"]
    assert [test.result.n for test in tests] == [3, 3, 3]
    assert overview_names(studies[:-1]) == ["class-densities"]
    # Another model has a panel of its own, another preset a row of its own.
    others = [density_line("duck", case, 0.0, model="resnet18") for case in (0, 1)]
    preset = [replace(study, preset="paper") for study in studies[:-1] if study.method == "duck"]
    plot = class_densities.plot_densities([], [*studies, *preset, *bench(others)])
    assert plot is not None
    titles = ["digits, convnet, train", "digits, resnet18, train"]
    assert [panel.title for panel in plot.panels] == titles
    assert list(plot.panels[0].y.ticks) == ["original", "duck (paper)", "duck (tuned)", "retrained"]


def test_no_two_methods_look_alike(tmp_path: Path) -> None:
    looks = choose_styles([run.result.method for run in read_runs(fifty(tmp_path)[:15])])
    assert len(looks) == 15
    assert len(set(looks.values())) == 15


def test_each_attack_has_its_curves_for_all_and_for_low_rates(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run", verdict="forgotten")])
    assert stored.audit is not None
    curve = RocCurve([0, 0.5, 1], [0, 0.25, 1])
    roc = {**stored.roc, "loss": {"unlearned": curve}}
    stored = replace(stored, audit=replace(stored.audit, roc=roc))
    plot = plots_attacks.plot_run_attacks(stored)
    assert plot is not None
    parts = ("all rates", "low false-positive rates")
    assert [panel.title for panel in plot.panels] == [
        f"{attack}: {part}" for attack in ("svm", "loss") for part in parts
    ]
    assert [panel.x.log for panel in plot.panels] == [False, True] * 2
    assert list(plot.legend) == ["original", "unlearned", "retrained", "chance"]
    mark = plot.panels[2].marks[0]
    assert isinstance(mark, Line)
    assert (list(mark.x), list(mark.y)) == ([0, 0.5, 1], [0, 0.25, 1])
    thinned = plots_attacks.plot_run_attacks(stored, 20)
    assert thinned is not None
    assert [panel.title for panel in thinned.panels] == [
        "svm: low false-positive rates",
        "loss: low false-positive rates",
    ]
    mark = thinned.panels[0].marks[0]
    assert isinstance(mark, Line)
    assert len(mark.x) == len(mark.y) == 20
    assert (mark.x[0], mark.x[-1]) == pytest.approx((1e-3, 1))


def test_attacks_of_a_bench_are_means_over_cases(tmp_path: Path) -> None:
    straight, better = ([0.0, 1.0], [0.0, 1.0]), ([0.0, 0.1, 1.0], [0.0, 0.5, 1.0])
    curves = [
        *(
            attacked("duck", preset, *points)
            for preset in ("paper", "tuned")
            for points in (straight, better)
        ),
        attacked("duck", "paper", *straight),
        attacked("retrained", "paper", *straight),
        attacked("duck", "tuned", *better, request=ForgetFraction(0.1), attack="confidence"),
    ]
    plot = plots_attacks.plot_bench_attacks(make_series(curves))
    assert plot is not None
    assert [panel.title for panel in plot.panels] == [
        "lira: cifar10, 1 class",
        "confidence: cifar10, samples",
    ]
    assert list(plot.legend) == ["chance", "duck", "duck (paper)", "retrained"]
    named = {mark.name: mark for mark in plot.panels[0].marks if isinstance(mark, Line)}
    assert (named["duck (paper)"].dashed, named["duck"].dashed) == (True, False)
    assert [plot.legend[name][1] for name in ("chance", "duck (paper)", "duck")] == [
        "dots",
        "dots",
        "line",
    ]
    tenth = {
        mark.name: y
        for mark in named.values()
        for x, y in zip(mark.x, mark.y, strict=True)
        if x == pytest.approx(0.1)
    }
    assert tenth["duck"] == pytest.approx((0.1 + 0.5) / 2)
    assert tenth["duck (paper)"] == pytest.approx((0.1 + 0.1 + 0.5) / 3)
    assert list(named["retrained"].y) == pytest.approx(list(named["retrained"].x))
    assert "7 attacked models" in plot.alt
    bands = bands_of(plot.panels[0])
    assert list(bands) == ["duck", "duck (paper)"]
    tuned = bands["duck"]
    at = next(at for at, x in enumerate(tuned.x) if x == pytest.approx(0.1))
    spread = 0.4 / math.sqrt(2)
    assert (tuned.low[at], tuned.high[at]) == pytest.approx((0.3 - spread, 0.3 + spread))
    # A log axis has no 0, and no rate is above 1.
    assert (min(tuned.low), max(tuned.high)) == (1e-3, 1)
    assert bands_of(plot.panels[1]) == {}
    assert "Bands: one standard deviation" in plot.caption
    assert "(n up to 3)" in plot.caption
    single = plots_attacks.plot_bench_attacks(make_series(curves[-1:]))
    assert single is not None
    assert "Bands" not in single.caption
    assert plots_attacks.plot_bench_attacks([]) is None
    assert overview_names(curves) == ["bench-attacks"]


def overview_names(results: Sequence[Result]) -> list[str]:
    return [plot.name for plot in plots_runs.make_plots([], results)]


def changed(result: Result, **values: Any) -> Result:
    return replace(
        result,
        experiment=replace(
            result.experiment, training=replace(result.experiment.training, **values)
        ),
    )


def test_each_data_set_has_plots_of_its_own_in_the_same_colours(tmp_path: Path) -> None:
    names = ("duck", "retrained", "scrub", "ssd")
    results = [
        run.result
        for run in read_runs(
            [write_run(tmp_path / name, name, seed=at) for at, name in enumerate(names)]
        )
    ]
    assert overview_names(results) == ["aus-contour", "aus-time"]
    other = [changed(result, data="my/pictures") for result in results[::3]]
    curve = attacked("duck", "paper", [0.0, 1.0], [0.0, 1.0])
    plots = plots_runs.make_plots([], [*results, *other, curve])
    mine = results[0].experiment.training.fingerprint[:6]
    assert [plot.name for plot in plots] == [
        "aus-contour-1-digits", "aus-time-1-digits", f"aus-contour-2-my-pictures-{mine}-",
        f"aus-time-2-my-pictures-{mine}-",
        "bench-attacks-3-cifar10",
    ]  # fmt: skip
    assert plots[3].title.startswith("AUS ")
    assert plots[3].title.endswith(f" (my/pictures ({mine}))")
    others = [changed(result, data="my/pictures", fingerprint="f" * 32) for result in other]
    assert len(plots_runs.make_plots([], [*other, *others])) == 4  # two data sets of one name
    assert (
        len(
            plots_runs.make_plots(
                [], [*results, *(changed(one, fingerprint="f" * 32) for one in results)]
            )
        )
        == 2
    )  # of one that is known
    line = "accuracy of the original"
    legends = [[line, *names], list(names), [line, "duck", "ssd"], ["duck", "ssd"]]
    assert [list(plot.legend) for plot in plots[:4]] == legends
    for one, two in ((plots[0], plots[2]), (plots[1], plots[3])):
        assert two.legend["ssd"] == one.legend["ssd"] != one.legend["scrub"]


def test_models_and_recipes_are_kept_apart() -> None:
    made = [
        *(bench_line(case=case) for case in (0, 1, 2)),
        *(bench_line(case=case, model="resnet18") for case in (0, 1)),
        *(bench_line(case=case, epochs=30) for case in (0, 1)),
    ]
    results = bench(made)
    curve = replace(results[3], attack="lira", roc=bench_curve([0.0, 1.0], [0.0, 1.0]))
    found = plots_runs.make_plots([], [*results, curve])
    contours = {plot.title.partition("lost ")[2]: plot for plot in found if "contour" in plot.name}
    names = ["convnet, epochs 3", "resnet18", "convnet, epochs 30"]
    labels = [f"digits, {name}" for name in names]
    assert list(contours) == [f"({label})" for label in labels]
    assert [len(points_of(plot.panels[0])["duck"].x) for plot in contours.values()] == [3, 2, 2]
    attacks = [plot.title for plot in found if plot.name.startswith("bench-attacks")]
    (title,) = attacks
    assert title.startswith("Attacks ")
    assert title.endswith(f" ({labels[1]})")
    # Compilation changes nothing that is learned.
    compiled = bench_line()
    compiled["experiment"]["training"]["recipe"]["compile"] = True
    assert bench([compiled])[0].group == results[0].group


def test_the_label_of_a_group_says_what_differs() -> None:
    standard, slow = Recipe(epochs=60), Recipe(epochs=300)
    groups = [Group("a", "vgg", slow), *[Group("a", "resnet18", standard)] * 2]
    labels = group_labels([*groups, Group("b", "resnet18", standard)])
    assert list(labels.values()) == ["a, resnet18", "a, vgg", "b"]
    rates = [Group("a", "vgg", replace(standard, lr=lr)) for lr in (0.1, 0.4)]
    expected = ["a, vgg, lr 0.1", "a, vgg, lr 0.4"]
    assert list(group_labels(rates).values()) == expected
    models = [Group("a", model, standard) for model in ("vgg", "resnet18")]
    assert list(group_labels(models).values()) == ["a, vgg", "a, resnet18"]
    assert list(group_labels(models[:1], name_model=True).values()) == ["a, vgg"]


def test_variants_are_not_mixed_with_their_method() -> None:
    lines = [bench_line(case=case) for case in (0, 1)]
    lines += [bench_line(case=case, variant="no forget loss", retain=0.5) for case in (0, 1)]
    plot = plots_runs.plot_time(make_series(bench(lines)))
    assert plot is not None
    found = {name: centres(mark.y) for name, mark in points_of(plot.panels[1]).items()}
    assert found == {"duck": [90], "duck, no forget loss": [50]}


def test_results_with_past_settings_are_left_out_where_there_are_others() -> None:
    past = bench_line(case=1, retain=0.1)
    past["experiment"]["method"]["lr"] = 0.123
    results = bench([bench_line(), bench_line(case=2), past])
    assert current_results(results) == results[:2]
    assert current_results(results[2:]) == results[2:]
    assert "only in this table" in render(Contents(bench=results))
    assert "only in this table" not in render(Contents(bench=results[:2]))


def test_curves_of_a_bench_show_no_rate_that_the_samples_cannot_and_no_settings_of_the_past() -> (
    None
):
    def curve(method: str, preset: str, on: str, others: int = 10_000) -> Result:
        request = ForgetFraction(0.1) if on == "samples" else None
        return attacked(method, preset, [0.0, 0.05, 1.0], [0.2, 0.5, 1.0], others, request)

    curves = [
        curve("duck", "paper", "1 class", 100),
        curve("duck", "tuned, other settings", "1 class", 100),
        *(curve("duck", preset, "samples", 10_000) for preset in ("tuned", "paper")),
        curve("retrained", "paper", "1 class"),
        curve("ssd", "tuned, other settings", "samples"),
    ]
    current = current_results(curves)
    assert current == [curves[0], *curves[2:]]
    plot = plots_attacks.plot_bench_attacks(make_series(current))
    assert plot is not None
    drawn = {
        panel.title: {mark.name: mark for mark in panel.marks if isinstance(mark, Line)}
        for panel in plot.panels
    }
    class_, samples = drawn["lira: cifar10, 1 class"], drawn["lira: cifar10, samples"]
    assert list(class_) == ["chance", "duck (paper)", "retrained"]
    assert list(samples) == ["chance", "duck", "duck (paper)", "ssd"]
    assert class_["duck (paper)"].dashed
    assert samples["duck (paper)"].dashed
    assert not samples["duck"].dashed
    lines = class_["duck (paper)"], class_["retrained"], samples["duck"]
    assert [line.x[0] for line in lines] == pytest.approx([0.01, 0.001, 0.001], abs=1e-6)


def test_clouds_are_thinned_and_the_forgotten_are_on_top(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run", analysis=True)])
    plot = plots_analysis.plot_features(stored, 100)
    assert plot is not None
    models = ("original", "unlearned", "retrained")
    assert [panel.title for panel in plot.panels] == [
        f"{model}, {split}" for split in ("train", "test") for model in models
    ]
    for panel in plot.panels:
        marks = [mark for mark in panel.marks if isinstance(mark, Points)]
        assert sum(len(mark.x) for mark in marks) == 100
        assert [mark.color == "ink" for mark in marks] == [False] * (len(marks) - 1) + [True]
        assert len(marks) == 10
        assert len(marks[-1].x) == 20
    assert "At most 100 points" in plot.caption
    assert "fewer runs" not in plot.caption
    assert plot.columns == 3


def test_where_there_is_little_room_only_clouds_of_training_are_drawn(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run", analysis=True)])
    plot = plots_analysis.plot_features(stored, 59)
    assert plot is not None
    assert [panel.title for panel in plot.panels] == [
        "original, train",
        "unlearned, train",
        "retrained, train",
    ]
    assert "A report on fewer runs" in plot.caption


@pytest.mark.parametrize("classes", [7, 10, 15])
def test_the_legend_names_the_classes_that_look_like_no_other(tmp_path: Path, classes: int) -> None:
    names = [f"c{index}" for index in range(classes)]
    (stored,) = read_runs([write_run(tmp_path / "run", names=names, analysis=True)])
    plot = plots_analysis.plot_features(stored, 500)
    assert plot is not None
    if classes > 14:
        assert plot.legend == {"forgotten": ("ink", "circle")}
    else:
        assert list(plot.legend) == [*(name for name in names if name != "c3"), "forgotten"]
        assert len(set(plot.legend.values())) == classes


def test_a_single_model_has_no_columns_to_keep(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run", analysis=True)])
    assert stored.analysis is not None
    tsne = {"unlearned": stored.analysis.tsne["unlearned"]}
    stored = replace(stored, analysis=replace(stored.analysis, tsne=tsne))
    plot = plots_analysis.plot_features(stored, 100)
    assert plot is not None
    assert (len(plot.panels), plot.columns) == (2, 0)


def test_densities_put_the_forgotten_class_first_and_bear_a_missing_value(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", analysis=True)
    found = json.loads((folder / "analysis.json").read_text())
    found["density"]["unlearned"]["train"]["3"] = None
    del found["density"]["retrained"]
    (folder / "analysis.json").write_text(json.dumps(found))
    (stored,) = read_runs([folder])
    plot = plots_analysis.plot_density(stored)
    assert plot is not None
    assert plot.panels[0].y.ticks[0] == "3 (forgotten)"
    assert list(plot.legend) == ["original", "unlearned"]
    mark = plot.panels[0].marks[1]
    assert isinstance(mark, Points)
    assert mark.x[0] is None


def test_shap_maps_of_an_image_share_their_scale_and_keep_their_sums(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", analysis=True)
    found = json.loads((folder / "analysis.json").read_text())
    big = [[0.25 if row < 2 and column < 2 else 0.0 for column in range(64)] for row in range(60)]
    maps = {"original": big, "unlearned": [[-0.5] * 4] * 4}
    image = shap_image(id="t1", title="3 (t1)", maps=maps)
    found["shap"] = {"images": [image] * 9}
    (folder / "analysis.json").write_text(json.dumps(found))
    (stored,) = read_runs([folder])
    plot = plots_analysis.plot_shap(stored)
    assert plot is not None
    assert len(plot.panels) == 6 * 2
    assert plot.columns == 2
    assert plot.panels[0].title == "3 (t1), original"
    first, second = plot.panels[0].marks[0], plot.panels[1].marks[0]
    assert isinstance(first, Cells)
    assert isinstance(second, Cells)
    assert (len(first.values), len(first.values[0])) == (30, 32)
    assert first.values[0][0] == 1.0
    assert first.full_value == second.full_value == 1.0


def test_what_was_not_stored_has_no_plot(tmp_path: Path) -> None:
    (stored,) = read_runs([write_run(tmp_path / "run")])
    assert set(plots_run.make_plots(stored, PageBudget(100))) == {"curves", "confusion", "classes"}


NOTHING, NAMES = Axis("", hidden=True), ["a", "$b"]
LINES = [
    Line("a $", [0, 1], [None, math.inf], "ink"),
    Line("", [0, 1], [1, 2], "muted", dashed=True),
]
LABELS = [Line("", [0, 1, 2], [0, 1, 2], "muted", label="<b> $1")]
CELLS = [Cells([[0.1, 0.9], [0.5, None]], [["1", "9"], ["", ""]])]
BANDS: list[Mark] = [
    Points("h", [1.0], [0.5], "#00FF00", hollow=True),
    Line("b", [0, 1], [0.1, 0.2], "#FF00FF"),
    Band("b", [0, 1], [0.001, 0.002], [0.5, 0.9], "#FF00FF"),
    Band("area", [0, 1], [0.9, 0.9], [1.0, 1.0], "ink"),
]
EVERY = Plot(
    "every-mark",
    "Costs $5^$ & <more>",
    "caption",
    "alt",
    [
        Panel("lines", LINES, Axis("x", -1, 2), Axis("y")),
        Panel(
            "points",
            [Points("p", [1, 20, None], [Estimate(1, 0, 2), Estimate(2), 3], "#0072B2")],
            Axis("s", 0.5, 40, log=True),
            Axis("y"),
        ),
        Panel("cells", CELLS, Axis("x", ticks=NAMES), Axis("y", ticks=NAMES, is_reversed=True)),
        Panel(
            "signed",
            [Cells([[-1.0, 2.0]], signed=True, full_value=2.0)],
            NOTHING,
            Axis("", -0.5, 0.5, is_reversed=True, hidden=True),
        ),
        Panel("bands", BANDS, Axis("x"), Axis("rate", 1e-3, 1, log=True)),
        Panel("labels", LABELS, Axis("x"), Axis("y", 0, 9, integers_only=True)),
    ],
)


def test_plain_json_without_infinities() -> None:
    made = [json.loads(json.dumps(to_plotly(panel), allow_nan=False)) for panel in EVERY.panels]
    assert made[0]["data"][0]["y"] == [None, None]
    assert made[1]["data"][0]["x"] == [1, 20, None]
    assert made[1]["data"][0]["error_y"]["array"] == [1, 0, 0]
    assert made[1]["data"][0]["error_y"]["arrayminus"] == [1, 0, 0]
    assert "error_x" not in made[1]["data"][0]
    assert made[1]["layout"]["xaxis"]["range"] == pytest.approx([math.log10(0.5), math.log10(40)])
    assert made[2]["layout"]["yaxis"]["range"] == [1.5, -0.5]
    assert made[3]["data"][0]["zmin"] == -made[3]["data"][0]["zmax"] == -2
    assert made[5]["layout"]["yaxis"]["dtick"] == 1
    assert made[5]["data"][0]["text"] == ["", "&lt;b&gt; $1", ""]


def test_bands_lie_under_all_else() -> None:
    legend = list(EVERY.legend)
    band, area, points, line = to_plotly(EVERY.panels[4], legend)["data"]
    assert band["fill"] == area["fill"] == "toself"
    assert (band["x"], band["y"]) == ([0, 1, 1, 0], [0.001, 0.002, 0.9, 0.5])
    assert band["opacity"] < 0.5
    assert area["fillcolor"] == "ink"
    # The name in the legend hides the line together with its band.
    assert band["meta"] == line["meta"] == legend.index("b")
    looks = {name: EVERY.legend[name][1] for name in ("b", "area", "h")}
    assert looks == {"b": "line", "area": "fill", "h": "circle-open"}
    assert points["marker"]["color"] == "paper"
    assert points["marker"]["line"]["color"] == "#00FF00"


def test_plotly_knows_every_property() -> None:
    for panel in EVERY.panels:
        text = json.dumps(to_plotly(panel))
        for name in ("ink", "muted", "paper"):
            text = text.replace(f'"{name}"', '"#123456"')  # as report.js does
        graph_objects.Figure(json.loads(text))


def test_log_axes_are_labelled_with_plain_numbers() -> None:
    assert Axis("s", 0.7, 40, log=True).log_ticks == [1, 2, 5, 10, 20]
    assert Axis("rate", 1e-3, 1, log=True).log_ticks == [0.001, 0.01, 0.1, 1]


def test_every_mark_is_drawn_for_print(tmp_path: Path) -> None:
    png, pdf = save_figure(EVERY, tmp_path)
    with Image.open(png) as image:
        colors = image.convert("RGB").getcolors(10**6)
    assert colors is not None
    assert len(colors) > 50
    # The band of magenta is 18 % of it on white, and large.
    counts = {color: count for count, color in colors}
    assert counts.get((255, 209, 255), 0) > 5000
    assert pdf.read_bytes().startswith(b"%PDF")
    again = save_figure(EVERY, tmp_path / "again")[1]
    assert again.read_bytes() == pdf.read_bytes()


def test_panels_of_one_row_stay_in_one_row_in_print(tmp_path: Path) -> None:
    sizes = {}
    for columns in (0, 4):
        image = Panel("image", [Cells([[1.0]], signed=True)], NOTHING, NOTHING, 230)
        with Image.open(
            save_figure(Plot(f"of-{columns}", "t", "c", "a", [image] * 8, columns), tmp_path)[0]
        ) as file:
            sizes[columns] = file.size
    # Two inches a side at 200 points an inch, and room for a title.
    assert sizes == {0: (1200, 1300), 4: (1600, 900)}


def test_four_panels_are_two_rows_of_two_in_print(tmp_path: Path) -> None:
    image = Panel("image", [Cells([[1.0]], signed=True)], NOTHING, NOTHING, 230)
    with Image.open(save_figure(Plot("four", "t", "c", "a", [image] * 4), tmp_path)[0]) as file:
        assert file.size == (800, 900)


def test_without_matplotlib_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"duck-unlearning\[figures\]"):
        save_figure(EVERY, tmp_path)
