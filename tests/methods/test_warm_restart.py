"""Warm restart: one learning-rate cycle on the retain samples, from the original's weights."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from duck.methods.warm_restart import WarmRestart
from duck.types import Recipe, Task
from tests.methods.test_duck import points
from tests.toys import RECIPE, ToyNet, class_scenario, head_of, toy_task, trained_net

START = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
FRESH = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-0.5, 0.5]])
PLAIN = Recipe(batch_size=2, lr=0.5, momentum=0.0, weight_decay=0.0, epochs=40)


def linear(weight: Tensor = START) -> nn.Linear:
    net = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        net.weight.copy_(weight)
    return net


def unit_task(**rest: object) -> Task:
    """The retain points are the unit vectors, so their logits are the columns of the weights."""
    forget, retain = points([(5.0, 5.0)], [2]), points([(1.0, 0.0), (0.0, 1.0)], [0, 1])
    given = {"forget": forget, "retain": retain, "recipe": PLAIN, **rest}
    return Task(holdout=None, num_classes=3, **given)  # type: ignore[arg-type]


def weight_of(method: WarmRestart, task: Task) -> Tensor:
    weight: Tensor = method(linear(), task).state_dict()["weight"]
    return weight


def slope(weight: Tensor) -> Tensor:
    return (weight.softmax(0) - torch.eye(3)[:, :2]) / 2


def test_one_cycle_by_hand() -> None:
    unlearned = WarmRestart(epochs=3, peak=2.0, warmup=0.5, fresh_rows=False)(linear(), unit_task())
    weight = START
    # Three steps. The rate rises in 1.5 steps to 2 x 0.5 and falls to 0 at the last one.
    for rate in (2 / 3, 1.0, 0.0):
        weight = weight - rate * slope(weight)
    torch.testing.assert_close(unlearned.state_dict()["weight"], weight)


def test_weights_are_mixed_with_fresh_ones_before_the_cycle() -> None:
    task = unit_task(new_model=lambda: linear(FRESH))
    unlearned = WarmRestart(epochs=1, shrink=0.3, fresh_rows=False)(linear(), task)
    weight = 0.7 * START + 0.3 * FRESH
    torch.testing.assert_close(unlearned.state_dict()["weight"], weight - 0.5 * slope(weight))


def test_the_row_of_a_forgotten_class_is_drawn_afresh() -> None:
    # The rate is 0 at the only step, so that the weights are those at the start.
    still = replace(PLAIN, lr=0.0)
    rows = [
        weight_of(WarmRestart(epochs=1), replace(unit_task(recipe=still), seed=seed))
        for seed in (0, 0, 1)
    ]
    for weight in rows:
        assert weight[:2].equal(START[:2])
        assert weight[2].abs().max() <= 2**-0.5  # the bound of torch for two inputs
    assert not rows[0][2].equal(START[2])
    assert rows[0][2].equal(rows[1][2])
    assert not rows[0][2].equal(rows[2][2])
    single = points([(5.0, 5.0)], [1])
    kept = weight_of(WarmRestart(epochs=1), replace(unit_task(recipe=still), forget=single))
    assert kept.equal(START)


def test_only_rows_of_whole_classes_are_drawn_afresh() -> None:
    still = replace(PLAIN, lr=0.0)
    retain = points([(1.0, 0.0)], [0])
    forget = points([(5.0, 5.0), (1.0, 2.0), (2.0, 1.0)], [2, 1, 0])
    both = weight_of(WarmRestart(epochs=1), unit_task(recipe=still, forget=forget, retain=retain))
    assert both[0].equal(START[0])
    assert not (both[1:] == START[1:]).any()


def test_a_row_is_drawn_afresh_after_the_mixture_and_with_its_bias() -> None:
    task = unit_task(recipe=replace(PLAIN, lr=0.0), new_model=lambda: linear(FRESH))
    drawn, mixed = (weight_of(WarmRestart(epochs=1, shrink=share), task) for share in (0.0, 0.3))
    assert mixed[2].equal(drawn[2])
    torch.testing.assert_close(mixed[:2], 0.7 * START[:2] + 0.3 * FRESH[:2])
    net = nn.Linear(2, 3)
    bias = WarmRestart(epochs=1)(net, task).state_dict()["bias"]
    assert (bias == net.bias).tolist() == [True, True, False]


class Wrapped(nn.Module):
    """A head that reads two features."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sigmoid()
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


class Cosine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(START.clone())

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.linear(features, nn.functional.normalize(self.weight))


class Scaled(nn.Linear):
    """A linear layer with a weight that is no row of a class."""

    def __init__(self) -> None:
        super().__init__(2, 3)
        self.scale = nn.Parameter(torch.full((1,), 2.0))

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) * self.scale


