"""Loops bound to blocks and threads: one form for all kernels, then conditions on the number of the thread."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

import tir
from codegen.build import lower
from codegen.cuda import lower_cuda
from codegen.passes.gpu_kernels import GPUError
from schedule import Schedule
from tests.arrays import integers
from tests.codegen.cuda.emulation import EmulationError, emulate_texts
from tests.codegen.cuda.kernels import check, no_compiler, sums
from tests.programs import elementwise
from tir.ir import PrimFunc
from tir.script import parse

TARGET = tir.Target("cuda")
PARAMETERS = 'A: T.Buffer((7, 13), "float32"), C: T.Buffer((7, 13), "float32"), D: T.Buffer((7,), "float32")'


def program(body: str) -> PrimFunc:
    lines = "\n".join("    " + line for line in dedent(body).strip("\n").splitlines())
    return parse(f"@T.prim_func\ndef main({PARAMETERS}):\n{lines}\n")


def after(name: str, func: PrimFunc) -> str:
    """The body of a function after a pass."""
    script = lower(func, TARGET, after=name).script()
    return dedent(script[script.index("):\n") + 3 :]).strip("\n")


TILE = """
    for b in T.thread_binding(7, thread="blockIdx.x"):
        tile = T.decl_buffer((13,), scope="shared")
        for t in T.thread_binding(13, thread="threadIdx.x"):
            tile[t] = A[b, t]
        for u in T.thread_binding(5, thread="threadIdx.x"):
            C[b, u] = tile[12 - u]
        D[b] = tile[0]
