"""A request that follows others: what they forgot stays out of the retain set and is scored
again."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import duck
from duck import records
from duck.data.examples import Pixels, Resident, examples
from duck.earlier_requests import (
    REMEMBERED,
    STATES,
    EarlierScores,
    has_drifted,
    measure_drift,
    remembered_rank,
    score_earlier,
    with_history,
)
from duck.errors import BadInput
from duck.methods import METHODS, Original
from duck.metrics import mean_loss_rank
from duck.predict import accuracy
from duck.scenarios import (
    Debias,
    ForgetClasses,
    ForgetFraction,
    ForgetRandomClasses,
    ForgetSamples,
    scenario_after,
)
from duck.types import Data, Drift, Examples
from duck.unlearning import notes, unlearn
from tests.toys import RECIPE, TOYS, toy_data, toy_net, trained_net

DUCK = TOYS["duck"].method("class")


def ids(samples: Examples) -> set[str]:
    return set(samples.ids.tolist())


def test_the_earlier_forget_set_is_in_neither_set_of_the_next_request() -> None:
    data = toy_data()
    first = ForgetClasses([2])(data)
    second = scenario_after(first, ForgetClasses([1]))
    third = scenario_after(second, ForgetFraction(0.25))
    labels = second.data.train.labels
    assert set(labels[second.forget].tolist()) == {1}
    assert set(labels[second.retain].tolist()) == {0, 3}
    assert second.data.test is not None
    # The holdout steers, and the test set scores, only classes that are still known.
    for rows in (second.holdout, second.test):
        assert set(second.data.test.labels[rows].tolist()) == {0, 1, 3}
    for rows in (third.holdout, third.test):
        assert set(second.data.test.labels[rows].tolist()) == {0, 3}
    assert [earlier.request for earlier in third.earlier] == ["class c", "class b"]
    assert [earlier.kind for earlier in third.earlier] == ["class", "class"]
    sets = [
        ids(data.train.take(first.forget)),
        ids(second.data.train.take(second.forget)),
        ids(third.data.train.take(third.forget)),
    ]
    assert [ids(earlier.forget) for earlier in third.earlier] == sets[:2]
    assert (
        sum(map(len, sets)) + len(third.retain)
        == len(set.union(*sets) | ids(third.data.train.take(third.retain)))
        == len(data.train)
    )


def test_a_random_request_draws_among_what_is_left() -> None:
    data = toy_data()
    first = ForgetFraction(0.25)(data, seed=3)
    second = scenario_after(first, ForgetFraction(0.25), seed=3)
    assert len(second.forget) == 45
    assert not ids(data.train.take(first.forget)) & ids(second.data.train.take(second.forget))
    drawn = [ForgetRandomClasses(1)(data, seed=5)]
    for _ in range(2):
        drawn.append(scenario_after(drawn[-1], ForgetRandomClasses(1), seed=5))
    assert (
        len({scenario.data.train.labels[scenario.forget].unique().item() for scenario in drawn})
        == 3
    )


def test_what_was_forgotten_before_cannot_be_asked_for_again() -> None:
    first = ForgetSamples(["4", "8"])(toy_data())
    with pytest.raises(BadInput, match="forgot '8' already"):
        scenario_after(first, ForgetSamples(["8", "12"]))
    whole = ForgetClasses([2])(toy_data())
    with pytest.raises(BadInput, match="forgot class c already"):
        scenario_after(whole, ForgetClasses(["c"]))
    with pytest.raises(BadInput, match="cannot follow another request"):
        scenario_after(whole, Debias(0, 1, count=5))


def test_a_second_request_in_python_keeps_the_first_class_forgotten() -> None:
    data, kept_out = toy_data(), toy_data().train.labels == 2
    first = duck.forget(trained_net(), data, forget=ForgetClasses([2]), method=DUCK)
    assert first.scores.forget <= 0.01
    second = duck.forget(first, forget=ForgetClasses([1]), method=DUCK)
    third = duck.forget(second, forget=[0, 4, 3], method=TOYS["duck"].method("samples"))
    for result in (second, third):
        assert not ids(data.train.take(kept_out.nonzero().flatten())) & ids(result.task.retain)
        earlier = result.earlier[0]
        assert (earlier.request, earlier.samples, earlier.state) == (
            "class c",
            60,
            "still forgotten",
        )
        assert earlier.after <= 0.05
        assert duck.evaluate(result.model, ForgetClasses([2])(data)).forget == earlier.after
    assert second.scores.forget <= 0.01
    assert second.scores.aus is not None
    assert second.scores.aus > 0.95
    assert [one.request for one in third.earlier] == ["class c", "class b"]
    assert third.original is second.model
    assert third.scenario.data.train.ids[third.scenario.forget.numpy()].tolist() == ["0", "3", "4"]
    assert "class c" in str(third)
    fourth = duck.forget(third, forget=[7, 8], method=TOYS["duck"].method("samples"))
    samples = fourth.earlier[2]
    assert f"{samples.rank_before:.3f} -> {samples.rank_after:.3f}" in str(fourth)
    assert all(one.state in str(fourth) for one in fourth.earlier)
    assert str(fourth).count("forgotten earlier") == 3
    assert not any("classes without training samples" in note for note in third.notes)


def test_a_result_brings_its_data_and_a_mask_is_of_all_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(80, 1, 8, 8, generator=generator), torch.arange(80) % 4
    first = duck.forget(trained_net(), TensorDataset(images, labels), forget=[0, 1, 2])
    mask = np.zeros(80, dtype=bool)
    mask[[7, 9]] = True
    second = duck.forget(first, forget=mask)
    assert second.scenario.data.train.ids[second.scenario.forget.numpy()].tolist() == ["7", "9"]
    with pytest.raises(BadInput, match="training and test data"):
        duck.forget(first, TensorDataset(images, labels), forget=[5])
    with pytest.raises(BadInput, match="training and test data"):
        duck.forget(first, forget=[5], mean=[0.5], std=[0.5])
    with pytest.raises(BadInput, match="forget= "):
        duck.forget(first)
    with pytest.raises(BadInput, match="train_set="):
        duck.forget(trained_net(), forget=[5])


def test_the_next_request_is_scored_against_the_model_it_starts_from() -> None:
    data = toy_data()
    first = duck.forget(trained_net(), data, forget=ForgetClasses([2]), method=DUCK)
    same = duck.forget(first, forget=ForgetClasses([1]), method=Original())
    assert same.outcome.original == same.scores
    assert same.scores.retain_test is not None
    rows = (
        torch.isin(data.test.labels[same.scenario.retain_test], torch.tensor([0, 3]))
        if data.test is not None
        else torch.zeros(1)
    )
    assert rows.all()
    assert same.earlier[0].state == "still forgotten"


def test_a_class_that_is_known_again_is_the_first_note() -> None:
    data = toy_data()
    first = duck.forget(trained_net(), data, forget=ForgetClasses([2]), method=DUCK)
    scenario = scenario_after(first.scenario, ForgetClasses([1]))
    outcome = unlearn(Original(), first.model, scenario)
    learned_again = replace(outcome, earlier=score_earlier(first.model, trained_net(), scenario))
    (earlier,) = learned_again.earlier
    assert earlier.state == "remembered again"
    assert earlier.after > 0.9 > 0.01 >= earlier.before
    assert "remembered again: class c" in notes(scenario, learned_again)[0]
    assert "remembered again" not in notes(scenario, outcome)[0]


def noise_data() -> Data:
    """Noise with random labels: it can be memorised and nothing else."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int, prefix: str) -> Resident:
        images = torch.randint(0, 256, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
        names = np.array([f"{prefix}{index}" for index in range(count)])
        return examples(
            images,
            torch.randint(0, 4, (count,), generator=generator),
            names,
            Pixels((0.5,), (0.3,)),
        )

    return Data(
        "noise", draw(160, ""), draw(200, "t"), ("a", "b", "c", "d"), torch.arange(0, 200, 5)
    )


def memorising_net(samples: Examples) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    batch = next(samples.batches(1000))
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(batch.images), batch.labels).backward()
        optimizer.step()
    return net.eval()


