import pytest

from tests.programs import chain
from tests.schedule.harness import Checked
from tir import dtypes, te
from tir.ir import Const


def places():
    """C = A at twice the place, from a temporary of places in int32."""
    A = te.placeholder((13,), "int8", name="A")
    B = te.compute((7,), lambda i: te.select(i < 3, i * 2, A[i].astype("int32")), name="B")
    return te.create_prim_func([A, te.compute((7,), lambda i: B[i] + 1, name="C")])


def test_a_wider_dtype():
    s = Checked(chain())
    s.unsafe_set_dtype("B", 0, "float64")
    s.becomes("""
        B = T.alloc_buffer((7, 13), "float64")
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = T.Cast("float64", A[v_i, v_j] + T.float32(1.0))
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = T.Cast("float32", B[v_i, v_j]) * T.float32(3.0)
    """)


def test_a_wider_dtype_is_converted_on_from_itself():
    A = te.placeholder((7,), "int8", name="A")
    B = te.compute((7,), lambda i: A[i], name="B")
    s = Checked(te.create_prim_func([A, te.compute((7,), lambda i: B[i].astype("int32") * B[i].astype("int32"), name="C")]))
    s.unsafe_set_dtype("B", 0, "int16")
    s.becomes("""
        B = T.alloc_buffer((7,), "int16")
        for i in range(7):
            with T.block("B"):
                v_i = T.axis.spatial(7, i)
                B[v_i] = T.Cast("int16", A[v_i])
        for i_1 in range(7):
            ...
    """)


def test_a_narrower_dtype_that_holds_all_values():
    s = Checked(places())
    s.unsafe_set_dtype("B", "B", "int8")
    s.becomes("""
        B = T.alloc_buffer((7,), "int8")
        for i in range(7):
            with T.block("B"):
                v_i = T.axis.spatial(7, i)
                B[v_i] = T.Cast("int8", T.Select(v_i < 3, v_i * 2, T.Cast("int32", A[v_i])))
        for i_1 in range(7):
            with T.block("C"):
                v_i = T.axis.spatial(7, i_1)
                C[v_i] = T.Cast("int32", B[v_i]) + 1
    """)


@pytest.mark.parametrize(
    "wide, narrow, holds",
    [
        ("float64", "float32", True), ("float32", "int16", True), ("float32", "int32", False), ("float32", "bfloat16", True),
        ("float16", "bfloat16", False), ("bfloat16", "float16", False), ("int32", "uint16", True), ("int32", "uint32", False),
        ("uint8", "int8", False), ("float16", "uint8", True), ("int8", "bool", True), ("int64", "float16", False),
        ("bool", "uint8", False),
    ],
)  # fmt: skip
def test_which_dtypes_hold_others(wide, narrow, holds):
    assert dtypes.holds(wide, narrow) == holds


def test_refusals():
    Checked(chain()).refuses("""
        unsafe_set_dtype('B', 0, 'float16'): `B` holds `A[v_i, v_j] + T.float32(1.0)` of float32, which float16 may not hold exactly
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ stores to B
          hint: store a value that float16 holds: x.astype('float16') in the program rounds it
    """)
    Checked(chain()).refuses("""
        unsafe_set_dtype('C', 0, 'float64'): `C` is a parameter of the function, and holds what the caller put there
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: cache_write('C', 0, 'global')
    """)
    Checked(chain()).refuses("""
        unsafe_set_dtype('B', 0, 'float32'): `B` holds float32 already
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
          hint: there is nothing to change
    """)
    s = Checked(chain())
    with s.refusal(f"""
        unsafe_set_dtype('B', 0, 'float23'): `float23` is no dtype; these are {", ".join(dtypes.TABLE)}
          hint: did you mean `float32`?
    """):
        s.unsafe_set_dtype("B", 0, "float23")


@pytest.mark.parametrize("number", ["-0.0", '"nan"', '"-inf"'])
def test_what_no_integer_says(number):
    X = te.compute((7,), lambda i: Const(float(number.strip('"')), "float32"), name="X")
    Checked(te.create_prim_func([te.compute((7,), lambda i: 1.0 / X[i], name="Y")])).refuses(f"""
        unsafe_set_dtype('X', 0, 'int8'): `X` holds `T.float32({number})` of float32, which int8 may not hold exactly
           12 |             X[v_i] = T.float32({number})
              |             ^^^^^^^^^^^^^^^^^^^{"^" * len(number)}^ stores to X
          hint: store a value that int8 holds: x.astype('int8') in the program rounds it
    """)
