"""How fast many small models train on one device: one after another, their weights stacked, or in several processes.

    python benchmarks/pool_throughput.py [--model resnet18] [--shape 3 32 32] [--batch 1024] [--seconds 6] [--total 175]

Random images. One JSON line a variant: images a second over all models, in whole epochs after a first one that does not count (it
compiles and warms up; its seconds are `first_epoch`). A variant that fails or takes too long prints its error, and the next one goes on.
"one-plain" is "one" without steps that are recorded as CUDA graphs.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from duck.data.examples import Pixels, examples
from duck.models import build
from duck.models.head import logits_of
from duck.predict import batch_size
from duck.runtime import evaluating, pick_device, seeded
from duck.training import loop
from duck.training.batching import ShuffledPass, Step
from duck.training.stacked import train_stacked
from duck.types import Examples, Progress, Recipe

# The most telling first: what the time does not suffice for is said at the end.
VARIANTS = (
    "one", "one-compiled", "predict", "stacked-4", "stacked-4-compiled", "processes-2", "stacked-2", "stacked-8", "processes-4",
    "stacked-2-compiled", "stacked-8-compiled", "processes-2-compiled", "processes-4-compiled", "one-plain",
)  # fmt: skip
POOL = {"models": 128, "epochs": 16, "samples": 25_000, "watched": 60_000}
TRAINED = POOL["models"] * POOL["epochs"] * POOL["samples"]


class EnoughError(Exception):
    """The time is up: breaks a training off."""


class LateError(BaseException):
    """A variant takes too long. Not an Exception: compilers catch those."""


class Pace:
    """Epochs since the first one; `go` is called when that has ended."""

    def __init__(self, seconds: float, go: Callable[[], None] = lambda: None) -> None:
        self.seconds, self.go = seconds, go
        self.created = time.perf_counter()
        self.since = self.last = 0.0
        self.epochs = 0
        self.first = 0.0

    def __call__(self, news: Progress) -> None:
        """The loss of an epoch has been read: the device's queue is empty."""
        if not news.is_epoch_end:
            return
        if news.epoch == 1:
            self.first = time.perf_counter() - self.created
            self.go()
            self.since = time.perf_counter()
            return
        self.epochs, self.last = news.epoch - 1, time.perf_counter()
        if self.last - self.since >= self.seconds:
            raise EnoughError


def main() -> None:
    args = parse()
    if args.child:
        print(json.dumps(measure(args, args.child, wait=True)))
        return
    device, begun = pick_device(args.device), time.monotonic()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    about = {
        "device": name,
        "torch": str(torch.__version__),
        "date": datetime.now(UTC).date().isoformat(),
        "model": args.model,
    }
    about |= {
        "shape": args.shape,
        "batch": args.batch,
        "samples": args.samples,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(about), flush=True)
    for variant in args.only or VARIANTS:
        left = args.total - (time.monotonic() - begun)
        try:
            if left < args.seconds:
                raise LateError(f"not begun: {left:.0f} s of --total {args.total:g} were left")
            with at_most(min(left, args.most)):
                found = (
                    together_in(args, variant)
                    if variant.startswith("processes")
                    else measure(args, variant)
                )
        except (Exception, LateError) as error:
            found = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        if device.type == "cuda":
            torch.cuda.empty_cache()
        print(json.dumps({"variant": variant, **found}), flush=True)


