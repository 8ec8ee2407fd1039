"""Results of one method and preset as a series with its colour and symbol."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from duck.report.bench_records import drop_past_settings
from duck.report.numbers import mean_and_spread
from duck.report.plots import BLUE, INK, MUTED, PALETTE, SYMBOLS, Mark, Points, Symbol
from duck.report.results import Result
from duck.types import Estimate

FIXED_LOOKS: dict[str, tuple[str, Symbol]] = {
    "original": (MUTED, "circle"),
    "retrained": (INK, "diamond"),
    "duck": (BLUE, "circle"),
}
"""Methods with the same look in every plot."""
SCENARIOS = ("one class", "several classes", "samples")

Looks = Mapping[str, tuple[str, Symbol]]
"""Method -> colour and symbol."""


class Series(NamedTuple):
    """The results of one method and preset, and how they look."""

    label: str
    preset: str
    color: str
    symbol: Symbol
    is_paper: bool
    """Whether the preset is `paper` and the method also has a tuned one."""
    results: list[Result]

    @property
    def name(self) -> str:
        return f"{self.label} ({self.preset})" if self.preset else self.label

    def within(self, scenario: str) -> "Series":
        """Return the series with the results of one scenario only."""
        return self._replace(
            results=[result for result in self.results if scenario_of(result) == scenario]
        )


def make_series(results: Sequence[Result], looks: Looks | None) -> list[Series]:
    """Group results by method and preset, the preset `paper` first."""
    found = []
    for label, (color, symbol) in (looks or choose_looks(labels_of(results))).items():
        same_method = [result for result in results if result.label == label]
        presets = sorted({result.preset for result in same_method})
        is_tuned = any(preset.startswith("tuned") for preset in presets)
        for preset in presets:
            same_preset = [result for result in same_method if result.preset == preset]
            is_paper = is_tuned and preset.startswith("paper")
            found.append(Series(label, preset, color, symbol, is_paper, same_preset))
    return found


def labels_of(results: Sequence[Result]) -> list[str]:
    """Return the method labels of results."""
    return [result.label for result in results]


def choose_looks(methods: Sequence[str]) -> dict[str, tuple[str, Symbol]]:
    """Return a colour and symbol for each method.

    The original, the retrained model and DUCK always look the same. The first 30 other methods
    all look different.
    """
    names = sorted(set(methods))
    others = [name for name in names if name not in FIXED_LOOKS]
    colors = PALETTE[1:]
    looks = {
        name: (colors[place % len(colors)], SYMBOLS[place // len(colors) % len(SYMBOLS)])
        for place, name in enumerate(others)
    }
    return {name: FIXED_LOOKS[name] if name in FIXED_LOOKS else looks[name] for name in names}


def scenario_of(result: Result) -> str:
    """Return the scenario of a result. Results of different scenarios cannot be compared."""
    if result.kind != "class":
        return "samples"
    return "one class" if (result.class_count or 1) == 1 else "several classes"


def scenarios_of(results: Sequence[Result]) -> list[str]:
    """Return the scenarios that occur, in a fixed order."""
    known = {scenario_of(result) for result in results}
    return [scenario for scenario in SCENARIOS if scenario in known]


def current_results(results: Sequence[Result]) -> list[Result]:
    """Leave out results whose settings no preset has now, if there are newer ones."""
    return drop_past_settings(results, lambda result: (result.label, _request_size(result)))


def _request_size(result: Result) -> tuple[str, int | str | None]:
    """Return how much is forgotten. Only results that agree in it can be averaged."""
    size = result.class_count if result.kind == "class" else result.request_label
    return scenario_of(result), size


def group_repeats(results: Sequence[Result]) -> list[list[Result]]:
    """Group results of a bench that differ only in the case, to show their mean.

    Each stored run is a group of its own.
    """
    groups: dict[Hashable, list[Result]] = {}
    for place, result in enumerate(results):
        key = _request_size(result), None if result.preset else place
        groups.setdefault(key, []).append(result)
    return list(groups.values())


def summarize(results: Sequence[Result], score: str) -> Estimate:
    """Return the mean and spread of a score: seconds, AUS, or an accuracy in percent."""
    return mean_and_spread([_score_value(result, score) for result in results])


def _score_value(result: Result, score: str) -> float:
    if score == "seconds":
        return result.seconds
    measurements = {"AUS": result.aus, "Retained accuracy": result.retain_accuracy}
    measurement = measurements.get(score, result.forget_accuracy)
    assert measurement is not None
    return measurement.value if score == "AUS" else 100 * measurement.value


def preset_notes(
    results: Sequence[Result], current: Sequence[Result], series: Sequence[Series]
) -> str:
    """Return what a caption says about presets."""
    notes = ""
    if any(one.is_paper for one in series):
        notes += " Hollow symbols: the preset paper of a method that also has a tuned preset."
    if len(current) < len(results):
        notes += " Results with settings that no preset has now are only in the table."
    return notes


def preset_legend(series: Sequence[Series]) -> list[Mark]:
    """Return a mark that explains hollow symbols in the legend, if there are any."""
    is_needed = any(one.is_paper for one in series)
    return [Points("preset paper", [], [], MUTED, hollow=True)] if is_needed else []
