"""Helpers of these scripts: result files of JSON lines, flags, and Markdown tables."""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from duck.artifacts import ArtifactStore, Key, default_root
from duck.bench.outputs import Target, read_target
from duck.errors import BadInput

RESULTS = Path("benchmarks/results")
Row = dict[str, Any]


class ResultFile:
    """A file of results, one JSON line each. Runs that are in it already are skipped."""

    def __init__(self, path: Path, limit_minutes: float, device: torch.device) -> None:
        self.path = path
        self.deadline = time.monotonic() + 60 * limit_minutes
        self.longest_seconds = 0.0
        self.machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.done = {row["name"] for row in read(path)} if path.exists() else set()

    def has_time_for(self, name: str) -> bool:
        """Return whether a run as long as the longest so far would end before the limit."""
        if time.monotonic() + self.longest_seconds <= self.deadline:
            return True
        print(f"Stopped before {name}. Rerun the same command to resume.")
        return False

    def append(self, row: Row, seconds: float) -> None:
        """Append a result with machine, date and command."""
        self.longest_seconds = max(self.longest_seconds, seconds)
        stamp = {
            "device": self.machine,
            "torch": str(torch.__version__),
            "date": datetime.now(UTC).date().isoformat(),
        }
        line = json.dumps({**row, **stamp, "command": " ".join(["python", *sys.argv])})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)


def read(path: Path) -> list[Row]:
    """Read the results of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def create_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of a script."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run_or_print(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], None],
    print_results: Callable[[list[Row]], None],
) -> None:
    """Add --table to the flags of a script; then print a file of results, or run the script."""
    help_text = "print the table of a file of results and stop"
    parser.add_argument("--table", type=Path, help=help_text)
    args = parser.parse_args()
    if args.table:
        print_results(read(args.table))
        return
    try:
        run(args)
    except BadInput as error:
        parser.exit(2, f"{error}\n")


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], texts: int) -> None:
    """Print a Markdown table. The first `texts` columns are text, the others numbers."""
    rules = ["---"] * texts + ["---:"] * (len(headers) - texts)
    for cells in (headers, rules, *rows):
        print(f"| {' | '.join(map(str, cells))} |")


def run_on_outputs(
    doc: str | None, name: str, measure: Callable[[list[tuple[Row, Target]]], Row]
) -> None:
    """Append the result of `measure` for each data set, scenario, method and preset of paper/svm.

    `measure` is called with the results of the runs and the stored outputs of their models.
    """
    parser = create_parser(doc)
    parser.add_argument("--models", type=Path, default=default_root())
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS / name)
    args = parser.parse_args()
    results = ResultFile(args.out, 60, torch.device("cpu"))
    store = ArtifactStore(args.models)
    for group, rows in _groups(args.results, store).items():
        if group in results.done:
            continue
        started_at = time.monotonic()
        targets = [(row, read_target(store, Key("predictions", row["id"]))) for row in rows]
        result = measure([(row, target) for row, target in targets if target is not None])
        results.append({"name": group, **result}, time.monotonic() - started_at)


def _groups(folder: Path, store: ArtifactStore) -> dict[str, list[Row]]:
    """Return the results of the two large tables whose outputs are stored, by row of the table."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for table in ("cr", "hr"):
        for row in read(folder / f"paper-table-{table}.jsonl"):
            if (
                row["method"] in ("original", "retrained", "duck")
                and Key("predictions", row["id"]) in store
            ):
                group = f"{row['dataset']}, {row['scenario']}, {row['method']} ({row['preset']})"
                groups[group].append(row)
    return groups
