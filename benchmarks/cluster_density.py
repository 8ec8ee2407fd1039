"""How densely classes lie in feature space: original, DUCK and retrained, each class forgotten once (DUCK paper, figure 4C).

    python benchmarks/cluster_density.py --root data --out benchmarks/results/cluster-density.jsonl --limit-minutes 9
    python benchmarks/cluster_density.py --table benchmarks/results/cluster-density.jsonl

One JSON line a forgotten class, appended as it ends; those in the file are skipped, so a stopped benchmark goes on. Models are looked for
under --models by the id of their experiment, where `duck bench` keeps its originals, and put there once they are made.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lines import Lines, read
from torch import nn

import duck
from duck.analysis.feature_space import DIMENSIONS, Run, densities, density_tests
from duck.analysis.study import analyse
from duck.config import Experiment, Training, fingerprint
from duck.methods.base import Method
from duck.methods.presets import default_recipe
from duck.models import build
from duck.models.weights import load_weights, save_weights
from duck.predict import predict
from duck.runtime import pick_device
from duck.types import Data, Scenario


@dataclass(frozen=True)
class Bench:
    """The data, the original's training, and where models are kept."""

    data: Data
    training: Training
    models: Path

    def new_model(self) -> nn.Module:
        return build(self.training.model, self.data.num_classes, self.data.train.shape)

    def kept(self, experiment: Experiment, make: Callable[[], nn.Module]) -> nn.Module:
        """The model of that experiment: read where it was made before, else made and put there."""
        file = self.models / f"{experiment.id}.safetensors"
        if not file.exists():
            made = make()
            save_weights(made, file)
            return made
        model = self.new_model()
        load_weights(model, file)
        return model.to(self.data.train.device).eval()

    def original(self) -> nn.Module:
        made, device = self.training, str(self.data.train.device)
        return self.kept(Experiment(made, seed=made.seed), lambda: duck.train(made.model, self.data, made.seed, made.recipe, device=device))

    def unlearned(self, method: Method, original: nn.Module, request: duck.ForgetClasses, scenario: Scenario) -> nn.Module:
        recipe = self.training.recipe if isinstance(method, duck.Retrained) else replace(self.training.recipe, compile=False)
        task = scenario.task(new_model=self.new_model, recipe=recipe)
        return self.kept(Experiment(self.training, request, method, scenario.seed), lambda: method(original, task))


def one(bench: Bench, original: nn.Module, label: int, args: argparse.Namespace) -> dict[str, Any]:
    """All of one forgotten class."""
    begun, data, request = time.monotonic(), bench.data, duck.ForgetClasses([label])
    scenario = request(data, bench.training.seed)
    assert data.test is not None
    method = duck.preset("duck", data.name, "class", len(data.train), args.preset)
    models = {
        "original": original,
        "unlearned": bench.unlearned(method, original, request, scenario),
        "retrained": bench.unlearned(duck.Retrained(), original, request, scenario),
    }
    splits = {"train": data.train, "test": data.test.take(scenario.test)}
    found = {name: densities({part: predict(model, of) for part, of in splits.items()}, args.dimensions) for name, model in models.items()}
    scores = {name: asdict(duck.evaluate(model, scenario)) for name, model in models.items()}
    if args.tsne == label:
        drawn = args.out.with_name(f"{args.out.stem}-{data.name}-class-{label}.json")
        drawn.write_text(json.dumps(analyse(models, scenario)), encoding="utf-8")
    return {
        "density": {name: density for name, (density, _) in found.items()},
        "spaces": {name: space._asdict() for name, (_, space) in found.items()},
        "forgotten": [label],
        "forget_test": {name: values["forget_test"] for name, values in scores.items()},
        "retain_test": {name: values["retain_test"] for name, values in scores.items()},
        "samples": {part: len(of) for part, of in splits.items()},
        "wall_seconds": round(time.monotonic() - begun, 1),
    }


def run(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    lines = Lines(args.out, args.limit_minutes, device)
    data = duck.load(args.data, args.root, device=device)
    recipe = default_recipe(data.name, len(data.train), data.augment)
    recipe = replace(recipe, epochs=args.epochs or recipe.epochs)
    bench = Bench(data, Training(data.name, args.model, recipe, args.seed, fingerprint=fingerprint(data)), args.models)
    original = bench.original()
    for label in args.classes or range(data.num_classes):
        name = f"{data.name}-class-{label}-{args.preset}"
        if name in lines.done:
            continue
        if not lines.time_for(name):
            return
        row = one(bench, original, label, args)
        keys = {"name": name, "data": data.name, "model": args.model, "preset": args.preset, "seed": args.seed, "epochs": recipe.epochs}
        lines.put({**keys, **row}, row["wall_seconds"])


def table(path: Path) -> None:
    """Medians over runs and Wilcoxon signed-rank tests, as Markdown."""
    rows = read(path)
    for data, preset in dict.fromkeys((row["data"], row["preset"]) for row in rows):
        group = [row for row in rows if (row["data"], row["preset"]) == (data, preset)]
        labels = ", ".join(str(label) for row in group for label in row["forgotten"])
        spaces = sorted({space["dimensions"] for row in group for space in row["spaces"].values()})
        print(
            f"\n{data}, DUCK preset {preset}, forgotten classes {labels}, n = {len(group)} runs, {spaces} dimensions. Median log density:\n"
        )
        print("| model | split | forgotten class | retained classes |\n| --- | --- | --- | --- |")
        for name in group[0]["density"]:
            for split in group[0]["density"][name]:
                print(f"| {name} | {split} | {_median(group, name, split, True)} | {_median(group, name, split, False)} |")
        print("\n| split | log density | median difference | p | n | least p |\n| --- | --- | --- | --- | --- | --- |")
        for test in density_tests([Run(row["density"], row["forgotten"]) for row in group]):
            numbers = f"{test['difference']:+.2f} | {test['p']:.2g} | {test['n']} | {test['least_p']:.2g}"
            print(f"| {test['split']} | {test['compared']} | {numbers} |")


def _median(rows: list[dict[str, Any]], name: str, split: str, forgotten: bool) -> str:
    values = [
        value
        for row in rows
        for label, value in row["density"][name][split].items()
        if value is not None and (int(label) in row["forgotten"]) == forgotten
    ]
    return f"{statistics.median(values):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cluster-density.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60, help="no class is begun that would end later")
    parser.add_argument("--classes", type=int, nargs="*", help="all where not given")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--preset", choices=("tuned", "paper"), default="tuned")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--epochs", type=int, help="other than the recipe's")
    parser.add_argument("--dimensions", type=float, default=DIMENSIONS, help="of the space; below 1, the share of the variance to keep")
    parser.add_argument("--models", type=Path, default=Path("data/density-models"), help="where models are looked for and kept")
    parser.add_argument("--tsne", type=int, help="also write the maps of embeddings for this forgotten class, beside --out")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path, help="print the table of a file of results and stop")
    args = parser.parse_args()
    if args.table:
        table(args.table)
    else:
        run(args)


if __name__ == "__main__":
    main()
