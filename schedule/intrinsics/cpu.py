"""The tensor intrinsics of CPUs: dot products in the lanes of a vector, and products of small matrices in tile registers (AMX).

The implementation of the former is a vectorised loop, which the LLVM backend makes one instruction where the processor has that,
and ordinary vector code elsewhere. That of the latter is the nest of its description, whose outer loop is annotated with the
instruction; where the processor has none, the nest runs as it is.

    amx_16x16x64_{s8s8,s8u8,u8s8,u8u8}    C[16, 16] += A[16, 64] * B[16, 16, 4] in int32, four steps of the sum side by side in B
    amx_16x16x32_bf16                     C[16, 16] += A[16, 32] * B[16, 16, 2] in float32, two steps side by side
"""

# The functions below are read as scripts.
# mypy: disable-error-code="valid-type"

from tir import dtypes
from tir.script import parse
from tir.script import tir as T

from . import INSTRUCTION


@T.prim_func
def dot_16x4_desc(A: T.Buffer((4,), "uint8"), B: T.Buffer((16, 4), "int8"), C: T.Buffer((16,), "int32")):
    for i, k in T.grid(16, 4):
        with T.block("update"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")


@T.prim_func
def dot_16x4_impl(A: T.Buffer((4,), "uint8"), B: T.Buffer((16, 4), "int8"), C: T.Buffer((16,), "int32")):
    for i in T.vectorized(16):
        with T.block("vpdpbusd"):
            vi = T.axis.spatial(16, i)
            C[vi] = (
                C[vi]
                + T.cast(A[0], "int32") * T.cast(B[vi, 0], "int32")
                + T.cast(A[1], "int32") * T.cast(B[vi, 1], "int32")
                + T.cast(A[2], "int32") * T.cast(B[vi, 2], "int32")
                + T.cast(A[3], "int32") * T.cast(B[vi, 3], "int32")
            )


@T.prim_func
def dot_16x2_desc(A: T.Buffer((2,), "bfloat16"), B: T.Buffer((16, 2), "bfloat16"), C: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 2):
        with T.block("update"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + T.cast(A[vk], "float32") * T.cast(B[vi, vk], "float32")


@T.prim_func
def dot_16x2_impl(A: T.Buffer((2,), "bfloat16"), B: T.Buffer((16, 2), "bfloat16"), C: T.Buffer((16,), "float32")):
    for i in T.vectorized(16):
        with T.block("vdpbf16ps"):
            vi = T.axis.spatial(16, i)
            C[vi] = (
                C[vi]
                + T.cast(A[1], "float32") * T.cast(B[vi, 1], "float32")
                + T.cast(A[0], "float32") * T.cast(B[vi, 0], "float32")
            )


@T.prim_func
def fma_16_desc(A: T.Buffer((1,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("update"):
            vi = T.axis.spatial(16, i)
            C[vi] = C[vi] + A[0] * B[vi]


@T.prim_func
def fma_16_impl(A: T.Buffer((1,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in T.vectorized(16):
        with T.block("vfmadd"):
            vi = T.axis.spatial(16, i)
            C[vi] = C[vi] + A[0] * B[vi]


_TILE_PRODUCT = """
@T.prim_func
def main(A: T.Buffer((16, {steps}), "{left}"), B: T.Buffer((16, 16, {parts}), "{right}"), C: T.Buffer((16, 16), "{total}")):
    for i in {rows}:
        for j, ko, ki in T.grid(16, 16, {parts}):
            with T.block("tile"):
                vi, vj, vo, vk = T.axis.remap("SSRR", [i, j, ko, ki])
                C[vi, vj] = (
                    C[vi, vj] + T.cast(A[vi, vo * {parts} + vk], "{total}") * T.cast(B[vo, vj, vk], "{total}")
                )
"""


def _tile_product(instruction: str, left: str, right: str, total: str):
    """A description and its implementation."""
    rows = "range(16)", f'T.serial(16, annotations={{"{INSTRUCTION}": "{instruction}"}})'
    parts = 32 // dtypes.bits(left)
    return tuple(
        parse(_TILE_PRODUCT.format(rows=r, left=left, right=right, total=total, parts=parts, steps=16 * parts)) for r in rows
    )


# By name: what the instruction computes, and the loop that is put in its place.
INTRINSICS = {
    "dot_16x4_vnni": (dot_16x4_desc, dot_16x4_impl),
    "dot_16x2_bf16": (dot_16x2_desc, dot_16x2_impl),
    "fma_16_f32": (fma_16_desc, fma_16_impl),
    "amx_16x16x64_s8s8": _tile_product("tdpbssd", "int8", "int8", "int32"),
    "amx_16x16x64_s8u8": _tile_product("tdpbsud", "int8", "uint8", "int32"),
    "amx_16x16x64_u8s8": _tile_product("tdpbusd", "uint8", "int8", "int32"),
    "amx_16x16x64_u8u8": _tile_product("tdpbuud", "uint8", "uint8", "int32"),
    "amx_16x16x32_bf16": _tile_product("tdpbf16ps", "bfloat16", "bfloat16", "float32"),
}
