"""Reductions that threads share, in shared memory and by shuffles."""

from __future__ import annotations

import re

import pytest

import tir
from codegen.cuda import lower_cuda
from codegen.passes.cross_thread_reduction import _lanes, lower_cross_thread_reduction
from codegen.passes.gpu_kernels import GPUError
from schedule import Schedule
from tests.codegen.cuda.kernels import TARGET, check, check_all, no_compiler, sums
from tir import te
from tir.ir import Const, For, Kind, Seq, Var
from tir.memory import WARP
from tir.script import parse

NEST = """
@T.prim_func
def main(A: T.Buffer((7, 16), "float32"), D: T.Buffer((7,), "float32")):
    for i in T.thread_binding(7, thread="blockIdx.x"):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            for k in range(2):
                with T.block("D"):
                    vi = T.axis.spatial(7, i)
                    vk = T.axis.reduce(16, t * 2 + k)
                    with T.init():
                        D[vi] = T.float32(0)
                    D[vi] = D[vi] + A[vi, vk]
"""
TWO_THREADS = ("range(2)", 'T.thread_binding(2, thread="threadIdx.y")')
INIT = """
                    with T.init():
                        D[vi] = T.float32(0)"""
DRIVES_BOTH = (("7, i)", "7, t // 2)"), ("16, t * 2 + k)", "16, t % 2 * 2 + k)"))
MIXED = (
    ("range(2)", "range(7)"),
    ("7, i)", "7, k)"),
    ("16, t * 2 + k)", "16, t)"),
    ("with T.init", "T.where(t + k < 9)\n                    with T.init"),
)


def lowered(*changes: tuple[str, str]):
    text = NEST
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return lower_cross_thread_reduction(parse(text), tir.Target("cuda"))


@pytest.mark.parametrize(("changes", "message"), [
    ([(INIT, "")], "`t` is bound to threadIdx.x and reduces; it must hold nothing but loops and one block with its init"),
    ([TWO_THREADS], "`D` is reduced over two thread loops one inside the other; fuse them before binding"),
    (DRIVES_BOTH, "`D` is reduced across threads by loops that drive its other axes, too; split before fusing"),
    ([('7, thread="blockIdx.x"', '2, thread="blockIdx.x"'), ("16, t * 2", "16, i * 8 + t * 0")],
     "`i` around the threads of `t` drives the same reduction; reorder it inside of them"),
    (MIXED, "`D`: the condition t + k < 9 mixes loops that reduce with others, which threads cannot share"),
    ([("binding(8,", "binding(i + 1,")],
     "the extent of `t`, bound to threadIdx.x, must be a constant; split it by one before bind"),
    ([("binding(8,", "binding(0,")], "the extent of `t`, bound to threadIdx.x, must be a constant; split it by one before bind"),
    ([("D[vi] + A[vi, vk]", "D[vi] - A[vi, vk]")], "`D` is reduced across threads, but is not C[...] = C[...] op f"),
])  # fmt: skip
def test_what_threads_cannot_share(changes, message):
    with pytest.raises(GPUError, match=f"^{re.escape(message)}"):
        lowered(*changes)


def test_warps_exchange_by_shuffles_alone():
    assert "shuffle" in lowered().script() and "meeting" not in lowered().script()
    six = lowered(("binding(8,", "binding(6,"))
    assert "shuffle" not in six.script() and "meeting" in six.script()
    text = lowered(("binding(8,", "binding(64,"), ("(16,", "(128,"), ("7, 16", "7, 128")).script()
    assert "shuffle" in text and "meeting" in text


