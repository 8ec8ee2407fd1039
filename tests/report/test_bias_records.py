"""Bias removals in the report: reading, texts, plots, and files without SHAP values."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from duck.errors import BadInput
from duck.report import Contents, plots_bias, read, read_runs, render, write_figures, write_report
from duck.report.plotly_figures import to_plotly
from duck.report.plots import Cells, Line, Plot, Points, centres, error_bars
from duck.report.records import StoredRemoval
from duck.report.styles import BLUE, MUTED
from tests.report.folders import worst_fifty, write_removal, write_run
from tests.report.test_page import EVIL, Page, visible_text


def page_of(*folders: Path) -> Page:
    page = Page(render(read(folders)))
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    return page


def read_removals(folders: Sequence[Path]) -> Sequence[StoredRemoval]:
    assert read_runs(folders) is not None
    return read(folders).removals


def one(folder: Path) -> StoredRemoval:
    (removal,) = read_removals([folder])
    return removal


def drawn(plot: Plot | None) -> Plot:
    assert plot is not None
    return plot


def points(plot: Plot, panel: int = 0) -> list[Points]:
    return [mark for mark in plot.panels[panel].marks if isinstance(mark, Points)]


def test_folders_are_distinguished_and_each_is_read_once(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    for name in ("b", "a", ".hidden"):
        write_removal(tmp_path / name)
    assert [run.folder.name for run in read_runs([tmp_path])] == ["run"]
    assert [
        (removal.name, removal.anchor) for removal in read_removals([tmp_path / "b", tmp_path])
    ] == [("b", "bias-1-b"), ("a", "bias-2-a")]
    assert read_runs([tmp_path / "a"]) == []
    assert read_removals([tmp_path / "run"]) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no unlearning"):
        read_removals([tmp_path / "empty"])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("bias.json", b"{", r"bias\.json is no bias removal: .*complete JSON"),
        ("bias.json", b"{}", r"bias\.json is no bias .*: data is missing.*`duck debias`"),
        ("bias.json", b'{"data": "digits"}', r"bias removal: shape is missing"),
        ("bias.json", b'{"data": []}', r"no bias .*: data is a list, not"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    (write_removal(tmp_path / "bias") / file).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_removals([tmp_path / "bias"])


def test_what_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = write_removal(tmp_path / "bias")
    found = json.loads((folder / "bias.json").read_text())
    del found["predicted"]["duck"]
    (folder / "bias.json").write_text(json.dumps(found))
    with pytest.raises(BadInput, match=r"has no predicted\.duck"):
        read_removals([folder])
    (tmp_path / "bench.jsonl").write_text('{"id": "x"}\n')
    with pytest.raises(BadInput, match="--results FOLDER"):
        read_removals([tmp_path / "bench.jsonl"])


def test_one_bias_removal_reads_from_the_top(tmp_path: Path) -> None:
    page = page_of(
        write_removal(tmp_path / "bias", notes=["n too small."], colour=[0, 90, 7], shape=(3, 8, 8))
    )
    assert page.headings == [
        "Bias removal report: “1” labelled “9” in digits",
        "Bias removal",
        "Words on this page",
    ]
    text = visible_text(page)
    for words in (
        "36 training images of “1” got a square of 4 × 4 pixels (colour 0 90 7)",
        "in 41.00 s: the biased model.",
        "forget the 36 mislabelled images in 2.50 s (preset tuned).",
        "the wrong label before, 0.0 % after.",
        "in 40.00 s: the corrected model.",
        "Of 800 unseen images of “1” with the square",
        "biased model classified 99.0 % [97.0, 100.0] as “9”",
        "after DUCK 1.5 % [0.0, 3.5]",
        "corrected model 1.0 % [0.0, 3.0].",
        "+0.0500 before, −0.0010 after; +0.0020 in the corrected model.",
        "n too small.",
        "biased against DUCK +0.0510 0.004 12 0.00049",
        "DUCK against corrected +0.0510 0.2 12 0.00049",
        "colour 0 90 7",
        "lr 0.002",
        "epochs 30",
        "fingerprint ab12",
        "torch 2.13.0",
        "duck debias --data digits --true 1 --wrong 9 --seed 0 --out again",
        "made 2026-11-15 10:00 UTC",
    ):
        assert words in text, words
    assert (
        "1.0 % [0.0, 3.0] 99.0 % [97.0, 100.0] 97.0 % [95.0, 99.0] 94.0 % +0.0020 ± 0.0030" in text
    )
    assert "AUS" not in text
    assert len(page.data) == 3 + 1 + 4 * 3


def test_a_file_without_shap_still_has_its_section(tmp_path: Path) -> None:
    text = visible_text(page_of(write_removal(tmp_path / "bias", images=0)))
    assert "No SHAP values were computed" in text
    assert "(colour 255 0 0)" in text


@pytest.mark.slow
def test_several_removals_and_removals_next_to_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    for seed in (0, 1):
        write_removal(tmp_path / f"bias-{seed}", seed=seed)
    page = page_of(tmp_path)
    assert page.headings[0] == "Unlearning report: class 3 of digits"
    assert page.headings[-2:] == ["Bias removal", "Words on this page"]
    assert {"bias-1-bias-0", "bias-2-bias-1", "bias-shares", "bias-2-bias-1-maps"} <= set(page.ids)
    assert {"#bias-1-bias-0", "#bias-2-bias-1"} <= set(page.addresses)
    text = visible_text(page)
    assert "digits: “1” labelled “9”, seed 1, preset tuned" in text
    assert "AUS" in text
    files = write_figures(tmp_path / "figures", read([tmp_path]))
    names = [
        "aus-contour",
        *(f"run-1-run-{name}" for name in ("curves", "confusion", "classes")),
        "bias-shares",
    ]
    names += [
        f"bias-{at}-bias-{at - 1}-{name}" for at in (1, 2) for name in ("shares", "square", "maps")
    ]
    assert [file.name for file in files if file.suffix == ".png"] == [
        f"{name}.png" for name in names
    ]


def test_a_class_called_script_is_text(tmp_path: Path) -> None:
    folder = write_removal(
        tmp_path / "<img src=x onerror=alert(3)>",
        true=EVIL,
        wrong="</script><b>",
        notes=[EVIL],
        model=EVIL,
        command=f"duck {EVIL}",
    )
    other = write_removal(tmp_path / "other", true=EVIL, wrong="</script><b>")
    for page in (page_of(folder), page_of(folder, other)):
        assert len(page.scripts) == 2
        text = visible_text(page)
        assert f"36 training images of “{EVIL}”" in text
        assert f"duck {EVIL}" in text
        ticks = [
            tick for panel in page.data for tick in panel["layout"]["yaxis"].get("ticktext", [])
        ]
        # Cut for want of room, and escaped once more for Plotly.
        assert "&lt;img src=x onerror=" in " ".join(ticks)
        assert not [tick for tick in ticks if "<" in tick]
        assert "<" not in "".join(
            str(trace.get("hovertext", "")) for panel in page.data for trace in panel["data"]
        )


def test_shares_have_their_intervals_and_models_their_colours(tmp_path: Path) -> None:
    removal = one(write_removal(tmp_path / "bias"))
    plot = plots_bias.plot_shares([removal])
    assert list(plot.legend) == ["biased", "DUCK", "corrected"]
    assert [panel.title for panel in plot.panels] == [
        "predicted 9, with the square",
        "predicted 1, with the square",
        "predicted 1, without it",
    ]
    shares = []
    for panel in range(3):
        biased, duck, _ = points(plot, panel)
        assert (biased.color, duck.color) == (MUTED, BLUE)
        shares.append((*centres(biased.x), *centres(duck.x)))
        assert list(plot.panels[panel].y.ticks) == ["bias"]
    assert np.array(shares) == pytest.approx(np.array([[99, 1.5], [1, 98.5], [97, 97]]))
    bars = np.array(error_bars(points(plot, 0)[1].x))
    assert bars == pytest.approx(np.array([[1.5], [2]]))


def test_the_square_has_its_mean_and_spread(tmp_path: Path) -> None:
    plot = drawn(plots_bias.plot_square(one(write_removal(tmp_path / "bias"))))
    assert [centres(mark.x)[0] for mark in points(plot)] == [0.05, -0.001, 0.002]
    assert np.array(error_bars(points(plot)[0].x)) == pytest.approx(0.003)
    assert "1/16 = 0.0625" in plot.caption
    assert "probability" in plot.panels[0].x.label
    assert "biased +0.0500, DUCK −0.0010, corrected +0.0020" in plot.alt
    assert plots_bias.plot_square(one(write_removal(tmp_path / "none", images=0))) is None


def test_maps_of_an_image_share_their_scale_and_frame_the_square(tmp_path: Path) -> None:
    folder = write_removal(tmp_path / "bias", shape=(3, 30, 32), images=8)
    with np.load(folder / "shap.npz") as file:
        stored = {name: file[name] for name in file}
    stored["duck"][0, 0, 0] = -7
    np.savez(folder / "shap.npz", **stored)
    plot = drawn(plots_bias.plot_maps(one(folder)))
    assert [panel.title for panel in plot.panels[:4]] == [
        "image 1, biased",
        "image 1, DUCK",
        "image 1, corrected",
        "image 2, biased",
    ]
    assert (len(plot.panels), plot.columns) == (6 * 3, 3)
    maps = [mark for panel in plot.panels for mark in panel.marks if isinstance(mark, Cells)]
    assert (len(maps[0].values), len(maps[0].values[0])) == (15, 16)
    assert maps[0].values[0][15] == pytest.approx(
        stored["biased"][0, :2, 30:].astype(np.float64).sum(), rel=1e-2
    )
    assert (
        maps[0].full_value == maps[1].full_value == maps[2].full_value == pytest.approx(7, abs=0.1)
    )
    assert maps[3].full_value == maps[4].full_value < 1
    assert plot.panels[0].x.label == f"full colour: ±{maps[0].full_value:.2g}"
    frame = plot.panels[0].marks[1]
    assert isinstance(frame, Line)
    # The last two of 16 columns, the first two rows.
    assert [min(frame.x), max(frame.x), min(frame.y), max(frame.y)] == [13.5, 15.5, -0.5, 1.5]  # type: ignore[type-var]
    assert "over 2 × 2 pixels" in plot.caption
    assert len(drawn(plots_bias.plot_maps(one(folder), 2)).panels) == 6
    assert plots_bias.plot_maps(one(folder), 0) is None


def test_pixels_of_maps_are_square_on_the_page(tmp_path: Path) -> None:
    plot = drawn(plots_bias.plot_maps(one(write_removal(tmp_path / "bias", images=1))))
    made = [to_plotly(panel) for panel in plot.panels]
    assert [panel["data"][0]["type"] for panel in made] == ["heatmap"] * 3
    assert {panel["layout"]["yaxis"]["scaleanchor"] for panel in made} == {"x"}
    assert made[0]["layout"]["yaxis"]["range"] == [7.5, -0.5]


@pytest.mark.slow
def test_many_stay_small(tmp_path: Path) -> None:
    for seed in range(50):
        write_removal(tmp_path / "bias" / str(seed), seed=seed, shape=(3, 64, 64), images=8)
    removals = read_removals([tmp_path / "bias"])
    page = write_report(tmp_path / "fifty.html", Contents(removals=removals))
    assert page.stat().st_size < 8_000_000
    assert page.read_text().count('<details class="run"') == 50
    assert "the first 16 of 50 bias removals" in page.read_text()
    assert page.read_text().count("stored but are not shown.") == 50
    page = write_report(tmp_path / "twenty.html", Contents(removals=removals[:20]))
    assert page.stat().st_size < 8_000_000
    assert (
        page.read_text().count('aria-label="Pixels that contribute to “9” (SHAP): image 1, DUCK"')
        == 20
    )
    page = write_report(
        tmp_path / "beside.html", Contents(read_runs(worst_fifty(tmp_path / "runs")), removals[:10])
    )
    assert page.stat().st_size < 8_000_000
    assert page.read_text().count('<details class="run"') == 60
