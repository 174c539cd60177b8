"""The records of kinds of targets, and a third kind that is added by two of them."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen import BACKENDS, Target, lower, pass_names, stage_names
from search.backends import SEARCH_BACKENDS, search_backend
from search.measure import Limits
from search.measure.provenance import fingerprint
from search.space import generate
from tir import workloads
from tir.interpreter import run

from .interpreted import BACKEND, SEARCH_BACKEND

FUNC = workloads.make("gmm", (3, 5, 7)).func
QUICK = Limits(build=20.0, run=20.0, min_seconds=0.0, min_runs=1, race=0.1)


@pytest.fixture
def interpreted(monkeypatch) -> str:
    monkeypatch.setitem(BACKENDS, "interpreted", BACKEND)
    monkeypatch.setitem(SEARCH_BACKENDS, "interpreted", SEARCH_BACKEND)
    return "interpreted"


def operands(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype("float32") for shape in ((3, 5), (5, 7)))
    return a, b, np.empty((3, 7), "float32")


def test_every_kind_can_be_searched():
    assert list(SEARCH_BACKENDS) == list(BACKENDS) == ["llvm", "cuda"]
    assert all(kind == b.kind and "full" in SEARCH_BACKENDS[kind].spaces for kind, b in BACKENDS.items())


def test_a_third_kind_builds_and_shows_its_stages(interpreted):
    target = Target(interpreted, num_cores=1)
    assert str(target) == interpreted and Target(str(target)).kind == interpreted
    assert stage_names(target) == [*pass_names(target), "lines"] == ["lower_blocks", "simplify_all", "lines"]
    assert tir.dump(FUNC, target, after="lines") == str(len(FUNC.script().splitlines()))
    a, b, c = operands(0)
    tir.build(FUNC, interpreted)(a, b, c)
    assert (c == a @ b).all()
    a, b, c = operands(1)
    run(lower(FUNC, target, after="lower_blocks"), a, b, c)
    assert (c == a @ b).all()


def test_a_third_kind_has_a_default_schedule_and_a_space(interpreted):
    scheduled = tir.default_schedule(FUNC, interpreted).func
    a, b, c = operands(2)
    tir.build(scheduled, interpreted)(a, b, c)
    assert (c == a @ b).all()
    with pytest.raises(ValueError, match=r"^no space for interpreted is named 'ansor'; there are: full$"):
        generate(FUNC, interpreted, space="ansor")


def test_a_third_kind_is_tuned(interpreted):
    result = tir.autotune(FUNC, interpreted, trials=4, workers=1, limits=QUICK, seed=0)
    assert result.outcomes["ok"] >= 4 and set(result.outcomes.values()) - {0} == {result.outcomes["ok"]}
    a, b, c = operands(3)
    tir.build(result.schedule.func, interpreted)(a, b, c)
    assert (c == a @ b).all()


def test_kinds_without_a_record_are_refused(monkeypatch):
    monkeypatch.setitem(BACKENDS, "interpreted", BACKEND)
    with pytest.raises(ValueError) as refused:
        search_backend("interpreted")
    assert str(refused.value) == "search is not supported for the target kind interpreted; expected one of llvm, cuda"


def test_a_fingerprint_of_a_device_leaves_out_the_host():
    assert fingerprint("cuda", cpu="one") == fingerprint("cuda -num-cores 3", cpu="another")
    assert len({fingerprint(f"cuda -arch {arch}{fast}") for arch in ("sm_80", "sm_90") for fast in ("", " -fast-math 1")}) == 4
    assert fingerprint("llvm", cpu="one") != fingerprint("llvm", cpu="another")
