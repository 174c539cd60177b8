"""Targets: the processor that code is generated for, detected or described by a string or keywords."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from tir.nearest import nearest_name

from .backend import BACKENDS, backend, integer_option
from .processor import host_caches, host_cores, processor_features, vector_registers

if TYPE_CHECKING:
    from schedule.machine import Machine

M = TypeVar("M", bound="Machine")


@dataclass(frozen=True, init=False)
class Target:
    """The target of code generation.

    Target("llvm"), Target("llvm -num-cores 1 -mcpu znver4"), Target("llvm", num_cores=1), Target("cuda", arch="sm_90"), and, as
    TVM writes them, Target({"kind": "llvm", "num-cores": 1}).
    Defaults are the host's. `num_cores` is the number of threads of a kernel. `mcpu` is LLVM's name of the processor, by default
    the environment variable TIR_MCPU, and `mattr` its features, as LLVM writes them. `vector_bits` is the widest vector register;
    `l1`, `l2`, `l3` are cache sizes in bytes (data cache of a core, of a core, shared). Those of another processor than the
    host's are by default as `schedule.machines` describes them. With `move_threads` (1 or 0), threads of parallel loops on the
    core of their caller leave it; their affinity is restored. `mtriple` is LLVM's name of another kind of machine, as
    aarch64-linux-gnu, with the processor `mcpu`: its kernels are exported, or run by workers on such machines. `memory` is what
    `tir.calibrate` measured: cycles of a cache line from L2, L3 and memory, of lines that follow each other and of lines in the
    rows of a matrix, MiB that L3 holds, rows to read at once, and cycles of a parallel loop of threads that are awake and asleep,
    as 2,8,23/2,23,64+16x8~5200,435000. Empty, it is the description of `mcpu`.
    For cuda: `arch`, and `fast_math` (1 or 0), which trades accuracy of division and math functions, and subnormal numbers, for
    speed. `sms` is the number of multiprocessors, `clock` their MHz, `l2` the bytes of the second-level cache and `memory` GB/s,
    by default those of a product of that `arch`; `backend("cuda").here()` has those of the GPU here.
    Raises ValueError for an unknown option or value.
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
    move_threads: bool
    mtriple: str
    memory: str
    sms: int
    clock: int

    def __init__(self, spec: str | Mapping[str, Any] | Target = "llvm", **options) -> None:
        if isinstance(spec, Target):
            given = {f.name: getattr(spec, f.name) for f in fields(Target)}
        else:
            given = _parse(spec)
        for key, value in options.items():
            given[_option(key)] = value
        for key, value in _complete(given).items():
            object.__setattr__(self, key, value)

    def __str__(self) -> str:
        return backend(self).spelling(self)

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` bits that fill a vector register."""
        return max(1, self.vector_bits // bits)

    @property
    def registers(self) -> int:
        """The number of vector registers."""
        return vector_registers(self.features, self.vector_bits)

    @property
    def features(self) -> frozenset[str]:
        """LLVM's names of the processor's features; for another processor than the host's, its instruction sets alone."""
        return processor_features(self.mcpu, self.mattr, self.mtriple) if self.mcpu else frozenset()

    @property
    def machine(self) -> Machine:
        """The machine model, which templates and cost models read."""
        return backend(self).machine(self)

    def machine_as(self, model: type[M]) -> M:
        """The machine model, an instance of `model` as the caller knows from the kind of the target."""
        machine = self.machine
        assert isinstance(machine, model)
        return machine


_OPTIONS = (
    "num_cores", "mcpu", "mattr", "vector_bits", "l1", "l2", "l3", "memory", "arch", "fast_math", "move_threads", "mtriple",
    "sms", "clock", "kind",
)  # fmt: skip


def _option(name: str) -> str:
    key = name.lstrip("-").replace("-", "_")
    if key not in _OPTIONS:
        near = nearest_name(key, _OPTIONS)
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(_OPTIONS)}"
        raise ValueError(f"target option {name!r} is unknown{hint}")
    return key


def _parse(spec: str | Mapping[str, Any]) -> dict:
    if isinstance(spec, Mapping):
        if spec.get("kind") not in BACKENDS:
            raise ValueError(f"target {spec!r}: its kind must be one of {', '.join(BACKENDS)}")
        return {_option(key): value for key, value in spec.items()}
    if not isinstance(spec, str):
        raise ValueError(f"a target is a string such as 'llvm -num-cores 2', got {spec!r}")
    try:
        words = shlex.split(spec)
    except ValueError as error:
        raise ValueError(f"target {spec!r}: {error}") from None
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


def _complete(given: dict) -> dict:
    """All options of a target: those common to all kinds, and those of its backend."""
    for key in ("mcpu", "mattr", "arch", "mtriple"):
        if not isinstance(value := given.get(key) or "", str):
            raise ValueError(f"target option {key} must be a string, got {value!r}")
        if not re.fullmatch(r"[\w.,+-]*", value, re.ASCII):
            raise ValueError(f"target option {key} has letters, digits and any of `.,+-_`, got {value!r}")
    for key in ("fast_math", "move_threads"):
        if not isinstance(value := given.get(key), (str, int, type(None))):
            raise ValueError(f"target option {key} must be 0 or 1, got {value!r}")
    found = backend(given["kind"])
    result: dict[str, Any] = {"kind": found.kind, "mcpu": "", "mattr": "", "vector_bits": 128, "arch": ""}
    result |= {"fast_math": False, "move_threads": False, "mtriple": "", "memory": "", "sms": 0, "clock": 0}
    caches = host_caches()
    for key, default in (("num_cores", host_cores()), ("l1", caches[0]), ("l2", caches[1]), ("l3", caches[2])):
        result[key] = integer_option(key, given.get(key, default))
        if result[key] < 1:
            raise ValueError(f"target option {key} must be at least 1, got {result[key]}")
    return result | found.options(given)
