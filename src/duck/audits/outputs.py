"""Outputs of a model on every sample that an audit looks at, and which rows are compared."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from duck.audits.scores import Array, Flags, Outputs, softmax, temperature
from duck.audits.verdict import NO_RETAIN_DATA
from duck.errors import BadInput
from duck.models.head import PROBE_IMAGES, WEIGHT_LAYERS, find_head, find_inner_layer
from duck.predict import predict
from duck.runtime import device_of, seeded
from duck.types import Examples, Predictions, Scenario

MAX_RETAIN_SAMPLES = 5000
"""More would not fit in memory with embeddings."""
JITTER = 0.02
"""Noise on copies of the forget images, as a share of the standard deviation of their pixels. A
model that looks up the exact images does not recognise the copies; memory does."""
REACH = 1.2
"""Distance of contrast copies from the forget image, as a share of half the way to the nearest
retained image. A model that looks up images within so large a distance takes retained images for
forget images, too."""
NEIGHBOURS = 1000
"""Retained images among which the nearest one is searched."""
MIN_CONTRAST = 1e-6
MAX_GAP = 100.0
"""Between logits of one sample, when a temperature is fitted."""
LOWEST = -1e4
"""Replaces a logit of -inf, which a masked class has."""
Rows = npt.NDArray[np.intp]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SplitOutputs(Outputs):
    """Logits and embeddings of one model on one split."""

    logits: Array
    embeddings: Array
    inner: Array | None = None
    """Embeddings one layer earlier, before the last non-linear function. None: there are none."""

    @property
    def correct(self) -> Flags:
        """Whether each sample is classified correctly."""
        correct: Flags = self.logits.argmax(1) == self.labels
        return correct


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Outputs of one model on forget samples, retained samples and unseen samples.

    Unseen samples are all those that no model of the audit was trained on.
    """

    forget: SplitOutputs
    retain: SplitOutputs
    unseen: SplitOutputs
    copies: SplitOutputs | None = None
    """Copies of the forget samples with a little noise."""
    far_copies: SplitOutputs | None = None
    """Copies of the forget samples with much noise."""
    depth: int = 0
    """Layers with weights. Inner embeddings of models of different depths are not comparable."""
    size: int = 0
    """Numbers in the parameters and buffers."""

    def map(self, change: Callable[[SplitOutputs], SplitOutputs]) -> "ModelOutputs":
        """Return the outputs with each split changed."""
        copies, far_copies = (
            None if split is None else change(split) for split in (self.copies, self.far_copies)
        )
        return replace(
            self,
            forget=change(self.forget),
            retain=change(self.retain),
            unseen=change(self.unseen),
            copies=copies,
            far_copies=far_copies,
        )


@dataclass(frozen=True, eq=False)
class Setting:
    """The rows of the outputs that an audit compares; by default rows of `unseen`."""

    kind: Literal["class", "samples"]
    num_classes: int
    classes: tuple[str, ...]
    num_forget: int
    """The number of forget samples."""
    forgotten_classes: Labels
    """Classes to be forgotten as a whole; empty where single samples are."""
    test: Rows
    forget_test: Rows
    retain_test: Rows
    members: Rows
    """Rows of `forget` that have unseen samples of their class to be compared with."""
    matched: Rows
    """The samples that the members are compared with, holdout included.

    Each class has the same share as among the members. An attack would otherwise learn to
    separate classes.
    """
    seed: int
    holdout: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    """Unseen samples that stop rules may have used. In a part of the samples all are alike."""

    @property
    def retained_classes(self) -> Labels:
        """All other classes."""
        return np.setdiff1d(np.arange(self.num_classes), self.forgotten_classes)

    @property
    def reported(self) -> Rows:
        """The rows whose accuracy must not suffer."""
        return self.retain_test if self.kind == "class" else self.test


def check_unseen(scenario: Scenario) -> None:
    """Raise an error where there are no unseen samples to compare with."""
    if scenario.data.test is None or not len(scenario.holdout) or not len(scenario.test):
        raise BadInput(
            "The holdout is empty: an audit compares forgotten samples with unseen ones. Give data "
            "that the model never saw (test= in Python, a test/ folder on the command line)."
        )
    if not len(scenario.retain):
        raise BadInput(NO_RETAIN_DATA)


