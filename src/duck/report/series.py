"""Results of one method and preset as a series with its colour and symbol."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from duck.report.looks import MUTED, Look, Symbol, choose_looks
from duck.report.plots import Mark, Points
from duck.report.results import Result, mean_and_spread
from duck.types import Estimate

SCENARIOS = ("one class", "several classes", "samples")


class Series(NamedTuple):
    """The results of one method and preset, and how they look."""

    label: str
    color: str
    symbol: Symbol
    is_paper: bool
    """Whether the preset is `paper` and the method also has a tuned one."""
    results: list[Result]

    @property
    def style(self) -> dict[str, Any]:
        """The look of its points."""
        return {"color": self.color, "symbol": self.symbol, "hollow": self.is_paper}

    def within(self, scenario: str) -> "Series":
        """Return the series with the results of one scenario only."""
        same = [result for result in self.results if result.scenario == scenario]
        return self._replace(results=same)


def make_series(results: Sequence[Result], looks: Mapping[str, Look] | None = None) -> list[Series]:
    """Group results by method and preset, the preset `paper` first."""
    looks = looks or choose_looks(result.label for result in results)
    found = []
    for label, look in looks.items():
        same_method = [result for result in results if result.label == label]
        presets = sorted({result.preset for result in same_method})
        is_tuned = any(preset.startswith("tuned") for preset in presets)
        for preset in presets:
            same_preset = [result for result in same_method if result.preset == preset]
            is_paper = is_tuned and preset.startswith("paper")
            found.append(Series(label, *look, is_paper, same_preset))
    return found


def scenarios_of(results: Sequence[Result]) -> list[str]:
    """Return the scenarios that occur, in a fixed order."""
    known = {result.scenario for result in results}
    return [scenario for scenario in SCENARIOS if scenario in known]


def group_repeats(results: Sequence[Result]) -> list[list[Result]]:
    """Group results of a bench that differ only in the case, to show their mean.

    Each stored run is a group of its own.
    """
    groups: dict[Hashable, list[Result]] = {}
    for place, result in enumerate(results):
        key = result.request_size, None if result.preset else place
        groups.setdefault(key, []).append(result)
    return list(groups.values())


def summarize(results: Sequence[Result], score: str) -> Estimate:
    """Return the mean and spread of a score: seconds, AUS, or an accuracy in percent."""
    return mean_and_spread([_score_value(result, score) for result in results])


def _score_value(result: Result, score: str) -> float:
    if score == "seconds":
        return result.seconds
    names = {"AUS": "aus", "Retained accuracy": result.retain_split}
    value = result.scores[names.get(score, result.forget_split)]
    assert value is not None
    return value if score == "AUS" else 100 * value


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
