"""The shortest way: plain modules and plain data sets, as a user has them."""

import copy
import re
import time
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

import duck
from duck.audits.next_call import PythonNames, next_calls
from duck.audits.options import AuditOptions
from duck.audits.verdict import Audit, describe_final
from duck.errors import BadInput
from duck.methods import METHODS, Ssd
from duck.methods.presets import default_recipe
from duck.models import build
from duck.predict import accuracy
from duck.types import Protocols
from tests.toys import RECIPE, toy_data, toy_net, trained_net


class HomeMade(nn.Module):
    """Residual, functional, with an auxiliary layer defined last: `children()[:-1]` is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(48, 10)
        self.first = nn.Linear(64, 48)
        self.second = nn.Linear(48, 48)
        self.unused = nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x.flatten(1)))
        logits: Tensor = self.out(hidden + torch.relu(self.second(hidden)))
        return logits


@pytest.fixture(scope="module")
def digits() -> tuple[TensorDataset, TensorDataset]:
    bunch = load_digits()
    images, labels = torch.tensor(bunch.data, dtype=torch.float32) / 16, torch.tensor(bunch.target)
    return TensorDataset(images[:1400], labels[:1400]), TensorDataset(images[1400:], labels[1400:])


@pytest.fixture(scope="module")
def model(digits: tuple[TensorDataset, TensorDataset]) -> HomeMade:
    """Trained by the user's own loop, not by ours."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        net = HomeMade()
    images, labels = digits[0].tensors
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    return net