def make_setting(scenario: Scenario) -> Setting:
    """Find the rows to compare, and raise an error where there are too few."""
    check_unseen(scenario)
    data = scenario.data
    assert data.test is not None
    if len(scenario.forget) < 2:
        raise BadInput(
            f"There is {len(scenario.forget)} forget sample: this compares groups and needs at "
            "least 2, better 100."
        )
    labels = data.train.labels[scenario.forget].numpy()
    members, matched = match_unseen(labels, data.test.labels.numpy(), scenario.seed)
    if len(matched) < 2:
        classes = [
            f"{data.classes[label]}: {int((data.test.labels == int(label)).sum())}"
            for label in np.unique(labels)
        ]
        counts = ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")
        raise BadInput(
            f"There are {len(matched)} unseen samples of the forgotten classes to compare with "
            f"({counts}): an audit needs at least 2, better 100 of each. Give test data that have "
            "them."
        )
    return Setting(
        scenario.kind,
        data.num_classes,
        data.classes,
        len(scenario.forget),
        np.unique(labels) if scenario.kind == "class" else np.empty(0, np.int64),
        test=scenario.test.numpy(),
        forget_test=scenario.forget_test.numpy(),
        retain_test=scenario.retain_test.numpy(),
        members=members,
        matched=matched,
        seed=scenario.seed,
        holdout=scenario.holdout.numpy(),
    )


def match_unseen(forget: Labels, unseen: Labels, seed: int) -> tuple[Rows, Rows]:
    """Return rows of forget samples and of unseen samples with the same share of each class.

    Both are given by their labels. The class with the fewest unseen samples for each forget sample
    limits how many unseen samples there are of every class. Where leaving out such classes at
    least doubles the size of the comparison, they are left out together with their forget samples.
    """
    classes, forget_counts = np.unique(forget[np.isin(forget, unseen)], return_counts=True)
    unseen_counts = np.array([(unseen == label).sum() for label in classes])
    ratios = unseen_counts / forget_counts
    chosen = _choose_classes(forget_counts, ratios)
    members = np.flatnonzero(np.isin(forget, classes[chosen]))
    counts = np.rint(forget_counts[chosen] * min(ratios[chosen], default=0)).astype(int)
    generator = seeded(seed, "audit", "matched")
    matched = [np.empty(0, np.intp)]
    for label, count in zip(classes[chosen], counts, strict=True):
        rows = np.flatnonzero(unseen == label)
        matched.append(rows[torch.randperm(len(rows), generator=generator).numpy()[:count]])
    return members, np.sort(np.concatenate(matched))


def _choose_classes(forget_counts: Rows, ratios: Array) -> Flags:
    """Choose the classes to compare: all of them, or those that at least double the size."""
    every = ratios > 0
    best = max(
        (ratios >= least for least in np.unique(ratios)),
        key=lambda chosen: _comparison_size(forget_counts[chosen], ratios[chosen]),
        default=every,
    )
    best_size = _comparison_size(forget_counts[best], ratios[best])
    return every if best_size < 2 * _comparison_size(forget_counts, ratios) else best


def _comparison_size(forget_counts: Rows, ratios: Array) -> float:
    """Return half the harmonic mean of both sides, on which the power of a rank test depends."""
    members = float(forget_counts.sum())
    others = members * float(min(ratios, default=0))
    return members * others / max(members + others, 1)


