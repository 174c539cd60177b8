"""The whole search for a GPU, its kernels run on this processor."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from search import best_schedule
from search.measure import Limits
from search.measure.reference import NamedWorkload
from search.records import Records
from search.tuning.autotune import autotune
from tests.codegen.cuda.emulation import compiler, machine
from tir import workloads
from tir.tune import main

pytestmark = pytest.mark.skipif(compiler is None, reason="no C++ compiler")

BUILDER = "tests.search.gpu.emulated_builder"
LIMITS = Limits(build=120.0, run=60.0, min_seconds=0.0, min_runs=1, race=0.2)


@pytest.fixture(autouse=True, scope="module")
def compiled_here():
    """The emulation is compiled before measuring processes start, and not by each of them."""
    machine()


def test_a_search_finds_records_and_finds_again(tmp_path):
    func = workloads.make("gmm", (37, 29, 41)).func
    workload = NamedWorkload("gmm", (37, 29, 41))
    with Records(tmp_path / "gpu.db") as records:
        result = autotune(
            func, "cuda", trials=3, workload=workload, builder=BUILDER, limits=LIMITS, workers=1, records=records, seed=0
        )
        assert result.outcomes["ok"] == 3 and sum(result.outcomes.values()) == 3
        assert result.max_error <= result.tolerance
        found = best_schedule(func, "cuda", records=records)
    assert found.script == result.schedule.script
    assert "threadIdx.x" in found.script and "__global__" in tir.dump(found.func, "cuda")


def test_a_function_without_a_name_is_compared_with_what_it_does_here():
    """The reference of a function that is no workload is computed on this processor, not by the device under test."""
    from tests.programs import sum_of_three_axes

    result = autotune(sum_of_three_axes(), "cuda", trials=2, builder=BUILDER, limits=LIMITS, workers=1, seed=0)
    assert result.outcomes["ok"] == 2 and result.max_error is not None


def test_the_command_line(capsys):
    status = main(
        ["softmax", "--shape", "7,109", "--target", "cuda", "--trials", "2", "--json", "--quiet"], builder=BUILDER, workers=1
    )
    out = capsys.readouterr().out
    assert status == 0 and '"target": "cuda"' in out and '"ok": 2' in out


def test_without_a_gpu_it_says_what_still_works(capsys):
    from codegen.cuda.driver import devices

    if devices():
        pytest.skip("there is a GPU")
    assert main(["gmm", "--target", "cuda"]) == 2
    message = capsys.readouterr().err
    assert "kernels for cuda -arch sm_90 cannot be measured: there is no GPU here" in message and "--sketches" in message


def test_sketches_are_printed_for_a_gpu(capsys):
    assert main(["gmm", "--shape", "37,29,41", "--target", "cuda", "--sketches"]) == 0
    out = capsys.readouterr().out
    assert 'thread="blockIdx.x"' in out and "A_shared" in out and "C stages" in out


def test_proposals_repeat_with_the_seed():
    from search.policy.named import make_policy
    from search.task import Task

    task = Task.of(workloads.make("gmm", (61, 67, 109)).func, "cuda")
    first, again = (make_policy(task, model="tile").propose(8, np.random.default_rng(3)) for _ in range(2))
    assert [c.row for c in first] == [c.row for c in again] and len({c.row for c in first}) == 8
