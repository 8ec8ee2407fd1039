"""Choose recipes for originals of a data set and an architecture, by accuracy on holdout data.

    python benchmarks/choose_recipes.py --data cifar100 --models allcnn resnet34 --limit-minutes 9
    python benchmarks/choose_recipes.py --table benchmarks/results/recipes.jsonl

Each candidate is a change to the standard recipe of `src/duck/methods/presets.toml`. One JSON line
per training; trainings that are in the file already are skipped. Test samples that tables report
are never used.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from result_files import ResultFile, Row, create_parser, print_table, run_or_print

import duck
from duck.methods.presets import default_recipe
from duck.models import MODELS
from duck.predict import accuracy
from duck.runtime import Stopwatch, pick_device
from duck.types import Data, Recipe

Changes = dict[str, Any]
CONVOLUTIONAL: list[Changes] = [{}, {"label_smoothing": 0.1}, {"lr": 0.2}]
TRANSFORMER: list[Changes] = [{}, {"lr": 1e-3}, {"label_smoothing": 0.1, "weight_decay": 0.1}]
TINY: list[Changes] = [{}, {"label_smoothing": 0.0}, {"weight_decay": 5e-4}]


def candidates(data: str, model: str) -> list[Changes]:
    """Return the changes to the standard recipe that are tried; the first is no change."""
    if model.startswith("vit"):
        return TRANSFORMER
    return TINY if data == "tiny-imagenet" else CONVOLUTIONAL


def train_and_score(data: Data, model: str, recipe: Recipe, seed: int) -> dict[str, float]:
    """Train once, and return the accuracy on holdout data and the seconds that it took."""
    assert data.test is not None
    with Stopwatch(data.train.device) as stopwatch:
        net = duck.train(model, data, seed, recipe, device=str(data.train.device))
    return {"holdout": accuracy(net, data.test.take(data.holdout)), "seconds": stopwatch.seconds}


def run(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    results = ResultFile(args.out, args.limit_minutes, device)
    data = duck.load(args.data, args.root, device=device)
    for model in args.models:
        for changes in candidates(data.name, model):
            standard = default_recipe(data.name, len(data.train), data.augment, model)
            epochs = args.epochs or standard.epochs
            compiled = args.compile or standard.compile
            recipe = replace(standard, **changes, epochs=epochs, compile=compiled)
            name = f"{data.name}, {model}, {epochs} epochs, {changes or 'standard'}"
            if name in results.done:
                continue
            if not results.has_time_for(name):
                return
            scores = train_and_score(data, model, recipe, args.seed)
            description = {
                "name": name,
                "data": data.name,
                "model": model,
                "changes": changes,
                "recipe": asdict(recipe),
            }
            sharing = {"alone": False} if args.shared_device else {}
            row = {**description, "n": len(data.holdout), **scores, **sharing}
            results.append(row, scores["seconds"])


def print_results(rows: list[Row]) -> None:
    """Print the candidates of each data set and architecture, the best first."""
    headers = ["data set", "model", "changes to the standard recipe"]
    headers += ["epochs", "holdout %", "n", "seconds"]
    rows = sorted(rows, key=lambda row: (row["data"], row["model"], -row["holdout"]))
    print_table(headers, map(table_row, rows), texts=3)


def table_row(row: Row) -> list[object]:
    """Return the cells of one candidate."""
    changes = ", ".join(f"{key} {value:g}" for key, value in row["changes"].items()) or "none"
    seconds = f"{row['seconds']:.1f}" if row.get("alone", True) else "not timed"
    holdout = f"{100 * row['holdout']:.2f}"
    return [row["data"], row["model"], changes, row["recipe"]["epochs"], holdout, row["n"], seconds]


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", default="cifar100")
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(MODELS),
        default=["allcnn", "resnet34", "resnet50", "vit-b16"],
    )
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/recipes.jsonl"))
    parser.add_argument(
        "--limit-minutes", type=float, default=60, help="no training is begun that would end later"
    )
    parser.add_argument("--epochs", type=int, help="other than the recipe's")
    parser.add_argument("--seed", type=int, default=100, help="not that of the tables")
    parser.add_argument("--compile", action="store_true", help="train faster on a GPU")
    parser.add_argument(
        "--shared-device",
        action="store_true",
        help="other work uses the device: the table leaves the times out",
    )
    parser.add_argument("--device", default="auto")
    run_or_print(parser, run, print_results)


if __name__ == "__main__":
    main()
