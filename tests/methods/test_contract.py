"""What every method in the table promises."""

import copy
import dataclasses
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from duck import experiment as experiment_module
from duck.errors import BadInput
from duck.methods import METHODS
from duck.methods.base import PreparingMethod
from duck.methods.presets import preset
from duck.predict import accuracy
from duck.preparation import Preparations
from duck.scenarios import ForgetSamples
from duck.types import Scenario
from duck.unlearning import unlearn
from tests.toys import (
    CLASSES,
    RECIPE,
    TOYS,
    class_scenario,
    samples_scenario,
    toy_data,
    toy_net,
    toy_task,
    trained_net,
)

KINDS = {"class": class_scenario, "samples": samples_scenario}
CASES = [(name, kind) for name, cls in METHODS.items() for kind in cls.scenarios]
FIRST_CASES = [(name, cls.scenarios[0]) for name, cls in METHODS.items()]


def run(name: str, scenario: Scenario, model: nn.Module | None = None, seed: int = 0) -> nn.Module:
    method = TOYS[name].method(scenario.kind)
    return method(model or trained_net(), toy_task(scenario, seed=seed))


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [value.detach().clone() for value in model.state_dict().values()]


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


@dataclasses.dataclass(frozen=True)
class Reference:
    """One run of a method, with which the other runs of the tests are compared."""

    original: nn.Module
    unlearned: nn.Module
    images_before: str
    images_after: str


@cache
def reference(name: str, kind: str) -> Reference:
    original = trained_net()
    train = toy_data().train
    images_before = train.fingerprint()
    with torch.random.fork_rng([]):
        torch.manual_seed(7)
        state = torch.get_rng_state()
        unlearned = run(name, KINDS[kind](), original)
        assert torch.equal(torch.get_rng_state(), state)
    return Reference(original, unlearned, images_before, train.fingerprint())


def test_every_method_has_a_toy() -> None:
    assert set(TOYS) == set(METHODS)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_same_seed_same_weights_and_the_global_generator_is_left_alone(
    name: str, kind: str
) -> None:
    torch.manual_seed(8)
    state = torch.get_rng_state()
    again = run(name, KINDS[kind]())
    assert torch.equal(torch.get_rng_state(), state)
    assert same(reference(name, kind).unlearned, again)


@pytest.mark.parametrize(
    ("name", "kind"), [case for case in CASES if METHODS[case[0]].forgets_by != "nothing"]
)
def test_another_seed_gives_other_weights(name: str, kind: str) -> None:
    assert not same(reference(name, kind).unlearned, run(name, KINDS[kind](), seed=1))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_original_and_the_data_stay_as_they_were(name: str, kind: str) -> None:
    outcome = reference(name, kind)
    assert same(outcome.original, trained_net())
    assert outcome.images_after == outcome.images_before
    shared = {p.data_ptr() for p in outcome.original.parameters()} & {
        p.data_ptr() for p in outcome.unlearned.parameters()
    }
    assert not shared


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_weights_are_finite_and_moved(name: str, kind: str) -> None:
    unlearned = reference(name, kind).unlearned
    assert all(value.isfinite().all() for value in unlearned.state_dict().values())
    assert same(trained_net(), unlearned) == (METHODS[name].forgets_by == "nothing")


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_mode_is_the_originals_and_does_not_change_the_result(name: str, kind: str) -> None:
    evaluated = reference(name, kind).unlearned
    assert not any(module.training for module in evaluated.modules())
    trained = run(name, KINDS[kind](), trained_net().train())
    assert all(module.training for module in trained.modules())
    assert same(trained, evaluated)


@pytest.mark.parametrize(("name", "kind"), FIRST_CASES)
def test_no_hook_is_left_behind(name: str, kind: str) -> None:
    unlearned = reference(name, kind).unlearned
    assert not any(
        module._forward_pre_hooks or module._forward_hooks for module in unlearned.modules()
    )
    copy.deepcopy(unlearned)(torch.zeros(2, 1, 8, 8))


