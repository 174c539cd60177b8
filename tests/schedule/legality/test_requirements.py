"""Requirements on a block that is moved, copied or decomposed: each refusal, and what is just not refused."""

from __future__ import annotations

import pytest

from schedule import ScheduleError
from schedule.legality import requirements as must
from tests.schedule.legality.nests import block, i, j, k, loops, n, opaque, reduce, spatial, stored, t, v0, v1
from tests.schedule.legality.programs import A, T, U, X, Y, alone, copy, located, named, over, refusal, total
from tir.ir import Block, Buffer, Const, Evaluate, For, If, Kind, Range, Region, Select, Stmt, Var, all_zero, nest, seq

ONE = Const(1.0, "float32")


IN_ANY_ORDER = "if the order does not matter, declare `v1` as T.axis.spatial, or T.axis.reduce if it adds up"
START = stored(X, v0)
UPDATE = stored(X, v0, value=X[v0] + 1)


def test_results_of_inputs_alone():
    ordered = alone(block(spatial(9, i), opaque(9, j), body=START), i=9, j=9)
    expected = f"`B` has the opaque axis `v1`, so it cannot be moved | opaque axis | {IN_ANY_ORDER}"
    assert refusal(must.need_complete, *ordered, "moved") == expected
    reason = "`B` updates `X` without an init, so it cannot be moved | reads and writes X"
    for b in (block(spatial(9, i), body=UPDATE), block(spatial(9, i), body=UPDATE, init=START), total(X)):
        expected = f"{reason} | say with T.init() what `X` starts from"
        assert refusal(must.need_complete, *alone(b, i=9, k=9), "moved") == expected
    decomposed = located("B", over(i, copy("C", X, A)), over(i, over(k, total(X))))
    assert refusal(must.need_complete, *decomposed, "moved") == f"{reason} | do this before decompose_reduction"
    own = seq(stored(T, 0, value=T[0] + 1), stored(X, v0, value=T[0]))
    for b in (total(X, init=START), block(spatial(9, i), body=own, allocs=(T,))):
        must.need_complete(*alone(b, i=9, k=9), "moved")


def test_reductions_that_go_on_in_other_iterations():
    def inner(rows, terms, binding, kind=reduce):
        b = block(spatial(9, v0), kind(9, binding), body=UPDATE, init=START)
        outer = block(spatial(9, i), reduce(rows, j), body=nest(loops(t=terms), b), name="O")
        return *located("B", nest(loops(i=9, j=rows), outer)), "the copy is"

    reason = "`B` goes on reducing over `v1` in other iterations of `O`, in which the copy is allocated"
    expected = f"{reason} | its `v1` drives the reduction, reduces | do this before blockize"
    assert refusal(must.need_whole_reduction, *inner(3, 3, v1 * 3 + t)) == expected
    must.need_whole_reduction(*inner(1, 9, v1 * 9 + t))
    must.need_whole_reduction(*inner(3, 9, t))
    must.need_whole_reduction(*inner(3, 3, v1 * 3 + t, spatial))
    must.need_whole_reduction(*alone(total(X, init=START), i=9, k=9), "the copy is")


def test_readers_come_later():
    scope, leaf = located("B", over(i, copy("C", X, T)), over(i, copy("B", T, A)), over(i, copy("D", Y, T)))
    hint = "let `C` read another buffer, as it needs the values of before"
    assert refusal(must.need_read_later, scope.readers("T"), leaf) == f"`C` reads `T` before `B` writes it | first, then | {hint}"
    must.need_read_later([leaf, named(scope, "D")], leaf)


