import pytest

from tests.programs import chain, matmul, padded
from tests.schedule.harness import Checked, chain_in_a_block
from tir import te
from tir.ir import If
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def transposed(n: int = 13):
    """B = 2 times the first seven rows after one of A transposed."""
    A = te.placeholder((n, 8), name="A")
    B = te.compute((7, n), lambda i, j: A[j, i + 1] * 2.0, name="B")
    return te.create_prim_func([A, B])


def scaled(n: int = 13):
    """B = A times the first element of A, and C = neighbours of B."""
    A = te.placeholder((n,), name="A")
    F = te.placeholder((1,), name="F")
    B = te.compute((n,), lambda i: A[i] * F[0], name="B")
    C = te.compute((n - 1,), lambda i: B[i] + B[i + 1], name="C")
    return te.create_prim_func([A, F, C])


def gather(n: int = 13):
    """B = A at the places in I."""
    A = te.placeholder((4,), name="A")
    I = te.placeholder((n,), "int32", name="I")
    B = te.compute((n,), lambda i: A[te.maximum(0, te.minimum(I[i], 3))], name="B")
    return te.create_prim_func([A, I, B])


def partial():
    """B = 2 A, but for the last element."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32")):
    for i in range(12):
        with T.block("B"):
            v_i = T.axis.spatial(13, i)
            B[v_i] = A[v_i] * T.float32(2.0)
"""
    )


def row_by_row() -> Checked:
    """C = 3 (A + 1), a row of B = A + 1 at a time."""
    s = Checked(chain())
    s.compute_at("B", "i_1")
    return s


def test_both_sides():
    s = Checked(transposed())
    assert s.reindex("B", ("read", 0)) == "A_reindex"
    assert s.reindex("B", ("write", 0)) == "B_reindex"
    s.becomes("""
        A_reindex = T.alloc_buffer((7, 13))
        B_reindex = T.alloc_buffer((7, 13))
        for ax0, ax1 in T.grid(7, 13):
            ...
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B_reindex[v_i, v_j] = A_reindex[v_i, v_j] * T.float32(2.0)
        for ax0_1, ax1_1 in T.grid(7, 13):
            with T.block("B_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1_1])
                B[v0, v1] = B_reindex[v0, v1]
    """)


def test_a_reduction():
    s = Checked(matmul())
    s.reindex("C", ("read", 1))
    s.reindex("C", "C")
    s.becomes("""
        B_reindex = T.alloc_buffer((13, 5))
        C_reindex = T.alloc_buffer((7, 13))
        for ax0, ax1 in T.grid(13, 5):
            ...
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_reindex[v_i, v_j] = T.float32(0.0)
                C_reindex[v_i, v_j] = C_reindex[v_i, v_j] + A[v_i, v_k] * B_reindex[v_j, v_k]
        for ax0_1, ax1_1 in T.grid(7, 13):
            with T.block("C_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1_1])
                C[v0, v1] = C_reindex[v0, v1]
    """)


def test_a_split_block():
    s = Checked(matmul())
    s.split("i", [None, 4])
    s.reorder("i_0", "j", "i_1", "k")
    s.reindex("C", ("write", 0))
    s.reindex("C", ("read", 0))
    s.becomes("""
        C_reindex = T.alloc_buffer((7, 13))
        A_reindex = T.alloc_buffer((7, 5))
        for ax0_1, ax1_1 in T.grid(7, 5):
            with T.block("A_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1_1])
                A_reindex[v0, v1] = A[v0, v1]
        for i_0, j, i_1, k in T.grid(2, 13, 4, 5):
            with T.block("C"):
                ...
                with T.init():
                    C_reindex[v_i, v_j] = T.float32(0.0)
                C_reindex[v_i, v_j] = C_reindex[v_i, v_j] + A_reindex[v_i, v_k] * B[v_k, v_j]
        for ax0, ax1 in T.grid(7, 13):
            ...
    """)


