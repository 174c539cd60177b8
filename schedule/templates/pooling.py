"""Pooling, which reduces windows of each channel of an image: scheduled as depthwise convolutions, without a kernel."""

from __future__ import annotations

from schedule.open_schedule import is_spatial
from tir.ir import Block, Const, Load, Store, Var
from tir.traverse import loads, variables

from .block_analysis import regular
from .depthwise import Windows, build, cycles, suits, tiles

NAME = "pooling"


def matches(block: Block) -> Windows | None:
    """The block as a reduction of windows, if it is one: some axes of the result move each window that reduction axes walk."""
    store = block.body
    if not isinstance(store, Store) or not isinstance(block.init, Store) or not regular(block):
        return None
    if block.predicate != Const(True, "bool") or not all(isinstance(i, Var | Const) for i in store.indices):
        return None
    old = Load(store.buffer, store.indices)
    read = list(dict.fromkeys(x for x in loads(store.value) if x != old))
    if len(read) != 1 or read[0].buffer == store.buffer or any(map(loads, read[0].indices)):
        return None
    reduction = tuple(it for it in block.iters if not is_spatial(it))
    within = {it.var.name for it in reduction}
    sliding = [variables(i) for i in read[0].indices if variables(i) & within]
    written = {i.name for i in store.indices if isinstance(i, Var)}
    spatial = block.spatial
    pixels = tuple(it for it in spatial if any(it.var.name in names for names in sliding))
    moved = all(names - within for names in sliding) and within <= set().union(*sliding, set())
    if not moved or {it.var.name for it in spatial} != written:
        return None
    found = Windows(block.name, store, read[0], tuple(it for it in spatial if it not in pixels), pixels, reduction)
    return found if found.rows else None


__all__ = ["NAME", "build", "cycles", "matches", "suits", "tiles"]
