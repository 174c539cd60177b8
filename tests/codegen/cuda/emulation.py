"""Emitted CUDA C run on the CPU: compiled as C++ against `emulation.h`, many programs in one call of the compiler, and linked with
the machine that runs it, `emulation.cpp`."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from codegen.cuda.emit import CudaSource, emit
from codegen.cuda.expressions import STORAGE
from codegen.cuda.launch import launches
from codegen.cuda.prelude import FUNCTIONS
from codegen.cuda.program import DeviceFunction, Program
from tir import dtypes
from tir.arith.enumeration import evaluate
from tir.ir import Buffer

HEADER, MACHINE = (Path(__file__).with_name(f"emulation.{ending}") for ending in ("h", "cpp"))
COMPILED = "TIR_EMULATION"  # names the folder of both once they are compiled, for child processes
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing"]
UNDEFINED = "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,bounds,float-cast-overflow"  # traps of emulation.cpp
compiler = shutil.which("g++")

_HEAD = re.compile(r'extern "C" __global__ void __launch_bounds__\(\d+(?:, \d+)?\) (\w+)\((.*)\) \{')
_POINTER = re.compile(r"(const )?([a-z ]+)\* __restrict__ (\w+)")
_STATIC = re.compile(r"__shared__ __align__\(\d+\) ([a-z ]+) (\w+)\[(\d+)\];")
_DYNAMIC = re.compile(r"([a-z ]+)\* const (\w+) = \(\1\*\)\(dynamic_shared \+ \d+\);  // (\d+)")
_GROUPED = re.compile(r"wgmma_m64n(\d+)k16_(b?)f16_f\d+<([^>]*)>\((.*)\);")


class EmulationError(AssertionError):
    """A trap of the emulation: a race, a place outside of memory, a barrier that not all threads reach."""


class Runnable:
    """A program that runs on the CPU: call it with numpy arrays, and sizes as ints, in the order of the function's parameters."""

    def __init__(self, program: Program, source: CudaSource):
        self.program, self.source = program, source

    def __call__(self, *args, seed: int = 0, blocks: Sequence[int] = ()) -> None:
        """Run all blocks, or those of these numbers on the arrays themselves, which may be larger than memory."""
        func = self.program.func
        sizes = {p.name: int(a) for p, a in zip(func.params, args, strict=True) if not isinstance(p, Buffer)}
        arrays = {p.name: a for p, a in zip(func.params, args, strict=True) if isinstance(p, Buffer)}
        copies = dict(arrays) if blocks else {name: _aligned(a) for name, a in arrays.items()}
        for b in self.program.temporaries:
            shape, dtype = [int(evaluate(d, sizes)) for d in b.shape], dtypes.storage(b.dtype)
            garbage = np.full(int(np.prod(shape)) * dtype.itemsize, 0xFF, np.uint8)
            copies[b.name] = _aligned(garbage.view(dtype).reshape(shape))
        for n, (number, grid, scalars) in enumerate(launches(self.program, sizes)):
            kernel = self.program.kernels[number]
            self.launch(kernel, grid, copies, scalars, seed + n, blocks)
        for name, a in () if blocks else arrays.items():
            a[...] = copies[name]

    def launch(self, kernel: DeviceFunction, grid, arrays, scalars, seed: int, blocks: Sequence[int]) -> None:
        """Run blocks of a kernel; raises where one does what it must not."""
        raise NotImplementedError


class Emulated(Runnable):
    """A program as C++."""

    def __init__(self, program: Program, source: CudaSource, library: ctypes.CDLL, number: int):
        super().__init__(program, source)
        self.library, self.number = library, number

    def launch(self, kernel: DeviceFunction, grid, arrays, scalars, seed: int, blocks: Sequence[int]) -> None:
        self.library.choose_blocks((ctypes.c_long * len(blocks))(*blocks), ctypes.c_long(len(blocks)))
        values = (ctypes.c_longlong * (2 * len(kernel.params)))()
        for i, p in enumerate(kernel.params):
            if isinstance(p, Buffer):
                values[2 * i], values[2 * i + 1] = arrays[p.name].ctypes.data, arrays[p.name].size
            else:
                values[2 * i] = scalars[p.name]
        entry = getattr(self.library, f"launch_{self.number}_{kernel.name}")
        entry.restype = ctypes.c_char_p
        entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong]
        result = entry(values, (ctypes.c_int * 3)(*grid), (ctypes.c_int * 3)(*kernel.block), seed)
        if result:
            raise EmulationError(f"{result.decode()}\n{self.source.text}")


