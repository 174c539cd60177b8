import numpy as np
import pytest

from schedule import Schedule
from tests.programs import matmul, symbolic, vector
from tests.schedule.harness import Checked, same_numbers, well_formed, without_header
from tir import te
from tir.ir import Const, For, Kind, Store, Var
from tir.script import parse
from tir.traverse import path_to, replace_stmt


def test_divisible():
    s = Checked(vector(12))
    assert s.split("i", [3, 4]) == ["i_0", "i_1"]
    s.becomes("""
        for i_0, i_1 in T.grid(3, 4):
            with T.block("B"):
                v_i = T.axis.spatial(12, i_0 * 4 + i_1)
                B[v_i] = A[v_i] * T.float32(2.0)
    """)


def test_not_divisible_gives_a_predicate():
    s = Checked(vector(13))
    s.split("i", [None, 4])
    s.becomes("""
        for i_0, i_1 in T.grid(4, 4):
            with T.block("B"):
                v_i = T.axis.spatial(13, i_0 * 4 + i_1)
                T.where(i_0 * 4 + i_1 < 13)
                B[v_i] = A[v_i] * T.float32(2.0)
    """)


def test_reduction_split_twice():
    s = Checked(matmul(7, 5, 13))
    s.split("k", [None, 2])
    assert s.split("k_0", [2, None]) == ["k_0_0", "k_0_1"]
    s.becomes("""
        for i, j, k_0_0, k_0_1, k_1 in T.grid(7, 13, 2, 2, 2):
            with T.block("C"):
                v_i = T.axis.spatial(7, i)
                v_j = T.axis.spatial(13, j)
                v_k = T.axis.reduce(5, k_0_0 * 4 + k_0_1 * 2 + k_1)
                T.where(k_0_0 * 4 + k_0_1 * 2 + k_1 < 5 and k_0_0 * 2 + k_0_1 < 3)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_symbolic_extent():
    s = Checked(symbolic())
    s.split("i", [None, 4])
    s.becomes(
        """
        for i_0, i_1 in T.grid((n + 3) // 4, 4):
            with T.block("B"):
                v_i = T.axis.spatial(n, i_0 * 4 + i_1)
                T.where(i_0 * 4 + i_1 < n)
                B[v_i] = A[v_i] * T.float32(2.0)
        """,
        sizes={"n": 11},
    )


@pytest.mark.parametrize("extent", [1, 7, 13, 109])
@pytest.mark.parametrize("factors", [[None], [None, 1], [None, 3], [5, None], [2, None, 7], [None, 109], [None, 200]])
def test_any_factors(extent, factors):
    before = vector(extent)
    s = Schedule(before)
    names = s.split("i", factors)
    assert len(names) == len(factors) and s.get_loops("B") == names
    same_numbers(before, s.func)


def test_unit_loops_are_kept_or_dropped():
    s = Schedule(vector(7))
    s.split("i", [None, 7])
    assert "T.axis.spatial(7, i_0 * 7 + i_1)" in s.script
    s = Schedule(vector(7))
    s.split("i", [None, 7], preserve_unit_iters=False)
    assert "T.axis.spatial(7, i_1)" in s.script
    same_numbers(vector(7), s.func)


def lowered(n: int = 7):
    """B = 2 A without blocks."""
    func = vector(n)
    loop = path_to(func, "i")[-1]
    block = path_to(func, "B")[-1]
    i = loop.var
    A, B = func.params
    return func.with_(body=replace_stmt(func.body, block, Store(B, (i,), A[i] * Const(2.0, "float32"))))


def test_statements_in_no_block_get_an_if():
    before = lowered()
    s = Schedule(before)
    s.split("i", [None, 4])
    assert (
        without_header(s.script).split("\n", 3)[3]
        == """\
    for i_0, i_1 in T.grid(2, 4):
        if i_0 * 4 + i_1 < 7:
            B[i_0 * 4 + i_1] = A[i_0 * 4 + i_1] * T.float32(2.0)"""
    )
    same_numbers(before, s.func)


def test_extent_that_depends_on_the_loop():
    """A triangle: the inner extent changes with the loop that is split."""
    func = matmul(7, 5, 13)
    loop = path_to(func, "j")[-1]
    before = func.with_(body=replace_stmt(func.body, loop, loop.with_(extent=Var("i") + 1)))
    s = Schedule(before)
    s.split("i", [None, 2])
    assert "for j, k in T.grid(i_0 * 2 + i_1 + 1, 5):" in s.script
    same_numbers(before, s.func)


def test_names_are_fresh():
    s = Schedule(matmul())
    s.split("i", [None, 2])
    s.split("i_0", [None, 2])
    s.fuse("i_0_0", "i_0_1")
    assert s.split("i_1", [None, 1]) == ["i_1_0", "i_1_1"]
    assert len(set(s.get_loops("C"))) == len(s.get_loops("C"))


def test_refusals():
    s = Checked(matmul())
    s.refuses("split('i', []): at least one factor is needed\n  hint: split('i', [None, 4])")
    s.refuses("split('i', [None, None]): at most one factor may be None, got [None, None]\n  hint: split('i', [None, 4])")
    s.refuses("split('i', [None, 0]): factors must be at least 1, got 0\n  hint: split('i', [None, 4])")
    s.refuses("split('i', 4): `factors` must be a list of integers or None, got 4")
    s.refuses("split('i', [2.0, 4]): `factors` must be a list of integers or None, got [2.0, 4]")
    s.refuses("""
        split('i', [2, 3]): the factors make 6 iterations, but `i` has 7
            8 |     for i, j, k in T.grid(7, 13, 5):
              |         ^ 7 iterations
          hint: make one factor None, and it is inferred
    """)
    s.refuses("split('ii', [2, 4]): `ii` is no loop of this function; its loops are `i`, `j` and `k`\n  hint: did you mean `i`?")
    s.refuses("split('C', [2, 4]): `C` is a block, not a loop; its loops are `i`, `j` and `k`")
    s = Checked(symbolic())
    s.refuses("""
        split('i', [2, 3]): the extent of `i` is not a constant, so one factor must be None
            8 |     for i in range(n):
              |     ^^^^^^^^^^^^^^^^^^ runs over n
          hint: split('i', [None, 3])
    """)


def test_marked_and_annotated_loops_are_refused():
    s = Checked(vector())
    s.parallel("i")
    s.refuses("""
        split('i', [None, 4]): `i` is parallel, and only serial loops can be split
            8 |     for i in T.parallel(13):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: loops are split first and marked afterwards; serial('i') takes the mark away
    """)
    s = Checked(vector())
    s.annotate("i", "key", 1)
    s.refuses("""
        split('i', [None, 4]): `i` is annotated with `key`, which would be lost
            8 |     for i in T.serial(13, annotations={"key": 1}):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ annotated
          hint: unannotate('i', 'key') first, and annotate the new loops
    """)


def test_factors_may_be_numpy_integers():
    s = Schedule(vector())
    s.split("i", (None, np.int64(4)))
    assert s.trace[0].bound == {"loop": "i", "factors": [None, 4]}


def test_wrong_number_of_arguments():
    from schedule.primitives.loops.split import split

    with pytest.raises(TypeError, match=r"^split\(loop, factors, .*, names=None\): missing a required argument: 'factors'$"):
        split(vector(), "i")


def test_kind_is_kept_inside():
    s = Schedule(matmul())
    s.vectorize("j")
    s.split("i", [None, 2])
    kinds = {n: path_to(s.func, n)[-1].kind for n in s.get_loops("C")}
    assert kinds["j"] is Kind.VECTORIZED
    assert all(isinstance(path_to(s.func, n)[-1], For) for n in kinds)


# --- tails and names -----------------------------------------------------------------------------------------------------


def test_a_tail_of_its_own():
    s = Checked(matmul())
    assert s.split("j", [None, 4], tail="cut") == ["j_0_0", "j_0_1", "j_1"]
    assert s.split("k", [None, 2], tail="cut", names=["k_0", "k_1_1", "rest"]) == ["k_0", "k_1_1", "rest"]
    s.becomes("""
        for i in range(7):
            for j_0_0, j_0_1 in T.grid(3, 4):
                for k_0, k_1_1 in T.grid(2, 2):
                    with T.block("C_j_0_k_0"):
                        v_i = T.axis.spatial(7, i)
                        v_j = T.axis.spatial(13, j_0_0 * 4 + j_0_1)
                        v_k = T.axis.reduce(5, k_0 * 2 + k_1_1)
                        with T.init():
                            C[v_i, v_j] = T.float32(0.0)
                        C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
                for rest in range(1):
                    with T.block("C_j_0_k_1_1"):
                        v_i = T.axis.spatial(7, i)
                        v_j = T.axis.spatial(13, j_0_0 * 4 + j_0_1)
                        v_k = T.axis.reduce(5, rest + 4)
                        C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for j_1, k_1 in T.grid(1, 5):
                with T.block("C_j_1"):
                    ...
    """)


def test_the_last_tile_overlaps():
    s = Checked(matmul())
    s.split("j", [None, 4], tail="overlap", names=["tile", "j"])
    s.becomes("""
        for i, tile, j, k in T.grid(7, 4, 4, 5):
            with T.block("C"):
                v_i = T.axis.spatial(7, i)
                v_j = T.axis.spatial(13, T.min(tile * 4, 9) + j)
                v_k = T.axis.reduce(5, k)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_what_divides_has_no_tail():
    for tail in ("perfect", "cut", "overlap"):
        s = Checked(vector(12))
        s.split("i", [None, 4], tail=tail)
        s.becomes("""
            for i_0, i_1 in T.grid(3, 4):
                with T.block("B"):
                    v_i = T.axis.spatial(12, i_0 * 4 + i_1)
                    B[v_i] = A[v_i] * T.float32(2.0)
        """)


def updated_in_place():
    return parse("""
@T.prim_func
def main(A: T.Buffer((13,), "float32")):
    for i in range(13):
        A[i] = A[i] + T.float32(1.0)
""")


@pytest.mark.parametrize(
    "func, message",
    [
        (
            vector(),
            """
split('i', [None, 4], tail='perfect'): it is not shown that 4 divides the 13 iterations of `i`
    8 |     for i in range(13):
      |     ^^^^^^^^^^^^^^^^^^^ 13 iterations
  hint: tail="guard", "cut" or "overlap" says what becomes of those that fill no whole tile
""",
        ),
        (
            vector(),
            """
split('i', [None, 4], disable_predication=True): it is not shown that 4 divides the 13 iterations of `i`
    8 |     for i in range(13):
      |     ^^^^^^^^^^^^^^^^^^^ 13 iterations
  hint: tail="guard", "cut" or "overlap" says what becomes of those that fill no whole tile
""",
        ),
        (
            vector(),
            """
split('i', [None, 4], tail='crop'): no tail strategy is named 'crop'; there are: guard, perfect, cut, overlap
""",
        ),
        (
            vector(),
            """
split('i', [None, 4], tail='cut', names=['o', 'B_i_0', 'rest']): the name `B_i_0` is taken
  hint: `i_0_0_0` is free
""",
        ),
        (
            vector(),
            """
split('i', [None, 16], tail='cut'): the 13 iterations of `i` cannot be cut into whole tiles of 16
    8 |     for i in range(13):
      |     ^^^^^^^^^^^^^^^^^^^ 13 iterations
  hint: make one factor None and the others smaller, or leave tail="guard"
""",
        ),
        (
            vector(),
            """
split('i', [None, 16], tail='overlap'): tiles overlap where the factors are [None, f], f at most the 13 iterations of `i`, got [None, 16]
    8 |     for i in range(13):
      |     ^^^^^^^^^^^^^^^^^^^ 13 iterations
""",
        ),
        (
            updated_in_place(),
            """
split('i', [None, 4], tail='overlap'): a statement outside of blocks reads what is written under `i`, so an iteration that runs again may find other values
    6 |     for i in range(13):
      |     ^^^^^^^^^^^^^^^^^^^ would overlap
    7 |         A[i] = A[i] + T.float32(1.0)
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ reads A
  hint: tail="guard" or tail="cut" runs each iteration once
""",
        ),
        (
            vector(),
            """
split('i', [None, 4], names=['i', 'v_i']): the name `v_i` is taken
  hint: `i_0` is free
""",
        ),
        (
            vector(),
            """
split('i', [None, 4], names=['lambda', 'j']): the name `lambda` cannot be said in a script
  hint: `i_0` is free
""",
        ),
        (
            vector(),
            """
split('i', [None, 4], names=['j', 'j']): `names` must be 2 different names, one for each new loop, got ['j', 'j']
""",
        ),
    ],
)
def test_tails_and_names_that_are_refused(func, message):
    Checked(func).refuses(message)


def test_a_reduction_that_goes_on_does_not_overlap():
    s = Checked(matmul())
    s.reorder("k", "j")
    s.refuses("""
        split('j', [None, 4], tail='overlap'): `C` reads what is written under `j`, so an iteration that runs again may find other values
            8 |     for i, k, j in T.grid(7, 5, 13):
              |               ^ would overlap
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads C
          hint: tail="guard" or tail="cut" runs each iteration once
    """)


LOADED = """
@T.prim_func
def main(A: T.Buffer((7,), "int32"), C: T.Buffer((7,), "int32")):
    for i in range(7):
        with T.block("C"):
            v = T.axis.spatial(7, i)
            T.where(A[i] > 0)
            C[v] = A[v]
"""


def test_a_condition_that_reads_memory():
    """It is evaluated in the tile only where the loop was."""
    s = Checked(parse(LOADED))
    s.split("i", [None, 4])
    s.becomes("""
        for i_0, i_1 in T.grid(2, 4):
            if i_0 * 4 + i_1 < 7:
                with T.block("C"):
                    v = T.axis.spatial(7, i_0 * 4 + i_1)
                    T.where(A[i_0 * 4 + i_1] > 0)
                    C[v] = A[v]
    """)


def test_refuses_factors_of_a_loop_without_iterations():
    """A condition that never holds would keep the init of a reduction over nothing from running."""
    A, k = te.placeholder((7, 0), name="A"), te.reduce_axis((0, 0), name="k")
    s = Checked(te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="C")]))
    s.refuses("""
        split('k', [2, 2]): `k` has no iterations, and the factors make 4
            8 |     for i, k in T.grid(7, 0):
              |            ^ no iterations
          hint: split('k', [None, 2])
    """)
    s.split("k", [None, 2])
    well_formed(s.func)
    same_numbers(s.before, s.func)
