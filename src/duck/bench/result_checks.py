"""Check stored results before plans and tables use them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, get_args

from duck.bench.columns import ACCURACIES, COLUMNS
from duck.json_text import to_json
from duck.types import Augment

Result = dict[str, Any]
Right = Callable[[Any], bool]
HUGE = 1e300
"""Upper bound of times and scores; infinity and NaN are not below it."""
NAMES = {"id", "experiment", "dataset"}
TRIAL = {"dataset", "scenario", "method", "number", "settings", "score", "seconds", "start"}
"""Of a trial of the search that all methods share; `start` is the preset that it began with."""


def is_ours(line: Any) -> bool:
    """Return whether a line of JSON is a result: it has two of the names that results have."""
    return isinstance(line, dict) and len(NAMES & line.keys()) >= 2


def is_timed(line: Result) -> bool:
    """Return whether a run had the device for itself, so that its time can be compared."""
    return bool(line.get("alone", True))


def is_trial(line: Any) -> bool:
    """Return whether a line is a trial of the search for settings that all methods share."""
    if not isinstance(line, dict) or not line.keys() >= TRIAL:
        return False
    names = [line[key] for key in ("dataset", "scenario", "method")]
    return all(isinstance(name, str) for name in names) and _number(line["seconds"])


def find_flaw(line: Result) -> str | None:
    """Return the first thing that is missing or wrong, or None."""
    return next(_flaws(line), None)


def mark_invalid_scores(line: Result) -> Result:
    """Return the result as a failed run if a score is NaN or infinite."""
    wrong = [
        name
        for name, value in line.get("scores", {}).items()
        if value is not None and not abs(value) < HUGE
    ]
    if not wrong:
        return line
    return {
        **{name: value for name, value in line.items() if name != "scores"},
        "error": f"Not a number: {', '.join(wrong)}.",
    }


def _a(*kinds: type) -> Right:
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool)


def _among(known: Collection[Any]) -> Right:
    return lambda value: isinstance(value, str) and value in known


def _number(value: Any) -> bool:
    return _a(int, float)(value) and abs(value) < HUGE


def _request(value: Any) -> bool:
    """Whether a request has a name and, for random classes, their number."""
    named = isinstance(value, dict) and isinstance(value.get("name"), str)
    return named and (value["name"] != "random-classes" or _a(int)(value.get("count")))


def _epochs(value: Any) -> bool:
    return _a(int)(value) and value > 0


COMMON = {
    "id": _a(str),
    "dataset": _a(str),
    "experiment": _a(dict),
    "train_samples": _a(int),
    "wall_seconds": _number,
    "device": _a(str),
}
TRAINING = {"data": _a(str), "model": _a(str), "fingerprint": _a(str), "recipe": _a(dict)}
CELL = {
    "scenario": _among((*ACCURACIES, "bias")),
    "case": _a(int, str),
    "method": _a(str),
    "preset": _a(str),
}
"""Of a line of a cell; that of an original has None there."""
SCORES: dict[str | None, tuple[str, ...]] = {
    **{name: tuple(columns) for name, columns in COLUMNS.items()},
    None: tuple({score for scores in ACCURACIES.values() for score in scores.values()}),
    "svm": (*COLUMNS["svm"], "chance"),
}
"""By the attack of a line, what a result must have."""
SHADOWS = {"models": _a(int), "epochs": _a(int), "train": _number, "test": _number}


def _flaws(line: Result) -> Iterator[str]:
    """Lazily: a part is looked at only where nothing was wrong with those before it."""
    yield from _wrong(line, COMMON)
    yield from _wrong(line["experiment"], {"training": _a(dict)}, "experiment.")
    yield from _wrong(line["experiment"]["training"], TRAINING, "training.")
    yield from _wrong(
        line["experiment"]["training"]["recipe"], {"augment": _among(get_args(Augment))}, "recipe."
    )
    recipe = line["experiment"]["training"]["recipe"]
    yield from _wrong(recipe, {"epochs": _epochs} if "epochs" in recipe else {}, "recipe.")
    yield from _wrong(
        line, CELL if line.get("method") is not None else dict.fromkeys(CELL, _a(type(None)))
    )
    if line["method"] is not None:
        yield from _wrong(
            line["experiment"], {"request": _request, "method": _a(dict)}, "experiment."
        )
    if (line["method"] is None) != (line["experiment"].get("method") is None):
        yield "its experiment is of another method"
    yield from _wrong(line, {key: _a(str) for key in ("variant", "recipe") if key in line})
    for key in ("attack", "study"):
        if key in line:
            yield from _wrong(line, {key: _a(dict)})
            yield from _wrong(
                line[key], {"name": _among([name for name in COLUMNS if name])}, f"{key}."
            )
    if "attack" in line:
        yield from _wrong(
            line["attack"], {"pool": _a(str)} if line["attack"]["name"] == "lira" else {}, "attack."
        )
    yield from _wrong(line, {"error": _a(str)}) if "error" in line else _flaws_of_a_result(line)


def _flaws_of_a_result(line: Result) -> Iterator[str]:
    yield from _wrong(line, {"scores": _a(dict), "seconds": _number})
    attack = line.get("attack", {}).get("name")
    needed = (
        SCORES[attack or line.get("study", {}).get("name")] if line["method"] is not None else ()
    )
    yield from _wrong(
        line["scores"],
        dict.fromkeys([*line["scores"], *needed], _a(int, float, type(None))),
        "scores.",
    )
    if line["method"] is not None:
        yield from _wrong(
            line,
            {
                "prepare_seconds": _number,
                "notes": lambda notes: isinstance(notes, list) and all(map(_a(str), notes)),
            },
        )
    if attack == "lira":
        yield from _wrong(line, {"shadows": _a(dict)})
        yield from _wrong(line["shadows"], SHADOWS, "shadows.")
        yield from _wrong(
            line["shadows"], {"recipe": _a(dict)} if "recipe" in line["shadows"] else {}, "shadows."
        )
    if line.get("study", {}).get("name") == "density":
        yield from _wrong(line, {"density": _a(dict), "forgotten": _a(list)})


def _wrong(held: Mapping[str, Any], needed: Mapping[str, Right], where: str = "") -> Iterator[str]:
    for name, right in needed.items():
        if name not in held:
            yield f"{where}{name} is missing"
        elif not right(held[name]):
            yield f"{where}{name} is {to_json(held[name])[:40]}"
