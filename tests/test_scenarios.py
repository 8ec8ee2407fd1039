"""Who is forgotten, and that nobody is lost or seen twice."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duck.errors import BadInput
from duck.scenarios import (
    ForgetClasses,
    ForgetFraction,
    ForgetRandomClasses,
    ForgetSamples,
    Request,
    class_from_word,
    describe,
)
from duck.types import Scenario
from tests.toys import CLASSES, toy_data

DATA = toy_data()


def assert_partition(scenario: Scenario) -> None:
    assert sorted([*scenario.forget.tolist(), *scenario.retain.tolist()]) == list(
        range(len(DATA.train))
    )
    assert DATA.test is not None
    assert sorted([*scenario.holdout.tolist(), *scenario.test.tolist()]) == list(
        range(len(DATA.test))
    )


@given(st.sets(st.integers(0, CLASSES - 1), min_size=1, max_size=CLASSES - 1))
@settings(deadline=None)
def test_whole_classes_are_forgotten(classes: set[int]) -> None:
    scenario = ForgetClasses(classes)(DATA)
    assert_partition(scenario)
    assert scenario.kind == "class"
    assert set(DATA.train.labels[scenario.forget].tolist()) == classes
    assert not set(DATA.train.labels[scenario.retain].tolist()) & classes
    assert DATA.test is not None
    assert set(DATA.test.labels[scenario.forget_test].tolist()) == classes
    assert sorted([*scenario.forget_test.tolist(), *scenario.retain_test.tolist()]) == sorted(
        scenario.test.tolist()
    )


@given(st.floats(0.01, 0.9), st.integers(0, 5))
@settings(deadline=None)
def test_a_fraction_is_a_random_share_of_all_classes(fraction: float, seed: int) -> None:
    scenario = ForgetFraction(fraction)(DATA, seed)
    assert_partition(scenario)
    assert len(scenario.forget) == round(fraction * len(DATA.train))
    assert scenario.kind == "samples"
    assert len(scenario.forget_test) == len(scenario.retain_test) == 0
    assert torch.equal(scenario.forget, ForgetFraction(fraction)(DATA, seed).forget)


def classes_of(scenario: Scenario) -> set[int]:
    return set(DATA.train.labels[scenario.forget].tolist())


@given(st.integers(1, CLASSES - 1), st.integers(0, 5))
@settings(deadline=None)
def test_random_classes_are_forgotten_whole_and_larger_counts_contain_smaller_ones(
    count: int, seed: int
) -> None:
    scenario = ForgetRandomClasses(count)(DATA, seed)
    assert_partition(scenario)
    assert scenario.kind == "class"
    forgotten = classes_of(scenario)
    assert len(forgotten) == count
    assert torch.equal(scenario.forget, ForgetClasses(forgotten)(DATA, seed).forget)
    if count > 1:
        assert classes_of(ForgetRandomClasses(count - 1)(DATA, seed)) < forgotten


def test_random_classes_depend_on_the_seed_and_their_number_is_checked() -> None:
    drawn = {tuple(classes_of(ForgetRandomClasses(1)(DATA, seed))) for seed in range(20)}
    assert len(drawn) > 1
    assert describe(ForgetRandomClasses(1)) == "1 random class"
    assert describe(ForgetRandomClasses(3)) == "3 random classes"
    for count in (0, -1, CLASSES):
        with pytest.raises(BadInput, match=f"between 1 and {CLASSES - 1}, got {count}"):
            ForgetRandomClasses(count)(DATA)


def test_another_seed_draws_other_samples() -> None:
    assert not torch.equal(ForgetFraction(0.1)(DATA, 0).forget, ForgetFraction(0.1)(DATA, 1).forget)


def test_samples_by_id_and_a_whole_class_of_them_is_class_removal(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("# a deletion request\n\n 7\n12  # the second\n")
    scenario = ForgetSamples.from_file(file)(DATA)
    assert scenario.forget.tolist() == [7, 12]
    assert scenario.kind == "samples"
    of_class_1 = [str(index) for index in range(1, len(DATA.train), CLASSES)]
    assert ForgetSamples(of_class_1)(DATA).kind == "class"


def test_an_id_may_hold_a_number_sign(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("user#1\nuser#2\t# both\n  # indented\n#7\nuser 3#\n")
    assert ForgetSamples.from_file(file).ids == ("user#1", "user#2", "user 3#")


def test_class_names_work_as_well_as_indices() -> None:
    assert torch.equal(ForgetClasses(["c"])(DATA).forget, ForgetClasses([2])(DATA).forget)


def test_the_papers_protocol_puts_the_test_set_in_both_roles() -> None:
    scenario = ForgetClasses([0])(DATA, protocol="paper")
    assert DATA.test is not None
    assert len(scenario.holdout) == len(scenario.test) == len(DATA.test)
    assert scenario.protocol == "paper"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ForgetClasses([4]), "Class 4 is out of range: "),
        (ForgetClasses([-1]), "Class -1 is out of range"),
        (ForgetClasses(["cc"]), "no class 'cc'"),
        (ForgetClasses([]), "No class to forget"),
        (ForgetClasses(range(4)), "All 4 classes"),
        (ForgetFraction(0.0), "between 0 and 1, got 0.0"),
        (ForgetFraction(1.0), "between 0 and 1, got 1.0"),
        (ForgetFraction(0.001), "nothing to forget"),
        (ForgetSamples([]), "No id to forget"),
        (ForgetSamples(["7", "8", "7"]), "Duplicated ids: '7'"),
        (ForgetSamples(["7", "x9", "x8"]), "not in the training data: 'x8', 'x9'"),
        (ForgetSamples(["7", "t3"]), "never saw 't3': .*test data of toy"),
    ],
)
def test_requests_that_cannot_be(request_: Request, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        request_(DATA)


def test_a_file_of_ids_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no-such.txt cannot be read"):
        ForgetSamples.from_file(tmp_path / "no-such.txt")


def test_what_a_method_sees() -> None:
    scenario = ForgetClasses([1])(DATA, seed=4)
    task = scenario.task()
    assert task.forget.ids.tolist() == DATA.train.ids[scenario.forget.numpy()].tolist()
    assert len(task.retain) == len(scenario.retain)
    assert task.holdout is not None
    assert len(task.holdout) == len(DATA.holdout)
    assert task.seed == 4


def test_descriptions() -> None:
    requests = (
        ForgetClasses([3]),
        ForgetClasses([1, "cat"]),
        ForgetFraction(0.1),
        ForgetSamples(["1", "2"]),
    )
    assert [describe(request) for request in requests] == [
        "class 3",
        "classes 1, cat",
        "10 % of the samples",
        "2 samples",
    ]


@pytest.mark.parametrize("wrong", ["-1", "t20x", "0239"])
def test_no_other_sample_is_suggested_for_an_unknown_id(wrong: str) -> None:
    with pytest.raises(BadInput, match=r"Ids here look like '0'") as caught:
        ForgetSamples([wrong])(DATA)
    assert "mean" not in str(caught.value)


NUMBERED = replace(DATA, classes=("1", "2", "3", "x"))


@pytest.mark.parametrize(
    ("given", "index"), [("1", 0), (1, 1), ("2", 1), ("3", 2), (3, 3), ("0", 0), ("x", 3), (0, 0)]
)
def test_an_int_is_an_index_and_a_text_a_name_first(given: int | str, index: int) -> None:
    assert classes_of(ForgetClasses([given])(NUMBERED)) == {index}


@pytest.mark.parametrize(("word", "stored"), [("1", "1"), ("0", "1"), ("x", "x"), ("3", "3")])
def test_a_word_is_stored_as_a_name_where_a_class_has_it(word: str, stored: int | str) -> None:
    assert class_from_word(word, NUMBERED) == stored
    assert class_from_word("2", replace(DATA, classes=("0", "1", "2", "3"))) == 2


def test_a_name_that_is_the_index_of_another_class_is_described_with_its_own() -> None:
    assert describe(ForgetClasses(["1"]), NUMBERED.classes) == "class '1' (index 0)"
    assert describe(ForgetClasses([1, "x"]), NUMBERED.classes) == "classes '2' (index 1), x"
    assert describe(ForgetClasses([3]), ("a", "b", "c", "d")) == "class d"
    assert describe(ForgetClasses([3, 12]), ("0", "1", "2", "3")) == "classes 3, 12"


@pytest.mark.parametrize("word", ["-1", "9", "1.0", "y", "²"])
def test_a_word_that_is_neither_name_nor_index_is_refused(word: str) -> None:
    with pytest.raises(BadInput):
        class_from_word(word, NUMBERED)
