"""Where blocks stand, and what several primitives require of them: refusals, each with what to try."""

import pytest

from schedule import Schedule, ScheduleError
from schedule.legality import dataflow
from tests.programs import chain, matmul
from tests.schedule.harness import Checked, same_numbers
from tests.schedule.legality.nests import block, i, j, k, n, spatial, stored, v0
from tests.schedule.legality.programs import A, T, X, Y, copy, located, named, over, refusal, total
from tir.assumptions import assumptions
from tir.ir import For, If, Kind, PrimFunc, Seq, nest
from tir.script import parse
from tir.verify import verify

ONE = 'A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")'


def program(parameters: str, body: str) -> PrimFunc:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return parse(f"from tir.script import tir as T\n\n\n@T.prim_func\ndef f({parameters}):\n{lines}")


def copies(first: str, second: str, extent: str = "7", more: str = "") -> PrimFunc:
    """Two copies, one after the other, each to the buffer of its first letter from that of its second."""
    (w, x), (y, z) = first, second
    return program(
        ONE + more,
        f"""
B = T.alloc_buffer((7,))
for i in range(7):
    with T.block("{w}"):
        v = T.axis.spatial(7, i)
        {w}[v] = {x}[v]
for j in range({extent}):
    with T.block("{y}"):
        v = T.axis.spatial(7, j)
        {y}[v] = {z}[v]
""",
    )


def loaded_extent() -> PrimFunc:
    return copies("BA", "CB", "N[0]", ', N: T.Buffer((1,), "int32")')


def read_too_early() -> PrimFunc:
    return copies("CB", "BA")


def written_again() -> PrimFunc:
    return program(
        ONE,
        """
X = T.alloc_buffer((1,))
for i in range(7):
    with T.block("X"):
        v = T.axis.spatial(7, i)
        X[0] = A[v]
    with T.block("C"):
        v = T.axis.spatial(7, i)
        C[v] = X[0]
    with T.block("Y"):
        v = T.axis.spatial(7, i)
        X[0] = A[v]
""",
    )


def ordered() -> PrimFunc:
    return program(
        'A: T.Buffer((7, 5), "float32"), C: T.Buffer((7, 5), "float32")',
        """
for i, j in T.grid(7, 5):
    with T.block("C"):
        v, w = T.axis.remap("SO", [i, j])
        C[v, w] = A[v, w]
""",
    )


def test_a_block_under_a_condition():
    s = Checked(matmul())
    s.split("j", [None, 4])
    s.reorder("j_0", "i", "k", "j_1")
    s.add_guard("i", "j_0 < 3")
    s.refuses("""
        cache_read('C', 0, 'local'): `C` stands under `if j_0 < 3`; only loops and blocks may be around it
            9 |         if j_0 < 3:
              |         ^^^^^^^^^^^ around it
           10 |             for i, k, j_1 in T.grid(7, 5, 4):
           11 |                 with T.block("C"):
              |                 ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before add_guard and hoist_predicate, or make the condition one of the block (T.where)
    """)


def test_a_block_under_a_loop_whose_extent_is_loaded():
    Checked(loaded_extent()).refuses("""
        compute_inline('C'): `C` stands under `j`, a loop whose extent is read from memory; only loops and blocks may be around it
           12 |     for j in range(N[0]):
              |     ^^^^^^^^^^^^^^^^^^^^^ around it
           13 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: run over the largest extent, and make the rest a condition of the block (T.where)
    """)


def test_a_loop_whose_extent_is_loaded_takes_nothing_in():
    Checked(loaded_extent()).refuses("""
        compute_at('B', 'j'): what is in `j` stands under `j`, a loop whose extent is read from memory; only loops and blocks may be around it
           12 |     for j in range(N[0]):
              |     ^^^^^^^^^^^^^^^^^^^^^ around it
          hint: run over the largest extent, and make the rest a condition of the block (T.where)
    """)


def test_a_loop_inside_another_block():
    s = Checked(chain())
    s.blockize("j_1")
    s.refuses("""
        compute_at('B', 'j_1'): `j_1` and `B` are not inside the same block
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
              ...
           17 |             for j_1 in range(13):
              |             ^^^^^^^^^^^^^^^^^^^^^ the loop
          hint: choose a loop that is directly inside the function, in no other block
    """)


def test_a_reader_before_the_writer():
    for call in (
        lambda s: s.compute_at("B", "i"),
        lambda s: s.compute_inline("B"),
        lambda s: s.cache_write("B", 0, "local"),
        lambda s: s.reindex("B", "B"),
    ):
        s = Schedule(read_too_early())
        with pytest.raises(ScheduleError) as caught:
            call(s)
        assert caught.value.reason == "`C` reads `B` before `B` writes it"
        assert caught.value.hint == "let `C` read another buffer, as it needs the values of before"


def test_a_buffer_written_again_in_a_loop():
    s = Checked(written_again())
    s.refuses("""
        reindex('C', 'X'): `Y` writes `X` again before the next iteration of `i` reads it
            8 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ around both
            9 |         with T.block("X"):
           10 |             v = T.axis.spatial(7, i)
           11 |             X[0] = A[v]
           12 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads X
           13 |             v = T.axis.spatial(7, i)
           14 |             C[v] = X[0]
           15 |         with T.block("Y"):
              |         ^^^^^^^^^^^^^^^^^^ writes X
          hint: stage_mem('C', 'X', ...) copies it right before `C`
    """)
    s.stage_mem("C", "X", "x")  # as the hint says
    same_numbers(written_again(), s.func)


