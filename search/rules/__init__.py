"""Sketch rules: each looks at one block of a half-made schedule and says whether and how it can be developed further.

A rule is an object with a `name` and two methods: `applies(state, block)` gives a Verdict, `apply(state, block)` the schedules
that it makes of one, a list of `OpenSchedule`.
`search.space.generate` tries the rules of `DEFAULT` in order on every block, consumers before producers; your own go in front:

    class KeepSerial:
        name = "keep serial"

        def applies(self, state, block):
            return Verdict.ONLY if block == "C" else Verdict.SKIP

        def apply(self, state, block):
            return [state.fired(self.name, block)]

    sketches = generate(func, target, rules=(KeepSerial(), *DEFAULT))
"""

from .cache_write import CacheWrite
from .chains import FuseProducts
from .constants import UnrollConstants
from .finished import DotProducts, Elementwise, MatrixVector, Reduction, Rowwise
from .inline import Inline, InlineAgain
from .lanes import ReduceInLanes
from .rfactor import ReduceInThreads, Rfactor, ansor_needs_rfactor
from .rows import FuseRows
from .rule import FunctionRule, Rule, Verdict, load_rules, load_space, rule
from .skip import Skip
from .template import (
    DepthwiseConvolution,
    DirectConvolution,
    NarrowConvolution,
    Packing,
    PixelsInLanes,
    TransposedConvolution,
)
from .tiling import MultiLevelTiling, Tiling, TilingWithFusion, needs_tiling

DEFAULT: tuple[Rule, ...] = (
    Rowwise(),
    Inline(once=True),
    UnrollConstants(),
    MatrixVector(),
    DotProducts(),
    Elementwise(),
    Reduction(),
    ReduceInThreads(),
    FuseProducts(),
    Packing(),
    DirectConvolution(),
    PixelsInLanes(),
    TransposedConvolution(),
    NarrowConvolution(),
    DepthwiseConvolution(),
    CacheWrite(unless=Packing().found),
    TilingWithFusion(only=True),
    MultiLevelTiling(),
    InlineAgain(),
    FuseRows(),
    ReduceInLanes(),
    Skip(),
)

_ANSOR = Tiling("SSRSRS", perfect=True, limit=64, innermost=False, needed=needs_tiling)
_LIMITED = Tiling("SRS", perfect=True, limit=16, innermost=False, needed=needs_tiling)

ANSOR: tuple[Rule, ...] = (
    Inline(costly=("exp",)),
    UnrollConstants(perfect=True, limit=64),
    Rfactor(ansor_needs_rfactor, perfect=True, limit=64),
    CacheWrite(_ANSOR),
    TilingWithFusion(_ANSOR),
    MultiLevelTiling(_ANSOR),
    Skip(),
)

LIMITED: tuple[Rule, ...] = (
    Inline(costly=("exp",)),
    UnrollConstants(perfect=True, limit=16),
    CacheWrite(_LIMITED),
    TilingWithFusion(_LIMITED, levels=(1,)),
    MultiLevelTiling(_LIMITED),
    Skip(),
)

__all__ = [
    "ANSOR", "DEFAULT", "LIMITED", "CacheWrite", "DepthwiseConvolution", "DirectConvolution", "DotProducts", "Elementwise",
    "FunctionRule", "FuseProducts", "FuseRows", "Inline", "InlineAgain", "MatrixVector", "MultiLevelTiling",
    "NarrowConvolution", "Packing", "PixelsInLanes", "ReduceInLanes", "ReduceInThreads", "Reduction", "Rfactor", "Rowwise",
    "Rule", "Skip", "Tiling", "TilingWithFusion", "TransposedConvolution", "UnrollConstants", "Verdict", "load_rules",
    "load_space", "rule",
]  # fmt: skip
