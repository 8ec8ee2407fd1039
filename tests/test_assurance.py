"""Assured forgetting: what is tried, what is chosen, and on which samples."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import duck
from duck.api import _build_pool
from duck.artifacts import ArtifactStore
from duck.assurance import Assured, AssureOptions, assure, describe_refutation, describe_size
from duck.audits.references import References
from duck.audits.sub_scenarios import split_for_choice
from duck.audits.verdict import Limits, Tier
from duck.display import Display
from duck.errors import BadInput, Diverged
from duck.experiment import Training
from duck.methods.automatic import choose_method
from duck.methods.base import METHODS, Method
from duck.methods.by_cost import Candidate
from duck.methods.presets import default_recipe
from duck.methods.retrained import Retrained
from duck.models import build
from duck.pools.reader import Pool
from duck.retraining import Retraining
from duck.types import Data, Original, Recipe, Scenario, Task
from duck.unlearning import Outcome, unlearn
from tests.toys import RECIPE, class_scenario, samples_scenario, toy_net, trained_net

NOTHING = Candidate("nothing", METHODS["original"](), 0.01)
EXACT = Candidate("exact", METHODS["retrained"](), 0.5)
LAST = Candidate("retrained", METHODS["retrained"](), 1.0, "exact")


def run_toy(candidates: list[Candidate], scenario: Scenario, options: AssureOptions) -> Assured:
    model = trained_net()

    def unlearn_with(candidate: Candidate) -> Outcome:
        seeded = replace(scenario, seed=len(candidate.name))
        return unlearn(candidate.method, model, seeded, new_model=toy_net, recipe=RECIPE)

    def retraining(part: Scenario) -> Retraining:
        return Retraining(part, model, toy_net, RECIPE)

    original = Original(model, toy_net, RECIPE)
    return assure(original, scenario, candidates, unlearn_with, options, retraining)


def test_the_two_parts_share_no_sample() -> None:
    scenario = ForgetThird()(duck.load("noisy-digits"))
    choice, final = split_for_choice(scenario)
    halves = torch.cat([choice.forget, final.forget])
    assert torch.equal(halves.sort().values, scenario.forget.sort().values)
    assert choice.data.test is not None
    assert final.data.test is not None
    assert not set(choice.data.test.ids) & set(final.data.test.ids)
    assert scenario.data.test is not None
    test_ids = scenario.data.test.ids
    assert set(choice.data.test.ids) == set(test_ids[scenario.holdout.numpy()])
    assert set(final.data.test.ids) == set(test_ids[scenario.test.numpy()])
    assert torch.equal(choice.retain, scenario.retain)


def test_test_rows_are_those_of_the_classes() -> None:
    for part in split_for_choice(class_scenario()):
        assert part.data.test is not None
        labels = part.data.test.labels
        assert labels[part.forget_test].unique().tolist() == [2]
        assert labels[part.retain_test].unique().tolist() == [0, 1, 3]


def test_few_forget_samples_are_all_in_both_parts() -> None:
    scenario = samples_scenario()
    few = replace(scenario, forget=scenario.forget[:20])
    assert [len(part.forget) for part in split_for_choice(few)] == [20, 20]


def test_a_refutation_names_other_samples_only_where_they_are_others() -> None:
    scenario = samples_scenario()
    few = replace(scenario, forget=scenario.forget[:20])
    assert "other samples" in describe_refutation(*split_for_choice(scenario))
    assert "same forget samples" in describe_refutation(*split_for_choice(few))
    assert "samples" not in describe_refutation(few, few)


def test_a_budget_that_ends_states_how_many_models_were_trained() -> None:
    messages = list[str]()

    def allows_two(seconds: Sequence[float]) -> bool:
        return len(seconds) < 2

    display = Display(message=messages.append)
    references = References(
        class_scenario(), SlowRetraining(0.0), 4, display=display, may_train=allows_two
    )
    assert len(references.retrained) == 2
    assert "2 of 4 were trained" in messages[-1]


def test_a_method_that_forgets_nothing_is_not_chosen() -> None:
    assured = run_toy([NOTHING, LAST], class_scenario(), AssureOptions("quick"))
    assert assured.assurance.chosen == "retrained"
    assert assured.assurance.passed
    assert [attempt.passed for attempt in assured.assurance.attempts] == [False, True]


def test_the_first_method_that_passes_is_chosen() -> None:
    assured = run_toy([NOTHING, EXACT, LAST], class_scenario(), AssureOptions("quick"))
    assert assured.assurance.chosen == "exact"
    assert [attempt.method for attempt in assured.assurance.attempts] == ["nothing", "exact"]
    assert assured.audit is not None


def test_a_method_that_fails_is_recorded_and_the_next_one_is_tried() -> None:
    @dataclass(frozen=True)
    class Broken(Retrained):
        def __call__(self, model: nn.Module, task: Task) -> nn.Module:
            raise Diverged("It cannot run here.")

    def unlearn_with(candidate: Candidate) -> Outcome:
        if candidate.name == "broken":
            Broken()(trained_net(), class_scenario().task())
        return unlearn(
            candidate.method, trained_net(), class_scenario(), new_model=toy_net, recipe=RECIPE
        )

    broken = Candidate("broken", Broken(), 0.1)
    original = Original(trained_net(), toy_net, RECIPE)
    assured = assure(
        original, class_scenario(), [broken, LAST], unlearn_with, AssureOptions("quick")
    )
    first = assured.assurance.attempts[0]
    assert not first.passed
    assert "It cannot run here." in first.reason
    assert assured.assurance.chosen == "retrained"


@dataclass
class SlowRetraining:
    """Retraining that takes at least some seconds for each model, and counts them."""

    seconds: float
    trained: int = 0

    def new_model(self) -> nn.Module:
        time.sleep(self.seconds)
        self.trained += 1
        return toy_net()

    def __call__(self, scenario: Scenario) -> Retraining:
        return Retraining(scenario, trained_net(), self.new_model, RECIPE)


def run_within(
    budget: float, retraining: Callable[[Scenario], Retraining], expected: float | None
) -> Assured:
    def unlearn_with(candidate: Candidate) -> Outcome:
        return unlearn(
            candidate.method, trained_net(), class_scenario(), new_model=toy_net, recipe=RECIPE
        )

    return assure(
        Original(trained_net(), toy_net, RECIPE),
        class_scenario(),
        [EXACT, MASK, LAST],
        unlearn_with,
        AssureOptions("oracle", budget_seconds=budget),
        retraining,
        retraining_seconds=expected,
    )


@pytest.mark.parametrize("expected", [None, 0.01])
def test_a_budget_stops_before_a_model_to_compare_with(expected: float | None) -> None:
    retraining = SlowRetraining(0.5)
    assured = run_within(1.9, retraining, expected)
    assert 1 <= retraining.trained <= 3
    assert (assured.assurance.passed, assured.assurance.chosen) == (False, "exact")
    assert assured.audit is not None
    assert (assured.audit.tier, assured.audit.models) == ("quick", 0)
    assert assured.assurance.verdict == assured.audit.verdict
    tried = [(attempt.method, attempt.seconds > 0) for attempt in assured.assurance.attempts]
    assert tried == [("exact", True), ("mask", False)]
    assert f"{retraining.trained} of 6" in str(assured.assurance)


def test_a_budget_below_the_known_time_of_retraining_trains_no_model() -> None:
    retraining = SlowRetraining(0.0)
    assured = run_within(60, retraining, 100)
    assert retraining.trained == 0
    assert (assured.assurance.passed, assured.assurance.chosen) == (False, "exact")


def test_stored_models_need_no_permission(tmp_path: Path) -> None:
    training = Training("toy", "toy", RECIPE)
    store = ArtifactStore(tmp_path)
    first = Retraining(class_scenario(), trained_net(), toy_net, RECIPE, training, store)
    assert len(first(2)) == 2
    again = Retraining(class_scenario(), trained_net(), toy_net, RECIPE, training, store)
    assert len(again(4, may_train=lambda: False)) == 2
    assert (len(first.seconds), len(again.seconds)) == (2, 0)


def test_five_stored_models_suffice_and_a_budget_stops_planted_ones(tmp_path: Path) -> None:
    training, trained = Training("toy", "toy", RECIPE), list[Retraining]()
    store = ArtifactStore(tmp_path)

    def retraining(scenario: Scenario) -> Retraining:
        trained.append(Retraining(scenario, trained_net(), toy_net, RECIPE, training, store))
        return trained[-1]

    retraining(class_scenario())(5)
    assured = run_within(60, retraining, 100)
    assert [len(item.seconds) for item in trained] == [5, 0, 0, 0, 0]
    assert assured.audit is not None
    assert assured.audit.power is not None
    assert (assured.audit.models, assured.audit.power.planted) == (5, {})


def test_the_oracle_tier_needs_a_way_to_retrain() -> None:
    original = Original(trained_net())
    with pytest.raises(BadInput, match="new_model="):
        assure(original, class_scenario(), [LAST], lambda candidate: pytest.fail("ran"))


@pytest.mark.parametrize(
    "options",
    [
        AssureOptions(models=0),
        AssureOptions(budget_seconds=0.0),
        AssureOptions(budget_seconds=float("nan")),
        AssureOptions("orcale"),  # type: ignore[arg-type]
        AssureOptions(limits=Limits(margin=2)),
    ],
)
def test_options_out_of_range(options: AssureOptions) -> None:
    with pytest.raises(BadInput, match="got"):
        run_toy([LAST], class_scenario(), options)


ForgetThird = partial(duck.ForgetFraction, 1 / 3)


@cache
def noisy() -> tuple[Data, Recipe, nn.Module, Callable[[], nn.Module]]:
    data = duck.load("noisy-digits")
    recipe = default_recipe(data.name, len(data.train), data.augment)
    new_model = partial(build, "convnet", data.num_classes, data.train.shape)
    return data, recipe, duck.train("convnet", data), new_model


@dataclass(frozen=True)
class HalfForgetting:
    """Retrains without the samples of the choice, but with those of the final audit."""

    scenario: Scenario
    paper: ClassVar[str] = ""

    def outcome(self, model: nn.Module, recipe: Recipe, new: Callable[[], nn.Module]) -> Outcome:
        choice, final = split_for_choice(self.scenario)
        kept = torch.cat([self.scenario.retain, final.forget]).sort().values
        part = replace(self.scenario, forget=choice.forget, retain=kept)
        return unlearn(METHODS["retrained"](), model, part, new_model=new, recipe=recipe)


@pytest.mark.slow
def test_the_final_audit_looks_at_samples_that_the_choice_did_not_see() -> None:
    data, recipe, model, new_model = noisy()
    scenario = ForgetThird()(data)
    half = Candidate("half", METHODS["retrained"](), 0.5)

    def unlearn_with(candidate: Candidate) -> Outcome:
        if candidate is half:
            return HalfForgetting(scenario).outcome(model, recipe, new_model)
        return unlearn(candidate.method, model, scenario, new_model=new_model, recipe=recipe)

    def retraining(part: Scenario) -> Retraining:
        return Retraining(part, model, new_model, recipe)

    original = Original(model, new_model, recipe)
    options = AssureOptions("oracle", limits=Limits(margin=0.5), planted=False)
    assured = assure(original, scenario, [half, LAST], unlearn_with, options, retraining)
    first = assured.assurance.attempts[0]
    assert first.residual_memory is not None
    assert first.residual_memory < 0.5  # it passed the choice
    assert not first.passed
    assert "not forgotten" in first.reason
    assert assured.assurance.chosen == "retrained"


def test_the_quick_tier_looks_at_all_samples_as_the_plain_audit_does() -> None:
    data, recipe, model, new_model = noisy()
    result = duck.forget(
        model, data, ForgetThird(), assure="quick", new_model=new_model, recipe=recipe
    )
    assert duck.audit(result).verdict == "no verdict"
    assert result.assured is not None
    assert f"{len(result.scenario.forget)} training samples" in result.assured.audit.subject  # type: ignore[union-attr]


def test_the_final_audit_states_the_samples_of_the_request_and_those_it_used() -> None:
    options = AssureOptions("oracle", models=5, planted=False)
    assured = run_noisy([LAST], options)
    assert assured.audit is not None
    requested = len(duck.ForgetClasses([3])(noisy()[0]).forget)
    used = requested - round(requested / 3)
    assert f"{requested} training samples" in assured.audit.subject
    assert f"used {used} of them" in assured.audit.subject
    assert f"left out: {requested}." in assured.audit.subject


def run_noisy(candidates: list[Candidate], options: AssureOptions) -> Assured:
    data, recipe, model, new_model = noisy()
    scenario = duck.ForgetClasses([3])(data)

    def unlearn_with(candidate: Candidate) -> Outcome:
        outcome = unlearn(candidate.method, model, scenario, new_model=new_model, recipe=recipe)
        return replace(outcome, model=Masked(model)) if candidate is MASK else outcome

    def retraining(part: Scenario) -> Retraining:
        return Retraining(part, model, new_model, recipe)

    original = Original(model, new_model, recipe)
    return assure(original, scenario, candidates, unlearn_with, options, retraining)


class Masked(nn.Module):
    """A model that never names class 3, and knows it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits.index_fill(1, torch.tensor([3]), -30.0)


