"""The reach of threads of a block into a tile, by enumeration, and buffers of single threads."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.build import lower
from codegen.cuda import lower_cuda
from codegen.passes.compact_gpu_buffers import _max_index
from codegen.passes.gpu_kernels import GPUError
from codegen.passes.thread_storage_sync import Footprint
from schedule import Schedule
from tests.codegen.cuda.kernels import TARGET, check, no_compiler, staged, sums
from tests.programs import matmul
from tir import te
from tir.arith.enumeration import evaluate, grid
from tir.ir import Allocate, Const, Var, const_shape
from tir.script import parse
from tir.traverse import loads, stores, walk_stmts


def test_the_last_element_that_guards_leave():
    """Of tiles that threads copy in order; it is exact in each dimension, and never too small for other indices."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        y, x, lanes = int(rng.choice([1, 2, 7, 8])), int(rng.choice([3, 8, 13, 32])), int(rng.choice([1, 2, 4]))
        n, row, rows = int(rng.integers(1, 400)), int(rng.choice([1, 2, 3, 5, 8, 12, 16, 24, 33])), int(rng.choice([1, 3, 4]))
        turns, wanted = -(-n // (y * x)), row * lanes - int(rng.integers(lanes))
        copied = Var("k") * (y * x) + Var("ty") * x + Var("tx")
        column = copied % row * lanes + Var("lane")
        guards = (copied < Const(n), column < Const(wanted))
        counts = {"k": turns, "ty": y, "tx": x, "lane": lanes}
        values = grid(counts)
        there = evaluate(guards[0], values) & evaluate(guards[1], values)
        dims = [copied // row, copied // (row * rows), copied // row % rows, column]
        others = [copied // row * 2 + 3, 5 - copied // row, copied // row + copied // rows, column + copied]
        for index in (*dims, *others):
            ranges = {"ty": (0, y - 1), "tx": (0, x - 1)}
            found = _max_index(Footprint((index,), counts, guards, set(), ranges, ["tx", "ty", "tz"], (x, y, 1)), index)
            last = int(np.broadcast_to(evaluate(index, values), there.shape)[there].max())
            assert found is not None and found >= last, (str(index), guards)
            exact = index is dims[0] or index is dims[1] or (index is column and n >= row)
            assert not exact or found == last, (str(index), guards, found, last)


@pytest.mark.parametrize(("axis", "steps", "read", "write", "refused"), [
    ("threadIdx.x", 1, "i", "i", None),
    ("threadIdx.x", 2, "i * 2 + j", "i * 2 + j", None),
    ("threadIdx.x", 2, "i + j", "i + j", "cannot be shown that a thread reads only what it wrote"),
    ("blockIdx.x", 2, "i + j", "i + j", None),
    ("threadIdx.x", 1, "39 - i", "i", "indexed differently by threads in different statements"),
    ("threadIdx.x", 1, "i + 1", "i", "cannot be shown that a thread reads only what it wrote"),
])  # fmt: skip
def test_who_may_read_what_a_thread_wrote_before(axis, steps, read, write, refused):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((2, 40), "float32"), B: T.Buffer((40,), "float32")):
    t = T.alloc_buffer((80,), scope="local")
    for i in T.thread_binding(40, thread="{axis}"):
        for k, j in T.grid(2, {steps}):
            if k > 0:
                B[i] = B[i] + t[{read}]
            t[{write}] = A[k, i]
""")
    if refused is None:
        lower_cuda(func, tir.Target("cuda"))
    else:
        with pytest.raises(GPUError, match=f"^`t` in local memory.*{refused}"):
            lower_cuda(func, tir.Target("cuda"))


def shapes(func, name: str) -> list[tuple[int, ...]]:
    """The shapes of a function's temporaries after a pass; all accesses have as many indices."""
    body = lower(func, tir.Target("cuda"), after=name).body
    assert all(len(x.indices) == len(x.buffer.shape) for x in (*loads(body), *stores(body)))
    return [const_shape(s.buffer) for s in walk_stmts(body) if isinstance(s, Allocate)]


@pytest.mark.parametrize(("index", "shape"), [
    ("q * 32 + i", (2, 4)),
    ("q * 4 + i", (8,)),  # without gaps
    ("i + 7", (4,)),
    ("q * 32 + i * 9", (2, 28)),
    ("q * 32 + i * 11", (66,)),  # beyond the stride
    ("q * 30 + i * 10", (7, 1)),  # the last of one is the first of the next
    ("q * 32 - i + 3", (2, 4)),
])  # fmt: skip
def test_local_buffers_have_no_gaps(index, shape):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), C: T.Buffer((7, 13), "float32")):
    for b in T.thread_binding(7, thread="blockIdx.x"):
        for t in T.thread_binding(13, thread="threadIdx.x"):
            acc = T.decl_buffer((66,), scope="local")
            for q, i in T.grid(2, 4):
                acc[{index}] = A[b, t]
            for q, i in T.grid(2, 4):
                C[b, t] = C[b, t] + acc[{index}]
