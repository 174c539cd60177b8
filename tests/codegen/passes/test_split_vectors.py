"""Vectorised loops get the lengths of the registers."""

import pytest

import codegen
from schedule import Schedule
from tests.codegen.harness import after, same
from tests.programs import matmul, vector
from tir import te


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_what_fits_a_register_stays(n):
    s = Schedule(vector(n))
    s.vectorize("i")
    expected = "B[0] = A[0] * T.float32(2.0)" if n == 1 else f"for i in T.vectorized({n}):\n    B[i] = A[i] * T.float32(2.0)"
    after(s.func, "split_vectors").becomes(expected)


def test_a_length_that_is_no_power_of_two_is_masked():
    s = Schedule(vector(5))
    s.vectorize("i")
    after(s.func, "split_vectors").becomes("""
        for i in T.vectorized(8):
            if i < 5:
                B[i] = A[i] * T.float32(2.0)
    """)


def test_bytes_are_masked_only_by_registers_of_512_bits():
    a = te.placeholder((13,), "int8", name="A")
    s = Schedule(te.create_prim_func([a, te.compute((13,), lambda i: a[i] + a[i], name="B")]))
    s.vectorize("i")
    after(s.func, "split_vectors", lanes=8).becomes("for i in T.vectorized(13):\n    B[i] = A[i] + A[i]")
    after(s.func, "split_vectors", lanes=16).becomes("for i in T.vectorized(16):\n    if i < 13:\n        B[i] = A[i] + A[i]")


def test_a_padded_copy_of_bytes_is_cut_where_the_padding_begins():
    a = te.placeholder((13, 29), "int8", name="A")
    s = Schedule(te.create_prim_func([a, te.compute((13, 32), lambda i, j: te.if_then_else(j < 29, a[i, j], 0), name="B")]))
    s.vectorize("j")
    padded = """
        for i in range(13):
            for j in T.vectorized({}):
                B[i, j] = {}
    """
    whole = "T.if_then_else(j < 29, A[i, j], T.int8(0))"
    after(s.func, "split_vectors", lanes=16).becomes(padded.format(32, whole))
    pieces = (
        padded.format(29, "A[i, j]")
        + "        for j_behind in T.vectorized(3):\n                B[i, j_behind + 29] = T.int8(0)\n    "
    )
    after(s.func, "split_vectors", lanes=8).becomes(pieces)
    same(s.func)


def test_a_processor_without_masks_keeps_the_length():
    s = Schedule(vector(3))
    s.vectorize("i")
    after(s.func, "split_vectors", lanes=4).becomes("for i in T.vectorized(3):\n    B[i] = A[i] * T.float32(2.0)")


def test_a_register_and_a_tail():
    s = Schedule(vector(13))
    s.vectorize("i")
    after(s.func, "split_vectors").becomes("""
        for i_lane in T.vectorized(8):
            B[i_lane] = A[i_lane] * T.float32(2.0)
        for i_tail in T.vectorized(8):
            if i_tail < 5:
                B[i_tail + 8] = A[i_tail + 8] * T.float32(2.0)
    """)


def test_pieces_fetch_as_many_elements_ahead():
    s = Schedule(vector(27))
    s.vectorize("i")
    s.annotate("i", "prefetch", [["A", 27], ["B", 5]])
    after(s.func, "split_vectors").becomes("""
        for i_chunk in T.unroll(3, annotations={"prefetch": [["A", 3], ["B", 1]]}):
            for i_lane in T.vectorized(8):
                B[i_chunk * 8 + i_lane] = A[i_chunk * 8 + i_lane] * T.float32(2.0)
        for i_tail in T.vectorized(4):
            if i_tail < 3:
                B[i_tail + 24] = A[i_tail + 24] * T.float32(2.0)
    """)


def test_several_registers_are_written_out():
    s = Schedule(vector(27))
    s.vectorize("i")
    after(s.func, "split_vectors").becomes("""
        for i_chunk in T.unroll(3):
            for i_lane in T.vectorized(8):
                B[i_chunk * 8 + i_lane] = A[i_chunk * 8 + i_lane] * T.float32(2.0)
        for i_tail in T.vectorized(4):
            if i_tail < 3:
                B[i_tail + 24] = A[i_tail + 24] * T.float32(2.0)
    """)


