"""The quick tier convicts or is silent; it never says "forgotten"."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from duck.audits.attacks.base import OutputsAttack, model_attacks
from duck.audits.attacks.entropy import EntropyAttack
from duck.audits.attacks.loss import LossAttack
from duck.audits.attacks.runner_up import RunnerUpAttack
from duck.audits.controls import mask_forgotten
from duck.audits.outputs import ModelOutputs, Setting, SplitOutputs, match_unseen
from duck.audits.quick import (
    HAND_PICKED,
    NO_TRACE,
    NO_TRACE_OF_DAMAGED,
    Coverage,
    decisive_attacks,
    is_hand_picked,
    missed,
    p_values,
    quick,
    separation,
)
from duck.audits.statistics import SampleEstimate
from duck.audits.verdict import Audit, Limits
from tests.audits.witnesses import class_setting, model, sample_model, samples_setting

SIDES = ("forget", "retain")


def of_class(unlearned: ModelOutputs, coverage: Coverage | None = None) -> Audit:
    return quick(class_setting(), unlearned, model(0, knows=True), "subject", coverage)


def of_samples(unlearned: ModelOutputs) -> Audit:
    return quick(samples_setting(), unlearned, sample_model(0, 4.0), "subject")


def quick_tests(setting: Setting) -> dict[str, OutputsAttack]:
    return decisive_attacks(model_attacks(setting, "quick"))


def test_a_difference_within_the_limit_does_not_convict() -> None:
    kept, original = sample_model(1, 4.0), sample_model(0, 4.0)
    within = quick(samples_setting(), kept, original, "", limits=Limits(max_advantage=0.999))
    assert within.verdict == "no verdict"
    assert "limit of 0.999" in within.reasons[0]
    assert NO_TRACE not in within.reasons
    assert quick(samples_setting(), kept, original, "").verdict == "not forgotten"


def test_the_lower_bound_decides_and_not_the_value() -> None:
    audit = of_samples(sample_model(1, 4.0))
    measured = audit.attacks["loss attack"].unlearned
    assert measured is not None
    assert measured.low is not None
    bounds = separation(SampleEstimate(measured.value, measured.low, measured.high or 1.0, 0))
    for limit, is_found in ((bounds[0] - 1e-6, True), (bounds[0] + 1e-6, False)):
        limits = Limits(max_advantage=limit)
        found = quick(
            samples_setting(), sample_model(1, 4.0), sample_model(0, 4.0), "", None, limits
        )
        assert any(reason.startswith("loss attack: ") for reason in found.reasons) is is_found


def test_a_class_that_is_still_recognised_convicts() -> None:
    audit = of_class(model(0, knows=True))
    assert audit.verdict == "not forgotten"
    assert "still recognises the forgotten class" in audit.reasons[0]
    assert "100.0 % of its samples, chance is 25.0 %" in audit.reasons[0]


def test_without_controls_nobody_knows_whether_it_is_powered() -> None:
    assert of_class(model(0, knows=True)).powered is None
    assert of_class(model(50, knows=False)).to_dict()["powered"] is None


def test_a_masked_logit_is_not_exposed_and_the_text_says_so() -> None:
    audit = of_class(mask_forgotten(model(0, knows=True), class_setting()))
    assert audit.verdict == "no verdict"
    assert "hides the output" in audit.reasons[-1]


def test_retrained_models_are_not_convicted() -> None:
    verdicts = [of_class(model(seed, knows=False)).verdict for seed in range(60, 68)]
    verdicts += [of_samples(sample_model(seed, 0.0)).verdict for seed in range(60, 68)]
    assert verdicts.count("not forgotten") <= 1
    assert "forgotten" not in verdicts


def test_memorised_samples_convict_on_either_side() -> None:
    kept, pushed = of_samples(sample_model(1, 4.0)), of_samples(sample_model(1, -3.0))
    assert kept.verdict == pushed.verdict == "not forgotten"
    assert any("as members do" in reason for reason in kept.reasons)
    assert any("less sure of them" in reason for reason in pushed.reasons)


def test_one_in_twenty_is_not_enough_to_convict() -> None:
    audit = of_samples(sample_model(6, 0.5))
    lowest = min(row.p for row in audit.attacks.values() if row.p is not None)
    assert 0.01 < lowest < 0.05
    assert audit.verdict == "no verdict"


def test_samples_sent_to_one_wrong_class_stand_out_by_their_runner_up() -> None:
    """By entropy alone, forgotten samples would look less like members than the others."""
    seen = model(50, knows=False)
    shares = {"forget": [0.6, 0.195, 0.195, 0.01], "unseen": [0.6, 0.37, 0.02, 0.01]}
    parts = {
        name: replace(
            getattr(seen, name), logits=np.tile(np.log(share), (len(getattr(seen, name)), 1))
        )
        for name, share in shares.items()
    }
    audit = of_class(replace(seen, **parts))
    read = {
        name: row.unlearned.value
        for name, row in audit.attacks.items()
        if name.endswith("attack") and row.unlearned
    }
    assert (read["runner-up attack"], read["entropy attack"], read["loss attack"]) == (
        1.0,
        0.0,
        0.5,
    )
    assert any(
        reason.startswith("runner-up attack: ") and "as members do" in reason
        for reason in audit.reasons
    )


def test_an_svm_below_chance_is_no_evidence() -> None:
    seen = sample_model(49, 0.0)
    reading = of_samples(seen).attacks["SVM attack"].unlearned
    assert reading is not None
    assert reading.value < 0.42
    assert p_values(samples_setting(), seen, quick_tests(samples_setting()))["SVM attack"] > 0.9


def test_classes_that_differ_are_no_memory_of_samples_that_are_mostly_of_one() -> None:
    """Class 0 is harder than the others for every model, and most forget samples are of it."""

    def harder(seen: ModelOutputs) -> ModelOutputs:
        def change(part: SplitOutputs) -> SplitOutputs:
            right = 4 * np.eye(4)[part.labels] * (part.labels == 0)[:, None]
            return replace(part, logits=part.logits - right)

        return seen.map(change)

    seen = harder(sample_model(61, 0.0))
    rows = np.flatnonzero((seen.forget.labels == 0) | (np.arange(len(seen.forget)) % 9 == 1))
    few = replace(
        seen,
        forget=SplitOutputs(
            *(values[rows] for values in vars(seen.forget).values() if values is not None)
        ),
    )
    members, matched = match_unseen(few.forget.labels, few.unseen.labels, seed=0)
    setting = replace(samples_setting(), num_forget=len(rows), members=members)
    of_all, of_matched = (
        p_values(one, few, quick_tests(one))
        for one in (replace(setting, matched=chosen) for chosen in (np.arange(160), matched))
    )
    assert of_all["loss attack"] < 1e-3
    assert min(of_matched.values()) > 0.05


@pytest.mark.parametrize(
    ("of_last", "members", "others"),
    [(0, 180, 900), (1, 180, 900), (40, 200, 400), (60, 200, 600), (100, 200, 1000)],
)
def test_a_class_with_few_unseen_samples_does_not_take_the_power_of_all(
    of_last: int, members: int, others: int
) -> None:
    forget, unseen = np.repeat(np.arange(10), 20), np.repeat(np.arange(10), [*[100] * 9, of_last])
    some, matched = match_unseen(forget, unseen, seed=0)
    assert (len(some), len(matched)) == (members, others)
    assert len(set(np.bincount(unseen[matched])[: members // 20])) == 1


def test_forget_samples_that_are_compared_with_nobody_are_named() -> None:
    setting = replace(samples_setting(), members=np.arange(80))
    audit = quick(setting, sample_model(60, 0.0), sample_model(0, 4.0), "subject")
    assert any("Attacks on 10 of 90" in text for text in audit.not_tested)


def test_samples_picked_for_their_runner_up_are_not_judged() -> None:
    """Same loss and entropy, other second choices, in the original already."""
    original = sample_model(0, 4.0)
    shares = {"forget": [0.6, 0.2, 0.1, 0.1], "retain": [0.6, 0.15, 0.15, 0.1]}
    parts = {}
    for name, share in shares.items():
        part = getattr(original, name)
        turned = np.stack([np.roll(np.log(share), label) for label in part.labels])
        parts[name] = replace(
            part, logits=turned + np.random.default_rng(0).normal(0, 0.2, turned.shape)
        )
    assert is_hand_picked(
        samples_setting(), replace(original, **parts), quick_tests(samples_setting())
    )


def test_hand_picked_samples_are_shown_and_not_judged() -> None:
    """The original finds these samples harder than others; so does a model without them."""
    original = sample_model(0, 1.0)
    assert is_hand_picked(samples_setting(), original, quick_tests(samples_setting()))
    assert not is_hand_picked(
        samples_setting(), sample_model(0, 4.0), quick_tests(samples_setting())
    )
    audit = quick(samples_setting(), sample_model(1, -3.0), original, "subject")
    assert audit.verdict == "no verdict"
    row = audit.attacks["loss attack"]
    assert not row.judged
    assert row.p is not None
    assert row.p < 1e-6
    # The difference is stated, and not that there is none.
    assert audit.reasons[0] == HAND_PICKED
    assert "loss attack (p < 1e-6)" in audit.reasons[1]
    assert len(audit.reasons) == 2


def test_hand_picked_samples_without_any_difference_leave_no_trace() -> None:
    audit = quick(samples_setting(), sample_model(60, 0.0), sample_model(0, 1.0), "subject")
    assert audit.reasons == (HAND_PICKED, NO_TRACE)


def test_a_difference_far_beyond_the_choice_of_the_samples_counts() -> None:
    """The original finds them a little harder than others, the unlearned model far easier."""
    original = sample_model(0, 3.0)
    assert is_hand_picked(samples_setting(), original, quick_tests(samples_setting()))
    audit = quick(samples_setting(), sample_model(1, 4.0), original, "subject")
    assert audit.verdict == "not forgotten"
    assert audit.attacks["loss attack"].judged
    assert "does not explain it" in audit.reasons[0]
    # By loss it lies beyond; the entropy differs too, by no more than the choice may explain.
    pushed = quick(samples_setting(), sample_model(1, -3.0), original, "subject")
    judged = [name for name, row in pushed.attacks.items() if row.judged]
    assert judged == ["loss attack"]
    assert "entropy attack" in pushed.reasons[-1]


def test_bounds_of_a_separation_by_hand() -> None:
    # 99 % bounds are 2.576 / 1.960 times as far out as those of 95 %.
    wider = 2.575829 / 1.959964
    low, high = separation(SampleEstimate(0.7, 0.65, 0.75, 100))
    assert (low, high) == pytest.approx((0.4 - 0.1 * wider, 0.4 + 0.1 * wider))
    assert separation(SampleEstimate(0.3, 0.25, 0.35, 100)) == pytest.approx((low, high))
    assert separation(SampleEstimate(0.52, 0.45, 0.59, 100))[0] == 0
    assert separation(SampleEstimate(1.0, 0.9, 1.0, 100))[1] == 1


def test_a_random_request_is_seldom_taken_for_hand_picked() -> None:
    """At p 0.003 a request is no more than a rare random one: the level is 0.1 % for all."""
    setting, original = samples_setting(), sample_model(0, 3.3)
    attacks = (LossAttack, EntropyAttack, RunnerUpAttack)
    p = []
    for attack in attacks:
        forget, retain = (attack.score(getattr(original, side)) for side in SIDES)
        p.append(float(mannwhitneyu(forget, retain).pvalue))
    assert 0.001 < min(p) < 0.01
    assert not is_hand_picked(setting, original, quick_tests(setting))


@pytest.mark.parametrize(("processed", "verdict"), [(90, "no verdict"), (89, "not forgotten")])
def test_every_sample_must_have_been_processed(processed: int, verdict: str) -> None:
    audit = of_class(model(50, knows=False), Coverage(processed, 90))
    assert audit.verdict == verdict
    row = audit.attacks["coverage"]
    assert row.unlearned is not None
    assert row.unlearned.value == processed / 90
    assert "the method itself declares it" in row.about


def test_missed_samples_are_counted() -> None:
    (note,) = missed(Coverage(89, 90))
    assert "89 of 90 forget samples" in note
    assert missed(Coverage(90, 90)) == missed(None) == ()


def test_without_a_count_the_text_says_that_coverage_was_not_tested() -> None:
    assert "every forget sample was processed" in of_class(model(50, knows=False)).not_tested[0]
    assert "coverage" not in of_class(model(50, knows=False)).attacks


def test_a_leak_in_a_few_unseen_samples_only_is_judged_without_the_svm() -> None:
    setting = replace(class_setting(), matched=class_setting().matched[:4])
    audit = quick(setting, model(50, knows=False), model(0, knows=True), "subject")
    assert "SVM attack" not in audit.attacks
    assert "loss attack" in audit.attacks


def test_curves_rise_from_nothing_to_all() -> None:
    curve = of_samples(sample_model(1, 4.0)).roc["loss attack"]["unlearned"]
    assert (curve.fpr[-1], curve.tpr[-1]) == (1.0, 1.0)
    assert np.all(np.diff(curve.tpr) >= 0)


def test_damage_is_reported_before_the_missing_trace() -> None:
    original = sample_model(0, 4.0)
    draw = np.random.default_rng(7)
    broken = original.map(lambda part: replace(part, logits=draw.normal(size=part.logits.shape)))
    ruined = quick(samples_setting(), broken, original, "subject")
    assert ruined.verdict == "no verdict"
    assert "lost too much accuracy: test" in ruined.reasons[0]
    assert ruined.reasons[-1] == NO_TRACE_OF_DAMAGED
    sound = quick(samples_setting(), sample_model(3, 0.0), original, "subject")
    assert sound.reasons == (NO_TRACE,)
