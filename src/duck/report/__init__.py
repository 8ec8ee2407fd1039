"""The report: one HTML page about stored runs, and the same figures for print."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from duck import files
from duck.report import plots_bias, plots_run, plots_runs
from duck.report.bench_records import (
    AttackCurve,
    ClassDensities,
    read_bench_curves,
    read_bench_densities,
    read_bench_results,
)
from duck.report.bias_records import StoredRemoval, read_removals, scan_removals
from duck.report.matplotlib_figures import save_figure
from duck.report.page import file_problems, render
from duck.report.page_budget import MAX_PAGE_BYTES, plan_budget
from duck.report.plots import REPORT_MARK, Plot
from duck.report.records import ReadProblem, StoredRun, read_runs, scan_runs
from duck.report.results import Result
from duck.report.samples import Sample, choose_forgotten_samples

__all__ = [
    "MAX_PAGE_BYTES",
    "REPORT_MARK",
    "AttackCurve",
    "ClassDensities",
    "ReadProblem",
    "Result",
    "Sample",
    "StoredRemoval",
    "StoredRun",
    "choose_forgotten_samples",
    "file_problems",
    "read_bench_curves",
    "read_bench_densities",
    "read_bench_results",
    "read_removals",
    "read_runs",
    "render",
    "scan_removals",
    "scan_runs",
    "write_figures",
    "write_report",
]


def write_report(
    path: Path,
    runs: Sequence[StoredRun],
    bench_results: Sequence[Result] = (),
    samples: Mapping[str, Sequence[Sample]] | None = None,
    removals: Sequence[StoredRemoval] = (),
    curves: Sequence[AttackCurve] = (),
    problems: Sequence[ReadProblem] = (),
    densities: Sequence[ClassDensities] = (),
) -> Path:
    """Write the page and return its path. A file that is not a report is not replaced."""
    files.check_replaceable(path, REPORT_MARK.encode())
    page = render(runs, bench_results, samples, removals, curves, problems, densities)
    files.write_text(path, page)
    return path


def write_figures(
    folder: Path,
    runs: Sequence[StoredRun],
    bench_results: Sequence[Result] = (),
    removals: Sequence[StoredRemoval] = (),
    curves: Sequence[AttackCurve] = (),
    densities: Sequence[ClassDensities] = (),
) -> list[Path]:
    """Write every plot of the page as PNG and PDF and return the paths."""
    results = [*(run.result for run in runs), *bench_results]
    budget = plan_budget(runs, removals)
    plots: list[Plot] = plots_runs.make_plots(results, runs, curves, densities)
    for run in runs:
        plots += plots_run.make_plots(run, budget).values()
    overview = plots_bias.plot_all_shares(removals)
    if overview is not None:
        plots.append(overview)
    for removal in removals:
        plots += plots_bias.make_plots(removal, budget.shap_images).values()
    paths: list[Path] = []
    for plot in plots:
        paths += save_figure(plot, folder)
    return paths
