"""Schedules that are known to be good, by pattern: composed from primitives, for any shape, on a CPU.

    s = templates.schedule(func, target)    # a Schedule; None where the function is not made of known patterns

A pattern is recognised by the structure of a block, never by a name. Each module has one: what it `matches`, and how to `build`
it on an `OpenSchedule`, whose open numbers have the computed ones as seeds: `schedule` takes the seeds, the search draws others.
"""

from __future__ import annotations

from math import inf
from typing import Any

from schedule.error import ScheduleError
from schedule.machine import CPU as Processor
from schedule.machine import Described
from schedule.open_schedule import OpenSchedule
from schedule.primitive import blocks_below, find_block
from schedule.schedule import Schedule
from tir.ir import Block, Load, PrimFunc

from . import conv2d, depthwise, dots, elementwise, gemm, gemv, narrow, pixels, reduction, rowwise, transposed
from .annotate import annotate_tiled
from .structure import contraction, extent, is_plain, reused, stored
from .template import ways

__all__ = [
    "Processor", "conv2d", "depthwise", "dots", "elementwise", "gemm", "gemv", "narrow", "pixels", "reduction", "rowwise",
    "only_reduces", "schedule", "transposed",
]  # fmt: skip

# Templates of sums of products (`template.Template`): of those that match, the one of the fewest cycles is the default.
SUMS: tuple[Any, ...] = (gemv, dots, gemm, pixels, conv2d, transposed, narrow, depthwise)


def schedule(func: PrimFunc, target: Described) -> Schedule | None:
    """A schedule of `func` made of known patterns; None unless each of its blocks belongs to one.

    Nothing is measured or random. `target` is a `codegen.Target` or anything that describes a processor like one.
    """
    s = OpenSchedule(func, target, at_seed=True)
    try:
        return s.plain(func) if build(s) else None
    except ScheduleError:
        return None


def build(s: OpenSchedule) -> bool:
    """Schedule all blocks, with open numbers; says whether all were recognised: products first, as they take what follows them
    along. ScheduleError where a step is refused."""
    for block in [b.name for b in blocks_below(s.func.body) if elementwise.matches(b)][::-1]:
        if block in _blocks(s):
            elementwise.inline_chain(s, block)
    _inline_permutations(s)
    names = [b.name for b in blocks_below(s.func.body)]
    for name in names:
        gemv.without_units(s, name)
    for name in names:
        if name in _blocks(s):
            _contracted(s, name)
    names = [name for name in names if name in _blocks(s)]
    done = set(s.scheduled)
    for name in reversed(names):
        if name not in done and (rows := rowwise.matches(s, name, done)) is not None:
            rowwise.build(s, rows)
            done |= {name, *rows.stages}
    for name in names:
        if name in done:
            continue
        if elementwise.matches(find_block(s.func, name)):
            elementwise.build(s, name)
        elif only_reduces(find_block(s.func, name)):
            reduction.build(s, name)
        else:
            return False
    annotate_tiled(s)
    return bool(names)


def _blocks(s: OpenSchedule) -> set[str]:
    return {b.name for b in blocks_below(s.func.body)}


def only_reduces(block: Block) -> bool:
    """Whether a block is a reduction that gains nothing by tiles, and no convolution."""
    c = contraction(block)
    return reduction.matches(block) and not reused(block) and (c is None or (is_plain(c.left) and is_plain(c.right)))


def _contracted(s: OpenSchedule, name: str) -> None:
    """Schedule a block, with its epilogue, if it is a sum of products of a known kind: by the template of the fewest cycles, as
    they estimate it."""
    block, machine = find_block(s.func, name), s.target.machine
    found = [(template, match) for template in SUMS if (match := template.matches(block)) is not None]
    estimates = [template.cycles(match, machine) for template, match in found]
    if estimates and (least := min(estimates)) < inf:
        template, match = found[estimates.index(least)]
        label, way = ways(template, match, machine)[0]
        way(s)
        s.rules.append(f"{name}: {label}")


def _inline_permutations(s: Schedule) -> None:
    """Have a matrix product read its operand where it is, if that is a copy for it alone with the dimensions in another order: it
    packs the operand anyway, unless that is the left one of a few columns, which is read in place."""
    for block in [b.name for b in blocks_below(s.func.body)]:
        copy, consumers = find_block(s.func, block), s.get_consumers(block)
        if len(consumers) != 1 or block in s.get_output_blocks() or not elementwise.matches(copy):
            continue
        source, product = stored(copy).value, gemm.matches(find_block(s.func, consumers[0]))
        if product is None or extent(product.rows[-1]) < gemm.FEW or not isinstance(source, Load) or not is_plain(source):
            continue
        if source.buffer.name not in (product.left.buffer.name, product.right.buffer.name):
            s.compute_inline(block)
