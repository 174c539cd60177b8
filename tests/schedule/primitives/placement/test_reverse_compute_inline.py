from tests.programs import chain, relu_of_matmul, stencil, sums_of_chain
from tests.schedule.harness import Checked
from tir import te


def test_chain():
    s = Checked(chain())
    assert s.reverse_compute_inline("C") is None
    s.becomes("""
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i, v_j] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(3.0)
    """)


def test_transposed_with_another_input():
    A, E = te.placeholder((7, 13), name="A"), te.placeholder((13,), name="E")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((13, 7), lambda i, j: B[j, i] * E[i] + te.maximum(B[j, i], 0.0), name="C")
    s = Checked(te.create_prim_func([A, E, C]))
    s.split("j", [None, 4])
    s.reverse_compute_inline("C")
    s.becomes("""
        for i, j_0, j_1_1 in T.grid(7, 4, 4):
            with T.block("B"):
                v_i = T.axis.spatial(7, i)
                v_j = T.axis.spatial(13, j_0 * 4 + j_1_1)
                T.where(j_0 * 4 + j_1_1 < 13)
                C[v_j, v_i] = (A[v_i, v_j] + T.float32(1.0)) * E[v_j] + T.max(A[v_i, v_j] + T.float32(1.0), T.float32(0.0))
    """)


def test_only_a_part_is_used():
    A = te.placeholder((13,), name="A")
    B = te.compute((13,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i + 2] * 3.0, name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.reverse_compute_inline("C")
    s.becomes("""
        for i in range(13):
            with T.block("B"):
                v_i = T.axis.spatial(13, i)
                if v_i - 2 >= 0 and v_i - 2 < 7:
                    C[v_i - 2] = (A[v_i] + T.float32(1.0)) * T.float32(3.0)
    """)


def test_unit_axes():
    A = te.placeholder((1, 7), name="A")
    B = te.compute((1, 7), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 1, 1), lambda i, j, k: B[0, i] * 2.0, name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.reverse_compute_inline("C")
    s.becomes("""
        for i, j in T.grid(1, 7):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_j, 0, 0] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(2.0)
    """)


def test_refuses_a_reduction_producer():
    s = Checked(relu_of_matmul())
    s.refuses("""
        reverse_compute_inline('D'): `C`, the producer of `D`, is a reduction: its result is not final where it is stored
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reduces
              ...
           16 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ reads the result
          hint: reverse_compute_at('D', ...) runs it right after its producer
    """)


def test_refuses_a_reduction():
    s = Checked(sums_of_chain())
    s.refuses("""
        reverse_compute_inline('C'): `C` is a reduction, not an elementwise function of its input
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reduces
          hint: reverse_compute_at('C', ...) runs it right after its producer
    """)


def test_refuses_without_a_producer():
    s = Checked(chain())
    s.refuses("""
        reverse_compute_inline('B'): no block makes a temporary that `B` reads
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: `B` must read what another block writes, and what is no parameter of the function
    """)


def test_refuses_several_producers():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: A[i] * 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] + C[i], name="D")
    s = Checked(te.create_prim_func([A, D]))
    s.refuses("""
        reverse_compute_inline('D'): `D` has several producers, `B` and `C`
           19 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: reverse_compute_at('D', ...) runs it right after its producer
    """)


def test_refuses_neighbours():
    s = Checked(stencil())
    s.refuses("""
        reverse_compute_inline('C'): `C` reads several elements of `P`
           19 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads P
          hint: compute_inline('P') puts the formula of the producer into `C`
    """)


def test_refuses_padding():
    s = Checked(stencil())
    s.refuses("""
        reverse_compute_inline('P'): `P` reads other elements of `B` than `B` makes there
           15 |         with T.block("P"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: compute_inline('B') puts the formula of the producer into `P`
    """)


