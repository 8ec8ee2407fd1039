"""Plots as data: what is drawn where, and the same in both renderings."""

import json
import math
import sys
from pathlib import Path

import pytest
from PIL import Image

from duck.metrics import aus
from duck.report import Curve, of_run, of_runs, read
from duck.report.interactive import figure
from duck.report.plots import Axis, Cells, Heights, Line, Panel, Picture, Plot, Points, log_ticks
from duck.report.printed import save
from duck.scenarios import ForgetClasses
from tests.report.folders import fifty, write_run


def test_curves_begin_with_the_original(tmp_path: Path) -> None:
    (stored,) = read([write_run(tmp_path / "run")])
    plot = of_run.curves(stored)
    assert plot is not None
    forget = plot.panels[0].marks[0]
    assert isinstance(forget, Line)
    assert list(forget.y) == pytest.approx([99, 40, 2, 0, 0])
    assert "goes from 99.0 % to 0.0 %" in plot.alt
    # A dotted line between the second and the third epoch, where the phase changes.
    assert plot.panels[0].marks[-1] == Line("", [2.5, 2.5], [0, 100], "muted", dashed=True)


def test_long_names_are_cut_beside_axes(tmp_path: Path) -> None:
    (stored,) = read([write_run(tmp_path / "run", names=["x" * 26, "y" * 25, *"23456789"])])
    plot = of_run.confusion(stored)
    assert plot is not None
    assert list(plot.panels[0].x.ticks[:3]) == ["x" * 24 + "…", "y" * 25, "2"]


def test_confusion_shows_counts_and_shares_of_rows(tmp_path: Path) -> None:
    (stored,) = read([write_run(tmp_path / "run")])
    plot = of_run.confusion(stored)
    assert plot is not None
    for panel, name in zip(plot.panels, ("original", "unlearned"), strict=True):
        (cells,) = panel.marks
        assert isinstance(cells, Cells)
        for true, row in stored.run.by_class[name].items():
            assert [cells.texts[int(true)][int(seen)] for seen in row] == [str(count) for count in row.values()]
        assert [sum(value or 0 for value in row) for row in cells.values] == pytest.approx([1.0] * 10)
        assert panel.y.down


def test_the_contour_is_that_of_aus_and_runs_lie_on_their_own_height(tmp_path: Path) -> None:
    runs = read([write_run(tmp_path / "duck"), write_run(tmp_path / "original", "original", seed=2)])
    plot = of_runs.contour([run.entry for run in runs])
    assert plot is not None
    heights, *marks = plot.panels[0].marks
    assert isinstance(heights, Heights)
    assert heights.z[0][0] == pytest.approx(aus("class", 0.5, 0.5 - heights.y[0] / 100, heights.x[0] / 100))
    assert heights.z[-1][-1] == pytest.approx(aus("class", 0.5, 0.5 - heights.y[-1] / 100, heights.x[-1] / 100))
    for mark, run in zip(marks, runs, strict=True):
        assert isinstance(mark, Points)
        delta, drop = mark.x[0], mark.y[0]
        assert delta is not None
        assert drop is not None
        assert (1 - drop / 100) / (1 + delta / 100) == pytest.approx(run.entry.scores["aus"])
        assert heights.x[0] <= delta <= heights.x[-1]
        assert heights.y[0] <= drop <= heights.y[-1]


def test_time_leaves_the_original_out(tmp_path: Path) -> None:
    runs = read([write_run(tmp_path / name, name, seed=at) for at, name in enumerate(("duck", "original", "retrained"))])
    plot = of_runs.against_time([run.entry for run in runs])
    assert plot is not None
    assert list(plot.legend) == ["duck", "retrained"]
    assert of_runs.against_time([runs[0].entry]) is None


def test_many_classes_are_means_over_runs(tmp_path: Path) -> None:
    requests = [ForgetClasses([3]), ForgetClasses([4]), ForgetClasses([1, 2])]
    entries = [read([write_run(tmp_path / str(at), request=request, seed=at)])[0].entry for at, request in enumerate(requests)]
    plot = of_runs.many_classes(entries)
    assert plot is not None
    points = plot.panels[0].marks[1]
    assert isinstance(points, Points)
    one, other = (entry.scores["aus"] or 0 for entry in entries[:2])
    assert list(points.x) == [1, 2]
    assert points.y[0] == pytest.approx((one + other) / 2)
    assert points.y_interval is not None
    assert points.y_interval[1][0] == pytest.approx((one + other) / 2 + abs(one - other) / math.sqrt(2))
    assert of_runs.many_classes(entries[:2]) is None