def test_reading_in_a_shared_loop():
    s = row_by_row()
    s.reindex("C", ("read", 0))
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        B_reindex = T.alloc_buffer((7, 13))
        for i_1 in range(7):
            for ax0 in range(13):
                ...
            for ax0_1 in range(13):
                with T.block("B_reindex"):
                    v0, v1 = T.axis.remap("SS", [i_1, ax0_1])
                    B_reindex[v0, v1] = B[v0, v1]
            for j_1 in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                    C[v_i, v_j] = B_reindex[v_i, v_j] * T.float32(3.0)
    """)


def test_writing_in_a_shared_loop():
    s = row_by_row()
    s.reindex("B", ("write", 0))
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        B_reindex = T.alloc_buffer((7, 13))
        for i_1 in range(7):
            for ax0 in range(13):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0])
                    B_reindex[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            for ax0_1 in range(13):
                with T.block("B_reindex"):
                    v0, v1 = T.axis.remap("SS", [i_1, ax0_1])
                    B[v0, v1] = B_reindex[v0, v1]
            for j_1 in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                    C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_writing_for_a_reader_in_a_shared_loop_and_one_behind_it():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32"), C: T.Buffer((13,), "float32"), D: T.Buffer((13,), "float32")):
    for i in range(13):
        with T.block("B"):
            v = T.axis.spatial(13, i)
            B[v] = A[v] * T.float32(2.0)
        with T.block("C"):
            v = T.axis.spatial(13, i)
            C[v] = B[v] + T.float32(1.0)
    for j in range(13):
        with T.block("D"):
            v = T.axis.spatial(13, j)
            D[v] = B[v]
"""
    )
    s = Checked(func)
    s.reindex("B", ("write", 0))
    s.becomes("""
        B_reindex = T.alloc_buffer((13,))
        for i in range(13):
            with T.block("B"):
                v = T.axis.spatial(13, i)
                B_reindex[v] = A[v] * T.float32(2.0)
            with T.block("B_reindex"):
                v0 = T.axis.spatial(13, i)
                B[v0] = B_reindex[v0]
            with T.block("C"):
        ...
    """)


def test_one_element():
    s = Checked(scaled())
    s.reindex("B", ("read", 1))
    s.becomes("""
        B = T.alloc_buffer((13,))
        F_reindex = T.alloc_buffer((1,))
        with T.block("F_reindex"):
            F_reindex[0] = F[0]
        for i in range(13):
            with T.block("B"):
                v_i = T.axis.spatial(13, i)
                B[v_i] = A[v_i] * F_reindex[0]
        for i_1 in range(12):
            ...
    """)


