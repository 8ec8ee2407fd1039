"""How long runs will take, from runs that were measured: for a plan, and while a grid runs."""

import statistics
from collections import Counter
from collections.abc import Iterable

from duck.bench.grids import Measurement
from duck.bench.results import Result, Results
from duck.experiment import Experiment, Training
from duck.methods.base import METHODS

GIGA_OPERATIONS: dict[str, dict[int, float]] = {
    "allcnn": {32: 0.690, 64: 2.758},
    "resnet18": {32: 1.111, 64: 4.444},
    "resnet34": {32: 2.319, 64: 9.275},
    "resnet50": {32: 2.596, 64: 10.383},
    "vit-b16": {32: 11.202, 64: 11.216},
}
"""Floating-point operations of a model on one image, by its pixels a side."""
DATA = {"cifar10": (50_000, 32), "cifar100": (50_000, 32), "tiny-imagenet": (100_000, 64)}
"""Training samples of a data set, and pixels a side."""


class Estimates:
    """Expected seconds of runs on one device; by default that of most results.

    A run takes as long as the most similar measured ones. Where these are of other data, of another
    architecture or of another recipe, their time is scaled by the floating-point operations.
    """

    def __init__(self, results: Results, device: str | None = None) -> None:
        self.results = results
        self.device = device or _usual_device(results)

    def seconds(
        self,
        experiment: Experiment,
        scenario: str | None = None,
        measurement: Measurement | None = None,
    ) -> float | None:
        """Return the seconds of a run, its evaluation included; None if no similar one is known.

        An experiment without a method is the training of an original. With a `measurement`, the run
        is an attack or a study.
        """
        method = experiment.method and METHODS.name_of(experiment.method)
        is_training = measurement is None and method in (None, "retrained")
        names = (None, "retrained") if is_training else (method,)
        settings = measurement and measurement.settings
        known = []
        for result in self._measured():
            if result.method not in names:
                continue
            if (result.measurement and result.measurement.settings) != settings:
                continue
            work = _relative_work(experiment.training, result.training, is_training)
            if work is not None:
                known.append((_similarity(result, experiment, scenario), work * _seconds(result)))
        best = max((similarity for similarity, _ in known), default=None)
        times = [seconds for similarity, seconds in known if similarity == best]
        return statistics.median(times) if times else None

    def total(self, runs: Iterable[float | None]) -> float | None:
        """Add up the seconds of runs; one that is not known counts as the mean of measured runs.

        None if nothing was measured.
        """
        measured = [result.wall_seconds for result in self._measured()]
        expected = list(runs)
        if not expected or not measured:
            return None if expected else 0.0
        mean = statistics.mean(measured)
        return sum(mean if seconds is None else seconds for seconds in expected)

    def _measured(self) -> list[Result]:
        done = self.results.done.values()
        return [result for result in done if result.alone and result.device == self.device]


def _usual_device(results: Results) -> str | None:
    done = results.done.values()
    devices = Counter(one.device for one in done if one.alone and one.measurement is None)
    # Results of a CPU, such as those of a rehearsal, say nothing of a GPU.
    accelerators = {name: n for name, n in devices.items() if "NVIDIA" in name or "AMD" in name}
    counted = accelerators or devices
    return max(counted, key=lambda name: counted[name], default=None)


def _similarity(result: Result, experiment: Experiment, scenario: str | None) -> tuple[bool, ...]:
    """Return what a result has in common with an experiment, the most important first."""
    training = experiment.training
    return (
        result.training.model == training.model,
        result.training.data == training.data,
        result.experiment.method == experiment.method,
        result.scenario == scenario,
    )


def _seconds(result: Result) -> float:
    """Return the seconds of a run without its preparation, which later runs reuse.

    If the wall time is too short to contain the preparation, the run reused one itself.
    """
    wall, prepared = result.wall_seconds, result.prepare_seconds
    return wall - prepared if wall >= result.seconds + prepared else wall


def _relative_work(one: Training, other: Training, is_training: bool) -> float | None:
    """Return the work of one run over that of another: of an epoch, or of a whole training."""
    epochs = one.recipe.epochs / other.recipe.epochs if is_training else 1.0
    if (one.model, one.data) == (other.model, other.data):
        return epochs
    operations = []
    for training in (one, other):
        samples, side = DATA.get(training.data, (0, 0))
        operations.append(samples * GIGA_OPERATIONS.get(training.model, {}).get(side, 0.0))
    return epochs * operations[0] / operations[1] if all(operations) else None