def test_an_ordered_axis():
    Checked(ordered()).refuses("""
        reorder('j', 'i'): the axis `w` of block `C` is opaque, and `j` would change its order
            7 |     for i, j in T.grid(7, 5):
              |            ^ drives an opaque axis
            8 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ its block
          hint: if the order does not matter, declare `w` as T.axis.spatial, or T.axis.reduce if it adds up
    """)


@pytest.mark.parametrize("inner", ["ax0", "w"])
@pytest.mark.parametrize("own", ["ax0", "v"])
def test_what_is_moved_keeps_its_names_apart(inner: str, own: str) -> None:
    """New loops around a block are named after nothing that is in it, though it was taken out when they are made."""
    func = program(
        'A: T.Buffer((8, 5), "float32"), C: T.Buffer((8, 5), "float32")',
        f"""
P_ = T.alloc_buffer((8, 5))
for i in range(8):
    with T.block("P"):
        {own} = T.axis.spatial(8, i)
        for j in range(5):
            with T.block("Q"):
                {inner + "_" if inner == own else inner} = T.axis.spatial(5, j)
                P_[{own}, {inner + "_" if inner == own else inner}] = A[{own}, {inner + "_" if inner == own else inner}]
for k, l in T.grid(8, 5):
    with T.block("C"):
        x, y = T.axis.remap("SS", [k, l])
        C[x, y] = P_[x, y]
""",
    )
    s = Schedule(func)
    s.compute_at("P", "k", preserve_unit_loops=True)
    assert verify(s.func).ok, verify(s.func)
    same_numbers(func, s.func)


def two_nests():
    return located("B", over(j, over(i, copy("B", T, A))), over(k, copy("C", X, T, k)), copy("D", Y, T, n))


def test_loops_around_a_block():
    scope, leaf = two_nests()
    assert [dataflow.loop_around(leaf, scope.func, name) for name in "ji"] == [0, 1]
    expected = "`k` is not a loop around `B`; these are `j` and `i` | the loop, the block | None"
    assert refusal(dataflow.loop_around, leaf, scope.func, "k") == expected
    hint = "add_unit_loop('D') makes one"
    assert refusal(dataflow.loop_around, named(scope, "D"), scope.func, "k").endswith(f"| the loop, the block | {hint}")


def test_loops_to_move_under():
    scope, leaf = two_nests()
    root = scope.root
    assert isinstance(root, Seq)
    assert dataflow.locate_loop(scope, leaf, "k") == (root.stmts[1], (root, root.stmts[1]))
    hint = "blocks move into other nests; reorder changes the order of the loops around one"
    assert refusal(dataflow.locate_loop, scope, leaf, "j") == f"`B` is under `j` already | the loop, the block | {hint}"
    scope, leaf = located("B", over(i, copy("B", T, A)), over(j, over(k, copy("C", X, T, k)), kind=Kind.VECTORIZED))
    reason = "`j` is vectorized, and nothing can be moved into its lanes"
    assert refusal(dataflow.locate_loop, scope, leaf, "k") == f"{reason} | vectorized | vectorize afterwards"


def test_leaves_of_conditions():
    func = located("D", copy("D", Y, X, n), If(n < 5, over(i, copy("B", T, A)), copy("C", X, T, n)))[0].func
    scope, leaf = dataflow.locate(func, "C", under_conditions=True)
    assert [x.name for x in scope.leaves] == ["D", "B", "C"]
    assert scope.leaf(leaf.stmt) is leaf and leaf.path[-1] is leaf.stmt and leaf.under(scope.through[0])
    assert [x.name for x in dataflow.locate(func, "D")[0].leaves] == ["D", "a statement outside of blocks"]


def test_leaves_between_two_places():
    scope, leaf = located("B", *(over(x, copy(name, T, A, x)) for x, name in zip((n, i, j, k), "CBDE", strict=True)))
    assert [x.name for x in dataflow.span(scope, leaf.path, named(scope, "D").path)] == ["B", "D"]
    assert [x.name for x in dataflow.span(scope, named(scope, "E").path, leaf.path)] == ["B", "D", "E"]


def test_facts_about_extents():
    outer = block(spatial(n, i), body=For(j, n, nest([(k, 9)], copy("B", T, A, k))), name="O")
    scope, leaf = located("B", For(i, n, outer))
    assert [str(c) for c in dataflow.facts_of(scope, leaf.loops)] == ["v0 < n", "j < n", *map(str, assumptions(scope.func))]


def test_buffers_of_a_block():
    (b, bare), own = (block(body=total(X, **more), name="O") for more in ({"init": stored(X, v0)}, {})), copy("P", T, A)
    names = [list(dataflow.used_buffers(x, written)) for x in (b.body, bare.body, own) for written in (False, True)]
    assert names == [["A"], ["X"], ["X", "A"], ["X"], ["A"], ["T"]]
    assert dataflow.buffer_of(own, "A", written=False) is dataflow.buffer_of(own, 0, written=False) is A
    for number in (-1, 1):
        reason = f"`P` reads 1 buffer(s), `A`: number {number} does not exist"
        hint = "numbers start at 0; a name does as well"
        assert refusal(dataflow.buffer_of, own, number, False) == f"{reason} | the block | {hint}"
    expected = "`P` writes no buffer called `A`, but `T` | writes `T` | None"
    assert refusal(dataflow.buffer_of, own, "A", True) == expected
    assert dataflow.named_buffer(own, "T") is T
    assert refusal(dataflow.named_buffer, own, "X") == "`P` uses no buffer called `X`, but `T` and `A` | here | None"
    inside = block(body=own, allocs=(T,), name="O")
    expected = "`T` is allocated inside of `O`, and nothing outside has it | allocates T | name a block or loop inside of `O`"
    assert refusal(dataflow.buffer_of, inside, "T", True) == refusal(dataflow.need_outside, inside, "T") == expected
    dataflow.need_outside(inside, "A")
