"""Sketch rules: each may schedule one block of an incomplete schedule, in one or several ways.

A rule is an object with a `name` and two methods: `applies(state, block)` returns a Verdict, and `apply(state, block)` a list of
new schedules, each an `OpenSchedule`. `search.space.generate` tries the rules of `DEFAULT` in order on each block, consumers
before producers. Put your own rules in front:

    class KeepSerial:
        name = "keep serial"

        def applies(self, state, block):
            return Verdict.ONLY if block == "C" else Verdict.SKIP

        def apply(self, state, block):
            return [state.fired(self.name, block)]

    sketches = generate(func, target, rules=(KeepSerial(), *DEFAULT))
"""

from schedule.templates import CHAINS, REDUCTION, ROWS, SUMS_OF_PRODUCTS, RefusedRule, SumOfProducts, WholeNest, gemm

from .cache_write import CacheWrite
from .constants import UnrollConstants
from .inline import Inline, InlineAgain
from .rfactor import ReduceInThreads, Rfactor, ansor_needs_rfactor
from .rule import FunctionRule, Rule, Verdict, load_rules, rule
from .skip import Skip
from .tiling import MultiLevelTiling, Tiling, TilingWithFusion, needs_tiling

PACKING = SumOfProducts(gemm)
DEFAULT: tuple[Rule, ...] = (
    Inline(once=True),
    UnrollConstants(),
    ReduceInThreads(),
    CHAINS,
    *SUMS_OF_PRODUCTS,
    CacheWrite(unless=PACKING.found),
    TilingWithFusion(only=True),
    MultiLevelTiling(),
    InlineAgain(),
    ROWS,
    REDUCTION,
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
    "ANSOR", "CHAINS", "DEFAULT", "LIMITED", "PACKING", "REDUCTION", "ROWS", "CacheWrite", "FunctionRule", "Inline",
    "InlineAgain", "MultiLevelTiling", "ReduceInThreads", "RefusedRule", "Rfactor", "Rule", "Skip", "SumOfProducts", "Tiling",
    "TilingWithFusion", "UnrollConstants", "Verdict", "WholeNest", "load_rules", "rule",
]  # fmt: skip
