"""Output of the commands: results to stdout, progress and messages to stderr."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from duck.cli.exit_codes import discard_output
from duck.display import Display, JobProgress
from duck.json_text import to_json
from duck.printable import printable
from duck.runs import COLUMNS
from duck.types import Progress as TrainingProgress

if TYPE_CHECKING:
    from duck.earlier_requests import EarlierScores
    from duck.unlearning import Epoch, Watch

WIDTH_OF_FILES = 160
"""Columns of a table that is not printed to a terminal."""


class _Console(Console):
    """A console that prints names as they are: `[x]` is no markup and `:cat:` no emoji."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def on_broken_pipe(self) -> None:
        """End the command if its results are not read; without a reader of the log, continue.

        Rich would exit with 1, which means "not forgotten".
        """
        if not self.stderr:
            raise BrokenPipeError
        self.quiet = True
        discard_output(sys.stderr)


stderr = _Console(stderr=True)


def emit(value: Any) -> None:
    """Print one JSON value to stdout."""
    print(to_json(value))


def write(text: object) -> None:
    """Print lines of a result to stdout, without terminal escapes."""
    print(printable(str(text)))


def say(message: str) -> None:
    """Print a message to stderr."""
    stderr.print(printable(message), highlight=False, soft_wrap=True)


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print a plain table to stdout. Each row maps the titles of the columns to its cells."""
    if not rows:
        return
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(printable(row[title]) for title in rows[0]))
    _Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES).print(table)


def print_earlier_requests(earlier: "Sequence[EarlierScores]") -> None:
    """Print the scores on the forget sets of earlier requests, before and after the new one."""
    rows = []
    for scores in earlier:
        ranks = f"{number(scores.rank_before)} -> {number(scores.rank_after)}"
        row = {"forgotten earlier": scores.request, "n": str(scores.samples)}
        row |= {"before %": percent(scores.before), "after %": percent(scores.after)}
        row["loss rank among unseen"] = "-" if scores.rank_after is None else ranks
        rows.append({**row, "": scores.state})
    print_table(rows)


def score_cells(scores: Mapping[str, float | None]) -> dict[str, str]:
    """Return AUS and the accuracies of a run as cells of a table."""
    accuracies = {f"{name} %": percent(scores.get(name)) for name in COLUMNS[1:]}
    return {"AUS": number(scores.get("aus")), **accuracies}


def percent(value: float | None) -> str:
    """Format a fraction as a percentage; "-" for None."""
    return "-" if value is None else f"{100 * value:.2f}"


def number(value: float | None) -> str:
    """Format a number with three decimals; "-" for None."""
    return "-" if value is None else f"{value:.3f}"


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while a download or another countable task runs; yield its progress callback."""
    with _make_bar(transient=True) as bar:
        task = bar.add_task(printable(title), total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def job_bar(title: str) -> Iterator[Callable[[JobProgress[Any], str], None]]:
    """Show a bar if stderr is a terminal, and a line for each job that ended.

    Yield a function that takes the progress, and how the job ended: "" if it did not.
    """
    left_column = TextColumn("{task.fields[left]}", markup=False)
    bar = _make_bar(left_column, transient=True, disable=not stderr.is_terminal)
    task = bar.add_task(title, total=None, left="")

    def report(state: JobProgress[Any], ending: str) -> None:
        bar.start()  # not before: reading data has a bar of its own
        total = state.done + state.left
        left = _format_left(state.left, state.seconds_left)
        job = state.job or title
        bar.update(task, completed=state.done, total=total, left=left, description=str(job))
        if state.job is None:
            say(f"{state.done} of {total} are there; {left}")
        elif ending:
            say(f"[{state.done}/{total}] {job}: {ending}; {left}")

    try:
        yield report
    finally:
        bar.stop()


def _format_left(left: int, seconds_left: float | None) -> str:
    """Return how many jobs are left and, if it is known, when they are expected to end."""
    if seconds_left is None or not left:
        return f"{left} left"
    end = datetime.now() + timedelta(seconds=seconds_left)
    return f"{left} left, expected end {end:%H:%M:%S}"


@contextmanager
def training_progress(title: str) -> "Iterator[Watch]":
    """Show a live table of accuracies over a progress bar; plain lines if stderr is no terminal."""
    if not stderr.is_terminal:
        yield _LogLines(title)
        return
    with _LiveTable(printable(title)) as live:
        yield live


CONSOLE = Display(progress_bar, say, training_progress)


def _make_bar(last: ProgressColumn | None = None, **options: Any) -> Progress:
    description = TextColumn("{task.description}", markup=False)
    columns = description, BarColumn(), MofNCompleteColumn(), last or TimeRemainingColumn()
    return Progress(*columns, console=stderr, **options)


class _LiveTable:
    """A table with a row for each epoch, over a progress bar."""

    COLUMNS = ("phase", "epoch", "loss", "retain %", "forget %", "holdout %")

    def __init__(self, title: str) -> None:
        self.rows = Table(*self.COLUMNS, title=title, title_justify="left", box=None)
        self.bar = _make_bar()
        self.task = self.bar.add_task(title, total=None)
        self.live = Live(
            Group(self.rows, self.bar), console=stderr, refresh_per_second=8, transient=False
        )

    def __enter__(self) -> "_LiveTable":
        self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()
        self.live.__exit__(*error)

    def __call__(self, event: "TrainingProgress | Epoch") -> None:
        if isinstance(event, TrainingProgress):
            done = (event.epoch - 1) * event.steps + event.step
            total = event.epochs * event.steps
            self.bar.update(self.task, description=event.phase, completed=done, total=total)
        else:
            accuracies = (percent(event.retain), percent(event.forget), percent(event.holdout))
            self.rows.add_row(event.phase, str(event.epoch), f"{event.loss:.4f}", *accuracies)


class _LogLines:
    """One line for each epoch; while training at most one a second, so that a log stays short."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.next_time = 0.0

    def __call__(self, event: "TrainingProgress | Epoch") -> None:
        is_training = event.phase == "train"
        if isinstance(event, TrainingProgress) and not (event.is_epoch_end and is_training):
            return
        now = time.monotonic()
        if is_training and now < self.next_time:
            return
        self.next_time = now + 1
        line = f"{self.title}: {event.phase} epoch {event.epoch} loss {event.loss:.4f}"
        if not isinstance(event, TrainingProgress):
            line += f" retain {percent(event.retain)} forget {percent(event.forget)}"
            line += f" holdout {percent(event.holdout)}"
        say(line)