def right(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((net(images).argmax(1) == labels).double().mean())


def test_three_lines_on_a_home_made_net(
    model: HomeMade, digits: tuple[TensorDataset, TensorDataset]
) -> None:
    begun = time.monotonic()
    train_set, test_set = digits
    ids = [index for index, label in enumerate(train_set.tensors[1]) if label == 3]
    result = duck.forget(model, train_set, forget=ids, test=test_set)
    assert time.monotonic() - begun < 10
    images, labels = test_set.tensors
    assert right(model, images[labels == 3], labels[labels == 3]) > 0.7
    assert right(result.model, images[labels == 3], labels[labels == 3]) == 0
    before, after = (
        right(net, images[labels != 3], labels[labels != 3]) for net in (model, result.model)
    )
    assert after > before - 0.03
    assert result.forgot
    assert result.scores.aus is not None
    assert result.scores.aus > 0.95
    assert f"{len(ids)} of {len(ids)} samples" in str(result)


def test_a_ruined_model_is_the_first_line(
    model: HomeMade, digits: tuple[TensorDataset, TensorDataset]
) -> None:
    ruining = Ssd(alpha=0.0, dampening=0.01)
    result = duck.forget(model, digits[0], forget=range(100), test=digits[1], method=ruining)
    kept = result.kept_accuracy
    assert kept is not None
    assert kept.damaged
    assert kept.original - kept.unlearned > 0.5
    assert str(result).splitlines()[0] == str(kept)
    allowed = duck.forget(
        model, digits[0], forget=range(100), test=digits[1], method=ruining, max_accuracy_loss=1
    ).kept_accuracy
    assert allowed is not None
    assert not allowed.damaged


def test_a_few_samples_without_unseen_data(
    model: HomeMade, digits: tuple[TensorDataset, TensorDataset]
) -> None:
    result = duck.forget(model, digits[0], forget=range(0, 100, 3))
    assert result.outcome.processed == 34
    assert result.scores.aus is None
    assert result.forgot
    assert any(note.startswith("No unseen data:") for note in result.notes)
    assert result.scores.retain is not None
    assert result.scores.retain > 0.95
    assert "No unseen data: no AUS" in str(result)
    assert "duck.audit(result)" not in str(result)


def test_few_samples_show_their_losses_and_a_single_one_can_be_audited(
    model: HomeMade, digits: tuple[TensorDataset, TensorDataset]
) -> None:
    few = duck.forget(model, digits[0], forget=[3, 14], test=digits[1])
    before, after = few.outcome.original, few.scores
    assert f"{before.forget_rank:.3f} -> {after.forget_rank:.3f}" in str(few)
    assert f"{before.forget_loss:.3g} -> {after.forget_loss:.3g}" in str(few)
    assert "duck.audit(result)" in str(few)
    finetune = METHODS["finetune"](epochs=1)  # type: ignore[call-arg]
    one = duck.forget(model, digits[0], forget=[3], test=digits[1], method=finetune)
    assert "duck.audit(result)" in str(one)
    assert "1 samples" not in str(one)
    assert duck.audit(one).verdict == "no verdict"
    whole = duck.forget(model, digits[0], forget=duck.ForgetClasses([3]), test=digits[1])
    assert "mean loss" not in str(whole)


def test_a_setting_is_changed_in_the_preset(
    model: HomeMade, digits: tuple[TensorDataset, TensorDataset]
) -> None:
    usual = duck.preset("finetune", "dataset", "samples", len(digits[0]))
    assert duck.forget(model, digits[0], forget=[3, 14], test=digits[1]).method == usual
    changed: Any = replace(usual, lr=1e-4)  # type: ignore[type-var]
    result = duck.forget(model, digits[0], forget=[3, 14], test=digits[1], method=changed)
    assert result.method == changed


def test_ids_may_be_tensors_and_requests_work(
    model: HomeMade, digits: tuple[TensorDataset, TensorDataset]
) -> None:
    by_tensor = duck.forget(model, digits[0], forget=torch.tensor([3, 14]), test=digits[1])
    assert by_tensor.scenario.forget.tolist() == [3, 14]
    by_class = duck.forget(model, digits[0], forget=duck.ForgetClasses([3]), test=digits[1])
    assert by_class.scenario.kind == "class"


class Gray(Dataset[Any]):
    """Three-dimensional uint8 images and plain ints, the other common kind of data set."""

    def __init__(self, split: Any) -> None:
        self.batch = next(split.batches(10_000))
        self.raw = split.images[split.rows]

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.raw[index], int(self.batch.labels[index])


def test_images_and_a_model_with_logits_in_an_object() -> None:
    class Output:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained_net()

        def forward(self, images: Tensor) -> Output:
            return Output(self.inner(images))

    data = toy_data()
    result = duck.forget(Wrapped(), data, forget=duck.ForgetClasses([1]))
    assert result.scores.forget_test == 0
    assert result.scores.retain is not None
    assert result.scores.retain > 0.9


def test_uint8_images_are_normalised_by_their_own_statistics() -> None:
    result = duck.forget(trained_net(), Gray(toy_data().train), forget=duck.ForgetClasses([1]))
    assert result.scores.retain is not None
    assert result.scores.retain > 0.8
    assert result.scores.forget < 0.1


def test_retraining_through_the_same_door() -> None:
    data = toy_data()
    result = duck.forget(
        trained_net(),
        data,
        forget=[1, 2],
        method="retrained",
        new_model=toy_net,
        recipe=duck.Recipe(epochs=8, batch_size=32),
    )
    assert result.scores.test is not None
    assert result.scores.test > 0.9
    assert not any("recipe" in note for note in result.notes)
    with pytest.raises(BadInput, match="pass new_model="):
        duck.forget(trained_net(), data, forget=[1, 2], method="retrained")


def test_retraining_by_an_assumed_recipe_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duck.methods.Retrained, "__call__", lambda self, model, task: model)
    result = duck.forget(
        trained_net(), toy_data(), forget=[1, 2], method="retrained", new_model=toy_net
    )
    taken = "40 epochs of sgd, batch size 512, learning rate 0.2 (one-cycle), augment none"
    (note,) = (note for note in result.notes if f" {taken}. " in note)
    assert note.startswith("The original's recipe is not ")
    assert "gap to Retrained" in note
    other = duck.forget(trained_net(), toy_data(), forget=[1, 2], method=duck.methods.Original())
    assert not any("recipe" in note for note in other.notes)


@dataclass(frozen=True)
class EveryTenth:
    """A request of the user's own."""

    def __call__(
        self, data: duck.Data, seed: int = 0, protocol: Protocols = "holdout"
    ) -> duck.Scenario:
        return duck.ForgetSamples(data.train.ids[::10].tolist())(data, seed, protocol)


def test_any_request_will_do() -> None:
    original = duck.methods.Original()
    assert duck.forget(
        trained_net(), toy_data(), EveryTenth(), method=original
    ).scenario.forget.tolist() == list(range(0, 240, 10))
    biased = duck.forget(
        trained_net(), toy_data(), duck.Debias("a", "b", count=5, patch=2), method=original
    )
    assert len(biased.scenario.forget) == 5


