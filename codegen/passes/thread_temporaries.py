"""Temporaries of blocks and threads: each block or thread gets its own."""

from __future__ import annotations

from tir.analysis.write_before_read import writes_before_reads
from tir.ir import Allocate, Buffer, For, Kind, PrimFunc, Stmt, buffer_nbytes
from tir.memory import SHARED, WARP_SCOPE
from tir.traverse import map_statements, replace_buffers, walk_stmts

from .compact_buffers import Ranges, allocate_deepest
from .free_variables import scalar_ranges
from .gpu_kernels import is_bound, is_thread
from .lower_blocks import expand_per_iteration
from .separate_lives import iterations_conflict

MAX_LOCAL_BYTES = 512 << 10  # bytes of a thread (CUDA C++ programming guide, technical specifications)
HELD_TOGETHER = {"blockIdx": ("global",), "threadIdx": ("global", *SHARED), "vthread": ("global",)}  # scopes, by kind of loop


def thread_temporaries(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for b in blocks: for t in threads: x = alloc(n); S(x[i])
              => for b in blocks: for t in threads: x = alloc(n, "local"); S(x[i])
                 for b in blocks: x = alloc(n); for t in threads: S(x[i])
              => x = alloc(n, B); for b in blocks: for t in threads: S(x[i, b])

    Memory that the iterations of a loop share gets an element for each. Temporaries allocated around blocks and threads, or in
    global memory, become the function's. A temporary of the function that blocks or threads would write together first moves
    into the loops that use it.
    """
    sizes = scalar_ranges(func.params)
    inner = {b.name for b in func.allocs if b.scope == "global" and iterations_conflict(func.body, b, sizes)}
    for buffer in func.allocs:
        if buffer.name in inner:
            func = func.with_(body=allocate_deepest(func.body, buffer, sizes, _for_itself))
    func = func.with_(allocs=tuple(b for b in func.allocs if b.name not in inner))
    hoisted: dict[str, Buffer] = {}

    def hoist(s: Stmt, bound: bool) -> Stmt:
        new = map_statements(s, lambda x: hoist(x, bound or is_bound(s)))
        if not isinstance(new, Allocate):
            return new
        scope, threads = new.buffer.scope, any(is_thread(x, "threadIdx") for x in walk_stmts(new.body))
        around = not bound and any(map(is_bound, walk_stmts(new.body)))
        if around or scope in ("global", WARP_SCOPE) or (scope == "local" and threads):
            hoisted[new.buffer.name] = new.buffer
            return new.body
        return new

    body = hoist(_privatised(func.body, False), False)
    return func.with_(body=body, allocs=(*func.allocs, *hoisted.values()))


def _for_itself(loop: For, buffer: Buffer, ranges: Ranges) -> bool:
    """True where an iteration writes elements of the buffer before it reads them; never for vectorised loops."""
    return loop.kind is not Kind.VECTORIZED and writes_before_reads(loop.body, buffer, ranges)


def _privatised(s: Stmt, bound: bool) -> Stmt:
    """`s` with the allocations in block and thread loops private to an iteration; `bound`: `s` stands in such a loop."""
    new = map_statements(s, lambda x: _privatised(x, bound or is_bound(s)))
    if is_bound(new):
        scopes = HELD_TOGETHER[new.thread.split(".")[0]]
        return expand_per_iteration(new, lambda b: b.scope in scopes)
    if isinstance(new, Allocate) and new.buffer.scope == "global" and new.buffer.has_const_shape:
        inside = [x for x in walk_stmts(new.body) if is_bound(x)]
        alone = not any(is_thread(x, "threadIdx") for x in inside) if bound else not inside
        if alone and buffer_nbytes(new.buffer) <= MAX_LOCAL_BYTES:
            local = new.buffer.with_(scope="local")
            return Allocate(local, replace_buffers(new.body, {local.name: local}))
    return new
