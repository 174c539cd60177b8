"""Processors, each described by a file of this folder: caches, throughputs of a core, cycles of the lines of memory. GPUs are in
the folder `gpus`, a file for each maker.

A file `NAME.toml` has the pattern of LLVM's names of its `processors`, `caches_kib` of L1, L2 and L3, and a table `[core]` with
the fields of `Core`. Where memory was measured or is documented, a table `[memory]` has the fields of `Memory`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from pathlib import Path

# Cycles of a parallel loop that does nothing, for each doubling of its threads, awake and asleep: three microseconds and thirty.
ANY_FORK, ANY_WAKE = 10240, 1 << 17
ANY_STREAMS = 8  # of processors not measured: as on Sapphire Rapids, and a Zen 3 reads no less so than of four


@dataclass(frozen=True, slots=True)
class Core:
    """Throughputs of a core, and the latency of a float operation in cycles. The bits are those of fused multiply-adds, other
    vector arithmetic, loads and stores in a cycle. At most `multiply_adds` and `reads` loads begin in a cycle, and `issue`
    instructions of all kinds."""

    fma_bits: int
    vector_bits: int
    load_bits: int
    store_bits: int
    issue: int
    latency: int
    multiply_adds: int = 2
    reads: int = 2


@dataclass(frozen=True, slots=True)
class Memory:
    """Cycles of a core for a cache line from L2, from L3 and from memory. `line` is for lines that follow each other, and are
    prefetched. `row` is for lines in different rows of a matrix, a page apart, as in a panel of columns. `l3` is the number of
    bytes that L3 holds for this process, 0 where it holds what the processor has. `streams` is the number of rows, far apart,
    of which a core reads most bytes at once. `fork` is for a parallel loop that does nothing, from its begin to its end, for each
    doubling of the threads; `wake` is the same where they sleep."""

    line: tuple[float, float, float]
    row: tuple[float, float, float]
    l3: int = 0
    streams: int = ANY_STREAMS
    fork: float = ANY_FORK
    wake: float = ANY_WAKE

    @classmethod
    def parse(cls, text: str) -> Memory:
        """The inverse of `str`. ValueError where a number is missing, or is not positive."""
        found = re.fullmatch(r"([^+]*)(?:\+(\d+)(?:x(\d+)(?:~([^,]+),([^,]+))?)?)?", text)
        if found is None:
            raise ValueError(text)
        cycles, mebibytes, streams, *forks = found.groups()
        fork, wake = (float(n or usual) for n, usual in zip(forks, (ANY_FORK, ANY_WAKE), strict=True))
        line, row = (tuple(map(float, part.split(","))) for part in cycles.split("/"))
        if len(line) != 3 or len(row) != 3 or not all(0 < n < inf for n in (*line, *row, fork, wake)) or streams == "0":
            raise ValueError(text)
        return cls(line, row, int(mebibytes or 0) << 20, int(streams or ANY_STREAMS), fork, wake)

    def __str__(self) -> str:
        cycles = "/".join(",".join(f"{n:g}" for n in part) for part in (self.line, self.row))
        forks = f"~{self.fork:g},{self.wake:g}" if (self.fork, self.wake) != (ANY_FORK, ANY_WAKE) else ""
        return f"{cycles}+{self.l3 >> 20}x{self.streams}{forks}"


# Of a processor without `[memory]`. `line`: 32 bytes a cycle from L2, 10 from L3, 4.5 from memory. `row`: the latency of a level
# over the misses that a core has in flight; 200 cycles and 12 misses of L3, 100 ns of memory. To pack in vain costs less than to
# read from far away.
ANY_MEMORY = Memory((2.0, 6.0, 14.0), (2.0, 16.0, 30.0))


@dataclass(frozen=True, slots=True)
class Processor:
    """A described processor: bytes of L1, L2 and L3, the throughputs of a core, and its memory."""

    caches: tuple[int, int, int]
    core: Core
    memory: Memory


@cache
def described(mcpu: str) -> Processor | None:
    """The description of a processor by LLVM's name; None where there is none."""
    return next((found for pattern, found in files() if re.match(pattern, mcpu)), None)


def memory_of(mcpu: str) -> Memory:
    """The memory of a processor by LLVM's name, as described."""
    found = described(mcpu)
    return ANY_MEMORY if found is None else found.memory


@cache
def files() -> list[tuple[str, Processor]]:
    """All descriptions, by their patterns."""
    import tomllib

    found = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        memory = ANY_MEMORY
        if about := told.get("memory"):
            memory = Memory(_levels(about["line"]), _levels(about["row"]), about.get("l3_mib", 0) << 20, about["streams"])
            memory = replace(memory, **{key: about[key] for key in ("fork", "wake") if key in about})
        l1, l2, l3 = (kib << 10 for kib in told["caches_kib"])
        found.append((told["processors"], Processor((l1, l2, l3), Core(**told["core"]), memory)))
    return found


@dataclass(frozen=True, slots=True)
class Product:
    """A GPU: multiprocessors, their lanes, warps and blocks, shared memory of a block, L2, GB/s of memory, and MHz."""

    product: str
    sms: int
    lanes: int
    warps: int
    blocks: int
    shared_kib: int
    l2_mib: int
    memory: int
    clock: int


@cache
def gpus() -> dict[int, Product]:
    """The described GPUs by their compute capability."""
    import tomllib

    told = tomllib.loads((Path(__file__).parent / "gpus" / "nvidia.toml").read_text(encoding="utf-8"))
    return {int(capability): Product(**about) for capability, about in told.items()}


def _levels(numbers: list[float]) -> tuple[float, float, float]:
    l2, l3, memory = map(float, numbers)
    return l2, l3, memory
