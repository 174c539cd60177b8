"""A primitive of the user's own is a method of schedules once it is registered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tir
from schedule import REGISTRY, Schedule, primitive, replay
from schedule.primitive import LoopName, find_loop
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


def test_what_is_no_primitive(twice) -> None:
    s = Schedule(matmul(7, 13, 5))
    with pytest.raises(AttributeError) as caught:
        s.split_twise("i", 2)
    assert str(caught.value) == "a Schedule has no attribute 'split_twise'; did you mean `split_twice`?"
    assert not hasattr(s, "_repr_png_")
