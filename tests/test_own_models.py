"""A user's own model and data set: errors for those that do not fit, classes from the model."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

import duck
from duck.data.torch_dataset import from_dataset
from duck.errors import BadInput
from duck.methods.base import METHODS
from duck.predict import accuracy, outcomes, predict
from duck.unlearning import notes
from tests.toys import CLASSES, TOYS, toy_data, toy_net, trained_net


class Home(nn.Module):
    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        self.out = nn.Linear(48, outputs)
        self.first = nn.Conv2d(1, 8, 3, stride=2)
        self.second = nn.Linear(72, 48)
        self.drop = nn.Dropout(0.1)

    def features(self, x: Tensor) -> Any:
        return self.drop(torch.relu(self.second(torch.relu(self.first(x)).flatten(1))))

    def forward(self, x: Tensor) -> Any:
        return self.out(self.features(x))


DIGITS = load_digits()
IMAGES, LABELS = (
    torch.tensor(DIGITS.images, dtype=torch.float32).unsqueeze(1) / 16,
    torch.tensor(DIGITS.target),
)
TRAIN, TEST = (
    TensorDataset(IMAGES[:1000], LABELS[:1000]),
    TensorDataset(IMAGES[1000:], LABELS[1000:]),
)


@pytest.fixture(scope="module")
def model() -> Home:
    """Trained by the user's own loop."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        net = Home()
        optimizer = torch.optim.Adam(net.parameters(), 5e-3)
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(IMAGES[:1000]), LABELS[:1000]).backward()
            optimizer.step()
    return net.eval()


def without(dataset: TensorDataset, *forgotten: int) -> Subset[Any]:
    return Subset(
        dataset,
        [row for row, label in enumerate(dataset.tensors[1].tolist()) if label not in forgotten],
    )


class Items(Dataset[Any]):
    """Samples changed by a function, labels as they are."""

    def __init__(self, change: Callable[[Tensor], Any], rows: slice = slice(0, 1000)) -> None:
        self.change, self.images, self.labels = change, IMAGES[rows], LABELS[rows]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.change(self.images[index]), int(self.labels[index])


# A second request, when the data of the first are gone


@pytest.mark.parametrize(("first", "second"), [(4, 7), (9, 0), (0, 9)])
def test_a_second_request_after_the_first_class_was_forgotten(
    model: Home, first: int, second: int
) -> None:
    once = duck.forget(model, TRAIN, duck.ForgetClasses([first]), test=TEST)
    twice = duck.forget(once.model, without(TRAIN, first), duck.ForgetClasses([second]), test=TEST)
    assert twice.scenario.data.num_classes == 10
    assert twice.scores.forget < 0.1
    assert twice.scores.retain is not None
    assert twice.scores.retain > 0.95
    assert twice.scores.aus is not None
    assert twice.scores.aus > 0.9
    assert any(f"training samples ({first})" in note for note in twice.notes)
    images, labels = TEST.tensors
    for label in (first, second):
        assert (twice.model(images[labels == label]).argmax(1) == label).double().mean() < 0.1
    text = str(duck.audit(twice))
    assert f"accuracy class {first}" not in text
    assert "accuracy class 5" in text


def test_samples_of_an_absent_class_steer_and_score_nothing(model: Home) -> None:
    result = duck.forget(model, without(TRAIN, 4), range(0, 400, 2), test=TEST)
    scenario = result.scenario
    assert scenario.kind == "samples"
    assert scenario.data.test is not None
    seen = scenario.data.test.labels[torch.cat([scenario.holdout, scenario.test])]
    assert seen.unique().tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert len(seen) == int((TEST.tensors[1] != 4).sum())


