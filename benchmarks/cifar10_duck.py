"""DUCK on CIFAR-10 with ResNet-18: class removal over ten classes, a random tenth over three seeds, beside Retrained.

    python benchmarks/cifar10_duck.py --root data --out benchmarks/results/cifar10-duck.jsonl [--minutes 9]
    python benchmarks/cifar10_duck.py --table benchmarks/results/cifar10-duck.jsonl

One JSON line a run, appended as it ends; runs that are in the file are skipped, so a stopped benchmark goes on. The first line of a
fresh file trains the original; its seconds contain compilation. Unlearning runs eagerly: no compilation is in its seconds.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import nn

import duck
from duck.methods.presets import default_recipe
from duck.metrics import training_scores
from duck.models import build
from duck.runtime import Stopwatch, pick_device
from duck.scenarios import Request
from duck.store import environment
from duck.types import Data

SEED = 42
SHAPE = (3, 32, 32)


def grid() -> list[tuple[str, Request, int, str, str]]:
    """(name, request, seed, method, preset), the cheap ones first."""
    classes = [(f"class-{c}", duck.ForgetClasses([c]), SEED) for c in range(10)]
    tenths = [(f"tenth-{s}", duck.ForgetFraction(0.1), s) for s in range(3)]
    runs: list[tuple[str, Request, int, str, str]] = []
    for method, preset, cases in (
        ("duck", "tuned", classes + tenths),
        ("duck", "paper", classes + tenths),
        ("retrained", "paper", tenths + classes),
    ):
        runs += [(f"{name}-{method}-{preset}", request, seed, method, preset) for name, request, seed in cases]
    return runs


class Results:
    """The file of lines, and what is in it already."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.done = {row["name"] for row in read(path)} if path.exists() else set()

    def put(self, name: str, **values: Any) -> None:
        env = environment()
        memory = {"host_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
        if torch.cuda.is_available():
            memory["device_gib"] = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.reset_peak_memory_stats()
        stamp = {"device": env["device"], "torch": env["packages"]["torch"], "date": datetime.now(UTC).date().isoformat()}
        row = {"name": name, **values, **memory, **stamp, "command": " ".join(["python", *sys.argv])}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def original(data: Data, results: Results, weights: Path, device: torch.device) -> nn.Module:
    """Trained once; the weights stay beside the results for the runs to come."""
    if weights.exists():
        model = build("resnet18", data.num_classes, SHAPE).to(device)
        load_model(model, weights)
        return model.eval()
    recipe = default_recipe(data.name, len(data.train), data.augment)
    with Stopwatch(device) as stopwatch:
        model = duck.train("resnet18", data, SEED, recipe, device=str(device))
    assert data.test is not None
    n = len(data.test) - len(data.holdout)
    results.put("original", seconds=stopwatch.seconds, scores=training_scores(model, data), n=n, recipe=asdict(recipe))
    save_model(model, str(weights))
    return model


def run(root: Path, out: Path, weights: Path, minutes: float) -> None:
    begun, device = time.monotonic(), pick_device()
    data, results = duck.load("cifar10", root, device=device), Results(out)
    model = original(data, results, weights, device)
    recipe = default_recipe(data.name, len(data.train), data.augment)
    for name, request, seed, method, preset in grid():
        if name in results.done:
            continue
        if time.monotonic() - begun > 60 * minutes:
            print(f"stopped before {name}: the same command goes on from here")
            return
        scenario = request(data, seed)
        chosen = duck.preset(method, data.name, scenario.kind, len(data.train), "tuned" if preset == "tuned" else "paper")
        outcome = duck.unlearn(
            chosen,
            model,
            scenario,
            new_model=lambda: build("resnet18", data.num_classes, SHAPE),
            recipe=recipe if method == "retrained" else replace(recipe, compile=False),
        )
        counts = {"forget_samples": outcome.forget_samples, "processed": outcome.processed}
        scores = {"scores": asdict(outcome.scores), "original": asdict(outcome.original)}
        results.put(name, method=method, preset=preset, kind=scenario.kind, seed=seed, seconds=outcome.seconds, **scores, **counts)


def table(path: Path) -> None:
    """Mean and standard deviation over classes or seeds, as Markdown."""
    rows = [row for row in read(path) if row["name"] != "original"]
    print("| kind | method | preset | n | AUS | test or retain-test % | forget-test or forget % | seconds, median |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind in ("class", "samples"):
        of_kind = [row for row in rows if row["kind"] == kind]
        tuned = [row for row in of_kind if row["preset"] == "tuned"]
        print(_line(kind, "original", "", [row["original"] for row in tuned], []))
        for method, preset in (("retrained", "paper"), ("duck", "paper"), ("duck", "tuned")):
            group = [row for row in of_kind if (row["method"], row["preset"]) == (method, preset)]
            print(_line(kind, method, preset, [row["scores"] for row in group], [row["seconds"] for row in group]))


def _line(kind: str, method: str, preset: str, scores: list[dict[str, float]], seconds: list[float]) -> str:
    kept, gone = ("retain_test", "forget_test") if kind == "class" else ("test", "forget")
    cells = [_mean([s["aus"] for s in scores], 4), *(_mean([100 * s[key] for s in scores], 2) for key in (kept, gone))]
    return " | ".join(
        [f"| {kind}", method, preset, str(len(scores)), *cells, f"{statistics.median(seconds):.2f}" if seconds else "", ""]
    ).strip()


def _mean(values: list[float], digits: int) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cifar10-duck.jsonl"))
    parser.add_argument("--weights", type=Path, default=Path("data/cifar10-resnet18.safetensors"), help="where the original is kept")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--table", type=Path, help="print the table of a file of results and stop")
    args = parser.parse_args()
    if args.table:
        table(args.table)
    else:
        run(args.root, args.out, args.weights, args.minutes)


if __name__ == "__main__":
    main()
