"""Bad Teacher against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from duck.errors import BadInput
from duck.methods._distillation import divergence
from duck.methods.bad_teacher import BadTeacher
from duck.types import Batch, Examples
from tests.toys import class_scenario, toy_net, toy_task, trained_net


def constant(first: float, second: float) -> nn.Module:
    """Two logits that do not depend on the input."""
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([first, second]))
    return net


def test_each_sample_learns_from_its_own_teacher() -> None:
    # Student (1/2, 1/2). Bad teacher (3/4, 1/4), good teacher (1/5, 4/5).
    student, bad, good = constant(0.0, 0.0), constant(math.log(3), 0.0), constant(0.0, math.log(4))
    from_bad = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    from_good = 0.2 * math.log(0.4) + 0.8 * math.log(1.6)
    # Rows 0 and 1 are the forget samples.
    batch = Batch(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64), torch.tensor([4, 1, 2]))
    loss = BadTeacher().loss(student, good, bad, {"mixed": batch}, forget_count=2)
    assert loss.item() == pytest.approx((from_good + from_bad + from_good) / 3, rel=1e-5)


def test_only_a_share_of_the_retain_samples_is_drawn_and_the_same_in_every_epoch() -> None:
    task = toy_task(class_scenario())
    retain, drawn = task.retain.counting()
    method = BadTeacher(epochs=4, batch_size=32, retain_share=0.3)
    method(trained_net(), replace(task, retain=retain))
    assert int(drawn.sum()) == round(0.3 * len(task.retain))


def test_forget_samples_come_near_the_random_net_and_retain_samples_stay_near_the_original() -> (
    None
):
    task, original, random = toy_task(class_scenario()), trained_net(), toy_net().eval()
    unlearned = BadTeacher(lr=3e-3, batch_size=32, epochs=8)(original, task)

    @torch.no_grad()
    def apart(teacher: nn.Module, student: nn.Module, samples: Examples) -> float:
        images = next(iter(samples.batches(1000))).images
        return float(divergence(teacher(images), student(images)))

    assert apart(random, unlearned, task.forget) < 0.2 * apart(random, original, task.forget)
    assert apart(original, unlearned, task.retain) < 0.2 * apart(random, unlearned, task.retain)


def test_it_needs_a_net_to_start_from_and_a_share_to_keep() -> None:
    task = toy_task(class_scenario())
    with pytest.raises(BadInput, match="pass new_model="):
        BadTeacher()(trained_net(), replace(task, new_model=None))
    with pytest.raises(BadInput, match=r"retain_share .*\(0, 1\], got 0"):
        BadTeacher(retain_share=0.0)(trained_net(), task)