def test_an_absent_class_has_nothing_to_forget(model: Home) -> None:
    with pytest.raises(BadInput, match=r"No training sample .*class 4: "):
        duck.forget(model, without(TRAIN, 4), duck.ForgetClasses([4]))
    both = duck.ForgetClasses([4, 7])(
        from_dataset(without(TRAIN, 4), classes=[str(label) for label in range(10)])
    )
    assert both.data.train.labels[both.forget].unique().tolist() == [7]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_data_without_one_of_the_classes(name: str) -> None:
    data = toy_data()
    kept = from_dataset(
        [
            (batch.images[0], int(batch.labels))
            for batch in data.train.batches(1)
            if int(batch.labels) != 1
        ],
        classes=list("abcd"),
    )
    scenario = duck.ForgetClasses([2])(kept)
    assert scenario.data.num_classes == CLASSES
    recipe = duck.Recipe(epochs=2, batch_size=32)
    unlearned = TOYS[name].method("class")(
        trained_net(), scenario.task(new_model=toy_net, recipe=recipe)
    )
    assert outcomes(unlearned, kept.train).losses.isfinite().all()


def test_class_names_may_outnumber_the_classes_present() -> None:
    data = from_dataset(without(TRAIN, 4), TEST, classes=[f"digit {label}" for label in range(10)])
    assert data.classes[7] == "digit 7"
    with pytest.raises(BadInput, match=r"0 to 8 .*9 classes\).* 0, .*9\."):
        from_dataset(without(TRAIN, 4), classes=[str(label) for label in range(9)])


def test_without_a_model_every_class_must_be_there() -> None:
    with pytest.raises(
        BadInput,
        match=r"renumber them.* a trained model .* classes=",
    ):
        from_dataset(without(TRAIN, 4))


# What the model is given


def bytes_of(image: Tensor) -> Tensor:
    return (image * 255).round().to(torch.uint8)


def test_mean_and_std_are_those_of_the_model(model: Home) -> None:
    raw, unseen = Items(bytes_of), Items(bytes_of, slice(1000, None))
    own = duck.forget(model, raw, [1, 2, 3], test=unseen)
    printed = duck.forget(model, raw, [1, 2, 3], test=unseen, mean=[0], std=[1])
    plain = duck.forget(model, TRAIN, [1, 2, 3], test=TEST)
    assert printed.outcome.original.retain == pytest.approx(
        plain.outcome.original.retain, abs=0.003
    )
    assert own.outcome.original.retain is not None
    assert printed.outcome.original.retain is not None
    assert own.outcome.original.retain < printed.outcome.original.retain
    remarks = [note for note in own.notes if "mean=" in note]
    assert re.search(
        r"normalised with mean \(0\.30\d\) and std \(0\.37\d\).* Give mean= and std=",
        remarks[0],
    )
    assert remarks[0] in str(own)
    assert not any("mean=" in note for note in (*printed.notes, *plain.notes))


def test_mean_and_std_that_cannot_be_used(model: Home) -> None:
    with pytest.raises(BadInput, match="has 1 channel:"):
        duck.forget(model, Items(bytes_of), [1], mean=(0.5, 0.5, 0.5), std=(1, 1, 1))
    with pytest.raises(BadInput, match="has 1 channel:"):
        duck.forget(model, Items(bytes_of), [1], mean=(0.5,))
    with pytest.raises(BadInput, match="floats"):
        duck.forget(model, TRAIN, [1], mean=(0.5,), std=(1.0,))
    with pytest.raises(BadInput, match=r"mean=.*std=.*duck\.load"):
        duck.forget(trained_net(), toy_data(), [1], mean=(0.5,), std=(1.0,))


def test_an_original_that_does_not_know_the_data_is_pointed_out(model: Home) -> None:
    turned = TensorDataset(IMAGES[:1000], (LABELS[:1000] + 1) % 10)
    remarks = duck.forget(model, turned, [1, 2, 3], method="finetune").notes
    assert any(
        re.match(
            r"The original classifies only \d % .* mean and std .* order of the classes",
            n,
        )
        for n in remarks
    )
    assert not any(
        "order of the classes" in note
        for note in duck.forget(model, TRAIN, [1, 2, 3], method="finetune").notes
    )


