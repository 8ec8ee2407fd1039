"""Membership attacks: a file and an import line each. Other packages use `duck.attacks`."""

from duck.audits.attacks import (
    confidence,
    entropy,
    lira,
    lira_fixed,
    lira_online,
    lira_retrained,
    loss,
    rmia,
    runner_up,
    svm,
    ulira,
)
from duck.audits.attacks.base import ATTACKS

__all__ = [
    "ATTACKS",
    "confidence",
    "entropy",
    "lira",
    "lira_fixed",
    "lira_online",
    "lira_retrained",
    "loss",
    "rmia",
    "runner_up",
    "svm",
    "ulira",
]
