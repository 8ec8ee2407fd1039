"""How a model arranges images: a map of its embeddings (t-SNE) and how densely each class lies there (DUCK, section 4.4)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from duck.analysis.paired import paired_test
from duck.errors import BadInput
from duck.types import Predictions

Points = npt.NDArray[np.floating[Any]]
Densities = dict[str, dict[str, float | None]]
"""Split -> class -> log density; None where the samples of a class lie on one point."""

DIMENSIONS = 9
"""Of the space in which densities are measured; the paper's number."""
SHARE = 0.95
"""Of a class's samples that its ball holds."""
ROUNDING = 1e-12
"""Relative to the points: a ball no larger than that is one point."""
BEFORE_TSNE = 50
"""Dimensions that t-SNE gets to see; more cost time and show the same."""
ITERATIONS = 500


class Space(NamedTuple):
    """The space in which densities were measured."""

    dimensions: int
    variance: float
    """Share of the variance of the training embeddings that it holds."""


@dataclass(frozen=True)
class RunDensities:
    """Densities of one run's models, and the classes that were to be forgotten."""

    density: Mapping[str, Densities]
    forgotten: Sequence[int]


def tsne(embeddings: Points, seed: int = 0, iterations: int = ITERATIONS) -> Points:
    """A map (N, 2) in which neighbours stay neighbours. Distances between clusters mean little."""
    if len(embeddings) < 4:
        raise BadInput(f"A map of {len(embeddings)} embeddings shows nothing: give at least 4.")
    reduced = PCA(min(BEFORE_TSNE, *embeddings.shape), svd_solver="covariance_eigh").fit_transform(
        embeddings
    )
    perplexity = min(30.0, (len(embeddings) - 1) / 3)
    placed: Points = TSNE(
        perplexity=perplexity, init="pca", max_iter=iterations, n_jobs=2, random_state=seed
    ).fit_transform(reduced)
    return placed


def measure_densities(
    splits: Mapping[str, Predictions], dimensions: int | float = DIMENSIONS
) -> tuple[Densities, Space]:
    """Log density of every class in every split of one model, all its samples counted, right or wrong.

    The first split (the training samples) sets the space that all are measured in. `dimensions` is their number, or, below 1, the
    share of the variance to keep; densities compare only between spaces of as many dimensions.
    """
    if not (dimensions >= 1 and dimensions == int(dimensions)) and not 0 < dimensions < 1:
        raise BadInput(
            f"dimensions is a whole number, or a share of the variance between 0 and 1; got {dimensions}."
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


def log_density(points: Points, share: float = SHARE) -> float:
    """log(N / V): samples in the smallest ball around their mean that holds this share of them, over its volume.

    The volume of an n-ball leaves the range of floats long before n = 512: only logarithms are formed.
    """
    if not len(points):
        raise BadInput("No samples: no density.")
    distances = np.sort(np.linalg.norm(points - points.mean(0), axis=1))
    radius = float(distances[math.ceil(share * len(points)) - 1])
    inside, n = int((distances <= radius).sum()), int(points.shape[1])
    if radius <= ROUNDING * np.abs(points).max():
        return math.inf
    return math.log(inside) - (
        0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1) + n * math.log(radius)
    )


def density_tests(runs: Sequence[RunDensities]) -> list[dict[str, Any]]:
    """Over runs: forget against retain within each model, and the forgotten classes between models. One row a comparison."""
    rows = []
    for split in ("train", "test"):
        sides = {name: _sides(runs, name, split) for name in _shared(runs, split)}
        for name, (forget, retain) in sides.items():
            rows.append(
                {
                    "split": split,
                    "compared": f"{name}: forget - retain",
                    **asdict(paired_test(forget, retain)),
                }
            )
        for one, other in combinations(sides, 2):
            rows.append(
                {
                    "split": split,
                    "compared": f"forget: {one} - {other}",
                    **asdict(paired_test(sides[one][0], sides[other][0])),
                }
            )
    return rows


def _shared(runs: Sequence[RunDensities], split: str) -> list[str]:
    """Models that every run has, with densities of forgotten and retained classes."""
    return [
        name
        for name in runs[0].density
        if all(name in run.density and all(map(len, _split(run, name, split))) for run in runs)
    ]


def _sides(runs: Sequence[RunDensities], name: str, split: str) -> tuple[list[float], list[float]]:
    """Mean log density of the forgotten and of the retained classes, for each run."""
    pairs = [tuple(float(np.mean(values)) for values in _split(run, name, split)) for run in runs]
    return [forget for forget, _ in pairs], [retain for _, retain in pairs]


def _split(run: RunDensities, name: str, split: str) -> tuple[list[float], list[float]]:
    known = {
        int(label): value
        for label, value in run.density[name].get(split, {}).items()
        if value is not None
    }
    gone = [value for label, value in known.items() if label in run.forgotten]
    return gone, [value for label, value in known.items() if label not in run.forgotten]
