"""Whole networks beside others: what is compared, kept and shown. Here ours alone runs, on a network of a few elements."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rich.console import Console

from benchmarks import networks, pages
from benchmarks.network_contender import error
from benchmarks.options import Options
from benchmarks.runner import Effort, race
from tests.graph.models import model

FIELDS = {"compile_s", "again_s", "off", "memory_mb", "median_s", "quartiles_s", "runs", "calls"}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """A row `relu-folded`, whose file is there, with no peers."""
    monkeypatch.setattr(networks, "PEERS", ())
    monkeypatch.setattr(networks, "RIVALS", ())
    monkeypatch.setattr(networks, "write", pages.writer("networks", networks.INTRODUCTION, networks.section))
    onnx.save(
        model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [7])}, ["y"]), tmp_path / "relu.folded.onnx"
    )
    x = np.linspace(-1, 1, 7, dtype="float32")
    np.savez(tmp_path / "relu.npz", input_0=x, output_0=np.maximum(x, 0).astype("float64"))
    return Options(seconds=0.01, models=str(tmp_path), save=str(tmp_path / "kept"))


def test_a_row_is_measured_kept_and_shown(small: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "commit", lambda: "abc")
    monkeypatch.setattr(networks, "circumstances", lambda: {"machine": {"processor": "P", "mcpu": "m"}, "commit": "abc"})
    (result,) = networks.measure("relu-folded", small)
    assert set(result["tir"]) == FIELDS and result["tir"]["off"] == 0.0
    assert (result["network"], result["export"], result["threads"]) == ("relu", "folded", 1)
    assert [(name, calls) for name, calls, _ in result["kernels"]] == [("relu(7) -> 7", 1)]
    json.dumps(result, allow_nan=False)
    page = (tmp_path / "kept" / "networks.md").read_text()
    assert "### relu-folded" in page and "| relu(7) -> 7 | 1 |" in page and "On P (m), commit abc." in page
    monkeypatch.setattr(networks, "Contender", None)  # not needed again
    (again,) = networks.measure("relu-folded", small)
    assert again == {"row": "relu-folded", **json.loads(json.dumps(result))}


def test_a_wrong_result_is_not_timed(small: Options, tmp_path: Path) -> None:
    np.savez(tmp_path / "relu.npz", input_0=np.ones(7, "float32"), output_0=np.full(7, 2.0))
    (result,) = networks.measure("relu-folded", small)
    assert result["error"] == "wrong result: off by 0.5 of its root mean square"
    assert pages.known(small.save, "networks") == {}


def test_errors_of_narrow_types_are_bound_by_rivals_that_compute_in_them() -> None:
    assert networks.most_off("float32", [0.1]) == networks.TOLERANCE
    assert networks.most_off("int8", [0.02, 0.04]) == networks.WORSE * 0.04 and networks.most_off("int8", []) == float("inf")
    assert networks.most_off("bfloat16", [1e-6, 0.003]) == networks.WORSE * 0.003 and networks.most_off("bfloat16", [1e-6]) == 0


def test_a_library_that_fails_says_why(small: Options, tmp_path: Path) -> None:
    (tmp_path / "relu.folded.onnx").write_bytes(b"nothing of the kind")
    (result,) = networks.measure("relu-folded", small)
    assert result["error"].startswith("GraphError: ") and result["error"].endswith("is no ONNX file, or is cut off")


@pytest.mark.parametrize(("found", "exact", "off"), [
    ([[1.0, 2.0]], [[1.0, 1.0]], 1.0),
    ([[1.0], [3.0]], [[1.0], [2.0]], 0.5),
    ([[0.0]], [[0.0]], 0.0),
    ([[np.nan]], [[1.0]], None),
    ([[1.0, 1.0]], [[1.0]], None),
])  # fmt: skip
def test_errors_are_parts_of_the_root_mean_square(found: list, exact: list, off: float | None) -> None:
    assert error([np.array(a) for a in found], [np.array(a) for a in exact]) == off


def test_a_contender_may_time_itself() -> None:
    class Remote:
        def __call__(self) -> None:
            raise AssertionError("it is asked for seconds")

        def seconds(self, calls: int) -> float:
            return 3.0

    timings = race({"remote": Remote()}, Effort(seconds=1.0))
    assert timings["remote"].median == 3.0


def fake(row: str, **ratios: float) -> dict:
    ours = {"median_s": 2e-3, "quartiles_s": [1e-3, 3e-3], "off": 1e-6, "compile_s": 4.0, "again_s": 0.5, "memory_mb": 50.0}
    others = {
        name: {"off": 0.0, "memory_mb": 20.0, **({"ratio": ratios[name]} if name in ratios else {})} for name in networks.PEERS
    }
    about = {"machine": {"processor": "P", "mcpu": "m"}, "commit": "c", "threads": 2, "row": row}
    return {**about, "tir": ours, **others, "kernels": [["conv", 3, 1e-3]]}


def test_the_table_compares_with_the_faster_rival(tmp_path: Path) -> None:
    first, second = (f"{network}-folded" for network in networks.NETWORKS[:2])
    results = [fake(first, onnxruntime=2.0, openvino=4.0, torch=1.5), fake(second, openvino=0.5)]
    assert networks.best(results[0]) == ("onnxruntime", 2.0) and networks.best(results[1]) == ("openvino", 0.5)
    assert networks.best(fake(first)) is None
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(networks.table([*results, {"row": "third-folded", "threads": 1, "error": "seven"}]))
    text = console.export_text()
    assert "2.00 (onnxruntime)" in text and "0.50 (openvino)" in text and "failed" in text
    (mean,) = [line.split() for line in text.splitlines() if "│       2 │ geometric mean" in line]
    assert [cell for cell in mean if "." in cell] == ["1.00", "2.00", "1.41", "1.50"]
    networks.write({f"{r['row']}/2": r for r in results}, tmp_path)
    page = (tmp_path / "networks.md").read_text()
    assert "| geometric mean |  |  | 1.00 | 2.00 | 1.41 | 1.50 |" in page and "| conv | 3 | 1 ms | 50.0% |" in page


@pytest.mark.skipif(find_spec("torch") is None, reason="the extra `networks` is not installed")
def test_each_row_is_a_network() -> None:
    from benchmarks import torch_networks

    assert set(networks.NETWORKS) == set(torch_networks.NETWORKS) and networks.EXPORTS == torch_networks.EXPORTS


def test_types_select_rows_of_the_networks_that_are_asked_for() -> None:
    rows = ("lstm-folded", "resnet50-folded", "resnet50-unfolded")
    assert networks.of_types(rows, "int8") == ("resnet50-int8", "lstm-int8")
    assert networks.of_types(rows, "float32,int8") == ("resnet50-folded", "resnet50-int8", "lstm-folded", "lstm-int8")
    with pytest.raises(ValueError, match="--types takes float32, bfloat16, int8, separated by commas, got 'int7'"):
        networks.of_types(rows, "int7")


def test_rows_of_narrow_types_have_tables_of_their_own(tmp_path: Path) -> None:
    first = networks.NETWORKS[0]
    narrow = fake(f"{first}-int8", onnxruntime=3.0)
    del narrow["torch"]  # which has no such row
    networks.write({f"{r['row']}/2": r for r in (fake(f"{first}-folded", onnxruntime=2.0), narrow)}, tmp_path)
    means = [line for line in (tmp_path / "networks.md").read_text().splitlines() if line.startswith("| geometric mean")]
    assert [line.split(" | ")[3] for line in means] == ["2.00", "3.00"]
