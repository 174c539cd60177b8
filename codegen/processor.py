"""Facts about CPUs for targets: the cores, caches and features of this one, and the features of others by LLVM's name."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections.abc import Collection, Set
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

# The system call, the request and the processor state by which a process on Linux and x86-64 obtains tile registers
# (asm/unistd_64.h, asm/prctl.h).
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18

MCPU = "TIR_MCPU"  # the environment variable with the default processor of targets

# LLVM's names of the instruction sets that generated code may use. Others are for operating systems, or need explicit
# intrinsics, as AES does.
_INSTRUCTION_SETS = """
cmov sse sse2 sse3 ssse3 sse4.1 sse4.2 sse4a popcnt lzcnt bmi bmi2 tbm movbe gfni
avx avx2 fma fma4 xop f16c avxvnni avxvnniint8 avxvnniint16 avxifma avxneconvert
avx512f avx512cd avx512dq avx512bw avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq
avx512bf16 avx512fp16 avx10.1 avx10.2 egpr ndd nf zu cf ccmp ppx push2pop2
amx-tile amx-int8 amx-bf16 amx-fp16
"""
_ARM_INSTRUCTION_SETS = "neon fullfp16 bf16 dotprod i8mm sve sve2"
INSTRUCTION_SETS = frozenset(f"{_INSTRUCTION_SETS} {_ARM_INSTRUCTION_SETS}".split())


class UnsupportedProcessor(RuntimeError):
    """Machine code for instructions that this processor does not have."""


def vector_bits(features: Set[str]) -> int:
    """Bits of the widest vector register."""
    return 512 if "avx512f" in features else 256 if "avx2" in features else 128


def vector_registers(features: Set[str], bits: int) -> int:
    """The number of registers for vectors of `bits` bits: 32 with AVX-512 (its VL for shorter vectors) or NEON, else 16."""
    return 32 if features & {"neon", "avx512vl", "avx512f" if bits >= 512 else "avx512vl"} else 16


def fuses_multiply_add(features: Set[str]) -> bool:
    """True where a processor has fused multiply-adds, as all but older x86 processors do."""
    return bool({"fma", "neon"} & features) or platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686")


def scales_by_powers(features: Set[str]) -> bool:
    """True where a processor has an instruction that multiplies a vector's floats by any powers of two (VSCALEF)."""
    return {"avx512f", "avx512vl"} <= features


# Processors that LLVM mistakes for older ones where a hypervisor reports another model number, by a feature new in them.
_NAMED_BY_FEATURE = (("amx-fp16", "graniterapids"), ("amx-tile", "sapphirerapids"))


def compiles() -> bool:
    """True where LLVM is installed, which a browser lacks."""
    return _llvm() is not None


@cache
def _llvm() -> Any:
    """LLVM; None where it is not installed, as in a browser. Programs are scheduled, lowered and run, not compiled."""
    try:
        from .llvm_binding import llvm
    except ModuleNotFoundError:
        return None
    return llvm


@cache
def host_processor() -> tuple[str, str]:
    """LLVM's name of this processor and its feature string, without tile registers (AMX) where this process may not use them.

    Without LLVM, a processor without features.
    """
    if (llvm := _llvm()) is None:
        return "generic", ""
    features, name = llvm.get_host_cpu_features().flatten(), llvm.get_host_cpu_name()
    present = set(features.split(","))
    newer = next((newer for feature, newer in _NAMED_BY_FEATURE if f"+{feature}" in present), name)
    if name in ("rocketlake", "icelake-server", "icelake-client", "skylake-avx512", "cascadelake", "cooperlake"):
        name = newer
    if "+amx-tile" in present and not _tiles_permitted():
        features = features.replace("+amx-", "-amx-")
    return name, features


def _tiles_permitted() -> bool:
    """True where the operating system lets this process use tile registers, for which Linux must be asked."""
    if sys.platform != "linux":
        return True
    import ctypes

    return ctypes.CDLL(None).syscall(ARCH_PRCTL, ctypes.c_long(REQUEST_PERMISSION), ctypes.c_long(TILE_DATA)) == 0


def default_processor() -> str:
    """LLVM's name of the default processor of targets: the value of `TIR_MCPU`, else this processor."""
    return os.environ.get(MCPU) or host_processor()[0]


def processor_features(mcpu: str, mattr: str, mtriple: str = "") -> frozenset[str]:
    """LLVM's names of the features of processor `mcpu`, as changed by `mattr`: all for this processor, those in
    `INSTRUCTION_SETS` for others. `mtriple` is the triple of another kind of machine."""
    return host_features() if (mcpu, mattr, mtriple) == (*host_processor(), "") else _features_of(mcpu, mattr, mtriple)


@cache
def foreign_triple(mtriple: str) -> str:
    """LLVM's triple of a kind of machine, empty for this one. Raises ValueError where LLVM has no code generator for it."""
    if (llvm := _llvm()) is None:
        return mtriple
    llvm.initialize_all_targets()
    if machine_kind(mtriple) == machine_kind():
        return ""
    try:
        llvm.Target.from_triple(mtriple)
    except RuntimeError as error:
        raise ValueError(f"target option mtriple: {error}; such as aarch64-linux-gnu was expected") from None
    return mtriple


def machine_kind(mtriple: str = "") -> str:
    """The architecture and system of a triple, or of this process if it is empty, such as x86_64-linux."""
    from .llvm_binding import llvm

    triple = mtriple or llvm.get_process_triple()
    system = next((s for s in ("linux", "darwin", "windows") if s in triple), "")
    return f"{triple.split('-')[0]}-{system}"


