"""What stored files must hold to be used. The first place that is wrong is named; values are not repeated."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from duck.files import read_text

Check = Callable[[Any, str], None]
"""Of a value at a place."""
LARGEST = 1e100
"""Larger numbers mean nothing here, and their squares are no numbers."""
ROUNDING = 1e-9


class Wrong(ValueError):
    """A value that is not what it should be."""


def read_json(path: Path) -> Any:
    """Whatever it holds; `Wrong` where it is no JSON."""
    try:
        return json.loads(read_text(path))
    except OSError as error:
        raise Wrong(f"it cannot be opened: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Wrong(f"it is no whole JSON: {error}") from error


def number(value: Any, where: str) -> None:
    if not _finite(value):
        raise Wrong(f"{where} is {_kind(value)}, not a number")


def real(value: Any, where: str) -> None:
    """Also an infinite one, as a loss may be."""
    if not _finite(value) and value not in (math.inf, -math.inf):
        raise Wrong(f"{where} is {_kind(value)}, not a number")


def loss(value: Any, where: str) -> None:
    """Of a model that may have diverged: whatever came out."""
    if not _finite(value) and type(value) is not float:
        raise Wrong(f"{where} is {_kind(value)}, not a number")


def share(value: Any, where: str) -> None:
    number(value, where)
    if not -ROUNDING <= value <= 1 + ROUNDING:
        raise Wrong(f"{where} is no share between 0 and 1")


def count(value: Any, where: str) -> None:
    if type(value) is not int or not 0 <= value < LARGEST:
        raise Wrong(f"{where} is {_kind(value)}, not a count")


def text(value: Any, where: str) -> None:
    if type(value) is not str:
        raise Wrong(f"{where} is {_kind(value)}, not a text")


def label(value: Any, where: str) -> None:
    """A class by its name or its place."""
    if type(value) not in (str, int):
        raise Wrong(f"{where} is {_kind(value)}, not a class")


def flag(value: Any, where: str) -> None:
    if type(value) is not bool:
        raise Wrong(f"{where} is {_kind(value)}, not true or false")


def moment(value: Any, where: str) -> None:
    """When something was made; empty where that is not known."""
    text(value, where)
    try:
        datetime.fromisoformat(value or "2026-11-15")
    except ValueError:
        raise Wrong(f"{where} is no date") from None


def one_of(*known: str) -> Check:
    def check(value: Any, where: str) -> None:
        if value not in known:
            raise Wrong(f"{where} is none of {', '.join(known)}")

    return check


def maybe(inner: Check) -> Check:
    """Or null."""
    return lambda value, where: None if value is None else inner(value, where)


def many(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        for at, item in enumerate(_list(value, where)):
            inner(item, f"{where}[{at}]")

    return check


def numbers(value: Any, where: str) -> None:
    """As `many(number)`, quick enough for every point of a map."""
    if not all(map(_finite, _list(value, where))):
        raise Wrong(f"{where} holds something that is not a number")


def labels(value: Any, where: str) -> None:
    """As `many(count)`, as quick."""
    if not all(type(item) is int and 0 <= item < LARGEST for item in _list(value, where)):
        raise Wrong(f"{where} holds something that is no class")


def flags(value: Any, where: str) -> None:
    """As `many(flag)`, as quick."""
    if not all(type(item) is bool for item in _list(value, where)):
        raise Wrong(f"{where} holds something that is not true or false")


def ends(value: Any, where: str) -> None:
    """Of an interval."""
    numbers(value, where)
    if len(value) != 2:
        raise Wrong(f"{where} is no pair of numbers")


def each(inner: Check, whole: bool = False) -> Check:
    """An object with any names; `whole`: the names are those of classes, by their places."""

    def check(value: Any, where: str) -> None:
        for name, item in _object(value, where).items():
            if whole and not (name.isascii() and name.isdigit()):
                raise Wrong(f"{where} has a name that is no class")
            inner(item, _within(where, name))

    return check


def fields(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these names; others are not looked at."""

    def check(value: Any, where: str) -> None:
        found = _object(value, where)
        for name, inner in needed.items():
            if name not in found:
                raise Wrong(f"{_within(where, name)} is missing")
            inner(found[name], _within(where, name))
        for name, inner in (optional or {}).items():
            if name in found:
                inner(found[name], _within(where, name))

    return check


def alike(inner: Check, *names: str) -> Check:
    """These lists of an object are of one length."""

    def check(value: Any, where: str) -> None:
        inner(value, where)
        if len({len(value[name]) for name in names}) > 1:
            raise Wrong(f"{where} has {', '.join(names)} of different lengths")

    return check


