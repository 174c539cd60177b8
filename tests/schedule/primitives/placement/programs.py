"""Programs that several tests of this folder schedule."""

from tests.programs import reduction, relu_of_matmul
from tests.schedule.harness import Checked
from tir.script import parse

# Rows of four, of which the last is filled up: `pad` writes the elements from `first` on, `B` the others.
PACKED_BESIDE_PADDING = """
from tir.script import tir as T

@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
    B = T.alloc_buffer((2, 4))
    for i, j in T.grid(2, 4):
        with T.block("pad"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            T.where(i * 4 + j >= {first})
            B[v_i, v_j] = T.float32(0.0)
    for i in range(7):
        with T.block("B"):
            v_i = T.axis.spatial(7, i)
            B[v_i // 4, v_i % 4] = A[v_i] + T.float32(1.0)
    for i in range(7):
        with T.block("C"):
            v_i = T.axis.spatial(7, i)
            C[v_i] = B[v_i // 4, v_i % 4] + B[1, 3]
"""


def differences_of_rows() -> Checked:
    """B = differences of successive rows of A, of which there is one less, and C = 3 B with a row of zeros."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7, 5), "float32")):
    B = T.alloc_buffer((7, 5))
    for i, j in T.grid(7, 5):
        with T.block("B"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            T.where(i * 5 + j < 30)
            B[v_i, v_j] = A[v_i + 1, v_j] - A[v_i, v_j]
    for i, j in T.grid(7, 5):
        with T.block("C"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            C[v_i, v_j] = T.if_then_else(v_i < 6, B[v_i, v_j] * T.float32(3.0), T.float32(0.0))
""")
    return Checked(func)


def partial_results() -> Checked:
    """Sums of 13 in parts of 7, of which the last is cut off."""
    s = Checked(reduction())
    outer, _ = s.split("k", [2, None])
    s.rfactor(outer)
    return s


# Sums of `terms` terms, at every `step` of seven.
SUM_OF_TERMS = """
@T.prim_func
def main(A: T.Buffer((5, 7), "float32"), C: T.Buffer((5,), "float32")):
    B = T.alloc_buffer((7,))
    for i in range(5):
        for k in range({terms}):
            with T.block("B"):
                v_i = T.axis.spatial(7, i)
                v_k = T.axis.reduce(7, {step}k)
                with T.init():
                    B[v_i] = 0.0
                B[v_i] = B[v_i] + A[v_i, v_k]
    for i in range(5):
        with T.block("C"):
            v_i = T.axis.spatial(5, i)
            C[v_i] = B[v_i] * 3.0
"""


def tiled_relu_of_matmul() -> Checked:
    """`relu_of_matmul` with all loops of the product in tiles, which don't divide."""
    s = Checked(relu_of_matmul())
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 4])
    jo, ji = s.split(j, [None, 5])
    ko, ki = s.split(k, [None, 2])
    s.reorder(io, jo, ko, ii, ki, ji)
    return s