def test_no_two_methods_look_alike(tmp_path: Path) -> None:
    looks = of_runs.look([run.entry.method for run in read(fifty(tmp_path)[:15])])
    assert len(looks) == 15
    assert len(set(looks.values())) == 15


def test_each_attack_has_its_curves_for_all_and_for_low_rates(tmp_path: Path) -> None:
    (stored,) = read([write_run(tmp_path / "run", verdict="forgotten")])
    assert stored.audit is not None
    stored.audit["roc"]["loss"] = {"unlearned": {"fpr": [0, 0.5, 1], "tpr": [0, 0.25, 1]}}
    plot = of_run.attacks(stored)
    assert plot is not None
    parts = ("all thresholds", "few false alarms")
    assert [panel.title for panel in plot.panels] == [f"{attack}: {part}" for attack in ("svm", "loss") for part in parts]
    assert [panel.x.log for panel in plot.panels] == [False, True] * 2
    assert list(plot.legend) == ["original", "unlearned", "retrained", "chance"]
    mark = plot.panels[2].marks[0]
    assert isinstance(mark, Line)
    assert (list(mark.x), list(mark.y)) == ([0, 0.5, 1], [0, 0.25, 1])
    thinned = of_run.attacks(stored, 20)
    assert thinned is not None
    assert [panel.title for panel in thinned.panels] == ["svm: few false alarms", "loss: few false alarms"]
    mark = thinned.panels[0].marks[0]
    assert isinstance(mark, Line)
    assert len(mark.x) == len(mark.y) == 20
    assert (mark.x[0], mark.x[-1]) == pytest.approx((1e-3, 1))


def test_attacks_of_a_bench_are_means_over_cases(tmp_path: Path) -> None:
    straight, better = ([0.0, 1.0], [0.0, 1.0]), ([0.0, 0.1, 1.0], [0.0, 0.5, 1.0])
    curves = [
        *(Curve("lira", "cifar10, a class", "duck", preset, *points) for preset in ("paper", "tuned") for points in (straight, better)),
        Curve("lira", "cifar10, a class", "retrained", "paper", *straight),
        Curve("confidence", "cifar10, samples", "duck", "tuned", *better),
    ]
    plot = of_runs.benched(curves)
    assert plot is not None
    assert [panel.title for panel in plot.panels] == ["lira: cifar10, a class", "confidence: cifar10, samples"]
    assert list(plot.legend) == ["chance", "duck (paper)", "duck (tuned)", "retrained", "duck"]
    named = {mark.name: mark for mark in plot.panels[0].marks if isinstance(mark, Line)}
    assert (named["duck (paper)"].dashed, named["duck (tuned)"].dashed) == (True, False)
    assert [plot.legend[name][1] for name in ("chance", "duck (paper)", "duck (tuned)")] == ["dots", "dots", "line"]
    (tenth,) = (y for x, y in zip(named["duck (tuned)"].x, named["duck (tuned)"].y, strict=True) if x == pytest.approx(0.1))
    assert tenth == pytest.approx((0.1 + 0.5) / 2)
    assert list(named["retrained"].y) == pytest.approx(list(named["retrained"].x))
    assert "6 attacked models" in plot.alt
    assert of_runs.benched([]) is None
    assert "bench" in of_runs.plots([], [], curves)


def test_clouds_are_thinned_and_the_forgotten_are_on_top(tmp_path: Path) -> None:
    (stored,) = read([write_run(tmp_path / "run", analysis=True)])
    plot = of_run.features(stored, 50)
    assert plot is not None
    models = ("original", "unlearned", "retrained")
    assert [panel.title for panel in plot.panels] == [f"{model}, {split}" for split in ("train", "test") for model in models]
    for panel in plot.panels:
        marks = [mark for mark in panel.marks if isinstance(mark, Points)]
        assert sum(len(mark.x) for mark in marks) == 50
        assert [mark.color == "ink" for mark in marks] == [False] * (len(marks) - 1) + [True]
        assert len(marks) == 10
        assert len(marks[-1].x) == 20
    assert "At most 50 points" in plot.caption
    assert plot.legend["retained (a colour for each class)"] == ("muted", "circle")


