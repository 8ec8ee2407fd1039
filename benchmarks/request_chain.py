"""Measure the drift of a model that forgets one request after another.

    python benchmarks/request_chain.py
    python benchmarks/request_chain.py --methods warm-restart:epochs=4,shrink=0.7 --seeds 5
    python benchmarks/request_chain.py --data cifar10 --model resnet18 --root data --size 100
    python benchmarks/request_chain.py --table benchmarks/results/request-chain.jsonl

A model forgets random requests of 20 samples, by methods that are named as in `leakage.py`. "in a
row": each request starts from the result of the one before (`duck.forget` with the earlier Result).
"together": the original forgets all of them at once. After 1, 2, 5, 10 and 20 requests everything
that was forgotten so far is compared with reported test samples by the margin (AUC; 0.5 is chance),
with models that were retrained without all of it.

gap        A measurement minus its mean over the retrained models of the same seed. The AUC and the
           accuracy of retrained models change with the number of requests, too: less data is left.
memory     Mean clipped margin of all forgotten samples: 0 as in retrained models, 1 as in the
           original.

One JSON line per seed, method and number of requests; those in the file already are skipped.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from leakage import parse_variant
from result_files import RESULTS, ResultFile, Row, create_parser, print_table, run_or_print
from torch import nn

import duck
from duck.api import Result
from duck.audits.memory import MAX_MARGIN
from duck.audits.scores import Floats, Scored, margins
from duck.audits.statistics import roc
from duck.methods.presets import default_recipe
from duck.models import build
from duck.predict import accuracy, logits_on
from duck.runtime import pick_device, seeded
from duck.scenarios import ForgetSamples
from duck.types import Data, Examples, Recipe

LENGTHS = (1, 2, 5, 10, 20)
METHODS = ("duck", "warm-restart", "warm-restart:epochs=4,shrink=0.7")
RETRAINED = "retrained"
IN_A_ROW = "in a row"
TOGETHER = "together"


@dataclass(frozen=True, eq=False)
class Chain:
    """Requests to one original, and the models to compare with."""

    data: Data
    model: str
    recipe: Recipe
    seed: int
    size: int
    references: int

    @cached_property
    def original(self) -> nn.Module:
        return duck.train(
            self.model, self.data, self.seed, self.recipe, device=str(self.data.train.device)
        )

    @cached_property
    def order(self) -> list[str]:
        """Ids in the order in which they are forgotten."""
        generator = seeded(self.seed, "request chain")
        rows = torch.randperm(len(self.data.train), generator=generator)
        ids: list[str] = self.data.train.ids[rows.numpy()].tolist()
        return ids

    @cached_property
    def test(self) -> Examples:
        """The reported test samples."""
        assert self.data.test is not None
        is_reported = torch.ones(len(self.data.test), dtype=torch.bool)
        is_reported[self.data.holdout] = False
        return self.data.test.take(is_reported.nonzero().flatten())

    def ids(self, first: int, last: int) -> list[str]:
        """Return the ids of the requests from `first` up to `last`, without it."""
        return self.order[self.size * first : self.size * last]

    def forget(
        self, model: nn.Module | Result, ids: Sequence[str], method: str, seed: int | None = None
    ) -> Result:
        """Forget samples; `seed` is that of the chain if there is none."""
        # For a few epochs compilation would cost more than it saves.
        compiled = self.recipe.compile and method == RETRAINED
        return duck.forget(
            model,
            None if isinstance(model, Result) else self.data,
            ForgetSamples(ids),
            method=parse_variant(method, self.data.name, "samples", len(self.data.train)),
            seed=self.seed if seed is None else seed,
            recipe=replace(self.recipe, compile=compiled),
            new_model=self.new_model,
            # Damage is a result here, not a reason to stop.
            max_accuracy_loss=1.0,
        )

    def new_model(self) -> nn.Module:
        return build(self.model, self.data.num_classes, self.data.train.shape)

    def retrain(self, length: int) -> list[nn.Module]:
        """Return models that never saw the first requests."""
        first_seed = 1000 * (self.seed + 1)
        return [
            self.forget(self.original, self.ids(0, length), RETRAINED, first_seed + index).model
            for index in range(self.references)
        ]

    def forgotten(self, length: int) -> Examples:
        """Return the samples of the first requests, oldest first."""
        places = {name: row for row, name in enumerate(self.data.train.ids.tolist())}
        return self.data.train.take(torch.tensor([places[name] for name in self.ids(0, length)]))

    def measure(self, model: nn.Module, length: int) -> Row:
        """Compare what was forgotten with unseen samples."""
        forgotten = read_margins(model, self.forgotten(length))
        unseen = read_margins(model, self.test)
        most = MAX_MARGIN["samples"]
        requests = np.split(forgotten, length)
        return {
            "accuracy": accuracy(model, self.test),
            "auc": auc(forgotten, unseen),
            "auc_by_request": [auc(request, unseen) for request in requests],
            "margin": float(np.clip(forgotten, -most, most).mean()),
        }


def read_margins(model: nn.Module, examples: Examples) -> Floats:
    return margins(logits_on(model, examples).cpu().numpy(), examples.labels.numpy())


def auc(members: Floats, others: Floats) -> float:
    scores = np.concatenate([members, others])
    ids = np.arange(len(scores)).astype(np.str_)
    is_member = np.arange(len(scores)) < len(members)
    return roc(Scored(ids, scores, is_member)).auc.value


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", default="noisy-digits")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--epochs", type=int, help="of the original; default: its recipe's")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", type=int, default=20, help="samples of a request")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="requests so far")
    parser.add_argument("--references", type=int, default=2, help="retrained models of each seed")
    parser.add_argument("--out", type=Path, default=RESULTS / "request-chain.jsonl")
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="auto")
    run_or_print(parser, run, print_results)


def run(args: argparse.Namespace) -> None:
    """Append the results of every seed."""
    device = pick_device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    results = ResultFile(args.out, args.limit_minutes, device)
    data = duck.load(args.data, args.root, device=device)
    recipe = default_recipe(data.name, len(data.train), data.augment, args.model)
    recipe = replace(recipe, compile=device.type == "cuda", epochs=args.epochs or recipe.epochs)
    for seed in range(args.seeds):
        chain_of_seed = Chain(data, args.model, recipe, seed, args.size, args.references)
        series = [RETRAINED]
        series += [f"{method}, {way}" for method in args.methods for way in (IN_A_ROW, TOGETHER)]
        for name in series:
            if not add_series(results, chain_of_seed, name, sorted(args.lengths)):
                return


def add_series(results: ResultFile, requests: Chain, series: str, lengths: Sequence[int]) -> bool:
    """Append the results of one seed and method; return whether there was time for it."""
    head = f"{requests.data.name}, {requests.model}, {requests.recipe.epochs} epochs"
    head += f", {requests.size} samples, seed {requests.seed}"
    names = {length: f"{head}: {series}, {length} requests" for length in lengths}
    missing = [length for length in lengths if names[length] not in results.done]
    if not missing:
        return True
    if not results.has_time_for(names[missing[0]]):
        return False
    started_at = time.monotonic()
    for length, found in measure_series(requests, series, missing).items():
        facts = {
            "name": names[length],
            "data": requests.data.name,
            "model": requests.model,
            "size": requests.size,
            "train": len(requests.data.train),
            "seed": requests.seed,
            "series": series,
            "requests": length,
        }
        results.append({**facts, **found}, time.monotonic() - started_at)
    return True


def measure_series(requests: Chain, series: str, lengths: Sequence[int]) -> dict[int, Row]:
    """Return the measurements after each number of requests."""
    if series == RETRAINED:
        return {length: measure_retrained(requests, length) for length in lengths}
    method, _, way = series.partition(", ")
    found = {}
    if way == TOGETHER:
        for length in lengths:
            result = requests.forget(requests.original, requests.ids(0, length), method)
            seconds = result.seconds
            found[length] = {**requests.measure(result.model, length), "wall_seconds": seconds}
        return found
    model: nn.Module | Result = requests.original
    seconds = 0.0
    for number in range(max(lengths)):
        model = requests.forget(model, requests.ids(number, number + 1), method)
        seconds += model.seconds
        if number + 1 in lengths:
            found[number + 1] = {
                **requests.measure(model.model, number + 1),
                "wall_seconds": seconds,
            }
    return found


def measure_retrained(requests: Chain, length: int) -> Row:
    """Return the means over retrained models, next to the numbers of the original."""
    rows = [requests.measure(model, length) for model in requests.retrain(length)]
    before = requests.measure(requests.original, length)
    means = {
        name: statistics.fmean(row[name] for row in rows) for name in ("accuracy", "auc", "margin")
    }
    by_request = np.mean([row["auc_by_request"] for row in rows], 0).tolist()
    original = {f"original_{name}": before[name] for name in means}
    return {**means, "auc_by_request": by_request, **original, "references": len(rows)}


def print_results(rows: list[Row]) -> None:
    """Print accuracy, leakage and their gaps to retrained models by the number of requests."""
    references = {(row["seed"], row["requests"]): row for row in rows if row["series"] == RETRAINED}
    headers = ["method", "requests", "seeds", "test", "gap, points", "AUC", "gap of AUC"]
    headers += ["gap of AUC, first request", "memory"]
    cells = []
    for series in dict.fromkeys(row["series"] for row in rows):
        of_series = [row for row in rows if row["series"] == series]
        for length in sorted({row["requests"] for row in of_series}):
            chosen = [row for row in of_series if row["requests"] == length]
            pairs = [(row, references[row["seed"], length]) for row in chosen]
            cells.append([series, length, len(pairs), *summarize(pairs)])
        if series == RETRAINED:
            cells += original_cells(list(references.values()))
    print_table(headers, cells, texts=1)


def original_cells(rows: list[Row]) -> list[list[object]]:
    """Return the cells of the originals, which have forgotten nothing."""
    cells: list[list[object]] = []
    for length in sorted({row["requests"] for row in rows}):
        chosen = [row for row in rows if row["requests"] == length]
        accuracies = [row["original_accuracy"] for row in chosen]
        gaps = [row["original_accuracy"] - row["accuracy"] for row in chosen]
        leaks = [row["original_auc"] for row in chosen]
        leak_gaps = [row["original_auc"] - row["auc"] for row in chosen]
        numbers = [points(accuracies), points(gaps, sign="+"), decimals(leaks)]
        numbers += [decimals(leak_gaps, sign="+"), "-", "1"]
        cells.append(["original", length, len(chosen), *numbers])
    return cells


def summarize(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """Return the cells of one series, each row with the retrained models of its seed."""
    accuracies = [row["accuracy"] for row, _ in pairs]
    leaks = [row["auc"] for row, _ in pairs]
    if all(row is other for row, other in pairs):
        return [points(accuracies), "-", decimals(leaks), "-", "-", "0"]
    gaps = [row["accuracy"] - other["accuracy"] for row, other in pairs]
    leak_gaps = [row["auc"] - other["auc"] for row, other in pairs]
    first = [row["auc_by_request"][0] - other["auc_by_request"][0] for row, other in pairs]
    memory = [
        (row["margin"] - other["margin"]) / (other["original_margin"] - other["margin"])
        for row, other in pairs
    ]
    return [
        points(accuracies),
        points(gaps, sign="+"),
        decimals(leaks),
        decimals(leak_gaps, sign="+"),
        decimals(first, sign="+"),
        decimals(memory, digits=2),
    ]


def points(shares: Sequence[float], sign: str = "") -> str:
    return decimals([100 * share for share in shares], 1, sign)


def decimals(values: Sequence[float], digits: int = 3, sign: str = "") -> str:
    """Return the mean and, over several seeds, the standard deviation."""
    mean = f"{statistics.fmean(values):{sign}.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


if __name__ == "__main__":
    main()
