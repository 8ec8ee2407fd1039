"""What embeddings still tell of the forgotten samples' classes, whatever the head does with them."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from sklearn.neighbors import NearestNeighbors

from duck.audits.measurements import FOLDS, Measure, Measurement, rate
from duck.audits.outputs import Array, ModelOutputs, Setting, SplitOutputs
from duck.audits.ridge import balanced, folds, ridge
from duck.runtime import seeded

SHOTS = (1, 5, 20)
JUDGED = 1
"""Labels of a forgotten class that the judged probe learns from: with more it finds easy classes in models that never saw them."""
DRAWS = 50
NEIGHBOURS = 10


def probes(setting: Setting, labels: npt.NDArray[np.int64]) -> list[Measure]:
    """For a removed class, learned from some of its samples; for single samples, from retained ones. `labels`: of the forget samples."""
    if setting.kind == "samples":
        about = "share of forget samples that a linear probe fitted on retained ones reads right"
        near = "share of forget samples that their nearest retained ones name right"
        return [
            Measure("linear probe", about, "%", _linear_kept, primary=True),
            Measure("k-NN probe", near, "%", _nearest_kept),
        ]
    fewest = int(np.bincount(labels)[setting.forgotten].min())
    few = [shots for shots in SHOTS if shots == JUDGED or 2 * shots <= fewest]
    about = "share of forget samples that a linear probe fitted on all classes reads right"
    near = f"share of forget samples that their {NEIGHBOURS} nearest neighbours name right"
    return [
        *(_few_shots(setting, shots) for shots in few),
        Measure("linear probe", about, "%", _linear_all),
        Measure("k-NN probe", near, "%", _nearest_all),
    ]


def _few_shots(setting: Setting, shots: int) -> Measure:
    about = f"share of the forgotten class found by its mean embedding, learned from {shots} label{'s' * (shots > 1)}"
    own: Callable[[ModelOutputs], Measurement] = lambda seen: prototypes(seen, setting, shots)  # noqa: E731
    return Measure(f"{shots}-shot probe", about, "%", own, primary=shots == JUDGED)


def prototypes(seen: ModelOutputs, setting: Setting, shots: int) -> Measurement:
    """Nearest class mean by cosine, the forgotten classes' from a few labels; a mean over draws, scored on the samples not drawn."""
    generator, forget, retain = seeded(setting.seed, "audit", "shots"), seen.forget, seen.retain
    ours, theirs = unit(forget.embeddings), unit(retain.embeddings)
    kept = {
        int(label): theirs[retain.labels == label].mean(0) for label in np.unique(retain.labels)
    }
    hits = []
    for _ in range(DRAWS):
        order = torch.randperm(len(forget), generator=generator).numpy()
        drawn = np.concatenate(
            [order[forget.labels[order] == label][:shots] for label in setting.forgotten]
        )
        means = {
            **kept,
            **{
                int(label): ours[drawn][forget.labels[drawn] == label].mean(0)
                for label in setting.forgotten
            },
        }
        rest = np.setdiff1d(order, drawn) if len(drawn) < len(order) else order
        nearest = np.array(list(means))[
            (ours[rest] @ unit(np.stack(list(means.values()))).T).argmax(1)
        ]
        hits.append(float((nearest == forget.labels[rest]).mean()))
    return rate(np.array(hits), len(forget))


def unit(rows: Array) -> Array:
    """Each row scaled to length 1."""
    directions: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return directions


def nearest(
    part: SplitOutputs, known: Array, labels: npt.NDArray[np.int64], itself: bool = False
) -> npt.NDArray[np.int64]:
    """The most frequent label among the nearest known rows by cosine. `itself`: the first rows known are these samples."""
    count = min(NEIGHBOURS, len(known) - itself)
    found = (
        NearestNeighbors(n_neighbors=count + itself, algorithm="brute")
        .fit(unit(known))
        .kneighbors(unit(part.embeddings))[1]
    )
    if itself:
        # A sample is its own nearest neighbour, but twins of it may push it off the list: then the farthest goes instead.
        own = found == np.arange(len(part))[:, None]
        own[~own.any(1), -1] = True
        found = found[~own].reshape(len(part), count)
    return np.array([np.bincount(row).argmax() for row in labels[found]])


def _linear_kept(seen: ModelOutputs) -> Measurement:
    read = linear(seen.retain.embeddings, seen.retain.labels, seen.forget.embeddings)
    return rate(read == seen.forget.labels)


def _linear_all(seen: ModelOutputs) -> Measurement:
    """Every forget sample is read by a probe that was fitted without it."""
    inputs, labels = _everyone(seen)
    given, read = folds(labels, FOLDS), np.empty(len(labels), np.int64)
    for fold in range(FOLDS):
        inside = given != fold
        read[~inside] = linear(inputs[inside], labels[inside], inputs[~inside])
    return rate(read[: len(seen.forget)] == seen.forget.labels)


def linear(inputs: Array, labels: npt.NDArray[np.int64], rows: Array) -> npt.NDArray[np.int64]:
    """The class of each row by one line a class, each class with the same say."""
    classes = np.unique(labels)
    score = ridge(inputs, 2.0 * (labels[:, None] == classes) - 1.0, balanced(labels))
    named: npt.NDArray[np.int64] = classes[score(rows).argmax(1)]
    return named


def _nearest_kept(seen: ModelOutputs) -> Measurement:
    return rate(
        nearest(seen.forget, seen.retain.embeddings, seen.retain.labels) == seen.forget.labels
    )


def _nearest_all(seen: ModelOutputs) -> Measurement:
    return rate(nearest(seen.forget, *_everyone(seen), itself=True) == seen.forget.labels)


def _everyone(seen: ModelOutputs) -> tuple[Array, npt.NDArray[np.int64]]:
    return np.concatenate([seen.forget.embeddings, seen.retain.embeddings]), np.concatenate(
        [seen.forget.labels, seen.retain.labels]
    )
