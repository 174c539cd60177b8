"""Kernels for another kind of machine: what a target for it says, and what its emulator makes of its object files."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from schedule import Schedule
from search.measure.distributed.measurer import resource
from search.task import Task, target_text
from tests.arrays import widened
from tests.emulation import arm, emulate, needs_emulator
from tests.programs import matmul
from tir import te
from tir.interpreter import run

ARM = "llvm -num-cores 1 -mcpu cortex-a76 -mtriple aarch64-linux-gnu"


def test_a_target_says_what_another_machine_has():
    target = tir.Target(ARM)
    assert str(target) == ARM and target_text(target) == ARM and tir.Target(str(target)) == target
    assert (target.vector_bits, target.registers) == (128, 32)
    assert target.features == {"neon", "fullfp16", "dotprod"}
    assert tir.Target("llvm -mtriple aarch64-linux-gnu -mcpu neoverse-v1").features >= {"neon", "sve", "bf16", "i8mm"}
    assert resource(ARM) == "cpu:cortex-a76" and Task.of(matmul(7, 13, 40), ARM).target == ARM


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llvm -mtriple vax-dec-vms", "target option mtriple: No available targets are compatible with triple \"vax-dec-vms\"; "
         "such as aarch64-linux-gnu was expected"),
        ("cuda -mtriple aarch64-linux-gnu", "target option mtriple is for llvm; use arch with cuda"),
    ],
)  # fmt: skip
def test_what_is_no_machine_is_refused(text, message):
    with pytest.raises(ValueError) as raised:
        tir.Target(text)
    assert str(raised.value) == message


def test_a_kernel_for_another_machine_does_not_run_here():
    kernel = tir.build(matmul(7, 13, 40), ARM)
    with pytest.raises(RuntimeError, match=r"expected a processor of aarch64-linux-gnu, got "):
        kernel.load()


@needs_emulator
def test_an_emulator_runs_what_was_built_for_another_machine():
    func = matmul(7, 13, 40)
    rng, c = np.random.default_rng(0), np.zeros((7, 40), np.float32)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((7, 13), (13, 40)))
    emulate(tir.build(tir.default_schedule(func, ARM).func, ARM), a, b, c)
    assert (c == a @ b).all()


@needs_emulator
@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize(
    ("mcpu", "dtype", "instructions"),
    [("cortex-a72", "float16", ("fcvt", "fcvt")), ("neoverse-v2", "bfloat16", ("bfcvt", "")), ("cortex-a72", "bfloat16", ("", ""))],
)  # fmt: skip
def test_halves_are_converted_by_instructions_of_aarch64(mcpu, dtype, instructions, lanes):
    """All halves, and floats at random, between two halves, below the least normal one, and that are not finite: bit for bit."""
    rng, holder = np.random.default_rng(0), np.uint16 if dtype == "bfloat16" else np.float16
    halves = np.arange(1 << 16, dtype=np.uint16)
    bits = [rng.integers(0, 1 << 32, 3000), (halves[::7].astype(np.int64) << 16) + 0x8000, np.arange(0, 1 << 29, 1 << 13)[-7000:]]
    edges = [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x80000000, 0x477FEFFF, 0x477FF000, 0x7F7FFFFF, 1]
    floats = np.concatenate([*bits, np.arange(0x33000000, 0x38900000, 49999), edges]).astype(np.uint32).view(np.float32)
    for source, to, given, made in (("float32", dtype, floats, holder), (dtype, "float32", halves.view(holder), np.float32)):
        A = te.placeholder((-(-len(given) // 48) * 48,), source, name="A")
        s = Schedule(te.create_prim_func([A, te.compute(A.shape, lambda i, A=A, to=to: A[i].astype(to), name="B")]))
        s.vectorize(s.split("i", [None, lanes])[-1])
        target, given = arm(mcpu), np.resize(given, -(-len(given) // 48) * 48)
        kernel = tir.build(s.func, target)
        name = instructions[to == "float32"]
        assert name in kernel.asm() and (name or "cvt" not in kernel.asm()), "and no other one"
        found, wanted = np.zeros(given.shape, made), np.zeros(given.shape, made)
        emulate(kernel, given, found)
        run(s.func, given, wanted)
        assert np.array_equal(*(widened(x, to) if x.dtype == np.uint16 else x for x in (found, wanted)), equal_nan=True)
