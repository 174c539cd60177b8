"""Schedules that are known to be good, by pattern: composed from primitives, for any shape, on a CPU.

    s = templates.schedule(func, target)    # a Schedule; None where the function is not made of known patterns

A pattern is recognised by the structure of a block, never by a name. Each module has one: what it `matches`, and how to `apply`
it to a Schedule, with tile sizes of your own or computed ones.
"""

from __future__ import annotations

from schedule.error import ScheduleError
from schedule.machine import CPU, Described
from schedule.machine import CPU as Processor
from schedule.open_schedule import OpenSchedule
from schedule.primitive import blocks_below, find_block
from schedule.schedule import Schedule
from tir.ir import Block, Load, PrimFunc

from . import conv2d, depthwise, dots, elementwise, gemm, gemv, narrow, pixels, reduction, rowwise, transposed
from .annotate import annotate_tiled
from .structure import contraction, epilogue, extent, is_plain, reused, stored

__all__ = [
    "Processor", "conv2d", "depthwise", "dots", "elementwise", "gemm", "gemv", "narrow", "pixels", "reduction", "rowwise",
    "schedule", "transposed",
]  # fmt: skip


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
    processor: CPU = s.target.machine
    _inline_chains(s)
    _inline_permutations(s)
    names = [b.name for b in blocks_below(s.func.body)]
    for name in names:
        gemv.without_units(s, name)
    done: set[str] = set()
    for name in names:
        done |= _contracted(s, name, processor)
    for name in reversed(names):
        if name not in done and (rows := rowwise.matches(s, name, done)) is not None:
            rowwise.build(s, rows)
            done |= {name, *rows.stages}
    for name in names:
        if name in done:
            continue
        if elementwise.matches(find_block(s.func, name)):
            elementwise.build(s, name)
        elif _only_reduces(find_block(s.func, name)):
            reduction.build(s, name)
        else:
            return False
    annotate_tiled(s)
    return bool(names)


def _only_reduces(block: Block) -> bool:
    """Whether a block is a reduction that gains nothing by tiles, and no convolution."""
    c = contraction(block)
    return reduction.matches(block) and not reused(block) and (c is None or (is_plain(c.left) and is_plain(c.right)))


def _contracted(s: OpenSchedule, name: str, processor: CPU) -> set[str]:
    """Schedule a block with its epilogue if it is a sum of products of a known kind; the blocks that were scheduled."""
    block, after = find_block(s.func, name), epilogue(s, name)
    if (product := gemv.matches(block)) is not None:
        gemv.build(s, product)
        return {name}
    if (product := dots.matches(block)) is not None and dots.suits(product, processor):
        dots.build(s, product)
        return {name}
    if (product := gemm.matches(block)) is not None:
        gemm.build(s, product)
    elif (convolution := conv2d.matches(block)) is not None and pixels.suits(convolution, processor):
        return set(pixels.apply(s, convolution, processor, epilogue=after))
    elif convolution is not None and conv2d.pays(convolution, processor):
        conv2d.build(s, convolution)
        return {name, *([after] if after else s.get_consumers(name) if convolution.turned else [])}
    elif (spread := transposed.matches(block)) is not None and transposed.suits(spread, processor):
        transposed.apply(s, spread, processor, epilogue=after)
    elif (few := narrow.matches(block)) is not None and narrow.suits(few, processor):
        narrow.apply(s, few, processor, epilogue=after)
    elif (kernels := depthwise.matches(block)) is not None:
        return set(depthwise.apply(s, kernels, processor, epilogue=after))
    else:
        return set()
    return {name, *([after] if after else [])}


def _inline_chains(s: Schedule) -> None:
    """Put elementwise blocks into their elementwise consumer, where they have one only, and it works at the same points."""
    for block in [b.name for b in blocks_below(s.func.body)]:
        if elementwise.matches(find_block(s.func, block)) and epilogue(s, block) is not None:
            s.compute_inline(block)


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
