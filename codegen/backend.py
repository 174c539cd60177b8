"""Differences between kinds of targets: one `Backend` record a kind. No other code branches on the kind.

A new kind needs a module, a record here, and a record in `search/backends.py` for the search.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tir.arrays import host_array, need_dtype
from tir.ir import PrimFunc

from . import machine_record
from .passes import CPU_PASSES, GPU_PASSES, Pass
from .processor import (
    MCPU,
    default_processor,
    foreign_triple,
    host_processor,
    known_processor,
    missing_features,
    processor_features,
    vector_bits,
)

if TYPE_CHECKING:
    from schedule.machine import Machine

    from .cache import ObjectCache
    from .target import Target


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported at its first call, so that a process loads only the kinds that it uses."""
    return lambda *arguments: getattr(import_module(module), name)(*arguments)


def _host_array_type(a: Any) -> tuple[tuple[int, ...], str] | None:
    found = host_array(a)
    return None if found is None else (found.array.shape, need_dtype(found))


def _cpu_machine(target: Target) -> Machine:
    from schedule.machine import CPU, Memory

    return CPU(
        target.num_cores, target.vector_bits, target.registers, target.l1, target.l2, target.l3, target.mcpu,
        target.features, Memory.parse(target.memory) if target.memory else None,
    )  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """One kind of target. Kernels run on the processor of the host, or on a `device` of its own."""

    kind: str
    build: Callable[[PrimFunc, Target, ObjectCache | None], Any]  # a kernel of a scheduled function
    passes: tuple[Pass, ...] = ()  # that lower a function, in order
    texts: Mapping[str, Callable[[PrimFunc, Target], str]] = field(default_factory=dict)  # stages of `dump` after the passes
    shown: str | None = None  # the stage that `dump` shows by default; None: the script after each pass
    options: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda given: {}  # options of the kind, completed from given ones
    spelling: Callable[[Target], str] = lambda target: target.kind  # the target as a string
    machine: Callable[[Target], Machine] = _cpu_machine  # the machine model that templates and cost models read
    device: Callable[[], str] | None = None  # the name of the device here, empty without one
    described: tuple[str, ...] = ()  # options that decide how fast kernels are on a device
    here: Callable[[], dict[str, Any]] = dict  # options that describe the device here
    missing: Callable[[Target], str] = lambda target: ""  # why no kernel for the target can run here; empty if one can
    array_type: Callable[[Any], tuple[tuple[int, ...], str] | None] = _host_array_type  # shape and dtype; None for no array
    builder: str = "search.measure.builder"  # the module by which worker processes make kernels
    networks: str = "graph.compilation"  # the module by which networks become models: its passes `final`, and `assembled`

    def pass_names(self) -> list[str]:
        """The names of the passes in order; the second run of one is called `name_2`."""
        names = [p.__name__ for p in self.passes]
        counts = [names[:n].count(name) for n, name in enumerate(names)]
        return [name if n == 0 else f"{name}_{n + 1}" for name, n in zip(names, counts, strict=True)]


def integer_option(key: str, value: Any) -> int:
    """The value of a target option as an int. Raises ValueError for any other value."""
    try:
        if isinstance(value, (bool, float)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"target option {key} must be an integer, got {value!r}") from None


def switch_option(key: str, value: Any) -> bool:
    """The value of a target option that is 0 or 1. Raises ValueError where it is neither."""
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if text not in ("0", "1"):
        raise ValueError(f"target option {key} must be 0 or 1, got {value!r}")
    return text == "1"


def backend(target: str | Target) -> Backend:
    """The backend of a target, its string or its kind. Raises ValueError for an unknown kind."""
    kind = target.partition(" ")[0] if isinstance(target, str) else target.kind
    if kind not in BACKENDS:
        raise ValueError(f"target kind {kind!r} is unknown; known are {', '.join(BACKENDS)}")
    return BACKENDS[kind]


DESCRIBED = "described"  # the target option `memory` of a machine that is as its processor is described


def _refuse(given: Mapping[str, Any], **others: str) -> None:
    """Refuse options of another kind of target; the kind of each, with a hint."""
    for key, kind in others.items():
        if given.get(key):
            raise ValueError(f"target option {key} is for {kind}")


# --- llvm ----------------------------------------------------------------------------------------------------------------


def _llvm_options(given: Mapping[str, Any]) -> dict[str, Any]:
    _refuse(given, fast_math="cuda", arch="cuda; use mcpu with llvm", sms="cuda", clock="cuda")
    host_cpu, host_features = host_processor()
    mtriple = foreign_triple(given.get("mtriple") or "")
    mcpu = given.get("mcpu") or ("generic" if mtriple else default_processor())
    if mcpu != host_cpu and not known_processor(mcpu, mtriple):
        source = "target option mcpu" if given.get("mcpu") else f"environment variable {MCPU}"
        raise ValueError(
            f"{source}: LLVM knows no processor {mcpu!r} of this kind; its names are those of "
            f"`clang --print-supported-cpus`, this processor is {host_cpu}, and -mtriple gives another architecture"
        )
    # Another processor than the host's brings its own features; LLVM derives them from its name.
    mattr = given.get("mattr")
    if wrong := next((f for f in (mattr or "").split(",") if f[:1] not in ("", "+", "-") or f in ("+", "-")), None):
        raise ValueError(f"target option mattr: {wrong!r} is not a feature; write +NAME or -NAME, such as '+avx2,-avx512f'")
    if mattr is None:
        mattr = host_features if mcpu == host_cpu and not mtriple else ""
    bits = given.get("vector_bits")
    bits = vector_bits(processor_features(mcpu, mattr, mtriple)) if bits is None else integer_option("vector_bits", bits)
    if bits not in (64, 128, 256, 512, 1024, 2048):
        raise ValueError(f"target option vector_bits must be a power of two from 64 to 2048, got {bits}")
    move = switch_option("move_threads", given.get("move_threads", True))
    memory = given.get("memory")
    if memory is None:
        host = (mcpu, mattr, mtriple) == (*host_processor(), "") and {"vector_bits", "l1", "l2", "l3"}.isdisjoint(given)
        memory = machine_record.recorded() if host else ""
    found = {"mcpu": mcpu, "mattr": mattr, "vector_bits": bits, "move_threads": move, "mtriple": mtriple}
    return {**_caches(mcpu, mtriple, given), **found, "memory": _memory(memory)}