MASK = Candidate("mask", METHODS["retrained"](), 0.1)


@pytest.mark.slow
def test_by_the_oracle_tier_a_masked_output_does_not_pass() -> None:
    assured = run_noisy([MASK, LAST], AssureOptions("oracle", planted=False))
    first, second = assured.assurance.attempts
    assert (first.method, first.passed) == ("mask", False)
    assert (second.method, second.passed) == ("retrained", True)
    assert first.residual_memory is not None
    assert first.residual_memory > 0.5
    assert assured.assurance.verdict != "not forgotten"
    assert assured.assurance.retraining_seconds is not None
    assert assured.audit is not None
    assert assured.audit.models == 6


@pytest.mark.slow
def test_a_budget_ends_with_the_best_so_far() -> None:
    options = AssureOptions("oracle", models=5, planted=False, budget_seconds=600)
    long, longest = replace(EXACT, share=1e9), replace(LAST, share=1e9)
    assured = run_noisy([MASK, long, longest], options)
    assert not assured.assurance.passed
    assert assured.assurance.chosen == "mask"
    assert assured.audit is not None
    assert assured.audit.tier == "quick"
    audited, skipped = assured.assurance.attempts
    assert audited.verdict is not None
    assert (skipped.method, skipped.seconds) == ("exact", 0)


