"""Networks of open sizes beside others: what is compared, kept and shown. Here ours alone runs, on a network of a few elements."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import open_networks, symbolic
from benchmarks.open_contender import drawn
from benchmarks.options import Options

ROW = "network-sum"
AXES = ({0: "batch", 1: "sequence"}, {0: "batch"})


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """A row of a network y = x + m, whose file is there, with no rivals."""
    sizes = [{"batch": batch, "sequence": sequence} for batch, sequence in ((1, 7), (3, 5))]
    monkeypatch.setattr(open_networks, "RIVALS", ())
    monkeypatch.setattr(open_networks, "ROWS", (ROW,))
    monkeypatch.setattr(open_networks, "AXES", {"sum": AXES})
    monkeypatch.setattr(open_networks, "NAMED", {"sum": {"batch": (1, 4), "sequence": (7,)}})
    monkeypatch.setattr(open_networks, "SIZES", {"sum": sizes})
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", 3])]
    inputs.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, ["batch", 1, 1]))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Add", ["x", "m"], ["y"])], "sum", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "sum.open.onnx")
    x, m = np.ones((1, 7, 3), "float32"), np.ones((1, 1, 1), "float32")
    np.savez(tmp_path / "sum.npz", input_0=x, input_1=m, output_0=(x + m).astype("float64"))
    return Options(seconds=0.01, models=str(tmp_path), save=str(tmp_path / "kept"))


def test_sizes_are_measured_kept_and_shown(small: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_networks, "commit", lambda: "abc")
    monkeypatch.setattr(open_networks, "circumstances", lambda: {"machine": {"processor": "P", "mcpu": "m"}, "commit": "abc"})
    named, other = symbolic.measure(ROW, small)
    assert named["size"] == "batch = 1, sequence = 7" and named["named"] and named["static"]["off"] == 0.0
    assert np.isclose(named["loss"], named["tir"]["median_s"] / named["static"]["median_s"] - 1)
    assert not other["named"] and "loss" not in other and "static" not in other and other["ms"] > 0
    json.dumps([named, other], allow_nan=False)
    page = (tmp_path / "kept" / "symbolic.md").read_text()
    assert f"| {ROW}, batch = 3, sequence = 5 | no |" in page and "On P (m), commit abc." in page
    monkeypatch.setattr(open_networks, "Contender", None)  # not needed again
    assert [r["size"] for r in symbolic.measure(ROW, small)] == [named["size"], other["size"]]


def test_a_wrong_result_is_not_timed(small: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_networks, "TOLERANCE", -1.0)
    named, other = symbolic.measure(ROW, small)
    assert named["error"] == "wrong result: off by 0 from static" and "ms" not in named and "error" not in other


def test_a_library_that_fails_says_why(small: Options, tmp_path: Path) -> None:
    (tmp_path / "sum.open.onnx").write_bytes(b"nothing of the kind")
    (result,) = symbolic.measure(ROW, small)
    assert result["error"].startswith("tir: GraphError: ")


def test_inputs_are_drawn_for_the_sizes() -> None:
    examples = [np.array([[3, 900, 5]]), np.array([[1, 1, 0]]), np.zeros((1, 2), "float32")]
    axes = [{"0": "batch", "1": "sequence"}, {"0": "batch", "1": "sequence"}, {"0": "batch"}]
    tokens, mask, rest = drawn(examples, axes, {"batch": 2, "sequence": 50})
    assert tokens.shape == mask.shape == (2, 50) and 100 < tokens.max() <= 900 and tokens.dtype == examples[0].dtype
    assert mask[0, :6].tolist() == [1, 1, 0, 1, 1, 0] and rest.shape == (2, 2) and rest.dtype == np.float32


def test_the_page_compares_with_the_faster_rival() -> None:
    def rival(ratio: float) -> dict:
        return {"ratio": ratio, "quartiles": [ratio, ratio], "off": 1e-6}

    ours = {"median_s": 2e-3, "quartiles_s": [1e-3, 3e-3]}
    rows = [
        {
            "row": "a",
            "network": "n",
            "named": named,
            "ms": 2.0,
            "tir": ours,
            "onnxruntime": rival(x),
            "openvino": rival(y),
            "best": y,
        }
        for named, x, y in ((True, 4.0, 2.0), (True, 9.0, 8.0), (False, 3.0, 0.5))
    ]
    programs = {"row": "p", "named": True, "any_us": 2.0, "constant_us": 1.0, "loss": 1.0}
    first, second, *means = symbolic.section([programs, *rows])
    assert "| p | yes | 2 | 1 | 100.0% |" in first and "| a | yes | 2 | 1..3 | 2.00 | 4.00 | 2.00 |" in second
    assert means == ["named sizes: 4.00 times the best, at least 2.00", "other sizes: 0.50 times the best, at least 0.50"]


@pytest.mark.skipif(find_spec("torch") is None, reason="the extra `networks` is not installed")
def test_each_row_is_a_network() -> None:
    from benchmarks import torch_networks

    known = torch_networks.NETWORKS | torch_networks.OPEN_ALONE
    assert open_networks.NAMED.keys() == open_networks.AXES.keys() == open_networks.SIZES.keys() <= known.keys()
