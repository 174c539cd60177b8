"""200 random programs under random GPU schedules; more of them by `python -m tests.codegen.cuda.random_schedules`."""

import pytest

from codegen.cuda import Program, emit
from codegen.cuda.compile import available, compile_cubin
from tests.codegen.cuda.emulation import compiler
from tests.codegen.cuda.random_schedules import cases, compare
from tests.sweeps import one_in

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")


BATCHES = pytest.mark.parametrize("batch", range(0, 200, 25), ids=lambda first: f"from {first}", indirect=True)


@pytest.fixture(scope="module")
def batch(request) -> list:
    return [case for case in cases(range(request.param, request.param + 25)) if isinstance(case[3], Program)]


@one_in(8)
@BATCHES
@pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
def test_random_schedules(batch) -> None:
    assert sum(any(n > 1 for k in case[3].kernels for n in k.block) for case in batch) > 10
    assert not compare(batch)


@one_in(8)
@BATCHES
@pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")
def test_random_schedules_compile(batch) -> None:
    for seed, _, _, program in batch:
        source = emit(program)
        assert compile_cubin(source.text, ARCHITECTURES[seed % 3], lines=source.lines).resources
