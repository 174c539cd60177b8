"""What `on_device` does with its cases, on kernels that run on this processor."""

from __future__ import annotations

import time
from itertools import islice

import pytest

from codegen.cuda import lower_cuda
from codegen.cuda.isolated import Tried
from codegen.target import Target
from tests.arrays import copies
from tests.codegen.cuda import on_device
from tests.codegen.cuda.emulation import compiler, emulate

TARGET = Target("cuda")


def some():
    """A case of each kind."""
    return {
        "library": islice(on_device.library(TARGET), 1, 2), "products": islice(on_device.products(TARGET), 1, 2),
        "candidates": islice(on_device.candidates(TARGET), 1), "programs": islice(on_device.programs(4), 1),
    }  # fmt: skip


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
def test_cases_of_each_kind_are_right(capsys):
    groups = {kind: list(cases) for kind, cases in some().items()}
    every = [case for cases in groups.values() for case in cases]
    kernels = dict(zip(map(id, every), emulate(*(lower_cuda(case.func, TARGET) for case in every)), strict=True))

    def emulated(case):
        arrays = copies(case.arguments)
        kernels[id(case)](*arrays)
        return Tried("ok", 1e-6, "", tuple(arrays))

    assert on_device.check({kind: iter(cases) for kind, cases in groups.items()}, emulated, 1, time.monotonic() + 600) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{kind}: 1 right, 0 wrong" for kind in ("library", "products", "candidates", "programs")]


def test_what_is_wrong_is_counted_and_shown(capsys):
    crashed = Tried("crash", message="the process ended with code -9")

    def tries(case):
        return crashed if "37" in case.name else Tried("ok", 1e-6, "", tuple(copies(case.arguments)))

    assert on_device.check({"library": islice(on_device.library(TARGET), 1, 3)}, tries, 1, time.monotonic() + 60) == 2
    out = capsys.readouterr().out
    assert "WRONG gmm (37, 29, 41): crash: the process ended with code -9" in out and "library: 0 right, 2 wrong" in out


def test_what_is_not_reached_in_time_is_said(capsys):
    assert on_device.check({"library": some()["library"]}, lambda case: Tried("crash"), 1, time.monotonic() - 1) == 0
    assert capsys.readouterr().out == "library: 0 right, 0 wrong, not all reached\n"
