"""Signs of fast kernels in CUDA C and the assembler's report, at sizes that performance is asked for."""

from __future__ import annotations

import re

import pytest

import tir
from codegen.cuda.compile import available
from schedule.templates import gpu
from tests.codegen.cuda.test_tensor_cores import product
from tests.sweeps import one_in
from tir import te

no_nvrtc = pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")

# By type and order of the right factor: most threads of a warp that wait for one bank. Those of 2 are stores of tiles.
WAYS = {
    ("float32", "n"): 1,
    ("float32", "t"): 2,
    ("float64", "n"): 2,
    ("float64", "t"): 2,
    ("float16", "n"): 1,
    ("float16", "t"): 1,
}


@no_nvrtc
@one_in(2)
@pytest.mark.parametrize("n", [1024, 4096])
@pytest.mark.parametrize(("dtype", "order"), WAYS)
def test_products_keep_their_tiles_in_registers(dtype: str, order: str, n: int) -> None:
    func = product(n, n, n, dtype, "float64" if dtype == "float64" else "float32", b=order)
    kernel = tir.build(gpu.schedule(func).func, "cuda -arch sm_90")
    report = kernel.report()
    assert report.spills == 0 and all(k.stack == 0 for k in report.kernels), report
    assert max(report.ways) <= WAYS[dtype, order], report


@pytest.mark.parametrize("shape", [(700, 1300), (7, 13), (1, 100000)])
def test_results_of_an_argmax_are_written_at_the_end(shape: tuple[int, int]) -> None:
    X, k = te.placeholder(shape, name="X"), te.reduce_axis((0, shape[1]), name="k")

    def larger(a, b):
        return te.select(a[1] >= b[1], a[0], b[0]), te.select(a[1] >= b[1], a[1], b[1])

    reducer = te.comm_reducer(larger, lambda i, v: (te.const(-1, i), te.const(-1e30, v)), name="argmax")
    index, value = te.compute(shape[:1], lambda i: reducer((k, X[i, k]), axis=k), name="M")
    text = tir.dump(gpu.schedule(te.create_prim_func([X, index, value])).func, "cuda")
    loops = re.findall(r"\n  for .*?\n  }\n", text, re.DOTALL)
    assert loops and not any(re.search(r"^ *M\w*(?<!_local)\[[^=]*\] = ", loop, re.MULTILINE) for loop in loops), text
