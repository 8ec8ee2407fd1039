"""Settings of the rivals for an original of `duck bench`: the published spaces and the same number of trials for every method.

    python benchmarks/tune_rivals.py --root data --models models --budget 8 [--jobs 3] [--only class:scrub samples:salun]
    python benchmarks/tune_rivals.py --table benchmarks/results/cifar10-rivals-tuning.jsonl

Without --only, the methods whose paper preset falls short with our original of CIFAR-10. A trial runs on several classes, or several
random tenths, none of them among those that the tables report, and its score is the mean AUS on holdout data. One JSON line a trial,
appended as it ends; a study goes on after the trials that the file has. The original must be under --models (`duck bench` puts it there).
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from lines import read

import duck
from duck.bench import find_grid
from duck.bench.grids import facts_of, training
from duck.config import Experiment
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, preset
from duck.models import build
from duck.models.weights import load_weights
from duck.runtime import pick_device
from duck.tuning import Trial, best, changes, tune

# The longest first, so that none is left over at the end. ERM-KTP's paper preset trains for 250 epochs: its shortened one begins.
STUDIES: dict[str, Preset] = {
    "class:neg-grad-plus": "paper", "samples:salun": "paper", "class:random-label": "paper", "class:neg-grad": "paper",
    "class:scrub": "paper", "class:boundary-shrink": "paper", "samples:random-label": "paper", "class:boundary-expand": "paper",
    "class:bad-teacher": "paper", "samples:bad-teacher": "paper", "class:erm-ktp": "tuned",
}  # fmt: skip


def main() -> None:
    args = parse()
    if args.table:
        table(args.table)
    elif args.study:
        for row in study(args):
            print(json.dumps(row), flush=True)
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    """Each study in a process of its own, some at once."""
    lock, deadline = threading.Lock(), time.time() + 60 * args.limit_minutes
    args.out.parent.mkdir(parents=True, exist_ok=True)
    left = [name for name in args.only if len(trials_of(args, name)) < args.budget]

    def one(name: str) -> None:
        command = [sys.executable, __file__, *sys.argv[1:], "--study", name, "--deadline", str(deadline)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                with lock, args.out.open("a", encoding="utf-8") as file:
                    file.write(line)
                row = json.loads(line)
                about = f"{row['score']:.4f} in {row['seconds']:.1f} s {row['settings']} {row['error'] or ''}"
                print(f"{name} {row['number']}: {about}", flush=True)
        if process.returncode:
            sys.exit(f"{name} failed")

    with ThreadPoolExecutor(args.jobs) as crew:
        list(crew.map(one, left))


def study(args: argparse.Namespace) -> Any:
    """The trials of one method, as rows."""
    kind, name = args.study.split(":")
    device, grid = pick_device(args.device), find_grid(args.grid)
    data = duck.load(args.data, args.root, device=device)
    block = next(block for block in grid.blocks if block.dataset == args.data)
    made = training(grid, block, facts_of(data)).training
    model = build(made.model, data.num_classes, data.train.shape)
    load_weights(model, args.models / f"{Experiment(made, seed=made.seed).id}.safetensors")
    model.to(device).eval()
    if kind == "class":
        scenarios, on = [duck.ForgetClasses([label])(data, grid.seed) for label in args.classes], {"classes": args.classes}
    else:
        scenarios, on = [duck.ForgetFraction(0.1)(data, seed) for seed in args.seeds], {"seeds": args.seeds}
    start = starting(args.data, kind, name, len(data.train))
    about = {"dataset": args.data, "scenario": kind, "method": name, **on, "start": STUDIES.get(args.study, "paper"), "jobs": args.jobs}
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    stamp = {"device": machine, "torch": str(torch.__version__), "date": datetime.now(UTC).date().isoformat()}
    options: dict[str, Any] = {"new_model": lambda: build(made.model, data.num_classes, data.train.shape), "recipe": made.recipe}
    if args.study in args.tuned_too:
        options["also"] = [preset(name, args.tuned_of or args.data, kind, len(data.train), "tuned")]
    for trial in tune(start, model, scenarios, args.budget, done=trials_of(args, args.study), **options):
        yield {**about, **asdict(trial), **stamp}
        if time.time() > args.deadline:
            return


def starting(data: str, kind: Any, name: str, samples: int) -> Method:
    return preset(name, data, kind, samples, STUDIES.get(f"{kind}:{name}", "paper"))


def of(row: dict[str, Any]) -> str:
    return f"{row['scenario']}:{row['method']}"


def trials_of(args: argparse.Namespace, name: str) -> list[Trial]:
    """Those of a study that the file has."""
    rows = read(args.out) if args.out.exists() else []
    return [as_trial(row) for row in rows if of(row) == name and row["dataset"] == args.data]


def as_trial(row: dict[str, Any]) -> Trial:
    return Trial(**{key: row[key] for key in Trial.__dataclass_fields__})


def table(path: Path) -> None:
    """The best of each study, as Markdown and as presets."""
    rows, presets = read(path), []
    print("| scenario | method | trials | holdout AUS of the first | of the best | kept % | forgotten % |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in dict.fromkeys(of(row) for row in rows):
        trials, (kind, method) = [as_trial(row) for row in rows if of(row) == name], name.split(":")
        chosen = best(trials)
        print(
            f"| {kind} | {method} | {len(trials)} | {trials[0].score:.3f} | {chosen.score:.3f} | {100 * (chosen.kept or 0):.1f} "
            f"| {100 * (chosen.forgotten or 0):.1f} |"
        )
        data = next(row["dataset"] for row in rows if of(row) == name)
        found = changes(starting(data, kind, method, 50_000), chosen)
        presets.append(f"[{method}.{data}.tuned]\n{kind} = {json.dumps(found)}")
    print("\n" + "\n".join(presets))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder of the original")
    parser.add_argument("--out", type=Path, help="DATA-rivals-tuning.jsonl in benchmarks/results where not given")
    parser.add_argument("--grid", default="paper/table-cr", help="whose original of --data it is")
    parser.add_argument("--data", default="cifar10")
    every = [f"{kind}:{name}" for kind in ("class", "samples") for name in METHODS]
    known: Any = {"metavar": "KIND:METHOD", "nargs": "+", "choices": every}
    parser.add_argument("--only", **known, default=list(STUDIES))
    parser.add_argument("--budget", type=int, default=8, help="trials of each method")
    parser.add_argument("--tuned-too", **known, default=[], help="studies of which one trial is the preset `tuned`")
    parser.add_argument("--tuned-of", help="data set whose `tuned` that is; that of --data where not given")
    parser.add_argument("--classes", type=int, nargs="+", default=[3, 8], help="each forgotten alone in every trial")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100], help="of the random tenths")
    parser.add_argument("--jobs", type=int, default=1, help="studies at once; on a GPU only with NVIDIA's MPS is that faster")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path, help="print what was found and stop")
    parser.add_argument("--limit-minutes", type=float, default=60.0 * 24, help="no trial is begun later")
    parser.add_argument("--study", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=float("inf"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out = args.out or Path(f"benchmarks/results/{args.data}-rivals-tuning.jsonl")
    return args


if __name__ == "__main__":
    main()
