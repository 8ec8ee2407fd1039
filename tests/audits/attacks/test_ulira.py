"""U-LiRA: the ratio by hand, both games, and the judged model left out."""

import numpy as np
import pytest
from scipy import stats

from duck.audits.attacks.gaussians import PRIOR, fit
from duck.audits.attacks.ulira import (
    add_fit_error,
    against_not_requested,
    against_oracles,
    excess_over_unseen,
)
from duck.audits.scores import Flags, Margins, Scored
from duck.audits.statistics import SampleEstimate, roc
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.attacks.test_lira import shuffled
from tests.audits.memorisers import CANDIDATES


def leak() -> Scored:
    return against_oracles(memorisers.kept().at(CANDIDATES), memorisers.oracles())


def test_shrinkage_by_hand() -> None:
    # Variances 1 and 4 of three entries each, pooled 2.5. With ν₀ = 2: (2·2.5 + 2·1) / 4.
    found = fit(
        np.array([[1.0, 0.0], [2.0, 2.0], [3.0, 4.0], [99.0, 99.0]]),
        np.array([[True, True]] * 3 + [[False, False]]),
        2.0,
    )
    assert found.mean.tolist() == [2, 2]
    assert found.variance.tolist() == [1.75, 3.25]
    assert fit(
        np.array([[1.0], [2.0], [3.0]]), np.ones((3, 1), bool), 2.0
    ).variance == pytest.approx([1.0])


def test_the_ratio_of_one_pair_by_hand() -> None:
    generator = np.random.default_rng(0)
    ours, theirs = generator.normal(1, 1, (6, 1)), generator.normal(0, 2, (7, 1))
    name = np.array(["x"])
    found = against_oracles(
        Margins(name, ours, np.ones((6, 1), bool)), Margins(name, theirs, np.zeros((7, 1), bool))
    )
    assert found.members.tolist() == [True] * 6 + [False] * 7
    assert found.models is not None
    assert found.models.tolist() == list(range(13))
    # One sample: the pooled variance is its own. A model of the other side is left out as well.
    u, o = (
        stats.norm(ours[1:].mean(), ours[1:].std(ddof=1)),
        stats.norm(theirs[1:].mean(), theirs[1:].std(ddof=1)),
    )
    assert found.scores[0] == pytest.approx(float((u.logpdf(ours[0]) - o.logpdf(ours[0]))[0]))
    u, o = (
        stats.norm(ours[1:].mean(), ours[1:].std(ddof=1)),
        stats.norm(theirs[:-1].mean(), theirs[:-1].std(ddof=1)),
    )
    assert found.scores[-1] == pytest.approx(
        float((u.logpdf(theirs[-1]) - o.logpdf(theirs[-1]))[0])
    )


def without_one(chosen: Flags, model: int) -> Flags:
    """Leave out the first chosen model from this one on, sample by sample."""
    rest = chosen.copy()
    for column in range(chosen.shape[1]):
        left_out = model
        while not chosen[left_out, column]:
            left_out = (left_out + 1) % len(chosen)
        rest[left_out, column] = False
    return rest


def test_without_a_leak_few_models_give_chance() -> None:
    """With only the judged model left out, the AUC would be 0.488 here."""
    generator = np.random.default_rng(0)
    values = generator.normal(generator.normal(0, 3, 4000), 1, (12, 4000))
    members = generator.permuted(np.tile([[True], [False]], (6, 4000)), axis=0)
    ids = np.arange(4000).astype(str)
    auc = roc(against_not_requested(Margins(ids, values, members))).auc
    assert auc.value == pytest.approx(0.5, abs=0.005)
    ours, theirs = np.ones((6, 4000), bool), np.zeros((6, 4000), bool)
    auc = roc(against_oracles(Margins(ids, values[:6], ours), Margins(ids, values[6:], theirs))).auc
    assert auc.value == pytest.approx(0.5, abs=0.005)


