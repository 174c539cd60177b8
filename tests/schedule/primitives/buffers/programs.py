"""Programs that several tests of this folder schedule."""

# A copy of 13 elements, of which nine are read.
READ_IN_PART = """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((9,), "float32")):
    X = T.alloc_buffer((13,))
    for i in range(13):
        with T.block("X"):
            v_i = T.axis.spatial(13, i)
            X[v_i] = A[v_i]
    for i_1 in range(9):
        with T.block("B"):
            v_i = T.axis.spatial(9, i_1)
            B[v_i] = X[v_i + 2]
"""
