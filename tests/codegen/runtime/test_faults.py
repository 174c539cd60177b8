"""What has no meaning is an error of Python: integers divided by zero, shifts past the width; and what is guarded is right."""

import itertools

import numpy as np
import pytest

import tir
from tests.codegen.harness import ONE, TWO, at_once, same
from tests.codegen.test_llvm_vs_interpreter import HOW, elementwise, scheduled
from tir import te
from tir.script import parse

N = 37


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_division_by_zero_is_an_error_of_the_call(dtype, how):
    func = scheduled(elementwise(dtype, [lambda x, y: x // y, lambda x, y: x % (y + y)]), how)
    kernel = tir.build(func, TWO)
    a, good = np.arange(N).astype(dtype), np.full(N, 3, dtype)
    bad = good.copy()
    bad[23] = bad[31] = 0
    outputs = [np.zeros(N, dtype) for _ in range(2)]
    message = r"^main: `A\[.*\] // B\[.*\]` divides by zero; the first 0 of `B` is at \(23,\); the results are undefined$"
    for call in (lambda: kernel(a, bad, *outputs), lambda: kernel(a, bad), kernel.bind(a, bad, *outputs)):
        with pytest.raises(ZeroDivisionError, match=message):
            call()
    with pytest.raises(tir.interpreter.DivisionByZero, match=r"divides 23 by zero, in .*, where"):
        tir.run(func, a, bad, *outputs)
    kernel(a, good, *outputs)  # nothing is left behind
    assert np.array_equal(outputs[0], a // good) and np.array_equal(outputs[1], a % (good + good))


def test_each_thread_is_told_of_its_own_call():
    kernel = tir.build(scheduled(elementwise("int32", [lambda x, y: x // y]), "strips"), TWO)
    a = np.arange(N, dtype="int32")

    def job(divisor):
        def calls():
            for _ in range(200):
                if divisor:
                    assert np.array_equal(kernel(a, np.full(N, divisor, "int32")), a // divisor)
                else:
                    with pytest.raises(ZeroDivisionError):
                        kernel(a, np.zeros(N, "int32"))

        return calls

    at_once(*map(job, (0, 3, 0, 7)))


GUARDED = {
    "choice of values": "C[v] = T.if_then_else(B[v] != 0, A[v] // B[v], -1)",
    "choice of an element": "C[v] = T.if_then_else(m > 0, A[v // m], -1)",
    "choice in lanes": "C[v] = T.if_then_else(m > 0 and v > 3, A[v // m], 0)",
    "statement": "\n            C[v] = -1\n            if B[v] != 0:\n                C[v] = A[v] % B[v]",
    "second condition": "\n            C[v] = -1\n            if m > 0 and v // m < 3:\n                C[v] = A[v] // m",
    "condition of two": "C[v] = T.if_then_else(m == 0 or v // m < 3, 1, 0)",
}


@pytest.mark.parametrize("how", ["scalar", "vector"])
@pytest.mark.parametrize("case", GUARDED)
def test_divisions_that_are_guarded(case, how):
    """They neither fail nor end the process, whatever is computed early."""
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32"), m: T.int32):
    for i in range(16):
        with T.block("C"):
            v = T.axis.spatial(16, i)
            {GUARDED[case]}
"""
    )
    a, b = np.arange(-7, 9, dtype="int32"), np.arange(16, dtype="int32") % 3
    for m in (0, 2):
        same(scheduled(func, how), [a, b, np.zeros(16, "int32"), m], targets=[ONE])


SIZES = "n: T.int32, m: T.int32"
FUSED = """
    for i in {loop}(n * m):
        with T.block("C"):
            C[i] = i // m * 100 + i % m
"""
OPEN = {  # divisions by what a call gives: in every loop that runs, in one inside, early, in lanes, under conditions
    "fused": FUSED.format(loop="range"),
    "fused in parallel": FUSED.format(loop="T.parallel"),
    "three": "\n    for i in range(n * m * 3):\n        C[i] = i // (m * 3) * 100 + i // 3 % m * 10 + i % 3",
    "rounded up": "\n    for i in range((n + 3) // 4 * ((m + 2) // 3)):\n        C[i] = i // ((m + 2) // 3)",
    "parts": "\n    for i in range(n * m // 4):\n        for j in T.vectorized(4):\n            C[i * 4 + j] = (i * 4 + j) // m",
    "tiles": "\n    for i in range(n // m):\n        for j in range(m):\n            C[i * m + j] = i",
    "inner loop": "\n    for k in range(9):\n        for j in range(n):\n            C[k] = k // m + 7 % m",
    "outer loop": "\n    for k in range(n):\n        for j in range(m):\n            C[k] = k // m",
    "lanes": "\n    for k in range(n):\n        for j in T.vectorized(4):\n            C[j] = (k + j) // m",
    "lanes of a divisor": "\n    for j in T.vectorized(4):\n        C[j] = n // (j + m)",
    "unrolled": "\n    for j in T.unroll(4):\n        C[j] = n // (j + m)",
    "branch": "\n    for k in range(9):\n        if k >= n:\n            C[k] = k // m\n        C[k] = k + n",
    "one branch alone": "\n    for k in range(3):\n        if n > 0:\n            C[k] = k // m\n        else:\n            C[k] = n",
    "choice": "\n    for k in range(9):\n        C[k] = T.if_then_else(k < n, k // m, 1)",
    "choice of an element": "\n    for k in range(9):\n        C[k] = T.if_then_else(k < n, D[k // m], 1)",
    "choice of choices": "\n    for k in range(9):\n        C[k] = T.if_then_else(n > 1, T.if_then_else(k // m > n, D[k], 1), 1)",
    "choice in lanes": "\n    for k in T.vectorized(8):\n        C[k] = T.if_then_else(k < n, D[k // m], 1)",
    "element": "\n    for k in range(n):\n        C[k] = D[k] // m",
    "second condition": "\n    for k in range(9):\n        if k < n and k // m < 3:\n            C[k] = 1",
    "second condition in lanes": "\n    for k in T.vectorized(8):\n        if k < n and k // m < 3:\n            C[k] = 1",
    "either": "\n    for k in range(9):\n        if k >= n or k // m < 3:\n            C[k] = 1",
    "behind a branch": "\n    if n > 4:\n        C[0] = 5 // m\n    C[1] = n // m",
    "divisor of a loop": "\n    for j in range(4):\n        C[j] = n // (j + m)",
    "more than rounded up": "\n    for j in range((n + 9) // 4):\n        C[j] = j // n",
    "extent": "\n    for k in range(7 // m):\n        C[k] = 1",
    "both": "\n    for k in range(n):\n        C[k] = k // m\n        C[n] = 5 % n",
}


@pytest.mark.parametrize("body", OPEN)
def test_open_divisors(body):
    """A kernel fails for the sizes for which the interpreter does, and gives the same for others."""
    head = f'@T.prim_func\ndef main(C: T.Buffer((64,), "int32"), D: T.Buffer((64,), "int32"), {SIZES}):'
    func = parse(head + OPEN[body])
    kernels = [tir.build(func, target) for target in (ONE, TWO)]
    d = np.arange(64, dtype="int32") - 9
    failed = 0
    for n in (0, 1, 4, 5):
        for m in (-3, -1, 0, 1, 2, 5):
            args = [np.zeros(64, "int32"), d, n, m]
            try:
                tir.run(func, *args)
            except tir.interpreter.DivisionByZero:
                failed += 1
                for kernel in kernels:
                    with pytest.raises(ZeroDivisionError):
                        kernel(*args)
            except tir.interpreter.OutOfBounds:
                continue
            else:
                for kernel in kernels:
                    found = np.zeros(64, "int32")
                    kernel(found, d, n, m)
                    assert np.array_equal(found, args[0]), (n, m)
    assert failed == 0 if body in ("fused", "fused in parallel", "three", "rounded up", "parts", "outer loop") else failed


@pytest.mark.parametrize("how", ["serial", "parallel"])
@pytest.mark.parametrize("extents", [("n", "m"), ("n", "m", "p")])
def test_fused_loops_divide_once(how, extents):
    """Where loops run, their extents are not 0: nothing is tested, and each quotient is computed with its remainder, once."""
    shape = tuple(map(te.var, extents))
    A = te.placeholder(shape, name="A")
    s = tir.Schedule(te.create_prim_func([A, te.compute(shape, lambda *i: A[i] + 1, name="C")]))
    s.fuse(*s.get_loops("C"))
    func = s.func if how == "serial" else parse(s.func.script().replace("in range(", "in T.parallel("))
    kernel = tir.build(func, TWO)
    text = kernel.llvm_ir()
    divisions = len(extents) - 1
    assert text.count("= sdiv") == text.count("= srem") == divisions and "fail." not in text
    for sizes in itertools.product((0, 1, 3), repeat=len(extents)):
        a = np.arange(np.prod(sizes), dtype="float32").reshape(sizes)
        assert np.array_equal(kernel(a, *sizes), a + 1)


def test_a_divisor_is_tested_once():
    """In front of the loops, on the way into the outermost one that may not run."""
    loops = "\n    for i in range(n):\n        for j in range(5):\n            C[j] = j // m + i % m\n            D[j] = j % m"
    func = parse(f'@T.prim_func\ndef main(C: T.Buffer((64,), "int32"), D: T.Buffer((64,), "int32"), {SIZES}):{loops}')
    text = tir.build(func, ONE).llvm_ir()
    assert text.count("go_on.") == 3 and text.index("go_on.") < text.index("loop.")  # a branch, its label, and what goes on there
    with pytest.raises(ZeroDivisionError, match="`j // m` divides by zero"):
        tir.build(func, ONE)(np.zeros(64, "int32"), np.zeros(64, "int32"), 1, 0)


def test_the_least_number_divided_by_minus_one():
    """It wraps, where a processor would end the process."""
    func = parse(
        """
@T.prim_func
def main(C: T.Buffer((3,), "int64"), n: T.int64, m: T.int64):
    for i in range(3):
        C[i] = n % m + i * 0
"""
    )
    for target in (ONE, TWO):
        found = np.ones(3, "int64")
        tir.build(func, target)(found, -(2**63), -1)
        assert not found.any()


def test_a_part_of_a_long_body_fails(monkeypatch):
    monkeypatch.setattr("codegen.llvm.parts.MAX_STATEMENTS", 4)
    monkeypatch.setattr("codegen.llvm.parts.PART_STATEMENTS", 2)
    stores = "\n    ".join(f"C[{n}] = A[{n}] // B[{n}]" for n in range(9))
    head = ", ".join(f'{name}: T.Buffer((9,), "int32")' for name in "ABC")
    kernel = tir.build(parse(f"@T.prim_func\ndef main({head}):\n    {stores}\n"), ONE)
    assert "@tir.part." in kernel.llvm_ir()
    b = np.arange(9, dtype="int32") - 5
    with pytest.raises(ZeroDivisionError, match=r"^main: `A\[5\] // B\[5\]` divides by zero; the first 0 of `B` is at \(5,\)"):
        kernel(b, b, np.zeros(9, "int32"))


@pytest.mark.parametrize(("dtype", "count", "bits"), [("int8", 8, 8), ("int32", -1, 32), ("uint64", 64, 64)])
@pytest.mark.parametrize("fast", [False, True])
def test_shifts_that_have_no_meaning(dtype, count, bits, fast):
    func = elementwise(dtype, [lambda x, y: x << y, lambda x, y: x >> y], 3)
    args = [np.ones(3, dtype), np.array([1, 2, 3], dtype), np.zeros(3, dtype), np.zeros(3, dtype)]
    tir.run(func, *args, fast=fast)
    args[1][1] = count
    with pytest.raises(
        tir.interpreter.InvalidShift, match=rf"`T.shl\(A\[v_i\], B\[v_i\]\)` shifts by {count}, and {dtype} has {bits} bits"
    ):
        tir.run(func, *args, fast=fast)
