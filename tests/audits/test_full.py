"""The full tier on real pools: small nets, a class of the toy data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from duck.audits.attacks.lira import LiraAttack
from duck.audits.attacks.rmia import RmiaAttack, choose_population
from duck.audits.attacks.ulira import excess_over_unseen
from duck.audits.full import (
    among_oracles,
    epsilon_rows,
    evidence_of,
    klom_rows,
    model_measures,
    pool_exposure,
)
from duck.audits.oracle import PoolEvidence
from duck.audits.outputs import ModelOutputs, compute_outputs, make_setting
from duck.audits.pool_measures import EPSILON, EPSILON_EXCESS, limit
from duck.audits.scores import Margins, Scored
from duck.audits.statistics import resolved_rates
from duck.audits.sub_scenarios import split_for_choice
from duck.audits.verdict import Limits, Row
from duck.errors import BadInput
from duck.experiment import Experiment
from duck.methods.base import METHODS
from duck.pools.plan import Plan
from duck.pools.reader import Pool, State
from duck.types import Estimate, Recipe
from tests.audits import memorisers, pools
from tests.audits.witnesses import sample_model, samples_setting
from tests.toys import class_scenario, trained_net

NONE = np.empty(0, np.str_)
LIRAS = ["LiRA", "online LiRA", "LiRA, fixed variance"]


def asked(method: str) -> Experiment:
    experiment = pools.experiment(method=METHODS[method]())
    return replace(
        experiment,
        training=replace(experiment.training, recipe=Recipe(epochs=4, batch_size=32, lr=0.05)),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pool]:
    """Of a method that does nothing, and of retraining."""
    folder = tmp_path_factory.mktemp("pools")
    return {
        method: pools.pool(folder / method, Plan(asked(method)), 20)
        for method in ("original", "retrained")
    }


@pytest.fixture(scope="module")
def found(made: dict[str, Pool]) -> dict[str, PoolEvidence]:
    return {
        method: evidence_of(pool, make_setting(class_scenario()), Limits())
        for method, pool in made.items()
    }


@pytest.mark.slow
def test_doing_nothing_is_exposed_and_retraining_is_not(found: dict[str, PoolEvidence]) -> None:
    answers = {
        method: {item.measure: item.answer for item in evidence.exposed}
        for method, evidence in found.items()
    }
    assert answers["original"]["U-LiRA excess"] == "yes"
    assert "yes" not in answers["retrained"].values()


@pytest.fixture(scope="module")
def small_pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """The smallest pool that the full tier accepts, of models that were trained shortly."""
    return pools.pool(tmp_path_factory.mktemp("small") / "pool", pools.plan(), 20)


def test_equal_models_are_judged_by_other_oracles_each_once(small_pool: Pool) -> None:
    pool = small_pool
    assert pool.oracle is not None
    judged = among_oracles(pool.margins("oracle", "candidate"))
    candidates = int((pool.roles == "candidate").sum())
    assert len(judged.scores) == len(pool.oracle) * candidates
    assert int(judged.members.sum()) == len(pool.oracle) // 2 * candidates


def test_rmia_is_left_out_where_the_holdout_holds_all_unseen_samples_but_one(
    small_pool: Pool,
) -> None:
    pool, setting = small_pool, make_setting(class_scenario())
    outside = np.intersect1d(setting.matched, setting.test)
    inside = np.setdiff1d(setting.matched, setting.test)
    names = {
        count: [
            m.name
            for m in evidence_of(
                pool, replace(setting, matched=np.append(inside, outside[:count])), Limits()
            ).measures
        ]
        for count in (1, 2)
    }
    assert names == {1: LIRAS, 2: [*LIRAS, "RMIA"]}


def test_a_part_of_the_samples_has_a_population_of_its_own(small_pool: Pool) -> None:
    """The final audit of an assured run looks at no sample of the holdout."""
    _, final = split_for_choice(class_scenario())
    setting, outputs = make_setting(final), compute_outputs(trained_net(), final)
    evidence = evidence_of(small_pool, setting, Limits())
    scores = evidence.attacks["RMIA"](outputs).scores
    assert 0 < scores.mean() < 1
    unseen = outputs.unseen.ids
    chosen = choose_population(unseen, small_pool.ids[small_pool.roles == "holdout"])
    assert chosen.sum() == len(unseen) // 2
    assert not choose_population(unseen, unseen).all()
    assert choose_population(unseen, unseen[:3]).sum() == 3
    assert RmiaAttack.count_non_members(setting) == len(setting.matched) // 2


def test_the_excess_of_a_pool_compares_candidates_with_unseen_samples_of_the_other_classes(
    small_pool: Pool,
) -> None:
    """60 candidates of one class; 150 of 200 unseen samples are of the other three."""
    setting = make_setting(class_scenario())
    row = evidence_of(small_pool, setting, Limits()).rows["U-LiRA excess"]
    assert row.n == 210
    is_unseen = np.isin(small_pool.roles, ["test", "holdout"]) & (small_pool.labels != 2)
    unseen = small_pool.ids[is_unseen]
    ids = np.concatenate([small_pool.ids[small_pool.roles == "candidate"], unseen])
    states: dict[State, Estimate | None] = {"after": row.unlearned, "before": row.original}
    for state, estimate in states.items():
        models, oracles = (small_pool.margins(side).at(ids) for side in (state, "oracle"))
        assert estimate == Estimate(*excess_over_unseen(models, oracles, unseen)[:3])
    none = replace(setting, forgotten_classes=np.arange(4))
    assert "U-LiRA excess" not in evidence_of(small_pool, none, Limits()).rows


def test_epsilon_before_stands_under_original_and_after_under_unlearned() -> None:
    models = {"original": memorisers.kept(), "unlearned": memorisers.forgot()}
    row = epsilon_rows(models, memorisers.oracles(), memorisers.CANDIDATES, NONE)[EPSILON]
    assert row.original is not None
    assert row.unlearned is not None
    assert row.original.value > row.unlearned.value + 0.3


def test_epsilon_states_its_limit_and_the_values_at_it() -> None:
    """16 of 32 models had a sample, and half of them are counted."""
    kept = memorisers.kept()
    sure = Margins(kept.ids, np.where(kept.members, kept.values + 100, kept.values), kept.members)
    models = {"original": sure, "unlearned": memorisers.forgot()}
    row = epsilon_rows(models, memorisers.oracles(), memorisers.CANDIDATES, NONE)[EPSILON]
    assert row.limit is not None
    assert row.limit.value == pytest.approx(limit(8, 16))
    assert row.limit.why.startswith("8 models a side ")
    assert f" {limit(8, 16):.3f}" in row.limit.why
    assert row.at_limit == ["original"]


@pytest.mark.parametrize(("limit", "answers"), [(0.1, ["yes"]), (5.0, [])])
def test_epsilon_is_evidence_only_above_its_limit(limit: float, answers: list[str]) -> None:
    """It is a lower bound: a low one does not show that nothing is exposed."""
    rows = {EPSILON_EXCESS: Row("", "score", 1, Estimate(0.5), Estimate(0.5))}
    exposed = pool_exposure(rows, Limits(max_epsilon=limit))
    assert [item.answer for item in exposed] == answers


def drawn_margins(shift: float, shift_of_members: float, seed: int) -> Margins:
    """Return 128 models and 60 samples, of which each model had one half of the first 30."""
    draw = np.random.default_rng(seed)
    members = np.zeros((128, 60), bool)
    members[:, :30] = draw.random((128, 30)) < 0.5
    values = draw.normal(shift + shift_of_members * members)
    return Margins(np.arange(60).astype(str), values, members)


@pytest.mark.parametrize(("memory", "is_above"), [(0.0, False), (4.0, True)])
def test_another_recipe_raises_epsilon_and_not_its_excess(memory: float, is_above: bool) -> None:
    """All margins of the unlearned models are higher than those of the oracles."""
    unlearned = drawn_margins(shift=1.5, shift_of_members=memory, seed=0)
    models = {"original": unlearned, "unlearned": unlearned}
    oracles = drawn_margins(shift=0.0, shift_of_members=0.0, seed=1)
    oracles = Margins(oracles.ids, oracles.values, np.zeros_like(oracles.members))
    rows = epsilon_rows(models, oracles, oracles.ids[:30], oracles.ids[30:])
    epsilon, excess = rows[EPSILON].unlearned, rows[EPSILON_EXCESS].unlearned
    assert epsilon is not None
    assert excess is not None
    assert epsilon.value > 1
    assert (excess.value > 1) is is_above
    assert (abs(excess.value) < 0.3) is not is_above


@pytest.mark.slow
def test_klom_s_test_points_are_of_the_classes_that_stay(found: dict[str, PoolEvidence]) -> None:
    """200 unseen samples of four classes, of which one goes."""
    rows = found["original"].rows
    assert (rows["KLoM forget"].n, rows["KLoM test"].n) == (60, 150)


@pytest.mark.slow
def test_rmia_does_not_judge_the_population_it_compares_with(
    found: dict[str, PoolEvidence],
) -> None:
    """60 forgotten samples and 50 unseen ones; 10 of these are the holdout, the population."""
    seen = compute_outputs(trained_net(), class_scenario())
    counts = {
        measure.name: measure.of_model(seen).n
        for measure in found["original"].measures
        if measure.of_model is not None
    }
    assert counts == {**dict.fromkeys(LIRAS, 110), "RMIA": 100}


@pytest.mark.slow
def test_klom_has_a_mean_and_a_95th_percentile_with_one_floor(
    found: dict[str, PoolEvidence],
) -> None:
    for name in ("forget", "retain", "test"):
        mean, highest = (
            found["original"].rows[f"KLoM {name}"],
            found["original"].rows[f"KLoM {name} p95"],
        )
        for who in ("original", "unlearned", "retrained"):
            assert getattr(highest, who).value >= getattr(mean, who).value
        assert highest.about.startswith("95th percentile")


def test_one_floor_serves_models_that_are_like_oracles_and_models_that_are_far_off() -> None:
    """With bins of their own, models like the oracles would lie far above the floor."""
    draw, names = np.random.default_rng(0), np.array([f"r{index}" for index in range(30)])
    alike, off, oracles = (
        Margins(names, draw.normal(middle, 1, (16, 30)), np.ones((16, 30), bool))
        for middle in (0, 50, 0)
    )
    models = {"original": alike, "unlearned": off}
    row = klom_rows("retain", models, oracles)["KLoM retain"]
    assert row.original is not None
    assert row.unlearned is not None
    assert row.retrained is not None
    assert row.original.value == pytest.approx(row.retrained.value, abs=0.5)
    assert row.unlearned.value > row.retrained.value + 5


@pytest.mark.slow
def test_every_attack_has_its_line_with_n_and_curves(found: dict[str, PoolEvidence]) -> None:
    rows = found["original"].rows
    games = {
        "U-LiRA",
        "U-LiRA TPR at 1 % FPR",
        "U-LiRA among oracles",
        "U-LiRA among unlearned",
        "U-LiRA excess",
    }  # 600 non-members cannot show 0.1 %
    divergences = {
        f"KLoM {name}{what}" for name in ("forget", "retain", "test") for what in ("", " p95")
    }
    assert set(rows) == games | divergences | {
        "ε",
        "ε excess",
        "memorisation",
        "leakage retained",
    }
    assert all(row.n > 0 for row in rows.values())
    assert set(found["original"].roc["U-LiRA"]) == {"original", "unlearned"}
    assert [measure.name for measure in found["original"].measures] == [*LIRAS, "RMIA"]
    assert list(found["original"].attacks) == [*LIRAS, "RMIA"]


def test_true_positive_rates_are_listed_at_every_rate_that_the_non_members_resolve() -> None:
    assert [resolved_rates(others) for others in (99, 100, 999, 1000)] == [
        [],
        [0.01],
        [0.01],
        [0.01, 0.001],
    ]
    setting = replace(samples_setting(), matched=np.arange(160), test=np.arange(120))
    ids = np.array([str(at) for at in range(1160)])
    ranked = Scored(
        ids,
        np.concatenate([np.full(500, 3.0), np.full(500, -1.0), np.linspace(0, 2, 160)]),
        np.arange(1160) < 1000,
    )

    class RankedLira(LiraAttack):
        def __init__(self) -> None:
            """Need no pool."""

        def __call__(self, outputs: ModelOutputs) -> Scored:
            return ranked

    class RankedRmia(RankedLira, RmiaAttack):
        pass

    attacks = {"LiRA": RankedLira(), "RMIA": RankedRmia()}
    by = {measure.name: measure for measure in model_measures(attacks, setting)}
    assert list(by) == ["LiRA", "RMIA", "LiRA TPR at 1 % FPR", "RMIA TPR at 1 % FPR"]
    own = by["LiRA TPR at 1 % FPR"].of_model
    assert own is not None
    assert own(sample_model(0, 0.0))[:1] == (0.5,)
    assert "1 %" in by["LiRA TPR at 1 % FPR"].about


@pytest.mark.slow
def test_klom_is_large_where_nothing_was_done(found: dict[str, PoolEvidence]) -> None:
    nothing, retrained = (
        found[method].rows["KLoM forget"].unlearned for method in ("original", "retrained")
    )
    assert nothing is not None
    assert retrained is not None
    assert nothing.value > retrained.value + 0.1


@pytest.mark.slow
def test_memorisation_is_of_the_sample_and_not_of_its_class(
    made: dict[str, Pool], found: dict[str, PoolEvidence]
) -> None:
    """Both sides know the class. With oracles, which do not, it would be that of the class."""
    pool, row = made["original"], found["original"].rows["memorisation"]
    chosen = pool.roles == "candidate"
    p, members = expit(pool.before.margins[:, chosen].astype(np.float64)), pool.members[:, chosen]
    by_hand = [p[inside, at].mean() - p[~inside, at].mean() for at, inside in enumerate(members.T)]
    assert row.original is not None
    assert row.original.value == pytest.approx(np.mean(by_hand))
    assert pool.oracle is not None
    of_the_class = (
        p[members].mean() - expit(pool.oracle.margins[:, chosen].astype(np.float64)).mean()
    )
    assert abs(row.original.value) < of_the_class / 4


def test_a_small_pool_says_how_many_models_it_needs(tmp_path: Path) -> None:
    small = pools.pool(tmp_path / "pool", pools.plan(), 2)
    with pytest.raises(BadInput, match=r"2 models and 1 .* 20 and 10"):
        evidence_of(small, make_setting(class_scenario()), Limits())


@pytest.mark.slow
def test_rows_follow_the_ids_of_the_pool(found: dict[str, PoolEvidence]) -> None:
    """LiRA finds samples by their ids: the same rows in another order give the same AUC."""
    seen = compute_outputs(trained_net(), class_scenario())
    order = np.random.default_rng(0).permutation(len(seen.forget))
    part = seen.forget
    mixed = replace(
        part,
        logits=part.logits[order],
        embeddings=part.embeddings[order],
        labels=part.labels[order],
        ids=part.ids[order],
    )
    lira = found["original"].measures[0]
    assert lira.of_model is not None
    assert lira.of_model(ModelOutputs(mixed, seen.retain, seen.unseen)).value == pytest.approx(
        lira.of_model(seen).value
    )
    torn = replace(
        part, logits=part.logits[order] + np.linspace(0, 9, len(order))[:, None] * np.eye(4)[2]
    )
    assert lira.of_model(ModelOutputs(torn, seen.retain, seen.unseen)).value != pytest.approx(
        lira.of_model(seen).value
    )
