"""Offline LiRA: the number by hand, a planted leak, nothing where nothing is, and its memory."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from duck.audits.attacks.lira import offline_lira, probability
from duck.audits.roc import roc
from duck.audits.scores import Margins, Scored
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.memorisers import KNOWN, NAMES, NEW, SEEN


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
    assert probability(found.scores) == pytest.approx(stats.norm.cdf(2.5 / (5 / 3) ** 0.5))


def test_it_is_ranked_by_z_which_does_not_saturate() -> None:
    models = Margins(
        np.array(["x", "y"]), np.tile([[0.0], [1.0], [2.0], [3.0]], 2), np.zeros((4, 2), bool)
    )
    found = offline_lira(
        Scored(np.array(["x", "y"]), np.array([1000.0, 2000.0]), np.array([True, True])), models
    )
    assert found.scores[1] > found.scores[0]
    assert probability(found.scores).tolist() == [1, 1]


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
    # t with 3 degrees of freedom, as four models give it.
    assert stats.kstest(z[4000:] / 1.25**0.5, stats.t(3).cdf).pvalue > 0.01


def test_the_seed_decides() -> None:
    first, again, other = (
        offline_lira(target(), memorisers.shadows(), seed).scores for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first[:SEEN] == other[:SEEN]).all()
    assert (first[SEEN:] != other[SEEN:]).any()


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
from duck.audits.scores import Margins, Outputs
from duck.audits.attacks.lira import offline_lira
from duck.audits.roc import roc

MODELS, SAMPLES, CLASSES = 128, 10_000, 100
generator = np.random.default_rng(0)
noise = generator.normal(size=(SAMPLES, CLASSES)).astype(np.float16)
ids, labels = np.arange(SAMPLES).astype(str), np.arange(SAMPLES) % CLASSES

def model(number):
    outputs = Outputs(ids, np.roll(noise, 7 * number, axis=0), labels)
    return outputs.scored((np.arange(SAMPLES) + number) % 2 == 0)

shadows = Margins.stack(model(number) for number in range(MODELS))
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
