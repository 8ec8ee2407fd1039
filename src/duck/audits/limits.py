"""How much may be left in a model that is called forgotten, and how many models are compared."""

from dataclasses import dataclass

DEFAULT_MODELS = 6
"""Retrained models. One more than an interval needs: each of them is judged by five others."""
MARGIN = 0.1
MAX_ADVANTAGE = 0.05
MAX_EPSILON = 1.0


@dataclass(frozen=True)
class Limits:
    """How much may be left in a model that is called forgotten."""

    margin: float = MARGIN
    """Residual memory ρ."""
    max_advantage: float | None = None
    """Membership advantage, 2 AUC - 1, beyond that of retrained models. None: 0.05, or what this
    audit can resolve where that is more."""
    max_epsilon: float = MAX_EPSILON
    """ε of the full tier."""
