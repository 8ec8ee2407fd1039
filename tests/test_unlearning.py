"""Running a method: what it saw is counted, what it took is timed alone, and what to be careful
about is said."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods import METHODS, Duck, FineTuning, NegGrad, Original, RandomLabel, Retrained
from duck.methods.base import ForgetsBy, Kinds, Method, clone
from duck.runtime import Stopwatch, seeded
from duck.scenarios import ForgetSamples
from duck.training import loop
from duck.types import Progress, Scenario, Task
from duck.unlearning import Epoch, notes, unlearn
from tests.toys import RECIPE, class_scenario, samples_scenario, toy_data, toy_net, trained_net


def test_only_what_is_drawn_for_training_counts() -> None:
    examples, drawn = toy_data().train.take(torch.arange(20, 30)).counting()
    next(iter(examples.batches(4)))
    assert int(drawn.sum()) == 0
    batch = next(iter(examples.batches(4, torch.Generator().manual_seed(0))))
    assert sorted(batch.rows.tolist()) == drawn[20:].nonzero().flatten().tolist()
    part = examples.take(torch.tensor([9, 8]))
    list(part.batches(2, torch.Generator().manual_seed(0)))
    assert set(drawn[20:].nonzero().flatten().tolist()) == {*batch.rows.tolist(), 8, 9}


@dataclass(frozen=True)
class Half:
    """Trains on half of the forget samples only."""

    paper: ClassVar[str] = "none"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[ForgetsBy] = "training"

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        list(
            task.forget.take(torch.arange(len(task.forget) // 2)).batches(
                8, torch.Generator().manual_seed(0)
            )
        )
        time.sleep(0.2)
        if task.report:
            task.report(Progress("half", 1, 1, 1, 1, 0.5, model, is_epoch_end=True))
        return clone(model)


def test_a_method_that_skips_samples_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._entries, "half", Half)
    scenario = class_scenario()
    outcome = unlearn(Half(), trained_net(), scenario)
    assert (outcome.processed, outcome.forget_samples) == (30, 60)
    found_notes = notes(scenario, outcome)
    assert found_notes[0].startswith("Nothing was forgotten")
    assert found_notes[1] == "Only 30 of 60 forget samples were processed."


@dataclass(frozen=True)
class Ruins(Half):
    """Forgets everything."""

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        ruined = clone(model)
        with torch.no_grad():
            for parameter in ruined.parameters():
                parameter.zero_()
        list(task.forget.batches(8, torch.Generator().manual_seed(0)))
        return ruined


@pytest.mark.parametrize("make", [class_scenario, samples_scenario])
def test_a_ruined_model_is_reported_first(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._entries, "ruins", Ruins)
    scenario = make()
    outcome = unlearn(Ruins(), trained_net(), scenario)
    kept = outcome.kept_accuracy
    assert kept is not None
    assert kept.original - kept.unlearned > 0.6
    assert outcome.status == "damaged"
    assert notes(scenario, outcome)[0] == str(kept)
    assert unlearn(Ruins(), trained_net(), scenario, max_accuracy_loss=0.9).status == "done"
    with pytest.raises(BadInput, match="got 90"):
        unlearn(Ruins(), trained_net(), scenario, max_accuracy_loss=90)


def undertrained() -> nn.Module:
    net = toy_net()
    loop.train(net, toy_data().train, replace(RECIPE, epochs=2), seeded(0, "toy"))
    return net.eval()


def test_an_original_that_still_improves_is_not_taken_for_remembering() -> None:
    scenario = samples_scenario()
    outcome = unlearn(FineTuning(lr=0.05, epochs=10), undertrained(), scenario, recipe=RECIPE)
    assert outcome.scores.forget_loss < outcome.original.forget_loss / 2
    assert outcome.scores.forget >= outcome.original.forget
    assert not any(note.startswith("Nothing was forgotten") for note in notes(scenario, outcome))
    assert outcome.forgot is None
    assert outcome.status == "done"


def test_single_samples_of_a_model_that_did_not_change_are_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS._entries, "half", Half)
    scenario = ForgetSamples(["7", "8"])(toy_data())
    outcome = unlearn(Half(), undertrained(), scenario)
    assert outcome.status == "nothing forgotten"
    assert notes(scenario, outcome)[0].startswith("Nothing was forgotten")


def test_a_model_retrained_without_a_sample_that_it_gets_right_has_forgotten_it() -> None:
    scenario = ForgetSamples(["7"])(toy_data())
    original = trained_net()
    outcome = unlearn(
        Retrained(), original, scenario, new_model=toy_net, recipe=replace(RECIPE, epochs=20)
    )
    assert outcome.scores.forget == outcome.original.forget == 1
    assert outcome.scores.forget_loss < outcome.original.forget_loss
    assert not any(note.startswith("Nothing was forgotten") for note in notes(scenario, outcome))
    assert outcome.status == "done"
    assert unlearn(Original(), original, scenario).status == "nothing forgotten"


@dataclass(frozen=True)
class OnlyPrepares:
    """Sees the forget samples beforehand and does nothing with them."""

    paper: ClassVar[str] = "none"
    scenarios: ClassVar[Kinds] = ("class", "samples")
    needs_retain: ClassVar[bool] = False
    forgets_by: ClassVar[ForgetsBy] = "training"
    prepared_from: ClassVar[tuple[str, ...]] = ()
    prepared_per_request: ClassVar[bool] = False

    def prepare(self, model: nn.Module, task: Task) -> Mapping[str, Tensor]:
        list(task.forget.batches(8, torch.Generator().manual_seed(0)))
        return {"nothing": torch.zeros(1)}

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        return clone(model)


def test_what_is_only_prepared_is_not_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._entries, "only-prepares", OnlyPrepares)
    assert unlearn(OnlyPrepares(), trained_net(), class_scenario()).processed == 0


def test_watching_does_not_count_as_the_methods_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._entries, "half", Half)
    outcome = unlearn(Half(), trained_net(), class_scenario(), watch=lambda news: time.sleep(0.5))
    assert 0.2 <= outcome.seconds < 0.6
    assert [(epoch.phase, epoch.loss) for epoch in outcome.history] == [("half", 0.5)]


def test_a_watch_that_does_not_run_has_nothing_to_pause() -> None:
    """What is prepared reports its epochs, too, before the method's time begins."""
    stopwatch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        with stopwatch.paused():
            time.sleep(0.05)
        time.sleep(0.05)
    assert stopwatch.seconds == 0
    with stopwatch:
        time.sleep(0.05)
        with stopwatch.paused():
            time.sleep(0.3)
    with stopwatch.paused():
        time.sleep(0.3)
    assert 0.05 <= stopwatch.seconds < 0.3


