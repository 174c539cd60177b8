"""What blocks of a grid and threads allocate, each has for itself."""

from __future__ import annotations

import itertools

import pytest

import tir
from codegen.cuda import GPUError, lower_cuda
from schedule import ScheduleError
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import compiler, emulate
from tests.sweeps import one_in
from tir.interpreter import run
from tir.ir import PrimFunc
from tir.script import parse

OUTER, INNER = ("", "blockIdx.x", "threadIdx.x", "vthread.x"), ("", "threadIdx.x", "threadIdx.y", "unroll", "vectorize")


def turned_rows(scope: str, guard: str = "") -> PrimFunc:
    """Each row the other way round, through a temporary of the block."""
    return parse(f"""
    @T.prim_func
    def main(A: T.Buffer((4, 6, 5), "float32"), S: T.Buffer((4, 6, 5), "float32")):
        for i, j in T.grid(4, 6):
            with T.block("row"):
                vi, vj = T.axis.remap("SS", [i, j])
                t = T.alloc_buffer((5,), "float32", scope="{scope}")
                for a in range(5):
                    with T.block("x"):
                        va = T.axis.spatial(5, a)
                        {guard}t[va] = A[vi, vj, va]
                for b in range(5):
                    with T.block("S"):
                        vb = T.axis.spatial(5, b)
                        S[vi, vj, vb] = t[4 - vb]
    """)


def bound(func: PrimFunc, *kinds: str) -> PrimFunc | None:
    """The loops i, j, and those within the block, each bound; None where that is refused."""
    s = tir.Schedule(func)
    loops = [*s.get_loops("row"), s.get_loops("x")[-1], s.get_loops("S")[-1]]
    try:
        for loop, kind in zip(loops, (*kinds, kinds[-1]), strict=True):
            if kind in ("unroll", "vectorize"):
                getattr(s, kind)(loop)
            elif kind:
                s.bind(loop, kind)
    except ScheduleError:
        return None
    return s.func


@one_in(2)
@pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
@pytest.mark.parametrize("guard", ["", "if A[vi, vj, va] < T.float32(9): "])
@pytest.mark.parametrize("scope", ["global", "local", "shared"])
def test_rows_through_a_temporary(scope, guard):
    """Under all loops that run at once, and around those of threads."""
    func = turned_rows(scope, guard)
    found = [f for kinds in itertools.product(OUTER, INNER, ("", "threadIdx.x")) if (f := bound(func, *kinds)) is not None]
    programs = []
    for f in found:
        try:
            programs.append(lower_cuda(f, tir.Target("cuda")))
        except GPUError as error:
            messages = ["may read what another wrote", "reads only what it wrote"] if scope == "local" else []
            assert any(m in str(error) for m in [*messages, f"in {scope} memory is used by two kernels"]), f.script()
            assert scope != "global"
    assert len(programs) > 10
    args = integers(func, 0)
    expected = copies(args)
    run(func, *expected)
    for order, (program, emulated) in enumerate(zip(programs, emulate(*programs), strict=True)):
        got = copies(args)
        emulated(*got, seed=order)
        assert all((a == b).all() for a, b in zip(got, expected, strict=True)), program.func.script()


ONE_LOOP = """
        for k in {loop}:
            for i in T.thread_binding(40, thread="{thread}"):
                for j in range(16):
                    t[j] = A[k, i] * T.float32(2)
                B[k, i] = t[3] + T.float32(1)
"""
TWO_LOOPS = (
    ONE_LOOP.replace("{loop}", "range(2)")
    + """
        for k in range(2):
            for i in T.thread_binding(40, thread="{thread}"):
                t[3] = A[k + 2, i]
                B[k + 2, i] = t[3]
"""
)


@pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
def test_a_temporary_of_the_function_that_only_some_loops_use():
    """It is well formed, so blocks and threads do not meet in it."""
    loops = ["range(4)", "T.unroll(4)", 'T.thread_binding(4, thread="blockIdx.y")']
    texts = [TWO_LOOPS, *(ONE_LOOP.replace("{loop}", loop) for loop in loops)]
    kinds = [("global", "blockIdx.x"), ("global", "threadIdx.x"), ("local", "blockIdx.x"), ("local", "threadIdx.x")]
    head = "    @T.prim_func\n    def main(A: T.Buffer((4, 40)), B: T.Buffer((4, 40))):\n        t = T.alloc_buffer((16,), scope='{}')\n"
    funcs = [parse(head.format(scope) + text.format(thread=thread)) for text in texts for scope, thread in kinds]
    assert all(tir.verify(f).ok for f in funcs)
    programs = [lower_cuda(f, tir.Target("cuda")) for f in funcs]
    args = integers(funcs[0], 0)
    for func, emulated in zip(funcs, emulate(*programs), strict=True):
        expected, got = copies(args), copies(args)
        run(func, *expected)
        emulated(*got)
        assert all((a == b).all() for a, b in zip(got, expected, strict=True)), func.script()
