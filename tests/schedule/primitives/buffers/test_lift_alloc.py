import tir
from tests.programs import chain, matmul
from tests.schedule.harness import Checked
from tir.ir import Var
from tir.script import parse
from tir.traverse import rewrite


def nested():
    """B = 2 (A + 1), row by row, through a row that a block allocates inside another block."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")):
    for i in range(7):
        with T.block("outer"):
            v_i = T.axis.spatial(7, i)
            for one in range(1):
                with T.block("inner"):
                    v_o = T.axis.spatial(1, one)
                    row = T.alloc_buffer((13,))
                    for j in range(13):
                        with T.block("row"):
                            v_j = T.axis.spatial(13, j)
                            row[v_j] = A[v_i, v_j] + T.float32(1.0)
                    for j_1 in range(13):
                        with T.block("B"):
                            v_j = T.axis.spatial(13, j_1)
                            B[v_i, v_j] = row[v_j] * T.float32(2.0)
"""
    )


def parallel_rows():
    """The same, rows in parallel."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")):
    for i in T.parallel(7):
        with T.block("outer"):
            v_i = T.axis.spatial(7, i)
            row = T.alloc_buffer((13,))
            for j in range(13):
                with T.block("row"):
                    v_j = T.axis.spatial(13, j)
                    row[v_j] = A[v_i, v_j] + T.float32(1.0)
            for j_1 in range(13):
                with T.block("B"):
                    v_j = T.axis.spatial(13, j_1)
                    B[v_i, v_j] = row[v_j] * T.float32(2.0)
"""
    )


def shadowing():
    """A block inside has an axis called as that of the one around."""
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32")):
    for i in range(7):
        with T.block("outer"):
            v_i = T.axis.spatial(7, i)
            row = T.alloc_buffer((1,))
            row[0] = A[v_i]
            for j in range(1):
                with T.block("B"):
                    v_i = T.axis.spatial(7, v_i + j)
                    B[v_i] = row[0] * T.float32(2.0)
"""
    )
    return rewrite(func, lambda n: n.with_(name="v_i") if type(n) is Var and n.name == "v_i_1" else None)


def growing():
    """B = A below the diagonal, through rows that grow."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((7, 7), "float32"), B: T.Buffer((7, 7), "float32")):
    for i in range(7):
        with T.block("outer"):
            v_i = T.axis.spatial(7, i)
            row = T.alloc_buffer((v_i + 1,))
            for j in range(v_i + 1):
                row[j] = A[v_i, j]
            for j_1 in range(v_i + 1):
                B[v_i, j_1] = row[j_1]
"""
    )


def test_to_the_next_block():
    s = Checked(nested())
    s.lift_alloc("row")
    s.becomes("""
        for i in range(7):
            with T.block("outer"):
                v_i = T.axis.spatial(7, i)
                row = T.alloc_buffer((13,))
                for one in range(1):
                    with T.block("inner"):
                        v_o = T.axis.spatial(1, one)
                        for j in range(13):
                        ...
    """)


def test_to_the_function():
    s = Checked(nested())
    s.lift_alloc("row", 2)
    s.becomes("""
        row = T.alloc_buffer((7, 13))
        for i in range(7):
            with T.block("outer"):
                v_i = T.axis.spatial(7, i)
                for one in range(1):
                    with T.block("inner"):
                        v_o = T.axis.spatial(1, one)
                        for j in range(13):
                            with T.block("row"):
                                v_j = T.axis.spatial(13, j)
                                row[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
                        for j_1 in range(13):
                            with T.block("B"):
                                v_j = T.axis.spatial(13, j_1)
                                B[v_i, v_j] = row[v_i, v_j] * T.float32(2.0)
    """)


def test_beyond_the_function_is_refused():
    s = Checked(nested())
    s.refuses("""
        lift_alloc('row', 3): `row` is allocated by the function, and cannot be lifted further
          hint: with fewer lifts it gets there already
    """)


def test_an_axis_of_the_same_name_inside_is_refused():
    s = Checked(shadowing())
    s.refuses("""
        lift_alloc('row'): `B`, inside of `outer`, has an axis called `v_i` too
            8 |         with T.block("outer"):
              |         ^^^^^^^^^^^^^^^^^^^^^^ one
              ...
           13 |                 with T.block("B"):
              |                 ^^^^^^^^^^^^^^^^^^ the other
          hint: write `B` with an axis of another name
    """)


def test_past_a_parallel_loop():
    s = Checked(parallel_rows())
    s.lift_alloc("row")
    s.becomes("""
        row = T.alloc_buffer((7, 13))
        for i in T.parallel(7):
            with T.block("outer"):
                v_i = T.axis.spatial(7, i)
                for j in range(13):
                    with T.block("row"):
                        v_j = T.axis.spatial(13, j)
                        row[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
                for j_1 in range(13):
                    with T.block("B"):
                        v_j = T.axis.spatial(13, j_1)
                        B[v_i, v_j] = row[v_i, v_j] * T.float32(2.0)
    """)


def test_a_shape_that_depends_on_the_block_is_refused():
    s = Checked(growing())
    s.refuses("""
        lift_alloc('row'): the shape of `row` depends on `v_i`, which is bound further in
            8 |         with T.block("outer"):
              |         ^^^^^^^^^^^^^^^^^^^^^^ allocates row
          hint: allocate it with a shape of constants, or of what is bound further outside
    """)


def test_a_buffer_of_the_function_is_refused():
    s = Checked(chain())
    s.refuses("""
        lift_alloc('B'): `B` is allocated by the function, and cannot be lifted further
          hint: with fewer lifts it gets there already
    """)


def test_a_parameter_is_refused():
    s = Checked(chain())
    s.refuses("""
        lift_alloc('A'): `A` is a parameter of the function
          hint: a parameter is the caller's; cache_write or cache_read makes a temporary
    """)


def test_an_unknown_buffer_is_refused():
    s = Checked(nested())
    s.refuses("""
        lift_alloc('rows'): no block allocates `rows`; allocated by blocks are `row`
          hint: did you mean `row`?
    """)


def test_no_lift_is_refused():
    s = Checked(nested())
    s.refuses("""
        lift_alloc('row', 0): `n_lifts` must be at least 1, got 0
    """)


def test_a_copy_lifted_out_of_a_reducing_block_is_well_formed():
    s = Checked(matmul())
    s.reorder("k", "i")
    s.blockize("i")
    s.cache_write("C", 0, "local")
    s.lift_alloc("C_local")
    assert str(tir.verify(s.func)) == "main: well formed"
