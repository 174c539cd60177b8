"""Random programs under random GPU schedules; more of them by `python -m tests.codegen.cuda.random_schedules`."""

import pytest

from codegen.cuda import Program, emit
from codegen.cuda.compile import available, compile_cubin
from tests.codegen.cuda.emulation import compiler
from tests.codegen.cuda.random_schedules import cases, compare


@pytest.fixture(scope="module")
def batch() -> list:
    return [case for case in cases(range(24)) if isinstance(case[3], Program)]


@pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
def test_random_schedules(batch) -> None:
    assert sum(any(n > 1 for k in case[3].kernels for n in k.block) for case in batch) > 10
    assert not compare(batch)


@pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")
def test_random_schedules_compile(batch) -> None:
    for _, _, _, program in batch:
        source = emit(program)
        assert compile_cubin(source.text, "sm_80", lines=source.lines).resources