def _aligned(a: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 16 bytes, where numpy happens not to give one."""
    raw = np.empty(a.nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    result = raw[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    result[...] = a
    return result


def emulate(*programs: Program) -> list[Emulated]:
    """The programs, compiled together."""
    sources = [emit(p) for p in programs]
    return _compile([(p, s, s.kernels) for p, s in zip(programs, sources, strict=True)])


def emulate_texts(program: Program, *kernels: str) -> list[Emulated]:
    """A program with other CUDA C than its own, to see that mistakes are caught."""
    return _compile([(program, emit(program), k) for k in kernels])


def library(path: Path, *programs: Program) -> None:
    """A library of kernels for `fake_driver.cpp`, by their names: what launches each, and the bytes of its parameters (below zero
    those of scalars, else of the elements of a buffer)."""
    sources = [emit(p) for p in programs]
    text = _text([(p, s, s.kernels) for p, s in zip(programs, sources, strict=True)])
    for n, program in enumerate(programs):
        for k in program.kernels:
            sizes = [dtypes.nbytes(p.dtype) * (1 if isinstance(p, Buffer) else -1) for p in k.params]
            text += f'extern "C" const int params_{k.name}[] = {{{", ".join(map(str, [len(sizes), *sizes]))}}};\n'
            text += f'extern "C" const char* launch_{k.name}(long long* v, int* grid, int* block, unsigned long long seed)'
            text += f" {{ return program_{n}::launch_{n}_{k.name}(v, grid, block, seed); }}\n"
    _build(text, path)


def _compile(parts: list[tuple[Program, CudaSource, str]]) -> list[Emulated]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.so")
        _build(_text(parts), path)
        loaded = ctypes.CDLL(str(path))
    return [Emulated(p, s, loaded, n) for n, (p, s, _) in enumerate(parts)]


def _build(text: str, path: Path) -> None:
    source = path.with_suffix(".cpp")
    source.write_text(text)
    compiled = machine()
    _compiled(source, f"{compiled}/emulation.o", UNDEFINED, "-shared", "-Wl,-Bsymbolic", "-I", compiled, "-o", str(path))


def _compiled(source: Path, *options: str) -> None:
    done = subprocess.run([str(compiler), *FLAGS, *options, str(source)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{done.stderr[:3000]}\n{source.read_text()}")


def machine() -> str:
    """A folder with header and machine, compiled once for all programs of this process and of its children: that takes longer than
    most programs."""
    if COMPILED not in os.environ:
        folder = tempfile.mkdtemp(prefix="emulation")
        atexit.register(shutil.rmtree, folder)
        header = Path(folder, HEADER.name)
        header.write_text(
            HEADER.read_text() + "\n".join(code for code in FUNCTIONS.values() if not re.search("asm|__cvta", code))
        )
        _compiled(header, UNDEFINED, "-x", "c++-header", "-o", f"{header}.gch")
        _compiled(MACHINE, "-c", "-I", folder, "-o", f"{folder}/emulation.o")
        os.environ[COMPILED] = folder
    return os.environ[COMPILED]


def _text(parts: list[tuple[Program, CudaSource, str]]) -> str:
    """C++ of programs, each in a namespace."""
    text = [f'#include "{HEADER.name}"']
    for n, (program, _, kernels) in enumerate(parts):
        text.append(f"namespace program_{n} {{\n{_as_cpp(kernels)}\n{''.join(_launcher(k, n) for k in program.kernels)}}}\n")
    return "\n".join(text)


def _as_cpp(kernels: str) -> str:
    """CUDA C as C++: pointers and shared arrays become objects that watch their accesses."""

    def head(m: re.Match) -> str:
        params = _POINTER.sub(lambda p: f"Global<{p[1] or ''}{p[2]}> {p[3]}", m[2])
        return f'static void {m[1]}({params}) {{ static const char* const kernel_name = "{m[1]}";'

    def shared(m: re.Match) -> str:
        return f'static Shared<{m[1].strip()}> {m[2]}({m[3]}, "{m[2]}", kernel_name);'

    def product(m: re.Match) -> str:
        return f"wgmma<{m[1]}, {'true' if m[2] else 'false'}, {m[3]}>({m[4]}, __LINE__);"

    text = _GROUPED.sub(product, _HEAD.sub(head, kernels))
    text = _DYNAMIC.sub(shared, _STATIC.sub(shared, text))
    return "\n".join(x for x in text.splitlines() if not x.strip().startswith(("extern __shared__", "#pragma")))


def _launcher(k: DeviceFunction, number: int) -> str:
    fields, calls = [], []
    for i, p in enumerate(k.params):
        if isinstance(p, Buffer):
            const = "" if p.name in k.written else "const "
            typed = f"Global<{const}{STORAGE[p.dtype]}> a{i}"
            fields.append(f'{typed}((void*)v[{2 * i}], v[{2 * i + 1}], "{p.name}", "{k.name}");')
        else:
            fields.append(f"auto a{i} = ({STORAGE[p.dtype]})v[{2 * i}];")
        calls.append(f"a{i}")
    names = ", ".join(calls)
    body = f"auto call = [&]() {{ {k.name}({names}); }};"
    return (
        f'extern "C" const char* launch_{number}_{k.name}(long long* v, int* grid, int* block, unsigned long long seed) {{\n'
        f"  {' '.join(fields)}\n  {body}\n"
        f"  return run_grid([](void* f) {{ (*(decltype(call)*)f)(); }}, &call, grid, block, seed);\n}}\n"
    )
