"""Forget 1 to 20 random samples, and compare the models with models that never saw them.

    python benchmarks/few_samples.py --data noisy-digits
    python benchmarks/few_samples.py --data digits
    python benchmarks/few_samples.py --data noisy-digits --unknown-recipe
    python benchmarks/few_samples.py --data noisy-digits --without-retain --methods neg-grad amun
    python benchmarks/few_samples.py --data cifar10 --model resnet18 --weights original.safetensors
    python benchmarks/few_samples.py --table benchmarks/results/few-samples.jsonl

One JSON line per request and method. The samples of a small request are among those of the larger
ones with the same number, and one set of retrained models, without the largest, serves them all.
Time is CPU time on a CPU, as a share of retraining.

rank       Share of the reported test samples of the class with a lower loss: 0.5 on average for a
           model that never saw the sample. The holdout, which stop rules use, is not among them.
inside     Share of the samples whose rank lies between the 5th and the 95th percentile of what
           retrained models give for this sample: the prediction interval by Student's t of normal
           quantiles of ranks. Retrained models, each compared with the others, are inside for 90 %.
known      Share of the samples with a lower rank: the model still knows them.
of these   Of the samples that the original knew, the share that is still known.

With --unknown-recipe originals are trained with Adam, and methods take the default recipe for the
data, as they do if a model was trained elsewhere. With --without-retain the training samples are
the forget samples alone.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from leakage import parse_variant
from leakage_pool import timed
from result_files import ResultFile, Row, create_parser, print_table, run_or_print
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor, nn

import duck
from duck.methods.presets import default_recipe
from duck.models import build
from duck.models.weights import load_weights
from duck.predict import Outcomes, accuracy, outcomes
from duck.retraining import Retraining
from duck.runtime import pick_device, seeded
from duck.scenarios import ForgetSamples
from duck.types import Data, Examples, Recipe, Scenario

Array = npt.NDArray[np.float64]
SIZES = (1, 2, 5, 10, 20)
METHODS = ("duck", "warm-restart", "warm-restart:epochs=8,shrink=0.7", "finetune")
LEAST_RANK = 0.01
"""Ranks are cut off this far from 0 and 1, where normal quantiles are infinite."""
LEAST_SPREAD = 0.05
"""Of normal quantiles between retrained models, which may all be cut off."""
ELSEWHERE = Recipe(epochs=30, batch_size=64, lr=1e-3, optimizer="adam", schedule="constant")
"""How originals are trained for --unknown-recipe."""


def ranks(forget: Outcomes, labels: Tensor, unseen: Outcomes, unseen_labels: Tensor) -> list[float]:
    """Return the share of reported test samples of its class with a lower loss, for each sample."""
    ranks = []
    for loss, label in zip(forget.losses, labels, strict=True):
        others = unseen.losses[(unseen_labels == label).to(unseen.losses.device)]
        equal = (others == loss).double().mean()
        ranks.append(float((others < loss).double().mean() + equal / 2))
    return ranks


@dataclass(frozen=True)
class Requests:
    """Requests to some originals."""

    args: argparse.Namespace
    data: Data

    @cached_property
    def default(self) -> Recipe:
        """The recipe that methods are told."""
        return default_recipe(
            self.data.name, len(self.data.train), self.data.augment, self.args.model
        )

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the originals and the retrained models."""
        changes = {"epochs": self.args.epochs, "batch_size": self.args.batch_size}
        given = {name: value for name, value in changes.items() if value}
        return replace(ELSEWHERE if self.args.unknown_recipe else self.default, **given)

    @cached_property
    def originals(self) -> list[nn.Module]:
        if self.args.weights:
            model = self.new_model()
            load_weights(model, self.args.weights)
            return [model.to(self.data.train.device).eval()]
        return [
            duck.train(self.args.model, self.data, seed, self.recipe)
            for seed in range(self.args.originals)
        ]

    def new_model(self) -> nn.Module:
        return build(self.args.model, self.data.num_classes, self.data.train.shape, None)

    def scenario(self, count: int, seed: int) -> Scenario:
        rows = torch.randperm(len(self.data.train), generator=seeded(seed, "few"))[:count]
        return ForgetSamples([str(name) for name in self.data.train.ids[rows.numpy()]])(
            self.data, seed
        )

    @cached_property
    def test(self) -> Examples:
        """The reported test samples, which do not depend on the forget set."""
        assert self.data.test is not None
        return self.data.test.take(self.scenario(1, 0).test)

    def retrained(self, seed: int) -> tuple[list[nn.Module], float]:
        """Return models without the samples of the largest request, and the time of each."""
        scenario = self.scenario(max(self.args.sizes), seed)
        training = Retraining(scenario, self.originals[0], self.new_model, self.recipe)
        models, seconds = timed(self.data.train.device, lambda: training(self.args.references))
        return models, seconds / max(1, self.args.references)

    def measure(self, model: nn.Module, forget: Examples) -> Row:
        """Return the ranks of the forget samples, and the accuracy on test samples."""
        unseen = outcomes(model, self.test)
        return {
            "ranks": ranks(outcomes(model, forget), forget.labels, unseen, self.test.labels),
            "test": accuracy(model, self.test),
        }

    def run(self, variant: str, count: int, seed: int) -> Row:
        """Forget `count` random samples by one method and measure the unlearned model."""
        original = self.originals[seed % len(self.originals)]
        scenario = self.scenario(count, seed)
        if self.args.without_retain:
            alone = replace(self.data, train=self.data.train.take(scenario.forget))
            scenario = ForgetSamples(alone.train.ids.tolist())(alone, seed)
        method = parse_variant(variant, self.data.name, "samples", len(self.data.train))
        notes: list[str] = []
        task = scenario.task(new_model=self.new_model, recipe=self.default)
        task = replace(task, note=notes.append, unmet=notes.append)
        unlearned, seconds = timed(self.data.train.device, lambda: method(original, task))
        forget = scenario.data.train.take(scenario.forget)
        before = self.measure(original, forget)
        return {
            "samples": count,
            "seed": seed,
            "original": seed % len(self.originals),
            **self.measure(unlearned, forget),
            "ranks_before": before["ranks"],
            "test_before": before["test"],
            "seconds": seconds,
            "notes": notes,
        }

    def compare(self, models: Sequence[nn.Module], count: int, seed: int) -> Row:
        """Return what retrained models give for the samples of a request."""
        forget = self.data.train.take(self.scenario(count, seed).forget)
        found = [self.measure(model, forget) for model in models]
        return {name: [one[name] for one in found] for name in ("ranks", "test")}


