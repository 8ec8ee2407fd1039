"""Bias removal: cars with a red square that were called trucks (DUCK paper, section Interpretability).

    python benchmarks/bias_removal.py --root data --out benchmarks/results/bias-removal.jsonl --limit-minutes 9 [--preset paper]
    python benchmarks/bias_removal.py --table benchmarks/results/bias-removal.jsonl
    python benchmarks/bias_removal.py --table benchmarks/results/bias-removal.jsonl --figures figures --maps-file cifar10-seed-0-tuned.npz

For each seed: a model trained on the biased data, DUCK, and a model trained with the labels put right; what they call unseen images with
the square, and the square's mean SHAP value for the wrong class. One JSON line a seed and preset, appended as it ends; those in the file
are skipped, so a stopped benchmark goes on. Trained models are kept under --models. Needs captum. Figures are of the line that a file of
--maps is named after, drawn as `duck report --figures` draws them.
"""

import argparse
import hashlib
import json
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from lines import Lines, read
from torch import nn

import duck
from duck.analysis import bias
from duck.analysis.attribution import images_of, require_captum
from duck.analysis.paired import paired
from duck.config import to_dict
from duck.methods.presets import Preset, default_recipe
from duck.models import build
from duck.models.weights import load_weights, save_weights
from duck.report import of_removal
from duck.report.printed import save
from duck.report.removals import read_removals, with_maps
from duck.runtime import pick_device
from duck.types import Data, Recipe

MAPS, SHOWN = 6, 3
"""Images whose SHAP maps are kept, of the first seed, and how many of these a figure shows."""


@dataclass(frozen=True)
class Setting:
    """What is the same for all seeds."""

    debias: duck.Debias
    data: Data
    model: str
    recipe: Recipe
    preset: Preset
    max_epochs: int | None
    models: Path
    images: int

    def new_model(self) -> nn.Module:
        return build(self.model, self.data.num_classes, self.data.train.shape)

    def file(self, name: str, seed: int) -> Path:
        """Where a trained model is kept: by all that it depends on."""
        key = json.dumps([asdict(self.debias), self.data.name, self.model, asdict(self.recipe)])
        return self.models / f"{name}-{hashlib.blake2b(key.encode(), digest_size=4).hexdigest()}-{seed}.safetensors"

    def kept(self, name: str, seed: int) -> nn.Module | None:
        """The model, where it was trained before."""
        if not self.file(name, seed).exists():
            return None
        model = self.new_model()
        load_weights(model, self.file(name, seed))
        return model.to(self.data.train.device).eval()


def one(setting: Setting, seed: int, maps: Path | None) -> dict[str, Any]:
    """All of one seed."""
    begun, debias = time.monotonic(), setting.debias
    scenario, device = debias(setting.data, seed), str(setting.data.train.device)
    biased = setting.kept("biased", seed)
    if biased is None:
        biased = duck.train(setting.model, scenario.data, seed, setting.recipe, device=device)
        save_weights(biased, setting.file("biased", seed))
    trained, method = time.monotonic(), bias.freeing(debias, setting.data, setting.preset)
    method = replace(method, max_epochs=setting.max_epochs or method.max_epochs)
    corrected = setting.kept("corrected", seed)
    freed = bias.free(debias, scenario, biased, method, new_model=setting.new_model, recipe=setting.recipe, corrected=corrected)
    if corrected is None:
        save_weights(freed.models["corrected"], setting.file("corrected", seed))
    freed_at = time.monotonic()
    attributions = bias.explained(debias, scenario, freed.models, setting.images, seed)
    ended = time.monotonic()
    if maps is not None:
        shown = images_of(debias.unseen(scenario))[:MAPS].cpu().numpy().astype(np.float16)
        maps.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(maps, images=shown, **bias.maps(attributions, MAPS))
    settings = {"preset": setting.preset, "method": to_dict(method), "model": setting.model, "recipe": asdict(setting.recipe)}
    parts = {"train": trained - begun, "unlearn_and_retrain": freed_at - trained, "shap": ended - freed_at, "all": ended - begun}
    walls = {name: round(seconds, 1) for name, seconds in parts.items()}
    return {**bias.report(debias, scenario, freed, attributions), **settings, "wall_seconds": walls}