def test_other_writers():
    def beside(*other):
        return *located("B", over(i, copy("B", T, A)), *other), "moved"

    expected = "`C` writes `T` too, so `B` cannot be moved | writes T, writes T | let each of the two write a buffer of its own"
    once, whole = beside(over(i, copy("C", T, X))), beside(over(i, over(k, total(T, init=stored(T, v0), name="C"))))
    assert refusal(must.need_only_writer, *once) == refusal(must.need_own_temporary, *once) == expected
    assert refusal(must.need_only_writer, *whole) == expected
    must.need_own_temporary(*once, lambda other: other.name == "C")
    decomposed = beside(over(i, over(k, total(T, name="C"))))
    assert refusal(must.need_only_writer, *decomposed).endswith("| writes T, writes T | do this before decompose_reduction")
    reason = "a statement outside of blocks writes `T` too, so `B` cannot be moved"
    assert refusal(must.need_only_writer, *beside(stored(T, 0))).startswith(reason)


def test_temporaries():
    parameter = *alone(copy("B", X, A), i=9), "moved"
    hint = "cache_write('B', 'X', 'global') first: `B` then writes a temporary"
    expected = f"`X` is a parameter of the function, so `B` cannot be moved | writes X | {hint}"
    assert refusal(must.need_temporary, *parameter) == refusal(must.need_own_temporary, *parameter) == expected
    nested = block(body=over(i, copy("B", T, A)), name="O")
    used = *located("B", nested, stored(X, 0, value=T[0])), "moved"
    assert refusal(must.need_temporary, *used).startswith(
        "`T` is used outside of this block, so `B` cannot be moved | writes T |"
    )
    must.need_temporary(*located("B", nested), "moved")
    update = block(spatial(9, i), body=stored(T, v0, value=T[v0] + 1))
    assert refusal(must.need_own_temporary, *alone(update, i=9), "moved").endswith("say with T.init() what `T` starts from")


LATER = over(j, copy("D", Y, X, j))


def need_same_inputs(*program: Stmt, target: Stmt = LATER) -> None:
    """As where `B` stands in a program, in another place."""
    scope, leaf = located("B", *program)
    must.need_unchanged_inputs(scope, leaf, [(scope.root, target)])


def test_inputs_that_are_written_again():
    first, second = over(i, copy("B", X, T)), over(i, copy("C", T, A))
    hint = "let `C` come after all that reads what `B` writes, or write another buffer"
    expected = f"`C` writes `T`, which `B` reads, before the new place | reads T, writes T | {hint}"
    assert refusal(need_same_inputs, first, second, LATER) == expected
    need_same_inputs(first, second, target=first)


@pytest.mark.parametrize(("kind", "word"), [(Kind.PARALLEL, "parallel"), (Kind.THREAD, "bound to a GPU axis")])
def test_inputs_that_are_made_in_a_parallel_loop(kind, word):
    side = over(i, copy("C", T, A), copy("B", X, T), kind=kind)
    reason, hint = "`B` cannot leave `i`, in which `C` makes what it reads", "move blocks before loops are marked"
    assert refusal(need_same_inputs, side, LATER) == f"{reason} | {word}, writes T, the block | {hint}"
    need_same_inputs(side, LATER, target=side)
    need_same_inputs(over(i, copy("C", T, A)), over(i, copy("B", X, T), kind=kind), LATER)
    need_same_inputs(over(i, copy("B", X, A), kind=kind), LATER)


READ_ALL = over(i, copy("B", Y, T))


def need_finished(*program: Stmt, reader: Stmt = READ_ALL, hint: str | None = None) -> None:
    """In a loop `j`, of what `C`, or the first statement, writes and `B` reads."""
    scope, leaf = located("B", over(j, *program, reader))
    writer = next((x for x in scope.leaves if x.name == "C"), scope.leaves[0])
    must.need_final_inputs(scope, leaf, writer, hint)


UNFINISHED = "`B` may read `T` before `C` has finished it | the loop around both, writes T, reads T"
ELSEWHERE = "compute `C` in loops of its own, before `B`"
SUM = block(reduce(9, k), body=stored(T, 0, value=T[0] + A[v0]), name="C")