def described_machine(mtriple: str, **options: Any) -> Any:
    """LLVM's target machine for a triple, for this process if it is empty."""
    from .llvm_binding import llvm

    llvm.initialize_all_targets()
    return llvm.Target.from_triple(mtriple or llvm.get_process_triple()).create_target_machine(**options)


@cache
def host_features() -> frozenset[str]:
    """LLVM's names of the features of this processor."""
    return frozenset(word[1:] for word in host_processor()[1].split(",") if word.startswith("+"))


def missing_features(mcpu: str, mattr: str, mtriple: str = "") -> str:
    """The reason why code for a processor cannot run on this one; empty if it can."""
    if mtriple:
        return f"expected a processor of {mtriple}, got {host_processor()[0]}"
    missing = sorted((processor_features(mcpu, mattr) & INSTRUCTION_SETS) - host_features())
    return f"this processor, {host_processor()[0]}, has no {', '.join(missing)}" if missing else ""


def _cpuinfo(field: str) -> str:
    """The value of a field of the first processor, as Linux describes it; empty without the field, and on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


@cache
def reported_features() -> frozenset[str]:
    """The sets of INSTRUCTION_SETS of this processor as Linux reports them, without LLVM; empty on other systems."""
    flags = _cpuinfo("flags").split()
    found = {flag.replace("_", "") for flag in flags}
    other = {"lzcnt": "abm", "sse3": "pni", "bmi": "bmi1"}  # where Linux has another name than LLVM
    return frozenset(name for name in INSTRUCTION_SETS if other.get(name, re.sub(r"[-.]", "", name)) in found)


def lacking_features(needed: Collection[str]) -> str:
    """The reason why code that needs these sets of instructions cannot run here; empty if it can."""
    found = reported_features() or host_features()
    missing = sorted(set(needed) - found)
    if not missing and any(name.startswith("amx-") for name in needed) and not _tiles_permitted():
        missing = ["permission to use tile registers"]
    return f"this processor has no {', '.join(missing)}" if missing else ""


@lru_cache(64)
def _features_of(mcpu: str, mattr: str, mtriple: str = "") -> frozenset[str]:
    """The sets of `INSTRUCTION_SETS` that a processor has.

    LLVM has no query for them, but it inlines a function only into a caller with all of its features. So a module calls one
    function for each set; the processor has the sets whose calls are inlined.
    """
    if (llvm := _llvm()) is None:
        return frozenset()
    if mtriple:
        sets = {"aarch64": _ARM_INSTRUCTION_SETS, "arm64": _ARM_INSTRUCTION_SETS, "x86_64": _INSTRUCTION_SETS}
        names = sorted(sets.get(mtriple.split("-")[0], "").split())
    else:
        known = {word[1:] for word in host_processor()[1].split(",")}  # of this kind of processor, by this version of LLVM
        names = sorted(INSTRUCTION_SETS & known)
    own = f'"target-cpu"="{mcpu}"' if mtriple else ""  # which on AArch64 decides more than instruction sets
    lines = ["@seen = external global i32"]
    for n, name in enumerate(names):
        lines.append(
            f'define internal void @f{n}() {own} "target-features"="+{name}" {{ store volatile i32 {n}, ptr @seen ret void }}'
        )
    calls = " ".join(f"call void @f{n}()" for n in range(len(names)))
    lines.append(f'define void @caller() "target-cpu"="{mcpu}" "target-features"="{mattr}" {{ {calls} ret void }}')
    module = llvm.parse_assembly("\n".join(lines))
    machine = described_machine(mtriple)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    called = {f.name for f in module.functions}
    return frozenset(name for n, name in enumerate(names) if f"f{n}" not in called)


@lru_cache(64)
def known_processor(mcpu: str, mtriple: str = "") -> bool:
    """True where LLVM has a processor of that name. LLVM reports an unknown one on the error stream only, and aborts later."""
    if _llvm() is None:
        return True
    try:
        errors = os.dup(2)
    except OSError:  # there is no error stream
        return True
    with tempfile.TemporaryFile() as messages:
        try:
            os.dup2(messages.fileno(), 2)
            described_machine(mtriple, cpu=mcpu)
        finally:
            os.dup2(errors, 2)
            os.close(errors)
        messages.seek(0)
        return b"not a recognized processor" not in messages.read()


def host_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_cores() -> int:
    """The number of cores that this process may use, without a second processor on the same core; half of them if unknown."""
    try:
        siblings = (Path(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") for n in os.sched_getaffinity(0))
        return len({path.read_text() for path in siblings})
    except (OSError, AttributeError):  # not Linux
        return host_cores() // 2


@cache
def host_name() -> str:
    """The name of this processor as the system has it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@cache
def host_caches() -> tuple[int, int, int]:
    """Sizes in bytes of the L1 data, L2 and L3 caches of the first core; common sizes where the system reports none."""
    sizes = {1: 32 * 1024, 2: 1024 * 1024, 3: 32 * 1024 * 1024}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level = int((index / "level").read_text())
            if (index / "type").read_text().strip() != "Instruction":
                text = (index / "size").read_text().strip()
                sizes[level] = int(text[:-1]) * {"K": 1024, "M": 1024**2}[text[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return sizes[1], sizes[2], sizes[3]
