"""Constants are prepared once: what is split off, what stays, and that both functions together are the one before."""

from __future__ import annotations

import re

import numpy as np
import pytest

import codegen
import tir
from codegen.cache import ObjectCache
from codegen.constants import split_constants
from schedule import Schedule
from tests.arrays import copies, integers
from tests.schedule.random_programs import program
from tests.schedule.random_steps import attempt, register_intrinsics
from tests.schedule.templates import patterns
from tir import dtypes
from tir.constants import constants, with_constants
from tir.interpreter import run
from tir.ir import PrimFunc, const_shape
from tir.script import parse
from tir.traverse import stores
from tir.verify import verify

from .matmul import packed_product

ONE = "llvm -num-cores 1"
TWO = "llvm -num-cores 2"


def together(func: PrimFunc) -> tuple[PrimFunc | None, PrimFunc]:
    """Split a function; assert that both parts are well formed and compute what it does, from arrays that hold NaN at first."""
    prepare, main = split_constants(func)
    if prepare is None:
        assert main == func
        return prepare, main
    for part in (prepare, main):
        assert not verify(part).errors, verify(part)
        assert parse(part.script()) == part
    args = integers(func, 0)
    expected, given = copies(args), dict(zip((p.name for p in func.params), copies(args), strict=True))
    run(func, *expected)
    for b in prepare.buffers:
        if b.name not in given:
            given[b.name] = np.full(const_shape(b), np.nan if dtypes.is_float(b.dtype) else 77, dtypes.storage(b.dtype))
    run(prepare, *(given[p.name] for p in prepare.params))
    run(main, *(given[p.name] for p in main.params))
    for p, x in zip(func.params, expected, strict=True):
        assert np.array_equal(x, given[p.name]), p.name
    return prepare, main


def shapes(func: PrimFunc | None) -> dict[str, tuple[int, ...]]:
    assert func is not None
    return {b.name: const_shape(b) for b in func.buffers}


def body(text: str, parameters: str = "X: T.Buffer((6, 8)), W: T.Buffer((8, 4)), Y: T.Buffer((6, 4))") -> PrimFunc:
    """A function in which W is constant."""
    lines = "\n".join("    " + line for line in text.strip("\n").splitlines())
    return parse(f'@T.prim_func\ndef main({parameters}):\n    T.func_attr({{"constants": ["W"]}})\n{lines}\n')


def random_case(seed: int, steps: int = 8) -> PrimFunc:
    """A random program under random steps, some of whose inputs are constant."""
    rng = np.random.default_rng(seed)
    func = program(rng)
    written = {s.buffer.name for s in stores(func)}
    inputs = [b.name for b in func.buffers if b.name not in written]
    s = Schedule(with_constants(func, [n for n in inputs if rng.random() < 0.7]))
    for _ in range(steps):
        attempt(s, rng)
    return s.func


# --- the rules, one program each -------------------------------------------------------------------------------------------

PACKED = """
P = T.alloc_buffer((4, 8))
for i in range(6):
    for j, k in T.grid(4, 8):
        with T.block("P"):
            vj, vk = T.axis.remap("SS", [j, k])
            P[vj, vk] = W[vk, vj]
    for j2, k2 in T.grid(4, 8):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j2, k2])
            with T.init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + X[vi, vk] * P[vj, vk]
"""


def test_loops_that_it_does_not_depend_on_vanish():
    prepare, main = together(body(PACKED))
    assert shapes(prepare) == {"W": (8, 4), "P": (4, 8)} and shapes(main) == {"X": (6, 8), "Y": (6, 4), "P": (4, 8)}
    assert prepare.script().count("for ") == 1 and "T.grid(4, 8)" in prepare.script()
    assert constants(main) == () and not main.allocs


def test_a_window_of_a_temporary_keeps_its_place():
    """Each iteration makes what it reads, at a place of its own: all are made at once."""
    text = """
P = T.alloc_buffer((8, 4))
for i, k in T.grid(6, 8):
    for j in range(4):
        with T.block("P"):
            vk, vj = T.axis.remap("SS", [k, j])
            P[vk, vj] = W[vk, vj] * 2.0
    for j2 in range(4):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j2, k])
            with T.init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + X[vi, vk] * P[vk, vj]
"""
    prepare, _ = together(body(text))
    assert shapes(prepare)["P"] == (8, 4) and "T.grid(8, 4)" in prepare.script() and "in range(6)" not in prepare.script()


