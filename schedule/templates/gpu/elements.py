"""One thread for each element of the result, or for a few, where no better pattern fits; neighbours in memory share a warp."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from schedule.machine import MAX_ACCESS_BYTES
from schedule.open_schedule import Continuation, OpenSchedule
from schedule.open_trace import Role
from tir import dtypes
from tir.ir import Axis, Call, Const, Store, Var
from tir.traverse import axis_loops, blocks, loads, stores, walk

from ..block_analysis import epilogue, loop_length
from ..marks import choose_unroll, fuse_all
from ..template import Template, Verdict
from . import transposes
from .launch import has_threads

THREADS = (128, 32, 64, 256, 512, 1024)
MAX_SEED_THREADS = 256  # threads of a block, at most
UNROLL_LIMITS = (16, 0, 64)


class InlineElements(Template):
    """Ansor's inlining on a GPU: elementwise blocks, padding and costly functions too, are computed where they are used. Results
    stay, and blocks that end a reduction for consumers that are not elementwise. Where it is `ours`, costly blocks with several
    consumers stay, too."""

    name = "inline"

    def __init__(self, ours: bool = True):
        self.ours = ours

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        b = s.block(block)
        if b.is_reduction or s.is_output(block) or block in s.scheduled:
            return Verdict.SKIP
        if self.ours and len(s.get_consumers(block)) > 1 and any(isinstance(n, Call) for n in walk(b.body)):
            return Verdict.SKIP
        ends = any(s.block(p).is_reduction and epilogue(s, p, anywhere=True) == block for p in s.get_producers(block))
        return Verdict.SKIP if ends and epilogue(s, block) is None else Verdict.ONLY

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        yield self.name, lambda new: new.compute_inline(block)


def bind_rest(s: OpenSchedule) -> None:
    """Bind every nest without threads: its spatial loops, fused, to blocks and threads; sums stay in registers."""
    for name in [b.name for b in blocks(s.func)]:
        if any(b.name == name for b in blocks(s.func)) and not has_threads(s, name):
            across = transposes.matches(s.block(name))
            if across is None or not s.attempt(transposes.build, name, across):
                s.attempt(build, name) or s.attempt(build, name, False)


def build(s: OpenSchedule, name: str, held: bool = True) -> None:
    """Bind the elements that a block computes to threads, and a reduction to the thread of its element; several results of one
    are `held` in registers."""
    b = s.block(name)
    result, copies = name, list[str]()
    if b.init is not None:
        after = epilogue(s, name, anywhere=True)
        if after is not None and not has_threads(s, after):
            s.set_scope(name, 0, "local")
            result = after
        elif len(stores(b.body)) == 1:
            result = s.cache_write(name, 0, "local")
        elif held:
            copies = [s.cache_write(name, n, "local") for n in range(len(stores(b.body)))]
    loops = s.get_loops(result)
    placing = axis_loops(s.block(result), Axis.SPATIAL)
    spatial = [x for x in loops if x in placing] or [s.add_unit_loop(loops[0] if loops else result)]
    for copy in copies:
        s.reverse_compute_at(copy, spatial[-1])
    lanes = (1,) if b.is_reduction else _lanes(s, name)
    count = prod(loop_length(s, x) or MAX_SEED_THREADS * MAX_ACCESS_BYTES for x in spatial)
    few = min(MAX_SEED_THREADS, -(-count // lanes[-1]))
    vector: list[str] = []
    if len(lanes) > 1:
        width = s.choose(f"{name} vector", lanes, seed=lanes[-1], block=name)
        spatial[-1], *vector = s.split(spatial[-1], [None, width])
    rows, fused = [], spatial[-1]  # loops of unknown length are not fused: nothing could be proved of divisions by it
    if any(loop_length(s, x) is None for x in spatial[1:]):
        rows = spatial[:-1]
    else:
        fused = fuse_all(s, spatial)
    known = dict.fromkeys((few, *(n for n in THREADS if n <= count)))
    threads = s.choose(f"{name} threads", tuple(known), block=name, role=Role.PARALLEL)
    outer, inner = s.split(fused, [None, threads])
    s.bind(rows[0] if rows else outer, "blockIdx.x")
    s.bind(inner, "threadIdx.x")
    for loop in vector:
        s.vectorize(loop)
    if result != name:
        s.compute_at(name, inner)
    if b.is_reduction:
        choose_unroll(s, name, inner, UNROLL_LIMITS, 0)


def _lanes(s: OpenSchedule, name: str) -> tuple[int, ...]:
    """The numbers of elements that a thread may move at once: neighbours in memory, whose number divides the rows."""
    b = s.block(name)
    if not isinstance(b.body, Store) or not b.body.indices or not isinstance(b.body.indices[-1], Var):
        return (1,)
    width = b.body.buffer.shape[-1]
    if not isinstance(width, Const):
        return (1,)
    widest = max(dtypes.nbytes(x.dtype) for x in (b.body.buffer, *(x.buffer for x in loads(b.body.value))))
    return tuple(n for n in (1, 2, 4, 8, 16) if n <= MAX_ACCESS_BYTES // widest and int(width.value) % n == 0)