def test_forget_with_assurance_returns_a_model_that_passed() -> None:
    data, recipe, model, new_model = noisy()
    result = duck.forget(
        model,
        data,
        duck.ForgetClasses([3]),
        assure="quick",
        new_model=new_model,
        recipe=recipe,
    )
    assert result.assured is not None
    assert result.assured.assurance.passed
    assert result.method == result.assured.candidate.method
    assert str(result.assured.assurance) in str(result)


@pytest.mark.slow
def test_the_full_tier_trains_a_pool_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    built = list[Path]()

    def build_pool(folder: Path, *others: Any) -> Pool:
        built.append(folder)
        return _build_pool(folder, *others)

    monkeypatch.setattr("duck.api._build_pool", build_pool)
    monkeypatch.setattr("duck.api.DEFAULT_POOL_MODELS", 20)
    result = duck.forget(
        trained_net(),
        class_scenario().data,
        duck.ForgetClasses([2]),
        method="finetune",
        assure=AssureOptions("full", models=5, limits=Limits(margin=0.9), planted=False),
        new_model=toy_net,
        recipe=RECIPE,
    )
    assert result.assured is not None
    final = result.assured.audit
    assert final is not None
    assert (final.tier, final.models) == ("full", 5)
    assert "U-LiRA" in final.attacks
    assert len(built) == 1  # none for the choice
    # What a pool cannot do is refused before anything is trained.
    monkeypatch.setattr("duck.retraining.Retraining.load_or_train", lambda *_: pytest.fail("ran"))
    with pytest.raises(BadInput, match="cannot follow earlier requests"):
        duck.forget(result, forget=duck.ForgetClasses([1]), assure="full")


