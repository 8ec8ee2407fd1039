"""Probes: how well embeddings still identify the classes of the forgotten samples."""

from functools import partial

import numpy as np
import torch
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.neighbors import NearestNeighbors

from duck.audits.measurements import FOLDS, Measure, Measurement, rate, ridge_classifier
from duck.audits.outputs import Labels, ModelOutputs, Setting, SplitOutputs
from duck.audits.scores import Array
from duck.printable import counted
from duck.runtime import seeded

SHOTS = (1, 5, 20)
JUDGED = 1
"""Labels of a forgotten class for the decisive probe. With more it also finds easy classes in
models that never saw them."""
DRAWS = 50
NEIGHBOURS = 10


def probes(setting: Setting, labels: Labels) -> list[Measure]:
    """Return the probes of a setting; `labels` are those of the forget samples.

    A removed class is learned from some of its samples, single samples from retained ones.
    """
    if setting.kind == "samples":
        about = "share of forget samples that a linear probe fitted on retained ones gets right"
        near = "share of forget samples that the nearest retained samples get right"
        return [
            Measure("linear probe", about, "%", _linear_kept),
            Measure("k-NN probe", near, "%", _nearest_kept),
        ]
    fewest = int(np.bincount(labels)[setting.forgotten_classes].min())
    few = [shots for shots in SHOTS if shots == JUDGED or 2 * shots <= fewest]
    about = "share of forget samples that a linear probe fitted on all classes gets right"
    near = f"share of forget samples that the {NEIGHBOURS} nearest neighbours get right"
    return [
        *(
            Measure(
                f"{shots}-shot probe",
                "share of the forgotten class found by its mean embedding, learned from "
                f"{counted(shots, 'label')}",
                "%",
                partial(prototypes, setting=setting, shots=shots),
            )
            for shots in few
        ),
        Measure("linear probe", about, "%", _linear_all),
        Measure("k-NN probe", near, "%", _nearest_all),
    ]


def prototypes(outputs: ModelOutputs, setting: Setting, shots: int) -> Measurement:
    """Classify by the nearest class mean (cosine), with a few labels of the forgotten classes.

    The result is a mean over draws of these labels, scored on the samples that were not drawn.
    """
    generator = seeded(setting.seed, "audit", "shots")
    forget, retain = outputs.forget, outputs.retain
    forget_units = unit(forget.embeddings)
    retained_means = _class_means(unit(retain.embeddings), retain.labels, np.unique(retain.labels))
    accuracies = []
    for _ in range(DRAWS):
        order = torch.randperm(len(forget), generator=generator).numpy()
        labelled = np.concatenate(
            [order[forget.labels[order] == label][:shots] for label in setting.forgotten_classes]
        )
        means = retained_means | _class_means(
            forget_units[labelled], forget.labels[labelled], setting.forgotten_classes
        )
        rest = np.setdiff1d(order, labelled) if len(labelled) < len(order) else order
        similarities = forget_units[rest] @ unit(np.stack(list(means.values()))).T
        predicted = np.array(list(means))[similarities.argmax(1)]
        accuracies.append(float((predicted == forget.labels[rest]).mean()))
    return rate(np.array(accuracies), len(forget))


def _class_means(rows: Array, labels: Labels, classes: Labels) -> dict[int, Array]:
    """Return the mean row of each class."""
    return {int(label): rows[labels == label].mean(0) for label in classes}


def unit(rows: Array) -> Array:
    """Scale each row to length 1."""
    directions: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return directions


def nearest(part: SplitOutputs, known: Array, labels: Labels, itself: bool = False) -> Labels:
    """Return the most frequent label among the nearest known rows (cosine).

    `itself`: the first known rows are the samples themselves.
    """
    count = min(NEIGHBOURS, len(known) - itself)
    search = NearestNeighbors(n_neighbors=count + itself, algorithm="brute").fit(unit(known))
    found = search.kneighbors(unit(part.embeddings))[1]
    if itself:
        # A sample is its own nearest neighbour. Copies of it may displace it from the list: then
        # the farthest neighbour is dropped instead.
        own = found == np.arange(len(part))[:, None]
        own[~own.any(1), -1] = True
        found = found[~own].reshape(len(part), count)
    return np.array([np.bincount(row).argmax() for row in labels[found]])


def _nearest_kept(outputs: ModelOutputs) -> Measurement:
    named = nearest(outputs.forget, outputs.retain.embeddings, outputs.retain.labels)
    return rate(named == outputs.forget.labels)


def _nearest_all(outputs: ModelOutputs) -> Measurement:
    named = nearest(outputs.forget, *_all_samples(outputs), itself=True)
    return rate(named == outputs.forget.labels)


def linear(inputs: Array, labels: Labels, rows: Array) -> Labels:
    """Return the class of each row by linear regression, one against the rest."""
    named: Labels = ridge_classifier("balanced").fit(inputs, labels).predict(rows)
    return named


def _linear_kept(outputs: ModelOutputs) -> Measurement:
    named = linear(outputs.retain.embeddings, outputs.retain.labels, outputs.forget.embeddings)
    return rate(named == outputs.forget.labels)


def _linear_all(outputs: ModelOutputs) -> Measurement:
    """Classify every forget sample by a probe that was fitted without it."""
    inputs, labels = _all_samples(outputs)
    folds = PredefinedSplit(fold_of_each(labels))
    named = cross_val_predict(ridge_classifier("balanced"), inputs, labels, cv=folds)
    return rate(named[: len(outputs.forget)] == outputs.forget.labels)


def fold_of_each(labels: Labels) -> Labels:
    """Return a fold for each sample, with each class spread over all folds."""
    folds = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        folds[rows] = np.arange(len(rows)) % FOLDS
    return folds


def _all_samples(outputs: ModelOutputs) -> tuple[Array, Labels]:
    """Return embeddings and labels of the forget samples, then of the retained ones."""
    splits = (outputs.forget, outputs.retain)
    embeddings = np.concatenate([split.embeddings for split in splits])
    return embeddings, np.concatenate([split.labels for split in splits])