def run(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    results = ResultFile(args.out, args.limit_minutes, device)
    data = duck.load(args.data, args.root, device=device)
    if args.train_samples:
        rows = torch.randperm(len(data.train), generator=seeded(0, "fewer"))[: args.train_samples]
        data = replace(data, train=data.train.take(rows))
    requests = Requests(args, data)
    label = args.label or args.data
    label += ", unknown recipe" if args.unknown_recipe else ""
    label += ", no retain samples" if args.without_retain else ""
    for seed in range(args.requests):
        names = {
            f"{label}, {method}, {count} samples, request {seed}": (method, count)
            for count in args.sizes
            for method in args.methods
        }
        missing = [name for name in names if name not in results.done]
        if not missing:
            continue
        if not results.has_time_for(missing[0]):
            return
        models, retraining = requests.retrained(seed)
        for name in missing:
            method, count = names[name]
            row = requests.run(method, count, seed)
            if models:
                share = row["seconds"] / retraining
                row |= {"retrained": requests.compare(models, count, seed), "time_share": share}
            results.append({"name": name, "data": label, "method": method, **row}, row["seconds"])


def print_results(rows: list[Row]) -> None:
    """Print means by data, method and size of the request."""
    headers = ["data", "method", "samples", "requests", "rank", "difference to retrained"]
    headers += ["inside %", "known %", "of these %", "test, points", "lowest", "time %"]
    headers += ["rule not met %"]
    groups: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["data"], row["samples"], row["method"]].append(row)
    cells: list[list[Any]] = []
    for (data, samples, method), group in groups.items():
        if "retrained" in group[0] and [data, "retrained", samples] not in [x[:3] for x in cells]:
            cells.append([data, "retrained", samples, *summarize_retrained(group)])
            cells.append([data, "original", samples, *summarize_original(group)])
        cells.append([data, f"`{method}`", samples, *summarize(group)])
    print_table(headers, sorted(cells, key=lambda row: (row[0], row[2])), texts=2)


