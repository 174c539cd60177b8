"""Provenance of timings: the processor, the whole target, and the versions of the compiler and its libraries."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from codegen.processor import host_name

if TYPE_CHECKING:
    from codegen import Target


@dataclass(frozen=True, slots=True)
class Provenance:
    """The provenance of a timing: the `fingerprint` of target and device, the device's name, and the versions."""

    fingerprint: str
    device: str
    versions: dict[str, str]

    @classmethod
    def here(cls, target: str | Target) -> Provenance:
        """The provenance of timings taken in this process."""
        return cls(fingerprint(target), device(target), versions())


LATER = ("mtriple", "sms", "clock")


def fingerprint(target: str | Target, cpu: str | None = None) -> str:
    """A hash of a target's options and its device, the processor (default: this one) or GPU: they decide what is fastest."""
    from codegen import Target, backend
    from codegen.cache import data_key

    target = Target(target)
    found = backend(target)
    if found.device is not None:  # the processor that launches the kernels does not matter
        described = {"kind": found.kind, **{key: getattr(target, key) for key in found.described}, "gpu": found.device()}
    else:
        # Measured memory changes no timing; the options `LATER` are missing in older records, and of GPUs.
        named = {k: v for k, v in asdict(target).items() if k != "memory" and (k not in LATER or v)}
        described = {**named, "cpu": host_name() if cpu is None else cpu}
    return data_key(described)[:20]


def device(target: str | Target) -> str:
    """The name of the device of this machine for the target: the GPU, if any, for a GPU target, else the processor."""
    from codegen import Target, backend

    found = backend(Target(target)).device
    return (found() if found is not None else "") or host_name()


def versions() -> dict[str, str]:
    """The versions that a timing depends on: of tir, python, numpy, llvmlite and LLVM."""
    import numpy

    from tir import __version__

    found = {"tir": __version__, "python": platform.python_version(), "numpy": numpy.__version__}
    with suppress(ImportError):
        import llvmlite
        import llvmlite.binding as llvm

        found |= {"llvmlite": llvmlite.__version__, "llvm": ".".join(map(str, llvm.llvm_version_info))}
    return found


def versions_text() -> str:
    """The versions as text."""
    return ", ".join(f"{name} {version}" for name, version in versions().items())


def same_compiler(a: dict[str, str], b: dict[str, str]) -> bool:
    """True if two sets of versions make the same machine code of a trace."""
    return all(a.get(name) == b.get(name) for name in ("tir", "llvmlite", "llvm"))
