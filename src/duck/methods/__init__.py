"""Unlearning methods: one file and one import line each.

Other packages register methods through the entry point `duck.methods`.
"""

from duck.methods.amun import Amun as Amun
from duck.methods.bad_teacher import BadTeacher as BadTeacher
from duck.methods.base import METHODS as METHODS
from duck.methods.boundary_expand import BoundaryExpand as BoundaryExpand
from duck.methods.boundary_shrink import BoundaryShrink as BoundaryShrink
from duck.methods.boundary_shrink import BoundaryShrinkRetain as BoundaryShrinkRetain
from duck.methods.delete import Delete as Delete
from duck.methods.duck import Duck as Duck
from duck.methods.duck_soft import DuckSoft as DuckSoft
from duck.methods.erm_ktp import ErmKtp as ErmKtp
from duck.methods.finetune import FineTuning as FineTuning
from duck.methods.l1_sparse import L1Sparse as L1Sparse
from duck.methods.neg_grad import NegGrad as NegGrad
from duck.methods.neg_grad_plus import NegGradPlus as NegGradPlus
from duck.methods.original import Original as Original
from duck.methods.presets import preset as preset
from duck.methods.random_label import RandomLabel as RandomLabel
from duck.methods.retrained import Retrained as Retrained
from duck.methods.salun import SalUn as SalUn
from duck.methods.scrub import Scrub as Scrub
from duck.methods.ssd import Ssd as Ssd
from duck.methods.warm_restart import WarmRestart as WarmRestart
