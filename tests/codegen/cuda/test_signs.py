"""Signs of fast kernels in CUDA C and the assembler's report, at sizes that performance is asked for."""

from __future__ import annotations

import re

import pytest

import tir
from benchmarks.gpu_static import SUMS, argmax
from schedule.machine import GPU
from schedule.primitive import find_block
from schedule.templates import gpu
from schedule.templates.gpu import products, tensor_cores
from tests.codegen.cuda.kernels import no_nvrtc
from tests.codegen.cuda.test_tensor_cores import product
from tests.sweeps import one_in

# By type and order of the right factor: most threads of a warp that wait for one bank. Those of 2 are stores of tiles.
WAYS = {
    ("float32", "n"): 1,
    ("float32", "t"): 1,
    ("float64", "n"): 1,
    ("float64", "t"): 1,
    ("int8", "n"): 2,
    ("int8", "t"): 1,
    ("float16", "n"): 1,
    ("float16", "t"): 1,
}


INSTRUCTIONS = {"float64": "mma_m16n8k8_f64_f64", "float16": "mma_m16n8k16_f16_f32", "int8": "mma_m16n8k32_s8_s32"}


@no_nvrtc
@one_in(2)
@pytest.mark.parametrize("n", [1024, 4096])
@pytest.mark.parametrize(("dtype", "order"), WAYS)
def test_products_keep_their_tiles_in_registers(dtype: str, order: str, n: int) -> None:
    func = product(n, n, n, dtype, SUMS[dtype], b=order)
    kernel = tir.build(gpu.schedule(func).func, "cuda -arch sm_90")
    report = kernel.report()
    assert report.spills == 0 and all(k.stack == 0 for k in report.kernels), report
    assert max(report.ways) <= WAYS[dtype, order] and max(report.sectors) == 0, report
    if name := INSTRUCTIONS.get(dtype):  # factors come asynchronously, to be multiplied by tensor cores
        *_, body = kernel.source.split("__global__")
        assert f"{name}(" in body and "copy_async<" in body and not re.search(r"= [^;]*\b[AB]( \+|\[)", body), body


@pytest.mark.parametrize("shape", [(700, 1300), (7, 13), (1, 100000)])
def test_results_of_an_argmax_are_written_at_the_end(shape: tuple[int, int]) -> None:
    text = tir.dump(gpu.schedule(argmax(*shape)).func, "cuda")
    loops = re.findall(r"\n  for .*?\n  }\n", text, re.DOTALL)
    assert loops and not any(re.search(r"^ *M\w*(?<!_local)\[[^=]*\] = ", loop, re.MULTILINE) for loop in loops), text


def test_tiles_fill_the_waves_of_a_device() -> None:
    """No tile leaves half of the SMs idle where a smaller one does not; large products have the largest."""
    for arch, n, dtype, wanted in (
        ("sm_80", 1024, "float16", (64, 64)), ("sm_90", 1024, "float16", (64, 64)), ("sm_90", 4096, "float16", (128, 256)),
        ("sm_80", 1024, "float32", (64, 64)), ("sm_90", 1024, "float32", (128, 64)), ("sm_90", 4096, "float32", (128, 128)),
    ):  # fmt: skip
        block, device = find_block(product(n, n, n, dtype), "C"), GPU.of(arch)
        found = tensor_cores.matches(block)
        c = products.matched_product(block)
        assert c is not None
        tile = products.seed(c, device) if found is None else tensor_cores.seed(*found, device)
        assert (tile.rows, tile.columns) == wanted, (arch, n, dtype)
