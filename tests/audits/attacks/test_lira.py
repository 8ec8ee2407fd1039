"""Offline LiRA: the number by hand, a planted leak, nothing where nothing is, and its memory."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from duck.audits.attacks.gaussians import PRIOR
from duck.audits.attacks.lira import offline_lira
from duck.audits.attacks.lira_online import online_lira
from duck.audits.attacks.lira_retrained import RetrainedLiraAttack
from duck.audits.attacks.loss import LossAttack
from duck.audits.outputs import temperature_of
from duck.audits.scores import Margins, Scored, margins
from duck.audits.statistics import roc
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.memorisers import CANDIDATES, KNOWN, NAMES, NEW, SEEN
from tests.audits.witnesses import sample_model, samples_setting


def target(seed: int = 9) -> Scored:
    return memorisers.row(memorisers.halves(2, np.random.default_rng(seed))[0])


def shuffled(scored: Scored, seed: int = 0) -> Scored:
    return Scored(
        scored.ids,
        scored.scores,
        np.random.default_rng(seed).permutation(scored.members),
        scored.models,
    )


def test_by_hand() -> None:
    # Out margins 1, 2, 3, 4: mean 2.5, variance 5/3. The fifth model saw the sample: not counted.
    column = np.array([[1.0], [2.0], [3.0], [4.0], [100.0]])
    models = Margins(np.array(["x"]), column, np.array([[False]] * 4 + [[True]]))
    found = offline_lira(Scored(np.array(["x"]), np.array([5.0]), np.array([True])), models)
    assert found.scores == pytest.approx([2.5 / (5 / 3) ** 0.5])


def test_online_by_hand() -> None:
    # x: out 1 to 4 (mean 2.5), in 5 to 8 (mean 6.5), both with variance 5/3. At 5 the ratio is
    # (2.5² - 1.5²) / 2 / (5/3) = 1.2. y, which no model saw, lies 1 lower and borrows the rest.
    values = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 2.0], [4.0, 3.0]])
    values = np.concatenate([values, [[5.0, 50.0], [6.0, 60.0], [7.0, 70.0], [8.0, 80.0]]])
    members = np.repeat([[False, False], [True, False]], 4, axis=0)
    names = np.array(["x", "y"])
    found = online_lira(
        Scored(names, np.array([5.0, 4.0]), np.array([True, False])),
        Margins(names, values, members),
    )
    assert found.scores == pytest.approx([1.2, 1.2])


def test_a_fixed_variance_by_hand() -> None:
    # Variances 4/3 and 16/3, pooled 10/3; both margins lie 2 above their means 1 and 2.
    names = np.array(["x", "y"])
    values = np.array([[0.0, 0.0], [0.0, 0.0], [2.0, 4.0], [2.0, 4.0]])
    models = Margins(names, values, np.zeros((4, 2), bool))
    asked = Scored(names, np.array([3.0, 4.0]), np.array([True, False]))
    found = offline_lira(asked, models, prior=math.inf)
    assert found.scores == pytest.approx([2 / (10 / 3) ** 0.5] * 2)


def test_retrained_models_by_hand() -> None:
    """σ² = (4 s₀² + (n - 1) s²) / (4 + n - 1), at the temperature of each model."""
    setting = samples_setting()
    outputs, *retrained = (sample_model(seed, 0.0) for seed in range(4))
    found = RetrainedLiraAttack(setting).against(outputs, retrained)
    own, *others = (
        margins(part.logits / temperature_of(side, setting), part.labels)[setting.matched]
        for side in (outputs, *retrained)
        for part in [side.unseen]
    )
    variances = np.var(others, axis=0, ddof=1)
    forget = [
        margins(m.forget.logits / temperature_of(m, setting), m.forget.labels) for m in retrained
    ]
    pooled = np.concatenate([np.var(forget, axis=0, ddof=1)[setting.members], variances]).mean()
    z = (own - np.mean(others, axis=0)) / np.sqrt((4 * pooled + 2 * variances) / 6)
    np.testing.assert_allclose(found.scores[~found.members], z)


def test_retrained_models_show_what_the_original_knows_better_than_its_loss_does() -> None:
    setting = samples_setting()
    retrained = [sample_model(100 + seed, 0.0) for seed in range(6)]
    attack = RetrainedLiraAttack(setting, retrained=retrained)
    known, unknown = sample_model(0, 1.0), sample_model(1, 0.0)
    auc = roc(attack(known)).auc
    assert auc.low > 0.6
    assert auc.value > roc(LossAttack(setting)(known)).auc.value
    assert roc(attack(unknown)).auc.low < 0.5 < roc(attack(unknown)).auc.high


def test_a_retrained_model_is_not_compared_with_itself() -> None:
    retrained = [sample_model(seed, 0.0) for seed in range(4)]
    attack = RetrainedLiraAttack(samples_setting(), retrained=retrained)
    expected = attack.against(retrained[0], retrained[1:]).scores
    np.testing.assert_array_equal(attack(retrained[0]).scores, expected)


def with_and_without() -> Margins:
    """Models with half of the candidates, and models without any."""
    kept, oracles = memorisers.kept(), memorisers.oracles(16)
    values = np.concatenate([kept.values, oracles.values])
    return Margins(kept.ids, values, np.concatenate([kept.members, oracles.members]))


def forgotten_and_unseen(models: Margins, model: int, trained_on: bool) -> Scored:
    """Candidates as members, all of them or those that the model was trained on."""
    row = models.at(np.concatenate([CANDIDATES, NEW])).row(model)
    is_candidate = np.isin(row.ids, CANDIDATES)
    chosen = row.members | ~is_candidate | (not trained_on)
    return Scored(row.ids[chosen], row.scores[chosen], is_candidate[chosen])


def test_online_catches_a_leak_and_leaves_retrained_models_at_chance() -> None:
    models = with_and_without()
    leaks, retrained = memorisers.kept(6, seed=50), memorisers.oracles(6, seed=51)
    for model in range(6):
        found = roc(online_lira(forgotten_and_unseen(leaks, model, True), models))
        assert found.auc.value > 0.99
    aucs = [
        roc(online_lira(forgotten_and_unseen(retrained, model, False), models)).auc.value
        for model in range(6)
    ]
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.04)


def test_online_needs_models_with_and_without_each_sample() -> None:
    models = with_and_without()
    asked = forgotten_and_unseen(memorisers.kept(), 0, True)
    with pytest.raises(BadInput, match=r"left out by only 1 of 3"):
        online_lira(asked, models.models(np.array([0, 1, 2])))
    with pytest.raises(BadInput, match=r"trained on by only 2 of 20"):
        online_lira(asked, models.models(np.append(np.arange(4), np.arange(32, 48))))
    with pytest.raises(BadInput, match=r"none was"):
        online_lira(asked, models.models(np.arange(32, 48)))


def test_it_is_ranked_by_z_which_does_not_saturate() -> None:
    models = Margins(
        np.array(["x", "y"]), np.tile([[0.0], [1.0], [2.0], [3.0]], 2), np.zeros((4, 2), bool)
    )
    found = offline_lira(
        Scored(np.array(["x", "y"]), np.array([1000.0, 2000.0]), np.array([True, True])), models
    )
    assert found.scores[1] > found.scores[0]
    assert stats.norm.cdf(found.scores).tolist() == [1, 1]


def test_a_planted_leak_is_caught() -> None:
    found = roc(offline_lira(target(), memorisers.shadows()))
    assert found.tpr_at(0.01).value >= 10 * 0.01
    assert found.auc.low > 0.9


def test_shuffled_membership_shows_nothing() -> None:
    found = roc(shuffled(offline_lira(target(), memorisers.shadows())))
    assert found.auc.low < 0.5 < found.auc.high


def test_samples_that_no_model_saw_show_nothing() -> None:
    # Both sides unseen by the target: its training half left out half of the known samples.
    judged = target()
    unseen = Scored(judged.ids, judged.scores, np.isin(judged.ids, KNOWN))
    rows = ~judged.members
    among = Scored(unseen.ids[rows], unseen.scores[rows], unseen.members[rows])
    found = roc(offline_lira(among, memorisers.shadows()))
    assert found.auc.low < 0.5 < found.auc.high


def test_samples_that_no_shadow_saw_have_the_noise_of_the_others() -> None:
    # Null margins for all: with 8 shadows instead of 4 the unseen ones would have lighter tails.
    generator = np.random.default_rng(0)
    seen = np.array([np.tile(generator.permutation([True, False]), 4) for _ in range(4000)]).T
    members = np.concatenate([seen, np.zeros((8, 4000), bool)], axis=1)
    ids = np.arange(8000).astype(str)
    shadows = Margins(ids, generator.normal(size=members.shape), members)
    z = offline_lira(
        Scored(ids, generator.normal(size=8000), np.arange(8000) < 4000), shadows
    ).scores
    assert stats.ks_2samp(np.abs(z[:4000]), np.abs(z[4000:])).pvalue > 0.01
    # Four models give s², which counts as much as 3 of 7 degrees of freedom beside the true 1.
    draw = np.random.default_rng(1)
    variance = (4 + draw.chisquare(3, 8000)) / 7
    expected = draw.normal(0, 1.25**0.5, 8000) / variance**0.5
    assert stats.ks_2samp(z[4000:], expected).pvalue > 0.01


def leaking(seed: int, shadows: int) -> tuple[Scored, Margins]:
    """Margins with a mean and a variance of each sample; members lie three deviations higher."""
    draw = np.random.default_rng(seed)
    ids = np.arange(2000).astype(str)
    mean, deviation = draw.normal(0, 3, 2000), draw.uniform(0.7, 1.3, 2000)
    members = np.arange(2000) < 1000
    target = Scored(ids, mean + deviation * draw.normal(3.0 * members), members)
    values = mean + deviation * draw.normal(size=(shadows, 2000))
    return target, Margins(ids, values, np.zeros(values.shape, bool))


@pytest.mark.parametrize("shadows", [4, 6, 8])
def test_few_shadow_models_attack_better_with_a_shrunk_variance(shadows: int) -> None:
    rates = {
        prior: [
            roc(offline_lira(*leaking(seed, shadows), prior=prior)).tpr_at(0.01).value
            for seed in range(6)
        ]
        for prior in (PRIOR, 0.0)
    }
    assert min(np.subtract(rates[PRIOR], rates[0.0])) > 0.05


def test_with_64_shadow_models_the_shrunk_variance_hardly_matters() -> None:
    target, models = leaking(0, 64)
    shrunk, own = (roc(offline_lira(target, models, prior=prior)) for prior in (PRIOR, 0.0))
    assert shrunk.auc.value == pytest.approx(own.auc.value, abs=1e-3)
    assert shrunk.tpr_at(0.01).value == pytest.approx(own.tpr_at(0.01).value, abs=0.02)


def test_the_seed_decides() -> None:
    first, again, other = (
        offline_lira(target(), memorisers.shadows(), seed).scores for seed in (0, 0, 1)
    )
    assert (first == again).all()
    # Samples that a shadow saw change with the pooled variance alone.
    assert first[:SEEN] == pytest.approx(other[:SEEN], rel=0.01)
    assert first[SEEN:] != pytest.approx(other[SEEN:], rel=0.01)


def test_too_few_shadow_models() -> None:
    few = memorisers.shadows().models(np.arange(4))
    with pytest.raises(BadInput, match=r"2 of 4 shadow models.* 8 shadow models"):
        offline_lira(target(), few)


def test_a_sample_that_the_shadows_were_not_asked_about() -> None:
    with pytest.raises(BadInput, match=r"400 of 640 .* 240,.* 't0'"):
        offline_lira(target(), memorisers.shadows().at(KNOWN))
    assert len(offline_lira(target(), memorisers.shadows().at(NAMES[::-1])).ids) == len(
        KNOWN
    ) + len(NEW)


MEASURED = """
import resource, sys
import numpy as np
from duck.audits.scores import Margins, Scored, margins
from duck.audits.attacks.lira import offline_lira
from duck.audits.statistics import roc

MODELS, SAMPLES, CLASSES = 128, 10_000, 100
generator = np.random.default_rng(0)
noise = generator.normal(size=(SAMPLES, CLASSES)).astype(np.float16)
ids, labels = np.arange(SAMPLES).astype(str), np.arange(SAMPLES) % CLASSES

def model(number):
    scores = margins(np.roll(noise, 7 * number, axis=0), labels).astype(np.float32)
    return Scored(ids, scores, (np.arange(SAMPLES) + number) % 2 == 0)

models = [model(number) for number in range(MODELS)]
members = np.stack([one.members for one in models])
shadows = Margins(ids, np.stack([one.scores for one in models]), members)
print(roc(offline_lira(model(MODELS), shadows)).auc.value)
unit = 1 if sys.platform == "darwin" else 2**10
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit / 2**10)
"""


@pytest.mark.slow
def test_the_attack_over_128_models_10000_samples_and_100_classes_stays_under_two_gib() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True, timeout=120
    )
    auc, gib = map(float, done.stdout.split())
    assert 0.4 < auc < 0.6
    assert gib < 2