def table(value: Any, where: str) -> None:
    """Rows of numbers, as long as each other, and not empty."""
    rows = _list(value, where)
    for row in rows:
        numbers(row, where)
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise Wrong(f"{where} has no rows of one length")


def both(*checks: Check) -> Check:
    def check(value: Any, where: str) -> None:
        for inner in checks:
            inner(value, where)

    return check


def filled(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        inner(value, where)
        if not value:
            raise Wrong(f"{where} is empty")

    return check


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def _list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise Wrong(f"{where} is {_kind(value)}, not a list")
    return value


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Wrong(f"{where or 'it'} is {_kind(value)}, not an object")
    return value


def _within(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _kind(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")


ENVIRONMENT = fields({"python": text, "packages": each(text), "platform": text, "device": text})
ACCURACIES = dict.fromkeys(("forget", "retain", "test", "forget_test", "retain_test"), maybe(share))
SCORES = both(
    fields(
        {},
        {
            **ACCURACIES,
            "train": maybe(share),
            "aus": maybe(number),
            "forget_loss": maybe(loss),
            "forget_rank": maybe(share),
        },
    ),
    each(maybe(loss)),
)
EPOCH = fields({"phase": text, "forget": share, "retain": share}, {"holdout": maybe(share)})
STATES = one_of("still forgotten", "known again", "was never forgotten", "too few to tell")
EARLIER = fields(
    {
        "request": text, "kind": one_of("class", "samples"), "samples": count, "before": share, "after": share, "best": share,
        "rank_before": maybe(share), "rank_after": maybe(share), "best_rank": maybe(share), "state": STATES,
    }
)  # fmt: skip
CONFUSED = maybe(each(each(count, whole=True), whole=True))


def _same_samples(by_class: Any, where: str) -> None:
    """Before and after are of the same unseen samples."""
    before, after = (
        {true: sum(row.values()) for true, row in (by_class.get(name) or {}).items()}
        for name in ("original", "unlearned")
    )
    if before and after and before != after:
        raise Wrong(f"{where} counts other samples before than after")


def _known_classes(by_class: Any, where: str) -> None:
    """What was to be forgotten is among the names."""
    names = len(by_class.get("names", ()))
    if any(int(index) >= names for index in by_class.get("forget", ())):
        raise Wrong(f"{where}.forget has a class without a name")


TRAINING = fields(
    {"data": text, "model": text},
    {
        "seed": number,
        "image_size": maybe(count),
        "mean": numbers,
        "std": numbers,
        "fingerprint": text,
        "weights": text,
        "recipe_assumed": flag,
    },
)
ABOUT = {
    "id": text, "prepare_seconds": number, "notes": many(text), "created": moment, "original_run": maybe(text),
    "source": each(maybe(text)), "environment": lambda value, where: ENVIRONMENT(value, where) if value else fields({})(value, where),
}  # fmt: skip
ORIGINAL = fields(
    {
        "scores": SCORES,
        "seconds": number,
        "samples": each(count),
        "experiment": fields({"training": TRAINING}),
    },
    ABOUT,
)
RUN = fields(
    {
        "scores": both(fields({**ACCURACIES, "aus": maybe(number)}), SCORES), "seconds": number,
        "samples": both(each(count), fields(dict.fromkeys(("forget", "retain", "processed"), count))),
        "experiment": fields(
            {"training": TRAINING, "method": fields({"name": text})},
            {"request": maybe(fields({"name": text}, {"classes": many(label)}))},
        ),
    },
    {
        "original": maybe(SCORES), "history": many(EPOCH), "earlier": many(EARLIER), "forgot": maybe(flag),
        "kept_accuracy": maybe(
            fields({"split": text, "original": share, "unlearned": share, "n": count, "limit": share, "damaged": flag})
        ),
        "by_class": both(
            fields(
                {},
                {"kind": one_of("class", "samples"), "names": many(text), "forget": each(count, whole=True), "original": CONFUSED,
                 "unlearned": CONFUSED},
            ),
            _same_samples,
            _known_classes,
        ),
        **ABOUT,
    },
)  # fmt: skip


def record(value: Any, where: str) -> None:
    """What run.json holds: the record of an unlearning or, where no method is named, of a training."""
    experiment = _object(value, where).get("experiment")
    (RUN if isinstance(experiment, dict) and experiment.get("method") is not None else ORIGINAL)(
        value, where
    )
