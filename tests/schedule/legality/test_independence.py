"""Loops whose iterations are independent are so for threads, lanes and GPU threads alike."""

from __future__ import annotations

import pytest

from schedule import Schedule, ScheduleError
from schedule.legality.independence import independent_iterations, need_markable, need_no_lanes
from tests.schedule.harness import same_numbers, well_formed
from tests.schedule.legality.nests import block, i, j, k, n, opaque, reduce, spatial, stored, t, v0, v1
from tests.schedule.legality.programs import A, T, X, Y, over, refusal
from tests.tir.script.parsing import parsed
from tir.ir import NOTHING, Buffer, Const, Evaluate, For, If, Kind, Stmt, seq
from tir.script import parse


def element(rows: str, columns: str, where: str = "") -> Schedule:
    """C = A + 1 at places of three loops."""
    return Schedule(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 12), "float32"), C: T.Buffer((7, 12), "float32")):
    for a, b, c in T.grid(7, 2, 6):
        with T.block("C"):
            {where}
            vi = T.axis.spatial(7, {rows})
            vj = T.axis.spatial(12, {columns})
            C[vi, vj] = A[vi, vj] + 1.0
""")
    )


MARKS = ("parallel", "vectorize", "bind")
PLACES = {
    "plain": ("a", "b * 6 + c", "abc"),
    "fused and split": ("(a * 12 + b * 6 + c) // 12", "(a * 12 + c * 2 + b) % 12", "abc"),
    "scattered": ("a", "(b * 6 + c * 7) % 12", "abc"),
    "scattered in both": ("(a * 2 + b) // 2", "(b * 6 + c * 7) % 12", "abc"),
    "clashing": ("a", "(b * 7 + c * 5) % 12", "ac"),  # b, c = 1, 0 and b, c = 0, 5 are both 7
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("loop", "abc")
def test_all_marks_have_one_rule(places, loop):
    rows, columns, independent = PLACES[places]
    for mark in MARKS:
        s = element(rows, columns)
        before = s.func
        args = (loop, "threadIdx.x") if mark == "bind" else (loop,)
        if loop in independent:
            getattr(s, mark)(*args)
            well_formed(s.func)
            same_numbers(before, s.func, seeds=(0,), llvm=False)
        else:
            with pytest.raises(ScheduleError, match="cannot prove that different iterations of `b` touch different elements"):
                getattr(s, mark)(*args)


def test_marks_that_exclude_others():
    loop = over(i, NOTHING, kind=Kind.PARALLEL)
    need_markable(loop, Kind.PARALLEL)
    need_markable(loop, Kind.UNROLLED, Kind.PARALLEL)
    need_markable(over(i, NOTHING), Kind.VECTORIZED)
    expected = "`i` is already parallel | parallel | serial('i') takes the mark away"
    assert refusal(need_markable, loop, Kind.VECTORIZED) == expected
    need_no_lanes([loop, over(j, NOTHING)], "why")
    expected = "`k` is inside the vectorized loop `j` | vectorized, inside it | why"
    assert refusal(need_no_lanes, [loop, over(j, NOTHING, kind=Kind.VECTORIZED), over(k, NOTHING)], "why") == expected


def marked(body: Stmt, how: str = "parallel", private: tuple[str, ...] = ()) -> None:
    """Mark a loop `i` around a body."""
    independent_iterations([over(i, body)], how, lambda: {*private})


SPATIAL = "choose a loop that drives a spatial axis of `B`"
VERIFIES = "make a block that verifies"
AXES_DO = "its spatial axes do, what it writes does not depend on `i`"


@pytest.mark.parametrize("body", [
    block(spatial(9, i), body=If(v0 < 1, stored(X, 0))),
    block(spatial(9, i), body=If(v0 < 8, stored(Y, v0), stored(X, 0))),
    block(spatial(9, i), body=stored(X, 0), where=(i < 1,)),
    block(spatial(9, i), body=stored(T, 0), allocs=(T,)),
    block(spatial(9, i), body=seq(stored(X, v0), If(n < 3, stored(Y, v0)))),
    block(spatial(1, 0), reduce(9, k), body=Evaluate(A[v1])),
])  # fmt: skip
def test_iterations_that_write_apart(body):
    marked(body)


@pytest.mark.parametrize(("body", "note", "hint"), [
    (block(spatial(9, i), body=stored(X, 0)), AXES_DO, VERIFIES),
    (block(spatial(9, i), body=If(A[0] > 0, stored(X, 0))), AXES_DO, VERIFIES),
    (block(spatial(9, i), body=For(t, Const(9), If(t < 3, stored(X, t)))), AXES_DO, VERIFIES),
    (block(spatial(9, i), body=seq(If(v0 < 1, stored(X, 0)), stored(X, 0))), AXES_DO, VERIFIES),
    (block(spatial(9, i), body=seq(If(v0 < 1, stored(Y, 0)), stored(X, 0))), AXES_DO, VERIFIES),
    (block(spatial(9, i), spatial(5, j), body=stored(X, v1)), AXES_DO, VERIFIES),
    (over(j, block(spatial(9, j), body=stored(X, v0))), "does not depend on `i`", SPATIAL),
])  # fmt: skip
def test_iterations_that_write_the_same(body, note, hint):
    expected = f"every iteration of `i` writes the same elements of `X` | cannot be parallel, {note} | {hint}"
    assert refusal(marked, body) == f"{expected}, or compute the block outside this loop"
    marked(body, private=("X",))


def test_races_without_a_witness():
    with pytest.raises(ScheduleError) as caught:
        marked(stored(X, i * 5 % 9))
    assert str(caught.value).startswith("cannot prove that different iterations of `i` touch different elements of `X`")
    assert caught.value.found_witness() is None


@pytest.mark.parametrize(("axis", "how", "word", "note", "hint"), [
    (reduce, "parallel", "reduction", "accumulates over it", "rfactor('i', 0) gives each iteration its own partial result"),
    (reduce, "vectorized", "reduction", "accumulates over it",
     "reorder a spatial loop to the inside and vectorize that, or rfactor this one"),
    (opaque, "parallel", "opaque", "needs the order of its iterations",
     "if the order does not matter, declare `v1` as T.axis.spatial, or T.axis.reduce if it adds up"),
])  # fmt: skip
def test_iterations_that_depend_on_each_other(axis, how, word, note, hint):
    reason = f"`i` drives the {word} axis `v1` of `B`, so its iterations depend on each other"
    for first in (j, i):
        b = block(spatial(9, first), axis(9, i), body=stored(Buffer("X", (Const(9), Const(9))), v0, v1))
        assert refusal(marked, b, how) == f"{reason} | cannot be {how}, {note} | {hint}"


def test_iterations_that_write_apart_as_stated_are_independent():
    text = """
for t, q in T.grid(6, 2):
    with T.block("B"):
        vt, vq = T.axis.remap("SS", [t, q])
        T.reads(A[vt, 0:13])
        T.writes(B[vt, 0:13])
        T.evaluate(T.call_extern("int32", "f", A.access_ptr("r", offset=vt * 13), B.access_ptr("w", offset=vt * 13), vq))
"""
    Schedule(parsed(text)).parallel("t")
    s = Schedule(parsed(text))
    outer, _ = s.split("t", [None, 4])
    s.parallel(outer)
    overlapping = text.replace("B[vt, 0:13]", "B[vt:vt + 2, 0:13]")
    unstated = text.replace("        T.writes(B[vt, 0:13])\n", "")
    for wrong, loop in ((text, "q"), (overlapping, "t"), (unstated, "t")):
        with pytest.raises(ScheduleError, match=r"^parallel\(.*: every iteration of `.` writes the same elements of `B`"):
            Schedule(parsed(wrong)).parallel(loop)
