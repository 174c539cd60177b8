"""Inlining of a block into its consumers: if recomputation costs nothing, or may be faster."""

from __future__ import annotations

from dataclasses import dataclass

from schedule.open_schedule import OpenSchedule, extent
from schedule.templates import Template
from schedule.templates.block_analysis import reuses_data
from tir.arith.polynomial import affine_index, coefficient, polynomial
from tir.ir import Block, Call, Const, Expr, Node, Select, Store
from tir.traverse import loads, variables, walk

from .rule import Verdict


@dataclass(frozen=True)
class Inline(Template):
    """Rule 2 of Ansor (table 1): a strictly inlineable stage is always inlined.

    A stage is strictly inlineable if it is no reduction and no output, and has no select and no costly intrinsic. Each index of
    its reads must be a constant, or an axis plus a constant, with the axes in order and each at most once. Its recomputation at
    each use then costs almost nothing. A stage without reads is inlineable too. `costly` are the intrinsics that are too costly
    to recompute, None for all intrinsics. With `once`, a stage is also inlined if each of its elements is read once, by one
    consumer, because nothing is computed twice then.
    """

    name = "inline"

    costly: tuple[str, ...] | None = None
    once: bool = False

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        b = state.block(block)
        if b.is_reduction or state.is_output(block) or block in state.scheduled:
            return Verdict.SKIP
        if self.once and _read_once(state, block):
            return Verdict.ONLY if _legal(state, block) else Verdict.SKIP
        if loads(b.body) and any(isinstance(n, Select) or self._is_costly(n) for n in walk(b.body)):
            return Verdict.SKIP
        axes = [it.var.name for it in b.iters]
        for load in loads(b.body):
            read = [affine_index(i, axes) for i in load.indices if not isinstance(i, Const)]
            used = [found[0] for found in read if found is not None]
            if len(used) < len(read) or used != [axis for axis in axes if axis in used]:
                return Verdict.SKIP
        return Verdict.ONLY if _legal(state, block) else Verdict.SKIP

    def _is_costly(self, node: Node) -> bool:
        return isinstance(node, Call) and (self.costly is None or node.op in self.costly)

    def change(self, new: OpenSchedule, block: str) -> None:
        new.compute_inline(block)


class InlineAgain(Template):
    """Recompute a stage in consumers that read it point by point, for example the exponentials of a softmax in its sum and its
    division. Ansor does not do this. Not for a stage that a block with data reuse reads."""

    name = "inline again"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        b = state.block(block)
        if b.is_reduction or state.is_output(block) or block in state.scheduled or not isinstance(b.body, Store):
            return Verdict.SKIP
        consumers = [state.block(c) for c in state.get_consumers(block)]
        buffer = b.body.buffer.name
        if not consumers or any(reuses_data(c) or not _point_by_point(c, buffer) for c in consumers):
            return Verdict.SKIP
        return Verdict.APPLY if _legal(state, block) else Verdict.SKIP

    def change(self, new: OpenSchedule, block: str) -> None:
        new.compute_inline(block)


def _legal(state: OpenSchedule, block: str) -> bool:
    return state.copy().attempt(OpenSchedule.compute_inline, block)


def _read_once(state: OpenSchedule, block: str) -> bool:
    """True if a block has one consumer, which reads each element once."""
    body, consumers = state.block(block).body, state.get_consumers(block)
    return isinstance(body, Store) and len(consumers) == 1 and _point_by_point(state.block(consumers[0]), body.buffer.name)


def _point_by_point(consumer: Block, buffer: str) -> bool:
    """True if each point of a consumer reads one element of a buffer, and each a different one."""
    reads = {x.indices for x in loads(consumer.body) if x.buffer.name == buffer}
    lengths = {it.var.name: extent(it) for it in consumer.iters}
    if len(reads) != 1:
        return False
    (indices,) = reads
    used = [name for i in indices for name in variables(i)]
    apart = len(set(used)) == len(used) and {name for name, n in lengths.items() if n > 1} <= set(used)
    return apart and all(_is_mixed_radix(i, lengths) for i in indices)


def _is_mixed_radix(index: Expr, lengths: dict[str, int]) -> bool:
    """True if an index is injective over its axes, because they are its digits in mixed radix."""
    p = polynomial(index)
    steps = sorted((abs(coefficient(p, name) or 0), lengths.get(name, 0)) for name in variables(index))
    reach = 1
    for step, length in steps:
        if step < reach:
            return False
        reach = step * (length - 1) + reach
    return True
