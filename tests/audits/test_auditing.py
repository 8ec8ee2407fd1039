"""From models to audits: through `duck.audit`, on nets that are really trained."""

import copy
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import duck
from duck.artifacts import ArtifactStore
from duck.audits.outputs import compute_outputs, make_setting, match_unseen
from duck.audits.relearn import relearning, steps
from duck.data.examples import Pixels
from duck.errors import BadInput
from duck.experiment import Training
from duck.files import CacheWarning
from duck.methods.base import METHODS
from duck.pools.reader import Pool
from duck.retraining import Retraining
from tests import toys
from tests.toys import (
    RECIPE,
    class_scenario,
    samples_scenario,
    toy_data,
    toy_net,
    toy_task,
    trained_net,
)

SHORT = duck.Recipe(epochs=3, batch_size=32, lr=0.05)
TRAINING = Training("toy", "toy", duck.Recipe(epochs=1, batch_size=64))


@cache
def retrained(count: int = 3) -> tuple[nn.Module, ...]:
    return tuple(Retraining(class_scenario(), trained_net(), toy_net, SHORT)(count))


def stored_in(folder: Path) -> Retraining:
    """Short retrainings whose models are stored in a folder."""
    scenario, original = class_scenario(), trained_net()
    recipe, store = TRAINING.recipe, ArtifactStore(folder)
    return Retraining(scenario, original, toy_net, recipe, TRAINING, store)


