"""Compare methods on one scenario."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from duck.engines import INLINE, Engine
from duck.methods.base import METHODS, Method
from duck.methods.presets import Preset, has_settings, missing_settings, preset
from duck.metrics import Scores, check_limit, evaluate
from duck.preparation import Preparations
from duck.records import to_plain
from duck.types import Original, Progress, Scenario
from duck.unlearning import Epoch, Outcome, Watch, notes, unlearn

COLUMNS = ("aus", "forget", "retain", "test", "forget_test", "retain_test")
"""The scores that tables contain."""
FACTS = ("seconds", "prepare_seconds", "forget_samples", "processed", "status", "kept_accuracy")
"""What JSON contains of an outcome besides its scores."""


@dataclass(frozen=True)
class CompareOptions:
    """Which methods are compared, with which settings."""

    methods: tuple[str, ...] = ("all",)
    """Names from `duck list methods`, or all that suit the scenario."""
    preset: Preset = "tuned"
    """paper: the settings of the paper; tuned: with what was found on holdout data."""
    presets: Path | None = None
    """A file of `duck tune`, on top of the presets of the methods that it has settings for."""
    max_accuracy_loss: float | None = None
    """Share of accuracy on unseen samples that a method may lose, as for `duck forget`. Methods
    that lose more are named first."""

    def check(self) -> None:
        """Raise errors that are known before the data are read."""
        check_limit(self.max_accuracy_loss)
        for name in self.methods:
            if name != "all":
                METHODS[name]

    def choose(self, scenario: Scenario) -> dict[str, Method]:
        """Return the methods with their settings for a scenario."""
        names = methods_for_kind(scenario.kind) if "all" in self.methods else list(self.methods)
        tuned: list[str] = []
        if self.presets is not None:
            facts = scenario.data.name, scenario.kind
            tuned = [name for name in names if has_settings(self.presets, name, *facts)]
            if not tuned:
                raise missing_settings(self.presets, "METHOD", *facts)
        return {
            name: self._method(name, scenario, self.presets if name in tuned else None)
            for name in names
        }

    def _method(self, name: str, scenario: Scenario, file: Path | None) -> Method:
        # A method that does not suit the scenario must fail in its own row.
        kinds = METHODS[name].scenarios
        kind = scenario.kind if scenario.kind in kinds else kinds[0]
        data = scenario.data
        return preset(name, data.name, kind, len(data.train), self.preset, file)


@dataclass(frozen=True, eq=False)
class Compared:
    """The outcome of one method, or the error that ended it."""

    name: str
    method: Method
    outcome: Outcome | None
    error: str | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know about the scores."""


def compare(
    original: Original,
    scenario: Scenario,
    methods: Mapping[str, Method],
    *,
    watch: Watch | None = None,
    preparations: Preparations | None = None,
    max_accuracy_loss: float | None = None,
    engine: Engine = INLINE,
) -> Iterator[Compared]:
    """Run the methods and yield the outcome of each as it ends.

    A method that fails yields its error and does not stop the others. The arguments are those of
    `unlearn`. An engine with several workers runs methods at the same time, and their outcomes may
    come in another order. It has to pickle the arguments.
    """
    check_limit(max_accuracy_loss)
    arguments = {
        "original": evaluate(original.model, scenario),
        "watch": watch,
        "preparations": preparations or Preparations(),
        "max_accuracy_loss": max_accuracy_loss,
    }
    run = partial(_run_method, original=original, scenario=scenario, arguments=arguments)
    yield from engine(run, list(methods.items()))


def _run_method(
    task: tuple[str, Method], original: Original, scenario: Scenario, arguments: dict[str, Any]
) -> Compared:
    name, method = task
    try:
        outcome = unlearn(method, original, scenario, **arguments)
    except Exception as error:
        return Compared(name, method, None, f"{type(error).__name__}: {error}")
    return Compared(name, method, outcome, notes=tuple(notes(scenario, outcome)))


def ignore_progress(event: Progress | Epoch) -> None:
    """Ignore progress: as `watch` it fills `Outcome.history`, and it can be pickled."""


def methods_for_kind(kind: str | None = None) -> list[str]:
    """Return the methods for a kind of scenario, or all methods; baselines come first."""
    baselines = ("original", "retrained")
    able = (name for name, cls in METHODS.items() if kind is None or kind in cls.scenarios)
    return [*baselines, *(name for name in able if name not in baselines)]


def rows(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return the rows for JSON: the scores of each method, and their gaps to Retrained."""
    retrained = scores_of_retrained(compared)
    return [_row(row, retrained) for row in compared]


def scores_of_retrained(compared: Sequence[Compared]) -> Scores | None:
    """Return the scores that the others are compared with, if there are any."""
    outcomes = (row.outcome for row in compared if row.name == "retrained")
    return next((outcome.scores for outcome in outcomes if outcome), None)


def gap_to(retrained: Scores, scores: Scores, name: str) -> float | None:
    """Return a score minus that of Retrained; None where one of them is missing."""
    value, reference = getattr(scores, name), getattr(retrained, name)
    return None if value is None or reference is None else value - reference


def _row(row: Compared, retrained: Scores | None) -> dict[str, Any]:
    outcome = row.outcome
    if outcome is None:
        return {"method": row.name, "error": row.error}
    gaps = None
    if retrained:
        gaps = {name: gap_to(retrained, outcome.scores, name) for name in COLUMNS}
    scores = {name: getattr(outcome.scores, name) for name in COLUMNS}
    facts = {name: getattr(outcome, name) for name in FACTS}
    named = {"method": row.name, "scores": scores, "gaps": gaps}
    return to_plain({**named, **facts, "notes": row.notes})
