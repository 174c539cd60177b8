"""Cost models: how promising a candidate is, judged for whole populations without lowering one of them.

`TileModel` is a formula, `GPUModel` that for GPUs; a model that learns has the same two methods (`CostModel`). What a model is
told of a sketch is its `Family`.
"""

from .family import Family
from .features import NAMES, features
from .gbdt import Boosting, GBDTModel
from .geometry import Access, Machine, Nest
from .gpu_model import GPUModel
from .loopnest import Program, program
from .model import CostModel, RandomModel, WarmUp
from .tile_model import TileModel

__all__ = [
    "Access",
    "Boosting",
    "CostModel",
    "Family",
    "GBDTModel",
    "GPUModel",
    "Machine",
    "NAMES",
    "Nest",
    "Program",
    "RandomModel",
    "TileModel",
    "WarmUp",
    "features",
    "program",
]
