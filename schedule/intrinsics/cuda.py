"""The tensor intrinsics of NVIDIA GPUs: products of small matrices by a warp's tensor cores, and loads of their operands.

Each implementation is the nest of its description, its outer loop annotated with the instruction. The CUDA backend emits the
instruction; every other execution path runs the nest. Operands and results are in scope `warp`: registers that a warp of 32
threads holds together, in the layout of the instruction (codegen/passes/warp_memory.py).

    mma_m16n8k16_{nn,nt,tn,tt}_{f16,bf16}_f32    C[16, 8] += A[16, 16] * B[16, 8], factors converted to float32
    mma_m16n8k16_{nn,nt,tn,tt}_f16_f16           the same, summed in float16
    mma_m16n8k8_{nn,nt,tn,tt}_tf32_f32           C[16, 8] += A[16, 8] * B[8, 8] of float32, rounded to 10 bits of mantissa as they
                                                 are loaded into scope `warp`: a choice that the schedule states by this name
    mma_m16n8k8_{nn,nt,tn,tt}_{f32_f32,f64_f64}  the same of float32, by multiply-adds of the lanes, and of float64; exact
    mma_m16n8k32_{nn,nt,tn,tt}_{s8,u8,s8u8,u8s8}_s32  C[16, 8] += A[16, 32] * B[32, 8] of int8 and uint8, summed in int32
    wgmma_m64n8k16_{nn,nt,tn,tt}_{f16_f32,bf16_f32,f16_f16}  the part of a warp in a product of a warpgroup: as by `mma`, but
                                                 A and B are in scope `shared.swizzled`. Four warps along threadIdx.y multiply
                                                 64 rows together; columns that follow one another become one instruction
    ldmatrix_16x16_{f16,bf16}, ldmatrix_16x8_f32, ldmatrix_16x32_{s8,u8}  a tile from shared memory to scope `warp`

The letters say how A, then B, lie in their buffers: `n` as rows by columns of the product (A[i, k], B[k, j]), `t` transposed.
"""

from __future__ import annotations

from tir.ir import PrimFunc

from . import WARPGROUP, marked

DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "f64": "float64", "s8": "int8", "u8": "uint8",
    "s32": "int32",
}  # fmt: skip

MIXED = {"s8u8": ("s8", "u8"), "u8s8": ("u8", "s8")}  # the left and the right factor
# Each product's factors and sum, and the steps that it adds up.
PRODUCTS = (("f16", "f32", 16), ("bf16", "f32", 16), ("f16", "f16", 16), ("tf32", "f32", 8), ("f32", "f32", 8), ("f64", "f64", 8),
            *((factors, "s32", 32) for factors in ("s8", "u8", *MIXED)))  # fmt: skip

_PRODUCT = """
@T.prim_func
def main(A: T.Buffer({a}, "{first}"), B: T.Buffer({b}, "{second}"), C: T.Buffer((16, 8), "{total}")):
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


def _product(kind: str, order: str, factor: str, total: str, depth: int) -> tuple[PrimFunc, PrimFunc]:
    a, left = ((16, depth), "A[vi, vk]") if order[0] == "n" else ((depth, 16), "A[vk, vi]")
    b, right = ((depth, 8), "B[vk, vj]") if order[1] == "n" else ((8, depth), "B[vj, vk]")
    first, second = (DTYPES[x] for x in MIXED.get(factor, (factor, factor)))
    if first != DTYPES[total]:
        left, right = (f'T.cast({x}, "{DTYPES[total]}")' for x in (left, right))
    return marked(_PRODUCT, f"{kind}k{depth}_{factor}_{total}", a=a, b=b, left=left, right=right, depth=depth,
                 first=first, second=second, total=DTYPES[total])  # fmt: skip


# By name: the description of the instruction, and its implementation.
INTRINSICS = {
    f"{kind}k{depth}_{order}_{factor}_{total}": _product(kind, order, factor, total, depth)
    for kind, products in (("mma_m16n8", PRODUCTS), (f"{WARPGROUP}_m64n8", PRODUCTS[:3]))
    for order in ("nn", "nt", "tn", "tt")
    for factor, total, depth in products
} | {
    (name := f"ldmatrix_16x{columns}_{dtype}"): marked(_LOAD, name, columns=columns, dtype=DTYPES[dtype])
    for dtype, columns in (("f16", 16), ("bf16", 16), ("f32", 8), ("s8", 32), ("u8", 32))
}