def test_refuses_another_reader():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i] * 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] * 3.0, name="D")
    s = Checked(te.create_prim_func([A, C, D]))
    s.refuses("""
        reverse_compute_inline('C'): `D` reads `B` too
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
           11 |             v_i = T.axis.spatial(7, i)
           12 |             B[v_i] = A[v_i] + T.float32(1.0)
           13 |     for i_1 in range(7):
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
           15 |             v_i = T.axis.spatial(7, i_1)
           16 |             C[v_i] = B[v_i] * T.float32(2.0)
           17 |     for i_2 in range(7):
           18 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ another reader
          hint: compute_inline('B') puts its formula into all its readers
    """)


def test_refuses_a_broadcast():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i] * 2.0, name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.refuses("""
        reverse_compute_inline('C'): the axis `v_j` of `C` does not index `B`, so an element is used more than once
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: compute_inline('B') puts the formula of the producer into `C`
    """)


def test_refuses_an_axis_used_by_a_fixed_index():
    A = te.placeholder((7, 3), name="A")
    B = te.compute((7, 3), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i, 2] * 2.0, name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.refuses("""
        reverse_compute_inline('C'): `C` reads `B` at `2`, which is not an axis of its own
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: compute_inline('B') puts the formula of the producer into `C`
    """)


def flattened(extent: int, index):
    """D = B[index] + 1, of two dimensions, from B = 2 A of one or two."""
    shape = (105,) if extent else (7, 15)
    A = te.placeholder(shape, name="A")
    B = te.compute(shape, lambda *i: A[i] * 2.0, name="B")
    wanted = (7, extent) if extent else (103,)
    return te.create_prim_func([A, te.compute(wanted, lambda *i: B[index(*i)] + 1.0, name="D")])


def test_through_a_sum_in_mixed_radix():
    s = Checked(flattened(15, lambda i, j: i * 15 + j))
    s.reverse_compute_inline("D")
    s.becomes("""
        for i0 in range(105):
            with T.block("B"):
                v_i0 = T.axis.spatial(105, i0)
                D[v_i0 // 15, v_i0 % 15] = A[v_i0] * T.float32(2.0) + T.float32(1.0)
    """)


