"""Fragments in scope `warp`: what their layouts follow from, and what is refused."""

from __future__ import annotations

import re

import pytest

import tir
from codegen.build import lower
from codegen.passes.gpu_kernels import GPUError
from tests.codegen.cuda.kernels import check_all, no_compiler
from tir.ir import Allocate, PrimFunc, const_shape
from tir.script import parse
from tir.traverse import walk_stmts

KERNEL = """
@T.prim_func
def main(A: T.Buffer((32, 16), "float16"), B: T.Buffer((16, 8), "float16"), C: T.Buffer((32, 8), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        s = T.decl_buffer((16, 16), "float16", scope="shared")
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for q in range(8):
                s[q * 2 + t // 16, t % 16] = A[b * 16 + q * 2 + t // 16, t % 16]
        for t in T.thread_binding(32, thread="threadIdx.x"):
            x = T.decl_buffer((16, 16), "float16", scope="warp")
            y = T.decl_buffer((16, 8), "float16", scope="warp")
            z = T.decl_buffer((16, 8), "float32", scope="warp")
            for l in T.serial(16, annotations={"instruction": "ldmatrix_x4"}):
                for k in range(16):
                    x[l, k] = s[l, k]
            for k, j in T.grid(16, 8):
                y[k, j] = B[k, j]
            for i, j in T.grid(16, 8):
                z[i, j] = T.float32(0)
            for m in T.serial(16, annotations={"instruction": "mma_m16n8k16_f16_f32"}):
                for n, k in T.grid(8, 16):
                    z[m, n] = z[m, n] + T.cast(x[m, k], "float32") * T.cast(y[k, n], "float32")
            for e, f in T.grid(16, 8):
                C[b * 16 + e, f] = z[e, f]
"""
LAST = "C[b * 16 + e, f] = z[e, f]"
LOADED = "x[l, k] = s[l, k]"
MULTIPLIED = 'z[m, n] = z[m, n] + T.cast(x[m, k], "float32") * T.cast(y[k, n], "float32")'


def kernel(*changes: tuple[str, str]) -> PrimFunc:
    text = KERNEL
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse(text)


def lowered(func: PrimFunc) -> PrimFunc:
    return lower(func, tir.Target("cuda", arch="sm_90"), after="lower_warp_memory")


def local_shapes(func: PrimFunc) -> dict[str, tuple[int, ...]]:
    return {s.buffer.name: const_shape(s.buffer) for s in walk_stmts(lowered(func).body) if isinstance(s, Allocate)}


def test_lanes_hold_elements_of_tiles():
    assert local_shapes(kernel()) == {"s": (16, 16), "x": (1, 1, 8), "y": (1, 1, 4), "z": (1, 1, 4)}


def through(shape: tuple[int, ...], index: str) -> PrimFunc:
    """The kernel, with its result copied to `w` before it is stored."""
    copied = f"w[{index}] = z[e, f] * T.float32(3)\n            for e, f in T.grid(16, 8):\n                C[b * 16 + e, f] = w[{index}]"
    declared = f'            w = T.decl_buffer({shape}, "float32", scope="warp")\n            z = T'
    return kernel((LAST, copied), ("            z = T", declared))


EXCHANGED = "u[e, f] = z[e, f]"
SECOND = f"""{EXCHANGED}
            for k, j in T.grid(8, 8):
                v[k, j] = T.cast(B[k, j], "float32")
            for i, j in T.grid(16, 8):
                o[i, j] = T.float32(0)
            for m in T.serial(16, annotations={{"instruction": "mma_m16n8k8_f32_f32"}}):
                for n, k in T.grid(8, 8):
                    o[m, n] = o[m, n] + u[m, k] * v[k, n]
            for e, f in T.grid(16, 8):
                C[b * 16 + e, f] = o[e, f]"""


def twice(*changes: tuple[str, str]) -> PrimFunc:
    """The kernel, whose result is the left factor of a product of float32: each lane needs the elements of the whole row."""
    shapes = {"u": (16, 8), "v": (8, 8), "o": (16, 8)}
    declared = "".join(f'            {x} = T.decl_buffer({n}, "float32", scope="warp")\n' for x, n in shapes.items())
    return kernel((LAST, SECOND), ("            z = T", f"{declared}            z = T"), *changes)


COPIES = [((16, 8), "e, f", (1, 1, 4)), ((8, 16), "f, e", (1, 1, 4)), ((3, 8, 2, 16), "2, f, 1, e", (1, 1, 1, 1, 4))]