def test_weak_but_real_originals_are_left_alone(model: Home) -> None:
    result = duck.forget(model, without(TRAIN, *range(2, 10)), [1, 2, 3], method="original")

    def asked(right: float) -> bool:
        original = replace(result.outcome.original, forget=right, retain=right)
        return any(
            "order of the classes" in note
            for note in notes(result.scenario, replace(result.outcome, original=original))
        )

    assert [asked(right) for right in (0.0, 0.5, 0.59, 0.62, 1.0)] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_model_with_too_few_outputs() -> None:
    with pytest.raises(BadInput, match=r"to 9, .* has 5"):
        duck.forget(Home(5), TRAIN, [1, 2])
    data = from_dataset(TRAIN)
    for ask in (outcomes, predict):
        with pytest.raises(BadInput, match=r"to 9, .* has 5"):
            ask(Home(5), data.train)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("change", [Tensor.double, lambda x: x.double().numpy()])
def test_floats_take_the_models_precision(model: Home, dtype: torch.dtype, change: Any) -> None:
    net = Home().to(dtype)
    net.load_state_dict(model.state_dict())
    result = duck.forget(
        net.eval(), Items(change), duck.ForgetClasses([3]), test=Items(change, slice(1000, None))
    )
    assert result.scenario.data.train.shape == (1, 8, 8)
    assert result.scores.forget < 0.02
    assert result.scores.retain is not None
    assert result.scores.retain > 0.95
    assert next(result.model.parameters()).dtype == dtype


def test_flat_models_take_matrices_as_they_are() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    result = duck.forget(net, Items(lambda x: x[0]), [1, 2], method="original")
    assert result.scenario.data.train.shape == (8, 8)


@pytest.mark.parametrize(
    ("net", "change", "problem"),
    [
        (
            lambda: Home().double(),
            bytes_of,
            r"torch.float32 of shape .*, its weights are torch.float64.*model\.float\(\)",
        ),
        (
            Home,
            lambda x: (16 * x).long(),
            r"torch.int64 of shape \(\d+, 1, 8, 8\), its weights are torch.float32",
        ),
        (Home, lambda x: x.repeat(3, 1, 1), r"torch.float32 of shape \(\d+, 3, 8, 8\)"),
    ],
)
def test_samples_that_do_not_fit_the_model(
    net: Callable[[], nn.Module], change: Any, problem: str
) -> None:
    with pytest.raises(BadInput, match=rf"model cannot process .*{problem}"):
        duck.forget(net(), Items(change), [1, 2])
    data = from_dataset(Items(change))
    with pytest.raises(BadInput, match=rf"model cannot process .*{problem}"):
        accuracy(net(), data.train)


def test_half_precision_is_named_where_no_copy_in_float32_is_made() -> None:
    problem = (
        r"torch.float32 of shape \(\d+, 1, 8, 8\), its weights are torch.bfloat16.*model\.float\(\)"
    )
    with pytest.raises(BadInput, match=rf"model cannot process .*{problem}"):
        accuracy(Home().bfloat16(), from_dataset(TRAIN).train)


class FeaturesFirst(Home):
    def forward(self, x: Tensor) -> Any:
        return torch.relu(self.first(x)).flatten(1), super().forward(x)


def test_of_a_tuple_the_first_element_is_the_logits() -> None:
    with pytest.raises(
        BadInput,
        match=r"the 72 logits.*first element must",
    ):
        duck.forget(FeaturesFirst(), TRAIN, [1, 2], method="duck")
    with pytest.raises(
        BadInput,
        match=r"'out' has 10 outputs .* 72 logits\. .*first element must",
    ):
        duck.forget(FeaturesFirst(), TRAIN, [1, 2], method="duck", head="out")
    result = duck.forget(FeaturesFirst(), TRAIN, [1, 2], method="finetune")
    assert any("72 outputs" in note for note in result.notes)


# Requests


MASK = torch.zeros(1000, dtype=torch.bool).index_fill(0, torch.tensor([3, 14, 15]), True)


