"""What a sample adds to the confidence in it, and what unlearning does to the samples that stay."""

import numpy as np
import pytest
from scipy.special import expit, logit

from duck.audits.pool_measures import leakage, memorisation
from duck.audits.scores import Margins, Scored
from duck.audits.statistics import roc
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.memorisers import CANDIDATES, KNOWN, NEW, SEEN


def test_memorisation_by_hand() -> None:
    # With 0.9 and 0.7, without 0.3 and 0.5: 0.8 - 0.4.
    models = Margins(
        np.array(["x"]),
        logit([[0.9], [0.7], [0.3], [0.5]]),
        np.array([[True], [True], [False], [False]]),
    )
    assert memorisation(models) == pytest.approx([0.4])


def test_models_that_memorise() -> None:
    shadows = memorisers.shadows()
    found = memorisation(shadows.at(KNOWN))
    p = expit(shadows.at(KNOWN).values.astype(np.float64))
    first = p[shadows.members[:, 0], 0].mean() - p[~shadows.members[:, 0], 0].mean()
    assert found[0] == pytest.approx(first)
    assert found.mean() > 0.3
    clean = memorisation(memorisers.forgot().at(CANDIDATES))
    assert abs(clean.mean()) < 0.05


def test_memorisation_needs_both_sides() -> None:
    with pytest.raises(BadInput, match=r"2 models .* were trained .* 0"):
        memorisation(memorisers.shadows())
    with pytest.raises(BadInput, match=r"were not trained .* 0"):
        memorisation(
            memorisers.oracles()
            .at(KNOWN[-3:])
            .models(np.flatnonzero(memorisers.oracles().members[:, SEEN - 3 : SEEN].all(1)))
        )


def test_leakage_is_the_mean_area_under_the_curves_of_margins() -> None:
    models = memorisers.oracles()
    rows = np.isin(models.ids, np.concatenate([KNOWN[-60:], NEW]))
    members = np.isin(models.ids[rows], KNOWN[-60:])
    aucs = [
        roc(Scored(models.ids[rows], values[rows], members)).auc.value for values in models.values
    ]
    found = leakage(models, KNOWN[-60:], NEW)
    assert found.value == pytest.approx(np.mean(aucs))
    assert found.n == len(models)


def test_the_interval_of_leakage_has_the_noise_of_the_samples() -> None:
    """Many models make the mean exact for these samples; others would have given another one."""
    models = memorisers.oracles()
    curve = roc(Scored(models.ids, models.values[0], np.isin(models.ids, KNOWN))).auc
    found = leakage(models.models(np.zeros(50, np.intp)), KNOWN, NEW)
    assert found.high - found.low == pytest.approx(curve.high - curve.low)


def test_leakage_of_retained_samples() -> None:
    models = memorisers.oracles()
    before = leakage(models, KNOWN[-60:], NEW)
    assert before.value > 0.6
    raised = models.values + np.where(np.isin(models.ids, KNOWN[-60:]), 1.0, 0.0)
    after = leakage(Margins(models.ids, raised, models.members), KNOWN[-60:], NEW)
    assert after.value > before.value + 0.01
