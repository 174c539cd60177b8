"""Schedules that are known to be good, by pattern: composed from primitives, for any shape, on a CPU.

    s = templates.schedule(func, target)    # a Schedule; None where the function is not made of known patterns

A pattern is recognised by the formula of a block, never by its name. Each module has one: `matches` recognises it, `build`
schedules it on an `OpenSchedule`. The numbers that its formulas give are the seeds of open ones: `schedule` takes them, the
search samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from schedule.error import ScheduleError
from schedule.open_schedule import Declined, OpenSchedule, extent
from schedule.open_trace import Role
from schedule.primitive import blocks_below, find_block
from schedule.schedule import Schedule
from tir.ir import Block, Load, PrimFunc
from tir.traverse import loads

from . import (
    annotate,
    attention,
    blocked_sums,
    conv2d,
    conv2d_transpose,
    depthwise,
    elementwise,
    few_channels,
    few_rows,
    gemm,
    gemv,
    im2col,
    im2col_low_precision,
    inner_product,
    low_precision,
    marks,
    normal_form,
    pooling,
    reduction,
    row_normalisation,
    winograd,
)
from .block_analysis import at_axes, contraction, last_axis, loop_of, reused, runs_in_order, size, stored
from .template import Pattern, RefusedRule, SumOfProducts, Template, Verdict, WholeNest, warn_of

__all__ = [
    "ATTENTION", "CHAINS", "REDUCTION", "ROWS", "RefusedRule", "SUMS_OF_PRODUCTS", "SumOfProducts", "Template", "Verdict",
    "WholeNest", "attention", "build", "conv2d", "conv2d_transpose", "depthwise", "elementwise", "few_channels", "few_rows",
    "gemm", "gemv", "im2col", "im2col_low_precision", "inner_product", "low_precision", "only_reduces", "pooling", "reduction",
    "row_normalisation", "schedule", "warn_of", "winograd",
]  # fmt: skip

# The default is the one of the fewest cycles; of several, the first.
PATTERNS: tuple[Pattern, ...] = (
    gemv, inner_product, few_rows, low_precision, gemm, im2col_low_precision, im2col, conv2d, conv2d_transpose,
    few_channels, depthwise, pooling,
)  # fmt: skip
SUMS_OF_PRODUCTS = tuple(map(SumOfProducts, PATTERNS))


def only_reduces(block: Block, l1: int) -> bool:
    """True where a block is a reduction that gains nothing by tiles, and is no convolution. Without products it gains nothing
    where L1, of so many bytes, holds what it reads."""
    c, simple = contraction(block), all(map(at_axes, loads(block.body)))
    return reduction.matches(block) and not reused(block, l1 if c is None and simple else 0) and (c is None or simple)


ATTENTION = WholeNest(attention.NAME, attention.packed, attention.build)
CHAINS = WholeNest("fuse products", attention.chain, attention.build, several=True)
ROWS = WholeNest("rows", lambda s, block: row_normalisation.matches(s, block, s.scheduled), row_normalisation.build)
ELEMENTS = WholeNest("elementwise", lambda s, block: block if elementwise.matches(s.block(block)) else None, elementwise.build)
REDUCTION = WholeNest(
    "reduction", lambda s, block: block if only_reduces(s.block(block), s.target.machine.l1) else None, reduction.build
)


def _ordered(s: OpenSchedule, block: str) -> None:
    """Schedule a block whose innermost axis runs in order: threads share the loops around it."""
    b = s.block(block)
    if outer := [loop_of(it) for it in b.iters[:-1]]:
        marks.share_out(s, block, outer, size(b.iters), s.target.machine.core.latency)
    marks.done(s, block)


ORDERED = WholeNest("ordered", lambda s, block: block if runs_in_order(s.block(block)) else None, _ordered)


def schedule(func: PrimFunc, target: Any) -> Schedule | None:
    """A schedule of `func` made of known patterns; None unless each of its blocks belongs to one.

    Nothing is measured or random. `target` is a `codegen.Target` of a processor.
    """
    found = decided(func, target)
    return None if found is None else found.plain(func)


def decided(func: PrimFunc, target: Any, decisions: Mapping[str, Any] | None = None) -> OpenSchedule | None:
    """`schedule` at the seeds, but for `decisions`, by their names. Its `alternatives` are what else may be decided."""
    s = OpenSchedule(func, target, at_seed=True, decisions=decisions)
    marks.plain_loops(s)
    if not s.unscheduled() or build(s):
        return None
    annotate.annotate(s)
    return s


def cycles(func: PrimFunc, target: Any) -> float:
    """The estimated cycles of a function's sums of products on all cores of `target`, a processor, each by its fastest template.
    The transforms of minimal filtering count, too, other elementwise blocks do not. It is infinite where a sum is of no known
    kind."""
    s = OpenSchedule(func, target, at_seed=True)
    marks.plain_loops(s)
    total = 0.0
    for name in s.unscheduled():
        if (filtered := winograd.matches(s, name)) is not None:
            total += winograd.cycles(filtered, s, target.machine)
        elif s.block(name).is_reduction:
            total += min(t.cycles(s, name) for t in SUMS_OF_PRODUCTS)
    return total


def build(s: OpenSchedule) -> list[str]:
    """Schedule the recognised blocks with open numbers, and return the others. The scheduled blocks are still to be annotated.

    Products come first, as they take their epilogues along, then rows, then the rest. Blocks are scheduled in normal form, or as
    written where only then all are recognised. Convolutions by minimal filtering and sums of scaled blocks, which `graph.ops`
    alone writes, are scheduled as written.
    """
    _schedule_filtered(s)
    for name in s.unscheduled():
        sums = blocked_sums.matches(s, name) if s.is_unscheduled(name) else None
        if sums is not None and blocked_sums.suits(sums, s.target.machine):
            _schedule_with(s, name, blocked_sums.NAME, blocked_sums.build, sums)
    written = s.copy()
    normal_form.apply(s)
    if _build_as_is(s) and s.made and not _build_as_is(written):
        s.take(written)
    return s.unscheduled()


def _build_as_is(s: OpenSchedule) -> list[str]:
    """Schedule the recognised blocks in the form that they have; returns the others."""
    _inline_chains(s)
    _inline_permutations(s)
    for name in s.unscheduled():
        gemv.without_units(s, name)
        product = gemv.matches(s.block(name))
        if product is None or last_axis(product.right) is None:
            normal_form.arrays_apart(s, name)
            gemv.without_units(s, name)
    _schedule_nests(s, ATTENTION)
    for name in s.unscheduled():
        if s.is_unscheduled(name):
            _schedule_product(s, name)
    _schedule_nests(s, ROWS)
    _schedule_nests(s, REDUCTION)
    _schedule_nests(s, ELEMENTS)
    _schedule_nests(s, ORDERED)
    return s.unscheduled()


def _schedule_nests(s: OpenSchedule, template: WholeNest) -> None:
    """Schedule all nests that match a template, consumers before producers."""
    for name in s.unscheduled()[::-1]:
        if s.is_unscheduled(name) and (found := template.matches(s, name)) is not None:
            _schedule_with(s, name, template.name, template.build, found)


def _schedule_filtered(s: OpenSchedule) -> None:
    """Schedule convolutions by minimal filtering, with the blocks around them."""
    if not any(winograd.matches(s, name) for name in s.unscheduled()):
        return
    _inline_chains(s)
    for name in s.unscheduled():
        if s.is_unscheduled(name) and (filtered := winograd.matches(s, name)) is not None:
            _schedule_with(s, name, "Winograd", winograd.build, filtered)


def _inline_chains(s: OpenSchedule) -> None:
    for name in s.unscheduled()[::-1]:
        if s.is_unscheduled(name) and elementwise.matches(s.block(name)):
            elementwise.inline_chain(s, name)


def _schedule_product(s: OpenSchedule, name: str) -> None:
    """Schedule a block and its epilogue, if it is a known sum of products, by the template of the fewest cycles."""
    cycles, best = min(((t.cycles(s, name), n) for n, t in enumerate(SUMS_OF_PRODUCTS)), default=(inf, 0))
    if cycles == inf:
        return
    label, way = next(SUMS_OF_PRODUCTS[best].ways(s, name))
    if s.decisions is not None:
        ways = dict(way for t in SUMS_OF_PRODUCTS if t.found(s, name) is not None for way in t.ways(s, name)) | {label: way}
        label = s.decided(f"template of {name}", list(ways), label, Role.TEMPLATE)
        way = ways[label]
    _schedule_with(s, name, label, way)


def _schedule_with(s: OpenSchedule, name: str, label: str, build: Callable[..., object], *args: object) -> None:
    """Schedule a block if that is legal. A refused step is a warning; a template that declines is none."""
    new = s.copy()
    try:
        build(new, *args)
    except Declined:
        return
    except ScheduleError as error:
        warn_of(label, name, error)
        return
    s.take(new)
    s.rules.append(f"{name}: {label}")


def _inline_permutations(s: Schedule) -> None:
    """Inline a copy that a matrix product alone reads, if it takes a part of an array, or permutes its dimensions. The product
    packs its operands anyway. One of one row may read a part in place; it keeps a copy whose last dimension is another than that
    of the array."""
    for block in [b.name for b in blocks_below(s.func.body)][::-1]:
        copy, consumers = find_block(s.func, block), s.get_consumers(block)
        if len(consumers) != 1 or block in s.get_output_blocks() or not elementwise.matches(copy):
            continue
        made, product = stored(copy), gemm.matches(find_block(s.func, consumers[0]))
        source = made.value
        if product is None or not isinstance(source, Load) or not at_axes(source):
            continue
        in_order = last_axis(source) == last_axis(Load(made.buffer, made.indices))
        few = extent(product.rows[-1]) < 2 and not in_order
        if not few and source.buffer.name not in (product.left.buffer.name, product.right.buffer.name):
            with suppress(ScheduleError):
                s.compute_inline(block)
