"""The ROC curve against scikit-learn, and the coverage of the intervals."""

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, roc_auc_score, roc_curve

from duck.audits.scores import Scored
from duck.audits.statistics import Roc, least_others, roc
from duck.errors import BadInput


def scored(scores: object, members: object) -> Scored:
    numbers = np.asarray(scores, float)
    return Scored(np.arange(len(numbers)).astype(str), numbers, np.asarray(members, bool))


def drawn(seed: int, shift: float, sizes: tuple[int, int] = (150, 250), digits: int = 6) -> Scored:
    generator = np.random.default_rng(seed)
    scores = np.concatenate(
        [generator.normal(shift, 1, sizes[0]), generator.normal(size=sizes[1])]
    ).round(digits)
    return scored(scores, np.repeat([True, False], sizes))


def test_by_hand() -> None:
    # Members 4, 2, 2; others 3, 2, 1: of nine pairs 3 + 1.5 + 1.5 are right.
    found = roc(scored([4, 2, 2, 3, 2, 1], [1, 1, 1, 0, 0, 0]))
    assert found.auc.value == pytest.approx(6 / 9)
    assert found.fpr.tolist() == [0, 0, 1 / 3, 2 / 3, 1]
    assert found.tpr.tolist() == [0, 1 / 3, 1 / 3, 1, 1]
    assert found.f1 == pytest.approx(6 / 8)  # three members found, two false positives, none missed
    assert found.tpr_at(0.34).value == pytest.approx(1 / 3)
    assert found.tpr_at(1).value == 1


@pytest.mark.parametrize("digits", [6, 0])
def test_curve_and_area_are_scikit_learns(digits: int) -> None:
    some = drawn(0, 0.7, digits=digits)
    found = roc(some)
    assert found.auc.value == pytest.approx(roc_auc_score(some.members, some.scores), abs=1e-12)
    fpr, tpr, thresholds = roc_curve(some.members, some.scores, drop_intermediate=False)
    assert found.fpr == pytest.approx(fpr)
    assert found.tpr == pytest.approx(tpr)
    assert found.f1 == pytest.approx(
        max(f1_score(some.members, some.scores >= threshold) for threshold in thresholds)
    )


def test_hits_at_a_rate_of_false_alarms() -> None:
    # Others at 0..199: 1 % of 201 ranks is 2.01. Members at 1.5, 5.5, ..., 397.5: 50 lie above
    # 198, the second, and 51 above 197.
    found = roc(scored([*np.arange(100) * 4 + 1.5, *range(200)], [1] * 100 + [0] * 200))
    at = found.tpr_at(0.01)
    assert at.value == pytest.approx(0.99 * 0.50 + 0.01 * 0.51)
    # The FPR at the j-th highest is Beta(j, 201 - j). It is below 1 % with 86.6 % for j = 1, too
    # little: no lower bound. It is above 1 % with 98.4 % for j = 6, too little, with 99.6 % for 7.
    # 52 members lie above 193, the seventh.
    assert (at.low, at.high) == pytest.approx((0, stats.beta.ppf(0.9875, 53, 48)))
    assert at.n == 100


def test_both_ends_of_the_interval_of_a_rate_by_hand() -> None:
    # Of 500 non-members the highest has an FPR below 1 % with 99.3 %; the twelfth is the first
    # to have one above it with 98.75 %. 50 members lie above 499 and 51 above 488.
    found = roc(scored([*np.arange(100) * 10 - 0.5, *range(500)], [1] * 100 + [0] * 500))
    at = found.tpr_at(0.01)
    assert stats.binom.sf(11, 500, 0.01) < 0.0125 < stats.binom.sf(10, 500, 0.01)
    expected = (stats.beta.ppf(0.0125, 50, 51), stats.beta.ppf(0.9875, 52, 49))
    assert (at.low, at.high) == pytest.approx(expected)


