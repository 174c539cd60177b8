"""The schedule explorer: one page that steps through a schedule, or through programs that follow one another.

For each step the page has the script's change, the loop nest as boxes, an animation of a small instance, and measured times. The
animation shows the order of iterations, accesses, hits and misses of a simulated cache, lanes and workers.

`stages` makes the steps of a schedule, `small` finds the small instance, `simulate` runs it, `nest` draws, `times` measures, and
`page` puts all together. `served` is the page with a schedule that is edited: `answers` reads it, and executes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tir.lazy_names import lazy_names

if TYPE_CHECKING:  # as what simulates, reads answers and draws nests runs where nothing can be compiled, such as in a browser
    from .page import explore

__all__ = ["explore"]

__getattr__ = lazy_names(__name__)
