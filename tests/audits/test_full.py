"""The full tier on real pools: small nets, a class of the toy data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from duck.audits.full import _games, from_pool
from duck.audits.observed import Observed, observe, setting
from duck.audits.oracle import More
from duck.audits.pool.plan import Plan
from duck.config import Experiment
from duck.errors import BadInput
from duck.methods.base import METHODS
from duck.types import Recipe
from tests.audits import pools
from tests.toys import class_scenario, trained_net


def asked(method: str) -> Experiment:
    experiment = pools.experiment(method=METHODS[method]())
    return replace(experiment, training=replace(experiment.training, recipe=Recipe(epochs=4, batch_size=32, lr=0.05)))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, More]:
    """Of a method that does nothing, and of retraining."""
    where, folder = setting(class_scenario()), tmp_path_factory.mktemp("pools")
    made = {}
    for method in ("original", "retrained"):
        made[method] = from_pool(pools.pool(folder / method, Plan("request", asked(method)), 20), where)
    return made


def test_doing_nothing_is_told_and_retraining_is_not(found: dict[str, More]) -> None:
    assert found["original"].p["unlearned"]["U-LiRA"] < 1e-3
    assert found["retrained"].p["unlearned"]["U-LiRA"] > 0.05


@pytest.mark.parametrize("method", ["original", "retrained"])
def test_controls_are_told_whatever_the_method_and_oracles_are_not(found: dict[str, More], method: str) -> None:
    p = {who: values["U-LiRA"] for who, values in found[method].p.items()}
    assert set(p) == {"unlearned", "original", "logit masked", "output noise", "retrained"}
    assert max(p["original"], p["logit masked"], p["output noise"]) < 1e-3
    assert p["retrained"] > 0.05


def test_equal_models_are_judged_by_other_oracles_each_once(tmp_path: Path) -> None:
    pool = pools.pool(tmp_path / "pool", pools.plan(), 20)
    assert pool.oracle is not None
    judged = _games(pool, setting(class_scenario()))["retrained"]
    candidates = int((pool.roles == "candidate").sum())
    assert len(judged.scores) == len(pool.oracle) * candidates
    assert int(judged.members.sum()) == len(pool.oracle) // 2 * candidates


def test_every_attack_has_its_line_with_n_and_curves_for_three_models(found: dict[str, More]) -> None:
    rows = found["original"].rows
    games = {"U-LiRA", "U-LiRA hits", "U-LiRA among unlearned"}
    assert set(rows) == games | {"ε", "KLoM forget", "KLoM retain", "KLoM test", "memorisation", "leakage retained"}
    assert all(row.n > 0 for row in rows.values())
    assert set(found["original"].roc["U-LiRA"]) == {"original", "unlearned", "retrained"}
    assert [measure.name for measure in found["original"].measures] == ["LiRA", "RMIA"]


def test_klom_and_memorisation_are_large_where_nothing_was_done(found: dict[str, More]) -> None:
    def value(method: str, name: str) -> float:
        reading = found[method].rows[name].unlearned
        assert reading is not None
        return reading.value

    for name in ("KLoM forget", "memorisation"):
        assert value("original", name) > value("retrained", name) + 0.1


def test_a_small_pool_says_how_many_models_it_needs(tmp_path: Path) -> None:
    small = pools.pool(tmp_path / "pool", pools.plan(), 2)
    with pytest.raises(BadInput, match="has 2 models and 1 oracles: the full tier needs at least 20 and 10"):
        from_pool(small, setting(class_scenario()))


def test_rows_follow_the_ids_of_the_pool(found: dict[str, More]) -> None:
    """LiRA finds the audited model's samples by their ids: the same rows in another order give the same AUC."""
    seen = observe(trained_net(), class_scenario())
    order = np.random.default_rng(0).permutation(len(seen.forget))
    part = seen.forget
    mixed = replace(part, logits=part.logits[order], embeddings=part.embeddings[order], labels=part.labels[order], ids=part.ids[order])
    lira = found["original"].measures[0]
    assert lira.own is not None
    assert lira.own(Observed(mixed, seen.retain, seen.unseen)).value == pytest.approx(lira.own(seen).value)
    torn = replace(part, logits=part.logits[order] + np.linspace(0, 9, len(order))[:, None] * np.eye(4)[2])
    assert lira.own(Observed(torn, seen.retain, seen.unseen)).value != pytest.approx(lira.own(seen).value)
