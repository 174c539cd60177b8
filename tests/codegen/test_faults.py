"""What has no meaning is an error of Python: integers divided by zero, shifts past the width; and what is guarded is right."""

import numpy as np
import pytest

import tir
from tests.codegen.harness import ONE, TWO, at_once, same
from tests.codegen.test_llvm_vs_interpreter import HOW, elementwise, scheduled
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
