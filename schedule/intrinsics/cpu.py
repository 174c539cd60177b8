"""The tensor intrinsics of CPUs: dot products in the lanes of a vector, and products of small matrices in tile registers (AMX).

A dot product is implemented by a vectorised loop. The LLVM backend makes it one instruction if the processor has that, else
ordinary vector code. A tile product is implemented by the nest of its description, its outer loop annotated with the
instruction. On a processor without AMX the nest runs as written.

    dot_{16x4,8x4,4x4}_{u8s8,s8u8,s8s8,u8u8}  C[lanes] += A[4] * B[lanes, 4] in int32; dot_16x4_vnni is that of u8s8
    dot_{16x4,8x4}_pairs_u8s8             as u8s8, for factors of which the products of each two add up within 16 bits
    dot_{16x2,8x2,4x2}_bf16               C[lanes] += A[2] * B[lanes, 2] in float32
    dot_{16x2,8x2}_s16                    C[lanes] += A[2] * B[lanes, 2] in int32
    fma_16_f32                            C[16] += A[1] * B[16]
    amx_16x16x64_{s8s8,s8u8,u8s8,u8u8}    C[16, 16] += A[16, 64] * B[16, 16, 4] in int32, four steps of the sum side by side in B
    amx_16x16x32_bf16                     C[16, 16] += A[16, 32] * B[16, 16, 2] in float32, two steps side by side
"""

from __future__ import annotations

from tir import dtypes
from tir.ir import PrimFunc
from tir.script import parse

from ..annotation_values import NARROW_PAIRS
from . import marked
from .dots import BYTES, DOTS, letters

_FMA = """
@T.prim_func
def main(A: T.Buffer((1,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in {loop}(16):
        with T.block("{block}"):
            vi = T.axis.spatial(16, i)
            C[vi] = C[vi] + A[0] * B[vi]
"""

_DOT = """
@T.prim_func
def main(A: T.Buffer(({parts},), "{left}"), B: T.Buffer(({lanes}, {parts}), "{right}"), C: T.Buffer(({lanes},), "{total}")):
    for i, k in T.grid({lanes}, {parts}):
        with T.block("update"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.block_attr({attrs})
            C[vi] = C[vi] + T.cast(A[vk], "{total}") * T.cast(B[vi, vk], "{total}")
"""

_DOT_IN_LANES = """
@T.prim_func
def main(A: T.Buffer(({parts},), "{left}"), B: T.Buffer(({lanes}, {parts}), "{right}"), C: T.Buffer(({lanes},), "{total}")):
    for i in T.vectorized({lanes}):
        with T.block("{block}"):
            vi = T.axis.spatial({lanes}, i)
            C[vi] = C[vi] + {products}
"""


def _dot(lanes: int, left: str, right: str, clamps: bool = False):
    """A description and its implementation, which adds in the order of the instruction: of bfloat16 the last product first
    (VDPBF16PS), or the sum of both (BFDOT). With `clamps`, each two products are added as 16 bits with saturation."""
    parts, total = 32 // dtypes.bits(left), "float32" if left == "bfloat16" else "int32"
    order = range(parts)[:: -1 if total == "float32" else 1]
    terms = [f'T.cast(A[{k}], "{total}") * T.cast(B[vi, {k}], "{total}")' for k in order]
    if clamps:
        terms = [f"T.min(T.max({a} + {b}, {-(2**15)}), {2**15 - 1})" for a, b in zip(terms[::2], terms[1::2], strict=True)]
    products = " + ".join(terms)
    if (left, lanes) == ("bfloat16", 4):
        products = f"({products})"
    found = [dot for dot in DOTS if (dot.total, dot.clamps) == (total, clamps) and lanes in dot.features]
    block = min(found, key=lambda dot: ({dot.left, dot.right} != {left, right}, dtypes.bits(dot.left) != dtypes.bits(left))).name
    known = {"lanes": lanes, "left": left, "right": right, "total": total, "parts": parts, "products": products, "block": block}
    known["attrs"] = {NARROW_PAIRS: True} if clamps else {}
    return tuple(parse(text.format(**known)) for text in (_DOT, _DOT_IN_LANES))


_TILE_PRODUCT = """
@T.prim_func
def main(A: T.Buffer((16, {steps}), "{left}"), B: T.Buffer((16, 16, {parts}), "{right}"), C: T.Buffer((16, 16), "{total}")):
    for i in {outer}:
        for j, ko, ki in T.grid(16, 16, {parts}):
            with T.block("tile"):
                vi, vj, vo, vk = T.axis.remap("SSRR", [i, j, ko, ki])
                C[vi, vj] = (
                    C[vi, vj] + T.cast(A[vi, vo * {parts} + vk], "{total}") * T.cast(B[vo, vj, vk], "{total}")
                )
"""


def _tile_product(instruction: str, left: str, right: str, total: str) -> tuple[PrimFunc, PrimFunc]:
    parts = 32 // dtypes.bits(left)
    return marked(_TILE_PRODUCT, instruction, left=left, right=right, total=total, parts=parts, steps=16 * parts)


_BYTES = [(a, b) for a in BYTES for b in BYTES]

# By name: the description of the instruction, and its implementation.
INTRINSICS = {
    "dot_16x4_vnni": _dot(16, "uint8", "int8"),
    "fma_16_f32": tuple(parse(_FMA.format(loop=x, block=b)) for x, b in (("range", "update"), ("T.vectorized", "vfmadd"))),
    "amx_16x16x32_bf16": _tile_product("tdpbf16ps", "bfloat16", "bfloat16", "float32"),
    **{f"amx_16x16x64_{letters(*x)}": _tile_product(f"tdpb{x[0][0]}{x[1][0]}d".replace("i", "s"), *x, "int32") for x in _BYTES},
    **{f"dot_{lanes}x4_pairs_u8s8": _dot(lanes, "uint8", "int8", True) for lanes in (16, 8)},
    **{
        f"dot_{lanes}x{32 // dtypes.bits(x[0])}_{letters(*x)}": _dot(lanes, *x)
        for x in (*_BYTES, ("bfloat16", "bfloat16"), ("int16", "int16"))
        for lanes in (16, 8, 4)
        if lanes > 4 or x[0] != "int16"
    },
}