def test_forget_with_assurance_needs_the_recipe() -> None:
    data, _, model, new_model = noisy()
    with pytest.raises(BadInput, match="recipe="):
        duck.forget(model, data, duck.ForgetClasses([3]), assure="quick", new_model=new_model)


def name_of(method: Method) -> str:
    return METHODS.name_of(method)


def test_the_automatic_choice() -> None:
    data, recipe, *_ = noisy()
    class_request = duck.ForgetClasses([3])(data)
    many, few = ForgetThird()(data), duck.ForgetFraction(0.02)(data)
    assert name_of(choose_method(class_request, recipe)[0]) == "warm-restart"
    assert name_of(choose_method(many, recipe)[0]) == "warm-restart"
    assert name_of(choose_method(few, recipe)[0]) == "warm-restart"
    assert name_of(choose_method(class_request, None)[0]) == "duck-soft"
    assert name_of(choose_method(few, None)[0]) == "finetune"


def one_sample() -> Scenario:
    return duck.ForgetSamples(["1"])(class_scenario().data)


def run_one(candidates: list[Candidate], budget: float | None = None) -> Assured:
    original = Original(trained_net(), toy_net, RECIPE)

    def no_models(part: Scenario) -> Retraining:
        pytest.fail("A model to compare with was trained.")

    return assure(
        original,
        one_sample(),
        candidates,
        lambda candidate: unlearn(candidate.method, original, one_sample()),
        AssureOptions("oracle", budget_seconds=budget),
        no_models,
        retraining_seconds=100,
    )


