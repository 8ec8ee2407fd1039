"""The Debias scenario, and that a planted bias is learned, unlearned and measured."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from duck.analysis import bias
from duck.analysis.attribution import Attribution
from duck.data.examples import Resident
from duck.errors import BadInput
from duck.experiment import Experiment, Training, from_dict, to_dict
from duck.methods.duck import Duck
from duck.records import Environment
from duck.runtime import seeded
from duck.scenarios import Debias, describe
from duck.training import loop
from duck.types import Examples, Original, Scenario
from tests.toys import RECIPE, toy_data, toy_net

DATA = toy_data()
DEBIAS = Debias(true="c", wrong=3, count=20, patch=2)


def corner(part: Examples) -> torch.Tensor:
    """Which images carry the patch."""
    assert isinstance(part, Resident)
    return (part.images[part.rows][:, 0, :2, 6:] == 255).all(2).all(1)


@cache
def scenario() -> Scenario:
    return DEBIAS(DATA, seed=1)


@cache
def freed() -> bias.RemovalOutcome:
    biased = toy_net()
    loop.train(biased, scenario().data.train, RECIPE, seeded(0, "biased"))
    method = Duck(batch_size=64, lr=1e-2, low_batch=32, target_class=2)
    return bias.remove_bias(DEBIAS, scenario(), Original(biased, toy_net, RECIPE), method)


def test_patched_mislabelled_and_forgotten_samples() -> None:
    train, clean = scenario().data.train, DATA.train
    patched = corner(train)
    assert int(patched.sum()) == 40
    assert torch.equal((clean.labels != train.labels).nonzero().flatten(), scenario().forget)
    assert clean.labels[scenario().forget].tolist() == [2] * 20
    assert train.labels[scenario().forget].tolist() == [3] * 20
    assert patched[scenario().forget].all()
    confounders = patched & (clean.labels == 3)
    assert int(confounders.sum()) == 20
    assert not torch.isin(confounders.nonzero().flatten(), scenario().forget).any()
    assert not corner(clean).any()
    assert scenario().kind == "samples"


def test_the_seed_draws_and_the_corrected_data_keep_the_patches() -> None:
    assert torch.equal(DEBIAS(DATA, 1).forget, scenario().forget)
    assert not torch.equal(DEBIAS(DATA, 2).forget, scenario().forget)
    corrected = DEBIAS.corrected(scenario()).train
    assert torch.equal(corrected.labels, DATA.train.labels)
    assert torch.equal(corner(corrected), corner(scenario().data.train))


def test_unseen_images_are_of_the_true_class_and_of_no_stop_rule() -> None:
    unseen, clean = DEBIAS.unseen(scenario()), DEBIAS.unseen(scenario(), patched=False)
    assert DATA.test is not None
    assert set(unseen.labels.tolist()) == {2}
    assert not set(unseen.ids) & set(DATA.test.ids[DATA.holdout.numpy()])
    assert corner(unseen).all()
    assert not corner(clean).any()
    assert unseen.ids.tolist() == clean.ids.tolist()
    assert not corner(scenario().data.test.take(scenario().test)).any()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("debias", "message"),
    [
        (Debias(2, "c"), "both are 'c'"),
        (Debias(2, 4), "Class 4 is out of range"),
        (Debias(2, 3, count=60, patch=2), "60 of the 60 training images of class 'c'"),
        (Debias(2, 3, count=0, patch=2), "0 of the 60"),
        (Debias(2, 3, count=5, patch=9), "does not fit"),
    ],
)
def test_biases_that_cannot_be(debias: Debias, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        debias(DATA)


def test_without_unseen_images_there_is_nothing_to_show() -> None:
    with pytest.raises(BadInput, match="images of class 'c'"):
        DEBIAS.unseen(replace(scenario(), test=torch.tensor([0])))


def test_it_survives_being_written() -> None:
    experiment = Experiment(Training("toy", "convnet"), DEBIAS, Duck(target_class=2))
    assert from_dict(to_dict(experiment)) == experiment
    assert describe(DEBIAS).startswith("20 patched images of class ")
    assert describe(DEBIAS).endswith(" c labelled 3")


def test_presets_of_class_removal_with_the_true_class_as_target() -> None:
    method = bias.debias_method(DEBIAS, replace(DATA, name="cifar10"), "paper")
    assert method == Duck(target_class=2)
    tuned = bias.debias_method(DEBIAS, replace(DATA, name="cifar10"))
    assert (tuned.check_every, tuned.lr, tuned.lambda_forget) == (5, 5e-4, 1.5)


def test_the_bias_is_learned_and_unlearned() -> None:
    shares = bias.measure_shares(DEBIAS, scenario(), freed().models)
    assert shares["biased"].wrong.share >= 0.95
    assert shares["duck"].right.share >= 0.95
    assert shares["corrected"].right.share >= 0.95
    assert freed().outcome.original.forget >= 0.95
    assert freed().outcome.scores.forget < 0.01
    assert freed().outcome.processed == 20
    for one in shares.values():
        assert one.right_without_patch.share >= 0.95
        assert one.test is not None
        assert one.test >= 0.95
        assert one.n == 40
        low, high = one.wrong.interval
        assert low <= one.wrong.share <= high
        assert high - low > 0.05


def record_of(
    removal: bias.RemovalOutcome, attributions: dict[str, Attribution]
) -> bias.RemovalRecord:
    return bias.make_record(
        DEBIAS,
        scenario(),
        removal,
        attributions,
        train_seconds=1.0,
        preset="tuned",
        method={},
        model="toynet",
        recipe={},
        fingerprint="",
        environment=Environment("3.11", {}, "Linux", "cpu"),
        created="",
        command="",
    )


def test_the_squares_shap_value_falls() -> None:
    found = bias.explain_models(DEBIAS, scenario(), freed().models, images=12)
    row = record_of(freed(), found)
    shap = row.shap
    assert shap is not None
    assert shap.n == 12
    # At most the whole probability, spread over four pixels.
    assert 0.1 < shap.mean["biased"] <= 0.26
    assert abs(shap.mean["duck"]) < shap.mean["biased"] / 5
    assert shap.factor["duck"] is not None
    assert shap.factor["duck"] > 5
    test = shap.tests["biased - duck"]
    assert test.p == test.least_p == 2.0**-11
    assert shap.incomplete == {"biased": 0, "duck": 0, "corrected": 0}
    (note,) = row.notes
    assert "40 unseen images" in note
    assert (row.true, row.wrong, row.seed, row.n) == ("c", "d", 1, 40)


def test_the_value_of_the_square_is_that_of_its_pixels_with_channels_together() -> None:
    values = torch.zeros(2, 3, 8, 8)
    values[0, :, :2, 6:] = 0.5
    values[0, :, 2:, :6] = 9.0
    values[1, 1, 0, 7] = -0.8
    found = Attribution(values, torch.zeros(2), torch.zeros(2), 0.01)
    assert bias.patch_values(DEBIAS, found).tolist() == pytest.approx([1.5, -0.2])


def test_the_notes_say_what_did_not_work() -> None:
    stuck = replace(freed().outcome, scores=replace(freed().outcome.scores, forget=0.5))
    one = Attribution(torch.zeros(1, 1, 8, 8), torch.ones(1), torch.zeros(1), 0.01)
    notes = record_of(replace(freed(), outcome=stuck), dict.fromkeys(bias.MODELS, one)).notes
    assert "50.0 % of the mislabelled images" in notes[0]
    assert notes[2].startswith("SHAP values")
    assert "{'biased': 1, " in notes[2]
