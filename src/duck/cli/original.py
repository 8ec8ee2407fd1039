"""Flags of the request and of the data, which several commands share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from duck import runs
from duck.cli.console import say
from duck.cli.inputs import DataFlags, GivenFlags
from duck.data import DATASETS
from duck.data.checks import Finding, check_data
from duck.errors import BadInput
from duck.options import OriginalOptions, model_factory, resolve_classes
from duck.run_forget import add_notes
from duck.scenarios import (
    ForgetClasses,
    ForgetFraction,
    ForgetRandomClasses,
    ForgetSamples,
    Request,
)
from duck.types import Data, Protocols, Scenario

__all__ = [
    "OriginalFlags",
    "RequestFlags",
    "add_notes",
    "data_flags",
    "data_name",
    "data_samples",
    "model_factory",
    "report_findings",
    "unprinted_notes",
]

OriginalFlags = OriginalOptions
REQUESTS: dict[str, Callable[[Any], Request]] = {
    "classes": ForgetClasses,
    "fraction": ForgetFraction,
    "random_classes": ForgetRandomClasses,
    "ids": ForgetSamples.from_file,
}
"""The request of each flag."""


@dataclass
class RequestFlags:
    """What to forget: one of --classes, --fraction, --random-classes and --ids."""

    classes: tuple[str, ...] = ()
    """Names of classes; a number is an index if no class has that name."""
    fraction: float | None = None
    """Share of the training samples, drawn with the seed."""
    random_classes: int | None = None
    """Number of classes to remove together, drawn with the seed."""
    ids: Path | None = None
    """File with one id a line: in a folder the path of an image below --data (train/cat/1.png), in
    other data its name or number."""
    protocol: Protocols = "holdout"
    """holdout: stop rules use a fifth of the test data, which is not reported; paper: the whole
    test set is used for both."""

    def check(self) -> None:
        """Raise an error if the flags are wrong, before the data are read."""
        self.read()

    def read(self, default: Request | None = None) -> Request:
        """Return the request; `default` if no flag gives one."""
        given = [name for name in REQUESTS if getattr(self, name) not in ((), None)]
        if default is not None and not given:
            return default
        if len(given) != 1:
            flags = [f"--{name.replace('_', '-')}" for name in REQUESTS]
            named = [f"--{name.replace('_', '-')}" for name in given]
            raise BadInput(
                f"Give what to forget with one of {', '.join(flags)}; "
                f"given: {', '.join(named) or 'none'}."
            )
        return self._samples if given == ["ids"] else REQUESTS[given[0]](getattr(self, given[0]))

    def build(self, data: Data, default: Request | None = None) -> Request:
        """Return the request with its classes as records store them."""
        request = self.read(default)
        return request if request is default else resolve_classes(request, data)

    @cached_property
    def _samples(self) -> ForgetSamples:
        """The request for the ids, read once: a pipe cannot be read twice."""
        assert self.ids is not None
        return ForgetSamples.from_file(self.ids)


def report_findings(scenario: Scenario) -> list[Finding]:
    """Check the data of a request and print the findings with sample ids, which no record has."""
    findings = check_data(scenario)
    for finding in findings:
        say(str(finding))
    return findings


def unprinted_notes(notes: Sequence[str], printed: Sequence[Finding]) -> list[str]:
    """Return the notes without the findings that `report_findings` has printed."""
    texts = {finding.text for finding in printed}
    return [note for note in notes if note not in texts]


def data_flags(given: GivenFlags) -> DataFlags:
    """Return the data of --run, else those of --data."""
    run = given.get("--run")
    if not run:
        return DataFlags(given.get("--data") or "digits")
    return DataFlags.of_run(Path(run))


def data_name(given: GivenFlags) -> str:
    """Return the name of the data in presets, before they are read."""
    run = given.get("--run")
    if not run:
        return given.get("--data") or "digits"
    return str(runs.read_record(Path(run))["experiment"]["training"]["data"])


def data_samples(given: GivenFlags) -> int | None:
    """Return the number of training samples before the data are read.

    The presets know it for named data sets (None); others are taken for small (0).
    """
    run = given.get("--run")
    if not run:
        return None if data_name(given) in DATASETS else 0
    samples: dict[str, int] = runs.read_record(Path(run)).get("samples", {})
    parts = sum(samples.get(name, 0) for name in ("forget", "retain"))
    return samples.get("train") or parts or None
