"""Forget 1 to 20 random samples with DUCK, and compare their losses with those of unseen samples.

    python benchmarks/few_samples.py --data digits
    python benchmarks/few_samples.py --data cifar10 --model resnet18 --weights original.safetensors
    python benchmarks/few_samples.py --table benchmarks/results/few-samples.jsonl

One JSON line per request. A sample is inside if its loss is between the 5th and the 95th percentile
of the reported test samples of its class. The holdout, which the stop rule uses, is not among them.
`rank`: the share of these test samples with a lower loss, 0.5 on average for a model that never saw
the sample.
"""

import argparse
import statistics
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from result_files import ResultFile, Row, create_parser, print_table, run_or_print
from torch import Tensor, nn

import duck
from duck.methods.base import Method
from duck.methods.presets import default_recipe, preset
from duck.models import build
from duck.models.weights import load_weights
from duck.predict import Outcomes, outcomes
from duck.runtime import Stopwatch, pick_device, seeded
from duck.scenarios import ForgetSamples
from duck.types import Data, Examples, Scenario

SIZES = (1, 2, 5, 10, 20)


def original(args: argparse.Namespace, data: Data) -> nn.Module:
    if args.weights:
        model = build(args.model, data.num_classes, data.train.shape)
        load_weights(model, args.weights)
        return model.to(data.train.device).eval()
    recipe = default_recipe(data.name, len(data.train), data.augment, args.model)
    changes = {"epochs": args.epochs, "batch_size": args.batch_size}
    return duck.train(
        args.model,
        data,
        0,
        replace(recipe, **{name: value for name, value in changes.items() if value}),
    )


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
    """Requests to one model. Its outcomes on the test samples are computed once for all."""

    method: Method
    model: nn.Module
    data: Data

    @cached_property
    def test(self) -> Examples:
        """The reported test samples, which do not depend on the forget set."""
        assert self.data.test is not None
        return self.data.test.take(self._scenario(1, 0).test)

    @cached_property
    def before(self) -> Outcomes:
        return outcomes(self.model, self.test)

    def run(self, count: int, seed: int) -> dict[str, Any]:
        """Forget `count` random samples and measure the unlearned model."""
        scenario = self._scenario(count, seed)
        notes: list[str] = []
        recipe = default_recipe(self.data.name, len(self.data.train), self.data.augment)
        with Stopwatch(self.data.train.device) as stopwatch:
            unlearned = self.method(
                self.model, replace(scenario.task(recipe=recipe), note=notes.append)
            )
        forget = self.data.train.take(scenario.forget)
        after = outcomes(unlearned, self.test)
        ranks_before = ranks(
            outcomes(self.model, forget), forget.labels, self.before, self.test.labels
        )
        ranks_after = ranks(outcomes(unlearned, forget), forget.labels, after, self.test.labels)
        return {
            "samples": count,
            "seed": seed,
            "ranks_before": ranks_before,
            "ranks": ranks_after,
            "test_before": float(self.before.correct.double().mean()),
            "test": float(after.correct.double().mean()),
            "seconds": stopwatch.seconds,
            "notes": notes,
        }

    def _scenario(self, count: int, seed: int) -> Scenario:
        rows = torch.randperm(len(self.data.train), generator=seeded(seed, "few"))[:count]
        return ForgetSamples([str(name) for name in self.data.train.ids[rows.numpy()]])(
            self.data, seed
        )


def run(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    results = ResultFile(args.out, args.limit_minutes, device)
    data = duck.load(args.data, args.root, device=device)
    if args.train_samples:
        rows = torch.randperm(len(data.train), generator=seeded(0, "fewer"))[: args.train_samples]
        data = replace(data, train=data.train.take(rows))
    model = original(args, data)
    requests = Requests(
        preset("duck", data.name, "samples", len(data.train), args.preset), model, data
    )
    for count in args.sizes:
        for seed in range(args.requests):
            name = f"{args.label or args.data}, {args.preset}, {count} samples, request {seed}"
            if name in results.done:
                continue
            if not results.has_time_for(name):
                return
            scores = requests.run(count, seed)
            results.append(
                {"name": name, "data": args.label or args.data, "preset": args.preset, **scores},
                scores["seconds"],
            )


def print_results(rows: list[Row]) -> None:
    """Print the shares inside, by the size of the request."""
    headers = ["data", "preset", "samples", "requests", "inside %", "all inside % of requests"]
    headers += ["mean rank", "rank before", "test, points", "lowest"]
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["preset"], row["samples"]), []).append(row)
    print_table(headers, [[*key, *summarize(group)] for key, group in groups.items()], texts=2)


def summarize(rows: list[Row]) -> list[object]:
    """Return the cells of all requests of one size."""
    ranks = list(chain.from_iterable(row["ranks"] for row in rows))
    ranks_before = list(chain.from_iterable(row["ranks_before"] for row in rows))
    all_inside = [all(is_inside(rank) for rank in row["ranks"]) for row in rows]
    changes = [100 * (row["test"] - row["test_before"]) for row in rows]
    return [
        len(rows),
        f"{100 * statistics.fmean(map(is_inside, ranks)):.0f}",
        f"{100 * statistics.fmean(all_inside):.0f}",
        f"{statistics.fmean(ranks):.2f}",
        f"{statistics.fmean(ranks_before):.2f}",
        f"{statistics.fmean(changes):+.2f}",
        f"{min(changes):+.2f}",
    ]


def is_inside(rank: float) -> bool:
    """Return whether the loss is between the 5th and the 95th percentile."""
    return 0.05 <= rank <= 0.95


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--weights", type=Path, help="of the original; default: train it")
    parser.add_argument("--train-samples", type=int, help="number of random training samples")
    parser.add_argument("--epochs", type=int, help="of the original; default: its recipe's")
    parser.add_argument("--batch-size", type=int, help="of the original; default: its recipe's")
    parser.add_argument("--label", help="name of the data in the table; default: --data")
    parser.add_argument("--preset", choices=["paper", "tuned"], default="tuned")
    parser.add_argument("--requests", type=int, default=20, help="of each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="samples in a request")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/few-samples.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="auto")
    run_or_print(parser, run, print_results)


if __name__ == "__main__":
    main()
