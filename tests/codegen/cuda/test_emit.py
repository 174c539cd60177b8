"""The form that statements take in CUDA C; `test_kernels` runs them."""

import pytest

import tir
from codegen.cuda import emit, lower_cuda
from codegen.cuda.emit import MAX_GATHERED_LANES
from tir.script import parse


@pytest.mark.parametrize(("lanes", "dtype"), [(MAX_GATHERED_LANES, "float32"), (32, "int8"), (20, "float32")])
def test_an_unrolled_loop_loads_all_its_lanes_first_where_they_are_few(lanes, dtype):
    """The limit is a number of registers, whatever bytes an element has."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, {lanes}), "{dtype}"), B: T.Buffer((7,), "{dtype}")):
    for t in T.thread_binding(7, thread="threadIdx.x"):
        row = T.decl_buffer(({lanes},), "{dtype}", scope="local")
        for i in T.unroll({lanes}):
            row[i] = A[t, i] + T.{dtype}(1)
        B[t] = row[3] * row[{lanes - 1}]
""")
    text = emit(lower_cuda(func, tir.Target("cuda"))).kernels
    assert ("A_lanes" in text) == (lanes <= MAX_GATHERED_LANES), text
