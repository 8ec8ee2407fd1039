"""Search the settings of every method for an original of `duck bench`: the published spaces, and the same number of trials for each.

    python benchmarks/tune_rivals.py --root data --models models [--data cifar10] [--jobs 3] [--only class:scrub samples:salun]
    python benchmarks/tune_rivals.py --table benchmarks/results/cifar10-search.jsonl

Without --only, all methods of the two large tables. A trial runs on the classes or random tenths that the grid's `searched` names, which
the rows of `tuned` leave out. Its score on holdout data is the mean AUS for a class and, for random samples, 1 minus the gaps to a model
that was retrained without them (holdout accuracy, forget accuracy, confidence AUC). One JSON line a trial, appended as it ends; a search
continues after the trials that the file has. Originals and retrained models that the artifact store (--models) does not have are trained;
originals are shared with `duck bench`.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from result_files import read
from torch import nn

import duck
from duck.artifacts import ArtifactStore, default_root
from duck.bench import find_grid
from duck.bench.grids import Block, Grid, facts_of, training
from duck.experiment import Experiment
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, preset
from duck.models import build
from duck.originals import load_or_train
from duck.retraining import Retraining
from duck.runtime import pick_device
from duck.tuning import Trial, at_edge, best, changes, spaces, tune
from duck.types import Data, Recipe, Scenario

TABLES = {"class": "table-cr", "samples": "table-hr"}
# The paper's epochs of these two take too long for a first trial: the shortened preset begins.
STARTS: dict[str, Preset] = {"finetune": "tuned", "erm-ktp": "tuned"}
Row = dict[str, Any]


def main() -> None:
    args = parse()
    if args.table:
        table(args.table)
    elif args.presets:
        presets(args.presets)
    elif args.study:
        for row in study(args):
            print(json.dumps(row), flush=True)
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    """Run each search in a process of its own, some at once; the retrained models that they share come first."""
    lock, deadline = threading.Lock(), time.time() + 60 * args.limit_minutes
    args.out.parent.mkdir(parents=True, exist_ok=True)
    left = [name for name in args.only if len(trials_of(args, name)) < budget_of(args, name)]

    def one(name: str) -> None:
        command = [
            sys.executable,
            __file__,
            *sys.argv[1:],
            "--study",
            name,
            "--deadline",
            str(deadline),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                with lock, args.out.open("a", encoding="utf-8") as file:
                    file.write(line)
                row = json.loads(line)
                about = f"{row['score']:.4f} in {row['seconds']:.1f} s {row['settings']} {row['error'] or ''}"
                print(f"{name} {row['number']}: {about}", flush=True)
        if process.returncode:
            print(f"{name} failed with exit code {process.returncode}", flush=True)

    one("models")
    with ThreadPoolExecutor(args.jobs) as crew:
        list(crew.map(one, left))


class Bench:
    """The data, the original and the scenarios of one kind of search."""

    def __init__(self, args: argparse.Namespace, kind: str) -> None:
        self.store, self.kind = ArtifactStore(args.models), kind
        self.block = block_of(args.data, kind)
        self.device, self.grid = pick_device(args.device), grid_of(args.data, kind)
        self.data: Data = duck.load(args.data, args.root, device=self.device)
        self.training = training(self.grid, self.block, facts_of(self.data)).training

    @property
    def recipe(self) -> Recipe:
        return self.training.recipe

    def new_model(self) -> nn.Module:
        return build(self.training.model, self.data.num_classes, self.data.train.shape)

    def original(self) -> nn.Module:
        """Load or train the original."""
        experiment = Experiment(self.training, seed=self.training.seed)
        return load_or_train(self.store, experiment, self.data, self.device)[0]

    def scenarios(self) -> list[Scenario]:
        if self.kind == "class":
            return [
                duck.ForgetClasses([label])(self.data, self.grid.seed)
                for label in self.block.searched
            ]
        return [
            duck.ForgetFraction(self.block.fraction)(self.data, seed)
            for seed in self.block.searched
        ]

    def retrained(self, scenario: Scenario) -> nn.Module:
        """Load or train the model without the forget set of a scenario."""
        recipe = replace(self.recipe, compile=self.device.type == "cuda")
        retraining = Retraining(
            scenario, self.original(), self.new_model, recipe, self.training, self.store
        )
        return retraining.load_or_train(scenario.seed)


def study(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the trials of one method as rows."""
    if args.study == "models":
        make_models(args)
        return
    kind, name = args.study.split(":")
    bench = Bench(args, kind)
    scenarios = bench.scenarios()
    start = starting(args.data, kind, name, len(bench.data.train))
    on = {"classes" if kind == "class" else "seeds": list(bench.block.searched)}
    about = {
        "dataset": args.data,
        "scenario": kind,
        "method": name,
        **on,
        "start": start_of(name),
        "jobs": args.jobs,
    }
    machine = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else "CPU"
    stamp = {
        "device": machine,
        "torch": str(torch.__version__),
        "date": datetime.now(UTC).date().isoformat(),
    }
    references = None if kind == "class" else [bench.retrained(scenario) for scenario in scenarios]
    search = partial(tune, new_model=bench.new_model, recipe=bench.recipe, retrained=references)
    budget, done = budget_of(args, args.study), trials_of(args, args.study)
    if time.time() > args.deadline:
        return
    for trial in search(start, bench.original(), scenarios, budget, done=done):
        yield {**about, **asdict(trial), **stamp}
        if time.time() > args.deadline:
            return


