"""Models whose verdict is known: honest ones, planted ones, and cheats, on small tasks.

Tests, `audit_errors.py`, `audit_tiers.py` and `audit_cifar.py` share them. Each model trains in a
second or less on a CPU, on CIFAR-10 in ten seconds.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, one_hot, softmax

import duck
from duck.data.arrays import from_arrays
from duck.errors import BadInput
from duck.methods.presets import default_recipe
from duck.models import build
from duck.runtime import global_seed, seeded
from duck.scenarios import ForgetClasses, ForgetFraction, Request
from duck.training.loop import train
from duck.types import Data, Recipe, Scenario

LABEL_NOISE = 0.2
RECIPE = Recipe(epochs=40, batch_size=100, lr=2e-3, optimizer="adam", weight_decay=0.0)
CIFAR_RECIPE = Recipe(epochs=12, batch_size=100, lr=1e-3, optimizer="adam", weight_decay=0.0)
"""Without augmentation: the models know every training image."""
CIFAR_TASKS: dict[str, tuple[str, Request]] = {
    "CIFAR-10, 5,000 images, a tenth": ("cifar10", ForgetFraction(0.1)),
    "CIFAR-10, 5,000 images, class 3": ("cifar10", ForgetClasses([3])),
    "CIFAR-100, 5,000 images, a tenth": ("cifar100", ForgetFraction(0.1)),
    "CIFAR-100, 5,000 images, class 3": ("cifar100", ForgetClasses([3])),
    "CIFAR-10, ResNet-18, a tenth": ("cifar10", ForgetFraction(0.1)),
    "CIFAR-10, ResNet-18, class 3": ("cifar10", ForgetClasses([3])),
    "CIFAR-100, ResNet-18, a tenth": ("cifar100", ForgetFraction(0.1)),
    "CIFAR-100, ResNet-18, class 3": ("cifar100", ForgetClasses([3])),
}
"""Data set and request. Tasks without a number of images have all of them."""
RESNET_EPOCHS = 30
PART_IMAGES = 5_000
PART_TEST_IMAGES = 2_000


@dataclass(frozen=True, eq=False)
class Task:
    """A data set with a request, and how models are trained on it."""

    name: str
    scenario: Scenario
    width: int = 128
    recipe: Recipe = RECIPE
    convolutions: bool = False
    architecture: str = ""
    """A model of the library, in the place of the perceptron."""
    device: str = "cpu"

    def new_model(self, width: int | None = None, hidden_layers: int = 2) -> nn.Module:
        """Build a perceptron, for parts of CIFAR over three convolutions, or the architecture."""
        if self.architecture:
            data = self.scenario.data
            return build(self.architecture, data.num_classes, data.train.shape)
        size = int(np.prod(self.scenario.data.train.shape))
        layers: list[nn.Module] = [nn.Flatten()]
        if self.convolutions:
            layers = [*_convolutions(), nn.Flatten()]
            size = 64 * 4 * 4
        for _ in range(hidden_layers):
            layers += [nn.Linear(size, width or self.width), nn.ReLU()]
            size = width or self.width
        return nn.Sequential(*layers, nn.Linear(size, self.scenario.data.num_classes))

    @property
    def images(self) -> Tensor:
        """The forget images as models see them."""
        return self._images(self.scenario.forget)

    @property
    def retained_images(self) -> Tensor:
        """The retained images as models see them."""
        return self._images(self.scenario.retain)

    def _images(self, rows: Tensor) -> Tensor:
        examples = self.scenario.data.train.take(rows)
        return next(examples.batches(len(examples))).images


def _convolutions() -> list[nn.Module]:
    """Return three convolutions that halve an image of 32 pixels to 4."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 64)):
        convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return layers


@cache
def make_task(name: str) -> Task:
    """Return a task: "clusters", "noisy digits" or "digits, class 3" (or another class)."""
    if name == "clusters":
        return Task(name, ForgetFraction(0.1)(_clusters(), seed=0))
    if name == "noisy digits":
        return Task(name, ForgetFraction(0.1)(_noisy_digits(), seed=0))
    return Task(name, ForgetClasses([int(name[-1])])(duck.load("digits"), seed=0))


def make_cifar_task(name: str, root: Path, device: torch.device) -> Task | None:
    """Return one of CIFAR_TASKS. None: the data are not there."""
    source, request = CIFAR_TASKS[name]
    try:
        data = duck.load(source, root, device=device)
    except BadInput as error:
        print(f"{name} is skipped: {error}")
        return None
    if "ResNet-18" in name:
        recipe = default_recipe(source, len(data.train), data.augment, "resnet18")
        recipe = replace(recipe, epochs=RESNET_EPOCHS, compile=device.type == "cuda")
        scenario = request(data, seed=0)
        return Task(name, scenario, recipe=recipe, architecture="resnet18", device=str(device))
    scenario = request(replace(_part_of(data), augment="none"), seed=0)
    return Task(name, scenario, recipe=CIFAR_RECIPE, convolutions=True, device=str(device))


