"""Unlearning methods: one file and one import line each.

Other packages register methods through the entry point `duck.methods`.
"""

from duck.methods.amun import Amun
from duck.methods.bad_teacher import BadTeacher
from duck.methods.base import METHODS
from duck.methods.boundary_expand import BoundaryExpand
from duck.methods.boundary_shrink import BoundaryShrink, BoundaryShrinkRetain
from duck.methods.delete import Delete
from duck.methods.duck import Duck
from duck.methods.duck_soft import DuckSoft
from duck.methods.erm_ktp import ErmKtp
from duck.methods.finetune import FineTuning
from duck.methods.l1_sparse import L1Sparse
from duck.methods.neg_grad import NegGrad
from duck.methods.neg_grad_plus import NegGradPlus
from duck.methods.original import Original
from duck.methods.presets import preset
from duck.methods.random_label import RandomLabel
from duck.methods.retrained import Retrained
from duck.methods.salun import SalUn
from duck.methods.scrub import Scrub
from duck.methods.ssd import Ssd
from duck.methods.warm_restart import WarmRestart

__all__ = [
    "METHODS",
    "Amun",
    "BadTeacher",
    "BoundaryExpand",
    "BoundaryShrink",
    "BoundaryShrinkRetain",
    "Delete",
    "Duck",
    "DuckSoft",
    "ErmKtp",
    "FineTuning",
    "L1Sparse",
    "NegGrad",
    "NegGradPlus",
    "Original",
    "RandomLabel",
    "Retrained",
    "SalUn",
    "Scrub",
    "Ssd",
    "WarmRestart",
    "preset",
]
