"""Many methods on one scenario: each row on its own, and distances to the retrained model."""

import json
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from torch import nn

from duck.cli import list_command
from duck.comparison import compare, ignore_progress, methods_for_kind, rows
from duck.engines import InlineEngine, ProcessEngine
from duck.methods import METHODS, Duck, Original, Retrained
from duck.methods.base import ForgetsBy, Kinds, Method
from duck.types import Progress, Task
from duck.unlearning import Epoch
from tests.toys import RECIPE, class_scenario, toy_original


@dataclass(frozen=True)
class Broken:
    """A method that cannot work."""

    paper: ClassVar[str] = "none"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[ForgetsBy] = "nothing"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        raise RuntimeError("the disk is full")


def test_a_failing_method_has_its_error_in_its_row_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS._entries, "broken", Broken)
    methods: dict[str, Method] = {
        "broken": Broken(),
        "original": Original(),
        "retrained": Retrained(),
        "duck": Duck(batch_size=64, lr=3e-3),
    }
    found = rows(list(compare(toy_original(), class_scenario(), methods)))
    assert [row["method"] for row in found] == list(methods)
    assert found[0] == {"method": "broken", "error": "RuntimeError: the disk is full"}
    assert (
        found[1]["gaps"]["forget_test"]
        == found[1]["scores"]["forget_test"] - found[2]["scores"]["forget_test"]
        > 0.9
    )
    assert found[2]["gaps"] == {**dict.fromkeys(found[2]["scores"], 0.0)}
    assert found[3]["scores"]["forget_test"] == 0


def test_outcomes_do_not_depend_on_the_number_of_workers() -> None:
    methods: dict[str, Method] = {
        "original": Original(),
        "retrained": Retrained(),
        "ssd": METHODS["ssd"](),
        "duck": Duck(batch_size=64, max_epochs=2, low_epochs=1),
    }
    outcomes = {}
    for workers, engine in ((1, InlineEngine()), (2, ProcessEngine(2))):
        compared = compare(
            toy_original(), class_scenario(), methods,
            watch=ignore_progress, engine=engine,
        )  # fmt: skip
        outcomes[workers] = {row.name: row.outcome for row in compared}
    assert set(outcomes[1]) == set(outcomes[2]) == set(methods)
    for name in methods:
        inline, parallel = outcomes[1][name], outcomes[2][name]
        assert inline is not None
        assert parallel is not None
        assert parallel.scores == inline.scores
        assert parallel.history == inline.history
        weights = parallel.model.state_dict()
        for key, value in inline.model.state_dict().items():
            assert weights[key].equal(value), (name, key)


def test_with_a_watch_there_are_curves_and_looking_takes_no_time_of_the_methods() -> None:
    methods: dict[str, Method] = {
        "retrained": Retrained(),
        "duck": Duck(batch_size=64, max_epochs=2, low_epochs=1),
    }
    looked = 0.0

    def look(news: Progress | Epoch) -> None:
        nonlocal looked
        if isinstance(news, Epoch):
            time.sleep(0.3)
            looked += 0.3

    short = replace(toy_original(), recipe=replace(RECIPE, epochs=2))
    for row in compare(short, class_scenario(), methods, watch=look):
        assert row.outcome is not None
        assert len(row.outcome.history) >= 2
        assert row.outcome.history[-1].forget == row.outcome.scores.forget
        assert row.outcome.seconds < looked == pytest.approx(0.3 * len(row.outcome.history))
        looked = 0.0
    unwatched = next(compare(toy_original(), class_scenario(), {"duck": methods["duck"]}))
    assert unwatched.outcome is not None
    assert unwatched.outcome.history == ()


def test_without_a_retrained_model_there_are_no_gaps() -> None:
    found = rows(list(compare(toy_original(), class_scenario(), {"original": Original()})))
    assert found[0]["gaps"] is None


def test_all_means_those_that_suit_the_scenario_baselines_first() -> None:
    assert (
        methods_for_kind("class")[:2]
        == methods_for_kind("samples")[:2]
        == ["original", "retrained"]
    )
    for kind in ("class", "samples"):
        assert set(methods_for_kind(kind)) == {
            name for name, cls in METHODS.items() if kind in cls.scenarios
        }


def test_the_list_of_methods_has_those_for_samples_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Broken, "scenarios", ("samples",))
    monkeypatch.setitem(METHODS._entries, "broken", Broken)
    assert "broken" not in methods_for_kind("class")
    assert set(methods_for_kind()) == {*METHODS}
    assert methods_for_kind()[-1] == "broken"
    assert list_command.main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == methods_for_kind()
    assert rows[-1]["scenarios"] == ["samples"]
