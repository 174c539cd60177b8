import numpy as np
import pytest

from schedule import IndexMap, Schedule, ScheduleError, replay
from tests.programs import chain, matmul
from tests.schedule.harness import Checked, well_formed
from tir import te
from tir.interpreter import run


def doubled(n: int = 13):
    """C = B + 1 for int32 B = 2 A, A read backwards."""
    A = te.placeholder((n,), "int32", name="A")
    B = te.compute((n,), lambda i: A[n - 1 - i] * 2, name="B")
    C = te.compute((n,), lambda i: B[i] + 1, name="C")
    return te.create_prim_func([A, C])


def symbolic():
    """C = 3 (A + 1), the number of rows given at the call."""
    n = te.var("n")
    A = te.placeholder((n, 13), name="A")
    B = te.compute((n, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((n, 13), lambda i, j: B[i, j] * 3.0, name="C")
    return te.create_prim_func([A, C, n])


@pytest.mark.parametrize(
    ("buffer", "index_map"),
    [(("read", 0), lambda i, j: (j, i)), ("B", "lambda i, j: (j, i)"), (("read", 0), IndexMap.identity(2).permute(1, 0))],
    ids=["a function", "text", "an IndexMap"],
)
def test_transposed(buffer, index_map):
    s = Checked(chain())
    s.transform_layout("C", buffer, index_map)
    s.becomes("""
        B = T.alloc_buffer((13, 7))
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_j, v_i] = A[v_i, v_j] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_j, v_i] * T.float32(3.0)
    """)


def test_a_tile_that_divides_needs_no_padding():
    s = Checked(matmul(8, 5, 13))
    s.cache_write("C", 0, "global")
    s.transform_layout("C", ("write", 0), lambda i, j: (i // 4, j, i % 4))
    s.becomes("""
        C_global = T.alloc_buffer((2, 13, 4))
        for i, j, k in T.grid(8, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_global[v_i // 4, v_j, v_i % 4] = T.float32(0.0)
                C_global[v_i // 4, v_j, v_i % 4] = C_global[v_i // 4, v_j, v_i % 4] + A[v_i, v_k] * B[v_k, v_j]
        for ax0, ax1 in T.grid(8, 13):
            with T.block("C_global"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_global[v0 // 4, v1, v0 % 4]
    """)


def test_the_producer_pads():
    s = Checked(chain())
    s.transform_layout("B", ("write", 0), lambda *i: (i[1] // 4, i[0], i[1] % 4), pad_value=0)
    s.becomes("""
        B = T.alloc_buffer((4, 7, 4))
        for ax0, ax1, ax2 in T.grid(4, 7, 4):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[v0, v1, v2] = T.if_then_else(v0 * 4 + v2 < 13, A[v1, v0 * 4 + v2] + T.float32(1.0), T.float32(0.0))
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_j // 4, v_i, v_j % 4] * T.float32(3.0)
    """)


def test_the_producer_keeps_its_loops_where_nothing_is_padded():
    s = Checked(chain())
    s.transform_layout("C", "B", lambda i, j: i * 13 + j)
    s.becomes("""
        B = T.alloc_buffer((91,))
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i * 13 + v_j] = A[v_i, v_j] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_i * 13 + v_j] * T.float32(3.0)
    """)


def test_a_sum_that_counts_is_divided():
    s = Checked(chain())
    s.transform_layout("C", "B", lambda i, j: ((i * 13 + j) // 8, (i * 13 + j) % 8), pad_value=2)
    s.becomes("""
        B = T.alloc_buffer((12, 8))
        for ax0, ax1 in T.grid(12, 8):
            with T.block("B"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0, v1] = T.if_then_else(v0 * 8 + v1 < 91, A[(v0 * 8 + v1) // 13, (v0 * 8 + v1) % 13] + T.float32(1.0), T.float32(2.0))
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[(v_i * 13 + v_j) // 8, (v_i * 13 + v_j) % 8] * T.float32(3.0)
    """)


def test_a_tile_of_two_dimensions():
    s = Checked(chain())
    s.transform_layout("C", "B", lambda i, j: (i // 2, j // 4, i % 2 * 4 + j % 4), pad_value=-1.5)
    s.becomes("""
        B = T.alloc_buffer((4, 4, 8))
        for ax0, ax1, ax2 in T.grid(4, 4, 8):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[v0, v1, v2] = T.if_then_else(v0 * 2 + v2 // 4 < 7 and v1 * 4 + v2 % 4 < 13, A[v0 * 2 + v2 // 4, v1 * 4 + v2 % 4] + T.float32(1.0), T.float32(-1.5))
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_i // 2, v_j // 4, v_i % 2 * 4 + v_j % 4] * T.float32(3.0)
    """)


def test_a_block_of_its_own_pads_what_a_reduction_makes():
    s = Checked(matmul())
    s.cache_write("C", 0, "local")
    s.transform_layout("C", "C_local", lambda i, j: (i // 4, j // 8, i % 4, j % 8), 0)
    s.becomes("""
        C_local = T.alloc_buffer((2, 2, 4, 8), scope="local")
        for ax0_1, ax1_1, ax2, ax3 in T.grid(2, 2, 4, 8):
            with T.block("C_local_pad"):
                v0, v1, v2, v3 = T.axis.remap("SSSS", [ax0_1, ax1_1, ax2, ax3])
                T.where(ax0_1 * 4 + ax2 >= 7 or ax1_1 * 8 + ax3 >= 13)
                C_local[v0, v1, v2, v3] = T.float32(0.0)
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_local[v_i // 4, v_j // 8, v_i % 4, v_j % 8] = T.float32(0.0)
                C_local[v_i // 4, v_j // 8, v_i % 4, v_j % 8] = C_local[v_i // 4, v_j // 8, v_i % 4, v_j % 8] + A[v_i, v_k] * B[v_k, v_j]
        for ax0, ax1 in T.grid(7, 13):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_local[v0 // 4, v1 // 8, v0 % 4, v1 % 8]
    """)


def test_a_block_of_its_own_pads_where_loops_are_shared():
    s = Checked(chain())
    s.compute_at("B", s.get_loops("C")[0])
    s.transform_layout("C", "B", lambda i, j: (i, j // 4, j % 4), 0)
    s.becomes("""
        B = T.alloc_buffer((7, 4, 4))
        for ax0_1, ax1, ax2 in T.grid(7, 4, 4):
            with T.block("B_pad"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0_1, ax1, ax2])
                T.where(ax1 * 4 + ax2 >= 13)
                B[v0, v1, v2] = T.float32(0.0)
        for i_1 in range(7):
            for ax0 in range(13):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0])
                    B[v_i, v_j // 4, v_j % 4] = A[v_i, v_j] + T.float32(1.0)
            for j_1 in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                    C[v_i, v_j] = B[v_i, v_j // 4, v_j % 4] * T.float32(3.0)
    """)


def test_integers():
    s = Checked(doubled())
    s.transform_layout("B", ("write", 0), lambda i: (i // 4 % 2, i // 8, i % 4), pad_value=7)
    s.becomes("""
        B = T.alloc_buffer((2, 2, 4), "int32")
        for ax0, ax1, ax2 in T.grid(2, 2, 4):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[v0, v1, v2] = T.if_then_else(v1 * 8 + v0 * 4 + v2 < 13, A[12 - v1 * 8 - v0 * 4 - v2] * 2, 7)
        for i_1 in range(13):
            with T.block("C"):
                v_i = T.axis.spatial(13, i_1)
                C[v_i] = B[v_i // 4 % 2, v_i // 8, v_i % 4] + 1
    """)


def test_a_symbolic_extent():
    s = Checked(symbolic())
    s.transform_layout("C", "B", lambda i, j: (j, i // 4, i % 4), pad_value=0)
    s.becomes(
        """
        B = T.alloc_buffer((13, (n + 3) // 4, 4))
        for ax0, ax1, ax2 in T.grid(13, (n + 3) // 4, 4):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[v0, v1, v2] = T.if_then_else(v1 * 4 + v2 < n, A[v1 * 4 + v2, v0] + T.float32(1.0), T.float32(0.0))
        for i_1, j_1 in T.grid(n, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_j, v_i // 4, v_i % 4] * T.float32(3.0)
        """,
        sizes={"n": 7},
    )


def test_indices_are_simplified():
    s = Checked(chain())
    s.split(s.get_loops("C")[1], [None, 4])
    s.transform_layout("C", "B", lambda i, j: (j // 13, i, j % 13))
    s.becomes("""
        B = T.alloc_buffer((1, 7, 13))
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[0, v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        for i_1, j_1_0, j_1_1 in T.grid(7, 4, 4):
            with T.block("C"):
                v_i = T.axis.spatial(7, i_1)
                v_j = T.axis.spatial(13, j_1_0 * 4 + j_1_1)
                T.where(j_1_0 * 4 + j_1_1 < 13)
                C[v_i, v_j] = B[0, v_i, v_j] * T.float32(3.0)
    """)


def test_a_parameter_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', ['write', 0], 'lambda i, j: (j, i)'): `C` is a parameter of the function, and its layout is the caller's
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ uses C
          hint: cache_write makes a copy whose layout is free, and of_caller=True changes what is passed
    """):
        s.transform_layout("C", ("write", 0), lambda i, j: (j, i))


def test_an_input_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('B', 'A', 'lambda i, j: (j, i)'): `A` is a parameter of the function, and its layout is the caller's
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ uses A
          hint: cache_read makes a copy whose layout is free, and of_caller=True changes what is passed
    """):
        s.transform_layout("B", "A", lambda i, j: (j, i))


def test_padding_without_a_value_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: (i, j // 4, j % 4)'): the index map pads `B`, but `pad_value` is None
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ uses B
          hint: pad_value=0
    """):
        s.transform_layout("C", "B", lambda i, j: (i, j // 4, j % 4))


def test_a_value_of_another_type_is_refused():
    s = Checked(doubled())
    with s.refusal("""
        transform_layout('B', ['write', 0], 'lambda i: (i // 4, i % 4)', 0.5): `B` holds int32, and cannot be padded with 0.5
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ uses B
          hint: pad_value is a number that int32 holds, such as 0
    """):
        s.transform_layout("B", ("write", 0), lambda i: (i // 4, i % 4), pad_value=0.5)


def test_a_part_that_is_missing_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: (i, j // 4)'): the index map is not one to one: `j`, or a part of it, is missing from the result
          hint: each index, or each part of it, occurs once
    """):
        s.transform_layout("C", "B", lambda i, j: (i, j // 4))


def test_a_part_that_occurs_twice_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: (i, j, i)'): the index map is not one to one: `i`, or a part of it, occurs twice in the result
          hint: each index, or each part of it, occurs once
    """):
        s.transform_layout("C", "B", lambda i, j: (i, j, i))


def test_cuts_that_do_not_fit_are_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: (i, j // 4, j % 6)'): the index map divides `j` by 4 and 6, neither a multiple of the other
          hint: divide `j` by numbers each a multiple of the one before, as 4 and 8
    """):
        s.transform_layout("C", "B", lambda i, j: (i, j // 4, j % 6))


def test_a_sum_that_does_not_count_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: i * 12 + j'): the index map cannot be shown to be one to one: `i * 12 + j` is not a sum of indices, their quotients and remainders, in mixed radix
          hint: an index goes whole or divided by constants: lambda i, j: (i // 4, j, i % 4)
    """):
        s.transform_layout("C", "B", lambda i, j: i * 12 + j)


def test_a_divided_sum_that_does_not_count_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: ((i * 12 + j) // 4, (i * 12 + j) % 4)'): the index map cannot be shown to be one to one: `(i * 12 + j) // 4` is not a sum of indices, their quotients and remainders, in mixed radix
          hint: an index goes whole or divided by constants: lambda i, j: (i // 4, j, i % 4)
    """):
        s.transform_layout("C", "B", lambda i, j: ((i * 12 + j) // 4, (i * 12 + j) % 4))


def test_an_index_in_a_sum_and_elsewhere_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: ((i * 13 + j) // 4, (i * 13 + j) % 4, j)'): the index map cannot be shown to be one to one: `j` occurs in a sum and elsewhere too
          hint: an index goes whole or divided by constants: lambda i, j: (i // 4, j, i % 4)
    """):
        s.transform_layout("C", "B", lambda i, j: ((i * 13 + j) // 4, (i * 13 + j) % 4, j))


def test_an_index_that_runs_backwards():
    s = Checked(chain())
    s.transform_layout("C", "B", lambda i, j: (6 - i, j))
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[6 - v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[6 - v_i, v_j] * T.float32(3.0)
    """)


def test_an_index_that_starts_later_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: (i + 1, j)'): the index map cannot be shown to be one to one: `i + 1` is not a sum of indices, their quotients and remainders, in mixed radix
          hint: an index goes whole or divided by constants: lambda i, j: (i // 4, j, i % 4)
    """):
        s.transform_layout("C", "B", lambda i, j: (i + 1, j))


def test_the_wrong_number_of_indices_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i: i'): the index map 'lambda i: i' takes 1 indices, and there are 2
          hint: lambda i0, i1: ...
    """):
        s.transform_layout("C", "B", lambda i: i)


def test_what_is_no_index_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', ...): the index map cannot be applied to `i, j`: `/` needs floating operands, got int32 in `i / 2`; use // or .astype('float32')
    """):
        s.transform_layout("C", "B", lambda i, j: (i / 2, j))


def test_no_index_at_all_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', 'lambda i, j: ()'): the index map gives no index
          hint: lambda i, j: (j, i)
    """):
        s.transform_layout("C", "B", lambda i, j: ())


def test_a_text_that_is_no_map_is_refused():
    s = Checked(chain())
    s.refuses("""
        transform_layout('C', 'B', 'i, j'): an index map is a function such as 'lambda i, j: (j, i)', got 'i, j'
    """)


def test_a_text_that_is_not_python_is_refused():
    s = Checked(chain())
    s.refuses("""
        transform_layout('C', 'B', 'lambda i j: i'): the index map 'lambda i j: i' is not Python: invalid syntax
          hint: lambda i, j: (j, i)
    """)


def test_a_text_that_would_take_long_is_refused():
    s = Checked(chain())
    s.refuses("""
        transform_layout('C', 'B', 'lambda i, j: (j, i + 9**9**9)'): the index map 'lambda i, j: (j, i + 9**9**9)' cannot be evaluated: \
a number of more than 1024 bits
    """)
    for deep in ("-" * 20_000 + "i", "i+" * 20_000 + "i"):
        with pytest.raises(ScheduleError, match=r"nested too deeply|recursion depth"):
            s.transform_layout("C", "B", f"lambda i, j: (j, {deep})")


def test_a_text_with_an_unknown_name_is_refused():
    s = Checked(chain())
    s.refuses("""
        transform_layout('C', 'B', 'lambda i, j: (i, k)'): the index map 'lambda i, j: (i, k)' cannot be evaluated: `k` is not defined
    """)


def test_what_is_no_map_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'B', ...): an index map is a function such as `lambda i, j: (j, i)`, or its text, got 3
    """):
        s.transform_layout("C", "B", 3)


def test_a_buffer_that_is_not_there_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', 'A', 'lambda i, j: (j, i)'): `C` uses no buffer called `A`, but `C` and `B`
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ here
    """):
        s.transform_layout("C", "A", lambda i, j: (j, i))


def test_a_number_that_is_not_there_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', ['read', 1], 'lambda i, j: (j, i)'): `C` reads 1 buffer(s), `B`: number 1 does not exist
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: numbers start at 0; a name does as well
    """):
        s.transform_layout("C", ("read", 1), lambda i, j: (j, i))


def test_another_kind_of_access_is_refused():
    s = Checked(chain())
    with s.refusal("""
        transform_layout('C', ['update', 0], 'lambda i, j: (j, i)'): a buffer is ("read", number), ("write", number) or a name, got ['update', 0]
    """):
        s.transform_layout("C", ("update", 0), lambda i, j: (j, i))


def test_axes_of_one_value_may_stay():
    A = te.placeholder((1, 12), name="A")
    B = te.compute((1, 12), lambda n, i: A[n, i] + 1.0, name="B")
    s = Checked(te.create_prim_func([A, te.compute((1, 12), lambda n, i: B[n, i] * 2.0, name="C")]))
    s.transform_layout("B", ("write", 0), lambda n, i: (n, i // 4, i % 4), preserve_unit_iters=True)
    assert "C[v_n, v_i] = B[v_n, v_i // 4, v_i % 4] * T.float32(2.0)" in s.script


def test_padding_is_a_function_of_the_new_indices():
    s = Checked(chain())
    s.transform_layout("B", ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=lambda i, *rest: i + rest[1])
    s.becomes("""
        B = T.alloc_buffer((2, 13, 4))
        for ax0, ax1, ax2 in T.grid(2, 13, 4):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[v0, v1, v2] = T.if_then_else(v0 * 4 + v2 < 7, A[v0 * 4 + v2, v1] + T.float32(1.0), T.Cast("float32", v0 + v2))
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_i // 4, v_j, v_i % 4] * T.float32(3.0)
    """)
    assert "'lambda i, rest0, rest1: i + rest1'" in str(s.trace)


def test_a_parameter_in_another_layout():
    s = Schedule(chain())
    s.transform_layout("B", ("read", 0), lambda i, j: (i // 4, j, i % 4), of_caller=True)
    s.transform_layout("C", ("write", 0), lambda i, j: (j, i), of_caller=True)
    assert [tuple(map(str, b.shape)) for b in s.func.buffers] == [("2", "13", "4"), ("13", "7")]
    well_formed(s.func)
    a, c = np.arange(8 * 13, dtype="float32"), np.zeros((13, 7), "float32")
    run(s.func, a.reshape(2, 13, 4), c)
    rows = a.reshape(2, 13, 4).transpose(0, 2, 1).reshape(8, 13)[:7]
    assert (c == ((rows + 1) * 3).T).all()
    assert replay(chain(), s.trace).script == s.script
