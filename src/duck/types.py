"""The data types that the stages pass to each other. Nothing here computes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from duck.data.examples import Augment as Augment
from duck.data.examples import Batch as Batch
from duck.data.examples import Examples as Examples
from duck.data.examples import Ids as Ids
from duck.records import Bits, Count, Measured, Share

Protocols = Literal["holdout", "paper"]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval. The ends are None if no interval is known."""

    value: Measured
    low: Measured | None = None
    high: Measured | None = None


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: the training samples of the original and, if any, test samples."""

    name: str
    train: Examples
    test: Examples | None
    classes: tuple[str, ...]
    holdout: Tensor
    """Rows of `test` for stop rules and tuning. They are never reported."""
    augment: Augment = "none"
    """Augmentation that is safe for these images (a mirrored digit is another digit)."""

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def to(self, device: torch.device | str) -> "Data":
        """Return the same data with batches on that device."""
        return replace(
            self,
            train=self.train.to(device),
            test=None if self.test is None else self.test.to(device),
        )


@dataclass(frozen=True)
class Recipe:
    """Training hyperparameters."""

    epochs: int = 40
    batch_size: int = 512
    lr: float = 0.2
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Literal["constant", "one-cycle", "cosine", "step"] = "one-cycle"
    milestones: tuple[int, ...] = ()
    """Epochs after which the schedule `step` multiplies the learning rate by gamma."""
    gamma: float = 0.1
    warmup: float = 0.25
    """Share of the steps in which the learning rate of `one-cycle` rises."""
    label_smoothing: float = 0.0
    augment: Augment = "none"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast on CUDA, float32 elsewhere."""
    compile: bool = False


class Progress(NamedTuple):
    """Progress of `fit`: sent after each epoch, and after steps at most twice a second."""

    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    model: nn.Module
    is_epoch_end: bool
    """Whether this was the last step of an epoch."""


Report = Callable[[Progress], None]
"""Progress callback."""


def _ignore_note(text: str) -> None:
    """Ignore a note. Unlike a lambda it can be pickled, for tasks in other processes."""


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that a method may see: no test data, no retrained model."""

    forget: Examples
    retain: Examples
    holdout: Examples | None
    """Unseen data for stop rules. None if the user has none."""
    num_classes: int
    seed: int = 0
    new_model: Callable[[], nn.Module] | None = None
    """Builds a randomly initialised model of the original's architecture."""
    recipe: Recipe = field(default_factory=Recipe)
    """The recipe of the original."""
    head: str | None = None
    """Name of the classifier head inside the model. None: it is detected."""
    prepared: Mapping[str, Tensor] | None = None
    """The result of the method's `prepare`, if the method has one and it ran already."""
    report: Report | None = None
    note: Callable[[str], None] = _ignore_note
    """Adds a note for readers of the result."""
    unmet: Callable[[str], None] = _ignore_note
    """Says why the method did not reach its goal: before all other notes of the method."""
    kind: Literal["class", "samples"] = "class"
    """As in Scenario. The labels show it, unless there are no retain samples."""


@dataclass(frozen=True, eq=False)
class Original:
    """A trained model, and how others like it are made."""

    model: nn.Module
    new_model: Callable[[], nn.Module] | None = None
    """Builds a randomly initialised model of the same architecture."""
    recipe: Recipe | None = None
    """How the model was trained; None: not known."""
    head: str | None = None
    """Name of the classifier head inside the model. None: it is detected."""


@dataclass(frozen=True, eq=False)
class EarlierForgetSet:
    """The forget set of an earlier request."""

    request: str
    """A short description, such as "class 3"."""
    kind: Literal["class", "samples"]
    forget: Examples
    forgot: bool | None = None
    """Whether its own request or a later one forgot them. None: unknown."""
    best: float | None = None
    """The lowest known accuracy on them after its own request and later ones."""
    best_rank: float | None = None
    """The highest known mean rank of their losses after its own request and later ones."""


@dataclass(frozen=True)
class Drift:
    """What requests in a row cost since the first original, or since the last retraining."""

    requests: Count = 0
    """Requests so far. 0 after a retraining: the next one starts from that model."""
    samples: Count = 0
    """Samples that they forgot."""
    correct_before: Bits = ""
    """Which holdout samples the first model classified correctly. Empty: not known."""
    accuracy_before: Share | None = None
    """Holdout accuracy of the first model on the classes that are left; None: not measured."""
    accuracy_now: Share | None = None
    """Holdout accuracy of the unlearned model on the same classes."""
    lost: Count = 0
    """Holdout samples that the first model classified correctly and the unlearned one did not."""
    gained: Count = 0
    """Holdout samples that the unlearned model classified correctly and the first one did not."""
    n: Count = 0
    """Holdout samples that were compared."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """A request applied to a data set: index sets.

    `forget` and `retain` partition the rows of the training data. The other sets are rows of the
    test split.
    """

    data: Data
    """The data without the forget sets of earlier requests."""
    kind: Literal["class", "samples"]
    """`class`: whole classes are forgotten (the paper's CR); `samples`: all classes remain (HR)."""
    seed: int
    protocol: Protocols
    forget: Tensor
    retain: Tensor
    holdout: Tensor
    test: Tensor
    forget_test: Tensor
    retain_test: Tensor
    earlier: tuple[EarlierForgetSet, ...] = ()
    """The forget sets of requests that the model has already forgotten, oldest first."""
    drift: Drift = Drift()
    """What they cost."""

    def task(self, **rest: Any) -> Task:
        """Return the part of the scenario that a method may see; `rest` are further Task fields."""
        data = self.data
        holdout = (
            data.test.take(self.holdout) if data.test is not None and len(self.holdout) else None
        )
        return Task(
            data.train.take(self.forget),
            data.train.take(self.retain),
            holdout,
            data.num_classes,
            **{"seed": self.seed, "kind": self.kind, **rest},
        )


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits and embeddings of one model on one split. Row i belongs to ids[i]."""

    logits: Tensor
    embeddings: Tensor
    labels: Tensor
    ids: Sequence[str] | Ids
