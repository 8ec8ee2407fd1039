"""Measure how fast many small models train on one device.

    python benchmarks/pool_throughput.py [--model resnet18] [--shape 3 32 32] [--batch 1024]

The models train one after another, or in several processes, on random images.
One JSON line per variant: images per second over all models, in whole epochs. The first epoch,
which compiles and warms up, does not count; its seconds are `first_epoch`. A variant that fails or
takes too long prints its error. "one-plain" is "one" without CUDA graphs.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from duck.types import Examples, Progress, Recipe

# The most important first, because the time may not be enough for all.
VARIANTS = (
    "one",
    "one-compiled",
    "predict",
    "processes-2",
    "processes-4",
    "processes-2-compiled",
    "processes-4-compiled",
    "one-plain",
)
POOL = {"models": 128, "epochs": 16, "samples": 25_000, "predicted": 60_000}
TRAINED = POOL["models"] * POOL["epochs"] * POOL["samples"]


class MeasuredError(Exception):
    """Ends a training after enough seconds of measurement."""


class LateError(BaseException):
    """A variant takes too long. Not an Exception: compilers catch those."""


class EpochTimer:
    """A progress callback that measures all epochs but the first.

    `start` is called when the first epoch has ended.
    """

    def __init__(self, seconds: float, start: Callable[[], None] = lambda: None) -> None:
        self.seconds = seconds
        self.start = start
        self.created_at = time.perf_counter()
        self.started_at = self.ended_at = 0.0
        self.epochs = 0
        self.first = 0.0

    def __call__(self, progress: Progress) -> None:
        """Read the clock; the device's queue is empty, because the loss has been read."""
        if not progress.is_epoch_end:
            return
        if progress.epoch == 1:
            self.first = time.perf_counter() - self.created_at
            self.start()
            self.started_at = time.perf_counter()
            return
        self.epochs = progress.epoch - 1
        self.ended_at = time.perf_counter()
        if self.ended_at - self.started_at >= self.seconds:
            raise MeasuredError


def main() -> None:
    args = parse()
    if args.child:
        print(json.dumps(measure(args, args.child, wait=True)))
        return
    device = pick_device(args.device)
    started_at = time.monotonic()
    description = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": str(torch.__version__),
        "date": datetime.now(UTC).date().isoformat(),
        "model": args.model,
        "shape": args.shape,
        "batch": args.batch,
        "samples": args.samples,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(description), flush=True)
    for variant in args.only or VARIANTS:
        left = args.total - (time.monotonic() - started_at)
        measure_variant = measure_processes if variant.startswith("processes") else measure
        try:
            if left < args.seconds:
                raise LateError(f"not begun: {left:.0f} s of --total {args.total:g} were left")
            with at_most(min(left, args.most)):
                result = measure_variant(args, variant)
        except (Exception, LateError) as error:
            result = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        if device.type == "cuda":
            torch.cuda.empty_cache()
        print(json.dumps({"variant": variant, **result}), flush=True)


def measure(args: argparse.Namespace, variant: str, wait: bool = False) -> dict[str, Any]:
    """Return the images per second of a variant in this process.

    wait    report the end of the first epoch to the parent process and wait for its answer
    """
    device = pick_device(args.device)
    kind, _, rest = variant.partition("-")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    data = random_images(args).to(device)
    model = build(args.model, args.classes, args.shape, 0).to(device)
    if kind == "predict":
        return measure_prediction(model, data, args.seconds)
    recipe = Recipe(
        epochs=1_000_000,
        batch_size=args.batch,
        lr=1e-3,
        schedule="constant",
        augment=args.augment,
        compile=variant.endswith("compiled"),
    )
    timer = EpochTimer(args.seconds, wait_for_parent if wait else lambda: None)
    with suppress(MeasuredError):
        loop.fit(
            model,
            ShuffledPass("train", data, args.batch, args.augment),
            loss,
            recipe,
            seeded(0),
            report=timer,
            capturable=rest != "plain",
        )
    per_epoch = -(-len(data) // args.batch) * min(args.batch, len(data))
    return summarize(
        timer.epochs * per_epoch,
        timer.ended_at - timer.started_at,
        device,
        TRAINED,
        first_epoch=round(timer.first, 2),
    )


def loss(net: nn.Module, step: Step) -> torch.Tensor:
    return cross_entropy(logits_of(net(step["train"].images)), step["train"].labels)


def measure_processes(args: argparse.Namespace, variant: str) -> dict[str, Any]:
    """Return the sum over several processes that start their second epoch at the same time."""
    _, count, *compiled = variant.split("-")
    command = [sys.executable, __file__, *sys.argv[1:], "--child", "-".join(["one", *compiled])]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(int(count))
    ]
    try:
        for process in processes:
            if process.stdout is None or process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"a process ended with exit code {process.wait()}")
        for process in processes:
            if process.stdin is not None:
                process.stdin.write("go\n")
                process.stdin.flush()
        results = [json.loads(process.communicate()[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return rate(sum(result["images_per_second"] for result in results), TRAINED) | {
        key: max(result[key] for result in results)
        for key in ("seconds", "first_epoch")
        if key in results[0]
    }


def measure_prediction(model: nn.Module, data: Examples, seconds: float) -> dict[str, Any]:
    """Return the images per second of prediction as in a pool: float32, no autocast."""
    if data.device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def predict_all() -> None:
        torch.cat(
            [logits_of(model(batch.images)).float() for batch in data.batches(batch_size(data))]
        ).cpu()

    with evaluating(model):
        predict_all()
        passes = 0
        started_at = time.perf_counter()
        while time.perf_counter() - started_at < seconds:
            predict_all()
            passes += 1
    return summarize(
        passes * len(data),
        time.perf_counter() - started_at,
        data.device,
        POOL["models"] * POOL["predicted"],
    )


def summarize(
    count: int, seconds: float, device: torch.device, total: int, **more: Any
) -> dict[str, Any]:
    """Return the fields of a JSON line; `total` is the number of images for a whole pool."""
    memory = (
        {"gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 2)}
        if device.type == "cuda"
        else {}
    )
    return {**rate(count / seconds, total), "seconds": round(seconds, 2), **more, **memory}


def rate(value: float, total: int) -> dict[str, float]:
    """Return images per second, and the minutes for all images of a pool of 128 models."""
    return {
        "images_per_second": round(value),
        "minutes_for_128_models": round(total / value / 60, 2),
    }


def random_images(args: argparse.Namespace) -> Examples:
    generator = seeded(0, "images")
    channels = args.shape[0]
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


def wait_for_parent() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise LateError if the block takes longer."""

    def stop(*_: object) -> None:
        raise LateError(f"took more than {seconds:.0f} s")

    signal.signal(signal.SIGALRM, stop)
    # Repeated every second, because an error that is raised in a destructor is lost.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
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
