"""Signs of fast kernels in CUDA C and the assembler's report, at sizes that performance is asked for."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tir
from benchmarks.gpu_static import SUMS, argmax
from codegen.cuda import emit, lower_cuda
from codegen.cuda.banks import excess_sectors
from codegen.cuda.compile import compile_ptx
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


INSTRUCTIONS = {"float64": "mma_m16n8k8_f64_f64(", "float16": "wgmma_m64n", "int8": "mma_m16n8k32_s8_s32("}


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
        assert name in body and "copy_async<" in body and not re.search(r"= [^;]*\b[AB]( \+|\[)", body), body


# Products of few results, whose sums are split, of few rows or columns, and of vectors.
THIN = [(64, 64, 8192), (8, 4096, 4096), (16, 4096, 4096), (4096, 8, 4096), (1, 4096, 4096)]


@one_in(4)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize("shape", THIN, ids=lambda shape: "x".join(map(str, shape)))
def test_thin_and_split_products_load_along_memory(shape: tuple[int, int, int], dtype: str, layout: str) -> None:
    """No request of a warp moves a sector beyond those of its bytes, and tiles come asynchronously, 4 bytes at once at least. The
    bytes of eight columns that lie along the sum go through registers, 8 at once."""
    target = tir.Target("cuda", arch="sm_90")
    func = product(*shape, dtype, SUMS[dtype], a=layout[0], b=layout[1])
    source = emit(program := lower_cuda(gpu.schedule(func, target.arch).func, target))
    for kernel, (accesses, ranges) in zip(program.kernels, source.accesses, strict=True):
        assert all(excess_sectors(x, kernel, ranges) == 0 for x in accesses if not x.shared), source.text
    *_, body = source.text.split("__global__", 1)
    read = re.findall(r"= ([^;]*)\b[AB](?: \+|\[)", body)
    through = {"*(const int2*)("} if (shape[0], dtype, layout[1]) == (8, "int8", "t") else set()
    assert shape[0] == 1 or ("copy_async<" in body and {*read} == through), body


def disassembled(code: bytes, folder: Path) -> str:
    """The machine code of a CUBIN as text, by the tool of CUDA or of Triton; "" where there is neither."""
    triton = importlib.util.find_spec("triton")
    places = (
        [] if triton is None else [str(Path(x, "backends", "nvidia", "bin")) for x in triton.submodule_search_locations or ()]
    )
    tool = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=os.pathsep.join(places) or None)
    if tool is None:
        return ""
    folder.joinpath("kernel.cubin").write_bytes(code)
    return subprocess.run([tool, "kernel.cubin"], cwd=folder, capture_output=True, text=True, check=True).stdout


@no_nvrtc
@one_in(2)
@pytest.mark.parametrize("n", [1024, 4096])
@pytest.mark.parametrize(("dtype", "total"), [("float16", "float32"), ("bfloat16", "float32"), ("float16", "float16")])
def test_halves_are_multiplied_by_warpgroups(dtype: str, total: str, n: int, tmp_path: Path) -> None:
    """Four instructions a step of 64, none of a warp, and one wait."""
    kernel = tir.build(gpu.schedule(product(n, n, n, dtype, total), "sm_90").func, "cuda -arch sm_90")
    text = compile_ptx(kernel.source, "sm_90")
    assert text.count("wgmma.mma_async") == 4 and text.count("wgmma.wait_group") == 1 and "mma.sync" not in text
    code = disassembled(kernel.code, tmp_path)
    assert not code or (code.count("HGMMA.64x") == 4 and not re.search(r"\b(HMMA|LDL|STL)\b", code)), code


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
        how = [] if found is None else [found[1], replace(found[1], grouped=True)][: 1 + device.warpgroups]
        tiles = [tensor_cores.seed(c, x, device) for x in how] or [products.seed(c, device)]
        assert all((tile.rows, tile.columns) == wanted for tile in tiles), (arch, n, dtype)
