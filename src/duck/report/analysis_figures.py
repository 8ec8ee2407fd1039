"""The figures of an analysis as files for print."""

from collections.abc import Callable
from pathlib import Path

from duck.analysis.study import MAX_STORED_POINTS
from duck.report import matplotlib_figures, plots_analysis, records


def draw_analysis(
    folder: Path, target: Path, say: Callable[[str], None] = lambda message: None
) -> list[Path]:
    """Write the figures of the analysis in a run folder as PNG and PDF; return the files."""
    (run,) = records.read_runs([folder])
    if run.withheld_shap_images:
        say(
            f"{folder}: no figure of the SHAP maps of forgotten training images: they show what "
            "was to be forgotten."
        )
    plots = (
        plots_analysis.plot_features(run, MAX_STORED_POINTS),
        plots_analysis.plot_density(run),
        plots_analysis.plot_shap(run),
    )
    paths: list[Path] = []
    for plot in plots:
        if plot is not None:
            paths += matplotlib_figures.save_figure(plot, target)
    return paths