def ordered(name: str, loop: Var, target: Buffer) -> Block:
    return block(opaque(9, loop), body=stored(target, v0), name=name)


@pytest.mark.parametrize("program", [
    [ordered("C", j, T)],
    [block(reduce(9, j), body=SUM.body, init=stored(T, 0), name="C")],
    [block(spatial(9, j), body=stored(T, v0, value=T[v0] + 1), name="C")],
    [over(k, SUM)],
    [copy("D", T, A, j), over(i, over(k, total(T, name="C")))],  # starts one element again, and adds to all
    [over(i, ordered("D", i, U)), copy("C", T, U, j)],
    [copy("C", T, U, j), copy("D", U, A, j)],
])  # fmt: skip
def test_inputs_that_are_not_final(program):
    assert refusal(need_finished, *program) == f"{UNFINISHED} | {ELSEWHERE}"


def test_other_inputs_that_are_not_final():
    assert refusal(need_finished, ordered("C", j, T), hint="another") == f"{UNFINISHED} | another"
    reason = "`B` may read `T` before a statement outside of blocks has finished it | "
    assert refusal(need_finished, stored(T, 0)).startswith(reason)
    reason = "`B` may read elements of `X` that `C` writes only later | the loop around both, writes X, reads X"
    assert refusal(need_finished, copy("C", X, A, j), reader=over(i, copy("B", Y, X))) == f"{reason} | {ELSEWHERE}"
    need_finished(copy("C", X, A, j), reader=copy("B", Y, X, j))


def test_inputs_that_are_final():
    need_finished(copy("C", T, A, j))
    need_finished(block(body=stored(T, 0), name="D"), over(k, SUM))
    need_finished(over(k, SUM.with_(init=stored(T, 0))))
    need_finished(over(i, copy("D", T, A)), block(spatial(9, j), body=stored(T, v0, value=T[v0] + 1), name="C"))
    need_finished(over(i, copy("D", U, A)), copy("C", T, U, j))
    part = block(spatial(9, k), body=stored(X, v0, value=A[v0]), where=(k < 5,), name="C")
    scope, leaf = located("B", over(k, part), over(i, copy("B", Y, X)))
    must.need_final_inputs(scope, leaf, named(scope, "C"))


def test_conditions_on_axes():
    b = block(spatial(9, i), spatial(9, j * 3 + k), where=(i < 7, j * 3 + k < 9, k + i < 5, j < 2))
    said, others = must.conditions_on_axes(*alone(b, i=9, j=4, k=3))
    assert ([str(c) for c in said], [str(c) for c in others]) == (["v0 < 7"], ["k + i < 5", "j < 2"])


def test_domains_that_are_not_safe():
    at = alone(block(spatial(9, i), reduce(5, k), body=stored(X, v0, value=A[v0 + 1])), i=9, k=5)
    would = "`B` runs only where `{}`; moved, it would run at all points of its axes, and could then {} | runs under a condition"
    would += " | give its axes extents that need no condition, or let its formula choose (T.if_then_else)"
    assert refusal(must.need_safe_domain, *at, [i < 8], "moved") == would.format("i < 8", "access elements that do not exist")
    assert refusal(must.need_safe_domain, *at, [k < i], "moved") == would.format("k < i", "reduce over more than it does")
    must.need_safe_domain(*at, [], "moved")
    must.need_safe_domain(*alone(copy("B", X, A), i=9), [i < 8], "moved")


