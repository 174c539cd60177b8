"""Models of torch beside eager mode and inductor: what is measured, kept and shown. The processes are pretended."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec

import pytest
from rich.console import Console

from benchmarks import torch as benchmark
from benchmarks.options import Options

ABOUT = {
    "tir": {"compile_s": 2.0, "off": 1e-6, "eager": [], "graphs": 1},
    "eager": {"compile_s": 0.1, "off": 1e-6, "eager": [], "graphs": 0},
    "inductor": {"compile_s": 8.0, "off": 1e-6, "eager": [], "graphs": 1},
    "frozen": {"error": "RuntimeError: no"},
}


@pytest.fixture
def pretended(monkeypatch):
    """Contenders that say ABOUT, and take 0.1, 0.2 and 0.3 ms."""

    class Contender:
        def __init__(self, module, way, row, threads):
            assert (module, row, threads) == ("benchmarks.torch_contender", "words/bert", "1")
            self.about, self.way = about[way], way

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def __call__(self):
            pass

        def seconds(self, calls):
            return {"tir": 1e-4, "eager": 2e-4, "inductor": 3e-4}[self.way]

    about = {way: dict(found) for way, found in ABOUT.items()}
    monkeypatch.setattr(benchmark, "Contender", Contender)
    monkeypatch.setattr(benchmark, "circumstances", lambda: {"machine": {"processor": "P", "mcpu": "m"}, "commit": "abc"})
    return about


def test_a_row_is_measured_kept_and_shown(pretended, tmp_path):
    (result,) = benchmark.measure("words/bert", Options(seconds=0.01, save=str(tmp_path)))
    assert result["eager"]["ratio"] == pytest.approx(2) and result["inductor"]["ratio"] == pytest.approx(3)
    assert "ratio" not in result["frozen"]
    json.dumps(result, allow_nan=False)
    line = ("words/bert", "0.1", "2.00", "3.00", "-", "1.0e-06", "0", "2 s", "0.25")
    assert benchmark.cells({"row": "words/bert", **result}) == line
    page = (tmp_path / "torch.md").read_text()
    assert (
        "| words/bert | 0.1 | 2.00 | 3.00 | - |" in page and "| in all |  | 2.00 | 3.00 | - |  | 100% whole |  | 0.25 |" in page
    )
    shown = io.StringIO()
    rows = [{"row": "words/bert", **result}, {"row": "resnet18", "threads": 1, "error": "seven"}]
    Console(file=shown, width=150).print(benchmark.table(rows))
    assert "100% whole" in shown.getvalue() and "failed" in shown.getvalue()


def test_a_wrong_result_is_not_timed(pretended, tmp_path):
    pretended["tir"]["off"] = 0.5
    (result,) = benchmark.measure("words/bert", Options(save=str(tmp_path)))
    assert result["error"] == "wrong result: off by 0.5 of its root mean square" and not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_rows_are_models():
    from benchmarks.torch_models import MODELS

    assert tuple(MODELS) == benchmark.ROWS and len(MODELS) >= 40


def test_a_model_that_multiplies_roundings_is_compared_with_eager_mode(pretended):
    """Up to some errors of torch's own are right; of a model that torch computes wrong, none is."""
    for off, own, right in ((2.5e-3, 1.5e-3, True), (7e-3, 1.5e-3, False), (0.5, 0.26, False), (2.5e-3, None, False)):
        pretended["tir"]["off"], pretended["eager"]["off"] = off, own
        (result,) = benchmark.measure("words/bert", Options(seconds=0.01))
        assert ("error" not in result) == right, (off, own)
