"""Membership attacks: a file and an import line each. Other packages use `duck.attacks`."""

from duck.audits.attacks.base import ATTACKS
from duck.audits.attacks.lira import LiraAttack
from duck.audits.attacks.rmia import RmiaAttack
from duck.audits.attacks.svm import SvmAttack
from duck.audits.attacks.threshold import (
    ConfidenceAttack,
    EntropyAttack,
    LossAttack,
    RunnerUpAttack,
)
from duck.audits.attacks.ulira import ULiraAttack

__all__ = [
    "ATTACKS",
    "ConfidenceAttack",
    "EntropyAttack",
    "LiraAttack",
    "LossAttack",
    "RmiaAttack",
    "RunnerUpAttack",
    "SvmAttack",
    "ULiraAttack",
]