def test_accesses_in_bounds():
    def inside(body: Stmt) -> bool:
        return must.in_bounds(block(spatial(7, i), spatial(n, j), body=body), {"v0": (0, 6), "v1": (0, None)})

    V = Buffer("V", (n,))
    chosen = Select(v0 >= 1, A[v0 - 1], Select(v0 < 6, A[v0 + 3], ONE, lazy=True), lazy=True)
    assert inside(stored(X, v0 + 2, value=A[8 - v0])) and inside(stored(X, v0, value=chosen)) and inside(stored(V, v1))
    for out in (stored(X, v0 + 3), stored(X, v0 - 1), stored(V, v1 + 1), stored(V, v0), stored(X, v0, value=A[v0 - 1])):
        assert not inside(out)
    assert inside(over(i, stored(X, 3))) and not inside(over(i, stored(X, i)))  # `i` may be anything
    assert not inside(If(v0 >= 1, stored(X, v0 - 1)))  # is not looked into


def test_single_stores():
    hint = "its formula is needed: it must be one store, without T.init()"
    for more in ({"body": seq(START, START)}, {"body": START, "init": START}, {"body": Evaluate(ONE)}):
        assert refusal(must.single_store, block(**more)) == f"`B` is more than a single store | not the only statement | {hint}"
    with pytest.raises(ScheduleError) as caught:
        must.single_store(block(body=seq(START, UPDATE)))
    assert caught.value.marks[0][0] == UPDATE
    assert must.single_store(block(body=START)) == START


def test_axes_that_index_dimensions():
    b, M = block(spatial(9, i), spatial(9, j), spatial(1, 0), reduce(9, k)), Buffer("M", (Const(9), Const(9)))
    assert must.own_axes(b, stored(M, v1, v0)) == ["v1", "v0"]
    assert must.own_axes(block(spatial(9, i)), stored(M, v0, 0)) == ["v0", None]
    for index in (v0, v0 + 1, Const(1), Var("v3"), n):
        reason = f"`B` writes `M` at `{index}`, which is not an axis of its own"
        hint = "it must write at X[i, j, ...], each index an axis of the block, or 0"
        assert refusal(must.own_axes, b, stored(M, v0, index)) == f"{reason} | the store | {hint}"
    reason = "the axis `v1` of `B` does not index `M`, so the last of its iterations counts"
    hint = "leave out the axis `v1`, or make it a dimension of `M`"
    assert refusal(must.own_axes, b, stored(M, v0, 0)) == f"{reason} | the store | {hint}"


def test_loops_of_the_init():
    b = block(spatial(9, i), reduce(9, k + j), opaque(9, j))
    thread = For(k, Const(9), b, Kind.THREAD, thread="threadIdx.x")
    reason = "`k`, which drives the reduction, is bound to threadIdx.x: threads that reduce together need the init"
    expected = f"{reason} | drives the reduction, the block | do this before bind"
    assert refusal(must.need_no_threads, b, [thread], {"k"}) == expected
    must.need_no_threads(b, [thread, *loops(j=9)], {"j"})
    reason = "`j` drives the reduction and spatial axes of `B`, so the init has no loop of its own"
    expected = f"{reason} | drives both, the block | decompose_reduction before the loops are fused"
    assert refusal(must.need_loops_for_init, b, loops(i=9, j=9), {"j", "k"}, {"i", "j"}) == expected
    reason = "`j` drives an opaque axis of `B`, and all of its inits would run before its updates"
    expected = f"{reason} | drives an opaque axis, the block | choose a loop inside of `j`"
    assert refusal(must.need_loops_for_init, b, loops(i=9, k=9, j=9), {"k"}, {"i"}) == expected
    must.need_loops_for_init(b, loops(i=9, k=9, j=1), {"k"}, {"i"})
    assert must.drives_both(b, thread, "fuse").reason == "`k` drives the reduction and spatial axes of `B`"


def test_reductions_without_iterations():
    b = block(spatial(n, i), reduce(n, k))
    reason = "`k`, which drives the reduction of `B`, may have no iterations, and the init would not run then"
    expected = f"{reason} | runs over n, a reduction | decompose_reduction('B', 'k') first"
    assert refusal(must.need_iterations, b, loops(i=n, k=n), {}, []) == expected
    must.need_iterations(b, loops(i=n, k=n), {}, [n >= 1])
    must.need_iterations(b, loops(k=1), {}, [])


