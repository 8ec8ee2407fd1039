"""Records are checked as they are read, and an error names the first wrong field."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from duck.records import (
    ClassIndex,
    Count,
    Date,
    InvalidRecord,
    Label,
    Loss,
    Measured,
    Share,
    check_equal_lengths,
    read_record,
    structure,
    to_plain,
)


@dataclass(frozen=True)
class Curve:
    x: list[float]
    y: tuple[Share, ...]

    def __post_init__(self) -> None:
        check_equal_lengths(self, "x", "y")


@dataclass(frozen=True)
class Record:
    name: str
    n: Count
    share: Share | None = None
    kind: Literal["class", "samples"] = "class"
    label: Label = 0
    loss: Loss = 0.0
    value: Measured = 0.0
    counts: dict[ClassIndex, Count] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    many: list[Curve] = field(default_factory=list)
    created: Date = ""


PLAIN: dict[str, Any] = {
    "name": "run",
    "n": 3,
    "share": 0.5,
    "curves": {"svm": {"x": [0, 1.5], "y": [0.0, 1]}},
    "many": [{"x": [], "y": []}],
    "unknown": 1,
}


def test_a_record_comes_back_without_unknown_keys_and_without_conversions() -> None:
    record = structure(PLAIN, Record)
    assert record.curves["svm"] == Curve([0, 1.5], (0.0, 1))
    assert type(record.curves["svm"].x[0]) is int
    plain = to_plain(record)
    assert list(plain) == list(Record.__dataclass_fields__)
    assert plain["curves"] == {"svm": {"x": [0, 1.5], "y": [0.0, 1]}}
    assert structure(plain, Record) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name is a number, .*text"),
        ({"n": "3"}, "n is text, .*count"),
        ({"n": True}, "n is true or false, .*count"),
        ({"n": -1}, "n is a number, .*count"),
        ({"n": None}, "n is null, .*count"),
        ({"share": 1.5}, "share is a number, .*share"),
        ({"share": math.nan}, "share is NaN, .*share"),
        ({"kind": "other"}, "kind is text, .*class, samples"),
        ({"label": 1.5}, "label is a number, .*class"),
        ({"value": math.nan}, "value is NaN, .*number"),
        ({"counts": [1]}, "counts is a list, .*object"),
        ({"counts": {"three": 1}}, "counts.three is text, .*index of a class"),
        ({"counts": {"3": 1.5}}, "counts.3 is a number, .*count"),
        ({"curves": {"svm": 3}}, "curves.svm is a number, .*object"),
        ({"curves": {"svm": {"x": [1]}}}, "curves.svm.y is missing"),
        ({"curves": {"svm": {"x": [1, 1e200], "y": [1, 1]}}}, r"curves.svm.x\[1\] is a number"),
        ({"curves": {"svm": {"x": [1], "y": []}}}, "curves.svm has x, y .*lengths"),
        ({"many": "abc"}, "many is text, .*list"),
        ({"many": [{"x": [], "y": []}, 3]}, r"many\[1\] is a number, .*object"),
        ({"created": "soon"}, "created is text, .*date"),
    ],
)
def test_the_first_wrong_field_is_named(change: dict[str, Any], message: str) -> None:
    # Twice: a hook that cattrs replaces after its first use would accept the second.
    for _ in range(2):
        with pytest.raises(InvalidRecord, match=rf"^{message}"):
            structure({**PLAIN, **change}, Record)


def test_the_first_of_two_wrong_fields_is_named() -> None:
    with pytest.raises(InvalidRecord, match=r"^n is missing"):
        structure({"name": "run", "share": 7}, Record)


def test_null_stands_for_a_loss_that_json_cannot_store() -> None:
    record = structure({**PLAIN, "loss": None, "value": None, "share": None}, Record)
    assert math.isnan(record.loss)
    assert math.isnan(record.value)
    assert record.share is None
    assert structure({**PLAIN, "value": math.inf}, Record).value == math.inf


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", "it is a list, .*object"),
        (b"{", "it is not complete JSON"),
        (b"\xff\xfe", "it is not complete JSON"),
        (b"[" * 100_000, "it is not complete JSON"),
        (None, "cannot be opened: .*such file"),
    ],
)
def test_a_file_that_is_no_record(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "record.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRecord, match=message):
        read_record(path, Record)