OVERWRITTEN = """
P = T.alloc_buffer((4,))
for {loops}:
    for j in range(4):
        with T.block("P"):
            vk, vj = T.axis.remap("SS", [k, j])
            P[vj] = W[vk, vj]
    for j2 in range(4):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j2, k])
            with T.init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + X[vi, vk] * P[vj]
"""


@pytest.mark.parametrize("order", ["i, k in T.grid(6, 8)", "k, i in T.grid(8, 6)"])
def test_a_temporary_that_is_overwritten_gets_a_dimension(order):
    prepare, main = together(body(OVERWRITTEN.replace("{loops}", order)))
    assert shapes(prepare)["P"] == shapes(main)["P"] == (8, 4)
    assert "P[vk, vj] = W[vk, vj]" in prepare.script() and "P[vk, vj]" in main.script()


def test_a_new_axis_where_the_loop_is_none_of_a_block():
    text = """
P = T.alloc_buffer((4,))
for k in range(8):
    for j in range(4):
        P[j] = W[k, j]
    for i in range(3):
        with T.block("Y"):
            vk2 = T.axis.spatial(9, k + 1)
            vi = T.axis.spatial(3, i)
            Y[vk2 - 1, vi] = X[vk2 - 1, vi] + P[vi + 1]
"""
    prepare, main = together(body(text, "X: T.Buffer((8, 3)), W: T.Buffer((8, 4)), Y: T.Buffer((8, 3))"))
    assert shapes(prepare)["P"] == (8, 4) and "P[v_k, vi + 1]" in main.script() and "T.axis.opaque(8, k)" in main.script()


def test_a_sum_begins_in_one_statement_and_goes_on_in_another():
    text = """
P = T.alloc_buffer((4,))
for j in range(4):
    with T.block("P_init"):
        vj = T.axis.spatial(4, j)
        P[vj] = 0.0
for j2, k in T.grid(4, 8):
    with T.block("P"):
        vj, vk = T.axis.remap("SR", [j2, k])
        P[vj] = P[vj] + W[vk, vj]
for i, j3 in T.grid(6, 4):
    with T.block("Y"):
        vi, vj = T.axis.remap("SS", [i, j3])
        Y[vi, vj] = X[vi, vj] * P[vj]
"""
    prepare, main = together(body(text))
    assert shapes(prepare) == {"W": (8, 4), "P": (4,)} and "P_init" not in main.script()


def test_what_is_made_of_prepared_arrays_is_prepared():
    """The first stays inside `prepare`."""
    text = """
P = T.alloc_buffer((8, 4))
Q = T.alloc_buffer((4, 8))
for k, j in T.grid(8, 4):
    with T.block("P"):
        vk, vj = T.axis.remap("SS", [k, j])
        P[vk, vj] = W[vk, vj] + 1.0
for i in range(6):
    for j2, k2 in T.grid(4, 8):
        with T.block("Q"):
            vj, vk = T.axis.remap("SS", [j2, k2])
            Q[vj, vk] = P[vk, vj]
    for j3 in range(4):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j3])
            Y[vi, vj] = X[vi, vj] * Q[vj, 0]
"""
    prepare, _ = together(body(text))
    assert shapes(prepare) == {"W": (8, 4), "Q": (4, 8)} and [b.name for b in prepare.allocs] == ["P"]


def test_a_loop_is_copied_for_one_statement_and_moved_with_another():
    """Together their results would take too many bytes."""
    text = """
P = T.alloc_buffer((5, 8, 4))
Q = T.alloc_buffer((5, 8, 4))
for k in range(8):
    for a, j in T.grid(5, 4):
        with T.block("P"):
            va, vk, vj = T.axis.remap("SSS", [a, k, j])
            P[va, vk, vj] = W[vk, vj]
    for a2, j2 in T.grid(5, 4):
        with T.block("Q"):
            va, vk, vj = T.axis.remap("SSS", [a2, k, j2])
            Q[va, vk, vj] = W[vk, vj] + 1.0
for i, j3 in T.grid(6, 4):
    Y[i, j3] = X[i, 0] * P[4, 7, j3] + Q[4, 7, j3]
"""
    prepare, _ = together(body(text))
    assert "for k_1, a, j in" in prepare.script() and "for k, a2, j2 in" in prepare.script()