@pytest.mark.parametrize(("shape", "index", "own"), COPIES)
def test_layouts_spread_to_what_is_computed_element_by_element(shape, index, own):
    assert local_shapes(through(shape, index))["w"] == own


@no_compiler
def test_lanes_compute_the_product_together():
    """Also from a transposed tile, whose fragments cross in the instruction that loads them."""
    crossed = kernel(("s[q * 2 + t // 16, t % 16] = A", "s[t % 16, q * 2 + t // 16] = A"), ("= s[l, k]", "= s[k, l]"))
    check_all([(f, f) for f in (kernel(), crossed, twice(), *(through(shape, index) for shape, index, _ in COPIES))])


@pytest.mark.parametrize(("changes", "message"), [
    ([("binding(32,", "binding(64,")], "main_kernel0: the lanes of a warp are threadIdx.x, which must have 32 threads"),
    ([('serial(16, annotations={"instruction": "mma_m16n8k16_f16_f32"})', "serial(16)")],
     "`z` in scope `warp` is not an operand"),
    ([('8), "float32", scope="warp"', '8), "float32", scope="local"')],
     "`z` is an operand of a tensor-core instruction and must be"),
    ([("z[m, n] = z[m, n] + T", "z[m, n] = T")], "`m` is annotated as an instruction that multiplies, but holds"),
    ([("T.cast(y[k, n]", "T.cast(x[k, n]")], "`x` in scope `warp` is used by instructions that want it in different layouts"),
    ([("T.cast(y[k, n]", "T.cast(y[k, 0]")], "`z` and `y` must share one loop of their instruction"),
    ([("16, 8):\n                y", "16, 9):\n                y"), ("y = T.decl_buffer((16, 8)", "y = T.decl_buffer((16, 9)")],
     "loop `j` walks `y` in scope `warp`, and must have a multiple of 8 iterations, got 9"),
    (
        [
            ("z = T.decl_buffer((16, 8)", "z = T.decl_buffer((32, 8)"),
            ("for i, j in T.grid(16, 8)", "for i, j in T.grid(32, 8)"),
            ("    z[m, n] = z[m, n]", "    z[m + 8, n] = z[m + 8, n]"),
        ],
        "`z[8, 0]` in scope `warp` does not start a tile of 16 in dimension 0; split loops by 16",
    ),
    ([("= s[l, k]", "= A[l, k]")], "ldmatrix_x4 loads from shared memory to scope `warp`, got `x` in scope `warp` = A[l, k]"),
    ([(LOADED, f"if l < 15: {LOADED}")], "ldmatrix_x4: the nest of `l` must hold one statement without a condition"),
    ([(MULTIPLIED, f"if m < 15: {MULTIPLIED}")], "mma_m16n8k16_f16_f32: the nest of `m` must hold one statement"),
    ([("s = T.decl_buffer((16, 16)", "s = T.decl_buffer((16, 17)"), ("= s[l, k]", "= s[l, k + 1]")],
     "ldmatrix_x4: rows of 8 in `s` must start at"),
    ([(LAST, f"{LAST}\n            C[0, 0] = z[0, 0]")],
     "`C[0, 0] = ...` touches a buffer in scope `warp`, but not in loops over"),
    ([(f"(16, 8):\n                {LAST}", f"(12, 8):\n                {LAST}")],
     "loop `e` walks `z` in scope `warp`, and must have a multiple of 16"),
    ([(LAST, f"{LAST}\n                C[e, f] = z[f, e]")],
     "loop `e`: `z` in scope `warp` must be walked by the same two loops"),
])  # fmt: skip
def test_what_no_warp_can_do_is_refused(changes, message):
    with pytest.raises(GPUError, match=re.escape(message)):
        lowered(kernel(*changes))


def test_lanes_exchange_elements_together():
    with pytest.raises(GPUError, match="loop `e`: lanes exchange elements of `u`, `z`, which must be a copy without conditions"):
        lowered(twice((EXCHANGED, f"if e < 15: {EXCHANGED}")))
    with pytest.raises(GPUError, match="`z`, `u` in scope `warp` must be walked by the same two loops"):
        lowered(twice((EXCHANGED, f"{EXCHANGED}\n            for e, f in T.grid(16, 8):\n                z[e, f] = u[e, f]")))


def test_older_processors_have_no_such_instructions():
    with pytest.raises(GPUError, match="tensor cores are used through instructions of sm_80 and later, the target is sm_75"):
        lower(kernel(), tir.Target("cuda", arch="sm_75"), after="lower_warp_memory")
    lower(kernel(), tir.Target("cuda", arch="sm_80"), after="lower_warp_memory")
