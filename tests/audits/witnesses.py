"""Generated outputs for audits: of models that know a class, and of models that do not."""

import numpy as np

from duck.audits.outputs import ModelOutputs, Setting, SplitOutputs
from duck.audits.scores import Array

CLASSES, GONE, WIDTH = 4, 3, 8
FORGET, RETAIN, UNSEEN = 90, 180, 160
CONTROLS = (
    "original",
    "logit masked",
    "head retrained",
    "output noise",
    "retrained",
    "retrained accuracy",
)
"""The controls of the oracle tier for a class."""


def labels_of(count: int, classes: int = CLASSES) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(count, dtype=np.int64) % classes


FORGET_LABELS = np.full(FORGET, GONE, dtype=np.int64)
RETAIN_LABELS = labels_of(RETAIN, CLASSES - 1)
UNSEEN_LABELS = labels_of(UNSEEN)


def class_setting() -> Setting:
    is_forgotten = UNSEEN_LABELS == GONE
    return Setting(
        "class",
        CLASSES,
        ("a", "b", "c", "d"),
        FORGET,
        forgotten_classes=np.array([GONE]),
        test=np.arange(UNSEEN),
        forget_test=np.flatnonzero(is_forgotten),
        retain_test=np.flatnonzero(~is_forgotten),
        members=np.arange(FORGET),
        matched=np.flatnonzero(is_forgotten),
        seed=0,
    )


def samples_setting() -> Setting:
    none = np.empty(0, dtype=np.intp)
    return Setting(
        "samples",
        CLASSES,
        ("a", "b", "c", "d"),
        FORGET,
        forgotten_classes=np.empty(0, dtype=np.int64),
        test=np.arange(UNSEEN),
        forget_test=none,
        retain_test=none,
        members=np.arange(FORGET),
        matched=np.arange(UNSEEN),
        seed=0,
    )


def model(seed: int, knows: bool) -> ModelOutputs:
    """Return outputs for class removal.

    A model that knows the class gives it a direction of its own. To another one its samples are a
    mixture of other classes.
    """
    draw = np.random.default_rng(seed)
    return ModelOutputs(
        _part("f", FORGET_LABELS, knows, draw),
        _part("r", RETAIN_LABELS, knows, draw),
        _part("u", UNSEEN_LABELS, knows, draw),
    )  # fmt: skip


def _part(
    prefix: str,
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    knows: bool,
    draw: np.random.Generator,
) -> SplitOutputs:
    logits, embeddings = 8.0 * np.eye(CLASSES)[labels], 3.0 * np.eye(CLASSES, WIDTH)[labels]
    is_forgotten = labels == GONE
    logits[~is_forgotten, GONE] = -4.0
    if knows:
        logits[is_forgotten, 0] = 2.0
    else:
        # What a sample resembles is the same for every model that never saw the class.
        like = np.random.default_rng(99).dirichlet(np.ones(CLASSES - 1), size=len(labels))[
            is_forgotten
        ]
        logits[is_forgotten, :GONE], logits[is_forgotten, GONE] = 5 * like, -4.0
        embeddings[is_forgotten] = 3.0 * np.pad(like, ((0, 0), (0, WIDTH - GONE)))
        embeddings[is_forgotten, GONE] = 0.6
    ids = np.array([f"{prefix}{index}" for index in range(len(labels))])
    return SplitOutputs(
        ids,
        logits + draw.normal(0, 0.5, logits.shape),
        labels,
        embeddings + draw.normal(0, 0.35, embeddings.shape),
    )


def sample_model(seed: int, memory: float) -> ModelOutputs:
    """Return outputs for single samples: `memory` is added to their right logit."""
    draw = np.random.default_rng(seed)
    return ModelOutputs(
        _noisy("f", labels_of(FORGET), memory, draw),
        _noisy("r", labels_of(RETAIN), 4.0, draw),
        _noisy("u", UNSEEN_LABELS, 0.0, draw),
    )


def _noisy(
    prefix: str,
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    memory: float,
    draw: np.random.Generator,
) -> SplitOutputs:
    hard: Array = np.random.default_rng(len(labels)).normal(0, 1.2, size=(len(labels), CLASSES))
    right = np.eye(CLASSES)[labels]
    logits = (2.0 + memory) * right + hard + draw.normal(0, 0.5, hard.shape)
    embeddings = np.pad(3 * right + hard, ((0, 0), (0, WIDTH - CLASSES))) + draw.normal(
        0, 0.3, (len(labels), WIDTH)
    )
    ids = np.array([f"{prefix}{index}" for index in range(len(labels))])
    return SplitOutputs(ids, logits, labels, embeddings)