def summarize(rows: list[Row]) -> list[Any]:
    """Return the cells of all requests of one size."""
    changes = [100 * (row["test"] - row["test_before"]) for row in rows]
    compared = [f"{mean_of(row['ranks'] for row in rows):.2f}", *["-"] * 4]
    share = "-"
    if "retrained" in rows[0]:
        distances = [distances_to_retrained(row, row["ranks"]) for row in rows]
        before = [distances_to_retrained(row, row["ranks_before"]) for row in rows]
        compared = comparison_cells(rows, "ranks", distances, before)
        share = f"{100 * statistics.median(row['time_share'] for row in rows):.0f}"
    unmet = [any("stop rule" in note for note in row["notes"]) for row in rows]
    return [
        len(rows),
        *compared,
        f"{statistics.fmean(changes):+.2f}",
        f"{min(changes):+.2f}",
        share,
        f"{100 * statistics.fmean(unmet):.0f}",
    ]


def summarize_original(rows: list[Row]) -> list[Any]:
    before = [distances_to_retrained(row, row["ranks_before"]) for row in rows]
    compared = comparison_cells(rows, "ranks_before", before, before)
    return [len(rows), *compared, "-", "-", "-", "-"]


def summarize_retrained(rows: list[Row]) -> list[Any]:
    """Return the cells of retrained models, each compared with the others."""
    distances = []
    for row in rows:
        values = quantiles(row["retrained"]["ranks"])
        for number, own in enumerate(values):
            distances.append(distances_to(own, np.delete(values, number, axis=0)))
    changes = []
    for row in rows:
        changes += [100 * (test - row["test_before"]) for test in row["retrained"]["test"]]
    return [
        len(rows),
        f"{mean_of(np.mean(row['retrained']['ranks'], 0) for row in rows):.2f}",
        "0",
        *shares_of(distances),
        "-",
        f"{statistics.fmean(changes):+.2f}",
        f"{min(changes):+.2f}",
        "100",
        "-",
    ]


def comparison_cells(
    rows: list[Row], name: str, distances: list[Array], before: list[Array]
) -> list[str]:
    """Return what a comparison with retrained models shows of the ranks of one name."""
    differences = [float(np.mean(row[name]) - np.mean(row["retrained"]["ranks"])) for row in rows]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    was_known = np.concatenate(before) < -1
    still = np.concatenate(distances)[was_known] < -1
    return [
        f"{mean_of(row[name] for row in rows):.2f}",
        f"{statistics.fmean(differences):+.3f} ± {error:.3f}",
        *shares_of(distances),
        f"{100 * still.mean():.0f}" if len(still) else "-",
    ]


def shares_of(distances: list[Array]) -> list[str]:
    """Return the percentages inside the interval and below it."""
    found = np.concatenate(distances)
    return [f"{100 * (np.abs(found) <= 1).mean():.0f}", f"{100 * (found < -1).mean():.0f}"]


def mean_of(groups: Iterable[Iterable[float]]) -> float:
    """Return the mean over all samples."""
    return statistics.fmean(chain.from_iterable(groups))


def quantiles(ranks: Any) -> Array:
    """Return the normal quantiles of ranks."""
    found: Array = norm.ppf(np.clip(ranks, LEAST_RANK, 1 - LEAST_RANK))
    return found


def distances_to_retrained(row: Row, ranks: list[float]) -> Array:
    return distances_to(quantiles(ranks), quantiles(row["retrained"]["ranks"]))


def distances_to(values: Array, references: Array) -> Array:
    """Return the distances to the mean of retrained models, in half widths of the interval that
    holds 90 % of further retrained models."""
    count = len(references)
    spread = np.sqrt(references.var(0, ddof=1) + LEAST_SPREAD**2)
    width = student.ppf(0.95, count - 1) * np.sqrt(1 + 1 / count) * spread
    found: Array = (values - references.mean(0)) / width
    return found


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--weights", type=Path, help="of the original; default: train it")
    parser.add_argument("--train-samples", type=int, help="number of random training samples")
    parser.add_argument("--epochs", type=int, help="of the original; default: its recipe's")
    parser.add_argument("--batch-size", type=int, help="of the original; default: its recipe's")
    parser.add_argument("--unknown-recipe", action="store_true", help="see above")
    parser.add_argument("--without-retain", action="store_true", help="see above")
    parser.add_argument("--label", help="name of the data in the table; default: --data")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="as in leakage.py")
    parser.add_argument("--requests", type=int, default=21, help="of each size")
    parser.add_argument("--originals", type=int, default=3, help="requests take them in turn")
    parser.add_argument("--references", type=int, default=10, help="retrained models; 0: none")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="samples in a request")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/few-samples.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="auto")
    run_or_print(parser, run, print_results)


if __name__ == "__main__":
    main()
