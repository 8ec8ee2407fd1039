"""What flows between the stages. Nothing here computes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Augment = Literal["none", "crop", "crop-flip"]
Protocols = Literal["holdout", "paper"]
Ids = npt.NDArray[np.str_]


class Batch(NamedTuple):
    """Normalised images on the device, their labels, and their rows in the Examples they came from."""

    images: Tensor
    labels: Tensor
    rows: Tensor


class Examples(Protocol):
    """Labelled images with a stable id each. Labels and ids are always on the host; the images may be anywhere."""

    @property
    def labels(self) -> Tensor: ...
    @property
    def ids(self) -> Ids: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image, channels first."""

    @property
    def device(self) -> torch.device:
        """Where the batches lie."""

    def __len__(self) -> int: ...
    def take(self, rows: Tensor) -> "Examples":
        """A view of these rows, in this order; no image is copied."""

    def to(self, device: torch.device | str) -> "Examples":
        """The same examples with batches on that device."""

    def batches(
        self, size: int, generator: torch.Generator | None = None, augment: Augment = "none"
    ) -> Iterator[Batch]:
        """One pass. With a generator: shuffled, every sample seen, every batch full (the last one is filled up from the
        beginning of the order, so that no short batch disturbs BatchNorm). Without: in order, the last may be short."""

    @property
    def digests(self) -> list[bytes]:
        """A hash of the pixels of each sample, in order: equal for exact copies."""

    def fingerprint(self) -> str:
        """A hash of ids, labels and pixels."""


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: what the original was trained on, and what it never saw."""

    name: str
    train: Examples
    test: Examples | None
    classes: tuple[str, ...]
    holdout: Tensor
    """Rows of `test` that stop rules and tuning may look at; never reported."""
    augment: Augment = "none"
    """What training may do to these images (a mirrored digit is another digit)."""

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def to(self, device: torch.device | str) -> "Data":
        """The same data with batches on that device."""
        return replace(
            self,
            train=self.train.to(device),
            test=None if self.test is None else self.test.to(device),
        )


@dataclass(frozen=True)
class Recipe:
    """How to train: every number of `fit`, nothing about data."""

    epochs: int = 40
    batch_size: int = 512
    lr: float = 0.2
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Literal["constant", "one-cycle", "cosine", "step"] = "one-cycle"
    milestones: tuple[int, ...] = ()
    """Epochs after which `step` multiplies the rate by gamma."""
    gamma: float = 0.1
    warmup: float = 0.25
    """Share of the steps in which `one-cycle` rises."""
    label_smoothing: float = 0.0
    augment: Augment = "none"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast on CUDA, float32 elsewhere."""
    compile: bool = False


class Progress(NamedTuple):
    """One line of news from `fit`: sent after each epoch, and after steps at most twice a second."""

    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    model: nn.Module
    ended: bool
    """An epoch just ended."""


Report = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Task:
    """All that a method may see: no test data, no retrained model."""

    forget: Examples
    retain: Examples
    holdout: Examples | None
    """Unseen data for stop rules; None where the user has none."""
    num_classes: int
    seed: int = 0
    new_model: Callable[[], nn.Module] | None = None
    """A fresh, randomly initialised model of the original's architecture."""
    recipe: Recipe = field(default_factory=Recipe)
    """The original's."""
    head: str | None = None
    """Name of the classifier head inside the model; found by a probe where None."""
    prepared: Mapping[str, Tensor] | None = None
    """What the method's `prepare` gave, where it has one and it was run beforehand."""
    report: Report | None = None
    note: Callable[[str], None] = lambda _: None
    """Takes what a reader of the result must know."""


@dataclass(frozen=True, eq=False)
class EarlierForgetSet:
    """The samples that an earlier request forgot."""

    request: str
    """In a few words, such as "class 3"."""
    kind: Literal["class", "samples"]
    forget: Examples
    forgot: bool | None = None
    """Whether its own request, or a later one, forgot them; None: only numbers can tell."""
    best: float | None = None
    """The lowest accuracy on them after its own request and later ones, as far as it is known."""
    best_rank: float | None = None
    """The highest mean rank of their losses, likewise."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """Who is to be forgotten. Forget and retain partition the training rows; the rest are rows of the test split."""

    data: Data
    """What earlier requests forgot is not among its training samples."""
    kind: Literal["class", "samples"]
    """`class`: whole classes (the paper's CR); `samples`: the classes stay (HR)."""
    seed: int
    protocol: Protocols
    forget: Tensor
    retain: Tensor
    holdout: Tensor
    test: Tensor
    forget_test: Tensor
    retain_test: Tensor
    earlier: tuple[EarlierForgetSet, ...] = ()
    """Of requests that the model has already forgotten, the first one first."""

    def task(self, **rest: Any) -> Task:
        """What a method may see of it; `rest` are further fields of Task."""
        data = self.data
        holdout = (
            data.test.take(self.holdout) if data.test is not None and len(self.holdout) else None
        )
        return Task(
            data.train.take(self.forget),
            data.train.take(self.retain),
            holdout,
            data.num_classes,
            **{"seed": self.seed, **rest},
        )


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of one model over one split; rows aligned with ids."""

    logits: Tensor
    embeddings: Tensor
    labels: Tensor
    ids: Sequence[str] | Ids