def test_reindex_cache_read():
    s = Checked(matmul())
    assert s.reindex_cache_read("C", 0, "local", lambda i, j, k: (k // 4, i, k % 4)) == "A_local"
    s.becomes("""
        A_local = T.alloc_buffer((2, 7, 4), scope="local")
        for ax0_1, ax1_1, ax2 in T.grid(2, 7, 4):
            with T.block("A_local"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0_1, ax1_1, ax2])
                A_local[v0, v1, v2] = T.if_then_else(v0 * 4 + v2 < 5, A[v1, v0 * 4 + v2], T.float32(0.0))
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A_local[v_k // 4, v_i, v_k % 4] * B[v_k, v_j]
    """)


def test_reindex_cache_write():
    s = Checked(matmul())
    assert s.reindex_cache_write("C", 0, "local", lambda i, j, k: (j // 4, i, j % 4)) == "C_local"
    s.becomes("""
        C_local = T.alloc_buffer((4, 7, 4), scope="local")
        for ax0_1, ax1_1, ax2 in T.grid(4, 7, 4):
            with T.block("C_local_pad"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0_1, ax1_1, ax2])
                T.where(ax0_1 * 4 + ax2 >= 13)
                C_local[v0, v1, v2] = T.float32(0.0)
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_local[v_j // 4, v_i, v_j % 4] = T.float32(0.0)
                C_local[v_j // 4, v_i, v_j % 4] = C_local[v_j // 4, v_i, v_j % 4] + A[v_i, v_k] * B[v_k, v_j]
        for ax0, ax1 in T.grid(7, 13):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_local[v1 // 4, v0, v1 % 4]
    """)


def test_reindex_cache_read_in_a_shared_loop():
    s = row_by_row()
    s.reindex_cache_read("C", 0, "local", lambda i, j: (j, i))
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        B_local = T.alloc_buffer((13, 7), scope="local")
        for i_1 in range(7):
            for ax0 in range(13):
                ...
            for ax0_1 in range(13):
                with T.block("B_local"):
                    v0, v1 = T.axis.remap("SS", [i_1, ax0_1])
                    B_local[v1, v0] = B[v0, v1]
            for j_1 in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                    C[v_i, v_j] = B_local[v_j, v_i] * T.float32(3.0)
    """)


def test_what_may_be_outside_is_refused():
    s = Checked(padded())
    s.refuses("""
        reindex('P', 'A'): `P` reads `A` at `v_i - 1`, which may be outside of it
            9 |         with T.block("P"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
          hint: cache_read and cache_write copy a buffer as it is
    """)


def test_several_places_are_refused():
    s = Checked(scaled())
    s.refuses("""
        reindex('C', 'B'): `C` accesses `B` at several places: `B[v_i]` and `B[v_i + 1]`
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ uses B
          hint: cache_read and cache_write copy a buffer as it is
    """)


def test_loaded_indices_are_refused():
    s = Checked(gather())
    s.refuses("""
        reindex('B', 'A'): `B` accesses `A` at loaded indices, not at its axes alone
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ uses A
          hint: cache_read and cache_write copy a buffer as it is
    """)


def test_a_reduction_that_reads_its_result_is_refused():
    s = Checked(matmul())
    s.decompose_reduction("C", "k")
    with s.refusal("""
        reindex('C_update', ['read', 0]): `C_update` writes `C` as well as reading it
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ writes C
          hint: reindex('C_update', 'C') is for what it writes
    """):
        s.reindex("C_update", ("read", 0))


def test_another_writer_is_refused():
    s = Checked(matmul())
    s.decompose_reduction("C", "k")
    with s.refusal("""
        reindex('C_init', ['write', 0]): `C_update` writes `C` too, so `C_init` cannot be given a copy to write
            9 |         with T.block("C_init"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ writes C
           10 |             v_i, v_j = T.axis.remap("SS", [i, j])
           11 |             C[v_i, v_j] = T.float32(0.0)
           12 |         for k in range(5):
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ writes C
          hint: do this before decompose_reduction
    """):
        s.reindex("C_init", ("write", 0))


def test_a_domain_that_is_not_covered_is_refused():
    s = Checked(partial())
    with s.refusal("""
        reindex('B', ['write', 0]): it cannot be shown which part of `B` is written by `B`: `v_i` = `i` takes 12 values of 13
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
    """):
        s.reindex("B", ("write", 0))


def test_a_map_of_an_axis_that_does_not_index_is_refused():
    s = Checked(matmul())
    with s.refusal("""
        reindex_cache_read('C', 0, 'local', 'lambda i, j, k: (i, j, k)'): the index map uses `j`, but `v_j` does not index `A`
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ uses A
          hint: leave `j` out of the result of the index map
    """):
        s.reindex_cache_read("C", 0, "local", lambda i, j, k: (i, j, k))


def test_a_map_without_an_axis_is_refused():
    s = Checked(matmul())
    with s.refusal("""
        reindex_cache_write('C', 0, 'local', 'lambda i, j, k: i'): the index map is not one to one: `j`, or a part of it, is missing from the result
          hint: each index, or each part of it, occurs once
    """):
        s.reindex_cache_write("C", 0, "local", lambda i, j, k: i)


@pytest.mark.parametrize("primitive", ["reindex_cache_read", "reindex_cache_write"])
def test_refuses_an_unknown_scope(primitive):
    s = Checked(matmul())
    with s.refusal(f"""
        {primitive}('C', 0, 'locale', 'lambda i, j, k: (i, j)'): no storage scope is named 'locale'; did you mean local? \
there are: global, shared, shared.dyn, shared.swizzled, warp, local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator
    """):
        getattr(s, primitive)("C", 0, "locale", lambda i, j, k: (i, j))


def test_refuses_a_store_that_may_not_be_reached():
    func = matmul()
    (C,) = blocks(func)
    s = Checked(replace_stmt(func, C, C.with_(body=If(C.iters[0].var >= 2, C.body))))
    with s.refusal("""
        reindex('C', ['write', 0]): it cannot be shown which part of `C` is written by `C`: it may not reach its store
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
    """):
        s.reindex("C", ("write", 0))


def gram():
    """C = A · Aᵀ."""
    A = te.placeholder((7, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    return te.create_prim_func([A, te.compute((7, 7), lambda i, j: te.sum(A[i, k] * A[j, k], axis=k), name="C")])


def test_one_of_several_places():
    s = Checked(gram())
    assert s.reindex("C", "A", 1) == "A_reindex"
    s.becomes("""
        A_reindex = T.alloc_buffer((7, 5))
        for ax0, ax1 in T.grid(7, 5):
            with T.block("A_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_reindex[v0, v1] = A[v0, v1]
        for i, j, k in T.grid(7, 7, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * A_reindex[v_j, v_k]
    """)


def test_refuses_places_that_there_are_not():
    Checked(gram()).refuses("""
        reindex('C', 'A', 2): `C` reads `A` at 2 place(s): number 2 does not exist
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ uses A
    """)
    Checked(gram()).refuses("""
        reindex('C', 'C', 0): `C` writes `C`: `place` is for what is read
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes it
    """)


def test_what_an_iteration_of_a_block_reads():
    s = chain_in_a_block()
    s.reindex_cache_read("C", 0, "shared", lambda i, j: (j, i))
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            with T.block("outer_B_C_"):
                v_i_1, v_j_1 = T.axis.remap("SS", [i, j])
                B_shared = T.alloc_buffer((13, 7), scope="shared")
                with T.block("B"):
                    ...
                with T.block("B_shared"):
                    v0 = T.axis.spatial(7, v_i_1)
                    v1 = T.axis.spatial(13, v_j_1)
                    B_shared[v1, v0] = B[v0, v1]
                with T.block("C"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_j_1)
                    C[v_i, v_j] = B_shared[v_j, v_i] * T.float32(3.0)
    """)