def test_both_fits_leave_the_judged_model_out() -> None:
    made = memorisers.kept().at(CANDIDATES)
    found = against_not_requested(made)
    changed = made.values.copy()
    changed[3] = changed[3] * 0 + 50  # a model's own margins move its own scores alone
    other = against_not_requested(Margins(made.ids, changed, made.members))
    assert found.models is not None
    mine = found.models == 3
    values = made.values[3].astype(np.float64)
    asked, rest = (
        fit(made.values, without_one(side, 3), PRIOR) for side in (made.members, ~made.members)
    )
    expected = dict(
        zip(made.ids.tolist(), asked.log_density(values) - rest.log_density(values), strict=True)
    )
    assert found.scores[mine] == pytest.approx(
        [expected[name] for name in found.ids[mine].tolist()]
    )
    moved = asked.log_density(np.full(len(values), 50.0)) - rest.log_density(
        np.full(len(values), 50.0)
    )
    by_id = dict(zip(made.ids.tolist(), moved, strict=True))
    assert other.scores[mine] == pytest.approx([by_id[name] for name in other.ids[mine].tolist()])
    assert (
        found.members
        == np.concatenate([[side] * 60 for _ in range(len(made)) for side in (True, False)])
    ).all()


def test_a_planted_leak_is_caught_in_both_games() -> None:
    for scored in (leak(), against_not_requested(memorisers.kept().at(CANDIDATES))):
        found = roc(scored)
        assert found.tpr_at(0.01).value >= 10 * 0.01
        assert found.auc.low > 0.9


def test_it_is_two_sided() -> None:
    kept = memorisers.kept().at(CANDIDATES)
    oracles = memorisers.oracles().at(CANDIDATES)
    pushed = Margins(
        kept.ids, oracles.values - 5, kept.members
    )  # as far below as a leak would be above
    assert roc(against_oracles(pushed, oracles)).auc.low > 0.8


def test_a_perfectly_unlearned_sample_shows_nothing() -> None:
    forgot = memorisers.forgot().at(CANDIDATES)
    for scored in (
        against_oracles(forgot, memorisers.oracles()),
        against_not_requested(forgot),
        shuffled(leak()),
    ):
        found = roc(scored)
        assert found.auc.low < 0.5 < found.auc.high


def test_the_interval_of_a_jackknife_by_hand() -> None:
    """An attack whose AUC is the share of pairs in which the first is higher, to be counted."""

    def higher(ours: Margins, theirs: Margins) -> Scored:
        values = np.concatenate([ours.values[:, 0], theirs.values[:, 0]])
        return Scored(
            np.arange(len(values)).astype(str),
            values,
            np.repeat([True, False], [len(ours), len(theirs)]),
        )

    name = np.array(["x"])
    ours = Margins(name, np.array([[1.0], [3.0], [5.0]]), np.ones((3, 1), bool))
    theirs = Margins(name, np.array([[0.0], [2.0], [4.0]]), np.zeros((3, 1), bool))
    # 6 of 9 pairs. Without one of the first 5, 4, 3 of 6, of the second 3, 4, 5 of 6:
    # (k - 1)·var = 2·(2/3)/36, twice.
    found = add_fit_error(SampleEstimate(6 / 9, 0.6, 0.7, 6), higher, ours, theirs)
    half = 1.959964 * (2 * 2 * (2 / 3) / 36) ** 0.5
    assert found == pytest.approx((6 / 9, 6 / 9 - half, 1.0, 6), abs=1e-6)
    assert half > 1 / 3
    assert add_fit_error(SampleEstimate(6 / 9, 0.1, 1.0, 6), higher, ours, theirs).low == 0.1


def test_the_interval_covers_what_other_models_would_have_shown() -> None:
    """Equal models, dealt out again to both sides; each interval must hold 0.5, nearly always."""
    models = memorisers.oracles(48).at(CANDIDATES[:40])
    generator, held = np.random.default_rng(0), 0
    for _ in range(20):
        order = generator.permutation(48)
        dealt = (order[:32], True), (order[32:], False)
        ours, theirs = (
            Margins(models.ids, models.values[rows], np.full((len(rows), 40), known))
            for rows, known in dealt
        )
        auc = roc(against_oracles(ours, theirs)).auc
        wide = add_fit_error(auc, against_oracles, ours, theirs)
        assert wide.low <= auc.low
        assert wide.high >= auc.high
        held += wide.low < 0.5 < wide.high
    assert held >= 18


FORGOTTEN = np.array([f"f{number}" for number in range(60)])
UNSEEN = np.array([f"u{number}" for number in range(60)])