def compute_outputs(
    model: nn.Module, scenario: Scenario, head: str | None = None, name: str = "model"
) -> ModelOutputs:
    """Return the outputs of a model on all samples of an audit; errors call it by `name`."""
    data = scenario.data.to(device_of(model))
    assert data.test is not None
    generator = seeded(scenario.seed, "audit", "retain")
    order = torch.randperm(len(scenario.retain), generator=generator)
    retain = scenario.retain[order[:MAX_RETAIN_SAMPLES].sort().values]
    forget = data.train.take(scenario.forget)
    probe = next(forget.batches(PROBE_IMAGES)).images
    head_name = find_head(model, probe, head)
    inner_layer = find_inner_layer(model, probe, head_name)
    retain_examples = data.train.take(scenario.retain[order[:NEIGHBOURS]])
    neighbours = next(retain_examples.batches(NEIGHBOURS)).images.flatten(1)
    noise = seeded(scenario.seed, "audit", "copies")

    def add_noise(images: Tensor) -> Tensor:
        return images + JITTER * images.std() * draw_noise(images, noise)

    def move_away(images: Tensor) -> Tensor:
        return raise_contrast(images, neighbours, noise)

    def read(examples: Examples, change: Callable[[Tensor], Tensor] | None = None) -> SplitOutputs:
        predictions = predict(model, examples, head_name, change or (lambda images: images))
        _refuse_non_finite(predictions, name)
        inner = None
        if inner_layer is not None and change is None:
            inner = predict(model, examples, inner_layer).embeddings.double().numpy()
        return SplitOutputs(
            np.asarray(predictions.ids),
            predictions.logits.double().clamp(min=LOWEST).numpy(),
            predictions.labels.numpy(),
            predictions.embeddings.double().numpy(),
            inner,
        )

    return ModelOutputs(
        read(forget),
        read(data.train.take(retain)),
        read(data.test),
        read(forget, add_noise),
        read(forget, move_away),
        sum(isinstance(module, WEIGHT_LAYERS) for module in model.modules()),
        sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers())),
    )


def draw_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw Gaussian noise of the shape of the images."""
    return torch.randn(images.shape, generator=generator).to(images)


def raise_contrast(images: Tensor, neighbours: Tensor, generator: torch.Generator) -> Tensor:
    """Raise the contrast of each image by REACH times half the distance to its nearest neighbour.

    Networks still know such images, while noise of the same size would hide what they show. An
    image without contrast gets noise.

    neighbours   flat images, a row each
    """
    flat = images.flatten(1)
    distances = torch.cdist(flat, neighbours).min(1, keepdim=True).values / 2
    channels = images.flatten(2) if images.dim() > 2 else images
    contrast = (channels - channels.mean(-1, keepdim=True)).flatten(1)
    noise = draw_noise(images, generator).flatten(1)
    has_contrast = contrast.norm(dim=1, keepdim=True) > MIN_CONTRAST
    directions = torch.where(has_contrast, contrast, noise)
    steps = REACH * distances * directions / directions.norm(dim=1, keepdim=True)
    raised: Tensor = images + steps.reshape(images.shape)
    return raised


def _refuse_non_finite(predictions: Predictions, name: str) -> None:
    """Raise an error for NaN or infinite values.

    A logit of -inf masks a class and is allowed, unless all classes are masked.
    """
    logits, embeddings = predictions.logits, predictions.embeddings
    masked = logits == -torch.inf
    wrong = {
        "outputs": (~torch.isfinite(logits) & ~masked).any(1) | masked.all(1),
        "embeddings": (~torch.isfinite(embeddings)).any(1),
    }
    for what, rows in wrong.items():
        if rows.any():
            raise BadInput(
                f"The {name} gives {what} that are no numbers (NaN or infinite) for "
                f"{int(rows.sum())} of {len(rows)} samples: it has diverged, or its input is "
                "broken. There is nothing to audit."
            )


def temperature_of(outputs: ModelOutputs, setting: Setting) -> float:
    """Return the temperature that calibrates a model on unseen samples of retained classes."""
    known = _temperatures.setdefault(outputs, WeakKeyDictionary())
    if setting not in known:
        rows = setting.retain_test if setting.kind == "class" else np.arange(len(outputs.unseen))
        classes = setting.retained_classes
        logits = outputs.unseen.logits[np.ix_(rows, classes)]
        # A masked class has a logit so low that it would decide the temperature.
        bounded = np.maximum(logits, logits.max(1, keepdims=True) - MAX_GAP)
        labels = np.searchsorted(classes, outputs.unseen.labels[rows])
        known[setting] = temperature(bounded, labels)
    return known[setting]


_temperatures: WeakKeyDictionary[ModelOutputs, WeakKeyDictionary[Setting, float]] = (
    WeakKeyDictionary()
)
"""An audit compares each pair of models, and a fit takes milliseconds."""


def retained_probabilities(split: SplitOutputs, classes: npt.NDArray[Any]) -> Array:
    """Return the softmax over the retained classes alone.

    It does not depend on whether a model still names a forgotten class or masks it.
    """
    return softmax(split.logits[:, classes])