def test_data_that_bring_test_data_take_no_others() -> None:
    data = toy_data()
    with pytest.raises(BadInput, match="test= is for a torch Dataset"):
        duck.forget(trained_net(), data, [1], test=Gray(data.test))


@pytest.mark.parametrize("wrong", ["12", 12, None, duck.ForgetClasses])
def test_what_is_not_a_list_of_ids(wrong: Any) -> None:
    with pytest.raises(BadInput, match="forget= takes ids"):
        duck.forget(trained_net(), toy_data(), forget=wrong)


def test_a_subset_has_its_own_indices(
    model: HomeMade, digits: tuple[TensorDataset, TensorDataset]
) -> None:
    with pytest.raises(BadInput, match="training data: '700'"):
        duck.forget(model, Subset(digits[0], range(600)), forget=[700])


def test_train_takes_a_name_or_a_factory() -> None:
    data = toy_data()
    recipe = duck.Recipe(epochs=6, batch_size=32, lr=0.05)
    named = duck.train("convnet", data, seed=1, recipe=recipe, device="cpu")
    made = duck.train(toy_net, data, seed=1, recipe=recipe, device="cpu")
    assert data.test is not None
    assert min(accuracy(net, data.test) for net in (named, made)) > 0.9
    assert not named.training


def test_train_seeds_a_factory_as_it_seeds_a_name() -> None:
    data, recipe = toy_data(), duck.Recipe(epochs=1, batch_size=32)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    made = duck.train(
        lambda: build("convnet", 4, (1, 8, 8)), data, seed=1, recipe=recipe, device="cpu"
    )
    assert torch.equal(torch.get_rng_state(), state)
    named = duck.train("convnet", data, seed=1, recipe=recipe, device="cpu").state_dict()
    assert [
        name for name, value in made.state_dict().items() if not torch.equal(value, named[name])
    ] == []


def test_digits_train_for_thirty_epochs() -> None:
    assert default_recipe("digits", 1400, "none").epochs == 30


def calls(audit: Audit) -> list[str]:
    """The Python calls that a printed audit ends with."""
    _, steps = str(audit).split("What to do next:")
    return re.findall("`([^`]*)`", " ".join(steps.split()))


def toy_result(request: Any, **options: Any) -> duck.Result:
    given = {"new_model": toy_net, "recipe": RECIPE, **options}
    return duck.forget(trained_net(), toy_data(), request, **given)


def test_every_call_that_an_audit_suggests_works() -> None:
    result = toy_result(duck.ForgetRandomClasses(1), seed=1, method="original")
    audit = duck.audit(result)
    assert audit.verdict == "not forgotten"
    found = calls(audit)
    arguments = [re.findall('(?:method|assure)="([a-z-]*)"', call)[0] for call in found]
    assert arguments == ["warm-restart", "quick", "retrained"]
    for call in found:
        again = eval(call, {"duck": duck, "result": result})
        assert torch.equal(again.scenario.forget, result.scenario.forget)
    # Without a verdict the next tier is suggested.
    quick = duck.audit(again)
    assert quick.verdict == "no verdict"
    (call,) = calls(quick)
    oracle = eval(call, {"duck": duck, "result": again})
    assert (oracle.tier, oracle.models) == ("oracle", 6)
    assert oracle.next_steps


def test_an_assured_result_shows_its_final_audit_and_is_not_audited_by_a_lower_tier() -> None:
    options = duck.AssureOptions("oracle", models=5, planted=False)
    result = toy_result(duck.ForgetRandomClasses(1), method="retrained", assure=options)
    assert result.assured is not None
    final = result.assured.audit
    assert final is not None
    assert final.tier == "oracle"
    assert describe_final(final) in str(result).splitlines()
    again = duck.audit(result)
    assert replace(again, next_steps=()) == final
    assert again.next_steps
    # Other arguments ask for a new audit, which is of the same tier.
    assert duck.audit(result, models=5).tier == "oracle"
    assert duck.audit(result, tier="quick").tier == "quick"
    without = replace(result, assured=replace(result.assured, audit=None))
    assert duck.audit(without).tier == "quick"


