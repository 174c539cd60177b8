"""How the iterations of a parallel loop are shared out: contiguous shares, chunks in turns, chunks for whoever is free."""

from __future__ import annotations

import re

import numpy as np
import pytest

import codegen
from schedule import Schedule
from tests.codegen.harness import ONE, TWO, at_once, same
from tests.codegen.matmul import tiled
from tests.codegen.runtime.test_openmp import caller
from tests.sweeps import one_in
from tir import te
from tir.ir import Buffer, Const, Expr, For, Kind, Load, PrimFunc, Store, Var

FOUR = "llvm -num-cores 4"
WAYS = [{}, {"chunk": 1}, {"chunk": 3}, {"chunk": 1000}, {"schedule": "dynamic"}, {"schedule": "dynamic", "chunk": 5},
        {"schedule": "static"}, {"schedule": "static", "chunk": 2}]  # fmt: skip


def counting(extent: int | Expr, **annotations) -> PrimFunc:
    """Each iteration adds 1 to an element of its own: what is left out, or done twice, shows."""
    i = Var("i")
    x = Buffer("x", (extent if isinstance(extent, Expr) else Const(extent),))
    body = Store(x, (i,), Load(x, (i,)) + 1.0)
    loop = For(i, x.shape[0], body, Kind.PARALLEL, tuple(sorted(annotations.items())))
    return PrimFunc("main", (x, extent) if isinstance(extent, Var) else (x,), loop)


@one_in(2)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("extent", [1, 2, 7, 13, 109])
def test_every_iteration_once(extent, way):
    same(counting(extent, **way), targets=[ONE, TWO, FOUR])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_extents_known_at_the_call(way):
    kernel = codegen.build(counting(Var("n"), **way), TWO)
    for n in (0, 1, 2, 13, 1000):
        x = np.zeros(n, "float32")
        kernel(x, n)
        assert np.all(x == 1)


@one_in(2)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_tiles_and_temporaries(way):
    """A packed operand in each iteration, with a tail."""
    s = Schedule(tiled(97, 13, 109, 6, 32, parallel=True))
    s.cache_read("C_update", "A", "global")
    s.compute_at("A_global", "i_0")
    for key, value in way.items():
        s.annotate("i_0", key, value)
    same(s.func, targets=[TWO, FOUR], fences=True)


def test_a_thread_allocates_once():
    """Not once a chunk: the temporary of 40 KB comes before the loop that takes chunks."""
    x = te.placeholder((13, 10_000), name="x")
    y = te.compute((13, 10_000), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((13, 10_000), lambda i, j: y[i, 9_999 - j], name="z")
    s = Schedule(te.create_prim_func([x, z]))
    i, _ = s.get_loops("z")
    s.compute_at("y", i)
    s.parallel(i)
    s.annotate(i, "schedule", "dynamic")
    text = codegen.build(s.func, TWO).llvm_ir()
    assert text.index("@aligned_alloc(i64 64") < text.index("atomicrmw") < text.index("call void @free")
    assert text.count("call noalias") == 1
    same(s.func, targets=[TWO])


def test_what_is_emitted():
    assert "atomicrmw" not in codegen.build(counting(13, chunk=2), TWO).llvm_ir()
    text = codegen.build(counting(13, schedule="dynamic", chunk=2), TWO).llvm_ir()
    assert "atomicrmw add ptr %counter, i64 2" in text
    assert "omp_get_thread_num" not in text  # who it is does not matter


def test_nested_parallel_loops():
    """The inner one runs in the thread that reached it, however it is to be shared out."""
    s = Schedule(tiled(24, 13, 64, 6, 32, parallel=True))
    s.parallel("j_0")
    for loop in ("i_0", "j_0"):
        s.annotate(loop, "schedule", "dynamic")
    assert codegen.build(s.func, TWO).llvm_ir().count("call void @GOMP_parallel(") == 1
    same(s.func, targets=[TWO])


def test_calls_from_several_threads():
    """Each call has a counter of its own."""
    s = Schedule(tiled(97, 13, 109, 6, 32, parallel=True))
    s.annotate("i_0", "schedule", "dynamic")
    kernel = codegen.build(s.func, TWO)
    at_once(*(caller(kernel, 97, 13, 109, seed) for seed in range(4)))


def test_a_loop_that_is_not_parallel_ignores_them():
    func = counting(13, schedule="dynamic")
    assert isinstance(func.body, For)
    same(func.with_(body=func.body.with_(kind=Kind.SERIAL)))


@pytest.mark.parametrize(("key", "value", "message"), [
    ("schedule", "guided", 'loop `i`: the annotation schedule must be "static" or "dynamic", got \'guided\''),
    ("schedule", 1, 'loop `i`: the annotation schedule must be "static" or "dynamic", got 1'),
    ("chunk", -1, "loop `i`: the annotation chunk must be an integer from 0 to 2147483647, got -1"),
    ("chunk", True, "loop `i`: the annotation chunk must be an integer from 0 to 2147483647, got True"),
    ("chunk", "2", "loop `i`: the annotation chunk must be an integer from 0 to 2147483647, got '2'"),
    ("chunk", 2**62, f"loop `i`: the annotation chunk must be an integer from 0 to 2147483647, got {2**62}"),
])  # fmt: skip
def test_other_values_are_refused(key, value, message):
    for target in (ONE, TWO):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            codegen.build(counting(13, **{key: value}), target)


def test_dynamic_chunks_are_a_part_of_a_share():
    """Sixteen for each of two threads, if nobody says: the counter goes up by 31 for 1000 iterations, by 1 for a few."""
    text = codegen.build(counting(Var("n"), schedule="dynamic"), TWO).llvm_ir()
    part = re.search(r"(%\S+) = udiv i64 %n, 32\n", text)
    assert part is not None
    size = re.search(rf"(%\S+) = call i64 @llvm.umax.i64\(i64 {part[1]}, i64 1\)", text)
    assert size is not None and f"atomicrmw add ptr %counter, i64 {size[1]} monotonic" in text
    given = codegen.build(counting(1000, schedule="dynamic", chunk=5), TWO).llvm_ir()
    assert "atomicrmw add ptr %counter, i64 5 monotonic" in given
