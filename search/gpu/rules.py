"""The rules of the space for GPUs, in the order in which they are tried."""

from __future__ import annotations

from ..rules.rule import Rule
from ..rules.skip import Skip
from .elements import InlineElements
from .rows import CrossThreadReduction
from .split_sum import SplitSum
from .tensor_cores import TileForTensorCores
from .tiling import TileThroughShared

GPU: tuple[Rule, ...] = (
    CrossThreadReduction(), SplitSum(), TileForTensorCores(), TileThroughShared(), InlineElements(), Skip(),
)  # fmt: skip

GPU_ANSOR: tuple[Rule, ...] = (CrossThreadReduction(), TileThroughShared(ours=False), InlineElements(), Skip())
