"""Schedules for GPUs that are known to be good, by pattern: composed from primitives, for any shape.

    s = schedule.library_cuda.schedule(func)    # a Schedule: each nest is bound to blocks and threads

A pattern is recognised by the structure of a block, never by a name. Products of matrices and convolutions are tiled through
shared memory and registers; rows that are reduced have a block each, whose threads reduce together; all else has a thread an
element.
"""

from __future__ import annotations

from schedule.error import ScheduleError
from schedule.machine import GPU
from schedule.primitive import blocks_below, find_block, loops_of
from schedule.schedule import Schedule
from tir.ir import PrimFunc, annotation

from ..templates.structure import is_elementwise
from . import elements, products, rows, split_sum, tensor_cores, windows
from .launch import follower

__all__ = ["elements", "products", "rows", "schedule", "split_sum", "tensor_cores", "windows"]


def schedule(func: PrimFunc, arch: str = "sm_90", tf32: bool = False) -> Schedule:
    """A schedule of `func` for a GPU. What fits no pattern has one thread an element; what cannot be parallel has one thread.

    Products of float16 and bfloat16 matrices run on tensor cores from `sm_80` on. Those of float32 do only with `tf32`, or where
    the block is annotated so, which lets the factors be rounded to 10 bits of mantissa.
    """
    s, gpu = Schedule(func), GPU.of(arch)
    _inline(s)
    done: set[str] = set()
    for name in [b.name for b in blocks_below(s.func.body)]:
        tried = _tried(s, lambda t, name=name: _product(t, name, gpu, tf32)) if _present(s, name) else None
        if tried is not None:
            s = tried
            done |= _made(s, done)
    for name in [b.name for b in blocks_below(s.func.body)]:
        if name not in done:
            s = _tried(s, lambda t, name=name: split_sum.in_stages(t, name, gpu)) or s
    for name in reversed([b.name for b in blocks_below(s.func.body)]):
        if name in done or not _present(s, name):
            continue
        group = rows.matches(s, name, done)
        if group is not None:
            tried = _tried(s, lambda t, group=group: rows.apply(t, group, gpu))
            if tried is not None:
                s = tried
                done |= {name, *group.stages}
    rest = [b.name for b in blocks_below(s.func.body)]
    for name in sorted(rest, key=lambda x: find_block(s.func, x).init is None):  # reductions take along what feeds them
        if name in done or not _present(s, name) or _bound(s, name):
            continue
        tried = _tried(s, lambda t, name=name: elements.apply(t, name, done))
        if tried is not None:
            s = tried
            done.add(name)
    return s


def _product(s: Schedule, name: str, gpu: GPU, tf32: bool) -> None:
    """Tile the block if it is a product: as one of matrices, in parts where its sum is long and its results few, on tensor cores
    where the GPU has those that instructions are known for. Nothing changes for other blocks."""
    c = products.matches(find_block(s.func, name))
    if c is None or not products.suits(c):
        return
    after = follower(s, name)
    n = split_sum.parts(c, gpu)
    if n > 1 or not products.is_matrices(c):
        c, after = windows.as_matrices(s, c, after)
    if n > 1:
        c, after = windows.as_matrices(s, split_sum.apply(s, c, n), None)
    rounding = tf32 or bool(annotation(find_block(s.func, c.block).annotations, tensor_cores.TF32, False))
    cores = tensor_cores.instruction(c, rounding) if gpu.modern else None
    products.apply(s, c, after, cores=cores, gpu=gpu)


def _tried(s: Schedule, step) -> Schedule | None:
    """A copy of the schedule after `step`, or None if it was refused."""
    copy = s.copy()
    try:
        step(copy)
    except ScheduleError:
        return None
    return copy


def _present(s: Schedule, name: str) -> bool:
    return any(b.name == name for b in blocks_below(s.func.body))


def _bound(s: Schedule, name: str) -> bool:
    """Whether a loop around the block is bound already."""
    return any(x.thread for x in loops_of(s.func, name))


def _made(s: Schedule, known: set[str]) -> set[str]:
    """The blocks that are bound by now: copies into shared memory and back."""
    return {b.name for b in blocks_below(s.func.body) if b.name not in known and _bound(s, b.name)}


def _inline(s: Schedule) -> None:
    """Elementwise blocks go into the elementwise blocks that use them, where each has one consumer only."""
    for block in [b.name for b in blocks_below(s.func.body)]:
        if is_elementwise(find_block(s.func, block)) and follower(s, block) is not None:
            try:
                s.compute_inline(block)
            except ScheduleError:
                continue