def test_densities_put_the_forgotten_class_first_and_bear_a_missing_value(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", analysis=True)
    found = json.loads((folder / "analysis.json").read_text())
    found["density"]["unlearned"]["train"]["3"] = None
    del found["density"]["retrained"]
    (folder / "analysis.json").write_text(json.dumps(found))
    (stored,) = read([folder])
    plot = of_run.density(stored)
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
    image = {"id": "t1", "title": "3 (t1)", "maps": {"original": big, "unlearned": [[-0.5] * 4] * 4}}
    found["shap"] = {"images": [image] * 9}
    (folder / "analysis.json").write_text(json.dumps(found))
    (stored,) = read([folder])
    plot = of_run.shap(stored)
    assert plot is not None
    assert len(plot.panels) == 6 * 2
    assert plot.panels[0].title == "3 (t1), original"
    first, second = plot.panels[0].marks[0], plot.panels[1].marks[0]
    assert isinstance(first, Cells)
    assert isinstance(second, Cells)
    assert (len(first.values), len(first.values[0])) == (30, 32)
    assert first.values[0][0] == 1.0
    assert first.most == second.most == 1.0


def test_what_was_not_stored_has_no_plot(tmp_path: Path) -> None:
    (stored,) = read([write_run(tmp_path / "run")])
    assert set(of_run.plots(stored, 100)) == {"curves", "confusion", "classes"}


NOTHING, NAMES = Axis("", hidden=True), ["a", "$b"]
LINES = [Line("a $", [0, 1], [None, math.inf], "ink"), Line("", [0, 1], [1, 2], "muted", dashed=True)]
CELLS = [Cells([[0.1, 0.9], [0.5, None]], [["1", "9"], ["", ""]])]
EVERY = Plot(
    "every-mark",
    "Costs $5^$ & <more>",
    "caption",
    "alt",
    [
        Panel("lines", LINES, Axis("x", -1, 2), Axis("y")),
        Panel("points", [Points("p", [1, 20], [1, 2], "#0072B2", y_interval=([0, None], [2, 3]))], Axis("s", 0.5, 40, log=True), Axis("y")),
        Panel("cells", CELLS, Axis("x", ticks=NAMES), Axis("y", ticks=NAMES, down=True)),
        Panel("signed", [Cells([[-1.0, 2.0]], signed=True, most=2.0)], NOTHING, Axis("", -0.5, 0.5, down=True, hidden=True)),
        Panel("picture", [Picture([[[255, 0, 0], [0, 128, 255]]])], NOTHING, Axis("", -0.5, 0.5, down=True, hidden=True)),
        Panel("heights", [Heights([0, 1], [0, 1], [[0, 1], [1, 2]], 0.5, "AUS")], Axis("x"), Axis("y", 0, 9, whole=True)),
    ],
)


def test_plain_json_without_infinities() -> None:
    made = [json.loads(json.dumps(figure(panel), allow_nan=False)) for panel in EVERY.panels]
    assert made[0]["data"][0]["y"] == [None, None]
    assert made[1]["data"][0]["error_y"]["array"] == [1, 1]
    assert made[1]["data"][0]["error_y"]["arrayminus"] == [1, None]
    assert made[1]["layout"]["xaxis"]["range"] == pytest.approx([math.log10(0.5), math.log10(40)])
    assert made[2]["layout"]["yaxis"]["range"] == [1.5, -0.5]
    assert made[3]["data"][0]["zmin"] == -made[3]["data"][0]["zmax"] == -2
    assert made[4]["data"][0]["z"] == [[[255, 0, 0], [0, 128, 255]]]
    assert made[5]["layout"]["yaxis"]["dtick"] == 1


def test_log_axes_are_labelled_with_plain_numbers() -> None:
    assert log_ticks(Axis("s", 0.7, 40, log=True)) == [1, 2, 5, 10, 20]
    assert log_ticks(Axis("rate", 1e-3, 1, log=True)) == [0.001, 0.01, 0.1, 1]


def test_every_mark_is_drawn_for_print(tmp_path: Path) -> None:
    png, pdf = save(EVERY, tmp_path)
    with Image.open(png) as image:
        colors = image.convert("RGB").getcolors(10**6)
    assert colors is not None
    assert len(colors) > 50
    assert {(255, 0, 0), (0, 128, 255)} <= {color for _, color in colors}
    assert pdf.read_bytes().startswith(b"%PDF")
    again = save(EVERY, tmp_path / "again")[1]
    assert again.read_bytes() == pdf.read_bytes()


def test_panels_that_belong_beside_each_other_do_so_in_print(tmp_path: Path) -> None:
    sizes = {}
    for columns in (0, 4):
        picture = Panel("picture", [Picture([[[0, 0, 0]]])], NOTHING, NOTHING, 230)
        with Image.open(save(Plot(f"of-{columns}", "t", "c", "a", [picture] * 8, columns), tmp_path)[0]) as image:
            sizes[columns] = image.size
    # Two inches a side at 200 points an inch, and room for a title.
    assert sizes == {0: (1200, 1300), 4: (1600, 900)}


def test_without_matplotlib_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"duck-unlearning\[figures\]"):
        save(EVERY, tmp_path)