def make_models(args: argparse.Namespace) -> None:
    """Train the original and the retrained models that the searches share."""
    bench = Bench(args, "samples")
    bench.original()
    if any(name.startswith("samples:") for name in args.only):
        for scenario in bench.scenarios():
            bench.retrained(scenario)


def start_of(name: str) -> Preset:
    return STARTS.get(name, "paper")


def starting(data: str, kind: Any, name: str, samples: int) -> Method:
    return preset(name, data, kind, samples, start_of(name))


def block_of(data: str, kind: str) -> Block:
    blocks = grid_of(data, kind).blocks
    return next(block for block in blocks if block.dataset == data)


def grid_of(data: str, kind: str) -> Grid:
    return find_grid(f"{'digits' if data == 'digits' else 'paper'}/{TABLES[kind]}")


def budget_of(args: argparse.Namespace, name: str) -> int:
    return args.budget or block_of(args.data, name.split(":")[0]).trials


def of(row: Row) -> str:
    return f"{row['scenario']}:{row['method']}"


def trials_of(args: argparse.Namespace, name: str) -> list[Trial]:
    """Return those of a search that the file has."""
    rows = read(args.out) if args.out.exists() else []
    return [as_trial(row) for row in rows if of(row) == name and row["dataset"] == args.data]


def as_trial(row: Row) -> Trial:
    return Trial(**{field.name: row[field.name] for field in fields(Trial) if field.name in row})


def searches(path: Path) -> Iterator[tuple[str, str, str, list[Trial]]]:
    """Yield the data set, scenario, method and trials of each search in a file."""
    rows = read(path)
    for name in dict.fromkeys(of(row) for row in rows):
        own = [row for row in rows if of(row) == name]
        yield (
            own[0]["dataset"],
            own[0]["scenario"],
            own[0]["method"],
            [as_trial(row) for row in own],
        )


def table(path: Path) -> None:
    """Print the best of each search as Markdown."""
    print(
        "| removal | method | trials | objective | score of the first | of the best | kept % | forgotten % | at the edge of its range |"
    )
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- |")
    for _, kind, method, trials in searches(path):
        chosen = best(trials)
        scores = [str(len(trials)), chosen.objective, score(trials[0]), score(chosen)]
        shares = [f"{100 * (share or 0):.1f}" for share in (chosen.kept, chosen.forgotten)]
        print(
            f"| {' | '.join([kind, method, *scores, *shares, ', '.join(at_edge(method, trials)) or 'none'])} |"
        )


def score(trial: Trial) -> str:
    return "failed" if trial.error else f"{trial.score:.3f}"


def presets(path: Path) -> None:
    """Print the best of each search as a preset: its changes to `paper`, also where the search began with another preset."""
    for data, kind, method, trials in searches(path):
        found = changes(preset(method, data, kind, name="paper"), best(trials))
        print(f"[{method}.{data}.tuned]\n{kind} = {json.dumps(found)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument(
        "--models", type=Path, default=default_root(), help="folder of the artifact store"
    )
    parser.add_argument(
        "--out", type=Path, help="DATA-search.jsonl in benchmarks/results where not given"
    )
    parser.add_argument("--data", default="cifar10")
    every = [
        f"{kind}:{name}" for kind in TABLES for name in spaces() if kind in METHODS[name].scenarios
    ]
    parser.add_argument("--only", metavar="KIND:METHOD", nargs="+", choices=every, default=every)
    parser.add_argument(
        "--budget", type=int, help="trials of each method; the grid's where not given"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="searches at once; on a GPU only with NVIDIA's MPS is that faster",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--table", type=Path, help="print the best of each search of a file and stop"
    )
    parser.add_argument("--presets", type=Path, help="the same as presets, and stop")
    parser.add_argument(
        "--limit-minutes", type=float, default=60.0 * 24, help="no trial is begun later"
    )
    parser.add_argument("--study", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=float("inf"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out = args.out or Path(f"benchmarks/results/{args.data}-search.jsonl")
    return args


if __name__ == "__main__":
    main()
