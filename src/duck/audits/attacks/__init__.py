"""Membership attacks: a file and an import line each. Other packages use `duck.attacks`."""

from duck.audits.attacks import lira, rmia, svm, threshold, ulira
from duck.audits.attacks.base import ATTACKS

__all__ = ["ATTACKS", "lira", "rmia", "svm", "threshold", "ulira"]
