"""Facts about CPUs for targets: the cores, caches and features of this one, and vector registers by LLVM's processor name."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

# Of Linux on x86-64, by which a process asks for tile registers (asm/unistd_64.h, asm/prctl.h): the system call, what is asked,
# and for which part of the state of the processor.
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18

_AVX512 = re.compile(
    r"znver[4-9]|skylake-avx512|cascadelake|cooperlake|icelake|sapphirerapids|graniterapids|emeraldrapids|x86-64-v4"
)
_AVX2 = re.compile(r"znver[1-3]|haswell|broadwell|skylake|alderlake|raptorlake|core-avx2|x86-64-v3")


def vector_bits(mcpu: str, mattr: str, is_host: bool) -> int:
    """Bits of the widest vector register, from the features `mattr` where they are known, else from the name `mcpu`."""
    if is_host or mattr:
        for feature, bits in (("+avx512f", 512), ("+avx2", 256)):
            if feature in mattr.split(","):
                return bits
        return 128
    if _AVX512.match(mcpu):
        return 512
    return 256 if _AVX2.match(mcpu) else 128


def vector_registers(mcpu: str, mattr: str, bits: int) -> int:
    """The number of registers for vectors of `bits` bits: 32 with AVX-512 (for shorter vectors with its VL), and with NEON; 16
    before them."""
    if not mattr:
        return 32 if _AVX512.match(mcpu) else 16
    sufficient = {"+neon", "+avx512vl", "+avx512f" if bits >= 512 else "+avx512vl"}
    return 32 if sufficient & set(mattr.split(",")) else 16


# What processors bring along whose features are not given, of what is looked for, by LLVM's names.
_FEATURES = (
    (r"sapphirerapids|emeraldrapids|graniterapids", ("amx-tile", "amx-int8", "amx-bf16", "avx512vnni", "avx512bf16", "avx512vl")),
    (r"cooperlake|znver[45]", ("avx512vnni", "avx512bf16", "avx512vl")),
    (r"cascadelake|icelake|rocketlake|tigerlake", ("avx512vnni", "avx512vl")),
    (r"alderlake|raptorlake|meteorlake|arrowlake", ("avxvnni",)),
)


@cache
def features(mcpu: str, mattr: str) -> frozenset[str]:
    """LLVM's names of the instruction sets of a processor: those that `mattr` adds, or where it is empty, those of these that are
    known of the name `mcpu`."""
    if mattr:
        return frozenset(f[1:] for f in mattr.split(",") if f.startswith("+"))
    return next((frozenset(found) for name, found in _FEATURES if re.match(name, mcpu)), frozenset())


def fuses_multiply_add(mattr: str, bits: int) -> bool:
    """Whether a processor has fused multiply-adds, from its features `mattr` where they are known, else from the bits of its
    vector registers: x86 has had them since AVX2, others always."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return True
    return "+fma" in mattr.split(",") if mattr else bits >= 256


@cache
def host_processor() -> tuple[str, str]:
    """LLVM's name of this processor and its feature string, without tile registers (AMX) where this process may not use them."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    if "+amx-tile" in features.split(",") and not _tiles_permitted():
        features = features.replace("+amx-", "-amx-")
    return llvm.get_host_cpu_name(), features


def _tiles_permitted() -> bool:
    """Whether the operating system lets this process use tile registers; Linux wants to be asked."""
    if sys.platform != "linux":
        return True
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, ctypes.c_long(REQUEST_PERMISSION), ctypes.c_long(TILE_DATA)) == 0


@cache
def known_processor(mcpu: str) -> bool:
    """Whether LLVM has a processor of that name. LLVM reports an unknown one on the error stream only, and aborts later."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    try:
        errors = os.dup(2)
    except OSError:  # there is no error stream
        return True
    with tempfile.TemporaryFile() as messages:
        try:
            os.dup2(messages.fileno(), 2)
            llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(cpu=mcpu)
        finally:
            os.dup2(errors, 2)
            os.close(errors)
        messages.seek(0)
        return b"not a recognized processor" not in messages.read()


def host_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
