"""The machine model: facts of named targets, and the thresholds and register tiles that follow from them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import log2

import numpy as np
import pytest

import tir
from schedule.machine import (
    CPU,
    EXPOSED_LOADS,
    GPU,
    H100,
    STATIC_SHARED_BYTES,
    Core,
    core_of,
)
from schedule.machines import gpus
from tir.notices import Degraded

AVX512 = CPU(2, 512, 32, 32 << 10, 1 << 20, 32 << 20)  # with two multiply-add units of whole vectors


def described(options: str) -> CPU:
    machine = tir.Target(f"llvm -num-cores 2 {options}").machine
    assert isinstance(machine, CPU)
    return machine


@pytest.mark.parametrize(("options", "lanes", "registers", "fmas", "loads"), [
    ("-mcpu znver4", 16, 32, 1, 1),  # long vectors take two turns in units of 256 bits
    ("-mcpu znver4 -vector-bits 256", 8, 32, 2, 2),
    ("-mcpu znver5", 16, 32, 2, 2),
    ("-mcpu znver5 -vector-bits 256", 8, 32, 2, 2),  # no more than two begin in a cycle, however short
    ("-mcpu x86-64-v3", 8, 16, 2, 2),
    ("-mcpu x86-64-v4", 16, 32, 2, 2),
])  # fmt: skip
def test_processors(options, lanes, registers, fmas, loads):
    machine = described(f"{options} -l1 32768 -l2 1048576 -l3 33554432")
    assert (machine.lanes(32), machine.registers, machine.fmas, machine.loads) == (lanes, registers, fmas, loads)
    assert (machine.cores, machine.caches, machine.core.latency) == (2, (32768, 1048576, 33554432), 4)
    assert machine.lanes(64) == lanes // 2


def test_the_core_of_an_unknown_processor_has_two_units():
    assert described("-mcpu x86-64 -mattr +avx").core == Core(256, 256, 256, 128, 4, 4)
    assert AVX512.core == Core(1024, 1024, 1024, 512, 4, 4)


def test_machines_are_values():
    assert described("-mcpu znver5") == described("-mcpu znver5")
    assert len({described("-mcpu znver5"), described("-mcpu znver5"), described("-mcpu znver4")}) == 2


@pytest.mark.parametrize("cycles", [AVX512.fma_cycles(32), AVX512.read_cycles(32), AVX512.copy_cycles(64), AVX512.core.latency])
def test_least_work_for_threads(cycles):
    """One cost of waking a thread stands behind the least work of every kind."""
    least = 2 * AVX512.memory.fork / cycles
    assert AVX512.threads(1.001 * least * cycles) == 2
    assert AVX512.threads(0.999 * least * cycles) == 1


def test_threads_rise_with_the_work():
    """On 56 cores each number comes up, and more work never ends sooner."""
    many = replace(AVX512, cores=56)
    work = [1000 * 1.05**n for n in range(200)]
    counts = [many.threads(cycles) for cycles in work]
    assert counts == sorted(counts) and counts[0] == 1 and counts[-1] == 56 and len(set(counts)) > 20
    assert many.threads(1 << 16) == 4  # a product of 128 x 128 x 128
    quick, slow = (replace(many, measured=replace(many.memory, fork=fork)) for fork in (5200, 20000))
    assert all(quick.threads(cycles) >= many.threads(cycles) >= slow.threads(cycles) for cycles in work)


def test_threads_never_cost_time_by_the_model():
    for cores, fork in ((2, 5200), (13, 10240), (56, 40000)):
        machine = replace(AVX512, cores=cores, measured=replace(AVX512.memory, fork=fork))

        def seconds(work, n, fork=fork):
            return work / n + fork * log2(n)

        for work in (1.5**n for n in range(50)):
            chosen = seconds(work, machine.threads(work))
            assert all(chosen <= seconds(work, n) for n in range(1, cores + 1))


def test_one_core_has_one_thread():
    assert CPU(1, 512, 32, 1 << 15, 1 << 20, 1 << 25).threads(1e12) == 1


def test_four_million_fast_iterations_are_shared_for_sure():
    assert (1 << 22) * AVX512.fma_cycles(32) == AVX512.memory.wake > AVX512.memory.fork


@pytest.mark.parametrize(("options", "spare"), [("-mcpu x86-64-v2", 1), ("-mcpu x86-64-v3", 0), ("-mcpu x86-64-v4", 1)])
def test_accumulators(options, spare):
    """They leave room for the vectors of columns and an element of the rows; a register besides where the compiler would spill
    without it, or a product is no part of its sum."""
    machine = described(options)
    for vectors in range(1, 5):
        assert machine.accumulators(vectors) + vectors + 1 + spare == machine.registers


def test_shares_of_caches():
    assert AVX512.l2_reuse_bytes == 768 << 10


@pytest.mark.parametrize(("stride", "found"), [(4096, 13), (4092, 12), (2048, 7), (4080, 4), (4032, 1), (52, 2), (0, 13)])
def test_rows_in_a_set(stride, found):
    """Thirteen rows whose first elements are in lines of few sets: all at a page's distance, none where they are a line from it."""
    assert AVX512.rows_in_a_set(13, stride) == found and AVX512.l1_ways == 8


