"""The files that describe processors, and what holds of schedules on all of them."""

from __future__ import annotations

import re
from itertools import pairwise
from math import inf

import pytest

import tir
from codegen.processor import host_caches, host_processor, known_processor
from schedule import templates
from schedule.machine import CPU
from schedule.machines import ANY_MEMORY, described, files, memory_of
from schedule.open_schedule import OpenSchedule
from schedule.primitive import find_block
from schedule.templates import gemm
from tests.programs import product

X86 = (
    "znver1",
    "znver3",
    "znver4",
    "znver5",
    "haswell",
    "skylake",
    "alderlake",
    "skylake-avx512",
    "icelake-server",
    "sapphirerapids",
)
ARM = ("neoverse-n1", "neoverse-v2", "apple-m1")
MACHINES = [f"llvm -mcpu {name} -num-cores 1" for name in X86]
MACHINES += [f"llvm -mtriple aarch64-linux-gnu -mcpu {name} -num-cores 1" for name in ARM]


@pytest.mark.parametrize("name", X86 + ARM)
def test_a_name_has_one_description_with_growing_levels(name):
    assert sum(re.match(pattern, name) is not None for pattern, _ in files()) == 1
    found = described(name)
    assert all(a < b for a, b in pairwise(found.caches))
    for cycles in (found.memory.line, found.memory.row):
        assert all(a <= b for a, b in pairwise(cycles))
    assert all(a <= b for a, b in zip(found.memory.line, found.memory.row, strict=True))
    assert known_processor(name, "aarch64-linux-gnu" if name in ARM else "")


def test_each_file_describes_one_of_them():
    assert len({described(name) for name in X86 + ARM}) == len(files()) == len(X86 + ARM)


@pytest.mark.parametrize("name", ["", "generic", "x86-64-v3", "goldmont"])
def test_families_and_others_have_no_description(name):
    assert described(name) is None and memory_of(name) == ANY_MEMORY


def test_another_processor_has_its_own_caches_whatever_the_host_has():
    other = "znver3" if host_processor()[0] != "znver3" else "znver5"
    assert tir.Target("llvm", mcpu=other).machine_as(CPU).caches == described(other).caches
    given = tir.Target("llvm", mcpu=other, l2=1 << 22)
    assert (given.l1, given.l2) == (described(other).caches[0], 1 << 22)
    assert tir.Target(str(given)) == given
    assert tir.Target("llvm", mcpu="x86-64-v3").machine_as(CPU).caches == host_caches()


@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_fit_registers_and_caches(machine):
    """Accumulators, a vector and an element fit the registers, and hide the latency of a multiply-add. A packed block of columns
    fits L2 beside a tile of rows, and L3 beside a packed block of rows."""
    target = tir.Target(machine)
    processor = target.machine_as(CPU)
    for M, N, K in ((4096, 4096, 4096), (1024, 512, 700), (97, 1021, 509), (32, 4096, 1000)):
        c = gemm.matches(find_block(product(M, N, K), "C"))
        t = gemm.tiles(c, processor)
        vectors = -(-t.nr // processor.lanes(32))
        assert t.mr * vectors + min(t.mr, vectors) < processor.registers
        assert t.mr * vectors >= processor.fmas * processor.core.latency  # no step waits for the one before it
        columns = t.nr * t.nc if t.right else 0
        assert 4 * t.kc * (columns + t.mr) <= processor.l2, (M, N, K)
        assert 4 * t.kc * (columns + t.mr * t.mc * t.left) <= max(processor.l2, processor.l3_reuse_bytes), (M, N, K)


@pytest.mark.parametrize("machine", MACHINES)
def test_more_l2_never_makes_blocks_smaller(machine):
    """But for a tile of rows, by which blocks that divide rows nearly equally differ."""
    c = gemm.matches(find_block(product(4096, 4096, 4096), "C"))
    sizes = []
    for l2 in (1 << 18, 1 << 19, 1 << 20, 1 << 21):
        t = gemm.tiles(c, tir.Target(machine, l2=l2).machine_as(CPU))
        sizes.append((t.mr * t.kc, t.mc * t.mr * t.kc, t.nc * t.nr * t.kc))
    for (_, rows, columns), (tile, more_rows, more_columns) in pairwise(sizes):
        assert rows <= more_rows + tile and columns <= more_columns


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        ("gmm", (97, 109, 130)), ("gmm", (2, 130, 109)), ("conv2d", (1, 13, 7, 3, 64, 3, 3, 1, 1)),
        ("conv2d_nhwc", (1, 13, 7, 16, 109, 3, 2, 1)), ("conv2d_transpose", (1, 9, 7, 64, 3, 4, 2, 1)),
        ("depthwise_nhwc", (1, 13, 13, 64, 3, 1, 1)),
    ],
)  # fmt: skip
def test_templates_that_suit_have_estimates_and_the_default_has_the_fewest(machine, program, sizes):
    """No template is first or last whatever it takes."""
    target, func = tir.Target(machine), tir.workloads.make(program, sizes).func
    s = OpenSchedule(func, target, at_seed=True)
    for block in [name for name in s.unscheduled() if s.block(name).is_reduction]:
        estimates = {t.name: t.cycles(s, block) for t in templates.SUMS_OF_PRODUCTS if t.found(s, block) is not None}
        assert estimates and all(0 < cycles < inf for cycles in estimates.values())
        chosen = next(rule for rule in templates.decided(func, target).rules if rule.startswith(f"{block}: "))
        assert chosen.startswith(f"{block}: {min(estimates, key=estimates.__getitem__)}")


@pytest.mark.parametrize("machine", MACHINES)
def test_more_work_never_ends_sooner_with_any_number_of_cores(machine):
    many = tir.Target(machine, num_cores=64).machine_as(CPU)
    counts = [many.threads(1000 * 1.3**n) for n in range(40)]
    assert counts == sorted(counts) and (counts[0], counts[-1]) == (1, 64)
