"""Fixtures of several test files."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from tests import lost_workers, sweeps

if TYPE_CHECKING:
    import llvmlite.binding as llvm

OTHER_CACHES = (32 << 10, 512 << 10, 16 << 20)  # bytes of the data caches of a processor that takes the place of the host


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--host", metavar="MCPU", help="run as on the processor that LLVM calls so, such as x86-64-v3")
    parser.addoption("--all", action="store_true", help="run all cases of swept families, as CI does")


def pytest_configure(config: pytest.Config) -> None:
    """Take the place of the host as `--host` says, of the user's caches, and of the bytecode; follow the workers. Schedules are
    those of a machine that was not calibrated, and a farm's devices may become as slow as they like beside other tests."""
    from codegen import machine_record

    os.environ["DASK_TIR__DRIFT"] = "inf"

    machine_record.recorded = lambda: ""  # type: ignore[assignment]
    if name := config.getoption("--host"):
        _become(name)
    _build_in_one_process()
    _keep_caches(config)
    _keep_bytecode(config)
    lost_workers.register(config)
    sweeps.register(config)


def _become(mcpu: str) -> None:
    """Make `mcpu` the processor that targets are for, here and in the processes that tests start, and here the only one whose
    kernels are run."""
    import llvmlite.binding as llvm

    from codegen import processor, target

    os.environ[processor.MCPU] = mcpu
    host = _features(mcpu)
    llvm.get_host_cpu_features = lambda: host
    llvm.get_host_cpu_name = lambda: "generic"  # so that a target for this very processor has all of its features
    _forget_the_host()
    processor.host_caches = target.host_caches = lambda: OTHER_CACHES


def _features(mcpu: str) -> llvm.FeatureMap:
    """The features of a processor as LLVM says those of the host."""
    import llvmlite.binding as llvm

    from codegen import processor

    found = processor.processor_features(mcpu, "")
    return llvm.FeatureMap({name: name in found for name in llvm.get_host_cpu_features() if name in processor.INSTRUCTION_SETS})


def _forget_the_host() -> None:
    from codegen import processor

    processor.host_processor.cache_clear()
    processor.host_features.cache_clear()


def _build_in_one_process() -> None:
    """Have measurers build in one process unless they are told otherwise: each takes most of a second to start."""
    from search.measure import local

    local.MAX_WORKERS = 1


def _keep_caches(config: pytest.Config) -> None:
    """A run has caches of its own, which its workers and the processes that they start share: neither objects nor the calibration
    of the user's machine decide what tests do."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="tir-cache-", ignore_cleanup_errors=True)
        os.environ["XDG_CACHE_HOME"] = folder.name
        config.add_cleanup(folder.cleanup)


def _keep_bytecode(config: pytest.Config) -> None:
    """Where Python is to write no bytecode beside the sources, pytest's cache has it: half of the time of collecting tests goes to
    what they are compiled to, and a third of a second to that of the sources in each of some hundred processes that they start."""
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and "PYTHONPYCACHEPREFIX" not in os.environ and hasattr(config, "cache"):
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))


def pytest_collection_finish() -> None:
    """The modules and the tests stay to the end: the garbage collector does not look at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 10, 100)


@pytest.fixture
def old_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host without AVX, x86-64-v2."""
    import llvmlite.binding as llvm

    host = _features("x86-64-v2")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "x86-64-v2")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: host)
    _forget_the_host()
    yield
    monkeypatch.undo()
    _forget_the_host()


@pytest.fixture
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that don't say how long the final race of the leaders takes race for a moment: who wins is no matter of tests."""
    from search.measure import Limits

    defaults = tuple(0.1 if f.name == "race" else f.default for f in fields(Limits))
    monkeypatch.setattr(Limits.__init__, "__defaults__", defaults)
