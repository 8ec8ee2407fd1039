"""Recorded steps train as plain ones do. Needs a GPU; elsewhere `fit` never records."""

import pytest
import torch
from torch import Tensor, nn

from duck.runtime import seeded
from duck.training.batching import ConsecutivePasses, ShuffledPass, Step
from duck.training.loop import fit
from duck.types import Recipe
from tests.toys import ToyNet, toy_data, toy_net

pytestmark = pytest.mark.gpu

RECIPES = {
    "sgd": Recipe(epochs=3, batch_size=32, lr=0.05, nesterov=True, precision="float32"),
    "adam": Recipe(
        epochs=3, batch_size=32, lr=1e-3, optimizer="adam", schedule="cosine", precision="float32"
    ),
    "bfloat16": Recipe(
        epochs=3, batch_size=32, lr=0.05, schedule="step", milestones=(1,), precision="bfloat16"
    ),
}


def trained(
    recipe: Recipe,
    capturable: bool,
    net: nn.Module | None = None,
    masks: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """After two shapes of batches in each epoch, on the GPU."""
    torch.manual_seed(0)
    model, data = (net or toy_net()).cuda(), toy_data().train.to("cuda")
    for module in model.modules():
        if isinstance(module, ToyNet):
            module.dropout = 0.0  # its random numbers are others in a recording

    def loss(net: nn.Module, step: Step) -> Tensor:
        ((name, batch),) = step.items()
        value = nn.functional.cross_entropy(net(batch.images).float(), batch.labels)
        return value if name == "large" else 0.1 * value

    batches = ConsecutivePasses(ShuffledPass("large", data, 32), ShuffledPass("small", data, 24))
    fit(model, batches, loss, recipe, seeded(0), masks=masks, capturable=capturable)
    return {name: value.detach().float().cpu() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recorded_training_gives_the_weights_of_a_plain_one(name: str) -> None:
    plain, recorded = trained(RECIPES[name], False), trained(RECIPES[name], True)
    again = trained(RECIPES[name], False)
    for key, value in plain.items():
        spread = (value - again[key]).abs().max()  # the device itself is not exact
        assert (
            value - recorded[key]
        ).abs().max() <= 10 * spread + 1e-2 * value.abs().max() + 1e-4, key


def test_masked_weights_hold_in_a_recording() -> None:
    net = toy_net()
    before = net.head.weight.detach().clone()
    after = trained(
        RECIPES["sgd"], True, net, {"head.weight": torch.zeros_like(before, dtype=torch.bool)}
    )
    assert torch.equal(after["head.weight"], before)


class Asking(nn.Module):
    """Asks the host in each forward, which no recording can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.net = toy_net()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return logits if logits.isfinite().all().item() else logits.nan_to_num()


def test_a_model_that_asks_the_host_trains_all_the_same() -> None:
    torch.manual_seed(0)
    plain = trained(RECIPES["sgd"], False, Asking())
    torch.manual_seed(0)
    recorded = trained(RECIPES["sgd"], True, Asking())
    assert max(float((value - recorded[key]).abs().max()) for key, value in plain.items()) < 0.1
    # And the device is sound after: the next training records again.
    assert all(value.isfinite().all() for value in trained(RECIPES["adam"], True).values())


def test_trainings_one_after_another_need_no_more_memory() -> None:
    used = []
    for _ in range(4):
        trained(RECIPES["sgd"], True)
        torch.cuda.synchronize()
        used.append(torch.cuda.memory_allocated())
    assert used[-1] <= used[1]
