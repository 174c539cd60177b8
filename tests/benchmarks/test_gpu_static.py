"""The table of what machine code tells about GPU kernels."""

from __future__ import annotations

import pytest

import tir
from benchmarks.__main__ import main
from benchmarks.gpu_static import KernelSigns, argmax, product, programs, resident_blocks, signs, table
from codegen.cuda.compile import available
from schedule.machine import GPU

no_nvrtc = pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")


def test_blocks_that_an_sm_holds() -> None:
    h100 = GPU.of("sm_90")
    assert resident_blocks(h100, 256, 128, 49152) == 2  # by registers
    assert resident_blocks(h100, 256, 32, 100 << 10) == 2  # by shared memory
    assert resident_blocks(h100, 1024, 16, 0) == 2 and resident_blocks(h100, 32, 16, 0) == 32  # by warps, by blocks


@no_nvrtc
def test_signs_of_a_product() -> None:
    (row,) = signs("small", product("float32", "n", "t", 1024), tir.Target("cuda -arch sm_90"))
    assert row.spills == 0 and row.blocks * row.threads > 0 and 0 < row.waves <= row.blocks and row.ways == 1
    (halves,) = signs("halves", product("float16", "n", "n", 128), tir.Target("cuda -arch sm_90"))
    assert (row.product, halves.product) == ("", "wgmma_m64n64k16_f16_f32")
    assert f"| small | {row.threads} | {row.registers} | 0 | 0 |" in table([row])


def test_every_type_and_layout_is_a_program() -> None:
    names = [name for name, _ in programs()]
    assert len(names) == len(set(names)) and {"int8 tt 4096", "float64 nt 4096", "transpose 8192"} <= {*names}
    assert argmax(7, 13).params and KernelSigns.__doc__


@no_nvrtc
def test_the_command_of_all_benchmarks_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "--static", "--only", "argmax 4096x1024", "--arch", "sm_80"]) == 0
    assert "| argmax 4096x1024 |" in capsys.readouterr().out