@pytest.mark.parametrize(
    ("arch", "sms", "shared", "modern"),
    [("sm_75", 72, 64, False), ("sm_80", 108, 163, True), ("sm_86", 84, 99, True), ("sm_90", 132, 227, True),
     ("sm_90a", 132, 227, True), ("sm_100", 148, 227, True)],
)  # fmt: skip
def test_gpus(arch, sms, shared, modern):
    machine = tir.Target("cuda", arch=arch).machine
    assert machine == GPU.of(arch)
    assert (machine.sms, machine.shared, machine.modern) == (sms, shared << 10, modern)
    assert machine.caches == (shared << 10, 256 << 10, machine.l2)


def test_a_gpu_is_described_by_its_target():
    """An RTX 3060, of the architecture of an A40."""
    machine = tir.Target("cuda -arch sm_86 -sms 28 -clock 1777 -l2 3145728 -memory 360").machine
    assert (machine.sms, machine.l2, machine.memory, machine.shared) == (28, 3 << 20, 203, 99 << 10)


def test_limits_of_all_gpus():
    for number in gpus():
        machine = GPU.of(f"sm_{number}")
        assert STATIC_SHARED_BYTES <= machine.shared < 228 << 10
        assert machine.cores == machine.sms * machine.lanes and machine.lanes in (64, 128)
        assert machine.warps * 32 >= machine.threads and machine.blocks <= machine.warps
        assert machine.memory <= machine.l2_bandwidth < 64 * machine.sms


def test_an_unknown_gpu_has_the_shared_memory_that_all_have():
    assert GPU.of("sm_88").shared == GPU.of("sm_60").shared == STATIC_SHARED_BYTES
    assert (GPU.of("sm_88").sms, GPU.of("sm_60").modern, GPU.of("sm_200").modern) == (GPU.of("sm_87").sms, False, True)


def test_an_h100():
    assert (H100.cores, H100.vector_bits, H100.saturating_threads) == (16896, 128, 132 * 512)
    assert (round(H100.l2_bandwidth), H100.memory, H100.warps, H100.blocks) == (3200, 1909, 64, 32)


def test_a_step_of_a_register_tile():
    """Of 14 rows by two vectors: multiply-adds, loads, or waiting for the step before, and the exposed part of the loads."""
    zen4, exposed = described("-mcpu znver4"), EXPOSED_LOADS * (2 * 2 + 14 / 2)  # two lines of L2, fourteen elements
    assert AVX512.step_cycles(28, 2, 14) == pytest.approx(14 + exposed)
    assert zen4.step_cycles(28, 2, 14) == pytest.approx(28 + exposed)
    assert AVX512.step_cycles(4, 2, 14) == pytest.approx(8 + exposed)
    assert zen4.step_cycles(1, 1, 1) - zen4.step_cycles(1, 1, 1, waits=False) == 4 - 1.5
    assert AVX512.step_cycles(np.array([4, 28]), 2, 14).tolist() == [AVX512.step_cycles(n, 2, 14) for n in (4, 28)]


@pytest.mark.parametrize(("options", "turns"), [("-mcpu znver5", 1), ("-mcpu znver4", 2), ("-mcpu znver4 -vector-bits 256", 1)])
def test_a_register_tile(options, turns):
    """Units that take a vector in two turns take twice as long, where a step does not wait for the latency."""
    machine = described(options)
    assert machine.uops_per_vector == turns and machine.entry_cycles(28) == turns * 48
    line = machine.vector_bits / 512 * 2  # cycles of a vector from L2
    assert machine.tile_cycles(14, 2, 1000) == pytest.approx(turns * (14 * 1000 + 48) + EXPOSED_LOADS * (2 * line + 7) * 1000)
    assert machine.tile_cycles(1, 1, 1000) == pytest.approx(4000 + turns * 21 + EXPOSED_LOADS * (line + 0.5) * 1000)


def test_packing_comes_from_the_cache_that_holds_all():
    """A line takes two cycles from the second-level cache and six from the third, and so does the copy's, read and written."""
    assert (AVX512.pack_cycles(32), AVX512.pack_cycles(64, AVX512.l2)) == (3 * 2 / 16, 3 * 2 / 8)
    assert AVX512.pack_cycles(32, AVX512.l2 + 1) == 3 * 6 / 16


def test_what_vectors_cost():
    """A vector of halves takes two operations, a sum of lanes an addition for each halving, a turned element its shuffles and a
    store and a load besides."""
    zen4 = described("-mcpu znver4")
    assert (zen4.conversion_cycles, described("-mcpu znver4 -vector-bits 256").conversion_cycles) == (1.0, 0.5)
    assert (zen4.lane_sum_cycles(32), zen4.lane_sum_cycles(64)) == (16, 12)
    assert zen4.turn_cycles(32) == zen4.shuffle_cycles(32) + 3 / 16


def test_a_processor_whose_core_is_not_known_is_said_once_and_levels_are_no_processors():
    core_of.cache_clear()
    with pytest.warns(Degraded, match=r"^the throughputs of a core of `goldmont` are not known: .* of 128 bits, ") as caught:
        assert core_of("goldmont", 128) == core_of("goldmont", 128) == Core(256, 256, 256, 128, 4, 4)
    assert len(caught) == 1
    with warnings.catch_warnings(action="error"):
        for known in ("x86-64-v3", "generic", "znver5", "sapphirerapids", ""):
            core_of(known, 256)
