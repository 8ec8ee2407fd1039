"""The paper's SVM: settings and chance levels; it finds a planted leak and nothing else."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import mannwhitneyu
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

from duck.audits.attacks import svm
from duck.audits.attacks.svm import quick_svm, svm_attack
from duck.audits.scores import Outputs
from duck.audits.statistics import roc
from duck.errors import BadInput
from duck.runtime import seeded
from tests.audits.attacks.test_lira import shuffled
from tests.audits.memorisers import SEEN, trained


def outputs(seed: int, count: int, sharpness: float, name: str = "s") -> Outputs:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(count, 4))
    logits[:, 0] += sharpness
    return Outputs(
        np.array([f"{name}{number}" for number in range(count)]), logits, np.zeros(count, int)
    )


def memorised() -> tuple[Outputs, Outputs]:
    """Of one model: what it was trained on, and what it never saw."""
    model = trained(np.arange(SEEN), features=2000)
    forgotten, unseen = (
        Outputs(model.ids[rows], model.logits[rows], model.labels[rows])
        for rows in (slice(SEEN), slice(SEEN, None))
    )
    return forgotten, unseen


def test_the_papers_settings() -> None:
    assert (svm.C, svm.GAMMA, svm.FOLDS, svm.SPLITS, svm.TEST_SHARE, svm.RATIO) == (
        (1, 5, 10, 100), (1, 0.1, 0.01), 3, 5, 0.2, {"class": 3, "samples": 1},
    )  # fmt: skip


def test_a_removed_class_has_three_to_one_and_samples_one_to_one() -> None:
    forgotten, unseen = outputs(0, 200, 1), outputs(1, 40, 1, "t")
    by_class = svm_attack(forgotten, unseen, "class", splits=1)
    assert (by_class.forgotten, by_class.unseen, by_class.chance) == (120, 40, 0.75)
    by_samples = svm_attack(forgotten, unseen, "samples", splits=1)
    assert (by_samples.forgotten, by_samples.unseen, by_samples.chance) == (40, 40, 0.5)
    few = svm_attack(outputs(0, 60, 1), outputs(1, 400, 1, "t"), "class", splits=1)
    assert (few.forgotten, few.unseen, few.chance) == (60, 20, 0.75)


def test_each_split_is_searched_and_judged_on_what_it_did_not_see() -> None:
    forgotten, unseen = outputs(0, 100, 6), outputs(1, 100, 0, "t")
    found = svm_attack(forgotten, unseen, "samples", seed=3)
    assert len(found.f1) == len(found.settings) == 5
    assert len(set(found.f1)) > 1
    assert {c for c, _ in found.settings} <= set(map(float, svm.C))
    assert found.mean == pytest.approx(np.mean(found.f1))
    assert all(round(f1 * 40, 6).is_integer() for f1 in found.f1)
    assert found.mean > 0.9
    assert svm_attack(forgotten, unseen, "samples", seed=3) == found


@pytest.mark.parametrize(("kind", "count"), [("samples", 130), ("class", 390)])
def test_it_finds_what_scikit_learns_search_over_both_settings_finds(
    kind: Literal["class", "samples"], count: int
) -> None:
    """Redone plainly: softmax outputs, an RBF kernel, one grid of C and gamma."""
    forgotten, unseen = outputs(0, 500, 3), outputs(1, 130, 1, "t")
    found = svm_attack(forgotten, unseen, kind, seed=5, splits=3)
    generator = seeded(5, "svm")
    # Each split draws again from the many forgotten samples.
    drawn = [
        [torch.randperm(len(side), generator=generator).numpy() for side in (forgotten, unseen)]
        for _ in range(3)
    ]
    assert len({tuple(sorted(some[:count])) for some, _ in drawn}) == 3
    for (some, others), f1, settings in zip(drawn, found.f1, found.settings, strict=True):
        logits = np.concatenate([forgotten.logits[some[:count]], unseen.logits[others]])
        inputs, answers = softmax(logits, axis=1), np.arange(len(logits)) < count
        state = int(torch.randint(2**31, (), generator=generator))
        train, test, known, asked = train_test_split(
            inputs, answers, test_size=0.2, stratify=answers, random_state=state
        )
        search = GridSearchCV(SVC(kernel="rbf"), {"C": svm.C, "gamma": svm.GAMMA}, cv=3).fit(
            train, known
        )
        assert settings == (search.best_params_["C"], search.best_params_["gamma"])
        assert f1 == pytest.approx(search.score(test, asked))
    assert len(set(found.settings)) > 1


def test_a_planted_leak_is_caught() -> None:
    forgotten, unseen = memorised()
    found = svm_attack(forgotten, unseen, "samples", splits=2)
    assert found.mean > found.chance + 0.15


def test_the_quick_form_catches_it_too() -> None:
    curve = roc(quick_svm(*memorised()))
    assert curve.tpr_at(0.01).value >= 10 * 0.01
    assert curve.auc.low > 0.5


def test_the_quick_form_takes_2000_rows_and_ranks_half_of_them() -> None:
    forgotten, unseen = outputs(0, 3000, 8), outputs(1, 1500, 0, "t")
    found = quick_svm(forgotten, unseen)
    assert len(found.ids) == 1000
    assert found.members.sum() == 500
    assert [name.startswith("s") for name in found.ids.tolist()] == found.members.tolist()
    assert (quick_svm(forgotten, unseen).scores == found.scores).all()


def test_the_rows_of_the_quick_form_keep_their_ids() -> None:
    forgotten, unseen = outputs(0, 100, 8), outputs(1, 100, 0, "t")
    alone = {
        name: p
        for side in (forgotten, unseen)
        for name, p in zip(side.ids.tolist(), side.probabilities[:, 0], strict=True)
    }
    found = quick_svm(forgotten, unseen)
    own = np.array([alone[name] for name in found.ids.tolist()])
    assert (
        np.corrcoef(np.argsort(np.argsort(own)), np.argsort(np.argsort(found.scores)))[0, 1] > 0.7
    )


def test_nothing_is_found_where_nothing_is() -> None:
    forgotten, unseen = outputs(0, 600, 2), outputs(1, 600, 2, "t")
    same = quick_svm(forgotten, unseen)
    leaking = quick_svm(outputs(0, 600, 8), unseen)
    for scored in (same, shuffled(leaking)):
        curve = roc(scored)
        assert curve.auc.low < 0.5 < curve.auc.high
    assert abs(svm_attack(forgotten, outputs(2, 200, 2, "t"), "class", splits=2).mean - 0.75) < 0.02


def test_too_few_samples_or_an_empty_holdout() -> None:
    with pytest.raises(BadInput, match=r"18 forgotten and 6 .* 17 and 9"):
        svm_attack(outputs(0, 17, 1), outputs(1, 9, 1, "t"), "class")
    with pytest.raises(BadInput, match=r"6 forgotten and 6 .* 9 and 0"):
        quick_svm(outputs(0, 9, 1), outputs(1, 0, 1, "t"))
    assert len(quick_svm(outputs(0, 9, 1), outputs(1, 9, 1, "t")).ids) == 8
    other_class = replace(outputs(1, 9, 1, "t"), labels=np.repeat([0, 1], [5, 4]))
    with pytest.raises(BadInput, match=r"9 and 9, of which 5"):
        quick_svm(outputs(0, 9, 1), other_class)


def of_classes(seed: int, name: str, counts: list[int]) -> Outputs:
    """Draw outputs that tell the classes apart, whoever the model was trained on."""
    labels = np.repeat(np.arange(len(counts)), counts)
    draw = np.random.default_rng(seed)
    logits = 4 * np.eye(len(counts))[labels] + draw.normal(size=(len(labels), len(counts)))
    return Outputs(np.array([f"{name}{row}" for row in range(len(labels))]), logits, labels)


@pytest.mark.parametrize("counts", [[20] * 4, [10] * 10, [2] * 20, [1, 1, 2, 3, 5, 8, 13]])
def test_without_a_leak_the_quick_form_is_at_chance(counts: list[int]) -> None:
    """Were classes dealt to the halves at random, the mean would be .37 to .46."""
    found = [
        quick_svm(of_classes(2 * seed, "f", counts), of_classes(2 * seed + 1, "u", counts), seed)
        for seed in range(250)
    ]
    aucs = [roc(scored).auc.value for scored in found]
    assert abs(np.mean(aucs) - 0.5) < 3 * np.std(aucs) / len(aucs) ** 0.5 < 0.03
    p = [
        mannwhitneyu(
            scored.scores[scored.members], scored.scores[~scored.members], alternative="greater"
        ).pvalue
        for scored in found
    ]
    # 5 % of 250 are 12.5 ± 3.4.
    assert np.sum(np.array(p) < 0.05) <= 22


def test_each_half_of_the_quick_form_has_each_class_equally_often_on_both_sides() -> None:
    counts = [7, 1, 4, 6]
    found = quick_svm(of_classes(0, "f", counts), of_classes(1, "u", [9, 3, 4, 2]))
    labels = np.repeat(np.arange(4), counts)
    forgotten = [int(labels[int(name[1:])]) for name in found.ids[found.members]]
    unseen = np.repeat(np.arange(4), [9, 3, 4, 2])
    others = [int(unseen[int(name[1:])]) for name in found.ids[~found.members]]
    assert forgotten == others
    # 7, 1, 4 and 2 pairs: every second one is scored.
    assert np.bincount(forgotten).tolist() == [3, 1, 2, 1]
