"""Forgotten samples as the page shows them."""

import torch
from torch import Tensor, nn

from duck.report.samples import choose_forgotten_samples
from tests.toys import class_scenario


class Always(nn.Module):
    """Names one output, whatever it sees."""

    def __init__(self, index: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("logits", torch.eye(outputs)[index])

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.get_buffer("logits").expand(len(images), -1)
        return logits


def test_an_output_without_a_class_is_named_by_its_number() -> None:
    scenario = class_scenario()
    shown = choose_forgotten_samples(scenario, Always(1, 4), Always(11, 12), count=3)
    assert {(sample.before, sample.after) for sample in shown} == {
        (scenario.data.classes[1], "output 11")
    }