def run(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    lines = Lines(args.out, args.limit_minutes, device)
    data = duck.load(args.data, args.root, device=device)
    recipe = default_recipe(data.name, len(data.train), data.augment)
    recipe = replace(recipe, epochs=args.epochs or recipe.epochs, compile=args.compile or recipe.compile)
    debias = duck.Debias(args.true, args.wrong, args.count, args.patch)
    setting = Setting(debias, data, args.model, recipe, args.preset, args.max_epochs, args.models, args.images)
    for seed in args.seeds:
        name = f"{data.name}-seed-{seed}-{args.preset}" + (f"-{args.max_epochs}-epochs" if args.max_epochs else "")
        if name in lines.done:
            continue
        if not lines.time_for(name):
            return
        row = one(setting, seed, args.maps / f"{name}.npz" if args.maps and seed == args.seeds[0] else None)
        lines.put({"name": name, **row}, row["wall_seconds"]["all"])


def table(path: Path) -> None:
    """Mean and standard deviation over seeds, and tests over seeds, as Markdown."""
    rows = read(path)
    keys = [(row["data"], row["preset"], row["method"]["max_epochs"]) for row in rows]
    for key in dict.fromkeys(keys):
        group = [row for row, of in zip(rows, keys, strict=True) if of == key]
        seeds, first = ", ".join(str(row["seed"]) for row in group), group[0]
        print(f"\n{key[0]}, preset {key[1]} with at most {key[2]} epochs, seeds {seeds}.")
        print(f"For each seed {first['n']} unseen images, {first['shap']['n']} of them with SHAP values.\n")
        print(f"| model | called {first['wrong']} % | right % | right without the square % | test % | mean SHAP of the square |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name in first["called"]:
            shares = [
                _mean([100 * row["called"][name][part]["share"] for row in group]) for part in ("wrong", "right", "right_without_patch")
            ]
            test = _mean([100 * row["called"][name]["test"] for row in group])
            print(" | ".join([f"| {name}", *shares, test, f"{_mean([row['shap']['mean'][name] for row in group], 4)} |"]))
        for pair in first["shap"]["tests"]:
            worst = max(row["shap"]["tests"][pair]["p"] for row in group)
            one, other = ([row["shap"]["mean"][name] for row in group] for name in pair.split(" - "))
            over = paired(one, other)
            over_seeds = f"over {over.n} seeds p = {over.p:.2g} (least p {over.least_p:.2g})"
            print(f"\n{pair}: over images, largest p of the seeds {worst:.2g}; {over_seeds}")


def _mean(values: list[float], digits: int = 2) -> str:
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def figures(path: Path, folder: Path, maps: Path) -> list[Path]:
    """What the models of a line call unseen images, what the square means to them and where they look, as PNG and PDF."""
    lines = {removal.name: removal for removal in read_removals([path])}
    if maps.stem not in lines:
        raise SystemExit(f"{maps} is named after no line of {path}: {', '.join(lines)}.")
    removal = with_maps(lines[maps.stem], maps)
    made = {"shares": of_removal.shares(removal), "square": of_removal.square(removal), "shap": of_removal.maps(removal, SHOWN)}
    named = [replace(plot, name=f"{removal.found['data']}-bias-{name}") for name, plot in made.items() if plot]
    return [file for plot in named for file in save(plot, folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/bias-removal.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60, help="no seed is begun that would end later")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--preset", choices=("tuned", "paper"), default="tuned")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--epochs", type=int, help="other than the recipe's")
    parser.add_argument("--compile", action="store_true", help="train faster on a GPU, after half a minute of compiling")
    parser.add_argument("--true", type=int, default=1, help="class that the mislabelled images show: automobile")
    parser.add_argument("--wrong", type=int, default=9, help="class they are called: truck")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--patch", type=int, default=4)
    parser.add_argument("--max-epochs", type=int, help="of DUCK's high-forget phase, other than the preset's")
    parser.add_argument("--images", type=int, default=bias.IMAGES, help="unseen images whose SHAP values are taken")
    parser.add_argument("--models", type=Path, default=Path("data/bias-models"), help="where trained models are kept")
    parser.add_argument("--maps", type=Path, help="folder for some SHAP maps of the first seed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path, help="print the table of a file of results and stop")
    parser.add_argument("--figures", type=Path, help="with --table and --maps-file: folder for figures")
    parser.add_argument("--maps-file", type=Path, help="a file of --maps, for --figures")
    args = parser.parse_args()
    if args.figures and not (args.table and args.maps_file):
        parser.error("--figures are drawn from --table FILE and --maps-file NPZ: give both")
    if args.table:
        table(args.table)
        if args.figures:
            print("\n".join(str(file) for file in figures(args.table, args.figures, args.maps_file)))
    else:
        require_captum()
        run(args)


if __name__ == "__main__":
    main()