def test_one_sample_is_retrained_at_once_and_gets_a_percentile() -> None:
    assured = run_one([EXACT, LAST])
    assert assured.assurance.passed
    tried = [(attempt.method, attempt.seconds > 0) for attempt in assured.assurance.attempts]
    assert tried == [("exact", False), ("retrained", True)]
    assert assured.audit is not None
    assert (assured.audit.verdict, assured.audit.tier) == ("no verdict", "oracle")
    assert list(assured.audit.attacks) == ["loss percentile"]


def test_one_sample_within_a_budget_that_is_too_small_for_retraining() -> None:
    assured = run_one([EXACT, LAST], budget=60)
    assert (assured.assurance.passed, assured.assurance.chosen) == (False, "exact")
    assert assured.audit is not None
    assert list(assured.audit.attacks) == ["loss percentile"]


class Certain(nn.Module):
    """A model that is more certain of one image than of any other."""

    def __init__(self, model: nn.Module, image: Tensor) -> None:
        super().__init__()
        self.model = model
        self.image = nn.Buffer(image)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        is_known = (images == self.image).flatten(1).all(1)
        return torch.where(is_known[:, None], 100 * logits, logits)


@pytest.mark.parametrize("is_certain", [True, False])
def test_in_the_quick_tier_one_sample_must_have_a_usual_loss(is_certain: bool) -> None:
    scenario = one_sample()
    original = Original(trained_net(), toy_net, RECIPE)
    image = next(scenario.data.train.take(scenario.forget).batches(1)).images

    def unlearn_with(candidate: Candidate) -> Outcome:
        outcome = unlearn(candidate.method, original, scenario)
        if candidate is LAST or not is_certain:
            return outcome
        return replace(outcome, model=Certain(outcome.model, image))

    assured = assure(original, scenario, [EXACT, LAST], unlearn_with, AssureOptions("quick"))
    assert assured.assurance.attempts[0].passed is not is_certain
    assert assured.assurance.chosen == ("retrained" if is_certain else "exact")


@pytest.mark.parametrize(
    ("samples", "tier", "is_said"),
    [
        (1, "oracle", True),
        (49, "full", True),
        (99, "oracle", True),
        (100, "oracle", False),
        (1, "quick", False),
    ],
)
def test_what_is_said_of_few_samples(samples: int, tier: Tier, is_said: bool) -> None:
    assert bool(describe_size(samples, tier)) is is_said