@pytest.mark.parametrize("asked", [{"margin": 0.1}, {"max_epsilon": 1.0}, {"planted": True}])
def test_an_argument_that_equals_the_default_asks_for_a_new_audit(asked: dict[str, Any]) -> None:
    limits = duck.Limits(margin=0.9, max_epsilon=5.0)
    options = duck.AssureOptions("oracle", models=5, limits=limits, planted=False)
    result = toy_result(duck.ForgetRandomClasses(1), method="retrained", assure=options)
    assert duck.audit(result).limits == limits
    assert duck.audit(result, **asked).limits == duck.Limits()


def test_a_method_that_failed_is_not_suggested_again() -> None:
    weak = METHODS["warm-restart"](epochs=1, peak=1e-6, fresh_rows=False)  # type: ignore[call-arg]
    found = calls(duck.audit(toy_result(duck.ForgetClasses([2]), method=weak)))
    assert len(found) == 2
    assert not [call for call in found if "warm-restart" in call]


def test_the_suggestions_name_what_is_not_known() -> None:
    request = duck.ForgetClasses([2])
    unknown = toy_result(request, method="original", recipe=None)
    found = calls(duck.audit(unknown))
    assert found
    assert all("recipe=recipe" in call for call in found)
    module = calls(duck.audit(trained_net(), unknown.scenario, original=unknown.model))
    assert all(call.startswith("duck.forget(original, data, ids, ") for call in module)
    second = duck.forget(toy_result([1, 5, 9]), forget=request, method="original")
    audit = duck.audit(second)
    assert all("earlier_result" in call for call in calls(audit))
    (not_covered,) = [text for text in audit.not_tested if "earlier request" in text]
    assert second.scenario.earlier[0].request in not_covered


class Patches(nn.Module):
    """A head of patches: it is not found, and must be named."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 6, 3, padding=1)
        self.head = nn.Conv2d(6, 4, 4, stride=4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.body(images))).mean((2, 3))
        return logits


def test_the_suggestions_keep_the_head_and_the_original() -> None:
    torch.manual_seed(0)
    net = duck.train(Patches, toy_data(), recipe=RECIPE)
    rest: dict[str, Any] = {"new_model": Patches, "recipe": replace(RECIPE, epochs=1)}
    result = duck.forget(
        net, toy_data(), duck.ForgetClasses([2]), head="head", method="original", **rest
    )
    names = {"duck": duck, "result": result, "original": net}
    for audit in (duck.audit(result), duck.audit(result, original=net)):
        assert audit.verdict == "not forgotten"
        again = eval(calls(audit)[0], names)
        assert again.task.head == "head"
        assert again.original is net
    twin = copy.deepcopy(net)
    (first, *_) = calls(duck.audit(result, original=twin))
    assert eval(first, {**names, "original": twin}).original is twin
    few = duck.audit(again, original=twin, head="head")
    assert few.verdict == "no verdict"
    assert "original=original" in calls(few)[0]
    assert eval(calls(few)[0], {**names, "result": again}).models == 6


def test_the_suggestions_keep_given_retrained_models_and_the_tier() -> None:
    result = toy_result(duck.ForgetClasses([2]), method="retrained")
    models = [toy_result(duck.ForgetClasses([2]), method="retrained", seed=1).model]
    audit = duck.audit(result, retrained=models)
    assert audit.verdict == "no verdict"
    more = eval(calls(audit)[0], {"duck": duck, "result": result, "retrained": models})
    assert (more.tier, more.models) == ("oracle", 6)
    assert "retrained=retrained" in calls(audit)[0]
    names, options = PythonNames("result", ""), AuditOptions("full")
    (step,) = next_calls(replace(audit, tier="full"), names, options, 60)
    assert 'tier="full"' in step


def test_one_sample_is_sent_to_another_method() -> None:
    result = toy_result([1])
    audit = duck.audit(result)
    assert audit.verdict == "no verdict"
    assured, retrained = (eval(call, {"duck": duck, "result": result}) for call in calls(audit))
    assert assured.assured.assurance.tier == "quick"
    assert METHODS.name_of(retrained.method) == "retrained"
    again = duck.audit(retrained)
    assert again.verdict == "no verdict"
    assert "`" not in " ".join(again.next_steps)
