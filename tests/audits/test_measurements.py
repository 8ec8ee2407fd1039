"""Measures against numbers computed by hand or by other libraries."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax
from torch.nn.functional import cross_entropy

from duck.audits import measurements
from duck.audits.attacks.base import ThresholdAttack, model_attacks
from duck.audits.attacks.entropy import EntropyAttack
from duck.audits.attacks.loss import losses
from duck.audits.controls import mask_forgotten
from duck.audits.measurements import (
    classifier_auc,
    js,
    kl,
    rate,
    tow,
)
from duck.audits.outputs import ModelOutputs, Setting, SplitOutputs, raise_contrast, temperature_of
from duck.audits.scores import Array, Outputs
from duck.audits.statistics import roc
from duck.runtime import seeded
from tests.audits.witnesses import FORGET, class_setting, model, sample_model, samples_setting


def named(found: list[measurements.Measure], name: str) -> measurements.Measure:
    return next(measure for measure in found if measure.name == name)


def test_divergences_by_hand_and_by_scipy() -> None:
    p, q = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.25, 0.75]])
    assert js(p, q)[0] == pytest.approx(math.log(2))
    assert js(p, q)[1] == pytest.approx(jensenshannon(p[1], q[1]) ** 2)
    assert kl(p, q)[1] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert js(p, p).tolist() == [0.0, 0.0]


def test_losses_are_torch_s_and_entropies_those_of_the_softmax() -> None:
    outputs = model(0, knows=True).unseen
    expected = cross_entropy(
        torch.from_numpy(outputs.logits), torch.from_numpy(outputs.labels), reduction="none"
    )
    np.testing.assert_allclose(losses(outputs), expected.numpy(), atol=1e-12)
    flat = replace(outputs, logits=np.zeros_like(outputs.logits))
    np.testing.assert_allclose(-EntropyAttack.score(flat), math.log(4))
    certain = replace(outputs, logits=np.eye(4)[outputs.labels] * 1e4)
    np.testing.assert_allclose(EntropyAttack.score(certain), 0, atol=1e-12)


def test_a_rate_has_the_exact_interval() -> None:
    value = rate(np.zeros(16, bool))
    assert (value.value, value.low, value.n) == (0.0, 0.0, 16)
    assert value.high == pytest.approx(1 - 0.025 ** (1 / 16))


def test_output_distance_does_not_see_whether_the_logit_is_masked() -> None:
    setting, knowing, other = class_setting(), model(0, knows=True), model(1, knows=False)
    found = measurements.distances(setting)
    of_pair = named(found, "output distance").of_pair
    assert of_pair is not None
    seen = [of_pair(who, other) for who in (knowing, mask_forgotten(knowing, setting))]
    np.testing.assert_allclose(seen[0], seen[1])
    of_pair = named(found, "activation distance").of_pair
    assert of_pair is not None
    seen = [of_pair(who, other) for who in (knowing, mask_forgotten(knowing, setting))]
    assert seen[0].mean() > seen[1].mean() + 0.3


def test_tug_of_war_by_hand() -> None:
    def with_accuracies(forget: int, retain: int, test: int) -> ModelOutputs:
        return ModelOutputs(_right(forget), _right(retain), _right(test))

    value = tow(with_accuracies(0, 10, 8), with_accuracies(2, 9, 10), np.arange(10))
    assert value == pytest.approx(0.8 * 0.9 * 0.8)


def _right(count: int) -> SplitOutputs:
    logits = np.zeros((10, 2))
    logits[:, 0], logits[:count, 1] = 1.0, 2.0
    return SplitOutputs(np.arange(10).astype(str), logits, np.ones(10, np.int64), logits)


def test_a_classifier_separates_only_outputs_that_differ() -> None:
    draw = np.random.default_rng(0)
    one, same, other = (
        draw.dirichlet(shares, size=200) for shares in ([5, 5, 5], [5, 5, 5], [20, 5, 5])
    )
    assert classifier_auc(one, same) == pytest.approx(0.5, abs=0.08)
    assert classifier_auc(one, other) > 0.8


def test_zrf_is_one_for_a_model_like_the_untrained_one() -> None:
    blank = model(5, knows=False)
    (found,) = measurements.zrf(blank)
    assert found.of_model is not None
    assert found.of_model(blank).value == pytest.approx(1.0)
    assert found.of_model(model(0, knows=True)).value < 0.7
    assert measurements.zrf(None) == []


def test_neighbours_are_the_classes_that_the_forgotten_one_is_taken_for() -> None:
    setting, knowing = class_setting(), model(0, knows=True)
    (found,) = measurements.neighbours(setting, knowing)
    assert "classes most confused" in found.about
    assert ": a, " in found.about
    assert found.of_model is not None
    assert found.of_model(knowing).n == len(setting.retain_test)
    assert measurements.neighbours(samples_setting(), sample_model(0, 0.0)) == []


def test_membership_is_found_where_it_was_planted() -> None:
    setting = samples_setting()
    leaking, clean = sample_model(0, 4.0), sample_model(0, 0.0)
    for measure in measurements.membership(model_attacks(setting, "quick")):
        assert measure.of_model is not None
        found, floor = measure.of_model(leaking), measure.of_model(clean)
        assert found.value > 0.8
        assert floor.low is not None
        assert floor.high is not None
        assert floor.low < 0.5 < floor.high


class LabelAttack(ThresholdAttack):
    """Score a sample by its label."""

    @staticmethod
    def score(outputs: Outputs) -> Array:
        return outputs.labels.astype(np.float64)


def test_members_are_forget_samples_and_rows_keep_their_ids() -> None:
    setting = class_setting()
    scored = LabelAttack(setting)(model(0, knows=True))
    assert scored.members.sum() == FORGET
    assert set(scored.scores) == {3.0}
    assert len(np.unique(scored.ids)) == len(scored.ids) == FORGET + len(setting.matched)
    assert roc(scored).auc.value == 0.5


def test_the_accuracy_that_must_be_kept_depends_on_the_kind() -> None:
    def asked(setting: Setting) -> set[str]:
        return {m.name for m in measurements.accuracies(setting) if m.question == "differs"}

    assert asked(class_setting()) == {"accuracy retain-test"}
    assert asked(samples_setting()) == {"accuracy test"}


def test_the_excess_distance_is_a_ratio_of_calibrated_distances() -> None:
    setting, one, other = samples_setting(), sample_model(1, 0.0), sample_model(2, 0.0)
    excess = next(m for m in measurements.distances(setting) if m.name == "excess distance")
    assert excess.of_pair is not None

    def distance(first: SplitOutputs, second: SplitOutputs) -> float:
        scaled = [first.logits / temperature_of(one, setting), second.logits]
        scaled[1] = scaled[1] / temperature_of(other, setting)
        p, q = (softmax(part, axis=1) for part in scaled)
        return float(np.mean(jensenshannon(p, q, axis=1) ** 2))

    expected = (distance(one.forget, other.forget) + 0.01) / (
        distance(one.unseen, other.unseen) + 0.01
    )
    assert excess.of_pair(one, other)[0] == pytest.approx(expected, rel=1e-6)
    hot = one.map(lambda part: replace(part, logits=5 * part.logits))
    assert excess.of_pair(hot, other)[0] == pytest.approx(expected, rel=1e-3)


def test_accuracy_of_each_class_counts_its_own_samples() -> None:
    setting, seen = class_setting(), model(0, knows=False)
    found = measurements.class_accuracies(setting, seen.unseen.labels)
    values = {measure.name: measure.of_model(seen) for measure in found if measure.of_model}
    assert {name: value.n for name, value in values.items()} == {
        f"accuracy class {name}": 40 for name in "abcd"
    }
    assert values["accuracy class d"].value == 0
    assert values["accuracy class a"].value == 1


def test_contrast_copies_lie_beyond_half_the_way_to_the_nearest_retained_image() -> None:
    images = torch.full((3, 1, 2, 2), 5.0)
    images[0, 0] = torch.tensor([[1.0, 3], [1, 3]])
    neighbours = torch.tensor([[1.0, 3, 1, 7], [5, 5, 5, 7]])
    raised = raise_contrast(images, neighbours, seeded(0, "test"))
    distances = (raised - images).flatten(1).norm(dim=1)
    assert distances.tolist() == pytest.approx([1.2 * 4 / 2, 1.2 * 2 / 2, 1.2 * 2 / 2])
    # 4.8 / 2 in the direction of (-1, 1, -1, 1), and noise where there is no contrast.
    assert raised[0].flatten().tolist() == pytest.approx([-0.2, 4.2, -0.2, 4.2])
    assert not torch.equal(raised[1], raised[2])
