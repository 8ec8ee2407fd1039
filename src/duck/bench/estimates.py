"""How long runs will take, from runs that were measured: for a plan, and while a grid runs."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from duck.bench.results import Result, Results
from duck.bench.runner import Job
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
EVALUATION = 15.0
"""Most seconds that scoring a model takes; a longer rest is the training of an original."""


class Estimates:
    """Expected seconds of runs on the device that most results come from.

    A run takes as long as the most similar measured ones. Where these are of other data, of another
    architecture or of another recipe, their time is scaled by the floating-point operations.
    """

    def __init__(self, results: Results) -> None:
        every = [line for line in results.done.values() if line.measurement is None]
        runs = [line for line in every if line.alone]
        devices = Counter(line.device for line in runs)
        # Results of a CPU, such as those of a rehearsal, say nothing of a GPU.
        accelerators = {name: n for name, n in devices.items() if "NVIDIA" in name or "AMD" in name}
        counted = accelerators or devices
        self.device = max(counted, key=lambda name: counted[name], default=None)
        self._runs = [line for line in runs if line.device == self.device]
        self._trial_seconds = results.trial_seconds

    def training(
        self, experiment: Experiment, share: float = 1.0, scenario: str | None = None
    ) -> float | None:
        """Return the seconds of training an original, or a model on a share of the data.

        scenario   of a retrained model: those of the same scenario are the nearest
        """
        lines = [line for line in self._runs if line.method in (None, "retrained")]
        alike = _closest(lines, experiment, scenario)
        return _scaled(alike, experiment, share, trains=True)

    def run(self, experiment: Experiment, scenario: str) -> float | None:
        """Return the seconds of one unlearning, its evaluation included."""
        assert experiment.method is not None
        name = METHODS.name_of(experiment.method)
        if name == "retrained":
            return self.training(experiment, scenario=scenario)
        lines = [line for line in self._runs if line.method == name]
        same_settings = [line for line in lines if line.experiment.method == experiment.method]
        alike = _closest(same_settings or lines, experiment, scenario)
        return _scaled(alike, experiment)

    def trial(self, dataset: str, scenario: str, method: str) -> float | None:
        """Return the seconds of trying one setting of a method on holdout data."""
        known = self._trial_seconds.get((dataset, scenario, method))
        return statistics.mean(known) if known else None


def _scaled(
    lines: Iterable[Result], experiment: Experiment, share: float = 1.0, trains: bool = False
) -> float | None:
    ratios = [(line, _ratio(experiment.training, line.training, trains)) for line in lines]
    known = [_seconds(line) * ratio for line, ratio in ratios if ratio is not None]
    return statistics.median(known) * share if known else None


def _closest(
    lines: list[Result], experiment: Experiment, scenario: str | None = None
) -> list[Result]:
    """Return the lines that have most in common with an experiment: model, data, then scenario."""

    def alike(line: Result) -> tuple[bool, ...]:
        same = line.training.model == training.model, line.training.data == training.data
        return (*same, line.scenario == scenario)

    training = experiment.training
    usable = [line for line in lines if _ratio(training, line.training, trains=True) is not None]
    best = max(map(alike, usable), default=None)
    return [line for line in usable if alike(line) == best]


def _seconds(line: Result) -> float:
    """Return the seconds of a run with its evaluation, but without what it found or left ready.

    A line whose wall time holds the training of its original is judged by its method alone.
    """
    method = line.seconds
    wall = line.wall_seconds - line.prepare_seconds
    return min(max(wall, method), method + EVALUATION)


def _ratio(one: Training, other: Training, trains: bool) -> float | None:
    """Return the work of one training over that of another; of a method, over one pass."""
    epochs = one.recipe.epochs / other.recipe.epochs if trains else 1.0
    if (one.model, one.data) == (other.model, other.data):
        return epochs
    works = [_pass_operations(training.model, training.data) for training in (one, other)]
    return None if works[0] is None or works[1] is None else epochs * works[0] / works[1]


def _pass_operations(model: str, dataset: str) -> float | None:
    if model not in GIGA_OPERATIONS or dataset not in DATA:
        return None
    samples, side = DATA[dataset]
    return samples * GIGA_OPERATIONS[model][side]


def expected(job: Job, results: Results, device: str) -> float | None:
    """Return the seconds of a job, from finished ones of its method on the same data and device.

    None if there are none.
    """
    keys, training = job.keys, job.experiment.training
    wanted = device, job.dataset, job.settings, training.model
    lines = [line for line in results.done.values() if line.alone]
    same = [
        line
        for line in lines
        if (line.device, line.dataset, line.measurement, line.training.model) == wanted
    ]
    if keys["method"] in (None, "retrained"):
        same = [line for line in same if line.training.recipe.epochs == training.recipe.epochs]
    alike = [line for line in same if line.method == keys["method"]]
    if not alike and keys["method"] == "retrained":  # a training like that of the original
        alike = [line for line in same if line.method is None]
    row = keys["scenario"], keys["preset"]
    closest = [line for line in alike if (line.scenario, line.preset) == row]
    times = [_without_preparation(line) for line in closest or alike]
    return statistics.median(times) if times else None


def _without_preparation(line: Result) -> float:
    """Return the seconds of a run without its preparation, which later runs reuse.

    If the wall time is too short to contain the preparation, the run reused one itself.
    """
    wall, prepared = line.wall_seconds, line.prepare_seconds
    return wall - prepared if wall >= line.seconds + prepared else wall


def remaining(jobs: Sequence[Job], results: Results, device: str) -> float | None:
    """Return the seconds of all these jobs.

    A method that has not run yet counts as the mean of those that have.
    """
    lines = [line for line in results.done.values() if line.device == device and line.alone]
    if not jobs or not lines:
        return None if jobs else 0
    mean = statistics.mean(line.wall_seconds for line in lines)
    known = [expected(job, results, device) for job in jobs]
    return sum(mean if seconds is None else seconds for seconds in known)
