"""Machine models: facts about processors and GPUs, each with its source, and small formulas over them.

Templates, cost models and limits read these records. A number that a single template needs stands in that template. Only ratios
of cycles matter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import Any

import numpy as np

from tir.memory import WARP
from tir.notices import degraded

from .machines import Core, Memory, Product, described, gpus, memory_of

CACHE_SHARE = 0.75  # share of a cache that a tile may fill
CACHE_LINE_BYTES = 64  # bytes of a cache line: all x86 processors, and most others
TILE_ENTRY_CYCLES = 20.0  # cycles to enter the loop of a register tile: a mispredicted branch, and addresses
# Share of the cycles of loads in a step of a register tile that its multiply-adds do not hide, vectors of columns from L2 and
# elements of rows from L1. Fitted to packed products on a Zen 4: tiles of one to four vectors by all rows that fit, of 256 and of
# 512 bits.
EXPOSED_LOADS = 0.25
Amount = Any  # a number, or an object that has one for each candidate
Most = Callable[[Amount, Amount], Amount]  # the maximum of two amounts


LEVELS = re.compile(r"x86-64|generic")  # LLVM's names of whole families of processors


@lru_cache(64)
def core_of(mcpu: str, vector_bits: int) -> Core:
    """The core of a processor by LLVM's name; for one not described, one with two full-width multiply-add and load units."""
    if found := described(mcpu):
        return found.core
    if mcpu and not LEVELS.match(mcpu):
        degraded(
            f"the throughputs of a core of `{mcpu}` are not known: schedules are made for two multiply-add and two load units of "
            f"{vector_bits} bits, and may not be the fastest until a search has measured"
        )
    return Core(2 * vector_bits, 2 * vector_bits, 2 * vector_bits, vector_bits, 4, 4)


