"""What a person sees: a live table on stderr, results on stdout."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from duck.cli.exit_codes import unread
from duck.earlier_requests import EarlierScores
from duck.json_text import to_json
from duck.printable import printable
from duck.types import Progress as News
from duck.unlearning import Epoch, Watch


class _Console(Console):
    """Names of classes and paths are data: brackets in them are no markup, and `:cat:` is no picture."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which says "not forgotten". Results that nobody reads end a command; a log that nobody reads does not."""
        if not self.stderr:
            raise BrokenPipeError
        self.quiet = True
        unread(sys.stderr)


stderr = _Console(stderr=True)


def emit(value: Any) -> None:
    """One JSON value to stdout."""
    print(to_json(value))


def write(text: object) -> None:
    """Lines of a result to stdout; names in them are shown without terminal escapes."""
    print(printable(str(text)))


def say(message: str) -> None:
    """A line for a person, beside the data."""
    stderr.print(printable(message), highlight=False, soft_wrap=True)


def print_earlier(earlier: Sequence[EarlierScores]) -> None:
    """Print what earlier requests forgot, before and after the new one; nothing where there are none."""
    if not earlier:
        return
    rows = []
    for scores in earlier:
        ranks = (
            f"{number(scores.rank_before)} -> {number(scores.rank_after)}"
            if scores.rank_after is not None
            else "-"
        )
        accuracies = percent(scores.before), percent(scores.after)
        rows.append([scores.request, str(scores.samples), *accuracies, ranks, scores.state])
    table(["forgotten earlier", "n", "before %", "after %", "loss rank among unseen", ""], rows)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table to stdout."""
    shown = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*map(printable, row))
    _Console(width=None if sys.stdout.isatty() else 160).print(shown)


@contextmanager
def counting(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for work that counts: a download, decoding."""
    with _bar(transient=True) as bar:
        task = bar.add_task(printable(title), total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def watching(title: str, quiet: bool = False) -> Iterator[Watch]:
    """A live table of accuracies per epoch over a progress bar; plain lines where stderr is no terminal."""
    if quiet:
        yield lambda _: None
    elif stderr.is_terminal:
        with _LiveTable(printable(title)) as live:
            yield live
    else:
        yield _Lines(title)


def _bar(transient: bool) -> Progress:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=stderr, transient=transient)


class _LiveTable:
    def __init__(self, title: str) -> None:
        self.rows = Table(
            "phase",
            "epoch",
            "loss",
            "retain %",
            "forget %",
            "holdout %",
            title=title,
            title_justify="left",
            box=None,
        )
        self.bar = _bar(transient=False)
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

    def __call__(self, news: News | Epoch) -> None:
        if isinstance(news, Epoch):
            accuracies = (percent(news.retain), percent(news.forget), percent(news.holdout))
            self.rows.add_row(news.phase, str(news.epoch), f"{news.loss:.4f}", *accuracies)
        else:
            done = (news.epoch - 1) * news.steps + news.step
            self.bar.update(
                self.task, description=news.phase, completed=done, total=news.epochs * news.steps
            )


class _Lines:
    """One line an epoch, at most one a second while training, so that a log stays readable."""

    def __init__(self, title: str) -> None:
        self.title, self.next = title, 0.0

    def __call__(self, news: News | Epoch) -> None:
        now = time.monotonic()
        if isinstance(news, News) and not (news.is_epoch_end and news.phase == "train"):
            return
        if news.phase == "train" and now < self.next:
            return
        self.next = now + 1
        line = f"{self.title}: {news.phase} epoch {news.epoch} loss {news.loss:.4f}"
        if isinstance(news, Epoch):
            line += f" retain {percent(news.retain)} forget {percent(news.forget)} holdout {percent(news.holdout)}"
        say(line)