@pytest.mark.parametrize(("shift", "others"), [(0.0, 100), (2.0, 100), (2.0, 500)])
def test_the_interval_of_a_rate_holds_the_truth(shift: float, others: int) -> None:
    """A threshold set by few non-members varies more than the members above it."""
    truth = float(stats.norm.sf(stats.norm.ppf(0.99) - shift))
    draws = [roc(drawn(seed, shift, (500, others))).tpr_at(0.01) for seed in range(300)]
    assert sum(rate.low <= truth <= rate.high for rate in draws) >= 285


def test_the_threshold_counts_ids_not_rows() -> None:
    """Ten rows of each non-member are no ten non-members."""
    names = np.array([*(f"m{at}" for at in range(100)), *(f"o{at // 10}" for at in range(2000))])
    scores = np.array([*np.linspace(0, 2, 100), *np.linspace(0, 1, 2000)])
    is_member = np.arange(2100) < 100
    rows = roc(Scored(names, scores, is_member)).tpr_at(0.01)
    assert roc(scored(scores, is_member)).tpr_at(0.01).low > rows.low == 0


def test_scores_that_are_all_equal_say_nothing_about_a_rate() -> None:
    at = roc(scored(np.ones(400), np.arange(400) < 200)).tpr_at(0.01)
    assert (at.low, at.high) == (0, 1)


@pytest.mark.parametrize(
    ("others", "rate"),
    [
        (100, 0.01),
        (150, 0.01),
        (199, 0.01),
        pytest.param(1000, 0.001, marks=pytest.mark.slow),
        (40, 0.05),
    ],
)
def test_a_random_attack_has_equal_true_and_false_positive_rates(others: int, rate: float) -> None:
    rates = [roc(drawn(seed, 0.0, (200, others))).tpr_at(rate).value for seed in range(1500)]
    error = np.std(rates) / len(rates) ** 0.5
    assert error < rate / 10
    assert abs(np.mean(rates) - rate) < 3 * error


def test_every_member_is_called_where_every_non_member_may_be() -> None:
    assert roc(drawn(0, -3.0)).tpr_at(1).value == 1


def test_delong_by_hand() -> None:
    # Shares of others below each member 1, 1/2; of members above each other 1, 1/2:
    # variances 1/8 each, over 2 and 2.
    found = roc(scored([3, 1.5, 1, 2], [1, 1, 0, 0]))
    assert found.auc.value == 0.75
    assert found.auc.high == 1
    assert found.auc.low == pytest.approx(0.75 - 1.959964 * (1 / 8) ** 0.5)


def covered(truth: float, draws: list[Scored]) -> int:
    return sum(found.auc.low <= truth <= found.auc.high for found in map(roc, draws))


def test_the_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    truth = stats.norm.cdf(0.7 / 2**0.5)
    assert 365 <= covered(truth, [drawn(seed, 0.7) for seed in range(400)]) <= 394
    assert 365 <= covered(0.5, [drawn(seed, 0.0) for seed in range(400)]) <= 394


def pairs(seed: int, ids: int = 60, models: int = 16) -> Scored:
    """Rows of many models on the same samples, with an offset for each sample and each model."""
    generator = np.random.default_rng(seed)
    values = (
        generator.normal(size=(models, 1))
        + generator.normal(size=(1, ids))
        + generator.normal(size=(models, ids))
    )
    names = np.tile(np.arange(ids).astype(str), models)
    members = np.tile(np.arange(ids) % 2 == 0, models)
    return Scored(names, values.ravel(), members, np.repeat(np.arange(models), ids))


def test_rows_of_one_sample_are_not_taken_for_independent() -> None:
    draws = [pairs(seed) for seed in range(200)]
    assert covered(0.5, draws) >= 180
    alone = [Scored(np.arange(len(one.ids)).astype(str), one.scores, one.members) for one in draws]
    assert covered(0.5, alone) < 120
    assert roc(draws[0]).tpr_at(0.01).n == 30