def test_conditions_on_constants_and_loops_go_along():
    text = """
P = T.alloc_buffer((8, 4))
for i, k in T.grid(6, 8):
    if k < 5 and W[0, 0] == W[0, 0]:
        for j in range(4):
            with T.block("P"):
                vk, vj = T.axis.remap("SS", [k, j])
                P[vk, vj] = W[vk, vj]
        for j2 in range(4):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSO", [i, j2, k])
                Y[vi, vj] = X[vi, vk] * P[vk, vj]
"""
    prepare, _ = together(body(text))
    assert "if k_1 < 5 and W[0, 0] == W[0, 0]:" in prepare.script()


def test_constants_that_are_still_read_stay_parameters():
    text = PACKED.replace("* P[vj, vk]", "* P[vj, vk] + W[vk, vj]")
    _, main = together(body(text))
    assert [b.name for b in main.buffers] == ["X", "W", "P", "Y"]


def test_a_parallel_loop_around_is_serial_in_prepare():
    """Its iterations may write the same elements."""
    text = """
P = T.alloc_buffer((8, 4))
for k in T.parallel(8):
    for j in T.vectorized(4):
        with T.block("P"):
            vk, vj = T.axis.remap("SS", [k, j])
            P[vk, vj] = W[vk, vj]
    for i, j2 in T.grid(6, 4):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSS", [i, j2, k])
            Y[vi, vk, vj] = X[vi, vk] * P[vk, vj]
"""
    prepare, main = together(body(text, "X: T.Buffer((6, 8)), W: T.Buffer((8, 4)), Y: T.Buffer((6, 8, 4))"))
    assert "for k_1 in range(8)" in prepare.script() and "T.vectorized(4)" in prepare.script() and "parallel" in main.script()


def test_hints_to_what_is_gone_are_dropped():
    func = body(PACKED.replace("in range(6)", 'in T.serial(6, annotations={"prefetch": [["W", 1], ["X", 2]]})'))
    _, main = together(func)
    assert '"prefetch": [["X", 2]]' in main.script()
    args = integers(func, 0)
    expected = copies(args)
    run(func, *expected)
    tir.build(func, ONE)(*args)
    assert np.array_equal(args[2], expected[2])


STAYS = {
    "no constant is read": PACKED.replace("W[vk, vj]", "T.float32(1)"),
    "something else is read": PACKED.replace("W[vk, vj]", "W[vk, vj] + X[0, vk]"),
    "a condition reads something else": """
P = T.alloc_buffer((4,))
for i in range(6):
    if X[i, 0] > 0.0:
        for j in range(4):
            P[j] = W[i, j]
        for j2 in range(4):
            Y[i, j2] = P[j2]
""",
    "others write the temporary, too": """
P = T.alloc_buffer((4,))
for j in range(4):
    P[j] = W[0, j]
P[2] = X[0, 0]
for i, j2 in T.grid(6, 4):
    Y[i, j2] = P[j2]
""",
    "an iteration reads what the one before wrote": """
P = T.alloc_buffer((4,))
for j in range(4):
    P[j] = X[0, j]
for k in range(8):
    for j2 in range(4):
        Y[0, j2] = P[j2]
    for j3 in range(4):
        P[j3] = W[k, j3]
""",
    "a running sum is read on the way": """
P = T.alloc_buffer((4,))
for k in range(6):
    for j in range(4):
        with T.block("P"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                P[vj] = 0.0
            P[vj] = P[vj] + W[vk, vj]
    for j2 in range(4):
        Y[k, j2] = P[j2] * X[k, j2]
""",
    "it would take too many bytes": """
P = T.alloc_buffer((6, 100, 4))
for a, b, c in T.grid(6, 100, 4):
    with T.block("P"):
        va, vb, vc = T.axis.remap("SSS", [a, b, c])
        P[va, vb, vc] = W[va, vc]
for i, j in T.grid(6, 4):
    Y[i, j] = P[i, 99, j] * X[i, j]
""",
    "a block around it has the temporary": """
for i in range(6):
    with T.block("outer"):
        vi = T.axis.spatial(6, i)
        P = T.alloc_buffer((4,))
        for j in range(4):
            P[j] = W[vi, j]
        for j2 in range(4):
            Y[vi, j2] = P[j2]
""",
}