class Masked(nn.Module):
    """Never says class 2."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images).clone()
        logits[:, 2] = -torch.inf
        return logits


def test_the_result_of_forgetting_is_audited_in_one_line() -> None:
    result = duck.forget(trained_net(), toy_data(), forget=duck.ForgetClasses([2]))
    audit = duck.audit(result)
    assert audit.tier == "quick"
    assert "60 training samples of toy. Method: " in str(audit)
    assert (
        audit.attacks["accuracy forget"].original
        == duck.audit(trained_net(), class_scenario(), original=trained_net())
        .attacks["accuracy forget"]
        .unlearned
    )


def test_retrained_models_make_it_the_oracle_tier_and_masked_logits_are_allowed() -> None:
    audit = duck.audit(
        Masked(trained_net()), class_scenario(), original=trained_net(), retrained=list(retrained())
    )
    assert (audit.tier, audit.models) == ("oracle", 3)
    row = audit.attacks["accuracy forget-test"]
    assert row.unlearned is not None
    assert row.unlearned.value == 0
    assert "relearning" in audit.attacks
    assert "ZRF" not in audit.attacks


def test_missing_retrained_models_are_trained_where_it_is_known_how() -> None:
    result = duck.forget(
        trained_net(), toy_data(), forget=duck.ForgetClasses([2]), new_model=toy_net, recipe=SHORT
    )
    audit = duck.audit(result, tier="oracle", models=2)
    assert audit.models == 2
    assert audit.verdict == "no verdict"
    assert "ZRF" in audit.attacks
    with pytest.raises(
        BadInput,
        match=r"retrained=\[...\].*new_model=.*recipe=",
    ):
        duck.audit(trained_net(), class_scenario(), original=trained_net(), tier="oracle")


def test_planted_models_are_trained_and_limits_are_those_that_were_given() -> None:
    result = duck.forget(
        trained_net(), toy_data(), forget=duck.ForgetClasses([2]), new_model=toy_net, recipe=SHORT
    )
    given = list(retrained(5))
    audit = duck.audit(result, retrained=given, margin=0.4, max_advantage=0.3, max_epsilon=2)
    assert audit.limits == duck.Limits(0.4, 0.3, 2)
    assert audit.grades["remembers"].limit == 0.4
    assert audit.power is not None
    assert len(audit.power.planted) == 3
    assert (audit.tier, audit.models) == ("oracle", 5)
    # Four models are too few, and without the recipe nothing is trained.
    plain = duck.audit(result.model, result.scenario, original=trained_net(), retrained=given)
    for other in (
        duck.audit(result, retrained=given, planted=False),
        duck.audit(result, retrained=given[:4]),
        plain,
    ):
        assert other.power is not None
        assert not other.power.planted


def test_the_quick_tier_takes_the_limit_on_the_advantage() -> None:
    scenario = samples_scenario()
    leaking = trained_net()
    steps_of(leaking, scenario.data.train.take(scenario.forget))
    found = [
        duck.audit(leaking, scenario, original=trained_net(), max_advantage=limit).verdict
        for limit in (None, 0.99)
    ]
    assert found == ["not forgotten", "no verdict"]
    with pytest.raises(BadInput, match="between 0 and 1"):
        duck.audit(leaking, scenario, original=trained_net(), margin=1.5)


def test_no_recipe_is_made_up_for_an_original_that_was_trained_by_an_unknown_recipe() -> None:
    result = duck.forget(
        trained_net(), toy_data(), forget=duck.ForgetClasses([2]), new_model=toy_net
    )
    assert result.recipe is None
    with pytest.raises(BadInput, match="and recipe= to train"):
        duck.audit(result, tier="oracle", models=2)
    assert duck.audit(result, tier="oracle", models=2, recipe=SHORT).models == 2
    assert duck.audit(result, tier="oracle", retrained=list(retrained())).models == 3


@pytest.mark.slow
def test_references_that_were_not_trained_as_the_original_was_give_no_verdict() -> None:
    """They were trained on pixels of another mean and std, as a careless cache would give."""
    scenario = class_scenario()
    dark = replace(scenario.data.train, pixels=Pixels((0.9,), (0.05,)))
    odd = Retraining(
        replace(scenario, data=replace(scenario.data, train=dark)), trained_net(), toy_net, RECIPE
    )(5)
    fine = Retraining(scenario, trained_net(), toy_net, RECIPE)(6)
    audit = duck.audit(fine[0], scenario, original=trained_net(), retrained=odd)
    assert (audit.verdict, audit.powered) == ("no verdict", False)
    assert not audit.controls["retrained accuracy"].passed
    assert "not trained like the original" in str(audit.reasons)
    assert (
        duck.audit(fine[0], scenario, original=trained_net(), retrained=fine[1:])
        .controls["retrained accuracy"]
        .passed
    )


def test_missing_arguments_are_named() -> None:
    with pytest.raises(BadInput, match=r"duck.audit\(unlearned, scenario, original=original\)"):
        duck.audit(trained_net(), class_scenario())
    with pytest.raises(BadInput, match="models is at least 1, got 0"):
        duck.audit(trained_net(), class_scenario(), original=trained_net(), tier="oracle", models=0)
    with pytest.raises(BadInput, match="got 'slow'"):
        duck.audit(trained_net(), class_scenario(), original=trained_net(), tier="slow")  # type: ignore[arg-type]


def test_no_unseen_data_and_no_numbers_are_refused() -> None:
    data = duck.Data(
        "toy", toy_data().train, None, toy_data().classes, torch.empty(0, dtype=torch.int64)
    )
    result = duck.forget(trained_net(), data, forget=[1, 2])
    with pytest.raises(BadInput, match="The holdout is empty"):
        duck.audit(result)
    with pytest.raises(BadInput, match="The holdout is empty"):
        duck.audit(
            trained_net(),
            replace(class_scenario(), holdout=torch.empty(0, dtype=torch.int64)),
            original=trained_net(),
        )
    broken = trained_net()
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    with pytest.raises(BadInput, match="outputs that are no numbers"):
        duck.audit(broken, class_scenario(), original=trained_net())


def test_an_overfit_model_that_memorised_the_forget_samples_is_caught() -> None:
    """The planted leak: trained on the forget samples alone, with random labels."""
    scenario = samples_scenario()
    leaking = trained_net()
    steps_of(leaking, scenario.data.train.take(scenario.forget))
    audit = duck.audit(leaking, scenario, original=trained_net())
    assert audit.verdict == "not forgotten"
    row = audit.attacks["loss attack"].unlearned
    assert row is not None
    assert row.low is not None
    assert row.low > 0.5


def steps_of(model: nn.Module, examples: duck.types.Examples) -> None:
    """Overfit: many steps on the same few samples."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    batch = next(examples.batches(len(examples)))
    model.eval()
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch.images), batch.labels).backward()
        optimizer.step()


