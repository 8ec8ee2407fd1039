"""What a sample adds to the confidence in it, and what unlearning does to the samples that stay."""

import numpy as np
import pytest
from scipy.special import expit, logit

from duck.audits.memorisation import exposure, memorisation, retained_leakage
from duck.audits.roc import roc
from duck.audits.scores import Margins
from duck.errors import BadInput
from tests.audits import memorisers
from tests.audits.memorisers import CANDIDATES, KNOWN, NEW, SEEN


def test_memorisation_by_hand() -> None:
    # With 0.9 and 0.7, without 0.3 and 0.5: 0.8 - 0.4; each mean has an error of 0.1.
    models = Margins(
        np.array(["x"]),
        logit([[0.9], [0.7], [0.3], [0.5]]),
        np.array([[True], [True], [False], [False]]),
    )
    found = memorisation(models)
    assert found.values == pytest.approx([0.4])
    assert found.errors == pytest.approx([0.02**0.5])


def test_models_that_memorise() -> None:
    shadows = memorisers.shadows()
    found = memorisation(shadows.at(KNOWN))
    p = expit(shadows.at(KNOWN).values.astype(np.float64))
    first = p[shadows.members[:, 0], 0].mean() - p[~shadows.members[:, 0], 0].mean()
    assert found.values[0] == pytest.approx(first)
    assert found.values.mean() > 0.3
    clean = memorisation(memorisers.forgot().at(CANDIDATES))
    assert abs(clean.values.mean()) < 0.05


def test_memorisation_needs_both_sides() -> None:
    with pytest.raises(BadInput, match=r"2 models .* were trained .* 0"):
        memorisation(memorisers.shadows())
    with pytest.raises(BadInput, match=r"were not trained .* 0"):
        memorisation(
            memorisers.oracles()
            .at(KNOWN[-3:])
            .models(np.flatnonzero(memorisers.oracles().members[:, SEEN - 3 : SEEN].all(1)))
        )


def test_exposure_is_the_area_under_the_curve_of_margins() -> None:
    models = memorisers.oracles()
    rows = np.isin(models.ids, np.concatenate([KNOWN[-60:], NEW]))
    only = models.row(4)
    members = np.isin(only.ids, KNOWN[-60:])
    picked = type(only)(only.ids[rows], only.scores[rows], members[rows])
    assert exposure(models, KNOWN[-60:], NEW)[4] == pytest.approx(roc(picked).auc.value)


def test_leakage_of_retained_samples() -> None:
    before, after = memorisers.oracles(), memorisers.oracles()
    same = retained_leakage(before, after, KNOWN[-60:], NEW)
    assert (same.change.value, same.change.low, same.change.high) == (0, 0, 0)
    assert same.before.low > 0.6
    raised = after.values + np.where(np.isin(after.ids, KNOWN[-60:]), 1.0, 0.0)
    more = retained_leakage(before, Margins(after.ids, raised, after.members), KNOWN[-60:], NEW)
    assert more.change.low > 0
    assert more.after.value - more.before.value == pytest.approx(more.change.value)
    assert more.change.n == len(before)


def test_leakage_needs_pairs_and_unseen_samples() -> None:
    models = memorisers.oracles()
    with pytest.raises(BadInput, match="32 models before unlearning and 2 after"):
        retained_leakage(models, models.models(np.arange(2)), KNOWN[-60:], NEW)
    with pytest.raises(BadInput, match="holdout is empty"):
        retained_leakage(models, models, KNOWN[-60:], NEW[:0])
