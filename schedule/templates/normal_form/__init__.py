"""The normal form of a program, which templates rely on, however the program was written.

    normal_form.apply(s)     # before the templates
    normal_form.restore(s)   # after all else

`apply` brings indices and bodies to one form over the domains of their axes. Its steps are those of a schedule: legal, and in the
trace. PASSES has them in order. Each leaves alone what is in its form already, so that a program in normal form stays as it is.

The layout of parameters cannot change: they are read and written through copies in the form that templates know (views).
`restore` takes these out again when all loops are made, so that none costs anything.
"""

from __future__ import annotations

from collections.abc import Callable

from schedule.open_schedule import OpenSchedule

from .axes import plain_axes
from .formulas import factors_outside, padding_outside, simple_formulas, stages_inside
from .views import plain_arrays, restore

PASSES = (simple_formulas, stages_inside, factors_outside, plain_axes, padding_outside)

__all__ = ["PASSES", "apply", "arrays_apart", "restore"]


def apply(s: OpenSchedule) -> None:
    """Bring the blocks not yet scheduled to normal form, but for the views of `arrays_apart`."""
    for change in PASSES:
        for block in s.unscheduled():
            if s.is_unscheduled(block):
                _apply_pass(s, block, change)


def arrays_apart(s: OpenSchedule, block: str) -> None:
    """Give a block views of the arrays that it accesses elsewhere than at its axes, or at several places."""
    _apply_pass(s, block, plain_arrays)


def _apply_pass(s: OpenSchedule, block: str, change: Callable[[OpenSchedule, str], None]) -> None:
    """Apply a pass to a block, and record its new form in `made`: its tile sizes belong to that."""
    before = s.block(block)
    change(s, block)
    if s.is_unscheduled(block) and s.block(block) != before:
        s.made[block] = s.block(block)
