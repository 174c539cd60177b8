"""The entry that calls kernels: what it passes to whom, what it returns, what it measures."""

from __future__ import annotations

import ctypes

import numpy as np

import codegen
from codegen import Target
from codegen.llvm.compile import Library, object_code
from codegen.llvm.program import TIMED, entry
from codegen.llvm.scratch import RELEASE
from codegen.steps import Address, Copy, Invoke
from tests.codegen.harness import ONE
from tests.codegen.llvm.test_scratch import through

TARGET = Target(ONE)


def words(*arrays):
    return [a.ctypes.data for a in arrays]


def test_kernels_at_their_addresses():
    """z = 2 (x + 1) backwards, and that again, by way of the arena; the kernel keeps a block of memory."""
    n = 300_007
    kernel = codegen.build(through(n).with_(name="back"), TARGET)
    first, second = Address("arena", 64), Address("z")
    steps = [
        Invoke("tir_back", (Address("x"), first)),
        Invoke("tir_back", (first, second)),
        Copy(Address("copied", 16), first, 4 * n),
    ]
    text = entry("net", ["arena", "x", "z", "copied"], steps, ["tir_back"], timed=True)
    library = Library([object_code(text, TARGET), kernel.code], ["net", f"net{TIMED}"], TARGET)
    assert library.address(f"net{RELEASE}")
    x = np.arange(n, dtype="float32")[None] % 100
    arena, z, copied = np.zeros((1, n + 16), "float32"), np.zeros_like(x), np.zeros((1, n + 4), "float32")
    assert library.function("net", 4)(*words(arena, x, z, copied)) == 0
    once = 2 * (x[:, ::-1] + 1)
    assert np.array_equal(z, 2 * (once[:, ::-1] + 1)) and np.array_equal(copied[:, 4:], once)
    assert not arena[:, :16].any() and not copied[:, :4].any()
    times = np.zeros((len(steps), 2), "int64")
    assert library.function(f"net{TIMED}", 5)(*words(arena, x, z, copied, times)) == 0
    assert (times[:, 0] > 0).all() and (times[:, 1] == 1).all()


def test_the_first_kernel_that_fails_ends_it():
    module = """
define i32 @tir_count(ptr %n, ptr %limit) {
  %a = load i32, ptr %n
  %b = add i32 %a, 1
  store i32 %b, ptr %n
  %most = load i32, ptr %limit
  %c = icmp sgt i32 %b, %most
  %failed = zext i1 %c to i32
  ret i32 %failed
}
"""
    text = entry("net", ["n", "limit"], [Invoke("tir_count", (Address("n"), Address("limit")))] * 5, [])
    net = Library([object_code(text, TARGET), object_code(module, TARGET)], ["net"], TARGET).function("net", 2)
    for limit, status, calls in ((5, 0, 5), (2, 1, 3), (0, 1, 1)):
        n, most = ctypes.c_int(0), ctypes.c_int(limit)
        assert net(ctypes.addressof(n), ctypes.addressof(most)) == status and n.value == calls
