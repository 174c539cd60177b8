import pytest

from tests.programs import chain, matmul
from tests.schedule.harness import Checked
from tir import te
from tir.script import parse


def biased(value=lambda x, b: x + b, transposed: bool = False, dtype: str = "float32"):
    """D = value(A · B, bias)."""
    A = te.placeholder((7, 5), dtype, name="A")
    B = te.placeholder((5, 13), dtype, name="B")
    bias = te.placeholder((13,), dtype, name="bias")
    r = te.reduce_axis((0, 5), name="k")
    C = te.compute((7, 13), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    if transposed:
        D = te.compute((13, 7), lambda j, i: value(C[i, j], bias[j]), name="D")
    else:
        D = te.compute((7, 13), lambda i, j: value(C[i, j], bias[j]), name="D")
    return te.create_prim_func([A, B, bias, D])


def largest():
    """D = the largest of each row of A and a bound."""
    A = te.placeholder((7, 5), name="A")
    bound = te.placeholder((1,), name="bound")
    r = te.reduce_axis((0, 5), name="k")
    C = te.compute((7,), lambda i: te.max(A[i, r], axis=r), name="C")
    D = te.compute((7,), lambda i: te.maximum(bound[0], C[i]), name="D")
    return te.create_prim_func([A, bound, D])


def shared():
    """Two blocks read a row sum."""
    A = te.placeholder((7, 5), name="A")
    r = te.reduce_axis((0, 5), name="k")
    C = te.compute((7,), lambda i: te.sum(A[i, r], axis=r), name="C")
    D = te.compute((7,), lambda i: C[i] + 1.0, name="D")
    E = te.compute((7,), lambda i: C[i] + 2.0, name="E")
    return te.create_prim_func([A, D, E])


def spread():
    """Each row sum is used for several elements."""
    A = te.placeholder((7, 5), name="A")
    r = te.reduce_axis((0, 5), name="k")
    C = te.compute((7,), lambda i: te.sum(A[i, r], axis=r), name="C")
    D = te.compute((7, 13), lambda i, j: C[i] + 1.0, name="D")
    return te.create_prim_func([A, D])


def part():
    """Not all row sums are used."""
    A = te.placeholder((7, 5), name="A")
    r = te.reduce_axis((0, 5), name="k")
    C = te.compute((7,), lambda i: te.sum(A[i, r], axis=r), name="C")
    D = te.compute((6,), lambda i: C[i] + 1.0, name="D")
    return te.create_prim_func([A, D])


def late_bias():
    """The bias is made between the reduction and the epilogue."""
    A = te.placeholder((7, 5), name="A")
    B = te.placeholder((7,), name="B")
    r = te.reduce_axis((0, 5), name="k")
    C = te.compute((7,), lambda i: te.sum(A[i, r], axis=r), name="C")
    bias = te.compute((7,), lambda i: B[i] * 2.0, name="bias")
    D = te.compute((7,), lambda i: C[i] + bias[i], name="D")
    return te.create_prim_func([A, B, D])


def old_contents():
    """D is read before the epilogue writes it."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), D: T.Buffer((7,), "float32"), E: T.Buffer((7,), "float32")):
    C = T.alloc_buffer((7,))
    for i, k in T.grid(7, 5):
        with T.block("C"):
            v_i, v_k = T.axis.remap("SR", [i, k])
            with T.init():
                C[v_i] = T.float32(0.0)
            C[v_i] = C[v_i] + A[v_i, v_k]
    for i_1 in range(7):
        with T.block("E"):
            v_i = T.axis.spatial(7, i_1)
            E[v_i] = D[v_i]
    for i_2 in range(7):
        with T.block("D"):
            v_i = T.axis.spatial(7, i_2)
            D[v_i] = C[v_i] + T.float32(1.0)
"""
    )


