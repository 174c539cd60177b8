"""The tensor intrinsics of CPUs. Each implementation is a vectorised loop: the LLVM backend makes it one instruction where the
processor has that, and ordinary vector code elsewhere."""

# The functions below are read as scripts.
# mypy: disable-error-code="valid-type"

from tir.script import tir as T


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


# By name: what the instruction computes, and the loop that is put in its place.
INTRINSICS = {
    "dot_16x4_vnni": (dot_16x4_desc, dot_16x4_impl),
    "dot_16x2_bf16": (dot_16x2_desc, dot_16x2_impl),
    "fma_16_f32": (fma_16_desc, fma_16_impl),
}
