"""Programs that tests of several primitives take apart."""

# Sums that take each other's places, in the order of the opaque axis, before which they are read.
IN_TURN = """
@T.prim_func
def main(A: T.Buffer((4, 3, 6), "float32"), E: T.Buffer((4, 3), "float32")):
    S = T.alloc_buffer((4, 2))
    for i, j in T.grid(4, 3):
        for k in range(6):
            with T.block("S"):
                v_i, v_j, v_k = T.axis.remap("SOR", [i, j, k])
                with T.init():
                    S[v_i, v_j % 2] = T.float32(0.0)
                S[v_i, v_j % 2] = S[v_i, v_j % 2] + A[v_i, v_j, v_k]
        with T.block("E"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            E[v_i, v_j] = S[v_i, v_j % 2]
"""