def test_the_time_of_a_method_that_trains_beforehand_is_its_own() -> None:
    method = METHODS["erm-ktp"](epochs=1, original_epochs=2)  # type: ignore[call-arg]
    outcome = unlearn(
        method,
        trained_net(),
        class_scenario(),
        new_model=toy_net,
        recipe=RECIPE,
        watch=lambda _: None,
    )
    assert 0 < outcome.seconds < 60
    assert 0 < outcome.prepare_seconds < 60
    # Its own original was trained for two epochs before: no part of the curves, which are the same
    # when it comes from a folder.
    assert [(epoch.phase, epoch.epoch) for epoch in outcome.history] == [("transfer", 1)]


def test_the_watcher_hears_of_steps_and_epochs() -> None:
    heard: list[Progress | Epoch] = []
    outcome = unlearn(
        Duck(batch_size=64, max_epochs=1, low_epochs=1),
        trained_net(),
        class_scenario(),
        recipe=RECIPE,
        watch=heard.append,
    )
    assert [news for news in heard if isinstance(news, Epoch)] == list(outcome.history)
    assert outcome.history[-1].forget == outcome.scores.forget
    assert outcome.history[-1].retain == pytest.approx(outcome.scores.retain)


@pytest.mark.parametrize(
    "method",
    [
        Duck(max_epochs=1, lr=1e-9, low_epochs=0, batch_size=64),
        NegGrad(max_epochs=1, lr=1e-9),
        RandomLabel(max_epochs=1, lr=1e-9),
    ],
)
def test_a_stop_rule_that_was_never_met_is_noted(method: Method) -> None:
    scenario = class_scenario()
    outcome = unlearn(method, trained_net(), scenario, recipe=RECIPE)
    assert "not met within max_epochs = 1" in outcome.unmet[0]
    nothing, unmet, *_ = notes(scenario, outcome)
    assert nothing.startswith("Nothing was forgotten: ")
    assert unmet == outcome.unmet[0]
    # A model that forgot something, but less than the rule requires: this is said first.
    for forgot in (True, None):
        changed = replace(outcome, forgot=forgot, method_notes=("another",))
        assert notes(scenario, changed)[0] == unmet
    enough = replace(method, max_epochs=40, lr=1e-2)  # type: ignore[type-var]
    assert notes(scenario, unlearn(enough, trained_net(), scenario, recipe=RECIPE)) == []


def test_few_samples_and_the_papers_protocol_are_noted() -> None:
    scenario = samples_scenario()
    outcome = unlearn(
        Duck(batch_size=64, max_epochs=1, low_epochs=0), trained_net(), scenario, recipe=RECIPE
    )
    assert any(note.startswith("AUS is imprecise: only 60") for note in notes(scenario, outcome))
    assert any(
        "Protocol 'paper'" in note for note in notes(replace(scenario, protocol="paper"), outcome)
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_training_does_not_load_the_compiler_of_torch(optimizer: str) -> None:
    script = f"""
import sys
from duck.training.loop import train
from duck.types import Recipe
from duck.runtime import seeded
from tests.toys import class_scenario, toy_net

train(toy_net(), class_scenario().data.train, Recipe(1, 64, optimizer={optimizer!r}), seeded(0))
print("torch._dynamo" in sys.modules)
"""
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert output == "False\n"