def side_by_model(seed: int) -> Scored:
    """Half of the models are members on every sample: what is common to a model counts."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(20, 1)) + generator.normal(size=(20, 50))
    return Scored(
        np.tile(np.arange(50).astype(str), 20),
        values.ravel(),
        np.repeat(np.arange(20) < 10, 50),
        np.repeat(np.arange(20), 50),
    )


def test_rows_of_one_model_are_not_taken_for_independent() -> None:
    draws = [side_by_model(seed) for seed in range(200)]
    assert covered(0.5, draws) >= 172
    by_id = [Scored(one.ids, one.scores, one.members) for one in draws]
    assert covered(0.5, by_id) < 100


def test_complete_separation_is_not_certainty() -> None:
    found = roc(scored([3, 4, 5, 1, 2], [1, 1, 1, 0, 0]))
    assert found.auc == pytest.approx((1.0, 0.025**0.5, 1.0, 5))
    assert roc(scored([1, 1, 1, 1], [1, 1, 0, 0])).auc.value == 0.5


def test_complete_separation_counts_samples_not_rows() -> None:
    """Two members and two others, each judged in a hundred models."""
    ids, members = np.tile(["a", "b", "c", "d"], 100), np.tile([True, True, False, False], 100)
    found = roc(Scored(ids, members.astype(np.float64), members, np.repeat(np.arange(100), 4)))
    assert found.auc == pytest.approx((1.0, 0.025**0.5, 1.0, 400))


def test_nearly_complete_separation_is_not_surer_than_complete() -> None:
    """One row of ten thousand is out of place: 50 samples a side, each judged in 100 models."""
    ids, members = np.tile(np.arange(100).astype(str), 100), np.tile(np.arange(100) < 50, 100)
    scores = members.astype(np.float64)
    models = np.repeat(np.arange(100), 100)
    complete = roc(Scored(ids, scores, members, models)).auc
    scores[0] = 0.5 - 1
    nearly = roc(Scored(ids, scores, members, models)).auc
    assert nearly.value < complete.value
    assert nearly.low <= complete.low < 0.95


def test_scores_that_are_all_equal_have_a_width() -> None:
    found = roc(scored([1, 1, 1, 1], [1, 1, 0, 0])).auc
    assert found.low < 0.5 < found.high


def test_infinite_scores_are_ranked() -> None:
    assert roc(scored([np.inf, 1, 0, -np.inf], [1, 1, 0, 0])).auc.value == 1
    assert roc(scored([np.inf, np.inf, np.inf, -np.inf], [1, 1, 0, 0])).auc.value == 0.75


def test_as_data() -> None:
    found = roc(drawn(3, 1.0, (3000, 5000)))
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["auc"]["value"] == found.auc.value
    assert plain["tpr_at"]["0.001"]["value"] == found.tpr_at(0.001).value
    assert (plain["fpr"][0], plain["tpr"][0], plain["fpr"][-1], plain["tpr"][-1]) == (
        0,
        plain["tpr"][0],
        1,
        1,
    )
    assert 100 < len(plain["fpr"]) == len(plain["tpr"]) <= 200
    assert np.interp(0.01, plain["fpr"], plain["tpr"]) == pytest.approx(
        found.tpr_at(0.01).value, abs=0.01
    )
    few = roc(drawn(3, 1.0)).to_dict()
    assert few["tpr_at"]["0.01"]["n"] == 150
    assert few["tpr_at"]["0.001"] is None


def test_too_few_for_the_asked_rate() -> None:
    found: Roc = roc(drawn(0, 1.0))
    with pytest.raises(BadInput, match=r"0.1 % .* 1000 non-members.* 250"):
        found.tpr_at(0.001)
    assert (least_others(0.01), least_others(0.001), least_others(0.3)) == (100, 1000, 4)


@pytest.mark.parametrize("members", [[1, 1, 1], [0, 0, 0], [1, 0, 0]])
def test_one_side_is_missing(members: list[int]) -> None:
    with pytest.raises(BadInput, match="holdout is not empty"):
        roc(scored([1, 2, 3], members))