def test_reductions_start_at_0():
    b = block(spatial(9, i + 2), reduce(9, k + 4), reduce(3, j))
    bindings, zeros = {it.var.name: it.binding for it in b.iters}, all_zero([i, j, k])
    expected = "the reduction axis `v1` starts at `4`, where no init runs | the block | let `v1` start at 0"
    assert refusal(must.need_start_at_0, b, bindings, zeros, {}) == expected
    must.need_start_at_0(b, {**bindings, "v1": k}, zeros, {})


def test_stated_reads_of_an_update():
    x, a = (Region(buffer, (Range(v0, Const(1)),)) for buffer in (X, A))
    assert must.updated_reads(block(reads=(a,), writes=(x,))) == (x, a)
    assert must.updated_reads(block(reads=(a, x), writes=(x,))) == (a, x)
    assert must.updated_reads(block(writes=(x,))) is None
    assert must.updated_reads(block(reads=(a,))) == (a,)


def early_init(*body: Stmt) -> None:
    """In a loop `j`, of what `B` writes in it."""
    scope, leaf = located("B", over(j, *body))
    must.need_late_readers(scope, leaf, leaf.loops[0])


def test_who_sees_an_early_init():
    for name, body in (
        ("T", [copy("C", Y, T, j), over(i, copy("B", T, A))]),
        ("T", [over(i, copy("B", T, A)), copy("C", T, A, j)]),
        ("X", [copy("B", X, A, j), over(i, copy("C", Y, X))]),
    ):
        reason = f"`C` uses `{name}` under `j`, and could see that it is initialised earlier"
        expected = f"{reason} | the loop, uses {name}, writes {name} | choose a loop that is not around `C`"
        assert refusal(early_init, *body) == expected
    early_init(copy("D", U, A, j), over(i, copy("B", T, A)), copy("C", Y, T, j))
    early_init(over(i, copy("B", X, A)), over(i, copy("C", Y, X)))


def loops_of(program: Stmt) -> list[str]:
    return [x.name for x in must.own_loops(located("B", program)[1])]


def test_loops_of_its_own():
    b = copy("B", X, A)
    hint = "do this before anything is moved there (compute_at, reverse_compute_at)"
    shared = over(j, over(i, b), over(i, copy("C", Y, A)))
    assert refusal(loops_of, shared) == f"`B` is not alone in `j` | the loop, the block | {hint}"
    for loop, word in ((over(i, b, kind=Kind.PARALLEL), "parallel"), (over(i, b).with_(annotations=(("a", 1),)), "annotated")):
        assert refusal(loops_of, loop) == f"`i` is {word}, which would be lost | {word} | mark the new loops instead"
    reason = "`i` is not the loop of one iteration variable of `B` over its whole extent | the loop, the block"
    for axes in ([spatial(9, 8 - i)], [spatial(7, i)], [spatial(9, i), spatial(9, i)], [spatial(9, 0)]):
        assert refusal(loops_of, over(i, block(*axes))) == f"{reason} | do this before split, fuse and tile"
    ordered = over(j, over(i, block(spatial(9, i), opaque(9, j))))
    assert refusal(loops_of, ordered) == f"`v1` of `B` is an opaque axis | opaque axis | {IN_ANY_ORDER}"
    for value in (0, n):
        expected = "`v1` of `B` has no loop of its own | the block | do this before fuse"
        assert refusal(loops_of, over(i, block(spatial(9, i), spatial(9, value)))) == expected
    expected = "`B` runs only where `i < 7` | guarded | do this before split by a factor that does not divide"
    assert refusal(loops_of, over(i, block(spatial(9, i), where=(i < 7,)))) == expected
    assert loops_of(over(j, over(i, block(spatial(9, i), reduce(9, j), spatial(1, 0))))) == ["j", "i"]
