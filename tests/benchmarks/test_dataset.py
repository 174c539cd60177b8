"""`python -m benchmarks.dataset`: the shapes it measures, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import workloads
from benchmarks.dataset import MIN_VARIED, main, shapes


@pytest.mark.parametrize("name", workloads.names())
def test_shapes_are_legal_and_differ_in_large_sizes(name):
    workload = workloads.get(name)
    found = list(shapes(workload, 3, np.random.default_rng(0)))
    assert found[0] == workload.default and len(set(found)) == len(found) == 4
    assert found == list(shapes(workload, 3, np.random.default_rng(0)))
    for shape in found:
        assert workload.sizes(shape) == shape
        assert all(a == b for a, b in zip(shape, workload.default, strict=True) if b < MIN_VARIED)


def test_unknown_names_are_refused(capsys, tmp_path):
    assert main(["--workloads", "gmn", "--out", str(tmp_path / "set.npz")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "python -m benchmarks.dataset: error: --workloads: no workload is named 'gmn'; did you mean gmm? there are:"
    )
    assert main(["--policies", "randon", "--out", str(tmp_path / "set.npz")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "python -m benchmarks.dataset: error: --policies: no policy is named 'randon'; did you mean random? there are:"
    )
