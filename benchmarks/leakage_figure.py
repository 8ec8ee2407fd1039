"""Draw leakage against time, with the frontier of the variants that keep their accuracy.

    python benchmarks/leakage_figure.py benchmarks/results/leakage.jsonl docs/figures/leakage.svg

There is a panel for each pool and kind of request in the file. A filled marker is a variant whose
accuracy is at most a point below that of the retrained models. The line joins those of them that
no other beats in both leakage and time. The grey band is the attack on retrained models alone.
"""

from itertools import accumulate
from pathlib import Path

import matplotlib
from leakage import RETRAINED
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from result_files import Row, create_parser, read

from duck import files

MAX_LOSS = 0.01
"""Accuracy below that of retrained models that still counts as kept."""
TICKS = (3, 10, 30, 100)
"""Percent of the time of retraining."""
STYLES = {"warm-restart": ("o", "#0072B2"), "duck": ("s", "#D55E00"), "": ("^", "#767676")}
"""Marker and colour by method; the last one is for all others."""
LABELS = {"warm-restart": "warm restart", "duck": "DUCK", "": "others"}


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("figure", type=Path)
    args = parser.parse_args()
    panels: dict[str, list[Row]] = {}
    for row in read(args.results):
        panels.setdefault(row["name"].rpartition(": ")[0], []).append(row)
    # Studies with retrained models and originals alone have nothing to draw.
    drawn = [rows for rows in panels.values() if len(rows) > 2]
    # Text as text and no date: a small file that is the same for the same results.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "duck", "font.size": 8}):
        figure = draw(drawn)
        with files.writing(args.figure) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})


def draw(panels: list[list[Row]]) -> Figure:
    """Return the figure with a panel for each group of results."""
    figure = Figure(figsize=(3.2 * len(panels), 3.0), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, rows in zip(axes, panels, strict=True):
        draw_panel(axis, rows)
    axes[0].set_ylabel("leak AUC")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def draw_panel(axis: Axes, rows: list[Row]) -> None:
    """Draw the variants of one pool, without the originals, which take no time."""
    (band,) = [row["auc_band"] for row in rows if row["variant"] == RETRAINED]
    # Without a time of its own a variant has no place.
    variants = [row for row in rows if row["variant"] != RETRAINED and row.get("alone", True)]
    original = [row["auc"]["value"] for row in variants if row["method"]["name"] == "original"]
    variants = [row for row in variants if row["method"]["name"] != "original"]
    axis.axhspan(band["low"], band["high"], color="#DDDDDD", zorder=0)
    for value in original:
        axis.axhline(value, color="#000000", linestyle=":", linewidth=0.8)
    for method, (marker, color) in STYLES.items():
        chosen = [row for row in variants if family(row) == method]
        for is_kept in (True, False):
            part = [row for row in chosen if keeps_accuracy(row) == is_kept]
            axis.scatter(
                [100 * row["time_share"] for row in part],
                [row["auc"]["value"] for row in part],
                marker=marker,
                s=22,
                facecolors=color if is_kept else "none",
                edgecolors=color,
                label=LABELS[method] if is_kept else None,
            )
    line = frontier([row for row in variants if keeps_accuracy(row)])
    axis.plot(
        [100 * row["time_share"] for row in line],
        [row["auc"]["value"] for row in line],
        color="#000000",
        linewidth=0.8,
        zorder=0,
    )
    axis.set_xscale("log")
    axis.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axis.minorticks_off()
    axis.set_xlabel("time, % of retraining")
    axis.set_title(f"{rows[0]['data']}, {rows[0]['kind']}, n = {rows[0]['models']}")


def family(row: Row) -> str:
    name: str = row["method"]["name"]
    return name if name in STYLES else ""


def keeps_accuracy(row: Row) -> bool:
    """Return whether a variant is at most a point less accurate than retrained models."""
    loss: float = row["accuracy_retrained"]["mean"] - row["accuracy"]["mean"]
    return loss <= MAX_LOSS


def frontier(rows: list[Row]) -> list[Row]:
    """Return the rows that leak less than all faster ones, fastest first."""
    ordered = sorted(rows, key=lambda row: float(row["time_share"]))
    lowest = accumulate((row["auc"]["value"] for row in ordered), min, initial=float("inf"))
    return [
        row for row, before in zip(ordered, lowest, strict=False) if row["auc"]["value"] < before
    ]


if __name__ == "__main__":
    main()