"""


def test_loops_of_one_axis_share_a_variable():
    assert after("unify_thread_binding", program(TILE)) == dedent("""
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            tile = T.decl_buffer((13,), scope="shared")
            for tx in T.thread_binding(13, thread="threadIdx.x"):
                tile[tx] = A[bx, tx]
            for tx in T.thread_binding(5, thread="threadIdx.x"):
                C[bx, tx] = tile[12 - tx]
            D[bx] = tile[0]
    """).strip("\n")


def test_threads_run_together_outside_of_conditions():
    """The second loop has fewer iterations than the block threads; the last store is in none."""
    assert after("lower_thread_binding", program(TILE)) == dedent("""
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            for tx in T.thread_binding(13, thread="threadIdx.x", annotations={"together": T.bool(True)}):
                tile = T.decl_buffer((13,), scope="shared")
                tile[tx] = A[bx, tx]
                T.evaluate(T.sync_threads())
                if tx < 5:
                    C[bx, tx] = tile[12 - tx]
                if tx == 0:
                    D[bx] = tile[0]
    """).strip("\n")


def test_loops_around_stay_on_the_host_and_neighbours_without_threads_share_a_kernel():
    func = program("""
        for step in range(3):
            for t in T.thread_binding(13, thread="threadIdx.x"):
                C[step, t] = A[step, t]
            D[step] = A[step, 0]
            D[step + 3] = A[step, 1]
    """)
    assert after("unify_thread_binding", func) == dedent("""
        for step in range(3):
            for bx in T.thread_binding(1, thread="blockIdx.x"):
                for tx in T.thread_binding(13, thread="threadIdx.x"):
                    C[step, tx] = A[step, tx]
            for bx in T.thread_binding(1, thread="blockIdx.x"):
                D[step] = A[step, 0]
                D[step + 3] = A[step, 1]
    """).strip("\n")


def bound(thread: str, extent: int = 7, inside: str = "") -> str:
    return f"""
        for b in T.thread_binding({extent}, thread="{thread}"):
            {inside or "C[0, b] = A[0, b]"}
    """


@pytest.mark.parametrize(("thread", "most"), [("threadIdx.x", 1024), ("threadIdx.z", 64), ("blockIdx.y", 65535)])
def test_as_many_as_there_may_be(thread, most):
    assert f"{most}" in after("unify_thread_binding", program(bound(thread, most)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (bound("threadIdx.x", 1025), "main_kernel0: 1025 x 1 x 1 threads a block are more than 1024; bind smaller loops"),
        (bound("threadIdx.z", 65), "main_kernel0: 65 threads of axis z are more than 64; bind a smaller loop, or threadIdx.x"),
        (
            bound("blockIdx.y", 65536),
            "main_kernel0: 65536 blocks of axis y are more than 65535; bind a smaller loop, or blockIdx.x",
        ),
        (
            bound("blockIdx.x", 7, 'for c in T.thread_binding(3, thread="blockIdx.x"): C[b, c] = A[b, c]'),
            "`c` and `b` around it are both bound to blockIdx.x, and statements below use both; fuse the two and bind the result",
        ),
        (
            bound("blockIdx.x", 7, "for t in T.thread_binding(b + 1, thread='threadIdx.x'): C[b, t] = A[b, t]"),
            "main_kernel0: the extent of a loop bound to threadIdx.x must be a constant; split it by a constant first",
        ),
        (
            """
            own = T.alloc_buffer((7,), scope="local")
            for b in T.thread_binding(7, thread="blockIdx.x"):
                own[b] = A[0, b]
            for c in T.thread_binding(7, thread="blockIdx.x"):
                C[0, c] = own[c]
            """,
            "`own` in local memory is used by two kernels",
        ),
        (
            """
            for c in T.thread_binding(7, thread="blockIdx.y"):
                for b in T.thread_binding(13, thread="blockIdx.x"):
                    C[c, b] = A[c, b]
                for d in T.thread_binding(7, thread="blockIdx.x"):
                    D[d] = A[c, 0]
            """,
            "blockIdx.x is bound twice in one kernel, again by `d`; bind one loop outside of both",
        ),
        (
            """
            for t in T.thread_binding(7, thread="threadIdx.x"):
                D[t] = A[t, 0]
                for b in T.thread_binding(13, thread="blockIdx.x"):
                    C[t, b] = A[t, b]
            """,
            "main_kernel0: `D` in global memory is written outside of the loop bound to blockIdx.x; move the statement into",
        ),
    ],
)
def test_what_no_kernel_can_do_is_refused(body, message):
    with pytest.raises(GPUError, match=f"^{re.escape(message)}"):
        lower(program(body), TARGET, after="unify_thread_binding")


def test_conditions_of_the_host_choose_a_kernel():
    """Each branch is one."""
    func = program("""
        for i in range(7):
            if i < 3:
                for t in T.thread_binding(13, thread="threadIdx.x"):
                    C[i, t] = A[i, t]
            else:
                for t in T.thread_binding(13, thread="threadIdx.x"):
                    C[i, t] = A[i, 12 - t]
    """)
    assert "else:\n" in after("unify_thread_binding", func) and len(lower_cuda(func, TARGET).kernels) == 2


@no_compiler
def test_partial_blocks_are_guarded() -> None:
    func = elementwise(7, 109)
    s = Schedule(func)
    i, j = s.get_loops("B")
    bx, tx = s.split(s.fuse(i, j), [None, 64])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    text = check(s.func, func)
    with pytest.raises(EmulationError, match=r"index \d+ of A is outside"):  # the guard is what keeps it inside
        program = lower_cuda(s.func, TARGET)
        emulate_texts(program, re.sub(r"if \(.*\) \{", "{", text))[0](*integers(func, 0))


@no_compiler
def test_loops_of_the_host_launch_again() -> None:
    func = elementwise(4, 33)
    s = Schedule(func)
    s.bind(s.get_loops("B")[1], "threadIdx.x")
    program = lower_cuda(s.func, TARGET)
    assert len(program.kernels[0].params) == 3  # A, B and the row
    check(s.func, func)


@no_compiler
def test_a_function_without_bindings_is_one_thread() -> None:
    func = sums(7, 13)
    program = lower_cuda(func, TARGET)
    assert [(k.grid, k.block) for k in program.kernels] == [(tuple(tir.ir.Const(1) for _ in range(3)), (1, 1, 1))]
    check(func, func)
