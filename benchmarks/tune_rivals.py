"""Search the settings of every method for an original of `duck bench`, with the same budget.

    python benchmarks/tune_rivals.py --root data --models models [--data cifar10] [--jobs 3]
    python benchmarks/tune_rivals.py --table benchmarks/results/cifar10-search.jsonl

Without --only, all methods of the two large tables are searched, in their published spaces. A trial
runs on the classes or random tenths in the grid's `searched`, which the rows of `tuned` leave out.
Its score on holdout data is the mean AUS for classes. For random samples it is 1 minus the gaps to
a retrained model in holdout accuracy, forget accuracy and confidence AUC. One JSON line per trial;
a search resumes after the trials in the file. Originals and retrained models that the artifact
store (--models) does not have are trained; originals are shared with `duck bench`.
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
from pathlib import Path
from typing import Any

import tomli_w
import torch
from result_files import create_parser, read
from torch import nn

import duck
from duck.artifacts import ArtifactStore, default_root
from duck.bench import find_grid
from duck.bench.grids import Block, Grid, facts_of, training
from duck.commands.train import load_or_train
from duck.experiment import Experiment
from duck.methods.base import METHODS
from duck.methods.presets import Preset, preset
from duck.models import build
from duck.retraining import Retraining
from duck.runtime import pick_device
from duck.search_spaces import spaces
from duck.tuning import Trial, at_edge, best, changes, tune
from duck.types import Data, Original, Recipe, Scenario

TABLES = {"class": "table-cr", "samples": "table-hr"}
# With the paper's preset the first trial takes too long (FineTuning, ERM-KTP), or none of 12
# trials on digits forgets a class (L1-Sparse).
STARTS: dict[str, Preset] = {"finetune": "tuned", "erm-ktp": "tuned", "l1-sparse": "tuned"}
Row = dict[str, Any]


def main() -> None:
    args = parse()
    if args.table:
        print_results(args.table)
    elif args.presets:
        print_presets(args.presets)
    elif args.study:
        for row in study(args):
            print(json.dumps(row), flush=True)
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    """Run each search in its own process, after the models that all of them use are trained."""
    lock = threading.Lock()
    deadline = time.time() + 60 * args.limit_minutes
    args.out.parent.mkdir(parents=True, exist_ok=True)
    left = [name for name in args.only if len(trials_of(args, name)) < budget_of(args, name)]

    def run_process(name: str) -> None:
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
                score = f"{row['score']:.4f} in {row['seconds']:.1f} s"
                error = row["error"] or ""
                print(f"{name} {row['number']}: {score} {row['settings']} {error}", flush=True)
        if process.returncode:
            print(f"{name} failed with exit code {process.returncode}", flush=True)

    run_process("models")
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run_process, left))


class Bench:
    """The data, the original and the scenarios of one kind of search."""

    def __init__(self, args: argparse.Namespace, kind: str) -> None:
        self.store = ArtifactStore(args.models)
        self.kind = kind
        self.block = block_of(args.data, kind)
        self.device = pick_device(args.device)
        self.grid = grid_of(args.data, kind)
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
        train_models(args)
        return
    kind, name = args.study.split(":")
    bench = Bench(args, kind)
    scenarios = bench.scenarios()
    start = preset(name, args.data, kind, len(bench.data.train), start_of(name))
    description = {
        "dataset": args.data,
        "scenario": kind,
        "method": name,
        "classes" if kind == "class" else "seeds": list(bench.block.searched),
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
    original = Original(bench.original(), bench.new_model, bench.recipe)
    budget = budget_of(args, args.study)
    done = trials_of(args, args.study)
    if time.time() > args.deadline:
        return
    for trial in tune(start, original, scenarios, budget, retrained=references, done=done):
        yield {**description, **asdict(trial), **stamp}
        if time.time() > args.deadline:
            return


def train_models(args: argparse.Namespace) -> None:
    """Train the original and the retrained models that several searches use."""
    bench = Bench(args, "samples")
    bench.original()
    if any(name.startswith("samples:") for name in args.only):
        for scenario in bench.scenarios():
            bench.retrained(scenario)


def start_of(name: str) -> Preset:
    return STARTS.get(name, "paper")


def block_of(data: str, kind: str) -> Block:
    blocks = grid_of(data, kind).blocks
    return next(block for block in blocks if block.dataset == data)


def grid_of(data: str, kind: str) -> Grid:
    return find_grid(f"{'digits' if data == 'digits' else 'paper'}/{TABLES[kind]}")


def budget_of(args: argparse.Namespace, name: str) -> int:
    return args.budget or block_of(args.data, name.split(":")[0]).trials


def search_name(row: Row) -> str:
    return f"{row['scenario']}:{row['method']}"


def trials_of(args: argparse.Namespace, name: str) -> list[Trial]:
    """Return the trials of a search in the file."""
    rows = read(args.out) if args.out.exists() else []
    return [
        to_trial(row) for row in rows if search_name(row) == name and row["dataset"] == args.data
    ]


def to_trial(row: Row) -> Trial:
    return Trial(**{field.name: row[field.name] for field in fields(Trial) if field.name in row})


def searches(path: Path) -> Iterator[tuple[str, str, str, list[Trial]]]:
    """Yield the data set, scenario, method and trials of each search in a file."""
    rows = read(path)
    for name in dict.fromkeys(map(search_name, rows)):
        own = [row for row in rows if search_name(row) == name]
        first = own[0]
        yield first["dataset"], first["scenario"], first["method"], [to_trial(row) for row in own]


def print_results(path: Path) -> None:
    """Print the best of each search as Markdown."""
    headers = ["removal", "method", "trials", "objective", "score of the first", "of the best"]
    headers += ["kept %", "forgotten %", "at the edge of its range"]
    print(f"| {' | '.join(headers)} |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- |")
    for _, kind, method, trials in searches(path):
        chosen = best(trials)
        scores = [str(len(trials)), chosen.objective, format_score(trials[0]), format_score(chosen)]
        shares = [f"{100 * (share or 0):.1f}" for share in (chosen.kept, chosen.forgotten)]
        edges = ", ".join(at_edge(method, trials)) or "none"
        print(f"| {' | '.join([kind, method, *scores, *shares, edges])} |")


def format_score(trial: Trial) -> str:
    return "failed" if trial.error else f"{trial.score:.3f}"


def print_presets(path: Path) -> None:
    """Print the best of each search as a preset: its changes to the preset `paper`."""
    tables: dict[str, Row] = {}
    for data, kind, method, trials in searches(path):
        settings = changes(preset(method, data, kind, name="paper"), best(trials))
        tables.setdefault(method, {}).setdefault(data, {"tuned": {}})["tuned"][kind] = settings
    print(tomli_w.dumps(tables))


def parse() -> argparse.Namespace:
    parser = create_parser(__doc__)
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument(
        "--models", type=Path, default=default_root(), help="folder of the artifact store"
    )
    parser.add_argument("--out", type=Path, help="default: DATA-search.jsonl in benchmarks/results")
    parser.add_argument("--data", default="cifar10")
    every: list[str] = []
    for kind in TABLES:
        every += [f"{kind}:{name}" for name in spaces() if kind in METHODS[name].scenarios]
    parser.add_argument("--only", metavar="KIND:METHOD", nargs="+", choices=every, default=every)
    parser.add_argument("--budget", type=int, help="trials of each method; default: the grid's")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="searches at once; on a GPU this is faster only with NVIDIA's MPS",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--table", type=Path, help="print the best of each search of a file and stop"
    )
    parser.add_argument(
        "--presets", type=Path, help="print the best of each search as presets and stop"
    )
    parser.add_argument(
        "--limit-minutes", type=float, default=60.0 * 24, help="no trial begins later"
    )
    parser.add_argument("--study", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=float("inf"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out = args.out or Path(f"benchmarks/results/{args.data}-search.jsonl")
    return args


if __name__ == "__main__":
    main()
