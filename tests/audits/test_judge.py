"""The judgement of one model by others, with numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from duck.audits.judge import Judge, MeasurementCache, verdict_of
from duck.audits.measurements import Measure, Measurement
from duck.audits.memory import CLASS_LOGIT, LIKENESS, PRIMARY, memory_measures
from duck.audits.outputs import ModelOutputs, SplitOutputs
from duck.audits.verdict import Grade, Limits
from tests.audits.witnesses import (
    FORGET,
    GONE,
    class_setting,
    model,
    sample_model,
    samples_setting,
)

REFERENCES = {"a": 0.9, "b": 1.0, "c": 1.1, "d": 1.0, "e": 1.0}
NARROW = {"a": 0.99, "b": 1.0, "c": 1.01, "d": 1.0, "e": 1.0}


def judge(
    values: dict[str, float],
    question: str,
    limits: Limits | None = None,
    unit: str = "score",
    names: tuple[str, ...] | None = None,
) -> Judge:
    """Return a judge of models that every measure gives these values; the original has 3."""
    known = {**(NARROW if question == "exposed" else REFERENCES), "original": 3.0, **values}
    outputs = {name: model(index, knows=False) for index, name in enumerate(known)}
    by_outputs = {id(outputs[name]): value for name, value in known.items()}

    def measure(seen: ModelOutputs) -> Measurement:
        value = by_outputs[id(seen)]
        return Measurement(value, value, value, FORGET)

    names = names or (PRIMARY if question == "remembers" else ("attack",))
    measures = [
        Measure(name, "", unit, measure, question=question, alternative=side(question))  # type: ignore[arg-type]
        for name in names
    ]
    return Judge(MeasurementCache(outputs), measures, list(REFERENCES), limits or Limits())


def side(question: str) -> str:
    return "greater" if question == "remembers" else "two-sided"


def test_residual_memory_by_hand() -> None:
    grade = judge({"model": 1.8}, "remembers").grades("model")["remembers"]
    spread = np.std(list(REFERENCES.values()), ddof=1) * np.sqrt(1.2) / 2
    assert grade.value == pytest.approx(0.4)
    # Two measures: the lower end is corrected for both, the upper one is not.
    assert grade.low == pytest.approx(0.4 - t.ppf(1 - 0.05 / 2, 4) * spread)
    assert grade.high == pytest.approx(0.4 + t.ppf(0.95, 4) * spread)
    assert (grade.answer, grade.limit) == ("yes", 0.1)


@pytest.mark.parametrize(
    ("value", "margin", "answer"),
    [
        (1.0, 0.05, "undecided"),
        (1.0, 0.1, "no"),
        (0.0, 0.1, "no"),
        (1.8, 0.4, "undecided"),
        (3.0, 0.4, "yes"),
    ],
)
def test_the_margin_decides(value: float, margin: float, answer: str) -> None:
    found = judge({"model": value}, "remembers", Limits(margin=margin)).grades("model")
    assert found["remembers"].answer == answer


@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("embedding", 1.0, "no"),
        ("embedding", 1.3, "no"),
        (CLASS_LOGIT, 1.0, "no"),
        (CLASS_LOGIT, 1.3, "undecided"),
    ],
)
def test_of_a_class_a_measure_that_cannot_exclude_a_large_part_leaves_it_open(
    name: str, value: float, answer: str
) -> None:
    """The upper end is 0.44 above the value, and the limit is 0.5."""
    wide = {"a": 0.2, "b": 1.0, "c": 1.8, "d": 1.0, "e": 1.0, "original": 4.0}
    judged = judge({"model": value, **wide}, "remembers", names=(name,))
    (found,) = judged.grades("model")["remembers"].evidence
    assert found.answer == answer


def test_an_original_that_is_like_retrained_models_cannot_be_measured() -> None:
    found = judge({"model": 1.0, "original": 1.2}, "remembers").grades("model")["remembers"]
    assert (found.answer, found.value) == ("undecided", None)


@pytest.mark.parametrize(("value", "answer"), [(1.0, "no"), (1.9, "yes"), (0.1, "yes")])
def test_exposure_counts_in_both_directions(value: float, answer: str) -> None:
    assert judge({"model": value}, "exposed").grades("model")["exposed"].answer == answer


def test_a_limit_that_is_not_given_is_at_least_what_the_audit_resolves() -> None:
    free = judge({"model": 1.0}, "exposed").grades("model")["exposed"]
    half = 2 * t.ppf(0.975, 4) * np.std(list(NARROW.values()), ddof=1) * np.sqrt(1.2)
    assert free.answer == "no"
    assert free.limit == pytest.approx(2 * half)
    given = judge({"model": 1.0}, "exposed", Limits(max_advantage=0.03)).grades("model")["exposed"]
    assert (given.answer, given.limit) == ("undecided", 0.03)


def test_an_attack_that_resolves_nothing_is_no_evidence_of_absence() -> None:
    wide = {name: 1 + 40 * (value - 1) for name, value in NARROW.items()}
    found = judge({"model": 1.0, **wide}, "exposed").grades("model")["exposed"]
    assert (found.answer, found.value, found.evidence) == ("undecided", None, ())


def test_an_advantage_below_a_large_limit_of_the_user_is_not_exposed() -> None:
    """Without that limit the attack resolves no advantage of 0.5."""
    wide = {name: 1 + 6 * (value - 1) for name, value in NARROW.items()}
    for limits, answer in ((None, "undecided"), (Limits(max_advantage=0.9), "no")):
        found = judge({"model": 1.0, **wide}, "exposed", limits).grades("model")["exposed"]
        assert found.answer == answer


@pytest.mark.parametrize(("is_distance", "answer"), [(True, "no"), (False, "undecided")])
def test_attacks_and_distances_have_their_own_resolution(is_distance: bool, answer: str) -> None:
    """A limit of 0.6 is too large for an advantage, and not for the logarithm of a ratio."""
    factor = 14 if is_distance else 7  # an advantage is twice the difference of two AUCs
    wide = {name: np.exp(factor * (value - 1)) for name, value in NARROW.items()}
    judged = judge({"model": 1.0, **wide}, "exposed")
    judged = replace(judged, measures=[replace(judged.measures[0], log_scale=is_distance)])
    assert judged._exposure(judged.measures[0], "model", 1).limit == pytest.approx(0.6, abs=0.01)
    assert judged.grades("model")["exposed"].answer == answer


def test_an_attack_at_chance_exposes_nothing_whatever_retrained_models_show() -> None:
    """The AUC is 0.5 where retrained models show 1: another recipe, and no trace of a sample."""
    found = judge({"model": 0.5}, "exposed", unit="AUC").grades("model")["exposed"]
    assert found.answer == "undecided"


@pytest.mark.parametrize(("value", "answer"), [(1.0, "no"), (2.0, "yes")])
def test_a_difference_never_decides(value: float, answer: str) -> None:
    judged = judge({"model": value}, "differs")
    found = judged.grades("model")["differs"]
    assert found.answer == answer
    no = replace(found, answer="no")
    assert verdict_of({"remembers": no, "exposed": no, "differs": found}) == "forgotten"


def test_the_verdict_needs_both_answers() -> None:
    def grade(answer: str) -> Grade:
        return Grade(answer, "", 0.0, 0.0, 0.0, 0.0, "")  # type: ignore[arg-type]

    verdicts = {
        ("no", "no"): "forgotten",
        ("no", "undecided"): "no verdict",
        ("undecided", "no"): "no verdict",
        ("yes", "no"): "not forgotten",
        ("no", "yes"): "not forgotten",
        ("undecided", "yes"): "not forgotten",
    }
    for (remembers, exposed), verdict in verdicts.items():
        grades = {"remembers": grade(remembers), "exposed": grade(exposed)}
        assert verdict_of(grades) == verdict  # type: ignore[arg-type]


def memory(outputs: ModelOutputs, name: str, kind: str = "samples") -> float:
    setting = samples_setting() if kind == "samples" else class_setting()
    original = sample_model(9, 4.0) if kind == "samples" else model(9, knows=True)
    measure = next(m for m in memory_measures(setting, original) if m.name == name)
    assert measure.of_model is not None
    return measure.of_model(outputs).value


def scaled(outputs: ModelOutputs, factor: float) -> ModelOutputs:
    return outputs.map(lambda part: replace(part, logits=factor * part.logits))


def test_a_temperature_does_not_hide_memory() -> None:
    """Dividing all logits by a number makes losses alike and changes no margin here."""
    knowing = sample_model(0, 4.0)
    assert memory(knowing, "margin") > memory(sample_model(1, 0.0), "margin") + 1
    assert memory(scaled(knowing, 0.1), "margin") == pytest.approx(
        memory(knowing, "margin"), rel=1e-3
    )


def test_copies_are_read_apart_from_the_samples() -> None:
    knowing, clean = sample_model(0, 4.0), sample_model(1, 0.0)
    looked_up = replace(knowing, forget=clean.forget, copies=knowing.forget)
    assert memory(looked_up, "margin of copies") == memory(knowing, "margin")
    assert memory(looked_up, "margin") < memory(knowing, "margin") - 1


@pytest.mark.parametrize("knows", [True, False])
def test_the_inner_embedding_shows_what_another_layer_hides(knows: bool) -> None:
    """The head reads logits that name no class; one layer earlier the class is there."""
    seen = model(0, knows=knows)

    def hide(part: SplitOutputs) -> SplitOutputs:
        return replace(part, embeddings=np.ones_like(part.embeddings), inner=part.embeddings)

    hidden = seen.map(hide)
    assert memory(hidden, "embedding", "class") < 0.5
    assert memory(hidden, "inner embedding", "class") == memory(seen, "embedding", "class")


def shifted(outputs: ModelOutputs, constant: float) -> ModelOutputs:
    """Add a constant to the logit of the class."""

    def shift(part: SplitOutputs) -> SplitOutputs:
        logits = part.logits.copy()
        logits[:, GONE] += constant
        return replace(part, logits=logits)

    return outputs.map(shift)


def test_a_constant_does_not_hide_what_the_logit_of_a_class_knows() -> None:
    knowing, clean = model(0, knows=True), model(1, knows=False)
    hidden = shifted(knowing, -30.0)
    assert not hidden.forget.correct.any()
    assert memory(hidden, CLASS_LOGIT, "class") == memory(knowing, CLASS_LOGIT, "class")
    assert memory(hidden, CLASS_LOGIT, "class") > memory(clean, CLASS_LOGIT, "class") + 1


def test_outputs_copied_from_the_original_are_found_without_the_logit_of_the_class() -> None:
    """A distilled student gives the outputs of the original to the other classes."""
    clean, original = model(1, knows=False), model(9, knows=True)
    copied = replace(clean, forget=replace(clean.forget, logits=original.forget.logits))
    student = shifted(copied, -30.0)
    own = memory(original, LIKENESS, "class")
    assert own == pytest.approx(-np.log(0.01))
    assert memory(student, LIKENESS, "class") == pytest.approx(own, abs=0.3)
    assert memory(clean, LIKENESS, "class") < own - 1


def test_an_added_layer_does_not_hide_the_embedding() -> None:
    """Its input are the logits; one layer earlier is the embedding of the original."""
    seen = model(0, knows=True)

    def add_layer(part: SplitOutputs) -> SplitOutputs:
        return replace(part, embeddings=np.ones((len(part), 4)), inner=part.embeddings)

    hidden = seen.map(add_layer)
    assert memory(hidden, "embedding", "class") == memory(seen, "embedding", "class")