@pytest.mark.parametrize("why", STAYS)
def test_what_stays(why):
    prepare, _ = together(body(STAYS[why]))
    assert prepare is None


def test_what_is_moved_of_two_may_be_one():
    """Refusing one statement keeps none of the others."""
    text = STAYS["something else is read"].replace("P", "Q").replace("j, k ", "j3, k3 ").replace("[j, k]", "[j3, k3]")
    text = text.replace("j2, k2", "j4, k4").replace("Y", "Z").replace("for i ", "for i2 ").replace("[i,", "[i2,")
    params = "X: T.Buffer((6, 8)), W: T.Buffer((8, 4)), Y: T.Buffer((6, 4)), Z: T.Buffer((6, 4))"
    prepare, main = together(body(PACKED + text, params))
    assert shapes(prepare) == {"W": (8, 4), "P": (4, 8)} and [b.name for b in main.allocs] == ["Q"]


def test_a_symbolic_length_stays():
    text = PACKED.replace("T.grid(4, 8)", "T.grid(4, n)").replace("T.alloc_buffer((4, 8))", "T.alloc_buffer((4, n))")
    func = body(text, "n: T.int32, X: T.Buffer((6, n)), W: T.Buffer((n, 4)), Y: T.Buffer((6, 4))")
    assert split_constants(func) == (None, func)


# --- schedules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "seed"), [("product", 8), ("batched", 6), ("pairs", 23), ("vector", 24)])
def test_default_schedules(name, seed):
    """Of small programs with any input constant; `tests.schedule.templates` compiles many of each pattern."""
    func = patterns.PATTERNS[name](np.random.default_rng(seed)).func
    for b in func.buffers[:-1]:
        together(tir.default_schedule(with_constants(func, [b.name]), TWO).func)


def test_random_schedules():
    register_intrinsics()
    found = [together(random_case(seed))[0] for seed in range(40)]
    assert sum(prepare is not None for prepare in found) > 5


# --- kernels -------------------------------------------------------------------------------------------------------------


def test_kernels_have_the_signature_of_the_function(tmp_path):
    func = packed_product()
    cache = ObjectCache(tmp_path)
    kernel = codegen.build(func, ONE, cache=cache)
    a, b, c = integers(func, 1)
    kernel(a, b, c)
    assert np.array_equal(c, a @ b) and cache.statistics.stored == 2
    again = codegen.build(func, ONE, cache=cache)
    call = again.bind(a, b, c)
    assert cache.statistics.hits == 2 and cache.statistics.stored == 2
    a[:] += 1
    call()
    assert np.array_equal(c, a @ b)
    assert kernel.time(a, b, c, seconds=0.0).runs == 5
    with pytest.raises(codegen.ArgumentError, match=re.escape("product: B must have shape (30, 70), got (70, 30)")):
        kernel(a, b.T.copy(), c)


def test_arrays_are_prepared_for_main():
    func = packed_product()
    kernel = codegen.build(func, ONE)
    a, b, c = integers(func, 1)
    (packed,) = kernel.prepare(b)
    assert [p.name for p in kernel.main.func.params] == ["A", "B_global", "C"] and packed.shape == (30, 5, 16)
    assert packed.ctypes.data % 64 == 0
    kernel.main(a, packed, c)
    assert np.array_equal(c, a @ b)


def test_a_kernel_with_nothing_to_prepare():
    func = with_constants(packed_product(), [])
    kernel = codegen.build(func, ONE)
    assert kernel.main is kernel and kernel.prepared == () and kernel.prepare() == []
