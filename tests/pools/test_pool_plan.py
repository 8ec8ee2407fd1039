"""Who trains on what: halves that balance, do not move, and leave nobody out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duck.errors import BadInput
from duck.methods.base import METHODS
from duck.pools import plan as planning
from duck.pools.plan import Job, Plan, make_layout
from duck.scenarios import ForgetFraction, ForgetSamples
from tests.audits.pools import experiment, plan
from tests.toys import toy_data, toy_examples


@pytest.mark.parametrize(
    "what",
    [
        plan(),
        plan(request=ForgetFraction(0.1)),
        plan("shadow"),
        plan(request=ForgetSamples(range(5))),
    ],
)
def test_each_candidate_is_in_exactly_half_of_the_models(what: Plan) -> None:
    who = make_layout(what, toy_data())
    members = torch.stack([who.members(Job("model", number)) for number in range(10)])
    assert torch.equal(members.sum(0), torch.full((len(who.candidates),), 5))
    assert len({tuple(row.tolist()) for row in members}) == 10
    sizes = members.sum(1)
    assert sizes.min() == len(who.candidates) // 2
    assert sizes.max() == (len(who.candidates) + 1) // 2


def test_a_removed_class_is_the_candidates() -> None:
    data, who = toy_data(), make_layout(plan(), toy_data())
    assert torch.equal(who.candidates, (data.train.labels == 2).nonzero().flatten())
    assert torch.equal(who.common, (data.train.labels != 2).nonzero().flatten())
    rows = who.training_rows(Job("model", 3))
    assert len(rows) == 180 + 30
    assert len(rows.unique()) == len(rows)
    assert torch.equal(who.training_rows(Job("oracle", 3)), who.common)
    assert who.retained_classes.tolist() == [True, True, False, True]


def test_forget_samples_and_as_many_others_are_the_candidates() -> None:
    request, data = ForgetFraction(0.1), toy_data()
    who = make_layout(plan(request=request, seed=3), data)
    forget = request(data, 3).forget
    assert len(who.candidates) == 2 * len(forget) == 48
    assert torch.isin(forget, who.candidates).all()
    assert not torch.isin(who.common, who.candidates).any()
    assert len(who.common) + len(who.candidates) == len(data.train)


def test_halves_differ_with_the_seed_and_not_with_anything_else() -> None:
    job = Job("model", 6)
    first = make_layout(plan(), toy_data()).members(job)
    assert torch.equal(
        first, make_layout(plan(method=METHODS["original"]()), toy_data()).members(job)
    )
    assert not torch.equal(first, make_layout(plan(seed=1), toy_data()).members(job))
    seeds = {plan().seed(job) for job in plan().jobs(8)}
    assert len(seeds) == 12


def test_the_watched_samples_are_named_by_id_and_role() -> None:
    data, who = toy_data(), make_layout(plan(), toy_data())
    assert len(who.samples.ids) == len(set(who.samples.ids.tolist())) == 240 + 200
    assert data.test is not None
    known = dict(zip(data.train.ids, data.train.labels, strict=True))
    known |= dict(zip(data.test.ids, data.test.labels, strict=True))
    assert [int(known[name]) for name in who.samples.ids] == who.samples.labels.tolist()
    assert dict(zip(*np.unique(who.samples.roles, return_counts=True), strict=True)) == {
        "candidate": 60,
        "holdout": 40,
        "retain": 180,
        "test": 160,
    }
    shadow = make_layout(plan("shadow"), data)
    assert (shadow.samples.roles[:240] == "candidate").all()


def test_only_so_many_retained_and_unseen_samples_are_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "MAX_RETAIN_SAMPLES", 30)
    monkeypatch.setattr(planning, "MAX_TEST_SAMPLES", 20)
    data, who = toy_data(), make_layout(plan(), toy_data())
    assert data.test is not None
    assert (who.samples.roles == "retain").sum() == 30
    assert torch.isin(who.retain, who.common).all()
    of_the_class = data.test.labels[who.test] == 2
    assert of_the_class.sum() == 50
    assert 0 < (~of_the_class).sum() <= 20
    assert len(make_layout(plan("shadow"), data).test) == 20


def test_ids_that_train_and_test_share_are_distinguished() -> None:
    data = toy_data()
    assert data.test is not None
    counted = replace(data, test=toy_examples(200, seed=1))
    who = make_layout(plan(), counted)
    assert len(set(who.samples.ids.tolist())) == 440
    assert who.samples.ids[-1] == "test:199"


def test_jobs_of_a_smaller_pool_are_the_first_of_a_larger_one() -> None:
    assert plan().jobs(8)[:6] == plan().jobs(4)
    assert [str(job) for job in plan().jobs(2)] == ["model 0", "model 1", "oracle 0"]
    assert plan("shadow").jobs(2) == [Job("model", 0), Job("model", 1)]
    with pytest.raises(BadInput, match=r"even number of models.*got 3"):
        plan().jobs(3)


def test_a_plan_that_is_impossible_is_refused() -> None:
    for change in ({"request": None}, {"method": None}):
        with pytest.raises(BadInput, match="a request and a method"):
            Plan(replace(experiment(), **change))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"twice as many candidates.*288 of 240"):
        make_layout(plan(request=ForgetFraction(0.6)), toy_data())
    with pytest.raises(BadInput, match="can only forget whole classes"):
        make_layout(plan(request=ForgetFraction(0.1), method=METHODS["erm-ktp"]()), toy_data())
