"""Tests in a child process that finds `fake_driver.cpp` in place of NVIDIA's driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.cuda.compile import available
from codegen.cuda.program import Program
from tests.codegen.cuda.emulation import compiler, library

CHILD = "FAKE_CUDA_KERNELS"  # names the library of kernels, in the child
inside = pytest.mark.skipif(CHILD not in os.environ, reason="runs in a child process beside the fake driver")
outside = pytest.mark.skipif(
    CHILD in os.environ or compiler is None or bool(available()), reason=available() or "needs a C++ compiler"
)


def run_inside(file: str, folder: Path, passed: int, *programs: Program) -> None:
    """Run the tests of a file that are marked `inside`, with the kernels of these programs; so many must pass."""
    source = Path(__file__).with_name("fake_driver.cpp")
    fake = folder / "libcuda.so.1"
    options = ["-std=c++17", "-shared", "-fPIC", "-w", "-fvisibility=hidden"]
    subprocess.run([str(compiler), *options, str(source), "-o", str(fake), "-ldl"], check=True)
    library(folder / "kernels.so", *programs)
    path = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    env = {**os.environ, CHILD: str(folder / "kernels.so"), "LD_LIBRARY_PATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", file]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " failed" not in done.stdout, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"{passed} passed" in done.stdout, done.stdout
