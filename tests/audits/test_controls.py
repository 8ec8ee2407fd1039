"""Models whose verdict is known: the audit must get them right, or say that it cannot."""

from dataclasses import replace

import numpy as np
import pytest

from duck.audits import controls
from duck.audits.judge import Judge, MeasurementCache, verdict_of
from duck.audits.oracle import all_measures
from duck.audits.outputs import ModelOutputs
from duck.audits.verdict import Control
from tests.audits.witnesses import (
    CLASSES,
    CONTROLS,
    GONE,
    RETAIN,
    class_setting,
    model,
    sample_model,
    samples_setting,
)


def test_a_masked_logit_hides_the_class_and_changes_nothing_else() -> None:
    setting, original = class_setting(), model(0, knows=True)
    hidden = controls.mask_forgotten(original, setting)
    assert original.forget.correct.mean() > 0.95
    assert hidden.forget.correct.mean() == 0
    others = [0, 1, 2]
    assert np.array_equal(hidden.unseen.logits[:, others], original.unseen.logits[:, others])
    assert hidden.unseen.embeddings is original.unseen.embeddings
    assert original.forget.logits[:, GONE].min() > -1000


def test_a_retrained_head_never_names_the_forgotten_class_and_keeps_the_others() -> None:
    setting, original = class_setting(), model(0, knows=True)
    made = controls.retrain_head(original, setting)
    assert made.forget.correct.mean() == 0
    assert made.retain.correct.mean() > 0.95
    assert made.unseen.correct[setting.retain_test].mean() > 0.95


def test_noise_is_as_wide_as_the_outputs_and_the_same_each_time() -> None:
    setting, original = class_setting(), model(0, knows=True)
    first, again = controls.add_noise(original, setting), controls.add_noise(original, setting)
    added = first.forget.logits - original.forget.logits
    assert 0.8 < added.std() / original.retain.logits.std() < 1.2
    assert np.array_equal(first.forget.logits, again.forget.logits)


def test_a_masked_logit_is_no_control_where_single_samples_go() -> None:
    assert "logit masked" in controls.disguise(model(0, knows=True), class_setting())
    assert "logit masked" not in controls.disguise(sample_model(0, 4.0), samples_setting())


def checked(original_seed: int, count: int = 6, odd: int = 0) -> dict[str, Control]:
    """Return the controls of a class removal; some of the retrained models know the class."""
    setting, original = class_setting(), model(original_seed, knows=True)
    retrained = {
        f"retrained {index}": model(100 + index, knows=index < odd) for index in range(count)
    }
    disguised = controls.disguise(original, setting)
    measurements = MeasurementCache({"original": original, **disguised, **retrained})
    judge = Judge(measurements, all_measures(setting, original), list(retrained))
    return controls.check(judge, list(disguised))


def test_every_control_is_listed_and_retrained_models_pass() -> None:
    found = checked(0)
    assert {name: control.passed for name, control in found.items()} == dict.fromkeys(
        CONTROLS, True
    )
    assert found["logit masked"].got == "not forgotten"
    assert found["retrained"].got.startswith("0 of 6 not forgotten")


def test_one_odd_retrained_model_of_six_is_chance_and_of_four_is_not() -> None:
    found = checked(0, count=6, odd=1)["retrained"]
    assert found.got.startswith("1 of 6 not forgotten")
    assert found.passed
    assert not checked(0, count=4, odd=1)["retrained"].passed


@pytest.mark.parametrize(("wrong", "passed"), [(17, True), (19, False)])
def test_every_retrained_model_must_know_the_retained_samples_nearly_as_the_original_does(
    wrong: int, passed: bool
) -> None:
    """18 of 180 are the ten points that it may lack."""
    original, fine = (_with_mistakes(model(seed, knows=True), 0) for seed in (0, 1))
    found = controls.check_accuracy(
        original, [fine, _with_mistakes(model(2, knows=False), wrong), fine]
    )
    assert (found.passed, found.expected, found.got) == (
        passed,
        "at least 90.0 %",
        f"{100 - wrong / 1.8:.1f} % of retained samples right",
    )


def _with_mistakes(seen: ModelOutputs, wrong: int) -> ModelOutputs:
    """So many of the retained samples."""
    logits = 9.0 * np.eye(CLASSES)[(seen.retain.labels + (np.arange(RETAIN) < wrong)) % CLASSES]
    return replace(seen, retain=replace(seen.retain, logits=logits))


def test_false_alarms_on_further_retrained_models_are_rare() -> None:
    """At most 5 % are expected: of 48 judgements, 7 or more have a probability of 1 %."""
    setting, original = class_setting(), model(0, knows=True)
    measures = [measure for measure in all_measures(setting, original) if measure.question]
    verdicts = []
    for draw in range(6):
        seeds = range(1000 + 20 * draw, 1020 + 20 * draw)
        references = {f"retrained {seed}": model(seed, knows=False) for seed in seeds[:6]}
        fresh = {f"fresh {seed}": model(seed, knows=False) for seed in seeds[10:18]}
        cache = MeasurementCache({"original": original, **references, **fresh})
        judge = Judge(cache, measures, list(references))
        verdicts += [verdict_of(judge.grades(name)) for name in fresh]
    assert verdicts.count("not forgotten") < 7
    assert verdicts.count("forgotten") > 24


def test_a_retrained_model_is_not_compared_with_itself() -> None:
    setting, original = class_setting(), model(0, knows=True)
    models = {f"retrained {index}": model(100 + index, knows=False) for index in range(3)}
    measurements = MeasurementCache({"original": original, **models})
    measure = next(m for m in all_measures(setting, original) if m.name == "output distance")
    assert measure.of_pair is not None
    first, second, third = models.values()
    pairs = [measure.of_pair(first, other).mean() for other in (second, third)]
    assert measurements.value(measure, "retrained 0", list(models)).value == pytest.approx(
        np.mean(pairs)
    )
