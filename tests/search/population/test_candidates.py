"""Random candidates of every workload compute what they should: built, run between canaries, and held against float64 numpy."""

from __future__ import annotations

import pytest

from tests.search.population.candidates import SHAPES, failures, in_process
from tests.sweeps import quick
from tir import workloads

COUNT = 3  # candidates for each shape and number of threads


@quick(lambda name, shape, threads: shape == SHAPES[name][0] and threads == 1 + list(SHAPES).index(name) % 2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SHAPES.items() for shape in shapes])
def test_random_candidates_compute_the_reference(name, shape, threads):
    status, lines, errors = in_process(name, shape, threads, COUNT, 0, "full", 120)
    assert len(lines) == COUNT and failures(status, lines, errors, COUNT) == []


def test_every_workload_has_a_shape():
    assert set(SHAPES) == set(workloads.names())


def test_what_fails_is_told():
    assert failures(0, ["a [1]: ok ", "b [2]: wrong result 1.0"], "", 2) == ["b [2]: wrong result 1.0"]
    assert failures(-11, ["a [1]: ok ", "b [2]: "], "", 3) == ["b [2]: ", "exit status -11, 2 of 3 candidates: "]