""")
    assert shapes(func, "compact_strides") == [shape]


@pytest.mark.parametrize(("guard", "rows"), [("{0} < 100", 20), ("{0} < 97", 20), ("{0} < 95", 19), ("A[0] < 3", 60)])
def test_a_tile_has_no_rows_of_threads_that_guards_leave_out(guard, rows):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7,), "int32"), D: T.Buffer((7,), "int32")):
    for b in T.thread_binding(7, thread="blockIdx.x"):
        tile = T.decl_buffer((60, 5), "int32", scope="shared")
        for k in range(2):
            for t in T.thread_binding(150, thread="threadIdx.x"):
                if {guard.format("k * 150 + t")}:
                    tile[(k * 150 + t) // 5, (k * 150 + t) % 5] = A[b]
        for t in T.thread_binding(150, thread="threadIdx.x"):
            if {guard.format("t")}:
                D[b] = tile[t // 5, t % 5]
""")
    assert shapes(func, "compact_shared_buffers") == [(rows, 5)]


@no_compiler
def test_an_only_element_is_at_0_for_every_thread() -> None:
    """Threads with nothing to do have registers too."""
    X, k = te.placeholder((13,), name="X"), te.reduce_axis((0, 13), "k")
    S = te.compute((1,), lambda i: te.sum(X[k], axis=k), name="S")
    func = te.create_prim_func([X, te.compute((1,), lambda i: S[i] + 1.0, name="Y")])
    s = Schedule(func)
    s.set_scope("S", 0, "local")
    _, thread = s.split(s.get_loops("Y")[0], [None, 32])
    s.compute_at("S", thread)
    s.bind(thread, "threadIdx.x")
    assert "S_local[1]" in check(s.func, func)


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(GPUError, match="`B_local` in local memory is indexed differently by threads in different statements"):
        lower_cuda(staged(lambda B, i: B[63 - i], "local"), TARGET)
    s = Schedule(sums(3, 2048))
    s.bind(s.get_loops("B")[1], "threadIdx.x")
    with pytest.raises(GPUError, match="2048 x 1 x 1 threads a block are more than 1024"):
        lower_cuda(s.func, TARGET)


@pytest.mark.parametrize("scope", ["local", "shared"])
def test_memory_of_unknown_size_is_refused(scope) -> None:
    func = parse(f"""
@T.prim_func
def main(n: T.int32, A: T.Buffer((7, "n"), "float32"), B: T.Buffer((7,), "float32")):
    for b in T.thread_binding(7, thread="blockIdx.x"):
        row = T.decl_buffer((n,), "float32", scope="{scope}")
        for i in range(n):
            row[i] = A[b, i] + T.float32(1)
        for i in range(n):
            B[b] = B[b] + row[i]
""")
    with pytest.raises(GPUError, match=rf"`row` in {scope} memory must have a constant shape, got \(n\)"):
        lower_cuda(func, TARGET)


@no_compiler
def test_steps_written_out_have_registers_of_their_own() -> None:
    """So the assembler may load the fragment of a step while the one before it computes."""
    func = matmul(24, 24, 24)
    s = Schedule(func)
    tile = s.cache_read("C", 0, "shared")
    fragment = s.cache_read("C", "A_shared", "local")
    i, j, k = s.get_loops("C")
    bi, ti, ii = s.split(i, [None, 4, 3])
    ko, ki = s.split(k, [None, 8])
    s.reorder(bi, ko, ti, j, ki, ii)
    s.compute_at(fragment, ki)
    s.compute_at(tile, ko)
    s.decompose_reduction("C", ko)
    s.bind(bi, "blockIdx.x")
    s.bind(ti, "threadIdx.y")
    s.bind(j, "threadIdx.x")
    a, b = s.get_loops(tile)[-2:]
    s.bind(a, "threadIdx.y")
    s.bind(b, "threadIdx.x")
    s.unroll(ki)
    text = check(s.func, func)
    assert "float A_shared_local[24];" in text and "A_shared_local[i_2 * 8 + k_1]" in text, text
