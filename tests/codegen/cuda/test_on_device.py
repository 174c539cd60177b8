"""What `on_device` does with its cases, on kernels that run on this processor."""

from __future__ import annotations

import time
from itertools import islice, repeat

import pytest

from codegen.cuda import lower_cuda
from codegen.target import Target
from tests.arrays import copies
from tests.codegen.cuda import on_device
from tests.codegen.cuda.device_programs import ATTENTION, OPEN
from tests.codegen.cuda.emulation import compiler, emulate
from tests.codegen.cuda.isolated import Attempt
from tests.sweeps import quick

TARGET = Target("cuda", arch="sm_90")


def every():
    """The groups of cases, large arrays and long sums of fewer elements; programs that are tried elsewhere alone are left out."""
    return {
        "warpgroups": on_device.warpgroups(TARGET), "attention": map(on_device.attention_case, ATTENTION, repeat(TARGET.arch)),
        "convolutions": on_device.convolutions(TARGET), "open sizes": map(on_device.open_case, OPEN, repeat(13), repeat(TARGET.arch)),
        "permutations": on_device.permutations(TARGET), "long sums": on_device.long_sums(TARGET, 1000),
        "large": on_device.large(TARGET, 4016), "library": islice(on_device.library(TARGET), 1, None),
        "products": islice(on_device.products(TARGET), 1, None), "layouts": islice(on_device.layouts(TARGET), 6, None),
        "candidates": on_device.candidates(TARGET), "programs": on_device.programs(4),
    }  # fmt: skip


def some():
    """A case of each kind, of warpgroups one of each layout."""
    return {kind: islice(cases, 0, 10, 3) if kind == "warpgroups" else islice(cases, 1) for kind, cases in every().items()}


def lines(groups, tries, end, sources):
    return list(on_device.check(groups, tries, 1, end, sources, TARGET))


def emulated(groups, tmp_path):
    """The lines on groups of cases that this processor runs."""
    cases = [case for group in groups.values() for case in group]
    kernels = dict(zip(map(id, cases), emulate(*(lower_cuda(case.func, TARGET) for case in cases)), strict=True))

    def attempt(case):
        arrays = copies(case.arguments)
        kernels[id(case)](*arrays)
        return Attempt("ok", 1e-6, "", tuple(arrays))

    return lines({kind: iter(cases) for kind, cases in groups.items()}, attempt, time.monotonic() + 600, tmp_path)


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
def test_cases_of_each_kind_are_right(tmp_path):
    groups = {kind: [*cases] for kind, cases in some().items()}
    assert len(groups["warpgroups"]) == 4 and all(groups.values())
    said = emulated(groups, tmp_path)
    assert said == [(f"{kind}: {len(cases)} right, 0 wrong", 0) for kind, cases in groups.items()]


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@quick(lambda kind: kind == "large")
@pytest.mark.parametrize("kind", [*every()][:7])
def test_all_cases_are_right(kind, tmp_path):
    cases = [*every()[kind]]
    assert emulated({kind: cases}, tmp_path) == [(f"{kind}: {len(cases)} right, 0 wrong", 0)]


def test_what_is_wrong_is_counted_and_kept(tmp_path):
    crashed = Attempt("crash", message="the process ended with code -9\nand said no more")

    def tries(case):
        return crashed if "37" in case.name else Attempt("ok", 1e-6, "", tuple(copies(case.arguments)))

    first, second, last = lines(
        {"library": islice(on_device.library(TARGET), 1, 3)}, tries, time.monotonic() + 60, tmp_path / "sources"
    )
    (kept,) = (tmp_path / "sources").glob("gmm_37_29_41_*.cu")
    assert first == (f"WRONG gmm (37, 29, 41): crash: the process ended with code -9; {kept}", 1)
    assert second[1] == 1 and last == ("library: 0 right, 2 wrong", 0)
    text = kept.read_text()
    assert "// and said no more" in text and "T.thread_binding" in text and "__global__" in text


def test_what_is_not_reached_in_time_is_said(tmp_path):
    said = lines({"library": some()["library"]}, lambda case: Attempt("crash"), time.monotonic() - 1, tmp_path)
    assert said == [("library: 0 right, 0 wrong, not all reached", 0)]


def test_a_run_goes_on_where_it_was_left_off(tmp_path):
    tried = []

    def tries(case):
        tried.append(case.name)
        return Attempt("crash") if len(tried) == 2 else Attempt("ok", 1e-6, "", tuple(copies(case.arguments)))

    def once(resume):
        some = [on_device.Case(name, case.func, case.arguments, lambda got: "") for name in "ab"]
        return list(on_device.check({"library": iter(some)}, tries, 1, time.monotonic() + 60, tmp_path, TARGET, resume))

    case = next(on_device.library(TARGET))
    assert once(False)[-1] == ("library: 1 right, 1 wrong", 0) and once(True) == [("library: 2 right, 0 wrong", 0)]
    assert tried == ["a", "b", "b"]  # what was wrong is tried again
    once(False)
    assert tried == ["a", "b", "b", "a", "b"]
