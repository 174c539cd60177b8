"""Cost models: how promising a candidate is, for whole populations without lowering one of them.

`TileModel` is a formula, `GPUModel` that for GPUs; a model that learns has the same two methods (`CostModel`). `GBDTModel` learns
with boosted trees, `RegressorModel` with any regressor. What a model sees of a sketch is its `Family`.
"""

from schedule.machine import Machine

from .family import Family
from .features import NAMES, features
from .gbdt import Boosting, GBDTModel
from .geometry import Access, Nest
from .gpu_model import GPUModel
from .learned import LearnedModel, Regressor, RegressorModel
from .loopnest import Program, program
from .losses import Loss, ThroughputSum, TimeSum
from .model import CostModel, RandomModel, WarmUp
from .tile_model import TileModel

__all__ = [
    "Access", "Boosting", "CostModel", "Family", "GBDTModel", "GPUModel", "LearnedModel", "Loss", "Machine", "NAMES", "Nest",
    "Program", "RandomModel", "Regressor", "RegressorModel", "ThroughputSum", "TileModel", "TimeSum", "WarmUp", "features",
    "program",
]  # fmt: skip
