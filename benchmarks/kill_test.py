"""Kill commands that write at random moments and look at what is left.

    python benchmarks/kill_test.py --kills 200
    python benchmarks/kill_test.py --table benchmarks/results/kill-test.jsonl

Each kill starts a command on digits in a folder of its own, ends it with SIGKILL after a random share of its usual time, and checks:
every JSON file, every run and every weights file can be read; then the same command must end well and
leave no temporary file. One line a kill, appended as it ends; those in the file are skipped, so a stopped test resumes.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from lines import Lines, read
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
"""Every command that writes, and `forget` over a run that is there."""
GRID = """about = "Two methods, two classes"
methods = ["original", "duck"]

[[blocks]]
dataset = "digits"
model = "convnet"
classes = [3, 8]
recipe = { epochs = 2 }
"""


def duck(words: list[str], folder: Path, seconds: float | None = None) -> tuple[int | None, float]:
    """Run a command, and kill it after so many seconds; its exit code is then None."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "duck", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(seconds), time.monotonic() - begun
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None, time.monotonic() - begun


def flaws(folder: Path) -> list[str]:
    """Return what is wrong in a folder after a kill."""
    found = []
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
            found.append(f"{path.relative_to(folder)}: {type(error).__name__}: {error}"[:200])
    return found


def one_kill(name: str, base: Path, usual: float, share: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "work"
        shutil.copytree(base, folder)
        code, seconds = duck(COMMANDS[name], folder, share * usual)
        wrong = flaws(folder)
        again, _ = duck(COMMANDS[name], folder)
        left = [str(path.relative_to(folder)) for path in folder.rglob("*.writing")]
        if again not in (0, 1, 3):  # an audit may convict, or come to no verdict
            wrong.append(f"the command ended with {again} when it was given again")
        return {
            "killed": code is None,
            "after": seconds,
            "flaws": [*wrong, *flaws(folder)],
            "left": left,
        }


def run(args: argparse.Namespace) -> None:
    lines, random_source = (
        Lines(args.out, args.limit_minutes, torch.device("cpu")),
        random.Random(args.seed),
    )
    plan = [
        (name, random_source.random())
        for _ in range(args.kills)
        for name in [random_source.choice(list(COMMANDS))]
    ]
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        for words in (ORIGINAL, FORGOTTEN):
            assert duck(words, base)[0] == 0, words
        (base / "grid.toml").write_text(GRID)
        usual: dict[str, float] = {}
        for number, (name, share) in enumerate(plan):
            title = f"kill {number}, {name}, {share:.3f} of its time"
            if title in lines.done:
                continue
            if name not in usual:
                with tempfile.TemporaryDirectory() as other:
                    shutil.copytree(base, Path(other) / "work")
                    usual[name] = duck(COMMANDS[name], Path(other) / "work")[1]
            begun = time.monotonic()
            if not lines.time_for(title):
                return
            lines.put(
                {"name": title, "what": name, **one_kill(name, base, usual[name], share)},
                time.monotonic() - begun,
            )


def table(path: Path) -> None:
    rows = read(path)
    print(
        "| command | kills | that came in time | with something broken afterwards | temporary files left after the next run |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in COMMANDS:
        own = [row for row in rows if row["what"] == name]
        counts = Counter(
            killed=sum(row["killed"] for row in own), broken=sum(bool(row["flaws"]) for row in own)
        )
        print(
            f"| {name} | {len(own)} | {counts['killed']} | {counts['broken']} | {sum(len(row['left']) for row in own)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/kill-test.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=120)
    parser.add_argument("--table", type=Path, help="print the table of a file of results and stop")
    args = parser.parse_args()
    if args.table:
        table(args.table)
    else:
        run(args)


if __name__ == "__main__":
    main()
