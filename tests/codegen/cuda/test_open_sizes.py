"""Functions of open sizes: whatever `te.var` can say is scheduled, lowered and right at each size."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.cuda import lower_cuda
from tests.arrays import copies, integers
from tests.codegen.cuda.device_programs import OPEN, VALUES, open_product, softmax, tolerance
from tests.codegen.cuda.emulation import emulate
from tests.codegen.cuda.kernels import no_compiler, no_nvrtc
from tests.sweeps import one_in
from tir.interpreter import run
from tir.specialize import specialize


@pytest.fixture(scope="module")
def emulated():
    made = {
        (name, arch): lower_cuda(tir.default_schedule(f, f"cuda -arch {arch}").func, tir.Target("cuda", arch=arch))
        for name, f in OPEN.items()
        for arch in ("sm_75", "sm_90")
    }
    return dict(zip(made, emulate(*made.values()), strict=True))


@no_compiler
@one_in(2)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("name", OPEN)
def test_every_size_is_right(emulated, name, arch) -> None:
    func, program = OPEN[name], emulated[name, arch]
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
            assert np.allclose(a, b, rtol=0, atol=tolerance(name, known, b))


LARGE = {
    "n x 64 x 64": open_product("n", 64, 64), "n x 64 x 64 halves": open_product("n", 64, 64, "float16"),
    "n x 4096 x 4096": open_product("n", 4096, 4096), "n x 4096 x 4096 halves": open_product("n", 4096, 4096, "float16"),
    "4096 x 4096 x m": open_product(4096, "m", 4096), "softmax": softmax("n", "m"),
}  # fmt: skip


@no_nvrtc
@one_in(3)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", LARGE)
def test_every_architecture_builds(name, arch) -> None:
    kernel = tir.compile(LARGE[name], f"cuda -arch {arch}", cache=None)
    assert kernel.report().spills == 0
    assert " x " not in name or "__shared__" in kernel.source, "products are tiled"
