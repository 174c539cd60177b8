"""The tensor intrinsics of NVIDIA GPUs: products of small matrices by a warp's tensor cores, and loads of their operands.

Each implementation is the nest of its description, its outer loop annotated with the instruction. The CUDA backend emits the
instruction; every other execution path runs the nest. Operands and results are in scope `warp`: registers that a warp of 32
threads holds together, in the layout of the instruction (codegen/passes/warp_memory.py).

    mma_m16n8k16_{nn,nt,tn,tt}_{f16,bf16}_f32    C[16, 8] += A[16, 16] * B[16, 8], factors converted to float32
    mma_m16n8k16_{nn,nt,tn,tt}_f16_f16           the same, summed in float16
    mma_m16n8k8_{nn,nt,tn,tt}_tf32_f32           C[16, 8] += A[16, 8] * B[8, 8] of float32, rounded to 10 bits of mantissa as they
                                                 are loaded into scope `warp`: a choice that the schedule states by this name
    ldmatrix_16x16_{f16,bf16}, ldmatrix_16x8_f32  a tile from shared memory to scope `warp`

The letters say how A, then B, lie in their buffers: `n` as rows by columns of the product (A[i, k], B[k, j]), `t` transposed.
"""

from __future__ import annotations

from tir.ir import PrimFunc

from . import marked

DTYPES = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32"}

_PRODUCT = """
@T.prim_func
def main(A: T.Buffer({a}, "{factor}"), B: T.Buffer({b}, "{factor}"), C: T.Buffer((16, 8), "{total}")):
    for i in {outer}:
        for j, k in T.grid(8, {depth}):
            with T.block("mma"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + {left} * {right}
"""

_LOAD = """
@T.prim_func
def main(S: T.Buffer((16, {columns}), "{dtype}"), W: T.Buffer((16, {columns}), "{dtype}")):
    for i in {outer}:
        for j in range({columns}):
            with T.block("load"):
                vi, vj = T.axis.remap("SS", [i, j])
                W[vi, vj] = S[vi, vj]
"""


def _product(order: str, factor: str, total: str, depth: int) -> tuple[PrimFunc, PrimFunc]:
    a, left = ((16, depth), "A[vi, vk]") if order[0] == "n" else ((depth, 16), "A[vk, vi]")
    b, right = ((depth, 8), "B[vk, vj]") if order[1] == "n" else ((8, depth), "B[vj, vk]")
    if DTYPES[factor] != DTYPES[total]:
        left, right = (f'T.cast({x}, "{DTYPES[total]}")' for x in (left, right))
    return marked(_PRODUCT, f"mma_m16n8k{depth}_{factor}_{total}", a=a, b=b, left=left, right=right, depth=depth,
                 factor=DTYPES[factor], total=DTYPES[total])  # fmt: skip


# By name: the description of the instruction, and its implementation.
INTRINSICS = {
    f"mma_m16n8k{depth}_{order}_{factor}_{total}": _product(order, factor, total, depth)
    for order in ("nn", "nt", "tn", "tt")
    for factor, total, depth in (("f16", "f32", 16), ("bf16", "f32", 16), ("f16", "f16", 16), ("tf32", "f32", 8))
} | {
    (name := f"ldmatrix_16x{columns}_{dtype}"): marked(_LOAD, name, columns=columns, dtype=DTYPES[dtype])
    for dtype, columns in (("f16", 16), ("bf16", 16), ("f32", 8))
}
