"""Forget 1 to 20 random samples with DUCK: is the loss of each like that of unseen samples of its class?

    python benchmarks/few_samples.py --data digits
    python benchmarks/few_samples.py --data cifar10 --model resnet18 --weights original.safetensors
    python benchmarks/few_samples.py --table benchmarks/results/few-samples.jsonl

One line a request, appended as it ends. A sample counts as inside where its loss lies between the 5th and the 95th percentile of the
test samples of its class that the tables report; the holdout, which steers the stop rule, is not among them. `rank`: the share of these
test samples with a lower loss, 0.5 on average for a model that never saw the sample.
"""

import argparse
import statistics
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from lines import Lines, read
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
    """Return, for each forget sample, the share of reported test samples of its class with a lower loss."""
    found = []
    for loss, label in zip(forget.losses, labels, strict=True):
        same = unseen.losses[(unseen_labels == label).to(unseen.losses.device)]
        found.append(float((same < loss).double().mean() + (same == loss).double().mean() / 2))
    return found


@dataclass(frozen=True)
class Requests:
    """Requests to one model. What it says of the test samples before is computed once for all of them."""

    method: Method
    model: nn.Module
    data: Data

    @cached_property
    def test(self) -> Examples:
        """The reported test samples; which they are does not depend on the forget set."""
        assert self.data.test is not None
        return self.data.test.take(self._scenario(1, 0).test)

    @cached_property
    def before(self) -> Outcomes:
        return outcomes(self.model, self.test)

    def run(self, count: int, seed: int) -> dict[str, Any]:
        """Forget `count` random samples and measure the unlearned model."""
        scenario, notes = self._scenario(count, seed), list[str]()
        recipe = default_recipe(self.data.name, len(self.data.train), self.data.augment)
        with Stopwatch(self.data.train.device) as stopwatch:
            unlearned = self.method(
                self.model, replace(scenario.task(recipe=recipe), note=notes.append)
            )
        forget, after = self.data.train.take(scenario.forget), outcomes(unlearned, self.test)
        ranks_before = ranks(
            outcomes(self.model, forget), forget.labels, self.before, self.test.labels
        )
        ranks_after = ranks(outcomes(unlearned, forget), forget.labels, after, self.test.labels)
        accuracies = [float(one.correct.double().mean()) for one in (self.before, after)]
        return {
            "samples": count, "seed": seed, "ranks_before": ranks_before, "ranks": ranks_after,
            "test_before": accuracies[0], "test": accuracies[1], "seconds": stopwatch.seconds, "notes": notes,
        }  # fmt: skip

    def _scenario(self, count: int, seed: int) -> Scenario:
        rows = torch.randperm(len(self.data.train), generator=seeded(seed, "few"))[:count]
        return ForgetSamples([str(name) for name in self.data.train.ids[rows.numpy()]])(
            self.data, seed
        )


def run(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    lines = Lines(args.out, args.limit_minutes, device)
    data = duck.load(args.data, args.root, device=device)
    if args.train_samples:
        rows = torch.randperm(len(data.train), generator=seeded(0, "fewer"))[: args.train_samples]
        data = replace(data, train=data.train.take(rows))
    model = original(args, data)
    requests = Requests(
        preset("duck", data.name, "samples", len(data.train), args.preset), model, data
    )
    for count in SIZES:
        for seed in range(args.requests):
            name = f"{args.label or args.data}, {args.preset}, {count} samples, request {seed}"
            if name in lines.done:
                continue
            if not lines.time_for(name):
                return
            found = requests.run(count, seed)
            lines.put(
                {"name": name, "data": args.label or args.data, "preset": args.preset, **found},
                found["seconds"],
            )


def table(path: Path) -> None:
    """Print the shares inside, by the size of the request."""
    rows = read(path)
    print(
        "| data | preset | samples | requests | inside % | all inside % of requests | mean rank | rank before | test, points | lowest |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for data, name, count in dict.fromkeys(
        (row["data"], row["preset"], row["samples"]) for row in rows
    ):
        own = [
            row
            for row in rows
            if (row["data"], row["preset"], row["samples"]) == (data, name, count)
        ]
        flags = [[0.05 <= rank <= 0.95 for rank in row["ranks"]] for row in own]
        inside = statistics.fmean(flag for one in flags for flag in one)
        after, before = (
            statistics.fmean(rank for row in own for rank in row[key])
            for key in ("ranks", "ranks_before")
        )
        lost = [100 * (row["test"] - row["test_before"]) for row in own]
        shares = f"{100 * inside:.0f} | {100 * statistics.fmean(all(one) for one in flags):.0f} | {after:.2f} | {before:.2f}"
        lost_text = f"{statistics.fmean(lost):+.2f} | {min(lost):+.2f}"
        print(f"| {data} | {name} | {count} | {len(own)} | {shares} | {lost_text} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--weights", type=Path, help="of the original; trained where not given")
    parser.add_argument("--train-samples", type=int, help="train on so many random samples only")
    parser.add_argument(
        "--epochs", type=int, help="of the original; those of its recipe where not given"
    )
    parser.add_argument(
        "--batch-size", type=int, help="of the original; that of its recipe where not given"
    )
    parser.add_argument(
        "--label", help="name of the data in the table, where it is not that of --data"
    )
    parser.add_argument("--preset", choices=["paper", "tuned"], default="tuned")
    parser.add_argument("--requests", type=int, default=20, help="of each size")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/few-samples.jsonl"))
    parser.add_argument("--limit-minutes", type=float, default=60)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path, help="print the table of a file of results and stop")
    args = parser.parse_args()
    if args.table:
        table(args.table)
    else:
        run(args)


if __name__ == "__main__":
    main()
