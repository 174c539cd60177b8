"""Tiles of shared memory in the layout that products of warpgroups read."""

from __future__ import annotations

import pytest

from codegen.cuda import GPUError, lower_cuda
from tests.codegen.cuda.kernels import TARGET, check, no_compiler
from tir import te
from tir.ir import PrimFunc
from tir.script import parse


def transposed(rows: int, columns: int, dtype: str) -> PrimFunc:
    """A transpose by way of a swizzled tile, of which 16 threads write rows and read columns."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {columns}), "{dtype}"), B: T.Buffer(({columns}, {rows}), "{dtype}")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        tile = T.decl_buffer(({rows}, {columns}), "{dtype}", scope="shared.swizzled")
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for i, j in T.grid({rows}, {columns // 16}):
                tile[i, j * 16 + t] = A[i, j * 16 + t]
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for j, i in T.grid({columns // 16}, {rows}):
                B[j * 16 + t, i] = tile[i, j * 16 + t] + tile[i, 0] - tile[i, 0]
""")
    assert isinstance(func, PrimFunc)
    return func


@no_compiler
@pytest.mark.parametrize(("dtype", "columns"), [("float32", 64), ("int32", 32), ("int8", 128)])
def test_a_swizzled_tile_holds_each_element(dtype: str, columns: int) -> None:
    A = te.placeholder((24, columns), dtype, name="A")
    func = te.create_prim_func([A, te.compute((columns, 24), lambda j, i: A[i, j], name="B")])
    text = check(transposed(24, columns, dtype), func)
    assert "^" in text and "__align__(1024)" in text


@pytest.mark.parametrize("shape", [(7, 64), (8, 80)])
def test_a_tile_of_other_lines_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(GPUError, match=r"`tile` in scope `shared.swizzled` must have a multiple of 8 rows and of 64 columns"):
        lower_cuda(transposed(*shape, "float16"), TARGET)
