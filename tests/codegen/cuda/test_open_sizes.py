"""Functions of open sizes: whatever `te.var` can say is scheduled, lowered and right at each size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tir
from codegen.cuda import lower_cuda
from tests import programs
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import emulate
from tests.codegen.cuda.kernels import no_compiler, no_nvrtc
from tests.sweeps import one_in
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc
from tir.specialize import specialize


def sizes_of(*names: int | str) -> tuple[list[Any], list[Any]]:
    """Sizes, a variable for each name, and the variables."""
    made = {name: te.var(name) for name in names if isinstance(name, str)}
    return [made.get(name, name) for name in names], [*made.values()]  # type: ignore[arg-type]


def product(rows: int | str, columns: int | str, steps: int | str, dtype: str = "float32", transposed: bool = False) -> PrimFunc:
    extents, given = sizes_of(rows, columns, steps)
    return programs.product(*extents, right="jk" if transposed else "kj", dtypes=(dtype, dtype), sizes=given)


def softmax(rows: int | str, columns: int | str) -> PrimFunc:
    (n, m), given = sizes_of(rows, columns)
    X, k, r = te.placeholder((n, m), name="X"), te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    most = te.compute((n,), lambda i: te.max(X[i, k], axis=k), name="most")
    power = te.compute((n, m), lambda i, j: te.exp(X[i, j] - most[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, r], axis=r), name="total")
    return te.create_prim_func([*given, X, te.compute((n, m), lambda i, j: power[i, j] / total[i], name="Y")])


def sum_of_all(rows: int | str, columns: int | str) -> PrimFunc:
    (n, m), given = sizes_of(rows, columns)
    X, k, r = te.placeholder((n, m), name="X"), te.reduce_axis((0, n), "k"), te.reduce_axis((0, m), "r")
    return te.create_prim_func([*given, X, te.compute((), lambda: te.sum(X[k, r], axis=[k, r]), name="S")])


def transposed(planes: int | str, rows: int | str, columns: int | str) -> PrimFunc:
    (p, n, m), given = sizes_of(planes, rows, columns)
    X = te.placeholder((p, n, m), "int8", name="X")
    return te.create_prim_func([*given, X, te.compute((m, p, n), lambda i, j, k: X[j, k, i], name="Y")])


SMALL = {
    "rows": product("n", 40, 24), "rows of halves": product("n", 40, 24, "float16"), "rows, across": product("n", 40, 24, transposed=True),
    "columns": product(40, "m", 24), "columns of halves": product(40, "m", 24, "bfloat16"), "steps": product(24, 40, "k"),
    "all": product("n", "m", "k"), "all halves": product("n", "m", "k", "float16"), "softmax": softmax("n", "m"),
    "rows of softmax": softmax("n", 40), "columns of softmax": softmax(7, "m"), "sum": sum_of_all("n", "m"), "columns summed": sum_of_all(7, "m"),
    "transposed": transposed("p", "n", "m"), "transposed rows": transposed(3, "n", 5), "transposed columns": transposed(3, 5, "m"),
}  # fmt: skip
VALUES = (1, 13, 50)


@pytest.fixture(scope="module")
def emulated():
    made = {
        (name, arch): lower_cuda(tir.default_schedule(f, f"cuda -arch {arch}").func, tir.Target("cuda", arch=arch))
        for name, f in SMALL.items()
        for arch in ("sm_75", "sm_90")
    }
    return dict(zip(made, emulate(*made.values()), strict=True))


@no_compiler
@one_in(2)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("name", SMALL)
def test_every_size_is_right(emulated, name, arch) -> None:
    func, program = SMALL[name], emulated[name, arch]
    assert all(max(k.block) > 1 or "sum" in name for k in program.program.kernels), program.source.kernels
    for n in VALUES:
        sizes = {v.name: n + 2 * i for i, v in enumerate(func.sizes)}
        known = specialize(func, sizes)
        args = integers(known, n)
        expected = copies(args)
        run(known, *expected)
        got = copies(args)
        program(*sizes.values(), *got, seed=n)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=8 * np.finfo("float32").eps if "softmax" in name else 0)


LARGE = {
    "n x 64 x 64": product("n", 64, 64), "n x 64 x 64 halves": product("n", 64, 64, "float16"),
    "n x 4096 x 4096": product("n", 4096, 4096), "n x 4096 x 4096 halves": product("n", 4096, 4096, "float16"),
    "4096 x 4096 x m": product(4096, "m", 4096), "softmax": softmax("n", "m"),
}  # fmt: skip


@no_nvrtc
@one_in(3)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", LARGE)
def test_every_architecture_builds(name, arch) -> None:
    kernel = tir.compile(LARGE[name], f"cuda -arch {arch}", cache=None)
    assert kernel.report().spills == 0
    assert " x " not in name or "__shared__" in kernel.source, "products are tiled"
