"""One JSON line a run, appended as it ends, with machine, date and command: what the scripts here share."""

import json
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from duck.bench.outputs import Kept


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def asked(results: Path, kept: Kept) -> dict[str, list[dict[str, Any]]]:
    """Lines of `duck bench` whose models' outputs are there, of the methods of paper/svm: by data set, scenario, method and preset."""
    groups = defaultdict(list)
    for row in (row for name in ("cr", "hr") for row in read(results / f"paper-table-{name}.jsonl")):
        if row["method"] in ("original", "retrained", "duck") and row["id"] in kept.there():
            groups[f"{row['dataset']}, {row['scenario']}, {row['method']} ({row['preset']})"].append(row)
    return groups


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
        stamp = {"device": self.machine, "torch": str(torch.__version__), "date": datetime.now(UTC).date().isoformat()}
        line = json.dumps({**row, **stamp, "command": " ".join(["python", *sys.argv])})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)
