"""Kernels for another kind of machine: what a target for it says, and what its emulator makes of its object files."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from search.measure.distributed.measurer import resource
from search.task import Task, target_text
from tests.emulation import emulate, needs_emulator
from tests.programs import matmul

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
