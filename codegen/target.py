"""Targets: the processor that code is generated for, detected or described by a string or keywords."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tir.nearest import nearest

from .backend import BACKENDS, backend

if TYPE_CHECKING:
    from schedule.machine import Machine


@dataclass(frozen=True, init=False)
class Target:
    """What code is generated for.

    Target("llvm"), Target("llvm -num-cores 1 -mcpu znver4"), Target("llvm", num_cores=1), Target("cuda", arch="sm_90").
    What is not given is the host's: `num_cores` (threads a kernel uses), `mcpu` and `mattr` (LLVM's names of the processor and of
    its features), `vector_bits` (widest vector register), cache sizes `l1`, `l2`, `l3` in bytes (data cache of a core, of a core,
    shared). For cuda: `arch`, and `fast_math` (1 or 0), which trades accuracy of division and math functions, and
    subnormal numbers, for speed. Raises ValueError for what it does not understand.
    """

    kind: str
    num_cores: int
    mcpu: str
    mattr: str
    vector_bits: int
    l1: int
    l2: int
    l3: int
    arch: str
    fast_math: bool

    def __init__(self, spec: str | Target = "llvm", **options) -> None:
        if isinstance(spec, Target):
            given = {f.name: getattr(spec, f.name) for f in fields(Target)}
        else:
            given = _parse(spec)
        for key, value in options.items():
            given[_option(key)] = value
        for key, value in _complete(given).items():
            object.__setattr__(self, key, value)

    def __str__(self) -> str:
        return backend(self).spelled(self)

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits fill a vector register."""
        return max(1, self.vector_bits // bits)

    @property
    def registers(self) -> int:
        """The number of vector registers: 32 with AVX-512 (for shorter vectors with its VL), and with NEON; 16 before them."""
        if not self.mattr:
            return 32 if _AVX512.match(self.mcpu) else 16
        wanted = {"+neon", "+avx512vl", "+avx512f" if self.vector_bits >= 512 else "+avx512vl"}
        return 32 if wanted & set(self.mattr.split(",")) else 16

    @property
    def machine(self) -> Machine:
        """What the machine is, as templates and cost models see it."""
        return backend(self).machine(self)


_OPTIONS = ("num_cores", "mcpu", "mattr", "vector_bits", "l1", "l2", "l3", "arch", "fast_math", "kind")


def _option(name: str) -> str:
    key = name.lstrip("-").replace("-", "_")
    if key not in _OPTIONS:
        near = nearest(key, _OPTIONS)
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(_OPTIONS)}"
        raise ValueError(f"target option {name!r} is unknown{hint}")
    return key


def _parse(spec: str) -> dict:
    if not isinstance(spec, str):
        raise ValueError(f"a target is a string such as 'llvm -num-cores 2', got {spec!r}")
    words = shlex.split(spec)
    if not words or words[0] not in BACKENDS:
        raise ValueError(f"target {spec!r}: the first word must be one of {', '.join(BACKENDS)}")
    given: dict = {"kind": words[0]}
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        if not re.match(r"--?[a-z]", word):
            raise ValueError(f"target {spec!r}: expected an option such as -num-cores, got {word!r}")
        name, _, value = word.partition("=")
        if not value:
            if not rest:
                raise ValueError(f"target {spec!r}: option {name} needs a value")
            value = rest.pop(0)
        given[_option(name)] = value
    return given


def integer(key: str, value: Any) -> int:
    try:
        if isinstance(value, (bool, float)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"target option {key} must be an integer, got {value!r}") from None


def _complete(given: dict) -> dict:
    """All options of a target: what is the same for all kinds, and what its backend makes of the rest."""
    for key in ("mcpu", "mattr", "arch"):
        if not isinstance(given.get(key, ""), (str, type(None))):
            raise ValueError(f"target option {key} must be a string, got {given[key]!r}")
    found = backend(given["kind"])
    result = {"kind": found.kind, "mcpu": "", "mattr": "", "vector_bits": 128, "arch": "", "fast_math": False}
    caches = host_caches()
    for key, default in (("num_cores", host_cores()), ("l1", caches[0]), ("l2", caches[1]), ("l3", caches[2])):
        result[key] = integer(key, given.get(key, default))
        if result[key] < 1:
            raise ValueError(f"target option {key} must be at least 1, got {result[key]}")
    return result | found.options(given)


_AVX512 = re.compile(
    r"znver[4-9]|skylake-avx512|cascadelake|cooperlake|icelake|sapphirerapids|graniterapids|emeraldrapids|x86-64-v4"
)
_AVX2 = re.compile(r"znver[1-3]|haswell|broadwell|skylake|alderlake|raptorlake|core-avx2|x86-64-v3")


def vector_bits(mcpu: str, mattr: str, is_host: bool) -> int:
    if is_host or mattr:
        for feature, bits in (("+avx512f", 512), ("+avx2", 256)):
            if feature in mattr.split(","):
                return bits
        return 128
    if _AVX512.match(mcpu):
        return 512
    return 256 if _AVX2.match(mcpu) else 128


@cache
def host_processor() -> tuple[str, str]:
    """LLVM's name of this processor and its feature string."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def known_processor(mcpu: str) -> bool:
    """Whether LLVM has a processor of that name. It only tells on the error stream, and for an unknown one aborts later."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    try:
        errors = os.dup(2)
    except OSError:  # there is no error stream
        return True
    with tempfile.TemporaryFile() as said:
        try:
            os.dup2(said.fileno(), 2)
            llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(cpu=mcpu)
        finally:
            os.dup2(errors, 2)
            os.close(errors)
        said.seek(0)
        return b"not a recognized processor" not in said.read()


def host_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def host_caches() -> tuple[int, int, int]:
    """Sizes in bytes of the L1 data, L2 and L3 caches seen by the first core; common sizes where the system does not tell."""
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