@pytest.mark.parametrize(
    "who",
    [
        MASK,
        MASK.numpy(),
        MASK.tolist(),
        np.array([[3], [14], [15]]),
        torch.tensor([[3], [14], [15]]),
        np.array([3, 14, 15]),
        iter(["3", torch.tensor([14]), np.int64(15)]),
    ],
    ids=[
        "tensor mask",
        "array mask",
        "list mask",
        "array column",
        "tensor column",
        "array",
        "iterator",
    ],
)
def test_many_ways_to_name_samples(model: Home, who: Any) -> None:
    assert duck.forget(model, TRAIN, who, method="original").scenario.forget.tolist() == [3, 14, 15]


@pytest.mark.parametrize(
    ("who", "problem"),
    [
        (MASK[:50], "mask of 50 for 1000 training samples"),
        (np.array([3.0, 14.0]), r"whole numbers or text.* 3\.0"),
        ([3.0], r"whole numbers or text.* 3\.0"),
        ([torch.tensor(3.5)], r"whole numbers or text.* 3\.5"),
        (torch.tensor(3), "forget= takes ids"),
        (np.array(3), "forget= takes ids"),
        (np.zeros((3, 2), int), "forget= takes ids"),
        ([[3], [14]], r"whole numbers or text.*\[3\]"),
        ([True, 3], "mask"),
        (MASK & False, "No id to forget"),
    ],
)
def test_what_names_no_samples(model: Home, who: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        duck.forget(model, TRAIN, who)


@pytest.mark.parametrize("who", [3, np.int64(3), torch.tensor(3), [np.int64(3)], torch.tensor([3])])
def test_one_class_needs_no_list(who: Any) -> None:
    assert duck.ForgetClasses(who) == duck.ForgetClasses([3])
    assert type(duck.ForgetClasses(who).classes[0]) is int


def test_names_of_classes_are_whole_words() -> None:
    assert duck.ForgetClasses("cat").classes == ("cat",)
    with pytest.raises(BadInput, match=r"index or a name.*3\.7"):
        duck.ForgetClasses([3.7])  # type: ignore[list-item]
    assert duck.ForgetSamples(torch.tensor([3])).ids == ("3",)


def test_one_retrained_model_needs_no_list() -> None:
    data = toy_data()
    result = duck.forget(trained_net(), data, duck.ForgetClasses([1]))
    recipe = duck.Recipe(epochs=6, batch_size=32, lr=0.05)
    other = duck.forget(
        trained_net(),
        data,
        duck.ForgetClasses([1]),
        method="retrained",
        new_model=toy_net,
        recipe=recipe,
    )
    assert duck.audit(result, retrained=other.model).tier == "oracle"


# What is said of the result


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_test_samples_to_hold_any_back(model: Home, count: int) -> None:
    few = Subset(TEST, [int((TEST.tensors[1] == label).nonzero()[0]) for label in range(count)])
    result = duck.forget(model, TRAIN, [1, 2, 3], test=few)
    assert any(
        "too few to hold" in note and "compared with retained samples" in note
        for note in result.notes
    )
    assert not any(
        "too few to hold" in note for note in duck.forget(model, TRAIN, [1, 2, 3], test=TEST).notes
    )


def test_the_result_is_ready_to_serve(model: Home) -> None:
    net = Home()
    net.load_state_dict(model.state_dict())
    net.train()
    result = duck.forget(net, TRAIN, [1, 2, 3], test=TEST)
    assert not any(module.training for module in result.model.modules())
    assert all(module.training for module in net.modules())


def test_a_model_whose_weights_are_no_numbers_is_refused() -> None:
    broken = Home()
    with torch.no_grad():
        broken.second.bias[3] = float("nan")
    with pytest.raises(BadInput, match=r"not numbers \(NaN\), in 'second\.bias'"):
        duck.forget(broken, TensorDataset(IMAGES, LABELS), [1, 2, 3])