def test_through_quotients_and_remainders():
    s = Checked(flattened(0, lambda i: (i // 15, i % 15)))
    s.reverse_compute_inline("D")
    s.becomes("""
        for i0, i1 in T.grid(7, 15):
            with T.block("B"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                if v_i0 * 15 + v_i1 < 103:
                    D[v_i0 * 15 + v_i1] = A[v_i0, v_i1] * T.float32(2.0) + T.float32(1.0)
    """)
    s = Checked(flattened(0, lambda i: (i // 15, i % 13)))
    s.refuses("""
        reverse_compute_inline('D'): `D` reads `B` at `v_i0 // 15`, which is neither an axis of its own nor a part of a map of its axes that is shown to be one to one
           14 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: compute_inline('B') puts the formula of the producer into `D`
    """)


def test_elements_that_are_not_read_are_left_out():
    """B has rows of 15 elements, of which 13 are read: what is made of the others must not be stored."""
    A = te.placeholder((7, 15), name="A")
    B = te.compute((7, 15), lambda i, j: A[i, j] * 2.0, name="B")
    s = Checked(te.create_prim_func([A, te.compute((91,), lambda i: B[i // 13, i % 13] + 1.0, name="D")]))
    s.reverse_compute_inline("D")
    s.becomes("""
        for i, j in T.grid(7, 15):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                if v_j < 13 and v_i * 13 + v_j < 91:
                    D[v_i * 13 + v_j] = A[v_i, v_j] * T.float32(2.0) + T.float32(1.0)
    """)


def rows_in_groups(write: str, read: str, domain: str = "12, 7", groups: str = "3, 4, 7") -> Checked:
    """B = A + 1, stored as `write`, and C = 3 B, read as `read`."""
    return Checked(f"""
        @T.prim_func
        def main(A: T.Buffer((12, 7), "float32"), C: T.Buffer(({groups}), "float32")):
            B = T.alloc_buffer(({groups}))
            for i, j in T.grid({domain}):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    {write} = A[v_i, v_j] + T.float32(1)
            for a, b, c in T.grid({groups}):
                with T.block("C"):
                    v_a, v_b, v_c = T.axis.remap("SSS", [a, b, c])
                    C[v_a, v_b, v_c] = {read} * T.float32(3)
    """)


def test_a_producer_that_writes_at_a_map_of_its_axes():
    """What a step before has made of a producer: the axes of the block become the indices at which that writes."""
    s = rows_in_groups("B[v_i // 4, v_i % 4, v_j]", "B[v_a, v_b, v_c]")
    s.reverse_compute_inline("C")
    s.becomes("""
        for i, j in T.grid(12, 7):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i // 4, v_i % 4, v_j] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(3.0)
    """)


def test_refuses_a_map_that_leaves_elements_out():
    for write, strange in (("B[v_i // 5, v_i % 5, v_j]", "v_i // 5"), ("B[v_i // 4, 0, v_j]", "v_i // 4")):
        rows_in_groups(write, "B[v_a, v_b, v_c]", groups="3, 5, 7").refuses(f"""
            reverse_compute_inline('C'): `B` writes `B` at `{strange}`, which is not an axis of its own
               11 |             {write} = A[v_i, v_j] + T.float32(1.0)
                  |             {"^" * (len(write) + 31)} the store
              hint: it must write at X[i, j, ...], each index an axis of the block, or 0
        """)


def runs_in_part(condition: str) -> Checked:
    """C = 3 (A + 1) of 6 rows, where the producer has 7, and runs where a condition holds."""
    return Checked(f"""
        @T.prim_func
        def main(A: T.Buffer((7, 13), "float32"), C: T.Buffer((6, 13), "float32")):
            B = T.alloc_buffer((7, 13))
            for i, j in T.grid(7, 13):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    T.where({condition})
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1)
            for i, j in T.grid(6, 13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    C[v_i, v_j] = B[v_i, v_j] * T.float32(3)
    """)


def test_a_producer_that_runs_where_it_is_read():
    s = runs_in_part("i < 6")
    s.reverse_compute_inline("C")
    s.becomes("""
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.where(i < 6)
                if v_i < 6:
                    C[v_i, v_j] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(3.0)
    """)
    for condition in ("i < 5", "j < 12", "i + j < 17"):
        runs_in_part(condition).refuses(f"""
            reverse_compute_inline('C'): `B` does not run where `{condition}` is false, and may leave out what `C` reads
                9 |         with T.block("B"):
                  |         ^^^^^^^^^^^^^^^^^^ the producer
                  ...
               14 |         with T.block("C"):
                  |         ^^^^^^^^^^^^^^^^^^ reads what it makes
              hint: reverse_compute_at('C', ...) runs it right after its producer
        """)


def test_a_producer_with_an_init_that_reduces_nothing():
    """A product of one term: the update reads what the init stores."""
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((7, 1), "float32"), E: T.Buffer((1, 13), "float32"), C: T.Buffer((13, 7), "float32")):
            B = T.alloc_buffer((7, 13))
            for i, j in T.grid(7, 13):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    with T.init():
                        B[v_i, v_j] = T.float32(0)
                    B[v_i, v_j] = B[v_i, v_j] + A[v_i, 0] * E[0, v_j]
            for j, i in T.grid(13, 7):
                with T.block("C"):
                    v_j, v_i = T.axis.remap("SS", [j, i])
                    C[v_j, v_i] = B[v_i, v_j]
    """)
    s.reverse_compute_inline("C")
    s.becomes("""
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_j, v_i] = T.float32(0.0) + A[v_i, 0] * E[0, v_j]
    """)


def test_a_region_that_was_stated_of_the_removed_buffer_goes_too():
    s = Checked(chain())
    s.split("i", [None, 3])
    s.blockize("i_0")
    s.cache_write("B", 0, "local")
    s.lift_alloc("B_local")
    s.annotate_buffer_access("B_o", "A", "read", lambda i, j: ((0, 7), (0, 13)))
    assert "B_local[" in s.script and "T.reads(" in s.script
    s.reverse_compute_inline("B_local")
    assert "T.reads(" not in s.script
