"""What was asked, what was done and what shows it: one page for a reader, and the same figures for print."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from duck import files
from duck.report import plots_bias, plots_run, plots_runs
from duck.report.bench_records import Curve, Density, of_attacks, of_densities, of_lines
from duck.report.bias_records import Removal, read_removals, survey_removals
from duck.report.matplotlib_figures import save
from duck.report.page import SIZE, budget, files_unread, render
from duck.report.plots import MARK
from duck.report.records import Entry, Stored, Unread, read, survey
from duck.report.samples import Sample, forgotten_samples

__all__ = [
    "MARK",
    "SIZE",
    "Curve",
    "Density",
    "Entry",
    "Removal",
    "Sample",
    "Stored",
    "Unread",
    "files_unread",
    "forgotten_samples",
    "of_attacks",
    "of_densities",
    "of_lines",
    "read",
    "read_removals",
    "render",
    "survey",
    "survey_removals",
    "write_figures",
    "write_report",
]


def write_report(
    path: Path,
    runs: Sequence[Stored],
    lines: Sequence[Entry] = (),
    samples: Mapping[str, Sequence[Sample]] | None = None,
    removals: Sequence[Removal] = (),
    curves: Sequence[Curve] = (),
    unread: Sequence[Unread] = (),
    studies: Sequence[Density] = (),
) -> Path:
    """Write the page and return where it is; an error where another file is."""
    files.check_replaceable(path, MARK.encode())
    files.write_text(path, render(runs, lines, samples, removals, curves, unread, studies))
    return path


def write_figures(
    folder: Path,
    runs: Sequence[Stored],
    lines: Sequence[Entry] = (),
    removals: Sequence[Removal] = (),
    curves: Sequence[Curve] = (),
    studies: Sequence[Density] = (),
) -> list[Path]:
    """Every plot of the page as PNG and PDF."""
    entries, room = [*(run.entry for run in runs), *lines], budget(runs, removals)
    overview = plots_bias.all_shares(removals)
    plots = [
        *plots_runs.plots(entries, runs, curves, studies),
        *(plot for run in runs for plot in plots_run.plots(run, *room).values()),
        *([overview] if overview else []),
        *(plot for removal in removals for plot in plots_bias.plots(removal, room[1]).values()),
    ]
    return [file for plot in plots for file in save(plot, folder)]
