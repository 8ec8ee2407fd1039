"""The feature space of a model: t-SNE maps and the density of each class (DUCK, section 4.4)."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from duck.errors import BadInput
from duck.records import ClassIndex
from duck.types import Predictions

Points = npt.NDArray[np.floating[Any]]
Densities = dict[str, dict[ClassIndex, float | None]]
"""Split -> class -> log density; None if all samples of a class are the same point."""

DIMENSIONS = 9
"""Dimensions of the space in which densities are measured, as in the paper."""
BALL_SHARE = 0.95
"""Share of the samples of a class that its ball contains."""
ROUNDING = 1e-12
"""A ball with a smaller radius, relative to its points, is one point."""
TSNE_DIMENSIONS = 50
"""PCA reduces embeddings to this before t-SNE. More take longer and look the same."""
ITERATIONS = 500


@dataclass(frozen=True)
class Space:
    """The space in which densities were measured."""

    dimensions: int
    variance: float
    """Share of the variance of the training embeddings that the space keeps."""


def tsne(embeddings: Points, seed: int = 0, iterations: int = ITERATIONS) -> Points:
    """Compute a map (N, 2) that keeps neighbours together.

    Distances between clusters mean little.
    """
    if len(embeddings) < 4:
        raise BadInput(f"A map of {len(embeddings)} embeddings shows nothing: give at least 4.")
    pca = PCA(min(TSNE_DIMENSIONS, *embeddings.shape), svd_solver="covariance_eigh")
    perplexity = min(30.0, (len(embeddings) - 1) / 3)
    estimator = TSNE(
        perplexity=perplexity, init="pca", max_iter=iterations, n_jobs=2, random_state=seed
    )
    points: Points = estimator.fit_transform(pca.fit_transform(embeddings))
    return points


def measure_densities(
    splits: Mapping[str, Predictions], dimensions: int | float = DIMENSIONS
) -> tuple[Densities, Space]:
    """Measure the log density of every class in every split of one model.

    All samples count, also those that are classified wrongly. The first split (the training
    samples) defines the space. `dimensions` is its number of dimensions or, below 1, the share of
    the variance to keep. Densities compare only between spaces with the same number of dimensions.
    """
    if not (dimensions >= 1 and dimensions == int(dimensions)) and not 0 < dimensions < 1:
        raise BadInput(
            "dimensions is a whole number, or a share of the variance between 0 and 1; "
            f"got {dimensions}."
        )
    first = next(iter(splits.values())).embeddings.double().numpy()
    pca = PCA(
        dimensions if dimensions < 1 else min(int(dimensions), *first.shape),
        svd_solver="covariance_eigh",
    ).fit(first)
    found: Densities = {}
    for name, part in splits.items():
        points, labels = pca.transform(part.embeddings.double().numpy()), part.labels.numpy()
        logs = {str(label): log_density(points[labels == label]) for label in np.unique(labels)}
        found[name] = {
            label: value if math.isfinite(value) else None for label, value in logs.items()
        }
    return found, Space(int(pca.n_components_), float(pca.explained_variance_ratio_.sum()))


def mean_densities(
    densities: Mapping[ClassIndex, float | None], forgotten: Collection[int]
) -> tuple[float, float] | None:
    """Return the mean log density of forgotten and of retained classes; None if one has none."""
    known = {int(label): density for label, density in densities.items() if density is not None}
    forget = [density for label, density in known.items() if label in forgotten]
    retain = [density for label, density in known.items() if label not in forgotten]
    return (float(np.mean(forget)), float(np.mean(retain))) if forget and retain else None


def log_density(points: Points) -> float:
    """Compute log(N / V) of the smallest ball around the mean that holds 95 % of the points.

    The volume of an n-ball leaves the range of floats long before n = 512, so only logarithms are
    computed.
    """
    if not len(points):
        raise BadInput("No samples: no density.")
    distances = np.sort(np.linalg.norm(points - points.mean(0), axis=1))
    radius = float(distances[math.ceil(BALL_SHARE * len(points)) - 1])
    inside, n = int((distances <= radius).sum()), int(points.shape[1])
    if radius <= ROUNDING * np.abs(points).max():
        return math.inf
    return math.log(inside) - (
        0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1) + n * math.log(radius)
    )
