"""A primitive of the user's own is a method of schedules once it is registered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tir
from schedule import REGISTRY, Schedule, Trace, primitive, replay
from schedule.primitive import BlockName, BufferOfBlock, LoopName, find_loop
from schedule.rewriting.index_map import MapOfAxes, MapOfIndices
from tests.codegen.matmul import matmul
from tir.ir import PrimFunc


@pytest.fixture
def twice() -> Iterator[None]:
    @primitive
    def split_twice(func: PrimFunc, loop: LoopName, factor: int) -> tuple[PrimFunc, list[str]]:
        """Divide a loop in three."""
        find_loop(func, loop)
        return REGISTRY["split"](func, loop, [None, factor, factor])

    yield
    del REGISTRY["split_twice"]


def test_it_is_a_method(twice) -> None:
    s = Schedule(matmul(7, 13, 5))
    assert s.split_twice("i", factor=2) == ["i_0", "i_1", "i_2"]
    assert s.split_twice.__doc__ == "Divide a loop in three."
    assert str(s.trace) == "s.split_twice('i', 2)  # i_0, i_1, i_2\n"
    assert replay(matmul(7, 13, 5), s.trace).func == s.func
    with pytest.raises(tir.ScheduleError, match="split_twice\\('x', 2\\): `x` is no loop of this function"):
        s.split_twice("x", 2)


def test_types_are_needed() -> None:
    """Without them the first call would fail, somewhere inside."""

    def halve(func, loop):
        return REGISTRY["split"](func, loop, [2, None])

    def halve_typed(func, loop: LoopName):
        return halve(func, loop)

    with pytest.raises(TypeError, match=r"^primitive halve: the parameter `loop` needs a type, such as int, or LoopName"):
        primitive(halve)
    with pytest.raises(TypeError, match=r"^primitive halve_typed: the result needs a type: `-> tuple\[PrimFunc, str\]`"):
        primitive(halve_typed)
    assert "halve" not in REGISTRY and "halve_typed" not in REGISTRY


def test_what_is_no_primitive(twice) -> None:
    s = Schedule(matmul(7, 13, 5))
    with pytest.raises(AttributeError) as caught:
        s.split_twise("i", 2)
    assert str(caught.value) == "a Schedule has no attribute 'split_twise'; did you mean `split_twice`?"
    with pytest.raises(AttributeError, match="no attribute 'interchange'; did you mean `reorder`"):
        s.interchange("i", "j")
    assert not hasattr(s, "_repr_png_")


@pytest.fixture
def turn() -> Iterator[None]:
    @primitive
    def turn(
        func: PrimFunc, nest: BlockName, memory: BufferOfBlock, turned: MapOfIndices, axes: MapOfAxes
    ) -> tuple[PrimFunc, None]:
        """Turn a buffer and the axes of a block."""
        func, _ = REGISTRY["transform_layout"](func, nest, memory, turned)
        return REGISTRY["transform_block_layout"](func, nest, axes)

    yield
    del REGISTRY["turn"]


def test_functions_of_indices_are_text_by_their_kind(turn) -> None:
    func = tir.te.create_prim_func(
        [(a := tir.te.placeholder((7, 13), name="A")), tir.te.compute((7, 13), lambda i, j: a[i, j], "B")]
    )
    s = Schedule(func)
    s.cache_write("B", 0, "local")
    s.turn("B", ("write", 0), lambda *i: i[::-1], axes=lambda *v: v[::-1])
    assert str(s.trace[-1]) == "s.turn('B', ['write', 0], 'lambda i0, i1: (i1, i0)', 'lambda v0, v1: (v1, v0)')"
    assert replay(func, Trace.from_json(s.trace.to_json())).func == s.func
    with pytest.raises(
        tir.ScheduleError, match="an index map is a function such as `lambda i, j: \\(j, i\\)`, or its text, got 3"
    ):
        s.turn("B", ("write", 0), 3, lambda *v: v)