def test_samples_are_known_again_where_their_losses_are_lower_than_those_of_unseen_samples() -> (
    None
):
    """Their classes stay known: the accuracy alone is no sign."""
    data = noise_data()
    first = ForgetFraction(0.25)(data)
    scenario = scenario_after(first, ForgetSamples(["1"] if 1 in first.retain else ["2"]))
    without, memorised = memorising_net(data.train.take(first.retain)), memorising_net(data.train)
    (stays,) = score_earlier(without, without, scenario)
    assert stays.rank_after is not None
    assert 0.4 < stays.rank_after < 0.6
    assert stays.state == "still forgotten"
    (again,) = score_earlier(without, memorised, scenario)
    assert again.rank_after is not None
    assert again.rank_after < 0.2
    assert again.state == "remembered again"
    (never_forgotten,) = score_earlier(memorised, memorised, scenario)
    assert never_forgotten.state == "not forgotten"
    # A retrained model never saw them: low losses only say that they are easy.
    (easy,) = score_earlier(memorised, memorised, with_history(scenario, (), True, Drift()))
    assert easy.state == "still forgotten"
    (fresh,) = score_earlier(memorised, memorised, scenario, retrained=True)
    assert fresh.state == "still forgotten"


def test_without_unseen_samples_a_rise_of_the_accuracy_is_the_sign() -> None:
    data = replace(noise_data(), test=None, holdout=torch.arange(0))
    first = ForgetFraction(0.25)(data)
    scenario = scenario_after(first, ForgetFraction(0.1))
    without, memorised = memorising_net(data.train.take(first.retain)), memorising_net(data.train)
    (again,) = score_earlier(without, memorised, scenario)
    assert (again.rank_after, again.state) == (None, "remembered again")
    (stays,) = score_earlier(without, without, scenario)
    assert stays.state == "still forgotten"