@pytest.mark.parametrize(("func", "at", "init"), [
    (biased(), "v_i, v_j", "bias[v_j]"),
    (biased(lambda x, b: 2.0 + (x - b) + b), "v_i, v_j", "-bias[v_j] + T.float32(2.0) + bias[v_j]"),
    (biased(transposed=True), "v_j, v_i", "bias[v_j]"),
    (biased(dtype="int32"), "v_i, v_j", "bias[v_j]"),
    (biased(lambda x, b: x), "v_i, v_j", "T.float32(0.0)"),
], ids=["a bias", "several terms", "a transposed output", "integers", "a copy"])  # fmt: skip
def test_what_the_init_becomes(func, at, init):
    s = Checked(func)
    s.fuse_reduction_epilogue("C", "D")
    s.becomes(f"""
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    D[{at}] = {init}
                D[{at}] = D[{at}] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_a_maximum():
    s = Checked(largest())
    s.fuse_reduction_epilogue("C", "D")
    s.becomes("""
        for i, k in T.grid(7, 5):
            with T.block("C"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    D[v_i] = T.max(T.float32("-inf"), bound[0])
                D[v_i] = T.max(D[v_i], A[v_i, v_k])
    """)


def test_tiled():
    s = Checked(biased())
    s.split("i", [None, 4])
    s.reorder("i_0", "j", "k", "i_1_1")
    s.split("j_1", [None, 5])
    s.fuse_reduction_epilogue("C", "D")
    s.becomes("""
        for i_0, j, k, i_1_1 in T.grid(2, 13, 5, 4):
            with T.block("C"):
                ...
                with T.init():
                    D[v_i, v_j] = bias[v_j]
                D[v_i, v_j] = D[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_in_a_loop_with_the_reduction():
    s = Checked(biased())
    s.reverse_compute_at("D", "i")
    s.fuse_reduction_epilogue("C", "D")
    s.becomes("""
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    D[v_i, v_j] = bias[v_j]
                D[v_i, v_j] = D[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_another_operation_is_refused():
    s = Checked(biased(lambda x, b: x * b))
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `D` does not just combine `C` with something by `+`, as the reduction does
           16 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ the epilogue
          hint: reverse_compute_at('D', ...) runs it right after the reduction
    """)


def test_a_result_used_twice_is_refused():
    s = Checked(biased(lambda x, b: x + x))
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `D` does not just combine `C` with something by `+`, as the reduction does
           16 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ the epilogue
          hint: reverse_compute_at('D', ...) runs it right after the reduction
    """)


def test_another_reader_is_refused():
    s = Checked(shared())
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `E` reads `C` too
           20 |         with T.block("E"):
              |         ^^^^^^^^^^^^^^^^^^ reads C
          hint: reverse_compute_at('D', ...) runs it right after the reduction
    """)


def test_a_result_used_for_several_elements_is_refused():
    s = Checked(spread())
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `D` uses each result for several values of `v_j`
           16 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ the epilogue
          hint: reverse_compute_at('D', ...) runs it right after the reduction
    """)


def test_a_part_of_the_result_is_refused():
    s = Checked(part())
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `D` does not read each element of the result of `C` once, at `v_i`
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the reduction
              ...
           16 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ the epilogue
          hint: reverse_compute_at('D', ...) runs it right after the reduction
    """)


def test_what_is_made_in_between_is_refused():
    s = Checked(late_bias())
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `bias` writes `bias`, which `D` reads
           17 |         with T.block("bias"):
              |         ^^^^^^^^^^^^^^^^^^^^^ writes bias
           18 |             v_i = T.axis.spatial(7, i_1)
           19 |             bias[v_i] = B[v_i] * T.float32(2.0)
           20 |     for i_2 in range(7):
           21 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ reads bias
          hint: move `bias` before `C` first
    """)


def test_old_contents_that_are_needed_are_refused():
    s = Checked(old_contents())
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `E` uses `D`, which `D` writes
           15 |         with T.block("E"):
              |         ^^^^^^^^^^^^^^^^^^ uses D
           16 |             v_i = T.axis.spatial(7, i_1)
           17 |             E[v_i] = D[v_i]
           18 |     for i_2 in range(7):
           19 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ writes D
          hint: move `E` before `C` or after `D` first
    """)


def test_another_type_is_refused():
    s = Checked(biased(lambda x, b: x.astype("float64")))
    s.refuses("""
        fuse_reduction_epilogue('C', 'D'): `D` holds float64, and `C` float32
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the reduction
              ...
           16 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ the epilogue
          hint: reverse_compute_at('D', ...) runs it right after the reduction
    """)


def test_what_is_no_reduction_is_refused():
    s = Checked(chain())
    s.refuses("""
        fuse_reduction_epilogue('B', 'C'): `B` is not a reduction by +, *, min, max, and, or, with its init
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: name the block that reduces first
    """)


def test_what_is_no_epilogue_is_refused():
    s = Checked(biased())
    s.cache_read("C", 0, "local")
    s.refuses("""
        fuse_reduction_epilogue('C', 'A_local'): `D` reads `C` too
           21 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ reads C
          hint: reverse_compute_at('A_local', ...) runs it right after the reduction
    """)


def test_a_parameter_is_refused():
    s = Checked(matmul())
    s.refuses("""
        fuse_reduction_epilogue('C', 'C'): `C` is a parameter of the function, so `C` cannot be fused with an epilogue
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: cache_write('C', 'C', 'global') first: `C` then writes a temporary
    """)
