"""The smallest data and net on which the real code can fail: nested, with BatchNorm, dropout and a
functional forward."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from duck.data.examples import Pixels, Resident, examples
from duck.methods.base import METHODS, Method
from duck.runtime import seeded
from duck.scenarios import ForgetClasses, ForgetFraction
from duck.training import loop
from duck.types import Data, Original, Recipe, Scenario, Task

CLASSES = 4
RECIPE = Recipe(epochs=12, batch_size=32, lr=0.05, schedule="cosine")


def toy_examples(count: int, seed: int, prefix: str = "") -> Resident:
    """Noisy 8x8 patches whose bright quarter is the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    images = torch.randint(0, 120, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    for index, label in enumerate(labels.tolist()):
        down, right = 4 * (label // 2), 4 * (label % 2)
        images[index, :, down : down + 4, right : right + 4] += 70
    ids = np.array([f"{prefix}{index}" for index in range(count)])
    return examples(images, labels, ids, Pixels((0.3,), (0.2,)))


@cache
def toy_data(count: int = 240) -> Data:
    test = toy_examples(200, seed=1, prefix="t")
    return Data(
        "toy", toy_examples(count, seed=0), test, ("a", "b", "c", "d"), torch.arange(0, 200, 5)
    )


class Block(nn.Module):
    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        # Defined in another order than they run, and before the head of the outer net.
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(inputs, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(images)))


class ToyNet(nn.Module):
    def __init__(self, classes: int = CLASSES, dropout: float = 0.1) -> None:
        super().__init__()
        self.head = nn.Linear(12, classes)
        self.blocks = nn.ModuleDict({"outer": nn.ModuleList([Block(1, 8), Block(8, 12)])})
        self.dropout = dropout

    def forward(self, images: Tensor) -> Tensor:
        first, second = self.blocks["outer"].children()
        hidden = torch.nn.functional.max_pool2d(first(images), 2)
        hidden = torch.nn.functional.dropout(
            second(hidden).amax((2, 3)), self.dropout, self.training
        )
        logits: Tensor = self.head(hidden)
        return logits


def toy_net(seed: int = 0, dropout: float = 0.1) -> ToyNet:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return ToyNet(dropout=dropout)


@cache
def _trained() -> ToyNet:
    net = toy_net()
    loop.train(net, toy_data().train, RECIPE, seeded(0, "toy"))
    return net.eval()


def trained_net() -> nn.Module:
    """An original that knows all classes; a copy, so that no test can spoil it for another."""
    return copy.deepcopy(_trained())


def toy_original() -> Original:
    """The trained net with its recipe and a function that builds fresh ones."""
    return Original(trained_net(), toy_net, RECIPE)


def head_of(model: nn.Module) -> nn.Linear:
    head = model.get_submodule("head")
    assert isinstance(head, nn.Linear)
    return head


def class_scenario() -> Scenario:
    return ForgetClasses([2])(toy_data())


def samples_scenario() -> Scenario:
    return ForgetFraction(0.25)(toy_data())


def toy_task(scenario: Scenario, **rest: object) -> Task:
    return scenario.task(**{"new_model": toy_net, "recipe": RECIPE, **rest})


@dataclass(frozen=True)
class Toy:
    """A method in its smallest visible setting, and what it must reach there."""

    method: Callable[[str], Method]
    forget_at_most: float
    retain_at_least: float


def _duck(kind: str) -> Method:
    return METHODS["duck"](batch_size=64, lr=3e-3, batch_ratio=5, low_batch=32)  # type: ignore[call-arg]


def _duck_soft(kind: str) -> Method:
    return METHODS["duck-soft"](batch_size=64, lr=3e-3, low_batch=32, check_every=1)  # type: ignore[call-arg]


def _delete(kind: str) -> Method:
    return METHODS["delete"](lr=3e-3, batch_size=32)  # type: ignore[call-arg]


def _amun(kind: str) -> Method:
    return METHODS["amun"](lr=3e-3, batch_size=32, attack_steps=10)  # type: ignore[call-arg]


def _scrub(kind: str) -> Method:
    return METHODS["scrub"](lr=5e-3, batch_size=32, forget_batch=64, epochs=5, forget_epochs=3)  # type: ignore[call-arg]


def _ssd(kind: str) -> Method:
    # Samples of classes that stay are hardly more important to a weight than all samples are.
    return METHODS["ssd"](alpha=2.5 if kind == "class" else 1.5, batch_size=16)  # type: ignore[call-arg]


def _bad_teacher(kind: str) -> Method:
    return METHODS["bad-teacher"](lr=3e-3, batch_size=32, epochs=5)  # type: ignore[call-arg]


def _salun(kind: str) -> Method:
    # After a step on a single sample, momentum carries its wrong label on through the retain steps.
    return METHODS["salun"](batch_size=32, epochs=5, lr=0.1 if kind == "class" else 1e-4)  # type: ignore[call-arg]


def _erm_ktp(kind: str) -> Method:
    return METHODS["erm-ktp"](  # type: ignore[call-arg]
        epochs=8, milestones=(6,), schedule_start=0, batch_size=32,
        original_epochs=9, original_milestones=(7,), original_batch=32, mask_weight=1.0,
    )  # fmt: skip


def _finetune(kind: str) -> Method:
    return METHODS["finetune"](lr=0.2, epochs=10, milestones=(8,))  # type: ignore[call-arg]


def _neg_grad(kind: str) -> Method:
    return METHODS["neg-grad"](batch_size=32, check_every=1)  # type: ignore[call-arg]


def _random_label(kind: str) -> Method:
    # Nothing holds the rest: few and small steps, or a single sample takes its whole class along.
    gentle = {"lr": 3e-4, "max_epochs": 5} if kind == "samples" else {"lr": 1e-2}
    return METHODS["random-label"](batch_size=32, **gentle)  # type: ignore[call-arg]


def _boundary_shrink(kind: str) -> Method:
    return METHODS["boundary-shrink"](lr=3e-3, batch_size=32)  # type: ignore[call-arg]


def _boundary_shrink_retain(kind: str) -> Method:
    return METHODS["boundary-shrink-retain"](lr=3e-3, batch_size=32)  # type: ignore[call-arg]


def _boundary_expand(kind: str) -> Method:
    return METHODS["boundary-expand"](lr=3e-3, batch_size=32)  # type: ignore[call-arg]


def _l1_sparse(kind: str) -> Method:
    return METHODS["l1-sparse"](lr=0.1, batch_size=32, gamma=1e-3)  # type: ignore[call-arg]


def _neg_grad_plus(kind: str) -> Method:
    return METHODS["neg-grad-plus"](alpha=0.9, lr=0.015, batch_size=32)  # type: ignore[call-arg]


def _warm_restart(kind: str) -> Method:
    return METHODS["warm-restart"](epochs=10, shrink=0.5)  # type: ignore[call-arg]


# Class removal: accuracy on the forgotten training samples, and on the retained ones.
TOYS = {
    "original": Toy(lambda kind: METHODS["original"](), 1.0, 0.95),
    "retrained": Toy(lambda kind: METHODS["retrained"](), 0.0, 0.95),
    "duck": Toy(_duck, 0.01, 0.95),
    "finetune": Toy(_finetune, 0.01, 0.95),
    "neg-grad": Toy(_neg_grad, 0.01, 0.95),
    "random-label": Toy(_random_label, 0.01, 0.95),
    "boundary-shrink": Toy(_boundary_shrink, 0.01, 0.95),
    "boundary-shrink-retain": Toy(_boundary_shrink_retain, 0.01, 0.95),
    # Twelve features serve four classes: what leads away from one of them to the shadow class leads
    # others there, too.
    "boundary-expand": Toy(_boundary_expand, 0.3, 0.85),
    "l1-sparse": Toy(_l1_sparse, 0.01, 0.95),
    "neg-grad-plus": Toy(_neg_grad_plus, 0.01, 0.95),
    "scrub": Toy(_scrub, 0.01, 0.95),
    "ssd": Toy(_ssd, 0.05, 0.95),
    # A random teacher knows no class: what it teaches is right by chance, one in four.
    "bad-teacher": Toy(_bad_teacher, 0.25, 0.95),
    "salun": Toy(_salun, 0.01, 0.95),
    # The forgotten class keeps a logit of 0, which wins where all others are negative.
    "erm-ktp": Toy(_erm_ktp, 0.1, 0.95),
    "warm-restart": Toy(_warm_restart, 0.01, 0.95),
    "duck-soft": Toy(_duck_soft, 0.01, 0.95),
    "delete": Toy(_delete, 0.01, 0.95),
    # Only for single samples, so no class is forgotten.
    "amun": Toy(_amun, 1.0, 0.95),
}