def _caches(mcpu: str, mtriple: str, given: Mapping[str, Any]) -> dict[str, int]:
    """The caches of another processor than the host's, without those that are given; the host's for one that is not described."""
    from schedule.machines import described

    other = None if (mcpu, mtriple) == (host_processor()[0], "") else described(mcpu)
    sizes = () if other is None else zip(("l1", "l2", "l3"), other.caches, strict=True)
    return {name: size for name, size in sizes if given.get(name) is None}


def _memory(text: Any) -> str:
    """The option `memory` in one spelling, empty for a described one. ValueError for anything else."""
    from schedule.machine import Memory

    if text in ("", DESCRIBED):
        return ""
    try:
        return str(Memory.parse(text))
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            "target option memory takes cycles of a line from L2, L3 and memory, in order and in rows, MiB of L3, "
            f"streams, and a parallel loop awake and asleep, as 2,8,23/2,23,64+16x8~5200,435000; got {text!r}"
        ) from None


def _llvm_spelling(target: Target) -> str:
    text = f"llvm -num-cores {target.num_cores} -mcpu {target.mcpu}"
    text += f" -mtriple {target.mtriple}" if target.mtriple else ""
    usual = type(target)("llvm", num_cores=target.num_cores, mcpu=target.mcpu, mtriple=target.mtriple)
    if target.mattr != usual.mattr:
        text += f" -mattr {shlex.quote(target.mattr)}"
    for key in ("vector_bits", "l1", "l2", "l3"):
        if getattr(target, key) != getattr(usual, key):
            text += f" -{key.replace('_', '-')} {getattr(target, key)}"
    if target.memory or usual.memory:
        text += f" -memory {target.memory or DESCRIBED}"
    return text if target.move_threads else f"{text} -move-threads 0"


# --- cuda ----------------------------------------------------------------------------------------------------------------


def _cuda_options(given: Mapping[str, Any]) -> dict[str, Any]:
    _refuse(given, **dict.fromkeys(("mcpu", "mattr", "move_threads", "mtriple"), "llvm; use arch with cuda"))
    arch = given.get("arch") or "sm_90"
    if not re.fullmatch(r"sm_\d+[a-z]?", arch):
        raise ValueError(f"target option arch must look like sm_90, got {arch!r}")
    found: dict[str, Any] = {"arch": arch, "fast_math": switch_option("fast_math", given.get("fast_math", False))}
    for key, usual in _of_product(arch).items():
        value = integer_option(key, usual if given.get(key) in (None, "") else given[key])
        if value < 1:
            raise ValueError(f"target option {key} must be at least 1, got {value}")
        found[key] = str(value) if key == "memory" else value
    return found


def _of_product(arch: str) -> dict[str, int]:
    """The options of a product of an architecture."""
    from schedule.machine import product

    found = product(arch)
    return {"sms": found.sms, "clock": found.clock, "l2": found.l2_mib << 20, "memory": found.memory}


def _cuda_spelling(target: Target) -> str:
    text = f"cuda -arch {target.arch}{' -fast-math 1' if target.fast_math else ''}"
    own = {
        key: getattr(target, key) for key, usual in _of_product(target.arch).items() if str(getattr(target, key)) != str(usual)
    }
    return " ".join([text, *(f"-{key} {value}" for key, value in own.items())])


def _cuda_machine(target: Target) -> Machine:
    from schedule.machine import GPU, bytes_a_clock

    return replace(GPU.of(target.arch), sms=target.sms, l2=target.l2, memory=bytes_a_clock(int(target.memory), target.clock))


BACKENDS: dict[str, Backend] = {
    b.kind: b
    for b in (
        Backend(
            "llvm",
            build=_later("codegen.llvm.build", "build"),
            passes=CPU_PASSES,
            texts={"llvm_ir": _later("codegen.llvm.build", "llvm_ir"), "asm": _later("codegen.llvm.build", "asm")},
            options=_llvm_options,
            spelling=_llvm_spelling,
            missing=lambda target: missing_features(target.mcpu, target.mattr, target.mtriple),
        ),
        Backend(
            "cuda",
            build=_later("codegen.cuda", "build"),
            passes=GPU_PASSES,
            texts={"cuda": _later("codegen.cuda", "cuda_source")},
            shown="cuda",
            options=_cuda_options,
            spelling=_cuda_spelling,
            machine=_cuda_machine,
            device=_later("codegen.cuda.driver", "device_name"),
            described=("arch", "fast_math"),
            here=_later("codegen.cuda.driver", "here"),
            missing=_later("codegen.cuda.driver", "missing"),
            array_type=_later("codegen.cuda.driver", "array_type"),
            builder="search.measure.gpu_builder",
            networks="graph.device",
        ),
    )
}