@pytest.mark.parametrize("name", [name for name, kind in CASES if kind == "class"])
def test_effect_and_cost_together(name: str) -> None:
    scenario, toy = class_scenario(), TOYS[name]
    unlearned = reference(name, "class").unlearned
    assert accuracy(unlearned, scenario.data.train.take(scenario.forget)) <= toy.forget_at_most
    assert accuracy(unlearned, scenario.data.train.take(scenario.retain)) >= toy.retain_at_least


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_forget_sample_is_processed(name: str, kind: str) -> None:
    scenario = KINDS[kind]()
    outcome = unlearn(
        TOYS[name].method(kind), trained_net(), scenario, new_model=toy_net, recipe=RECIPE
    )
    assert outcome.forget_samples == len(scenario.forget)
    assert outcome.processed == (
        0 if METHODS[name].forgets_by == "nothing" else len(scenario.forget)
    )


@pytest.mark.parametrize(
    "name", [name for name, cls in METHODS.items() if isinstance(cls(), PreparingMethod)]
)
def test_what_is_processed_does_not_depend_on_what_was_prepared_before(name: str) -> None:
    scenario, cache, method = class_scenario(), Preparations(), TOYS[name].method("class")
    runs = [
        unlearn(
            method, trained_net(), scenario, new_model=toy_net, recipe=RECIPE, preparations=cache
        )
        for _ in range(2)
    ]
    assert [run.processed for run in runs] == [len(scenario.forget)] * 2
    assert same(runs[0].model, runs[1].model)


@pytest.mark.parametrize(("name", "kind"), FIRST_CASES)
def test_a_frozen_original_gives_the_same_model_and_stays_frozen(name: str, kind: str) -> None:
    original = trained_net().requires_grad_(False)
    assert same(run(name, KINDS[kind](), original), reference(name, kind).unlearned)
    assert not any(weight.requires_grad for weight in original.parameters())


# These two train a model of their own.
@pytest.mark.parametrize(
    ("name", "kind"), [case for case in FIRST_CASES if case[0] not in ("retrained", "erm-ktp")]
)
def test_weights_that_are_frozen_among_others_stay_as_they_are(name: str, kind: str) -> None:
    original = trained_net()
    first = original.get_submodule("blocks.outer.0").requires_grad_(False)
    unlearned = run(name, KINDS[kind](), original)
    kept = dict(unlearned.get_submodule("blocks.outer.0").named_parameters())
    assert [
        key for key, weight in first.named_parameters() if not torch.equal(kept[key], weight)
    ] == []
    assert not any(weight.requires_grad for weight in kept.values())
    assert same(original, unlearned) == (METHODS[name].forgets_by == "nothing")


@pytest.mark.parametrize(
    "name", [name for name, cls in METHODS.items() if "samples" in cls.scenarios]
)
def test_a_single_forget_sample_works(name: str) -> None:
    scenario = ForgetSamples(["17"])(toy_data())
    unlearned = run(name, scenario)
    assert accuracy(unlearned, scenario.data.train.take(scenario.retain)) >= 0.95


@pytest.mark.parametrize("name", list(METHODS))
def test_hyperparameters_survive_toml(name: str, tmp_path: Path) -> None:
    training = experiment_module.Training("digits", "convnet")
    method = METHODS[name]()
    if dataclasses.fields(method):  # type: ignore[arg-type]
        first = dataclasses.fields(method)[0].name  # type: ignore[arg-type]
        method = dataclasses.replace(method, **{first: 0.123})  # type: ignore[type-var]
    experiment = experiment_module.Experiment(training, ForgetSamples(["a", "b"]), method, seed=3)
    file = tmp_path / "experiment.toml"
    file.write_text(experiment_module.to_toml(experiment))
    again = experiment_module.from_toml(file)
    assert again == experiment
    assert again.id == experiment.id


def test_a_method_for_classes_refuses_single_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS["duck"], "scenarios", ("class",))
    with pytest.raises(BadInput, match=r"can only forget.*original.*retrained"):
        preset("duck", "digits", "samples")
    with pytest.raises(BadInput, match="duck can only forget"):
        unlearn(METHODS["duck"](), trained_net(), samples_scenario())


def test_the_toy_original_knows_every_class() -> None:
    data = toy_data()
    assert accuracy(trained_net(), data.train) >= 0.99
    assert len(data.train.labels.unique()) == CLASSES
