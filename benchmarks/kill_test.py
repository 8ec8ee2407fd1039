"""Kill commands that write, at random moments, and check the files.

    python benchmarks/kill_test.py --kills 200
    python benchmarks/kill_test.py --table benchmarks/results/kill-test.jsonl

Each kill starts a command on digits in its own folder, ends it with SIGKILL after a random share of
its usual time, and checks that every JSON file, every run and every weights file can be read. Then
the same command must succeed and leave no temporary file. One JSON line per kill; kills that are in
the file already are skipped.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from result_files import ResultFile, Row, create_parser, print_table, run_or_print
from safetensors.torch import load_file

from duck import runs

ORIGINAL = ["train", "--data", "digits", "--epochs", "2", "--out", "original"]
FORGOTTEN = ["forget", "--run", "original", "--classes", "3", "--out", "forgot"]
COMMANDS: dict[str, list[str]] = {
    "train": ["train", "--data", "digits", "--epochs", "12", "--out", "trained"],
    "forget": ["forget", "--run", "original", "--classes", "5", "--out", "other"],
    "forget over": [
        "forget",
        "--run",
        "original",
        "--classes",
        "3",
        "--out",
        "forgot",
        "--overwrite",
    ],
    "compare": [
        "compare",
        "--run",
        "original",
        "--classes",
        "3",
        "--methods",
        "duck",
        "ssd",
        "--out",
        "compared",
    ],
    "audit": ["audit", "forgot"],
    "analyse": ["analyse", "forgot"],
    "report": ["report", ".", "-o", "report.html"],
    "pool": ["pool", "--data", "digits", "--models", "4", "--epochs", "1", "--out", "pool"],
    "bench": ["bench", "grid.toml", "--out", "results", "--models", "models"],
}
"""Every command that writes, and `forget` over an existing run."""
GRID = """about = "Two methods, two classes"
methods = ["original", "duck"]

[[blocks]]
dataset = "digits"
model = "convnet"
classes = [3, 8]
recipe = { epochs = 2 }
"""


def duck(words: list[str], folder: Path, seconds: float | None = None) -> tuple[int | None, float]:
    """Run a command and kill it after some seconds; return exit code and seconds.

    The exit code of a killed command is None.
    """
    started_at = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "duck", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(seconds), time.monotonic() - started_at
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None, time.monotonic() - started_at


def unreadable_files(folder: Path) -> list[str]:
    """Return the files in a folder that cannot be read, with the errors."""
    problems = []
    for path in sorted(
        path for path in folder.rglob("*") if path.is_file() and ".writing" not in str(path)
    ):
        try:
            if path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"))
            if path.suffix == ".safetensors":
                load_file(path)
            if path.name == "run.json":
                runs.load(path.parent)
        except Exception as error:
            problems.append(f"{path.relative_to(folder)}: {type(error).__name__}: {error}"[:200])
    return problems


def kill_once(name: str, base: Path, usual: float, share: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "work"
        shutil.copytree(base, folder)
        code, seconds = duck(COMMANDS[name], folder, share * usual)
        problems = unreadable_files(folder)
        second_code, _ = duck(COMMANDS[name], folder)
        left = [str(path.relative_to(folder)) for path in folder.rglob("*.writing")]
        if second_code not in (0, 1, 3):  # an audit may find a leak, or reach no verdict
            problems.append(f"the command ended with {second_code} when it was rerun")
        return {
            "killed": code is None,
            "after": seconds,
            "flaws": [*problems, *unreadable_files(folder)],
            "left": left,
        }


def run(args: argparse.Namespace) -> None:
    results = ResultFile(args.out, args.limit_minutes, torch.device("cpu"))
    random_source = random.Random(args.seed)
    plan = []
    for _ in range(args.kills):
        name = random_source.choice(list(COMMANDS))
        plan.append((name, random_source.random()))
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        for words in (ORIGINAL, FORGOTTEN):
            assert duck(words, base)[0] == 0, words
        (base / "grid.toml").write_text(GRID)
        usual_seconds: dict[str, float] = {}
        for number, (name, share) in enumerate(plan):
            title = f"kill {number}, {name}, {share:.3f} of its time"
            if title in results.done:
                continue
            if name not in usual_seconds:
                with tempfile.TemporaryDirectory() as other:
                    shutil.copytree(base, Path(other) / "work")
                    _, usual_seconds[name] = duck(COMMANDS[name], Path(other) / "work")
            started_at = time.monotonic()
            if not results.has_time_for(title):
                return
            outcome = kill_once(name, base, usual_seconds[name], share)
            results.append({"name": title, "what": name, **outcome}, time.monotonic() - started_at)


def print_results(rows: list[Row]) -> None:
    """Print how many kills of each command broke something."""
    headers = ["command", "kills", "that came in time", "with something broken afterwards"]
    headers.append("temporary files left after the next run")
    print_table(headers, [[name, *summarize(rows, name)] for name in COMMANDS], texts=1)


def summarize(rows: list[Row], name: str) -> list[int]:
    """Return the counts of one command."""
    kills = [row for row in rows if row["what"] == name]
    killed = sum(row["killed"] for row in kills)
    broken = sum(bool(row["flaws"]) for row in kills)
    return [len(kills), killed, broken, sum(len(row["left"]) for row in kills)]


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/kill-test.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=120)
    run_or_print(parser, run, print_results)


if __name__ == "__main__":
    main()
