"""Cost models: how promising a candidate is, judged for whole populations without lowering one of them.

`TileModel` is a formula; a model that learns has the same two methods (`CostModel`).
"""

from .geometry import Access, Machine, Nest
from .model import CostModel, RandomModel
from .tile_model import TileModel

__all__ = ["Access", "CostModel", "Machine", "Nest", "RandomModel", "TileModel"]
