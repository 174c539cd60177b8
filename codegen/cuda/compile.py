"""CUDA C to machine code with NVRTC, through cuda-python; no GPU is needed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedule.intrinsics import WARPGROUP

from ..llvm.emit import CodegenError

INSTALL = "install the extra `cuda` (pip install 'cuda-python>=12.6' nvidia-cuda-nvrtc)"


class CompileError(CodegenError):
    """An error of NVRTC: its message with the line of CUDA C, and the statement of the IR that it came from."""


@dataclass(frozen=True)
class Resources:
    """Resources of a kernel. Registers, and bytes of spills and stack, are of a thread; shared and constant bytes, of a block."""

    name: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    constant: int


@dataclass(frozen=True)
class Cubin:
    """Machine code of a program (a CUBIN), with the resources of its kernels and NVRTC's log."""

    code: bytes
    resources: tuple[Resources, ...]
    log: str


def compile_cubin(text: str, arch: str, *, fast_math: bool = False, lines: dict[int, str] | None = None) -> Cubin:
    """Compile CUDA C for `arch` ("sm_90"). `lines` maps lines to their statements of the IR, for messages.

    Raises CompileError, and ImportError, which says what to install, where NVRTC is missing.
    """
    code, log = _compile(text, arch, "CUBIN", fast_math, lines or {})
    return Cubin(code, _resources(log), log)


def compile_ptx(text: str, arch: str, *, fast_math: bool = False) -> str:
    """The PTX of CUDA C for `arch`, from which NVRTC makes its machine code."""
    code, _ = _compile(text, arch.replace("sm_", "compute_"), "PTX", fast_math, {})
    return code.rstrip(b"\0").decode()


def _compile(text: str, arch: str, kind: str, fast_math: bool, lines: dict[int, str]) -> tuple[bytes, str]:
    """Code of a kind, and NVRTC's log."""
    nvrtc = _nvrtc()
    arch += "a" if WARPGROUP in text and arch[-1].isdigit() else ""  # instructions of this architecture alone
    options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v", "--extra-device-vectorization"]
    options += ["--use_fast_math"] if fast_math else []
    program = _ok(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = _bytes(nvrtc, "ProgramLog", program).rstrip(b"\0\n").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(_explain(log, text, arch, lines, _name(nvrtc, status)))
        return _bytes(nvrtc, kind, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bytes(nvrtc, what: str, program) -> bytes:
    found = bytearray(_ok(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    _ok(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, found))
    return bytes(found)


def available() -> str:
    """The reason why CUDA C cannot be compiled here; empty if it can."""
    try:
        _nvrtc()
    except ImportError as error:
        return str(error)
    return ""


def _nvrtc():
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise ImportError(f"compiling CUDA C needs NVRTC ({error}): {INSTALL}") from error
    return nvrtc


def _name(nvrtc, status) -> str:
    return nvrtc.nvrtcGetErrorString(status)[1].decode()


def _ok(nvrtc, result):
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {_name(nvrtc, status)}")
    return values[0] if values else None


_ERROR = re.compile(r"kernels\.cu\((\d+)\): (?:\w+ )?error\b:?(.*)")


def _explain(log: str, text: str, arch: str, lines: dict[int, str], status: str) -> str:
    """The first errors of a log, each with its line and the statement that it came from."""
    source = text.splitlines()
    parts = [f"NVRTC cannot compile the kernel for {arch} ({status})"]
    for m in list(_ERROR.finditer(log))[:3]:
        number = int(m[1])
        line = source[number - 1].strip() if 0 < number <= len(source) else ""
        parts.append(f"{number:5d} | {line}\n      ^ {m[2].strip()}")
        if number in lines:
            parts.append(f"      from the statement {lines[number]}")
    return "\n".join(parts if len(parts) > 1 else [*parts, log[:2000]])


_FUNCTION = re.compile(
    r"Function properties for '?(\w+)'?[^\n]*\n[^\n]*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r"[^\n]*\n[^\n]*?Used (\d+) registers([^\n]*)"
)


def _resources(log: str) -> tuple[Resources, ...]:
    found = []
    for m in _FUNCTION.finditer(log):
        shared = re.search(r"(\d+) bytes smem", m[6])
        constant = sum(int(n) for n in re.findall(r"(\d+) bytes cmem", m[6]))
        found.append(Resources(m[1], int(m[5]), int(m[3]), int(m[4]), int(m[2]), int(shared[1]) if shared else 0, constant))
    return tuple(sorted(found, key=lambda r: r.name))
