"""The report: one HTML page about stored runs, and the same figures for print."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from duck import files
from duck.analysis.study import MAX_STORED_POINTS
from duck.report import plots_analysis, plots_bias, plots_run, plots_runs
from duck.report.bench_records import current_results, read_bench
from duck.report.matplotlib_figures import save_figure
from duck.report.page import render
from duck.report.page_budget import MAX_PAGE_BYTES, plan_budget
from duck.report.plots import REPORT_MARK, Plot
from duck.report.records import Contents, read, read_runs
from duck.report.samples import Sample, choose_forgotten_samples

__all__ = [
    "MAX_PAGE_BYTES",
    "REPORT_MARK",
    "Contents",
    "Sample",
    "choose_forgotten_samples",
    "draw_analysis",
    "read",
    "read_bench",
    "read_runs",
    "render",
    "write_figures",
    "write_report",
]


def write_report(path: Path, contents: Contents) -> Path:
    """Write the page and return its path. A file that is not a report is not replaced."""
    files.check_replaceable(path, REPORT_MARK.encode())
    files.write_text(path, render(contents))
    return path


def write_figures(folder: Path, contents: Contents) -> list[Path]:
    """Write every plot of the page as PNG and PDF and return the paths."""
    budget = plan_budget(contents)
    plots: list[Plot | None] = [
        *plots_runs.make_plots(contents.runs, current_results(contents.results))
    ]
    for run in contents.runs:
        plots += plots_run.make_plots(run, budget).values()
    if len(contents.removals) > 1:
        plots.append(plots_bias.plot_shares(contents.removals, "bias-shares"))
    for removal in contents.removals:
        plots += plots_bias.make_plots(removal, budget.shap_images).values()
    return _save(plots, folder)


def _save(plots: Iterable[Plot | None], folder: Path) -> list[Path]:
    return [path for plot in plots if plot is not None for path in save_figure(plot, folder)]


def draw_analysis(
    folders: Sequence[Path], target: Path, say: Callable[[str], None] = lambda message: None
) -> list[Path]:
    """Write the figures of the analyses in run folders as PNG and PDF; return the files.

    The figures of several runs are in a folder for each.
    """
    runs = read_runs(folders)
    paths: list[Path] = []
    for run in runs:
        if run.withheld_shap_images:
            say(
                f"{run.folder}: no figure of the SHAP maps of forgotten training images: they show "
                "what was to be forgotten."
            )
        plots = (
            plots_analysis.plot_features(run, MAX_STORED_POINTS),
            plots_analysis.plot_density(run),
            plots_analysis.plot_shap(run),
        )
        name = run.result.name.replace("/", "-")
        paths += _save(plots, target if len(runs) == 1 else target / name)
    return paths
