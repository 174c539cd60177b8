"""Where blocks stand, and what several primitives require of them: refusals, each with what to try."""

import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain, matmul
from tests.schedule.harness import Checked, same_numbers
from tir.ir import PrimFunc
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
