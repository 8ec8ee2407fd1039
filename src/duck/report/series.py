"""Results of one method and preset as a series with its colour and symbol."""

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from duck.report.plots import Mark, Points, Values
from duck.report.results import Result, mean_and_spread
from duck.report.styles import MUTED, Symbol, choose_styles
from duck.types import Estimate

T = TypeVar("T", bound=Hashable)
SCENARIOS = ("one class", "several classes", "samples")
HOLLOW_NOTE = " Hollow symbols: the preset paper of a method that also has a tuned preset."


class Series(NamedTuple):
    """The results of one method and preset, and their style."""

    label: str
    color: str
    symbol: Symbol
    is_paper: bool
    """Whether the preset is `paper` and the method also has a tuned one."""
    results: list[Result]

    def points(self, x: Values, y: Values, texts: Sequence[str], size: float = 9) -> Points:
        """Return points in the style of the series."""
        style = self.color, self.symbol, size, texts, self.is_paper
        return Points(self.label, x, y, *style)


def make_series(results: Sequence[Result]) -> list[Series]:
    """Group results by method and preset, the preset `paper` last."""
    found = []
    for label, style in choose_styles(result.label for result in results).items():
        same_method = [result for result in results if result.label == label]
        presets = sorted({result.preset for result in same_method}, reverse=True)
        is_tuned = any(preset.startswith("tuned") for preset in presets)
        for preset in presets:
            same_preset = [result for result in same_method if result.preset == preset]
            is_paper = is_tuned and preset.startswith("paper")
            found.append(Series(label, *style, is_paper, same_preset))
    return found


def split_by(series: Sequence[Series], key: Callable[[Result], T]) -> dict[T, list[Series]]:
    """Return the series of the results with each value of a key."""
    parts = {}
    for value in dict.fromkeys(map(key, results_of(series))):
        same = [one._replace(results=[r for r in one.results if key(r) == value]) for one in series]
        parts[value] = [one for one in same if one.results]
    return parts


def select(series: Sequence[Series], condition: Callable[[Result], bool]) -> list[Series]:
    """Return the series of the results that fulfil a condition."""
    return split_by(series, condition).get(True, [])


def by_scenario(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Return the series of each scenario, under "" if there is only one scenario."""
    parts = split_by(series, lambda result: result.scenario)
    if len(parts) == 1:
        return {"": list(series)}
    return {name.capitalize(): parts[name] for name in SCENARIOS if name in parts}


def results_of(series: Sequence[Series]) -> list[Result]:
    """Return the results of all series."""
    return list(chain.from_iterable(one.results for one in series))


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


def preset_legend(series: Sequence[Series]) -> list[Mark]:
    """Return a mark that explains hollow symbols in the legend, if there are any."""
    is_needed = any(one.is_paper for one in series)
    return [Points("preset paper", [], [], MUTED, hollow=True)] if is_needed else []
