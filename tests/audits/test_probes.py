"""Probes read embeddings, whatever the outputs say."""

from dataclasses import replace

import numpy as np
import pytest

from duck.audits.outputs import ModelOutputs, SplitOutputs
from duck.audits.probes import fold_of_each, linear, nearest, probes, prototypes, unit
from tests.audits.witnesses import class_setting, labels_of, model, sample_model, samples_setting


def test_a_class_of_its_own_direction_is_found_from_one_label() -> None:
    setting = class_setting()
    knowing, ignorant = model(0, knows=True), model(1, knows=False)
    assert prototypes(knowing, setting, 1).value > 0.95
    assert prototypes(ignorant, setting, 1).value < 0.85
    blind = replace(
        knowing, forget=replace(knowing.forget, logits=np.zeros_like(knowing.forget.logits))
    )
    assert prototypes(blind, setting, 1) == prototypes(knowing, setting, 1)


def test_more_labels_find_more() -> None:
    seen = model(1, knows=False)
    values = [prototypes(seen, class_setting(), shots).value for shots in (1, 5, 20)]
    assert values[0] < values[1] < values[2]


def test_nearest_neighbours_leave_the_sample_itself_out() -> None:
    """Ten neighbours: five of label 1, four of its own label 0, one of label 2."""
    angles = np.array(
        [0.0, *np.linspace(0.01, 0.05, 5), *np.linspace(0.06, 0.09, 4), 0.5, *np.linspace(2, 3, 8)]
    )
    points, labels = (
        np.stack([np.cos(angles), np.sin(angles)], 1),
        np.array([0, *[1] * 5, *[0] * 4, 2, *[3] * 8]),
    )
    part = SplitOutputs(np.array(["x"]), points[:1], labels[:1], points[:1])
    assert nearest(part, points, labels, itself=True).tolist() == [1]
    assert nearest(part, points[1:], labels[1:]).tolist() == [1]


def test_shots_are_not_scored() -> None:
    """Two samples of the class, at right angles: the mean of one finds itself, never the other."""
    seen = model(0, knows=True)
    labels, points = seen.forget.labels[:2], np.zeros((2, 8))
    points[0, 6] = points[1, 7] = 1.0
    two = replace(
        seen,
        forget=replace(
            seen.forget,
            logits=seen.forget.logits[:2],
            embeddings=points,
            labels=labels,
            ids=seen.forget.ids[:2],
        ),
    )
    crowded = replace(
        two,
        retain=replace(
            two.retain, embeddings=two.retain.embeddings + np.array([0.0] * 6 + [1.0, 1.0])
        ),
    )
    assert prototypes(crowded, class_setting(), 1).value == 0


def test_twins_do_not_break_the_neighbours() -> None:
    points = np.tile([[1.0, 0.0]], (30, 1))
    labels = labels_of(30, 2)
    part = SplitOutputs(np.arange(20).astype(str), points[:20], labels[:20], points[:20])
    assert nearest(part, points, labels, itself=True).shape == (20,)


def test_probes_with_more_labels_than_half_a_class_are_left_out() -> None:
    seen = model(0, knows=True)
    found = {measure.name for measure in probes(class_setting(), seen.forget.labels)}
    assert found == {"1-shot probe", "5-shot probe", "20-shot probe", "linear probe", "k-NN probe"}
    few = {measure.name for measure in probes(class_setting(), seen.forget.labels[:12])}
    assert few == {"1-shot probe", "5-shot probe", "linear probe", "k-NN probe"}
    single = {measure.name for measure in probes(samples_setting(), labels_of(20))}
    assert single == {"linear probe", "k-NN probe"}


@pytest.mark.parametrize("name", ["linear probe", "k-NN probe"])
def test_probes_of_all_samples_find_the_classes(name: str) -> None:
    def value(seen: ModelOutputs, kind: str) -> float:
        setting = class_setting() if kind == "class" else samples_setting()
        measure = next(m for m in probes(setting, seen.forget.labels) if m.name == name)
        assert measure.of_model is not None
        return measure.of_model(seen).value

    assert value(model(0, knows=True), "class") > 0.97
    assert value(sample_model(0, 0.0), "samples") > 0.75  # chance is 0.25
    lost = model(0, knows=True)
    like_another = lost.unseen.embeddings[lost.unseen.labels == 0][
        np.arange(90) % 40
    ] + np.random.default_rng(0).normal(0, 0.3, (90, 8))
    assert (
        value(replace(lost, forget=replace(lost.forget, embeddings=like_another)), "class") < 0.85
    )


def test_unit_rows_have_length_one_and_zero_stays() -> None:
    rows = unit(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert rows.tolist() == [[0.6, 0.8], [0.0, 0.0]]


def test_folds_share_out_each_class() -> None:
    labels = np.array([0] * 10 + [1] * 5)
    folds = fold_of_each(labels)
    assert [np.bincount(folds[labels == label]).tolist() for label in (0, 1)] == [[2] * 5, [1] * 5]


def test_a_linear_probe_weighs_classes_equally() -> None:
    """Of overlapping classes, one of which is ten times as frequent, the rare one is read too."""
    draw = np.random.default_rng(0)
    inputs = np.concatenate([draw.normal(0, 1, (1000, 1)), draw.normal(2, 1, (100, 1))])
    named = linear(inputs, np.repeat([0, 1], [1000, 100]), np.array([[0.9], [1.1]]))
    assert named.tolist() == [0, 1]
