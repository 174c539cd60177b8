"""Models of torch beside eager mode and inductor: what is measured, kept and shown. The processes are pretended."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec

import pytest
from rich.console import Console

from benchmarks import torch as benchmark
from benchmarks.options import Options

WITH_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
ABOUT = {
    "tir": {"compile_s": 2.0, "off": 1e-6, "eager": [], "graphs": 1},
    "eager": {"compile_s": 0.1, "off": 1e-6, "eager": [], "graphs": 0, "rounded": 1e-6, "longest": 100},
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
    line = ("words/bert", "0.1", "2.00", "3.00", "-", "1.0e-06", "1.0e-05", "0", "2 s", "0.25")
    assert benchmark.cells({"row": "words/bert", **result}) == line
    page = (tmp_path / "torch.md").read_text()
    assert (
        "| words/bert | 0.1 | 2.00 | 3.00 | - |" in page
        and "| in all |  | 2.00 | 3.00 | - |  |  | 100% whole |  | 0.25 |" in page
    )
    shown = io.StringIO()
    rows = [{"row": "words/bert", **result}, {"row": "resnet18", "threads": 1, "error": "seven"}]
    Console(file=shown, width=150).print(benchmark.table(rows))
    assert "100% whole" in shown.getvalue() and "failed" in shown.getvalue()


def test_a_wrong_result_is_not_timed(pretended, tmp_path):
    pretended["tir"]["off"] = 0.5
    (result,) = benchmark.measure("words/bert", Options(save=str(tmp_path)))
    assert result["error"] == "wrong result: off by 0.5 of its root mean square" and not list(tmp_path.iterdir())


@WITH_TORCH
def test_rows_are_models():
    from benchmarks.torch_models import MODELS

    assert tuple(MODELS) == benchmark.ROWS and len(MODELS) >= 40


@pytest.mark.parametrize(
    ("off", "rounded", "right"),
    [(9e-6, 1e-6, True), (1.1e-5, 1e-6, False), (0.04, 1.0, True), (0.06, 1.0, False), (5e-7, 0.0, True), (7e-7, 0.0, False)],
)
def test_the_bound_is_one_rounding_an_operation_times_the_root_of_the_longest_sum(pretended, off, rounded, right):
    """At most a twentieth; of operations that round nothing, a unit roundoff."""
    pretended["tir"]["off"], pretended["eager"]["rounded"] = off, rounded
    (result,) = benchmark.measure("words/bert", Options(seconds=0.01))
    assert ("error" not in result) == right


def test_a_model_without_a_reference_is_not_timed(pretended):
    pretended["eager"] = {"error": "RuntimeError: no model"}
    (result,) = benchmark.measure("words/bert", Options(seconds=0.01))
    assert result["error"] == "RuntimeError: no model"


@WITH_TORCH
def test_each_operation_is_rounded_once():
    """As its result is in float32; views share what they view, and sums in place are rounded, too."""
    import torch

    from benchmarks.torch_models import Rounded, longest_sum

    x = torch.linspace(1, 2, 13, dtype=torch.float64).float().double()
    y = x / 3
    with Rounded():
        divided, added, seen = x / 3, x.clone(), x.clone()
        added.div_(3)
        seen[1:].expand(2, 12)
        seen[1:].div_(3)
    assert (y != y.float().double()).any()
    assert torch.equal(divided, y.float().double()) and torch.equal(added, divided) and torch.equal(seen[1:], divided[1:])
    assert longest_sum(torch.nn.Sequential(torch.nn.Conv2d(7, 3, (5, 1)), torch.nn.Linear(13, 2))) == 35
    table = torch.nn.ReLU()
    table.positions = torch.nn.Parameter(torch.zeros(1, 109, 7))
    assert longest_sum(table) == 1


@WITH_TORCH
def test_batch_norms_have_the_statistics_of_inference():
    """Layers whose positions agree grow nothing: each norm's result for the inputs has at most the root of the others' number."""
    import torch

    from benchmarks.torch_networks import CALIBRATION, _calibrate

    torch.manual_seed(0)

    class Pooled(torch.nn.Module):
        def forward(self, x):
            return x + x.mean((2, 3), keepdim=True) * 10

    layers = [layer for _ in range(7) for layer in (Pooled(), torch.nn.BatchNorm2d(3))]
    module, x = torch.nn.Sequential(*layers).eval(), torch.randn(1, 3, 7, 13)
    with torch.no_grad():
        _calibrate(module, (x,))
        for layer in layers:
            x = layer(x)
            if isinstance(layer, torch.nn.BatchNorm2d):
                assert (
                    0.01 < x.abs().max() < (CALIBRATION * 7 * 13 - 1) ** 0.5
                    and x.pow(2).mean(dim=(2, 3)).sqrt().max() < 7**0.5 + 1
                )


@WITH_TORCH
@pytest.mark.parametrize("change", ["none", "eps", "bias", "gelu"])
def test_the_bound_tells_small_defects_from_roundings(change):
    """Float32 is within it; an epsilon of 2e-5 for 1e-5, a bias that lacks, and another formula of gelu are not."""
    from copy import deepcopy

    import torch

    from benchmarks.network_contender import error
    from benchmarks.torch_models import Rounded, longest_sum

    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(13)
    norm.running_var.fill_(0.1)
    module = torch.nn.Sequential(torch.nn.Conv2d(7, 13, 3), norm, torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(325, 109))
    module, x = module.eval(), torch.randn(1, 7, 7, 7)
    with torch.no_grad():
        double = deepcopy(module).double()
        exact = [double(x.double()).numpy()]
        with Rounded():
            rounded = error([double(x.double()).numpy()], exact)
        norm.eps *= 2 if change == "eps" else 1
        module[2].approximate = "tanh" if change == "gelu" else "none"
        if change == "bias":
            module[4].bias[3] = 0
        off = error([module(x).numpy()], exact)
    assert (off <= benchmark.allowed({"rounded": rounded, "longest": longest_sum(module)})) == (change == "none")
