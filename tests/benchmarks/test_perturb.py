"""The benchmark that changes one number of the templates at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tir
from benchmarks import breadth, perturb
from benchmarks.options import Options
from schedule import machine, product_blocks, register_tiles
from schedule.templates import gemm, marks


@pytest.fixture(scope="module")
def numbers():
    return {number.place: number for number in perturb.numbers()}


@pytest.fixture
def func():
    return breadth.problem("outer", 0)[0]


def test_the_numbers_of_all_kinds_are_found(numbers):
    for place, value in {
        "schedule.templates.gemm.SHARED_VECTORS": gemm.SHARED_VECTORS,  # a constant
        "schedule.templates.marks.CHUNK_SIZES[1]": marks.CHUNK_SIZES[2],  # one of a tuple: those that are 0 do not count
        "schedule.machine.CPU.l3_reuse_bytes: 4": 4,  # a literal of a property
        "schedule.register_tiles.fewest_cycles: default 1.005": register_tiles.MIN_GAIN_OF_LARGER_TILES,  # of a parameter
    }.items():
        assert numbers[place].value == value
    assert not [place for place in numbers if "templates.gpu" in place or "machine.GPU" in place or "Memory" in place]


@pytest.mark.parametrize(("place", "value", "read"), [
    ("schedule.machine.CACHE_LINE_BYTES", 32, lambda: (machine.CACHE_LINE_BYTES, product_blocks.CACHE_LINE_BYTES)),
    ("schedule.machine.CPU.l3_reuse_bytes: 4", 8, lambda: (tir.Target("llvm", l3=1 << 20).machine.l3_reuse_bytes,)),
    ("schedule.register_tiles.fewest_cycles: default 1.005", 9.0, lambda: (register_tiles.fewest_cycles(*3 * [np.array([8, 1])]),)),
])  # fmt: skip
def test_a_number_is_changed_wherever_it_is_read_and_put_back(numbers, place, value, read):
    before = read()
    with numbers[place].changed(value):
        changed = read()
    assert all(a != b for a, b in zip(before, changed, strict=True)) and read() == before


def test_each_field_of_the_core_is_changed_alone_and_put_back():
    target = tir.Target("llvm", num_cores=1)
    before = target.machine.core
    for number in perturb.of_core(target):
        field = number.place.removeprefix("core: ")
        with number.changed(2 * number.value):
            assert target.machine.core == replace(before, **{field: 2 * number.value}) != before
        assert target.machine.core == before


def test_a_whole_number_stays_whole():
    assert perturb.times(perturb.Number("", 3, None), 0.5) == 2 and perturb.times(perturb.Number("", 1, None), 0.5) is None
    assert perturb.times(perturb.Number("", 0.12, None), 2.0) == 0.24


def test_changes_leave_the_default_as_it_was(monkeypatch, numbers, func):
    monkeypatch.setattr(perturb, "numbers", lambda: [numbers["schedule.templates.gemm.SHARED_VECTORS"]])
    target = tir.Target("llvm", num_cores=1)
    before = tir.default_schedule(func, target).func.script()
    found = [(place, factor) for place, factor, _, _ in perturb.changes(func, target)]
    assert found[:2] == [("schedule.templates.gemm.SHARED_VECTORS", 0.5), ("schedule.templates.gemm.SHARED_VECTORS", 2.0)]
    assert {("core: latency", 2.0), ("target: l2", 0.5), ("memory: row of L3", 2.0), ("memory: streams", 0.5)} <= set(found)
    assert tir.default_schedule(func, target).func.script() == before


def test_a_row_says_what_each_change_is_worth(monkeypatch, numbers, tmp_path):
    place = "schedule.templates.marks.UNROLLED_STATEMENTS"
    monkeypatch.setattr(perturb, "numbers", lambda: [numbers[place]])
    monkeypatch.setattr(perturb, "of_core", lambda target: [])
    monkeypatch.setattr(perturb, "SECONDS", 0.01)
    (result,) = perturb.measure("outer", Options(save=str(tmp_path)))
    assert result["tried"] == 22 and not result["failed"]
    assert all(change["ratio"] > 0 for change in result["changes"])
    assert (tmp_path / "perturb.md").read_text().startswith("# The worth of each number")


def test_another_result_is_told_from_rounding():
    x = breadth.problem("outer", 0)[1][0]
    other = x.copy()
    other.flat[0] += 0.1
    assert perturb.close(x, x * (1 + 1e-4)) and not perturb.close(other, x)
