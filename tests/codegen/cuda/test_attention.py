"""Attention in one kernel: its signs, its numbers beside float64, and faults that the emulation catches."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from benchmarks.gpu_static import attention
from codegen.cuda import CudaKernel, emit, lower_cuda
from costmodel.loopnest import program
from schedule.templates import gpu
from tests.codegen.cuda.device_programs import ATTENTION, draw, is_attention
from tests.codegen.cuda.emulation import EmulationError, emulate, emulate_texts
from tests.codegen.cuda.kernels import no_compiler, no_nvrtc, without
from tests.sweeps import quick
from tir.arith.simplify import simplify
from tir.interpreter import run
from tir.ir import Const
from tir.ir.expressions import as_int
from tir.ir.nodes import annotation
from tir.traverse import loops, substitute

TARGET = tir.Target("cuda", arch="sm_80")


@no_compiler
def test_attention_of_any_length_and_heads() -> None:
    made = [(case, func := attention(*case[:5], causal=case[5]), gpu.schedule(func, "sm_80").func) for case in ATTENTION]
    programs = [lower_cuda(after, TARGET) for *_, after in made]
    for ((*_, causal), func, after), emulated in zip(made, emulate(*programs), strict=True):
        assert not [f for f in tir.verify(after) if f.severity == "error"]
        assert len(emulated.program.kernels) == 1 and not emulated.program.temporaries
        assert emulated.source.text.count("mma_m16n8k") > 1 and "__shfl_xor_sync" in emulated.source.text
        arrays = draw(func, 0)
        run(after, *arrays)
        assert is_attention(func, arrays, causal)
        results = []
        for seed in (0, 1):
            arrays[-1][...] = 0
            emulated(*arrays, seed=seed)
            assert is_attention(func, arrays, causal)
            results.append(arrays[-1].copy())
        np.testing.assert_array_equal(*results, err_msg="the order of threads shows")


@no_compiler
@pytest.mark.parametrize(("dtype", "exchanges"), [("float16", 4), ("float32", 5), ("float64", 4)])
def test_a_barrier_a_wait_an_exchange_or_a_correction_less_is_caught(dtype: str, exchanges: int) -> None:
    func = attention(dtype, 32, 200, 16, (1, 1))
    program = lower_cuda(gpu.schedule(func, "sm_80").func, TARGET)
    kernels = emit(program).kernels
    rescaling = [x for x in kernels.splitlines() if x.strip().startswith("Y_warp") and "correction" in x]
    shuffles = [x for x in kernels.splitlines() if "__shfl_xor_sync" in x]
    assert kernels.count("__syncthreads();") == 1 and rescaling and len(shuffles) == exchanges, kernels
    texts = [without(kernels, 0), kernels.replace("copy_async_wait<0>", "copy_async_wait<1>")]
    texts += [kernels.replace(line, "") for line in (*rescaling[:1], *shuffles)]
    for number, emulated in enumerate(emulate_texts(program, *texts)):
        arrays = draw(func, 3)
        if number < 2:
            with pytest.raises(EmulationError, match=r"race|ends with copies|not there"):
                emulated(*arrays)
        else:
            emulated(*arrays)
            assert not is_attention(func, arrays, False)


@quick(lambda arch: arch == "sm_90")
@no_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_attention_is_one_kernel_in_registers(arch: str) -> None:
    """Scores are in no memory: nothing spills, no temporary lies between kernels, and no thread waits for another's bank."""
    for dtype, length, width, heads, causal in (
        ("float16", 1024, 64, (12, 12), False), ("bfloat16", 1024, 128, (32, 8), True), ("float16", 1023, 64, (12, 12), True),
        ("float32", 1024, 64, (12, 12), True), ("float64", 1023, 64, (12, 4), False),
    ):  # fmt: skip
        func = attention(dtype, length, length, width, heads, causal)
        target = tir.Target("cuda", arch=arch)
        kernel = tir.build(tir.default_schedule(func, target).func, target)
        assert isinstance(kernel, CudaKernel)
        report, (only,) = kernel.report(), kernel.program.kernels
        assert not kernel.program.temporaries and only.block[0] == 32
        assert report.spills == 0 and all(k.stack == 0 for k in report.kernels), report
        assert report.ways == (1,) and kernel.source.count("__syncthreads();") == 1, report


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("queries", "keys", "heads"), [(1024, 1024, (4, 4)), (100, 613, (4, 2)), (333, 333, (3, 1))])
def test_tiles_of_keys_behind_the_last_visible_one_are_skipped(dtype: str, queries: int, keys: int, heads: tuple[int, int]):
    """Each block goes through the tiles of keys up to that of its last query, behind keys of the past; the model counts them."""
    whole, causal = (gpu.schedule(attention(dtype, queries, keys, 32, heads, causal=c), "sm_80").func for c in (False, True))
    (block, *inner), wide = loops(causal), next(x for x in loops(whole) if annotation(x.annotations, "pipeline_stages", 0))
    step = next(x for x in inner if annotation(x.annotations, "pipeline_stages", 0))
    count, tiles = as_int(block.extent) // heads[0], as_int(wide.extent)
    rows, columns = 16 * as_int(next(x for x in inner if x.thread == "threadIdx.y").extent), -(-keys // tiles // 16) * 16
    expected = [min(tiles, (min((n + 1) * rows, count * rows) - 1 + keys - queries) // columns + 1) for n in range(count)]
    made = [as_int(simplify(substitute(step.extent, {block.var: Const(n)}))) for n in range(count)]
    assert made == expected and (queries < keys or sum(made) <= tiles * (count + 1) / 2 + count), (made, expected)
    iterations = {x.extent for s in program(causal).statements for x in s.loops if x.name == step.name}
    assert iterations == {-(-(made[0] + made[-1]) // 2)}


def test_other_products_are_not_attention() -> None:
    """Vectors that registers or shared memory do not hold, and devices without such copies."""
    for func, arch in (
        (attention("float64", 64, 64, 144), "sm_80"), (attention("float16", 64, 64, 272), "sm_80"),
        (attention("float16", 64, 64, 32), "sm_75"), (attention("float64", 64, 64, 128), "sm_86"),
    ):  # fmt: skip
        target = tir.Target("cuda", arch=arch)
        assert len(lower_cuda(tir.default_schedule(func, target).func, target).kernels) > 1


def test_leave_to_round_leaves_attention_in_one_kernel() -> None:
    """The leave is not used: results of tf32 products lie in registers as no factors of such do."""
    program = lower_cuda(gpu.schedule(attention("float32", 64, 64, 32), "sm_80", tf32=True).func, TARGET)
    text = emit(program).text
    assert len(program.kernels) == 1 and "mma_m16n8k8_f32_f32(" in text and "mma_m16n8k8_tf32" not in text