@dataclass(frozen=True, slots=True)
class CPU:
    """A processor: threads to use, bits and number of vector registers, bytes of L1 and L2 of a core, and of the shared L3."""

    cores: int
    vector_bits: int
    registers: int
    l1: int
    l2: int
    l3: int
    mcpu: str = ""  # LLVM's name
    features: frozenset[str] = frozenset()  # LLVM's names of its instruction sets that templates use
    measured: Memory | None = None  # None: as `memory_of` says

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` bits that fill a vector register."""
        return max(1, self.vector_bits // bits)

    @property
    def caches(self) -> tuple[int, int, int]:
        """Bytes of the data caches, the nearest first."""
        return self.l1, self.l2, self.l3

    @property
    def core(self) -> Core:
        """Throughputs of one core."""
        return core_of(self.mcpu, self.vector_bits)

    @property
    def memory(self) -> Memory:
        """Cycles of cache lines."""
        return self.measured or memory_of(self.mcpu)

    def home(self, nbytes: Amount) -> Amount:
        """The index of the nearest level behind L1 in which `nbytes` bytes stay while others stream by: L2, L3, or memory."""
        return 1 * (nbytes > self.l2_reuse_bytes) + (nbytes > max(self.l2_reuse_bytes, self.l3_reuse_bytes))

    def level(self, nbytes: int) -> int:
        """The index of the nearest level behind L1 that holds `nbytes` bytes: L2, L3, or memory."""
        return (nbytes > self.l2) + (nbytes > max(self.l2, self.l3_bytes))

    @property
    def fmas(self) -> float:
        """Multiply-adds of whole vectors that begin in a cycle."""
        return min(self.core.multiply_adds, self.core.fma_bits / self.vector_bits)

    @property
    def loads(self) -> float:
        """Whole vectors loaded in a cycle, from the first-level cache."""
        return min(self.core.reads, self.core.load_bits / self.vector_bits)

    @property
    def uops_per_vector(self) -> float:
        """Micro-operations of a whole vector: two where the units of the core are half as wide."""
        return max(1.0, 2 / self.fmas)

    @property
    def masks(self) -> bool:
        """True where lanes are masked at no cost, as with mask registers."""
        return bool(self.features & {"avx512f", "sve"})

    # --- registers ---------------------------------------------------------------------------------------------------------

    def accumulators(self, vectors: Amount) -> Amount:
        """Accumulators that fit beside `vectors` vectors of columns and one broadcast register. Of 32 registers one more is free
        for the compiler, which spills before it needs to. Of 16, one more holds products where they are not fused with their
        sum."""
        fused = "fma" in self.features or "sse2" not in self.features
        return self.registers - vectors - (1 if self.registers < 32 and fused else 2)

    def step_cycles(
        self, accumulators: Amount, panel: Amount, elements: Amount, most: Most = np.maximum, waits: bool = True
    ) -> Amount:
        """Cycles of a reduction step of a register tile with operands in L1 and L2. They are the most of those to issue the
        multiply-adds, to load `panel` vectors and broadcast `elements`, and, if it `waits`, for the step before (Low et al.,
        Analytical Modeling is Enough for High-Performance BLIS, ACM TOMS 43(2), 2016). Besides, loads are exposed."""
        loading = panel / self.loads + elements / self.core.reads
        hidden = most(most(accumulators / self.fmas, loading), float(waits * self.core.latency))
        lines = panel * self.memory.line[0] * self.vector_bits / (8 * CACHE_LINE_BYTES)
        return hidden + EXPOSED_LOADS * (lines + elements / self.core.reads)

    @property
    def step_vectors(self) -> int:
        """Vectors of results in a step of an elementwise loop: the other registers hold operands and constants."""
        return self.registers // 4

    def entry_cycles(self, moved: Amount) -> Amount:
        """Cycles to enter the loop of a register tile and to load and store `moved` vectors of accumulators."""
        return (TILE_ENTRY_CYCLES + moved) * self.uops_per_vector

    def tile_cycles(self, rows: Amount, vectors: Amount, steps: Amount, multiplications: int = 1) -> Amount:
        """Cycles of a register tile of `rows` rows by `vectors` vectors over `steps` reduction steps, with its entry and its
        stores. A step has so many `multiplications` of each row by each vector."""
        held = rows * vectors
        return self.step_cycles(multiplications * held, vectors, rows) * steps + self.entry_cycles(held)

    # --- threads -----------------------------------------------------------------------------------------------------------

    def threads(self, cycles: float) -> int:
        """Threads for work of `cycles` cycles of one core: the number with which it ends first. Threads are woken, and wait, in
        a tree, so each doubling of their number costs as much."""
        return min(range(self.cores, 0, -1), key=lambda n: cycles / n + self.memory.fork * log2(n))

    @property
    def conversion_cycles(self) -> float:
        """Cycles to convert a vector of halves: two operations on vectors."""
        return 2 * self.vector_bits / self.core.vector_bits

    def lane_sum_cycles(self, bits: int) -> float:
        """Cycles to add up the lanes of a vector in halves, each of which waits for the one before."""
        return self.core.latency * log2(self.lanes(bits))

    def fma_cycles(self, bits: int) -> float:
        """Cycles of a multiply-add of one element, its factors in registers."""
        return 1 / (self.fmas * self.lanes(bits))

    def loaded_fma_cycles(self, bits: int) -> float:
        """Cycles of a multiply-add of one element, its two factors loaded from L1."""
        return max(self.fma_cycles(bits), 2 / (self.loads * self.lanes(bits)))

    def read_cycles(self, bits: int, nbytes: int = 0) -> float:
        """Cycles to read an element of contiguous data of `nbytes` bytes, from the level that holds them."""
        return self.memory.line[self.level(nbytes)] * bits / (8 * CACHE_LINE_BYTES)

    def copy_cycles(self, bits: int) -> float:
        """Cycles to copy an element within the second-level cache."""
        return 2 * self.read_cycles(bits)

    def pack_cycles(self, bits: int, nbytes: int = 0) -> float:
        """Cycles to pack an element of an operand of `nbytes` bytes: its line is read, and that of the copy read and written."""
        return 3 * self.read_cycles(bits, nbytes)

    def shuffle_cycles(self, bits: int) -> float:
        """Cycles of an element in a square that is transposed in registers, with a shuffle for each halving of the lanes."""
        lanes = self.lanes(bits)
        return log2(lanes) / lanes * self.uops_per_vector

    def turn_cycles(self, bits: int) -> float:
        """Cycles to transpose an element of a result on its way to memory: it is stored, loaded and shuffled."""
        return self.shuffle_cycles(bits) + (1 / self.core.load_bits + 1 / self.core.store_bits) * bits

    def transpose_cycles(self, bits: int, nbytes: int = 0) -> float:
        """Cycles to copy an element of `nbytes` bytes in squares, which are transposed in registers."""
        return self.pack_cycles(bits, nbytes) + self.shuffle_cycles(bits)

    # --- shares of a cache -------------------------------------------------------------------------------------------------

    @property
    def l1_ways(self) -> int:
        """Ways of L1, the lines of a set. A way has the size of a page, so that its lookup needs no address translation."""
        return max(1, self.l1 // PAGE_BYTES)

    @staticmethod
    def rows_in_a_set(rows: int, stride: int) -> int:
        """Most of `rows` rows, `stride` bytes apart, whose elements of one column have their lines in the same set of L1."""
        return max(Counter(row * stride % PAGE_BYTES // CACHE_LINE_BYTES for row in range(rows)).values())

    @property
    def l2_reuse_bytes(self) -> int:
        """Bytes of L2 for data reused while other data streams through."""
        return int(CACHE_SHARE * self.l2)

    @property
    def l3_reuse_bytes(self) -> int:
        """Bytes of L3 that a core may count on: as measured, or else a quarter, as other cores fill the rest. On a rented machine
        with 32 MiB, rows of 7 MiB a page apart came as fast as from L3, those of 16 MiB as from memory."""
        return min(self.memory.l3 or self.l3 // 4, self.l3)

    @property
    def l3_bytes(self) -> int:
        """Bytes of L3: as measured, or as the processor has them."""
        return min(self.memory.l3 or self.l3, self.l3)


PAGE_BYTES = 4096  # rows that lie multiples of a page apart fall into the same sets of the first-level cache
L2_WAY_BYTES = 65536  # bytes of a way of L2: 1,024 sets of one line
SET_ALIASING_BYTES = (PAGE_BYTES, L2_WAY_BYTES, 0)  # bytes between addresses in the same set of L1, L2, L3; 0: hashed

MAX_THREADS = 1024  # threads of a block (CUDA C++ programming guide, technical specifications)
MAX_ACCESS_BYTES = 16  # bytes that a thread can load or store at once


@dataclass(frozen=True, slots=True)
class GPU:
    """A GPU of `sms` multiprocessors, each with float32 `lanes` and resident `warps` and `blocks`. A block may have `shared`
    bytes of shared memory; L2 has `l2` bytes; memory moves `memory` bytes in a clock of the multiprocessors. `modern`: copies to
    shared memory are asynchronous, and tensor cores can be used."""

    sms: int
    lanes: int
    warps: int
    blocks: int
    shared: int
    l2: int
    memory: float
    modern: bool = True
    warpgroups: bool = False  # four warps multiply together (wgmma)
    threads: int = MAX_THREADS  # of a block, at most
    registers: int = 255  # of a thread, at most
    register_file: int = 65536  # of 32 bits, of a multiprocessor
    virtual: int = 16  # virtual threads that are tried

    @classmethod
    def of(cls, arch: str) -> GPU:
        """The GPU of an architecture such as sm_90a. An unknown one is as the one before it, with static shared memory only."""
        number, p = compute_capability(arch), product(arch)
        room = p.shared_kib << 10 if number in gpus() else STATIC_SHARED_BYTES
        return cls(
            p.sms, p.lanes, p.warps, p.blocks, room, p.l2_mib << 20, bytes_a_clock(p.memory, p.clock),
            number >= AMPERE_CAPABILITY, number == HOPPER_CAPABILITY,
        )  # fmt: skip

    @property
    def l2_bandwidth(self) -> float:
        """Bytes a clock from L2 to all SMs: 3200 for the 132 of an H100, in proportion for others, no less than memory."""
        return max(3200 / 132 * self.sms, self.memory)

    @property
    def saturating_threads(self) -> int:
        """Threads that saturate all SMs with memory-bound work: four warps a warp scheduler, each with loads in flight."""
        return self.sms * WARP_SCHEDULERS_PER_SM * 4 * WARP

    @property
    def cores(self) -> int:
        """The lanes of all multiprocessors."""
        return self.sms * self.lanes

    @property
    def vector_bits(self) -> int:
        """Bits of the widest load or store of a thread."""
        return 8 * MAX_ACCESS_BYTES

    @property
    def caches(self) -> tuple[int, int, int]:
        """Bytes of shared memory, registers and the second-level cache."""
        return self.shared, 4 * self.register_file, self.l2


def compute_capability(arch: str) -> int:
    """The number of an architecture's name: 90 of sm_90a."""
    return int("".join(c for c in arch if c.isdigit()))


def bytes_a_clock(gigabytes: int, megahertz: int) -> float:
    """The bytes that memory of so many GB/s moves in a clock of so many MHz."""
    return float(round(1000 * gigabytes / megahertz))


AMPERE_CAPABILITY = 80  # the first with asynchronous copies, and with the tensor cores that instructions are emitted for
HOPPER_CAPABILITY = 90  # the only one whose warps multiply in groups of four (wgmma)
STATIC_SHARED_BYTES = 48 * 1024  # of shared memory that every architecture gives a block without asking the driver
WARP_SCHEDULERS_PER_SM = 4  # each issues an instruction of a warp in a clock


def product(arch: str) -> Product:
    """The product that stands for an architecture; for an unknown one that of the one before it."""
    number = compute_capability(arch)
    return gpus()[max((n for n in gpus() if n <= number), default=min(gpus()))]


H100 = GPU.of("sm_90")
Machine = CPU | GPU