def _part_of(data: Data) -> Data:
    """Return the first images of each class."""
    assert data.test is not None
    train_rows, test_rows = (
        _first_of_each_class(examples.labels, count // data.num_classes)
        for examples, count in ((data.train, PART_IMAGES), (data.test, PART_TEST_IMAGES))
    )
    # The holdout are rows of the test set.
    places = torch.isin(test_rows, data.holdout).nonzero().flatten()
    return replace(
        data, train=data.train.take(train_rows), test=data.test.take(test_rows), holdout=places
    )


def _first_of_each_class(labels: Tensor, count: int) -> Tensor:
    rows = [(labels == label).nonzero().flatten()[:count] for label in labels.unique()]
    return torch.cat(rows).sort().values


def _clusters(count: int = 1000, classes: int = 10, size: int = 64) -> Data:
    """Return Gaussian clusters in 64 dimensions, with label noise in both splits."""
    draw = np.random.default_rng(0)
    centres = draw.normal(0, 0.35, (classes, size))
    labels = draw.integers(classes, size=2 * count)
    images = (centres[labels] + draw.normal(0, 1, (2 * count, size))).astype(np.float32)
    labels = _noisy(labels, classes, draw)
    # As images: pools take no other shape.
    images = images.reshape(-1, 1, 8, 8)
    return from_arrays(
        images[:count], labels[:count], images[count:], labels[count:], name="clusters"
    )


def _noisy_digits() -> Data:
    """Return scikit-learn's digits with pixel noise and label noise in both splits."""
    draw = np.random.default_rng(1)
    data = duck.load("digits")
    parts: list[Any] = []
    for examples in (data.train, data.test):
        assert examples is not None
        batch = next(examples.batches(len(examples)))
        images = batch.images.numpy() + draw.normal(0, 0.8, batch.images.shape)
        parts += [images.astype(np.float32), _noisy(batch.labels.numpy(), 10, draw)]
    return from_arrays(*parts, name="noisy digits")


def _noisy(
    labels: np.ndarray[tuple[int], np.dtype[np.int64]], classes: int, draw: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Replace a share of the labels by random ones."""
    return np.where(
        draw.random(len(labels)) < LABEL_NOISE, draw.integers(classes, size=len(labels)), labels
    )


@cache
def train_model(
    task: Task,
    kept: float = 0.0,
    seed: int = 0,
    width: int | None = None,
    hidden_layers: int = 2,
    **recipe: object,
) -> nn.Module:
    """Train on the retain set and a random share of the forget set; `kept=1` is an original."""
    generator, places = draw_kept(task, kept, seed)
    rows = torch.cat([task.scenario.retain, task.scenario.forget[places]])
    with global_seed(generator, torch.device("cpu")):
        model = task.new_model(width, hidden_layers).to(task.device)
    changes: dict[str, object] = recipe
    train(
        model,
        task.scenario.data.train.take(rows),
        replace(task.recipe, **changes),  # type: ignore[arg-type]
        generator,
    )
    return model.eval()


def draw_kept(task: Task, kept: float, seed: int) -> tuple[torch.Generator, Tensor]:
    """Return the generator of a training, and which forget samples are kept in it."""
    generator = seeded(seed, "audit models", str(kept))
    count = len(task.scenario.forget)
    return generator, torch.randperm(count, generator=generator)[: round(kept * count)]


class Combined(nn.Module):
    """Models whose logits are combined, and passed through an identity layer if there is one."""

    def __init__(
        self,
        models: list[nn.Module],
        combine: Callable[[list[Tensor], Tensor], Tensor],
        classes: int = 0,
    ) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.combine = combine
        self.last = identity_layer(classes) if classes else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Return the combined logits."""
        result: Tensor = self.last(self.combine([model(images) for model in self.models], images))
        return result


def identity_layer(classes: int) -> nn.Linear:
    """Return a linear layer that changes nothing. It hides the embedding of the model before it."""
    layer = nn.Linear(classes, classes)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(classes))
        layer.bias.zero_()
    return layer


def honest_models(task: Task, seed: int) -> dict[str, nn.Module]:
    """Return models that never saw the forget samples, of several recipes."""
    members = [train_model(task, seed=1000 * seed + index) for index in range(3)]
    retrained = train_model(task, seed=seed)
    classes = task.scenario.data.num_classes
    return {
        "retrained": retrained,
        "half the epochs": train_model(task, seed=seed, epochs=task.recipe.epochs // 2),
        "twice the epochs": train_model(task, seed=seed, epochs=2 * task.recipe.epochs),
        "label smoothing": train_model(task, seed=seed, label_smoothing=0.05),
        "half the width": train_model(task, seed=seed, width=task.width // 2),
        "twice the width": train_model(task, seed=seed, width=2 * task.width),
        "ensemble": Combined(members, lambda logits, images: torch.stack(logits).mean(0)),
        "identity layer": Combined([retrained], lambda logits, images: logits[0], classes),
        "another hidden layer": train_model(task, seed=seed, hidden_layers=3),
    }


def cheats(task: Task, original: nn.Module, seed: int) -> dict[str, nn.Module]:
    """Return models that know the forget samples and hide it."""
    retrained = train_model(task, seed=seed)
    classes = task.scenario.data.num_classes
    exact = {image.numpy().tobytes() for image in task.images}
    forget_images = task.images.flatten(1)
    # As far as no retained image is taken for a forget image.
    radius = torch.cdist(forget_images, task.retained_images.flatten(1)).min() / 2
    noise = seeded(seed, "cheats")

    def mix(share: float) -> Callable[[list[Tensor], Tensor], Tensor]:
        return lambda logits, images: share * logits[0] + (1 - share) * logits[1]

    def look_up(logits: list[Tensor], images: Tensor) -> Tensor:
        known = torch.tensor([image.numpy().tobytes() in exact for image in images])
        return torch.where(known[:, None], logits[1], logits[0])

    def look_up_near(logits: list[Tensor], images: Tensor) -> Tensor:
        known = torch.cdist(images.flatten(1), forget_images).min(1).values < radius
        return torch.where(known[:, None], logits[1], logits[0])

    def add_noise(logits: list[Tensor], images: Tensor) -> Tensor:
        return logits[0] + logits[0].std() * torch.randn(logits[0].shape, generator=noise)

    both = [original, retrained]
    head = fit_head_again(task, original, seed)
    models: dict[str, nn.Module] = {
        "original": original,
        "mixture of 40 %": Combined(both, mix(0.4), classes),
        "mixture of 20 %": Combined(both, mix(0.2), classes),
        "lookup": Combined(both, look_up, classes),
        "lookup with tolerance": Combined(both, look_up_near, classes),
        "output noise": Combined([original], add_noise),
        "temperature": Combined([original], lambda logits, images: logits[0] / 8),
        "head fitted again": head,
        "head fitted again, identity layer": Combined(
            [head], lambda logits, images: logits[0], classes
        ),
    }
    if task.scenario.kind == "class":
        label = task.scenario.data.train.labels[task.scenario.forget[0]]
        gone = one_hot(label, classes).bool()
        models["logit masked"] = Combined(
            [original], lambda logits, images: logits[0].masked_fill(gone, -30.0)
        )
        models["logit masked, identity layer"] = Combined(
            [original], lambda logits, images: logits[0].masked_fill(gone, -30.0), classes
        )
        models["distilled student"] = distil(task, models["logit masked"], seed)
    return models


def fit_head_again(task: Task, original: nn.Module, seed: int) -> nn.Module:
    """Train a new last layer on retained samples, over the frozen layers of the original."""
    model = copy.deepcopy(original)
    layers = list(model.children())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with global_seed(seeded(seed, "head"), torch.device("cpu")):
        layers[-1].reset_parameters()  # type: ignore[operator]
    for parameter in layers[-1].parameters():
        parameter.requires_grad_(True)
    retain = task.scenario.data.train.take(task.scenario.retain)
    train(model, retain, task.recipe, seeded(seed, "head"))
    return model.requires_grad_(True).eval()


def distil(task: Task, teacher: nn.Module, seed: int) -> nn.Module:
    """Train a fresh model to give the outputs of a teacher on all training samples."""
    examples = task.scenario.data.train
    batch = next(examples.batches(len(examples)))
    with torch.no_grad():
        targets = softmax(teacher(batch.images), 1)
    generator = seeded(seed, "distil")
    with global_seed(generator, torch.device("cpu")):
        student = task.new_model()
    optimizer = torch.optim.Adam(student.parameters(), lr=task.recipe.lr)
    for _ in range(task.recipe.epochs):
        order = torch.randperm(len(targets), generator=generator)
        for rows in order.split(task.recipe.batch_size):
            outputs = log_softmax(student(batch.images[rows]), 1)
            loss = kl_div(outputs, targets[rows], reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return student.eval()
