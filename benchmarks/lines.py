"""What the scripts here share: one JSON line a run, appended as it ends, with machine, date and command; and outputs that a bench kept."""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from duck.bench.outputs import Kept, Target


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def attacked(
    doc: str | None,
    name: str,
    found: Callable[[list[tuple[dict[str, Any], Target]]], dict[str, Any]],
) -> None:
    """A line of `found` for each data set, scenario, method and preset of paper/svm: its runs, and what their models said."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results") / name)
    args = parser.parse_args()
    lines, kept, groups = (
        Lines(args.out, 60, torch.device("cpu")),
        Kept(args.models / "outputs"),
        defaultdict(list),
    )
    for row in (
        row for table in ("cr", "hr") for row in read(args.results / f"paper-table-{table}.jsonl")
    ):
        if row["method"] in ("original", "retrained", "duck") and row["id"] in kept.there():
            groups[
                f"{row['dataset']}, {row['scenario']}, {row['method']} ({row['preset']})"
            ].append(row)
    for group, rows in groups.items():
        if group not in lines.done:
            begun = time.monotonic()
            told = found([(row, target) for row in rows if (target := kept.read(row["id"]))])
            lines.put({"name": group, **told}, time.monotonic() - begun)


class Lines:
    """A file of results. Runs that are in it are done; none is begun that would end after the limit."""

    def __init__(self, path: Path, limit_minutes: float, device: torch.device) -> None:
        self.path, self.deadline, self.longest = path, time.monotonic() + 60 * limit_minutes, 0.0
        self.machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.done = {row["name"] for row in read(path)} if path.exists() else set()

    def time_for(self, name: str) -> bool:
        """Whether a run as long as the longest so far would still end in time."""
        if time.monotonic() + self.longest <= self.deadline:
            return True
        print(f"stopped before {name}: the same command goes on from here")
        return False

    def put(self, row: dict[str, Any], seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        stamp = {
            "device": self.machine,
            "torch": str(torch.__version__),
            "date": datetime.now(UTC).date().isoformat(),
        }
        line = json.dumps({**row, **stamp, "command": " ".join(["python", *sys.argv])})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)
