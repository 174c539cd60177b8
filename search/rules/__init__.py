"""Sketch rules: each looks at one block of a half-made schedule and says whether and how it can be developed further.

A rule is an object with a `name` and two methods, `applies(state, block) -> Verdict` and `apply(state, block) -> list[State]`.
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
from .inline import Inline
from .lanes import ReduceInLanes
from .rows import FuseRows
from .rule import Rule, Verdict
from .skip import Skip
from .tiling import MultiLevelTiling, TilingWithFusion

DEFAULT: tuple[Rule, ...] = (
    Inline(),
    CacheWrite(),
    TilingWithFusion(),
    MultiLevelTiling(),
    ReduceInLanes(),
    FuseRows(),
    Skip(),
)

__all__ = [
    "DEFAULT", "CacheWrite", "FuseRows", "Inline", "MultiLevelTiling", "ReduceInLanes", "Rule", "Skip", "TilingWithFusion",
    "Verdict",
]  # fmt: skip
