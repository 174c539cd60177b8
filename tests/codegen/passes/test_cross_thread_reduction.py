"""Reductions that threads share, in shared memory and by shuffles."""

from __future__ import annotations

import re

import pytest

import tir
from codegen.passes.cross_thread_reduction import _lanes, lower_cross_thread_reduction
from codegen.passes.gpu_kernels import GPUError
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