def test_rank_among_unseen_losses_of_the_same_class_by_hand() -> None:
    losses, labels = torch.tensor([0.5, 2.0, 1.0]), torch.tensor([0, 0, 1])
    unseen, unseen_labels = (
        torch.tensor([0.1, 0.9, 3.0, 4.0, 1.0, 1.0]),
        torch.tensor([0, 0, 0, 0, 1, 1]),
    )
    # 1 of 4 lower; 2 of 4 lower; both equal: a half.
    assert mean_loss_rank(losses, labels, unseen, unseen_labels) == pytest.approx(
        (0.25 + 0.5 + 0.5) / 3
    )
    assert mean_loss_rank(losses, labels, unseen[:0], unseen_labels[:0]) is None


def known_class(share: float) -> nn.Module:
    """A net that knows all classes of the toys, but of class c only so many samples."""
    net = trained_net()

    class Part(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = net(images).clone()
            order = images.flatten(1).sum(1)
            rows = logits.argmax(1) == 2
            hidden = rows & (order > order[rows].quantile(share)) if rows.any() else rows
            logits[hidden, 2] = -100.0
            return logits

    part = Part().eval()
    part.register_parameter("unused", nn.Parameter(torch.zeros(1)))
    return part


def test_a_class_that_the_earlier_run_left_known_was_never_forgotten() -> None:
    data = toy_data()
    first = duck.forget(trained_net(), data, forget=ForgetClasses([2]), method=Original())
    second = duck.forget(first, forget=ForgetClasses([1]), method=DUCK)
    assert second.earlier[0].before > 0.9
    assert second.earlier[0].state == "not forgotten"
    assert "not forgotten: class c" in second.notes[0]
    fell = score_earlier(
        trained_net(), known_class(0.8), scenario_after(first.scenario, ForgetClasses([1]))
    )[0]
    assert fell.after == pytest.approx(0.8, abs=0.05)
    assert fell.state == "not forgotten"


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_class_that_came_back_stays_known_in_later_requests(share: float) -> None:
    """The step before is no measure: it is remembered there already."""
    data = toy_data()
    forgotten = duck.forget(trained_net(), data, forget=ForgetClasses([2]), method=DUCK)
    second = scenario_after(forgotten.scenario, ForgetSamples(["0"]))
    back = score_earlier(forgotten.model, known_class(share), second)
    assert back[0].state == "remembered again"
    third = with_history(scenario_after(second, ForgetSamples(["3"])), back, None, Drift())
    later = score_earlier(known_class(share), known_class(share), third)[0]
    assert (later.state, later.best) == ("remembered again", back[0].before)
    assert later.before == later.after


def test_a_forget_set_that_was_never_forgotten_is_not_called_forgotten() -> None:
    """Its losses may be like those of unseen samples from the start."""
    data = toy_data()
    first = duck.forget(trained_net(), data, forget=ForgetFraction(0.25), method=Original())
    second = duck.forget(first, forget=ForgetClasses([1]), method=DUCK)
    third = duck.forget(second, forget=ForgetClasses([0]), method=DUCK)
    assert [one.state for one in third.earlier] == ["not forgotten", "still forgotten"]
    retrained = duck.forget(
        second, forget=ForgetClasses([0]), method="retrained", new_model=toy_net, recipe=RECIPE
    )
    assert [one.state for one in retrained.earlier] == ["still forgotten", "still forgotten"]


@pytest.mark.parametrize(
    ("count", "state"), [(1, "undecided"), (3, "undecided"), (5, "still forgotten")]
)
@pytest.mark.parametrize("with_test", [True, False])
def test_few_samples_cannot_tell(count: int, state: str, with_test: bool) -> None:
    data = noise_data() if with_test else replace(noise_data(), test=None, holdout=torch.arange(0))
    first = ForgetSamples([str(index) for index in range(count)])(data)
    scenario = scenario_after(first, ForgetSamples(["100"]))
    net = memorising_net(data.train.take(first.retain))
    assert score_earlier(net, net, scenario)[0].state == state


def test_a_state_is_stored_and_its_exit_code_follows() -> None:
    scores = EarlierScores(
        "class c", "class", 60, 0.0, 0.0, None, None, "still forgotten", 0.0, None
    )
    assert [replace(scores, state=state).is_remembered for state in STATES] == [
        state in REMEMBERED for state in STATES
    ]
    assert REMEMBERED == ("remembered again", "not forgotten")
    for state in STATES:
        known = replace(scores, state=state)
        assert records.structure(asdict(known), EarlierScores) == known
    with pytest.raises(records.InvalidRecord, match="state"):
        records.structure({**asdict(scores), "state": "stays forgotten"}, EarlierScores)


@pytest.mark.parametrize(("method", "is_advised"), [("finetune", True), ("retrained", False)])
def test_after_many_requests_in_a_row_retraining_is_advised(method: str, is_advised: bool) -> None:
    data = toy_data()
    rest: dict[str, Any] = {"new_model": toy_net, "recipe": RECIPE, "method": method}
    first = duck.forget(trained_net(), data, ForgetSamples(["1"]), **rest)
    few = duck.forget(first, forget=ForgetSamples(["2"]), **rest)
    assert not [note for note in few.notes if note.startswith("Retrain now")]
    # A class is a quarter of the samples.
    many = duck.forget(few, forget=ForgetClasses([3]), **rest)
    advice = [note for note in many.notes if note.startswith("Retrain now: 3 requests")]
    assert bool(advice) == is_advised


class Shifted(nn.Module):
    """A model that takes every so many-th image for another class."""

    def __init__(self, model: nn.Module, share: float) -> None:
        super().__init__()
        self.model = model
        self.share = share

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(images)
        # The pixels decide, so that the order of the batches does not matter.
        values = images.flatten(1).sum(1).abs().frac()
        wrong = (values < self.share).nonzero().flatten()
        logits[wrong] = logits[wrong].roll(1, 1)
        return logits


def right_on_holdout(model: nn.Module, data: Data, labels: list[int]) -> float:
    assert data.test is not None
    rows = data.holdout[torch.isin(data.test.labels[data.holdout], torch.tensor(labels))]
    return accuracy(model, data.test.take(rows))


def test_drift_compares_with_the_first_original_on_the_classes_that_are_left() -> None:
    data, first, worse, worst = toy_data(), trained_net(), *worse_nets()
    one = ForgetSamples(["1"])(data)
    drift = measure_drift(first, worse, one)
    assert (drift.requests, drift.samples, drift.n) == (1, 1, 40)
    assert (drift.accuracy_before, drift.accuracy_now) == (
        1.0,
        right_on_holdout(worse, data, [0, 1, 2, 3]),
    )
    two = with_history(scenario_after(one, ForgetClasses([2])), (), None, drift)
    drift = measure_drift(worse, worst, two)
    assert (drift.requests, drift.samples, drift.n) == (2, 61, 30)
    # The first model, not the one before; and not on the class that this request forgets.
    assert drift.accuracy_before == 1.0
    assert drift.accuracy_now == right_on_holdout(worst, data, [0, 1, 3])
    assert (drift.lost, drift.gained) == (round(30 * (1 - drift.accuracy_now)), 0)
    assert has_drifted(drift)


def worse_nets() -> tuple[nn.Module, nn.Module]:
    return Shifted(trained_net(), 0.2), Shifted(trained_net(), 0.5)


def test_a_retrained_model_is_a_new_first_one() -> None:
    data, worse = toy_data(), worse_nets()[0]
    one = ForgetSamples(["1"])(data)
    again = measure_drift(trained_net(), worse, one, retrained=True)
    assert again == Drift()
    two = with_history(scenario_after(one, ForgetSamples(["2"])), (), True, again)
    drift = measure_drift(worse, worse, two)
    assert (drift.requests, drift.samples) == (1, 1)
    assert (
        drift.accuracy_before == drift.accuracy_now == right_on_holdout(worse, data, [0, 1, 2, 3])
    )


def test_drift_on_other_data_is_not_measured() -> None:
    two = scenario_after(ForgetSamples(["1", "5"])(toy_data()), ForgetSamples(["2"]))
    other_data = replace(
        two, drift=Drift(1, 2, correct_before="ff")
    )  # bits of 8 samples, not of 40
    assert measure_drift(trained_net(), trained_net(), other_data).accuracy_before is None


@pytest.mark.parametrize(
    ("lost", "gained", "n", "expected"),
    [
        (4, 0, 100, False),  # two standard errors: 4
        (5, 0, 100, True),
        (20, 10, 100, False),  # 10 <= 2 * sqrt(30)
        (22, 10, 100, True),  # 12 > 2 * sqrt(32)
        (60, 0, 10_000, False),  # below one point
        (101, 0, 10_000, True),
    ],
)
def test_the_limit_of_the_drift(lost: int, gained: int, n: int, expected: bool) -> None:
    assert has_drifted(Drift(2, 2, lost=lost, gained=gained, n=n)) is expected


def test_memory_of_all_earlier_requests_together() -> None:
    def scores(after: float, best: float, samples: int = 20) -> EarlierScores:
        ranks = (0.5, after, "still forgotten", 0.9, best)
        return EarlierScores("20 samples", "samples", samples, 0.9, 0.9, *ranks)  # type: ignore[arg-type]

    # One request of 20 samples: 3 standard errors are 0.20. Ten of them: 0.07.
    assert remembered_rank([scores(0.4, 0.5)] * 10, 1000) == pytest.approx(0.4)
    assert remembered_rank([scores(0.4, 0.5)] * 2, 1000) is None
    assert remembered_rank([scores(0.4, 0.4)] * 10, 1000) is None  # easy from the start
    assert remembered_rank([scores(0.48, 0.5)] * 10, 1000) is None
    large = remembered_rank([scores(0.3, 0.5, 200), scores(0.5, 0.5, 20)], 1000)
    assert large == pytest.approx((200 * 0.3 + 20 * 0.5) / 220)


def test_measured_drift_advises_to_retrain() -> None:
    rest: dict[str, Any] = {"new_model": toy_net, "recipe": RECIPE}
    ruining = METHODS["ssd"](alpha=0.5, dampening=0.5)  # type: ignore[call-arg]
    first = duck.forget(trained_net(), toy_data(), ForgetSamples(["1"]), method="finetune", **rest)
    second = duck.forget(first, forget=ForgetSamples(["2"]), method=ruining, **rest)
    drift = second.outcome.drift
    assert drift.requests == 2
    assert has_drifted(drift)
    points = f"{100 * (drift.lost - drift.gained) / drift.n:.1f} points"
    assert [note for note in second.notes if "Retrain now" in note and points in note]
    alone = duck.forget(trained_net(), toy_data(), ForgetSamples(["1"]), method=ruining, **rest)
    assert has_drifted(alone.outcome.drift)
    assert not [note for note in alone.notes if "Retrain now" in note]