def shifted(
    seed: int, of_forgotten: float, of_unseen: float, models: int = 24
) -> tuple[Margins, Margins]:
    """Return unlearned models, shifted so far on each side, and oracles; half had a sample."""
    draw = np.random.default_rng(seed)
    ids = np.concatenate([FORGOTTEN, UNSEEN])
    mean, deviation = draw.normal(0, 3, 120), draw.uniform(0.5, 2, 120)
    shift = np.repeat([of_forgotten, of_unseen], 60)
    values = mean + deviation * (draw.normal(size=(models, 120)) + shift)
    references = mean + deviation * draw.normal(size=(models // 2, 120))
    half = [draw.permutation(np.arange(models) < models // 2) for _ in FORGOTTEN]
    members = np.concatenate([np.transpose(half), np.zeros((models, 60), bool)], axis=1)
    return (
        Margins(ids, values, members),
        Margins(ids, references, np.zeros(references.shape, bool)),
    )


def test_a_shift_of_all_samples_is_no_memory() -> None:
    """Another recipe: U-LiRA finds the models, on unseen samples too."""
    unlearned, oracles = shifted(0, 1.5, 1.5)
    assert roc(against_oracles(unlearned.at(FORGOTTEN), oracles)).auc.low > 0.75
    estimates = [excess_over_unseen(*shifted(seed, 1.5, 1.5), UNSEEN) for seed in range(12)]
    values = [estimate.value for estimate in estimates]
    assert abs(np.mean(values)) < 3 * np.std(values) / 12**0.5 < 0.03
    assert sum(estimate.low < 0 < estimate.high for estimate in estimates) >= 11


def test_a_shift_of_the_forgotten_samples_alone_is_memory() -> None:
    for seed in range(3):
        alone = excess_over_unseen(*shifted(seed, 1.5, 0.0), UNSEEN)
        beyond = excess_over_unseen(*shifted(seed, 2.0, 0.8), UNSEEN)
        assert alone.low > 0.2
        assert beyond.low > 0.1
        assert alone.n == 120


def test_the_interval_of_the_excess_holds_the_choice_of_samples() -> None:
    """A recipe moves some samples far and others not at all; few of them were drawn."""
    draw, held = np.random.default_rng(0), 0
    ids = np.arange(12).astype(str)
    for _ in range(20):
        values = draw.normal(size=(24, 12)) + np.where(draw.random(12) < 0.5, 2.0, 0.0)
        members = np.repeat(np.arange(24) % 2 == 0, 12).reshape(24, 12)
        members[:, 6:] = False
        references = draw.normal(size=(24, 12))
        oracles = Margins(ids, references, np.zeros((24, 12), bool))
        found = excess_over_unseen(Margins(ids, values, members), oracles, ids[6:])
        held += found.low < 0 < found.high
    assert held >= 18


def test_the_excess_is_the_difference_of_two_areas() -> None:
    """Had all models been scored on unseen samples, that area would be the larger by itself."""
    unlearned, oracles = shifted(0, 1.5, 0.5)
    on_unseen = Margins(UNSEEN, unlearned.at(UNSEEN).values, unlearned.at(FORGOTTEN).members)
    areas = [
        roc(against_oracles(part, oracles)).auc.value
        for part in (unlearned.at(FORGOTTEN), on_unseen)
    ]
    found = excess_over_unseen(unlearned, oracles, UNSEEN)
    assert found.value == pytest.approx(areas[0] - areas[1])


def test_columns_are_joined_by_id() -> None:
    turned = memorisers.oracles().at(CANDIDATES[::-1])
    assert against_oracles(memorisers.kept().at(CANDIDATES), turned).scores == pytest.approx(
        leak().scores
    )


def test_too_few_models() -> None:
    kept, oracles = memorisers.kept().at(CANDIDATES), memorisers.oracles()
    with pytest.raises(BadInput, match=r"only 2 models .*unlearned.* 5"):
        against_oracles(kept.models(np.arange(4)), oracles)
    with pytest.raises(BadInput, match=r"only 4 models .*never.* 5"):
        against_oracles(kept, oracles.models(np.arange(4)))
    with pytest.raises(BadInput, match=r"only 0 models .*not asked"):
        against_not_requested(Margins(kept.ids, kept.values, np.ones(kept.values.shape, bool)))
