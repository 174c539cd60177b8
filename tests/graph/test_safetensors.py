"""Files of safetensors, as their library writes them where it is installed, and graphs with their arrays."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import tir
from graph import Builder, GraphError
from graph.safetensors import load_safetensors, with_weights

ARRAYS = {
    "a.weight": np.arange(91, dtype="float32").reshape(7, 13),
    "a.bias": np.arange(13, dtype="float64"),
    "half": np.arange(5).astype(ml_dtypes.bfloat16),
    "flags": np.array([True, False, True]),
    "empty": np.zeros((0, 3), "int64"),
    "one": np.array(7, "uint8"),
}
KINDS = {"float32": "F32", "float64": "F64", "bfloat16": "BF16", "bool": "BOOL", "int64": "I64", "uint8": "U8"}


def written(path, arrays, **changes):
    header, data = {"__metadata__": {"format": "np"}}, b""
    for name, array in arrays.items():
        own = {
            "dtype": KINDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        header[name], data = own | changes.get(name, {}), data + array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


def test_arrays_by_name(tmp_path):
    equal(load_safetensors(written(tmp_path / "all.safetensors", ARRAYS)), ARRAYS)


def test_a_folder_of_files_and_those_of_the_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    own = {name: a for name, a in ARRAYS.items() if name != "half"}
    library.save_file(own, tmp_path / "1.safetensors")
    written(tmp_path / "2.safetensors", {"half": ARRAYS["half"]})
    equal(load_safetensors(tmp_path), ARRAYS)


@pytest.mark.parametrize(("change", "message"), [
    ({"dtype": "F8_E5M2"}, "the element type F8_E5M2 is not supported"),
    ({"shape": [7, 12]}, r"bytes 0 to 364 do not hold float32\[7, 12\]"),
    ({"data_offsets": [0, 999999]}, "bytes 0 to 999999 do not hold"),
])  # fmt: skip
def test_damaged_files_are_refused(tmp_path, change, message):
    with pytest.raises(GraphError, match=message):
        load_safetensors(written(tmp_path / "bad.safetensors", ARRAYS, **{"a.weight": change}))


def test_what_is_no_such_file_is_refused(tmp_path):
    for content in (b"", b"short", bytes(64), b"\xff" * 64):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(GraphError, match="is not a file of safetensors, or is damaged"):
            load_safetensors(tmp_path / "bad")


def test_weights_of_a_graph_by_name(tmp_path):
    builder = Builder("layer")
    x = builder.input("x", (3, 7), "float32")
    weight = builder.constant(np.zeros((7, 13), "float32"), name="a.weight")
    graph = builder.graph(builder("Add", builder("MatMul", x, weight), builder.constant(np.ones(13, "float32"), name="shift")))
    file = written(tmp_path / "w.safetensors", {"a.weight": ARRAYS["a.weight"]})
    given = np.random.default_rng(0).integers(-3, 4, (3, 7)).astype("float32")
    assert np.array_equal(tir.compile(with_weights(graph, file), "llvm -num-cores 1")(given)[0], given @ ARRAYS["a.weight"] + 1)
    with pytest.raises(GraphError) as refused:
        with_weights(graph, {"a.weight": ARRAYS["a.weight"].T.copy(), "b": np.zeros(2), "shift": np.ones(13)})
    assert str(refused.value) == (
        "graph layer: 3 weights do not fit\n"
        "  `a.weight`: the graph has float32[7, 13], the weights float32[13, 7]\n"
        "  `b`: the graph has no constant of this name\n"
        "  `shift`: the graph has float32[13], the weights float64[13]"
    )
