"""SCRUB against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from duck.errors import BadInput
from duck.methods._distillation import divergence, frozen_copy
from duck.methods.scrub import Scrub, _History
from duck.predict import accuracy
from duck.training.batching import ConsecutivePasses, ShuffledPass
from duck.types import Batch, Progress, Task
from tests.methods.test_duck import points
from tests.toys import class_scenario, samples_scenario, toy_data, toy_task, trained_net


def logits(*rows: tuple[float, float]) -> torch.Tensor:
    return torch.tensor(rows)


def linear(weight: torch.Tensor) -> nn.Linear:
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(weight)
    return net


# Teacher (3/4, 1/4), student (1/2, 1/2): KL = 3/4 log(3/2) + 1/4 log(1/2); the other way round 1/2
# log(2/3) + 1/2 log 2.
KL = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)


def test_the_divergence_is_that_of_the_student_from_the_teacher_meant_over_the_batch() -> None:
    teacher, student = logits((math.log(3), 0.0), (1.0, 1.0)), logits((0.0, 0.0), (5.0, 5.0))
    assert divergence(teacher, student).item() == pytest.approx(KL / 2, rel=1e-5)
    # At temperature 2 the logits are halved and the result is times 4.
    assert divergence(2 * teacher, 2 * student, 2.0).item() == pytest.approx(4 * KL / 2, rel=1e-5)


def test_the_loss_pushes_away_on_forget_and_holds_on_retain() -> None:
    student, teacher = (
        linear(torch.zeros(2, 2)),
        linear(torch.tensor([[2 * math.log(3), 0.0], [0.0, 0.0]])),
    )
    batch = Batch(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.tensor([0]))
    scrub = Scrub(temperature=2.0, alpha=0.5, gamma=3.0)
    assert scrub.loss(student, teacher, {"forget": batch}).item() == pytest.approx(
        -4 * KL, rel=1e-5
    )
    assert scrub.loss(student, teacher, {"retain": batch}).item() == pytest.approx(
        0.5 * 4 * KL + 3 * math.log(2), rel=1e-5
    )


def test_maximising_and_minimising_steps_by_hand() -> None:
    """Two epochs with a forget step and a retain step share one momentum; the third has its own."""
    forget, retain = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    task = Task(points([(1.0, 2.0)], [0]), points([(2.0, 1.0)], [1]), None, 2)
    scrub = Scrub(lr=0.1, epochs=3, forget_epochs=2, alpha=0.5, gamma=2.0, temperature=2.0)
    unlearned = replace(scrub, momentum=0.9, weight_decay=0.1)(linear(torch.eye(2)), task)
    weight = torch.eye(2)

    def away(image: torch.Tensor) -> torch.Tensor:
        """The slope of the divergence at temperature 2 from the original, whose logits are the
        image itself."""
        change = (weight @ image / 2).softmax(0) - (image / 2).softmax(0)
        return 2 * torch.outer(change, image)

    for steps in (["forget", "retain", "forget", "retain"], ["retain"]):
        momentum = torch.zeros(2, 2)
        for step in steps:
            if step == "forget":
                slope = -away(forget)
            else:
                wrong = (weight @ retain).softmax(0) - torch.tensor([0.0, 1.0])
                slope = 0.5 * away(retain) + 2.0 * torch.outer(wrong, retain)
            momentum = 0.9 * momentum + slope + 0.1 * weight
            weight = weight - 0.1 * momentum
    torch.testing.assert_close(unlearned.state_dict()["weight"], weight)


def test_forget_batches_come_first_and_all_samples_come() -> None:
    forget, retain = (
        toy_data().train.take(torch.arange(10)),
        toy_data().train.take(torch.arange(10, 40)),
    )
    plan = ConsecutivePasses(ShuffledPass("forget", forget, 8), ShuffledPass("retain", retain, 10))
    steps = list(plan.epoch(torch.Generator().manual_seed(0)))
    assert [name for step in steps for name in step] == ["forget"] * 2 + ["retain"] * 3
    assert len(plan) == 5
    assert set(torch.cat([step["forget"].rows for step in steps[:2]]).tolist()) == set(range(10))


def test_epochs_with_and_without_the_forget_pass_share_one_learning_rate_schedule() -> None:
    heard: list[tuple[str, int, int]] = []

    def report(news: Progress) -> None:
        if news.is_epoch_end:
            heard.append((news.phase, news.epoch, news.steps))

    task = toy_task(class_scenario(), report=report)
    scrub = Scrub(lr=5e-3, batch_size=60, forget_batch=30, epochs=4, forget_epochs=2)
    scrub(trained_net(), task)
    assert heard == [("max-min", 1, 5), ("max-min", 2, 5), ("min", 1, 3), ("min", 2, 3)]
    # The rate falls to nothing after the third epoch: the fourth changes no weight.
    three, four = (
        replace(scrub, epochs=epochs, milestones=(3,), decay=0.0, weight_decay=0.0)(
            trained_net(), task
        ).state_dict()["head.weight"]
        for epochs in (3, 4)
    )
    assert torch.equal(three, four)


def test_the_forget_pass_is_what_forgets() -> None:
    scenario = class_scenario()
    task = toy_task(scenario)
    scrub = Scrub(lr=5e-3, batch_size=32, forget_batch=64, epochs=3, forget_epochs=3)
    assert accuracy(scrub(trained_net(), task), task.forget) <= 0.1
    assert accuracy(replace(scrub, lr=1e-6)(trained_net(), task), task.forget) >= 0.9


@pytest.mark.parametrize("forget_epochs", [0, 4])
def test_forget_epochs_must_be_some_of_the_epochs(forget_epochs: int) -> None:
    with pytest.raises(BadInput, match=r"forget_epochs .*1 to .*\(3\)"):
        Scrub(forget_epochs=forget_epochs)(trained_net(), toy_task(class_scenario()))


def test_a_lone_sample_passes_a_net_that_normalises_single_pixels() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    teacher = frozen_copy(net)
    batch = Batch(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.tensor([0]))
    before = net[1].running_mean.clone()  # type: ignore[operator]
    assert Scrub().loss(net.train(), teacher, {"forget": batch}).isfinite()
    assert torch.equal(net[1].running_mean, before)  # type: ignore[arg-type]
    assert net[1].training
    assert not any(p.requires_grad for p in teacher.parameters())


def test_rewind_takes_the_epoch_closest_to_the_accuracy_on_unseen_samples() -> None:
    """Forget accuracies of three epochs 1, 0.5 and 0; at the end half of the unseen samples of
    class 0 are right."""
    forget, holdout = (
        points([(1.0, 0.0), (3.0, 0.0)], [0, 0]),
        points([(1.0, 0.0), (9.0, 0.0), (9.0, 0.0)], [0, 0, 1]),
    )
    net = nn.Linear(2, 2)
    task = Task(forget, points([(0.0, 1.0)], [1]), holdout, 2)
    history = _History(net, task)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, 0.0], [-1.0, 0.0]]))
        for threshold in (0.5, 2.0, 5.0):
            net.bias.copy_(
                torch.tensor([0.0, threshold])
            )  # a sample is of class 0 where its first number is above
            assert history.record() is False
        history.rewind()
    assert net.bias.tolist() == [0.0, 2.0]


def test_rewind_gives_the_weights_of_an_epoch_and_needs_holdout_samples() -> None:
    task = toy_task(samples_scenario())
    scrub = Scrub(lr=5e-3, batch_size=32, forget_batch=16, epochs=3, forget_epochs=1, rewind=True)
    rewound = scrub(trained_net(), task).state_dict()["head.weight"]
    ends = [
        replace(scrub, epochs=epochs, rewind=False)(trained_net(), task).state_dict()["head.weight"]
        for epochs in (1, 2, 3)
    ]
    assert sum(torch.equal(rewound, end) for end in ends) == 1
    with pytest.raises(BadInput, match="rewind needs holdout samples"):
        scrub(trained_net(), replace(task, holdout=None))
