"""Kernels for AArch64 on this machine: exported, linked with a program that feeds them, and run by qemu-user."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tir
from codegen import Kernel

needs_emulator = pytest.mark.skipif(
    not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"), reason="needs qemu-user, gcc"
)

MAIN = """
#include <stdio.h>
#include "kernel.h"
{arrays}
int main(void) {{
    {read}
    if (kernel({names})) return 1;
    {write}
    return 0;
}}
"""


def arm(mcpu: str, cores: int = 1) -> tir.Target:
    """An AArch64 processor by its name, with caches of common sizes."""
    return tir.Target(f"llvm -num-cores {cores} -mcpu {mcpu} -mtriple aarch64-linux-gnu -l1 65536 -l2 1048576 -l3 33554432")


def emulate(kernel: Kernel, *arrays: np.ndarray) -> None:
    """Run a kernel of constant shapes on arrays, which are written in place."""
    names = [f"a{n}" for n in range(len(arrays))]
    text = MAIN.format(
        arrays="\n".join(
            f"static char {name}[{a.nbytes}] __attribute__((aligned(64)));" for name, a in zip(names, arrays, strict=True)
        ),
        read=" ".join(f"if (!fread({name}, sizeof {name}, 1, stdin)) return 2;" for name in names),
        names=", ".join(f"(void *){name}" for name in names),
        write=" ".join(f"fwrite({name}, sizeof {name}, 1, stdout);" for name in names),
    )
    with tempfile.TemporaryDirectory() as folder:
        kernel.export(Path(folder) / "kernel.o")
        (Path(folder) / "main.c").write_text(text)
        command = ["aarch64-linux-gnu-gcc", "-static", "main.c", "kernel.o", "-lm", "-o", "main"]
        subprocess.run(command, cwd=folder, check=True)
        given = b"".join(a.tobytes() for a in arrays)
        made = subprocess.run(
            ["qemu-aarch64", "-cpu", "max", "main"], input=given, cwd=folder, capture_output=True, check=True
        ).stdout
    for a in arrays:
        a[...] = np.frombuffer(made[: a.nbytes], a.dtype).reshape(a.shape)
        made = made[a.nbytes :]
