"""Convolutions of narrow elements with channels first: transposed once, then copied 16 bytes at a time, asynchronously."""

from __future__ import annotations

import re

import pytest

import tir
from benchmarks.gpu_static import convolution
from codegen.cuda import emit, lower_cuda
from schedule.templates import gpu
from tests.codegen.cuda.kernels import check_all, no_compiler
from tests.schedule.templates.patterns import outer
from tests.schedule.templates.test_default_schedules import product
from tests.sweeps import quick
from tir import te
from tir.ir import PrimFunc
from tir.traverse import blocks
from tir.verify.bounds import refuse_out_of_bounds


@no_compiler
def test_convolutions_with_channels_first_are_right() -> None:
    """Windows of any size, stride and padding, odd images, split sums, and channels that fill no copy."""
    cases = [
        convolution((2, 16, 5, 7), 24, 3, 1, 1), convolution((1, 32, 7, 6), 17, 3, 2, 1, "int8"), convolution((1, 24, 7, 7), 40, 1, 1, 0),
        convolution((2, 16, 8, 8), 24, 1, 2, 0, "bfloat16"), convolution((1, 3, 9, 9), 16, 3, 2, 1), convolution((1, 64, 5, 5), 16, 3, 1, 1),
    ]  # fmt: skip
    cases += [outer(37, 45, left) for left in (False, True)]  # no products of matrices, though the sum has an axis
    cases += [product(17, 45, 1), batched(3, 24, 13, 1), batched(1, 31, 40, 1)]  # sums of one step, as an outer product's
    check_all([(gpu.schedule(f).func, f) for f in cases])


@no_compiler
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_parts_of_sums_over_strided_windows(arch: str) -> None:
    """Rows of an image that threads copy are those of the image: proved for more iterations than are tried, right for few."""
    for image in ((1, 256, 27, 29), (1, 256, 28, 28), (1, 512, 13, 15)):
        func = gpu.schedule(convolution(image, 256, 3, 2, 1, "float32"), arch).func
        assert any("rf" in b.name for b in blocks(func))
        refuse_out_of_bounds(func)
    few = convolution((1, 61, 5, 7), 13, 3, 2, 1, "float32")
    scheduled = gpu.schedule(few, arch).func
    assert any("rf" in b.name for b in blocks(scheduled))
    check_all([(scheduled, few)])


def channels_last(image: tuple[int, int, int], channels: int, outputs: int, residual: bool) -> PrimFunc:
    """A 3 x 3 convolution of halves, channels last, rounded, after the addition of a converted `residual` or not."""
    n, h, w = image
    X, F = (
        te.placeholder((n, h + 2, w + 2, channels), "float16", name="X"),
        te.placeholder((3, 3, channels, outputs), "float16", name="F"),
    )
    r, q, c = (te.reduce_axis((0, size), name) for size, name in ((3, "r"), (3, "q"), (channels, "c")))

    def element(b, y, x, o):
        return te.sum(X[b, y + r, x + q, c].astype("float32") * F[r, q, c, o].astype("float32"), axis=[r, q, c])

    Y = te.compute((n, h, w, outputs), element, name="Y")
    R = te.placeholder(Y.shape, "float16", name="R")
    wide = te.compute(Y.shape, lambda *at: R[at].astype("float32"), name="wide")
    Z = te.compute(Y.shape, lambda *at: (Y[at] + wide[at] if residual else Y[at]).astype("float16"), name="Z")
    return te.create_prim_func([X, F, *([R] if residual else []), Z])


@no_compiler
@pytest.mark.parametrize("residual", [False, True])
def test_channels_last_need_no_copies_and_split_sums_take_residuals(residual: bool) -> None:
    """Neither pixels nor weights are copied in memory first; few pixels have their sums split, whatever is added to these."""
    few = channels_last((1, 7, 7), 48, 16, residual)
    scheduled = gpu.schedule(few, "sm_80").func
    check_all([(scheduled, few)], tir.Target("cuda", arch="sm_80"))
    for outputs, kernels in ((16, 2), (24, 2)):
        program = lower_cuda(
            gpu.schedule(channels_last((1, 7, 7), 64, outputs, residual), "sm_80").func, tir.Target("cuda -arch sm_80")
        )
        text = emit(program).kernels
        assert len(program.kernels) == kernels and [b.dtype for b in program.temporaries] == ["float32"], text
        assert set(re.findall(r"copy_async<(\d+)>", text)) == {"16"}, text


def batched(batch: int, rows: int, columns: int, steps: int) -> PrimFunc:
    """C[b] = A[b] B, one matrix B for all."""
    A, B = te.placeholder((batch, rows, steps), name="A"), te.placeholder((steps, columns), name="B")
    k = te.reduce_axis((0, steps), name="k")
    C = te.compute((batch, rows, columns), lambda b, i, j: te.sum(A[b, i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C])


LARGE = [
    ((16, 64, 56, 56), 64, 3, 1, 1, "float16"), ((2, 128, 28, 28), 128, 3, 2, 1, "bfloat16"), ((16, 64, 56, 56), 64, 3, 1, 1, "int8"),
    ((1, 512, 7, 7), 2048, 1, 1, 0, "float16"), ((1, 256, 14, 14), 1024, 1, 1, 0, "float16"),
]  # fmt: skip


@quick(lambda case: case[0][0] == 16)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_products_of_convolutions_have_no_synchronous_loads(case) -> None:
    target = tir.Target("cuda", arch="sm_80")
    program = lower_cuda(gpu.schedule(convolution(*case), "sm_80").func, target)
    (product,) = [k for k in emit(program).kernels.split("extern ") if "mma_m16n8k" in k]
    copies = re.findall(r"copy_async<(\d+)>", product)
    assert copies and set(copies) == {"16"}, product
    constants = re.findall(r"const [a-z ]+\* __restrict__ (\w+)", product)
    assert constants and not re.search(rf"= [^;]*\b({'|'.join(constants)})( \+|\[)", product), product
    others = [k for k in program.kernels if k.shared and k.block[0] == 256]
    assert others, "an image is transposed through shared memory"
