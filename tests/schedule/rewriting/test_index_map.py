"""Index maps from constructors: they are those of the lambdas that say the same."""

import pytest

from schedule import IndexMap, Schedule, ScheduleError
from schedule.rewriting.index_map import parse_index_map
from tests.programs import chain, matmul
from tir.ir import Const


@pytest.mark.parametrize("built, text", [
    (IndexMap.identity(2), "lambda i0, i1: (i0, i1)"),
    (IndexMap.identity("ij").permute(1, 0), "lambda i, j: (j, i)"),
    (IndexMap.identity("ij").permute(1), "lambda i, j: (j,)"),
    (IndexMap.identity("ij").tile(0, 16), "lambda i, j: (i // 16, i % 16, j)"),
    (IndexMap.identity("i").tile(0, 13, 4), "lambda i: (i // 4 // 13, i // 4 % 13, i % 4)"),
    (IndexMap.identity("ij").tile(0), "lambda i, j: (i, j)"),
    (IndexMap.identity("ij").tile(0, 16).permute(0, 2, 1), "lambda i, j: (i // 16, j, i % 16)"),
    (IndexMap.identity("ijk").fuse(0, 13, 7), "lambda i, j, k: ((i * 13 + j) * 7 + k,)"),
    (IndexMap.identity("ijk").fuse(1, 7), "lambda i, j, k: (i, j * 7 + k)"),
    (IndexMap.identity("ij").fuse(1), "lambda i, j: (i, j)"),
])  # fmt: skip
def test_constructors_say_what_lambdas_say(built, text):
    assert str(built) == text
    assert parse_index_map(text, chain(), [Const(13)] * len(built.inputs)) == built


NAMES = """an index map has at least one index, each with a name of its own, got {}
  hint: IndexMap.identity(2), or IndexMap.identity(["i", "j"])"""


def test_refusals():
    for call, reason in (
        (lambda m: m.permute(), "an order is one or more different numbers from 0 to 1, got []"),
        (lambda m: m.permute(0, 0), "an order is one or more different numbers from 0 to 1, got [0, 0]"),
        (lambda m: m.permute(2), "an order is one or more different numbers from 0 to 1, got [2]"),
        (lambda m: m.tile(0, 0), "factors must be integers of at least 1, got 0\n  hint: tile(0, 16)"),
        (lambda m: m.tile(0, 1.5), "factors must be integers of at least 1, got 1.5\n  hint: tile(0, 16)"),
        (lambda m: m.fuse(0, 0), "extents must be integers of at least 1, got 0\n  hint: fuse(0, 16)"),
        (lambda m: m.fuse(1, 7), "`lambda i0, i1: (i0, i1)` has no 2 outputs from 1 on\n  hint: numbers start at 0"),
        (lambda m: m.tile(-1, 7), "`lambda i0, i1: (i0, i1)` has no output -1\n  hint: numbers start at 0"),
        (lambda m: m.tile("i", 7), "`lambda i0, i1: (i0, i1)` has no output 'i'\n  hint: numbers start at 0"),
        (lambda m: m.identity("ii"), NAMES.format("'ii'")),
        (lambda m: m.identity(0), NAMES.format("0")),
    ):
        with pytest.raises(ScheduleError) as caught:
            call(IndexMap.identity(2))
        assert str(caught.value) == reason


def test_steps_with_constructors_are_those_with_lambdas():
    def steps(s: Schedule, build: bool) -> None:
        m = IndexMap.identity
        s.cache_write("C", 0, "global")
        s.transform_layout("C", ("write", 0), m("ij").tile(1, 5) if build else lambda i, j: (i, j // 5, j % 5), pad_value=0.0)
        s.reindex_cache_read("C", 0, "local", m("ijk").permute(2, 0) if build else lambda i, j, k: (k, i))
        s.transform_block_layout("C", m("ijk").permute(1, 0, 2).fuse(0, 7) if build else lambda i, j, k: (j * 7 + i, k))

    built, written = (Schedule(matmul(7, 5, 13)) for _ in range(2))
    steps(built, True)
    steps(written, False)
    assert built.func.script() == written.func.script()
    assert built.trace.as_json() == written.trace.as_json()