def test_very_many_are_a_loop():
    s = Schedule(vector(17 * 8))
    s.vectorize("i")
    after(s.func, "split_vectors").becomes("""
        for i_chunk in range(17):
            for i_lane in T.vectorized(8):
                B[i_chunk * 8 + i_lane] = A[i_chunk * 8 + i_lane] * T.float32(2.0)
    """)


def test_the_widest_element_counts():
    a = te.placeholder((13,), "float64", name="A")
    s = Schedule(te.create_prim_func([a, te.compute((13,), lambda i: a[i].astype("float32"), name="B")]))
    s.vectorize("i")
    after(s.func, "split_vectors").becomes("""
        for i_chunk in T.unroll(3):
            for i_lane in T.vectorized(4):
                B[i_chunk * 4 + i_lane] = T.Cast("float32", A[i_chunk * 4 + i_lane])
        for i_tail in T.vectorized(1):
            B[12] = T.Cast("float32", A[12])
    """)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_computed_in_32(dtype):
    a = te.placeholder((16,), dtype, name="A")
    s = Schedule(te.create_prim_func([a, te.compute((16,), lambda i: a[i] + a[i], name="B")]))
    s.vectorize("i")
    after(s.func, "split_vectors").becomes("""
        for i_chunk in T.unroll(2):
            for i_lane in T.vectorized(8):
                B[i_chunk * 8 + i_lane] = A[i_chunk * 8 + i_lane] + A[i_chunk * 8 + i_lane]
    """)


def test_bytes_fill_a_register_with_more():
    a = te.placeholder((32,), "int8", name="A")
    s = Schedule(te.create_prim_func([a, te.compute((32,), lambda i: a[i] + a[i], name="B")]))
    s.vectorize("i")
    after(s.func, "split_vectors").becomes("for i in T.vectorized(32):\n    B[i] = A[i] + A[i]")


def test_the_tail_repeats_the_loops_inside_under_names_of_its_own():
    s = Schedule(matmul(7, 5, 13))
    s.reorder("i", "j", "k")
    s.vectorize("j")
    after(s.func, "split_vectors").becomes("""
        for i in range(7):
            for j_tail in T.vectorized(8):
                if j_tail < 5:
                    C[i, j_tail + 8] = T.float32(0.0)
                    for k_1 in range(5):
                        C[i, j_tail + 8] = C[i, j_tail + 8] + A[i, k_1] * B[k_1, j_tail + 8]
            for j_lane in T.vectorized(8):
                C[i, j_lane] = T.float32(0.0)
                for k in range(5):
                    C[i, j_lane] = C[i, j_lane] + A[i, k] * B[k, j_lane]
    """)


@pytest.mark.parametrize("mcpu, n, tail", [
    ("x86-64-v4", 20, "j_tail in T.vectorized(16): if j_tail < 4:"),  # whole units: a mask costs nothing
    ("znver4", 20, "j_tail in T.vectorized(4): C["),  # units half as wide as its vectors: a short one is half the work
    ("znver4", 19, "j_tail in T.vectorized(4): if j_tail < 3:"),
    ("x86-64-v3", 12, "j_tail in T.vectorized(4): C["),  # no mask registers
])  # fmt: skip
def test_the_tail_of_a_sum_comes_first_and_fills_a_register_where_masks_cost_nothing(mcpu, n, tail):
    """Behind the whole vectors, LLVM would have the last use of a factor overwrite it, and spill the accumulators."""
    s = Schedule(matmul(7, 5, n))
    s.reorder("k", "i", "j")
    s.vectorize("j")
    text = codegen.dump(s.func, f"llvm -mcpu {mcpu} -num-cores 1", after="split_vectors")
    assert f"for k, i in T.grid(5, 7): for {tail}" in " ".join(text.split())


def test_half_floats_that_are_only_moved_have_the_lanes_of_their_bits():
    """Computed, they are float32."""
    a = te.placeholder((64,), "bfloat16", name="A")
    for value, lanes in ((lambda i: a[i], 32), (lambda i: te.if_then_else(i < 60, a[i], te.const(0, "bfloat16")), 32),
                         (lambda i: a[i] + a[i], 16), (lambda i: te.maximum(a[i], te.const(0, "bfloat16")), 16)):  # fmt: skip
        s = Schedule(te.create_prim_func([a, te.compute((64,), value, name="B")]))
        s.vectorize("i")
        assert f"T.vectorized({lanes})" in codegen.dump(s.func, "llvm -mcpu x86-64-v4 -num-cores 1", after="split_vectors")
