"""Tensor cores, pipelines and split sums: emitted, compiled, run on the CPU, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import tir
from codegen.cuda import GPUError, emit, lower_cuda
from codegen.cuda.compile import compile_cubin
from schedule import Schedule, ScheduleError
from schedule.intrinsics.tensor_intrin import registered
from schedule.machine import H100
from schedule.primitive import find_block
from schedule.templates import gpu
from schedule.templates.gpu import split_sum, tensor_cores
from schedule.templates.gpu.products import matched_product
from tests import programs
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import EmulationError, emulate_texts
from tests.codegen.cuda.kernels import check_all, no_compiler, no_nvrtc
from tests.sweeps import quick
from tir.interpreter import run
from tir.ir import Const, PrimFunc
from tir.script import parse

TARGET, HOPPER = tir.Target("cuda"), tir.Target("cuda", arch="sm_90")


def product(
    M: int, N: int, K: int, factor: str | tuple[str, str], total: str = "float32", result: str = "", a: str = "n", b: str = "n"
) -> PrimFunc:
    """A product whose factors, of one type or two, lie as `a` and `b` say, summed in `total` and, where `result` is given,
    converted to that."""
    factors = (factor, factor) if isinstance(factor, str) else factor
    lie = "ik" if a == "n" else "ki", "kj" if b == "n" else "jk"
    return programs.product(M, N, K, *lie, factors, total, after=(lambda c, _: c.astype(result)) if result else None)


def text(func: PrimFunc, tf32: bool = False) -> str:
    return emit(lower_cuda(gpu.schedule(func, tf32=tf32).func, TARGET)).text


def test_implementations_are_what_their_descriptions_say() -> None:
    for name, intrinsic in registered().items():
        if name.startswith(("mma_", "wgmma_", "ldmatrix_")):
            assert intrinsic.difference() is None, name


@no_compiler
def test_products_of_any_shape_and_order() -> None:
    """Both factors as they lie or transposed, whole and partial tiles, results in both precisions."""
    cases = [
        (product(63, 72, 80, "float16"), False, ("ldmatrix_x4(", "ldmatrix_x4_trans(", "mma_m16n8k16_f16_f32(")),
        (product(33, 65, 47, "float16", a="t", b="t"), False, ("ldmatrix_x4_trans(", "ldmatrix_x4(")),
        (product(37, 41, 109, "bfloat16", result="bfloat16", b="t"), False, ("mma_m16n8k16_bf16_f32(",)),
        (product(40, 24, 56, "float16", "float16"), False, ("mma_m16n8k16_f16_f16(",)),
        (product(48, 40, 36, "float32"), True, ("mma_m16n8k8_tf32_f32(", "ldmatrix_x4(", "tf32(B_shared")),
        (product(64, 72, 96, "int8", "int32", b="t"), False, ("mma_m16n8k32_s8_s32(", "ldmatrix_x4(")),
        (product(33, 65, 47, "uint8", "int32", "float32"), False, ("mma_m16n8k32_u8_s32(",)),
        (product(37, 41, 109, ("uint8", "int8"), "int32", a="t", b="t"), False, ("mma_m16n8k32_u8s8_s32(",)),
        (product(40, 24, 56, ("int8", "uint8"), "int32"), False, ("mma_m16n8k32_s8u8_s32(",)),
        (product(40, 24, 56, "float64", "float64"), False, ("mma_m16n8k8_f64_f64(",)),
        (product(33, 41, 109, "float64", "float64", a="t", b="t"), False, ("mma_m16n8k8_f64_f64(",)),
        (product(17, 29, 109, "float32", a="t", b="t"), True, ("mma_m16n8k8_tf32_f32(", "tf32(A_shared")),
        (product(33, 17, 1100, "float16", b="t"), False, ("copy_async<8>(", "ldmatrix_x4(")),  # a split sum
        (product(24, 32, 1536, "bfloat16", a="t", b="t"), False, ("copy_async<16>(", "ldmatrix_x4_trans(", "ldmatrix_x4(")),
        (product(8, 40, 544, "int8", "int32"), False, ("copy_async<4>(",)),  # by fewer threads than there are
    ]  # fmt: skip
    texts = check_all([(gpu.schedule(f, tf32=tf32).func, f) for f, tf32, _ in cases])
    for emitted, (_, _, wanted) in zip(texts, cases, strict=True):
        assert all(w in emitted for w in wanted), (wanted, emitted)


def test_float32_is_rounded_only_where_that_is_stated() -> None:
    assert "mma_" not in text(product(64, 64, 64, "float32")) and "mma_" in text(product(64, 64, 64, "float32"), tf32=True)
    old = gpu.schedule(product(64, 64, 64, "float16"), "sm_75")
    assert "mma_" not in emit(lower_cuda(old.func, tir.Target("cuda", arch="sm_75"))).text


@quick(lambda arch: arch == "sm_90")
@no_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_large_products_stay_in_registers(arch: str) -> None:
    for func, tf32 in (
        (product(4096, 4096, 4096, "float16"), False), (product(1000, 1000, 1000, "bfloat16", result="bfloat16"), False),
        (product(4096, 4096, 4096, "float32"), True), (product(4096, 4096, 4096, "float32"), False),
    ):  # fmt: skip
        source = emit(lower_cuda(gpu.schedule(func, arch, tf32).func, tir.Target("cuda", arch=arch)))
        (r,) = compile_cubin(source.text, arch).resources
        assert r.spill_stores == r.spill_loads == r.stack == 0, r
        assert source.text.count("__syncthreads();") == 1 and "copy_async<16>(" in source.text


@no_compiler
def test_a_pipeline_needs_its_barrier_and_its_wait() -> None:
    func = product(48, 64, 200, "float16")
    program = lower_cuda(gpu.schedule(func).func, TARGET)
    kernels = emit(program).kernels
    assert kernels.count("__syncthreads();") == 1 and "copy_async_wait<2>();" in kernels
    for emulated in emulate_texts(
        program, kernels.replace("__syncthreads();", ""), kernels.replace("copy_async_wait<2>", "copy_async_wait<3>")
    ):
        with pytest.raises(EmulationError, match=r"race|ends with copies"):
            emulated(*integers(func, 0))


@no_compiler
def test_warpgroups_multiply_any_shape_and_order() -> None:
    """Factors by rows or by columns, one or two warpgroups, whole and partial tiles, copies of 16 bytes and single elements."""
    cases = [
        (product(64, 64, 64, "float16"), "wgmma_m64n64k16_f16_f32<0, 8192, 1, 8192>("),
        (product(70, 133, 200, "float16", a="t", b="t"), "wgmma_m64n64k16_f16_f32<1, 8192, 0, 8192>("),
        (product(72, 65, 328, "bfloat16", result="bfloat16", b="t"), "wgmma_m64n64k16_bf16_f32<0, 8192, 0, 8192>("),
        (product(200, 300, 96, "float16", "float16", a="t"), "wgmma_m64n64k16_f16_f16<1, 8192, 1, 8192>("),
    ]  # fmt: skip
    texts = check_all([(gpu.schedule(f, "sm_90").func, f) for f, _ in cases], HOPPER)
    for emitted, (_, wanted) in zip(texts, cases, strict=True):
        assert wanted in emitted, emitted
    func, tile = product(130, 264, 192, "bfloat16", b="t"), replace(tensor_cores.GROUP_TILES[0], held_rows=tensor_cores.FRAGMENT)
    with pytest.MonkeyPatch.context() as patch:  # the tile of large products, two warpgroups
        patch.setattr(tensor_cores, "seed", lambda *_: tile)
        (emitted,) = check_all([(gpu.schedule(func, "sm_90").func, func)], HOPPER)
    assert "wgmma_m64n256k16_bf16_f32<0, 16384, 0, 32768>(" in emitted, emitted


@no_compiler
def test_a_product_of_warpgroups_needs_each_of_its_steps() -> None:
    func = product(64, 72, 328, "bfloat16", result="bfloat16", b="t")
    program = lower_cuda(gpu.schedule(func, "sm_90").func, HOPPER)
    kernels = emit(program).kernels
    faults = {
        r"__syncthreads\(\);": ("", "race: thread|is stored while a product of a warpgroup reads it"),
        r"proxy_fence\(\);": ("", "was stored without a proxy_fence before a product of a warpgroup reads it"),
        r"wgmma_fence<.*;": ("", "registers of a product are written without a wgmma_fence"),
        r"wgmma_wait<.*;": ("", "ends with products that it has not waited for"),
        r"wgmma_commit\(\);": ("", "products of a warpgroup are waited for that are in no group"),
        r"copy_async_wait<2>": ("copy_async_wait<3>", "race: thread|is stored while a product of a warpgroup reads it"),
        r"\((tx % 8)\) \^ \([^;]*?\)\) \* 8, ": (r"\1) * 8, ", ""),  # another permutation: other numbers
        r"% 4 \* 4096": ("% 3 * 4096", "race: thread|is stored while a product of a warpgroup reads it"),
    }
    given = integers(func, 0)
    expected = copies(given)
    run(func, *expected)
    texts = [re.sub(pattern, new, kernels) for pattern, (new, _) in faults.items()]
    for text, emulated, (_, message) in zip(texts, emulate_texts(program, *texts), faults.values(), strict=True):
        assert text != kernels
        got = copies(given)
        if message:
            with pytest.raises(EmulationError, match=message):
                emulated(*got)
        else:
            emulated(*got)
            assert (got[-1] != expected[-1]).any()


def test_what_a_warpgroup_cannot_multiply_is_refused() -> None:
    func = product(128, 128, 128, "float16")
    s = gpu.schedule(func, "sm_90")
    with pytest.raises(GPUError, match="wgmma_m64n8k16_f16_f32: warpgroups multiply on sm_90 alone, the target is sm_100"):
        lower_cuda(s.func, tir.Target("cuda", arch="sm_100"))
    for make in (product(128, 128, 128, "float16"), product(63, 128, 128, "float16")):
        assert ("wgmma" in str(gpu.schedule(make, "sm_90").func)) == (make.buffers[0].shape[0] == Const(128))
        assert "wgmma" not in str(gpu.schedule(make, "sm_100").func)
    text = str(s.func)
    axes = {"y": "z", "z": "y"}
    for changed, message in (
        (text.replace("shared.swizzled", "shared"), "must be in scope `shared.swizzled`, got `shared`"),
        (
            re.sub(r"threadIdx\.([yz])", lambda m: f"threadIdx.{axes[m[1]]}", text),
            "a warpgroup is 4 warps along threadIdx.y, got 1",
        ),
    ):
        func = parse(changed)
        assert isinstance(func, PrimFunc) and changed != text
        with pytest.raises(GPUError, match=message):
            lower_cuda(func, HOPPER)


@no_compiler
def test_long_sums_with_few_results_are_split() -> None:
    cases = [product(7, 13, 1024, "float32"), product(17, 17, 1024, "float16"), product(16, 24, 1024, "bfloat16", b="t"),
             product(5, 7, 1013, "float32")]  # fmt: skip
    scheduled = [gpu.schedule(f).func for f in cases]
    assert all(len(lower_cuda(f, TARGET).kernels) == 2 for f in scheduled)
    texts = check_all(list(zip(scheduled, cases, strict=True)))
    assert ["mma_" in t for t in texts] == [False, True, True, False]
    few = matched_product(find_block(product(64, 64, 65536, "float32"), "C"))
    many = matched_product(find_block(product(4096, 4096, 65536, "float32"), "C"))
    prime = matched_product(find_block(product(64, 64, 1013, "float32"), "C"))
    assert few and many and prime and [split_sum.seed(c, H100) for c in (few, many, prime)] == [256, 1, 3]


def test_what_a_warp_cannot_hold_is_refused() -> None:
    s = Schedule(product(32, 32, 32, "float16"))
    s.cache_write("C", 0, "warp")
    with pytest.raises(GPUError, match=r"in scope `warp` are used, got 1; bind warps to threadIdx\.y and threadIdx\.z"):
        lower_cuda(s.func, TARGET)
    with pytest.raises(ScheduleError, match="is not what `mma_m16n8k16_nn_f16_f32` computes"):
        s.tensorize(s.get_loops("C")[1], "mma_m16n8k16_nn_f16_f32")
    s = gpu.schedule(product(64, 64, 64, "float16"))
    with pytest.raises(GPUError, match="instructions of sm_80 and later, the target is sm_75"):
        lower_cuda(s.func, tir.Target("cuda", arch="sm_75"))
