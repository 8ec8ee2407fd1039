"""Margins, the logit-scaled confidence that attacks use."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from duck.errors import BadInput

BOUND = 1e6
"""Limit of a margin. A masked class has the logit -inf, and a Gaussian needs finite numbers."""


def margins(logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return φ = z_y - logsumexp over j≠y of z_j in float64 (LiRA, eq. 4).

    It is log(p_y / (1 - p_y)) without the rounding of p. Shapes: logits (..., K), labels (...).
    """
    if logits.ndim != labels.ndim + 1 or logits.shape[:-1] != labels.shape:
        raise BadInput(
            f"Logits of shape {logits.shape} need labels of shape {logits.shape[:-1]}, "
            f"got {labels.shape}."
        )
    if logits.shape[-1] < 2:
        raise BadInput(f"A margin needs at least two classes, got {logits.shape[-1]}.")
    if labels.size and not 0 <= labels.min() <= labels.max() < logits.shape[-1]:
        raise BadInput(
            f"Labels must lie in 0..{logits.shape[-1] - 1}, got {labels.min()}..{labels.max()}."
        )
    others = logits.astype(np.float64)
    if np.isnan(others).any() or np.isposinf(others).any():
        raise BadInput(
            "The model's outputs are not all numbers (NaN or +inf): "
            "it has diverged or its input is broken."
        )
    place = np.expand_dims(labels.astype(np.int64), -1)
    own = np.take_along_axis(others, place, -1)[..., 0]
    np.put_along_axis(others, place, -np.inf, -1)
    highest = np.maximum(others.max(-1), -BOUND)
    others -= highest[..., None]
    np.exp(others, out=others)
    with np.errstate(divide="ignore"):  # every other class is masked
        rest = highest + np.log(others.sum(-1))
    found: npt.NDArray[np.float64] = np.clip(
        np.maximum(own, -BOUND) - np.maximum(rest, -BOUND), -BOUND, BOUND
    )
    return found


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the softmax over the last axis in float64."""
    exact = logits.astype(np.float64)
    powers = np.exp(exact - exact.max(-1, keepdims=True))
    shares: npt.NDArray[np.float64] = powers / powers.sum(-1, keepdims=True)
    return shares


def temperature(logits: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """Return the temperature that makes the outputs calibrated (Guo et al. 2017, sec. 4.2).

    Logits of different models become comparable when each is divided by its own temperature.
    """
    rows, num_classes = np.arange(len(labels)), logits.shape[1]
    # As if one more sample were wrong: of a model without errors the best temperature would be 0.
    wrong = 1 / (len(labels) + 1)

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        right = scaled[rows, labels]
        others = (scaled.sum(1) - right) / (num_classes - 1)
        return float((logsumexp(scaled, axis=1) - (1 - wrong) * right - wrong * others).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 5), method="bounded").x))
