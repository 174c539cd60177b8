"""Operands of halves, converted to the type of a sum once, not at each use."""

from __future__ import annotations

from schedule.open_schedule import OpenSchedule, Stage
from tir.ir import Load

from . import elementwise
from .block_analysis import made_for, stored


def is_converted(x: Load, kind: str) -> bool:
    """True where an operand of a sum of a type has another one."""
    return x.dtype != kind


def read_converted(s: OpenSchedule, block: str, x: Load) -> None:
    """Have a block read an operand in the type of its sum: as made by a block for it alone, or else from a copy."""
    kind, name = stored(s.block(block)).buffer.dtype, x.buffer.name
    if not is_converted(x, kind):
        return
    made = (p for p in made_for(s, block) if s.scheduled.get(p) != Stage.VIEW)
    maker = next((p for p in made if stored(s.block(p)).buffer.name == name), None)
    if maker is not None:
        s.unsafe_set_dtype(maker, 0, kind)
        return
    copy = s.cache_read(block, name, "global", [block])
    s.unsafe_set_dtype(copy, 0, kind)
    elementwise.build(s, copy)