def test_lanes_that_shuffle_are_all_there():
    """The active lanes of every warp are those of the mask, and threads that combine are neighbours in one warp."""
    for y in (1, 2, 3, 5):
        for x in (1, 2, 3, 4, 8, 16, 24, 31, 32, 33, 48, 64, 96):
            for loop, n in (("threadIdx.x", x), ("threadIdx.x", 2 * x), ("threadIdx.y", y)):
                block = {"threadIdx.x": x, "threadIdx.y": y, "threadIdx.z": 1}
                warps, mask = _lanes(For(Var("t"), Const(n), Seq(()), Kind.THREAD, thread=loop), n, block)
                threads = range(x * y)
                active = {sum(1 << t % WARP for t in threads if t // WARP == w) for w in {t // WARP for t in threads}}
                group = min(n, WARP)
                together = all(t // group * group // WARP == (t // group * group + group - 1) // WARP for t in threads)
                fits = loop == "threadIdx.x" and n == x > 1 and n % group == 0 and group & (group - 1) == 0 and together
                assert (mask != 0) == (fits and len(active) == 1)
                assert not mask or ({mask} == active and warps == max(1, n // WARP))


@no_compiler
def test_threads_reduce_together() -> None:
    """Whole and partial warps, several groups a block, odd numbers of threads, other axes."""
    cases = [(32, 1, "x", True), (8, 4, "x", True), (64, 2, "x", True), (16, 1, "x", True), (13, 3, "x", False), (4, 2, "x", True),
             (7, 4, "y", False), (160, 3, "x", True), (1, 1, "x", False)]  # fmt: skip
    pairs = []
    for threads, others, axis, _ in cases:
        func = sums(37, 109)
        s = Schedule(func)
        i, k = s.get_loops("B")
        bx, t = s.split(i, [None, others])
        s.bind(bx, "blockIdx.x")
        s.bind(t, "threadIdx.y" if axis == "x" else "threadIdx.x")
        ko, ki = s.split(k, [None, threads])
        s.reorder(ki, ko)
        s.bind(ki, f"threadIdx.{axis}")
        assert not [f for f in tir.verify(s.func) if f.severity == "error"]
        pairs.append((s.func, func))
    for text, case in zip(check_all(pairs), cases, strict=True):
        assert ("__shfl_xor_sync" in text) == case[-1], case


@no_compiler
def test_partial_results_have_places_of_their_own() -> None:
    """Shared memory holds those of one block, where block and thread are mixed in the indices and the last block is guarded."""
    A, k = te.placeholder((3, 11, 150), name="A"), te.reduce_axis((0, 150), "k")
    func = te.create_prim_func([A, te.compute((3, 11), lambda i, j: te.sum(A[i, j, k], axis=k), name="B")])
    pairs, cases = [], []
    for threads, parts in ((64, 2), (13, 13)):
        for serial, virtual, y, inner in ((1, 1, 2, 1), (1, 1, 2, 5), (3, 1, 2, 1), (1, 2, 3, 1), (3, 2, 2, 2)):
            s = Schedule(func)
            i, j, k = s.get_loops("B")
            bx, _, v, ty, ii = s.split(s.fuse(i, j), [None, serial, virtual, y, inner])
            ko, ki = s.split(k, [None, threads])
            s.reorder(ki, ko, ii)
            for loop, axis in ((bx, "blockIdx.x"), (v, "vthread.x"), (ty, "threadIdx.y"), (ki, "threadIdx.x")):
                s.bind(loop, axis)
            assert not [f for f in tir.verify(s.func) if f.severity == "error"]
            pairs.append((s.func, func))
            cases.append(virtual * y * inner * parts)
    for text, count in zip(check_all(pairs), cases, strict=True):
        assert f"B_meeting[{count}]" in text, count


@no_compiler
def test_threads_reduce_other_operations() -> None:
    pairs = []
    for reducer, dtype in ((te.max, "int32"), (te.min, "float16"), (te.prod, "float64"), (te.sum, "int8"), (te.sum, "bfloat16")):
        func = sums(3, 50, reducer, dtype)
        s = Schedule(func)
        _, k = s.get_loops("B")
        ko, ki = s.split(k, [None, 32])
        s.reorder(ki, ko)
        s.bind(ki, "threadIdx.x")
        pairs.append((s.func, func))
    A, k = te.placeholder((3, 50), name="A"), te.reduce_axis((0, 50), "k")
    chosen = te.create_prim_func([A, te.compute((3,), lambda i: te.sum(A[i, k], axis=k, where=k % 3 > 0), name="B")])
    s = Schedule(chosen)
    s.bind(s.get_loops("B")[1], "threadIdx.x")
    check_all([*pairs, (s.func, chosen)])


@no_compiler
def test_two_kernels_reduce_across_blocks() -> None:
    """rfactor gives each block partial results, which a second kernel adds up."""
    func = sums(3, 500)
    s = Schedule(func)
    _, k = s.get_loops("B")
    ko, _ = s.split(k, [4, None])
    partial = s.rfactor(ko)
    loops = s.get_loops(partial)
    s.bind(loops[0], "blockIdx.y")
    s.bind(next(x for x in loops if x.startswith(ko)), "blockIdx.x")
    s.bind(s.get_loops("B")[0], "threadIdx.x")
    program = lower_cuda(s.func, TARGET)
    assert len(program.kernels) == 2 and len(program.temporaries) == 1
    check(s.func, func)