class Silent(Masked):
    """Says no class at all."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.full_like(self.inner(images), -torch.inf)


def test_a_model_that_says_nothing_is_refused() -> None:
    with pytest.raises(
        BadInput,
        match=r"silent model .* 60 of 60",
    ):
        compute_outputs(Silent(trained_net()), class_scenario(), "inner.head", name="silent model")


def test_unseen_samples_of_the_class_are_matched_holdout_included() -> None:
    scenario = class_scenario()
    matched = make_setting(scenario).matched
    assert matched.tolist() == [index for index in range(200) if index % 4 == 2]
    assert set(matched.tolist()) & set(scenario.holdout.tolist())


@pytest.mark.parametrize(
    ("forget", "unseen", "wanted"),
    [
        ({0: 100, 1: 8}, {0: 50, 1: 50, 2: 50}, {0: 50, 1: 4}),
        ({0: 10, 1: 10}, {0: 40, 1: 20}, {0: 20, 1: 20}),
        ({0: 10, 1: 5}, {0: 30}, {0: 30}),
        ({0: 4}, {1: 9}, {}),
    ],
)
def test_unseen_samples_are_of_each_class_in_the_proportion_of_the_members(
    forget: dict[int, int], unseen: dict[int, int], wanted: dict[int, int]
) -> None:
    labels = [
        np.repeat(list(counts), list(counts.values())).astype(np.int64)
        for counts in (forget, unseen)
    ]
    members, matched = match_unseen(labels[0], labels[1], seed=0)
    assert Counter(labels[1][matched].tolist()) == wanted
    assert Counter(labels[0][members].tolist()) == {
        label: count for label, count in forget.items() if label in wanted
    }
    assert len(set(matched.tolist())) == len(matched)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_samples_cannot_be_audited(count: int) -> None:
    few = replace(samples_scenario(), forget=samples_scenario().forget[:count])
    with pytest.raises(BadInput, match=f"{count} forget sample"):
        make_setting(few)
    make_setting(replace(samples_scenario(), forget=samples_scenario().forget[:2]))


def test_relearning_is_until_what_the_original_knew() -> None:
    without = retrained()
    row = relearning(class_scenario(), trained_net(), without[0], without[1:])
    assert row.unlearned is not None
    assert row.unlearned.value == steps(without[0], class_scenario(), 0.9) > 3


def test_relearning_takes_an_original_no_step_and_a_model_without_the_class_some() -> None:
    original, without = trained_net(), retrained()[0]
    before = copy.deepcopy(without.state_dict())
    assert steps(original, class_scenario(), 0.9) == 0
    assert steps(without, class_scenario(), 0.9) > 3
    assert all(torch.equal(value, before[name]) for name, value in without.state_dict().items())


def test_retrained_models_are_stored_reused_and_depend_on_the_retain_set(
    tmp_path: Path,
) -> None:
    making = stored_in(tmp_path)
    printed: list[tuple[int, int]] = []
    first = making(2, lambda done, total: printed.append((done, total)))
    assert printed == [(0, 2), (1, 2), (2, 2)]
    assert (making.missing(2), making.missing(3)) == (0, 1)
    state = torch.random.get_rng_state()
    again = making(2)
    assert torch.equal(torch.random.get_rng_state(), state)
    for one, same in zip(first, again, strict=True):
        assert all(
            torch.equal(value, same.state_dict()[name]) for name, value in one.state_dict().items()
        )
    weights = [next(model.parameters()) for model in first]
    assert not torch.equal(*weights)
    assert replace(making, scenario=samples_scenario()).missing(1) == 1
    assert replace(making, recipe=RECIPE).missing(1) == 1
    for changes in (
        {"model": "another"},
        {"mean": (0.9,), "std": (0.05,)},
        {"image_size": 4},
        {"fingerprint": "of other data"},
    ):
        assert replace(making, training=replace(TRAINING, **changes)).missing(1) == 1, changes
    # Seed and weights of the original do not matter for a retrained model, nor does `compile`.
    alike = replace(TRAINING, seed=7, weights="abc", recipe=replace(TRAINING.recipe, compile=True))
    assert (
        replace(making, training=alike, recipe=replace(making.recipe, compile=True)).missing(2) == 0
    )


def test_a_retrained_model_that_cannot_be_read_is_trained_again(tmp_path: Path) -> None:
    making = stored_in(tmp_path)
    (first,) = making(1)
    (file,) = tmp_path.rglob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with pytest.warns(CacheWarning, match=rf"{file.name} cannot be read"):
        (again,) = making(1)
    assert all(
        torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items()
    )
    assert file.read_bytes() == whole


def test_retrained_models_that_cannot_be_stored_are_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    making = stored_in(tmp_path / "file" / "x")
    with pytest.warns(CacheWarning, match=r"\(Not a directory\)"):
        assert len(making(1)) == 1


def test_the_task_of_a_result_is_what_the_method_saw() -> None:
    result = duck.forget(trained_net(), toy_data(), forget=[1, 2], new_model=toy_net, recipe=SHORT)
    assert result.task.recipe == SHORT
    assert len(result.task.forget) == len(toy_task(result.scenario).forget) == 2


def other_code() -> nn.Module:
    """Return a trained net whose class has the same name and layers, but other code."""

    class ToyNet(toys.ToyNet):
        def forward(self, images: Tensor) -> Tensor:
            return 2 * super().forward(images)

    net = ToyNet()
    net.load_state_dict(trained_net().state_dict())
    return net


def test_the_full_tier_trains_a_pool_for_a_result_in_memory(tmp_path: Path) -> None:
    scenario = duck.ForgetClasses([2])
    result = duck.forget(
        trained_net(),
        toy_data(),
        scenario,
        method=METHODS["finetune"](epochs=1, batch_size=64),  # type: ignore[call-arg]
        new_model=lambda: toy_net(),
        recipe=duck.Recipe(epochs=1, batch_size=64, lr=0.05),
    )
    audit = duck.audit(result, tier="full", models=2, pool=tmp_path / "pool", pool_models=20)
    assert (audit.tier, audit.models) == ("full", 2)
    assert "U-LiRA" in audit.attacks
    pool = Pool(tmp_path / "pool")
    assert (len(pool), len(pool.stack("oracle"))) == (20, 10)
    assert pool.design == "request"
    is_forgotten = pool.labels[pool.roles == "candidate"]
    assert set(is_forgotten.tolist()) == {2}
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "pool").iterdir()}
    duck.audit(result, tier="full", models=2, pool=tmp_path / "pool", pool_models=20)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "pool").iterdir()} == files
    same_class = trained_net()
    same_class.register_buffer("further", torch.zeros(1))
    same_shapes = trained_net()
    same_shapes.register_module("further", nn.ReLU())
    for other in (Masked(trained_net()), same_class, same_shapes, other_code()):
        wider = replace(result, original=other)
        with pytest.raises(BadInput, match="These are different pools"):
            duck.audit(wider, tier="full", models=2, pool=tmp_path / "pool", pool_models=20)


def test_the_full_tier_needs_a_result_and_enough_models() -> None:
    model, scenario = trained_net(), class_scenario()
    with pytest.raises(BadInput, match="needs the Result of"):
        duck.audit(model, scenario, original=model, tier="full")
    result = duck.forget(model, toy_data(), forget=duck.ForgetClasses([2]), new_model=toy_net)
    with pytest.raises(BadInput, match="with new_model= and recipe="):
        duck.audit(result, tier="full")
    with pytest.raises(BadInput, match="at least 20 models, got 18"):
        duck.audit(result, tier="full", pool_models=18)
    with pytest.raises(BadInput, match="quick tier takes no pool"):
        duck.audit(result, pool_models=20)
    further = duck.forget(result, forget=duck.ForgetClasses([1]))
    with pytest.raises(BadInput, match="cannot follow earlier requests"):
        duck.audit(further, tier="full", recipe=SHORT)
