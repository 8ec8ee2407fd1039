"""AMUN: the attack and one step against numbers worked out by hand, and what it leaves alone."""

import pytest
import torch
from torch import Tensor, nn

from duck.errors import BadInput
from duck.methods._stopping import loss_auc
from duck.methods.amun import Amun
from duck.predict import accuracy
from duck.types import Recipe, Task
from tests.methods.test_delete import NoData
from tests.methods.test_duck import points
from tests.toys import TOYS, samples_scenario, toy_task, trained_net

WEIGHT = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
BIAS = torch.tensor([0.14, -0.14])
FORGET = [(1.0, 1.0), (-1.0, -1.0)]
LABELS = [0, 1]
ADVERSARIAL = torch.tensor([[-0.2, 1.0], [-0.1, -1.0]])


def half_plane() -> nn.Linear:
    """A net that predicts class 0 to the right of -0.14."""
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(WEIGHT)
        net.bias.copy_(BIAS)
    return net


def plane_task(labels: list[int], notes: list[str] | None = None) -> Task:
    forget = points(FORGET, labels)
    note = (notes if notes is not None else []).append
    return Task(forget, NoData(), None, 2, recipe=Recipe(precision="float32"), note=note)


@pytest.mark.parametrize("steps", [10, 15])
def test_the_radius_grows_until_the_prediction_changes(steps: int) -> None:
    # The extent is 2, so that a radius of 0.25 is 0.5 here. The first sample is at 0.5 after a
    # radius of 0.25 and at 0 after one of 0.5. In the next, a step is 0.2: it is at -0.2, which is
    # class 1. The second is at -0.5, then makes four steps of 0.1 to -0.1, which is class 0.
    # Further steps do not leave the radius.
    method = Amun(radius=0.25, attack_steps=steps)
    found = method.adversarial_examples(half_plane(), plane_task(LABELS))
    torch.testing.assert_close(found.images, ADVERSARIAL)
    assert found.labels.tolist() == [1, 0]
    assert len({*found.ids, "0", "1"}) == 4


def test_one_step_by_hand_without_retain_samples() -> None:
    method = Amun(
        radius=0.25, attack_steps=10, lr=0.5, epochs=1, batch_size=4, momentum=0.0, weight_decay=0.0
    )
    unlearned = method(half_plane(), plane_task(LABELS))
    images = torch.cat([torch.tensor(FORGET), ADVERSARIAL])
    labels = torch.tensor([*LABELS, 1, 0])
    probabilities = (images @ WEIGHT.T + BIAS).softmax(1)
    slopes = (probabilities - torch.eye(2)[labels]) / 4
    state = unlearned.state_dict()
    torch.testing.assert_close(state["weight"], WEIGHT - 0.5 * slopes.T @ images)
    torch.testing.assert_close(state["bias"], BIAS - 0.5 * slopes.sum(0))


def test_a_misclassified_sample_is_its_own_adversarial_example() -> None:
    found = Amun().adversarial_examples(half_plane(), plane_task([1, 0]))
    assert found.images.tolist() == [list(point) for point in FORGET]
    assert found.labels.tolist() == [0, 1]


class Constant(nn.Module):
    """Predicts class 0 wherever the second coordinate is below 0.5, however far one goes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, images: Tensor) -> Tensor:
        above = (images[:, 1] > 0.5).to(images)
        zeros: Tensor = 0 * self.head(images)
        return torch.stack([1 - above, above], 1) + zeros


def test_samples_without_an_adversarial_example_are_noted() -> None:
    notes: list[str] = []
    # The first is misclassified from the start, and the second cannot be moved.
    found = Amun(attack_steps=1).adversarial_examples(Constant(), plane_task([0, 0], notes))
    assert found.images.tolist() == [[1.0, 1.0]]
    assert [note.split(" forget")[0][-6:] for note in notes] == ["1 of 2"]


def test_a_model_that_no_image_changes_is_an_error() -> None:
    with pytest.raises(BadInput, match="AMUN cannot"):
        Amun(attack_steps=1).adversarial_examples(Constant(), plane_task([1, 0]))


@pytest.mark.parametrize("method", [Amun(attack_steps=0), Amun(radius=0.0)])
def test_an_attack_without_steps_is_an_error(method: Amun) -> None:
    with pytest.raises(BadInput):
        method.adversarial_examples(half_plane(), plane_task(LABELS))


def test_a_single_point_cannot_be_moved() -> None:
    task = Task(points([(1.0, 1.0)], [0]), NoData(), None, 2, recipe=Recipe(precision="float32"))
    with pytest.raises(BadInput, match="AMUN cannot"):
        Amun(attack_steps=1).adversarial_examples(half_plane(), task)


def test_losses_of_forget_samples_rise_towards_those_of_unseen_samples() -> None:
    original, task = trained_net(), toy_task(samples_scenario())
    assert task.holdout is not None
    before = loss_auc(original, task.holdout, task)
    unlearned = TOYS["amun"].method("samples")(original, task)
    assert loss_auc(unlearned, task.holdout, task) > before + 0.05
    assert accuracy(unlearned, task.retain) >= 0.95
    assert accuracy(unlearned, task.holdout) >= 0.95
