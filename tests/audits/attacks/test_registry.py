"""Contract of every registered attack, and where the facts of the registry are read."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest

from duck import registry
from duck.audits.attacks import ATTACKS
from duck.audits.attacks.base import (
    Attack,
    ModelAttack,
    OutputsAttack,
    PoolAttack,
    RetrainedAttack,
    ThresholdAttack,
    model_attacks,
)
from duck.audits.listing import list_attacks
from duck.audits.scores import Outputs
from duck.audits.verdict import TIERS
from duck.bench import grids
from duck.bench.columns import ATTACK_SCORES, COLUMNS
from duck.errors import BadInput, UnknownName
from duck.registry import Registry
from tests.audits.witnesses import model, sample_model, samples_setting

NAMES = list(ATTACKS)


@pytest.mark.parametrize("name", NAMES)
def test_every_attack_states_its_facts(name: str) -> None:
    attack = ATTACKS[name]
    assert attack.title
    assert attack.description
    assert attack.direction
    assert attack.paper
    assert attack.tier in (*TIERS, None)
    assert set(attack.columns) <= set(ATTACK_SCORES)
    assert (attack.needs == "pool") == (attack.tier == "full")
    assert issubclass(attack, PoolAttack) == (attack.needs == "pool" and name != "u-lira")
    assert issubclass(attack, RetrainedAttack) == (attack.tier == "oracle")


def test_titles_are_unique() -> None:
    assert len({attack.title for attack in ATTACKS.values()}) == len(ATTACKS)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if issubclass(ATTACKS[name], ThresholdAttack)]
)
def test_a_threshold_attack_scores_each_sample_by_itself_and_members_higher(name: str) -> None:
    attack = ATTACKS[name]
    assert issubclass(attack, ThresholdAttack)
    outputs = model(0, knows=True).unseen
    order = np.random.default_rng(0).permutation(len(outputs))
    mixed = Outputs(outputs.ids[order], outputs.logits[order], outputs.labels[order])
    np.testing.assert_array_equal(attack.score(mixed), attack.score(outputs)[order])
    scored = attack(samples_setting())(sample_model(0, 4.0))
    assert scored.scores[scored.members].mean() > scored.scores[~scored.members].mean()


def test_a_tier_runs_its_own_attacks_in_order() -> None:
    names = ["loss attack", "entropy attack", "runner-up attack", "SVM attack"]
    assert list(model_attacks(samples_setting(), "quick")) == names
    assert list(model_attacks(samples_setting(), "oracle")) == ["LiRA, retrained models"]


def test_an_attack_that_the_samples_cannot_support_is_left_out() -> None:
    few = samples_setting()
    few = type(few)(**{**vars(few), "matched": few.matched[:5]})
    assert "SVM attack" not in model_attacks(few, "quick")
    assert "loss attack" in model_attacks(few, "quick")


def test_the_list_shows_every_attack_of_a_tier_by_its_title() -> None:
    rows = {row.name: row for row in list_attacks()}
    listed = [attack for attack in ATTACKS.values() if attack.tier is not None]
    for attack in listed:
        row = rows[attack.title]
        facts = (row.tier, row.judged, row.about, row.needs, row.paper)
        assert facts == (
            attack.tier,
            attack.decisive,
            attack.description,
            attack.needs,
            attack.paper,
        )
    tiers = [TIERS.index(row.tier) for row in list_attacks()]
    assert tiers == sorted(tiers)
    assert "confidence attack" not in rows


def test_grids_run_the_attacks_that_have_columns() -> None:
    assert {name: tuple(COLUMNS[name]) for name in ATTACKS if name in COLUMNS} == {
        name: attack.columns for name, attack in ATTACKS.items() if attack.columns
    }
    assert grids.Attack("svm", splits=2).settings == {"name": "svm", "splits": 2}
    assert grids.Attack("loss").settings == {"name": "loss"}
    with pytest.raises(BadInput, match="'rmia'"):
        grids.Attack("rmia")
    with pytest.raises(UnknownName, match="Did you mean 'svm'"):
        grids.Attack("svn")


def test_a_package_adds_an_attack_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "duck.audits.attacks.loss:LossAttack"
    point = EntryPoint("outside", place, "duck.attacks")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    attacks: Registry[type[Attack]] = Registry("attack", group="duck.attacks")
    assert issubclass(attacks["outside"], OutputsAttack)
    assert issubclass(attacks["outside"], ModelAttack)
