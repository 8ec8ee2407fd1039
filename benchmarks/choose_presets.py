"""Choose presets for small data, by residual memory, exposure and accuracy on holdout data.

    python benchmarks/choose_presets.py
    python benchmarks/choose_presets.py --table benchmarks/results/unlearning-presets.jsonl

One JSON line per trial; those in the file already are skipped. One half of the holdout steers stop
rules, the other half is measured; reported test samples are never used. The score is the largest
residual memory, plus the largest membership advantage beyond that of retrained models, plus 10
times the accuracy that retrained models have more. The lowest mean over data and seeds is chosen.
"""

import argparse
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean

import torch
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print
from torch import nn

import duck
from duck.audits.judge import Judge, MeasurementCache
from duck.audits.oracle import all_measures
from duck.audits.outputs import compute_outputs, make_setting
from duck.methods import METHODS
from duck.methods.presets import default_recipe
from duck.models import build
from duck.predict import accuracy
from duck.retraining import Retraining
from duck.runtime import Stopwatch
from duck.unlearning import unlearn

REQUESTS = {"class": duck.ForgetClasses([3]), "samples": duck.ForgetFraction(0.1)}
DATA = {"class": ["noisy-digits", "digits"], "samples": ["noisy-digits"]}
METHODS_TO_TUNE = ["warm-restart", "duck-soft", "delete", "amun"]
SEEDS = (100, 101)
REFERENCES = 5


def candidates(method: str, kind: str) -> Iterator[Row]:
    """Iterate over the settings of preset_candidates.toml, each once."""
    text = Path(__file__).with_name("preset_candidates.toml").read_text(encoding="utf-8")
    seen: list[Row] = []
    for table in tomllib.loads(text)[method].get(kind, []):
        for values in product(*table.values()):
            settings = dict(zip(table, values, strict=True))
            if settings not in seen:
                seen.append(settings)
                yield settings


@cache
class Bench:
    """A request to an original, and retrained models to compare with, on holdout data."""

    def __init__(self, name: str, kind: str, seed: int) -> None:
        data = duck.load(name)
        assert data.test is not None
        # Sorted by class: every second sample is for stop rules.
        order = data.test.labels[data.holdout].argsort(stable=True)
        self.test = data.test.take(data.holdout[order])
        data = replace(data, test=self.test, holdout=torch.arange(0, len(self.test), 2))
        recipe = default_recipe(name, len(data.train), data.augment)
        new = lambda: build("convnet", data.num_classes, data.train.shape, None)  # noqa: E731
        self.how: Row = {"new_model": new, "recipe": recipe}
        self.original = duck.train("convnet", data, seed, recipe)
        self.scenario = REQUESTS[kind](data, seed)  # type: ignore[operator]
        with Stopwatch(torch.device("cpu")) as stopwatch:
            retrained = Retraining(self.scenario, self.original, new, recipe)(REFERENCES)
        self.seconds = stopwatch.seconds / REFERENCES
        self.kept_by_retrained = fmean(map(self.kept, retrained))
        self.outputs = {"original": compute_outputs(self.original, self.scenario)}
        self.outputs |= {
            f"{i}": compute_outputs(net, self.scenario) for i, net in enumerate(retrained)
        }
        measures = all_measures(make_setting(self.scenario), self.outputs["original"])
        self.judge = Judge(MeasurementCache(self.outputs), measures, list(self.outputs)[1:])

    def kept(self, model: nn.Module) -> float:
        """Return the accuracy on the measured half of the holdout, on classes that remain."""
        scenario = self.scenario
        rows = scenario.retain_test if scenario.kind == "class" else scenario.test
        return accuracy(model, self.test.take(rows))

    def measure(self, name: str, method: str, settings: Row) -> Row:
        """Run a method and compare the result with the retrained models."""
        outcome = unlearn(METHODS[method](**settings), self.original, self.scenario, **self.how)
        self.outputs[name] = compute_outputs(outcome.model, self.scenario)
        grades = self.judge.grades(name)
        rho = {item.measure: item.value for item in grades["remembers"].evidence}
        exposed = {item.measure: item.value for item in grades["exposed"].evidence}
        advantage = max(abs(exposed[attack]) for attack in exposed if attack.endswith("attack"))
        kept, reference = self.kept(outcome.model), self.kept_by_retrained
        score = max(0, *rho.values()) + advantage + 10 * max(0, reference - kept)
        row = {"rho": rho, "exposed": exposed, "advantage": advantage, "score": score}
        accuracies = {"accuracy": kept, "retrained_accuracy": reference}
        return {**row, **accuracies, "time_share": outcome.seconds / self.seconds}


def run(args: argparse.Namespace) -> None:
    results = ResultFile(args.out, 0, torch.device("cpu"))
    for method, kind in product(args.methods, REQUESTS):
        for settings, data, seed in product(candidates(method, kind), DATA[kind], SEEDS):
            trial: Row = {"method": method, "kind": kind, "settings": settings, "data": data}
            trial["seed"] = seed
            name = ", ".join(f"{key} {value}" for key, value in trial.items())
            if name not in results.done:
                row = Bench(data, kind, seed).measure(name, method, settings)
                results.append({"name": name, **trial, **row}, 0)


def print_results(rows: list[Row]) -> None:
    """Print the settings of each method and kind, the best first, with means over the trials."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["method"], row["kind"], str(row["settings"])].append(row)
    names = ["score", "advantage", "accuracy", "retrained_accuracy", "time_share"]
    means = {key: [fmean(row[name] for row in groups[key]) for name in names] for key in groups}
    order = sorted(groups, key=lambda key: (*key[:2], means[key]))
    cells = [[*key, *(round(mean, 3) for mean in means[key]), len(groups[key])] for key in order]
    print_table(["method", "kind", "settings", *names, "n"], cells, texts=3)


if __name__ == "__main__":
    parser = create_parser(__doc__)
    parser.add_argument("--methods", nargs="+", default=METHODS_TO_TUNE)
    parser.add_argument("--out", type=Path, default=RESULTS / "unlearning-presets.jsonl")
    run_or_print(parser, run, print_results)
