"""Cost models: scores for whole populations of candidates, without lowering one of them.

`TileModel` is a formula for processors, `GPUModel` one for GPUs; a model that learns has the same two methods (`CostModel`).
`GBDTModel` learns with boosted trees, `RegressorModel` with any regressor. A model sees a sketch as its `SketchPrograms`.
"""

from schedule.machine import Machine

from .features import NAMES, features
from .gbdt import Boosting, GBDTModel
from .gpu_model import GPUModel
from .learned import LearnedModel, RegressorModel
from .loopnest import ProgramDescription, program
from .losses import Loss, PairRank, ThroughputSum, TimeSum
from .model import CostModel, Explains, RandomModel, WarmUp
from .sketch_programs import SketchPrograms, TileAccess, TiledNest
from .tile_model import TileModel

__all__ = [
    "Boosting", "CostModel", "Explains", "GBDTModel", "GPUModel", "LearnedModel", "Loss", "Machine", "NAMES", "PairRank",
    "ProgramDescription", "RandomModel", "RegressorModel", "SketchPrograms", "ThroughputSum", "TileAccess",
    "TileModel", "TiledNest", "TimeSum", "WarmUp", "features", "program",
]  # fmt: skip