def measure(args: argparse.Namespace, variant: str, wait: bool = False) -> dict[str, Any]:
    """Images a second of a variant in this process. `wait`: say when the first epoch is over and go on at a word from the parent."""
    device = pick_device(args.device)
    kind, _, rest = variant.partition("-")
    count, compiled = (
        int(rest.partition("-")[0]) if rest[:1].isdigit() else 1,
        variant.endswith("compiled"),
    )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    data, models = (
        images(args).to(device),
        [build(args.model, args.classes, args.shape, seed).to(device) for seed in range(count)],
    )
    if kind == "predict":
        return predicted(models[0], data, args.seconds)
    recipe = Recipe(
        epochs=1_000_000,
        batch_size=args.batch,
        lr=1e-3,
        schedule="constant",
        augment=args.augment,
        compile=compiled,
    )
    pace = Pace(args.seconds, say_ready if wait else lambda: None)
    try:
        if kind == "stacked":
            train_stacked(
                models, [data] * count, recipe, [seeded(index) for index in range(count)], pace
            )
        else:
            loop.fit(
                models[0],
                ShuffledPass("train", data, args.batch, args.augment),
                loss,
                recipe,
                seeded(0),
                report=pace,
                capturable=rest != "plain",
            )
    except EnoughError:
        pass
    per_epoch = count * -(-len(data) // args.batch) * min(args.batch, len(data))
    return told(
        pace.epochs * per_epoch,
        pace.last - pace.since,
        device,
        TRAINED,
        first_epoch=round(pace.first, 2),
    )


def loss(net: nn.Module, step: Step) -> torch.Tensor:
    return cross_entropy(logits_of(net(step["train"].images)), step["train"].labels)


def together_in(args: argparse.Namespace, variant: str) -> dict[str, Any]:
    """The sum over several processes that start their second epoch at once."""
    _, count, *compiled = variant.split("-")
    command = [sys.executable, __file__, *sys.argv[1:], "--child", "-".join(["one", *compiled])]
    crew = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(int(count))
    ]
    try:
        for one in crew:
            if one.stdout is None or one.stdout.readline().strip() != "ready":
                raise RuntimeError(f"a process ended with exit code {one.wait()}")
        for one in crew:
            if one.stdin is not None:
                one.stdin.write("go\n")
                one.stdin.flush()
        found = [json.loads(one.communicate()[0]) for one in crew]
    finally:
        for one in crew:
            one.kill()
            one.communicate()
    return rate(sum(each["images_per_second"] for each in found), TRAINED) | {
        key: max(each[key] for each in found)
        for key in ("seconds", "first_epoch")
        if key in found[0]
    }


def predicted(model: nn.Module, data: Examples, seconds: float) -> dict[str, Any]:
    """As a pool asks its models: float32, no autocast."""
    if data.device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def once() -> None:
        torch.cat(
            [logits_of(model(batch.images)).float() for batch in data.batches(batch_size(data))]
        ).cpu()

    with evaluating(model):
        once()
        passes, since = 0, time.perf_counter()
        while time.perf_counter() - since < seconds:
            once()
            passes += 1
    return told(
        passes * len(data),
        time.perf_counter() - since,
        data.device,
        POOL["models"] * POOL["watched"],
    )


def told(
    count: int, seconds: float, device: torch.device, whole: int, **more: Any
) -> dict[str, Any]:
    memory = (
        {"gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 2)}
        if device.type == "cuda"
        else {}
    )
    return {**rate(count / seconds, whole), "seconds": round(seconds, 2), **more, **memory}


def rate(value: float, whole: int) -> dict[str, float]:
    """And how long so many images take: those of 128 shadow models."""
    return {
        "images_per_second": round(value),
        "minutes_for_128_models": round(whole / value / 60, 2),
    }


def images(args: argparse.Namespace) -> Examples:
    generator, channels = seeded(0, "images"), args.shape[0]
    pixels = torch.randint(
        0, 256, (args.samples, *args.shape), generator=generator, dtype=torch.uint8
    )
    labels = torch.randint(0, args.classes, (args.samples,), generator=generator)
    return examples(
        pixels,
        labels,
        np.arange(args.samples).astype(np.str_),
        Pixels((0.5,) * channels, (0.25,) * channels),
    )


def say_ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise LateError(f"took more than {seconds:.0f} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(
        signal.ITIMER_REAL, seconds, 1.0
    )  # again and again: a destructor swallows what is raised in it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--shape", type=int, nargs=3, default=[3, 32, 32])
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--samples", type=int, default=25_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--augment", default="crop-flip")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured for each variant")
    parser.add_argument(
        "--most",
        type=float,
        default=60.0,
        help="seconds a variant may take in all, compilation included",
    )
    parser.add_argument("--total", type=float, default=175.0, help="seconds for all variants")
    parser.add_argument("--only", nargs="+", choices=VARIANTS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