def redrawn(head: nn.Module, name: str | None = None) -> tuple[list[bool], list[str]]:
    """Return which columns of the logits a cycle with rate 0 turned, and the notes."""
    notes: list[str] = []
    net = Wrapped(head).eval()
    task = unit_task(recipe=replace(PLAIN, lr=0.0), head=name, note=notes.append)
    unlearned = WarmRestart(epochs=1)(net, task)
    images = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        change = unlearned(images) - net(images)
    # A new bias alone would move all images alike.
    return (change.std(0) > 1e-5).tolist(), notes


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (lambda: nn.Linear(2, 3), "head"),
        (lambda: nn.Sequential(nn.Dropout(), nn.Linear(2, 3)), None),
        (lambda: nn.Sequential(nn.Dropout(), nn.Linear(2, 3)), "head"),
        (lambda: nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3)), "head"),
        (lambda: nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3)), "head.0"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), None),
        (Scaled, None),
    ],
)
def test_the_row_is_drawn_afresh_in_any_affine_head(
    head: Callable[[], nn.Module], name: str | None
) -> None:
    assert redrawn(head(), name) == ([False, False, True], [])


def test_the_row_is_drawn_afresh_among_outputs_without_a_class() -> None:
    assert redrawn(nn.Linear(2, 5)) == ([False, False, True, False, False], [])


def test_a_note_says_that_a_row_was_not_drawn_afresh() -> None:
    frozen = nn.Linear(2, 3).requires_grad_(False)
    body = nn.Linear(2, 2)
    # The unnamed head is not found.
    heads = ((Cosine(), "head"), (Cosine(), None), (nn.Sequential(body, frozen), None))
    for head, name in heads:
        columns, notes = redrawn(head, name)
        assert columns == [False, False, False]
        assert len(notes) == 1


def test_the_size_of_a_batch_can_differ_from_the_originals() -> None:
    whole, halves = (
        weight_of(WarmRestart(epochs=1, warmup=0.0, fresh_rows=False, batch_size=size), unit_task())
        for size in (0, 1)
    )
    # One step with the full rate, and two of which the first has it.
    torch.testing.assert_close(whole, START - 0.5 * slope(START))
    assert not halves.allclose(whole)


def test_distillation_keeps_the_originals_outputs() -> None:
    unlearned = WarmRestart(epochs=3, distillation=1.0, fresh_rows=False)(linear(), unit_task())
    torch.testing.assert_close(unlearned.state_dict()["weight"], START)


def test_the_last_weights_are_averaged() -> None:
    unlearned = WarmRestart(epochs=3, warmup=0.5, average=2, fresh_rows=False)(
        linear(), unit_task()
    )
    first = START - (1 / 3) * slope(START)
    second = first - 0.5 * slope(first)
    # The rate of the third step is 0, so that two equal weights are averaged.
    torch.testing.assert_close(unlearned.state_dict()["weight"], second)
    longer = WarmRestart(epochs=3, warmup=0.5, average=3, fresh_rows=False)(linear(), unit_task())
    mean = (first + 2 * second) / 3
    torch.testing.assert_close(longer.state_dict()["weight"], mean)


def test_averaged_weights_get_their_own_statistics() -> None:
    class Normalised(ToyNet):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(1)

        def forward(self, images: Tensor) -> Tensor:
            return super().forward(self.norm(images))

    # Equal batches: each counts the same in the running mean.
    task = toy_task(class_scenario(), recipe=replace(RECIPE, batch_size=36))
    unlearned = WarmRestart(epochs=2, average=2)(Normalised().eval(), task)
    images = next(task.retain.batches(len(task.retain))).images
    norm = unlearned.get_submodule("norm")
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    torch.testing.assert_close(norm.running_mean, images.mean((0, 2, 3)), atol=1e-4, rtol=0)
    assert not unlearned.training


@pytest.mark.parametrize("change", [{"lr": 0.02}, {"optimizer": "adam"}, {"batch_size": 16}])
def test_the_recipe_of_the_original_is_used(change: dict[str, object]) -> None:
    def head(recipe: Recipe) -> Tensor:
        task = toy_task(class_scenario(), recipe=recipe)
        return head_of(WarmRestart(epochs=1)(trained_net(), task)).weight.detach()

    assert not torch.equal(head(RECIPE), head(replace(RECIPE, **change)))  # type: ignore[arg-type]


def test_epochs_and_schedule_of_the_original_do_not_count() -> None:
    def head(recipe: Recipe) -> Tensor:
        task = toy_task(class_scenario(), recipe=recipe)
        return head_of(WarmRestart(epochs=1)(trained_net(), task)).weight.detach()

    other = replace(RECIPE, epochs=3, schedule="cosine", warmup=0.1)
    assert torch.equal(head(RECIPE), head(other))
