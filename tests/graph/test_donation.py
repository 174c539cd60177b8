"""Inputs donated to outputs: caches that are changed in place, in the order that readers need; refusals."""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tir
from graph import Builder, GraphError, OpenGraph
from graph.onnx import load_onnx
from graph.sizes import OpenInput
from tests.codegen.harness import ONE

from .models import model, node

RNG = np.random.default_rng(0)
HEADS, ROOM, WIDTH = 3, 24, 8
EPS = np.finfo("float32").eps


def attention(mode="linear"):
    """One token's attention over a cache with room for ROOM of them: keys and values are projections of x."""
    wide = HEADS * WIDTH
    weights = {f"w{n}": RNG.uniform(-1, 1, (wide, wide)).astype("float32") for n in "qkv"}
    heads = np.array([1, 1, HEADS, WIDTH])
    places, low = np.arange(ROOM), np.array(-1e9, "float32")
    nodes = [
        *(node("MatMul", f"x w{n}", f"{n}0") for n in "qkv"),
        *(node("Reshape", f"{n}0 heads", f"{n}1") for n in "qkv"),
        *(node("Transpose", f"{n}1", f"{n}2", perm=[0, 2, 1, 3]) for n in "qkv"),
        *(node("TensorScatter", f"past_{n} {n}2 at", f"present_{n}", axis=2, mode=mode) for n in "kv"),
        node("Transpose", "present_k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q2 kt", "scores"),
        node("LessOrEqual", "places at", "seen"),
        node("Where", "seen scores low", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
        node("MatMul", "shares present_v", "y"),
    ]
    cache = np.zeros((1, HEADS, ROOM, WIDTH), "float32")
    inputs = {"x": np.zeros((1, 1, wide), "float32"), "past_k": cache, "past_v": cache, "at": np.zeros(1, "int64")}
    constants = weights | {"heads": heads, "places": places, "low": low}
    return load_onnx(model(nodes, inputs, ["y", "present_k", "present_v"], constants, opset=24)), weights


def test_decoding_changes_a_cache_in_place(tmp_path):
    """One compilation for all tokens, and no copy of the cache."""
    graph, weights = attention()
    net = tir.compile(graph, ONE, donate={"past_k": "present_k", "past_v": "present_v"})
    assert not net.plan.copies and [v.name for v in net.made] == ["y"]
    written = [v.nbytes for g in net.groups for v in g.outputs if not g.func.name.endswith("_in_place")]
    assert max(written) < HEADS * ROOM * WIDTH * 4 and len(written) == len(net.groups) - 2
    loaded = tir.load(net.save(tmp_path / "net.model"))
    runs = {"compiled": net, "loaded": loaded, "pickled": pickle.loads(pickle.dumps(net))}
    tokens = RNG.uniform(-1, 1, (ROOM, 1, 1, HEADS * WIDTH)).astype("float32")
    for name, run in runs.items():
        caches = [np.full((1, HEADS, ROOM, WIDTH), 7, "float32") for _ in range(2)]
        y = np.empty((1, HEADS, 1, WIDTH), "float32")
        for n, x in enumerate(tokens):
            before = [c.copy() for c in caches]
            found = (
                run(x, *caches, np.array([n]))
                if n % 2
                else run({"x": x, "past_k": caches[0], "past_v": caches[1], "at": [n]}, out=y)
            )
            assert found[1] is caches[0] and found[2] is caches[1], name
            for old, new in zip(before, caches, strict=True):
                rest = np.arange(ROOM) != n
                assert np.array_equal(old[:, :, rest], new[:, :, rest])
            seen = tokens[: n + 1, 0, 0].astype("float64")
            q, k, v = ((seen @ weights[f"w{m}"]).reshape(-1, HEADS, WIDTH) for m in "qkv")
            assert np.abs(caches[0][0, :, n] - k[n]).max() <= 26 * EPS * HEADS * WIDTH
            scores = np.einsum("hd,nhd->hn", q[n], k)
            shares = np.exp(scores - scores.max(1, keepdims=True))
            wanted = np.einsum("hn,nhd->hd", shares / shares.sum(1, keepdims=True), v)
            # of sums of absolute values: q, k and v have 24 terms, scores 8; an error of a score is a relative one of its share
            aq, ak, av = ((np.abs(seen) @ np.abs(weights[f"w{m}"])).reshape(-1, HEADS, WIDTH) for m in "qkv")
            of_scores = (2 * 26 + 10) * EPS * np.einsum("hd,nhd->hn", aq[n], ak).max()
            assert np.abs(found[0][0, :, 0] - wanted).max() <= (2 * of_scores + (26 + 2 * ROOM) * EPS) * av.max()


@pytest.mark.parametrize(("operator", "attributes"), [("ScatterND", {}), ("ScatterElements", {"axis": 1, "reduction": "add"})])
def test_scatters_in_place(operator, attributes):
    x, u = RNG.integers(-3, 4, (5, 7)).astype("float32"), RNG.integers(-3, 4, (2, 7)).astype("float32")
    indices = np.array([[3], [-1]]) if operator == "ScatterND" else RNG.integers(0, 7, (2, 7))
    nodes = [node(operator, "x i u2", "y", **attributes), node("Neg", "u", "u2"), node("Abs", "x", "z")]
    graph = load_onnx(model([nodes[1], nodes[0], nodes[2]], {"x": x, "i": indices, "u": u}, ["y", "z"]))
    plain = tir.compile(graph, ONE)(x, indices, u)
    net = tir.compile(graph, ONE, donate={"x": "y"})
    given = x.copy()
    y, z = net(given, indices, u)
    assert y is given and np.array_equal(y, plain[0]) and np.array_equal(z, plain[1])  # z reads x before it is changed


def test_refusals():
    x, i, u = np.ones((5, 7), "float32"), np.array([[1]]), np.ones((1, 7), "float32")
    scatter = node("ScatterND", "x i u", "y")

    def compiled(nodes, outputs, donate):
        return tir.compile(load_onnx(model(nodes, {"x": x, "i": i, "u": u}, outputs)), ONE, donate=donate)

    for nodes, outputs, donate, message in (
        ([scatter], ["y"], {"z": "y"}, r"donate \{'z': 'y'\}: the inputs are x, i, u, the outputs y$"),
        ([node("Neg", "x", "y")], ["y"], {"x": "y"}, "must be made by one of .* of the input; it is made by Neg$"),
        ([scatter], ["y"], {"u": "y"}, "must be made by one of .* of the input; it is made by ScatterND$"),
        ([scatter, node("Identity", "x", "z")], ["y", "z"], {"x": "y"}, "`x` is donated, so it cannot be the output z, too$"),
        (
            [scatter, node("Add", "x y", "z")], ["y", "z"], {"x": "y"},
            "`x` cannot be donated to `y`: it is read together with something that depends on that$",
        ),
    ):  # fmt: skip
        with pytest.raises(GraphError, match=message):
            compiled(nodes, outputs, donate)
    with pytest.raises(TypeError, match=r"^donate is a dict of outputs by the names of inputs"):
        compiled([scatter], ["y"], ["x"])
    net = compiled([scatter], ["y"], {"x": "y"})
    fixed = x.copy()
    fixed.flags.writeable = False
    for given, message in (
        (fixed, "^input `x` is written but the array is read-only$"),
        (x.T.copy().T, "^input `x` must be C-contiguous and aligned"),
        (x.tolist(), "^input `x` must "),
    ):
        with pytest.raises(GraphError, match=message):
            net(given, i, u)
    with pytest.raises(GraphError, match=r"^test: input `x` overlaps input `u` in memory; pass another array$"):
        net(x, i, x[:1])


def decoder() -> tuple[OpenGraph, dict[str, np.ndarray]]:
    """Attention of `new` tokens over the first `total` rows of caches with room for ROOM."""
    wide = HEADS * WIDTH
    weights = {n: RNG.uniform(-1, 1, (wide, wide)).astype("float32") for n in "qkv"}

    def read(shapes):
        b = Builder("decoder")
        x, mask, at = (b.input(n, shapes[n], t) for n, t in (("x", "float32"), ("mask", "float32"), ("at", "int64")))
        past = {n: b.input(f"past_{n}", (1, HEADS, ROOM, WIDTH), "float32") for n in "kv"}
        new, total = mask.shape
        rows = {n: b("Reshape", b("MatMul", x, b.constant(w)), shape=(1, new, HEADS, WIDTH)) for n, w in weights.items()}
        rows = {n: b("Transpose", v, perm=(0, 2, 1, 3)) for n, v in rows.items()}
        present = {n: b("TensorScatter", past[n], rows[n], at, axis=2) for n in "kv"}
        k, v = (b("Slice", present[n], starts=(0,), ends=(total,), axes=(2,)) for n in "kv")
        scores = b("Add", b("MatMul", rows["q"], b("Transpose", k, perm=(0, 1, 3, 2))), mask)
        return b.graph(b("MatMul", b("Softmax", scores, axis=-1), v), present["k"], present["v"])

    cache = (1, HEADS, ROOM, WIDTH)
    shapes = {"x": (1, "new", wide), "mask": ("new", "total"), "past_k": cache, "past_v": cache}
    inputs = [OpenInput(name, shape, "float32") for name, shape in shapes.items()]
    inputs.insert(2, OpenInput("at", (1,), "int64"))
    found = read({v.name: tuple(3 if isinstance(d, str) else d for d in v.shape) for v in inputs}).outputs
    return OpenGraph("decoder", tuple(inputs), tuple(v.name for v in found), read), weights


def test_a_cache_that_grows_has_one_plan(monkeypatch):
    """A block of tokens, then one after the other: no compilation, no entry, and none but the new rows are written."""
    graph, weights = decoder()
    donated = dict(zip(("past_k", "past_v"), graph.outputs[1:], strict=True))
    net = tir.compile(graph, ONE, sizes={"new": (1, 5), "total": ROOM}, donate=donated)
    monkeypatch.setattr("graph.kernels.KernelJob.done", lambda job: pytest.fail(f"compiles {job.func.name}"))
    monkeypatch.setattr("graph.model.loaded", lambda *given: pytest.fail("links an entry"))
    monkeypatch.setattr("graph.planned.loaded", lambda *given: pytest.fail("links an entry"))
    tokens = RNG.uniform(-1, 1, (1, ROOM, HEADS * WIDTH)).astype("float32")
    q, k, v = ((tokens.astype("float64") @ weights[n]).reshape(ROOM, HEADS, WIDTH).transpose(1, 0, 2) for n in "qkv")
    caches = [np.full((1, HEADS, ROOM, WIDTH), np.nan, "float32") for _ in range(2)]
    for begin, end in [(0, 5), *((n, n + 1) for n in range(5, ROOM - 1))]:
        mask = np.where(np.arange(end) <= np.arange(begin, end)[:, None], 0, -np.inf).astype("float32")
        y, *present = net(tokens[:, begin:end], mask, np.array([begin]), *caches)
        assert all(a is b for a, b in zip(present, caches, strict=True))
        assert all(np.isnan(c[:, :, end:]).all() and not np.isnan(c[:, :, :end]).any() for c in caches)
        scores = np.exp(q[:, begin:end] @ k[:, :end].transpose(0, 2, 1) + mask)
        wanted = scores / scores.sum(-1, keepdims=True) @ v[:, :end]
        bound = (ROOM + 3 * HEADS * WIDTH) * EPS * max(1, np.abs(q).max() * np.abs(k).max() * WIDTH) * np.abs(v).max()
        assert (np.abs(y[0] - wanted) <= bound).all(), (begin, end)
        network = net._by_shapes[tuple(a.shape for a in (tokens[:, begin:end], mask, np.zeros(1), *caches))]
        assert end - begin > 1 or network.arena_nbytes < caches[0].nbytes // 2  # no copy of a cache


ROWS, STEPS = 250, [(0, 9), *((n, n + 1) for n in range(9, 220)), (220, 231)]  # of texts, and the tokens of each call


def appending(operator="Attention"):
    """Attention of new tokens over a past of any length and themselves, as exporters write it, and its weights."""
    wide = HEADS * WIDTH
    weights = {f"w{n}": RNG.uniform(-1, 1, (wide, wide)).astype("float32") for n in "qkv"}
    float32, int32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    info = helper.make_tensor_value_info
    inputs = [info("x", float32, [1, "new", wide])]
    if operator == "Attention":
        inputs.append(info("mask", float32, ["new", "past + new"]))
        nodes = [
            *(node("MatMul", f"x w{n}", f"{n}0") for n in "qkv"),
            *(node("Reshape", f"{n}0 heads", f"{n}1") for n in "qkv"),
            *(node("Transpose", f"{n}1", f"{n}2", perm=[0, 2, 1, 3]) for n in "qkv"),
            *(node("Concat", f"past_{n} {n}2", f"present_{n}", axis=2) for n in "kv"),
            node("Transpose", "present_k", "kt", perm=[0, 1, 3, 2]),
            node("MatMul", "q2 kt", "scores"),
            node("Add", "scores mask", "masked"),
            node("Softmax", "masked", "shares", axis=-1),
            node("MatMul", "shares present_v", "by_head"),
            node("Transpose", "by_head", "found", perm=[0, 2, 1, 3]),
            node("Reshape", "found joined", "y"),
        ]
    else:
        inputs += [info("lengths", int32, [1]), info("total", int32, [])]
        nodes = [
            *(node("MatMul", f"x w{n}", f"{n}0") for n in "qkv"),
            node(operator, "q0 k0 v0 past_k past_v lengths total", "y present_k present_v", domain="com.microsoft", scale=1.0,
                 num_heads=HEADS, kv_num_heads=HEADS),
        ]  # fmt: skip
    inputs += [info(f"past_{n}", float32, [1, HEADS, "past", WIDTH]) for n in "kv"]
    outputs = [info(name, float32, None) for name in ("y", "present_k", "present_v")]
    constants = weights | {"heads": np.array([0, 0, HEADS, WIDTH]), "joined": np.array([0, 0, wide])}
    values = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return load_onnx(
        helper.make_model(helper.make_graph(nodes, "growing", inputs, outputs, values), opset_imports=opsets)
    ), weights


def decode(net, weights, past, masked):
    """Texts token by token beside float64; gives the last caches."""
    tokens = RNG.uniform(-1, 1, (1, ROWS, HEADS * WIDTH)).astype("float32")
    q, k, v = ((tokens.astype("float64") @ weights[f"w{n}"]).reshape(ROWS, HEADS, WIDTH).transpose(1, 0, 2) for n in "qkv")
    for begin, end in STEPS:
        mask = np.where(np.arange(end) <= np.arange(begin, end)[:, None], 0, -np.inf).astype("float32")
        y, *past = net(
            tokens[:, begin:end], *([mask] if masked else [np.array([end - 1], "int32"), np.array(end, "int32")]), *past
        )
        assert all(c.shape == (1, HEADS, end, WIDTH) for c in past)
        scores = np.exp(q[:, begin:end] @ k[:, :end].transpose(0, 2, 1) + mask)
        wanted = scores / scores.sum(-1, keepdims=True) @ v[:, :end]
        bound = (ROWS + 3 * HEADS * WIDTH) * EPS * max(1, np.abs(q).max() * np.abs(k).max() * WIDTH) * np.abs(v).max()
        found = y.reshape(end - begin, HEADS, WIDTH).transpose(1, 0, 2)
        assert (np.abs(found - wanted) <= bound).all(), (begin, end)
    return past


@pytest.mark.parametrize("operator", ["Attention", "GroupQueryAttention"])
def test_a_past_that_grows_is_compiled_once_and_not_copied(operator, monkeypatch, tmp_path):
    graph, weights = appending(operator)
    donated = {"past_k": "present_k", "past_v": "present_v"}
    net = tir.compile(graph, ONE, sizes={"new": (1, 16), "past": ROWS}, donate=donated)
    for what in ("graph.model.loaded", "graph.planned.loaded"):
        monkeypatch.setattr(what, lambda *given: pytest.fail("links an entry"))
    monkeypatch.setattr("graph.kernels.KernelJob.done", lambda job: pytest.fail(f"compiles {job.func.name}"))
    for run, room in ((net, 231), (tir.load(net.save(tmp_path / "growing.model")), ROWS)):
        buffers = [np.full((1, HEADS, room, WIDTH), np.nan, "float32") for _ in range(2)]
        past = decode(run, weights, [b[:, :, :0] for b in buffers], operator == "Attention")
        assert all(np.shares_memory(p, b) and np.array_equal(p, b[:, :, :231]) for p, b in zip(past, buffers, strict=True))
        assert all(np.isnan(b[:, :, 231:]).all() for b in buffers)
    step = [n for n in net.models if n.inputs[0].shape[1] == 1]
    assert len(step) > 2 and max(n.arena_nbytes for n in step) < buffers[0].nbytes // 2  # no copy of a cache


def test_a_past_that_grows_without_donation_is_compiled_once(monkeypatch):
    graph, weights = appending()
    net = tir.compile(graph, ONE, sizes={"new": (1, 16), "past": ROWS})
    first = [np.zeros((1, HEADS, 0, WIDTH), "float32")] * 2
    x, mask = np.zeros((1, 9, HEADS * WIDTH), "float32"), np.zeros((9, 9), "float32")
    net(x, mask, *first)  # an empty past has a model of its own
    monkeypatch.setattr("graph.kernels.KernelJob.done", lambda job: pytest.fail(f"compiles {job.func.name}"))
    past = decode(net, weights, first, True)
    copies = [n for n in net.models if n.inputs[0].shape[1] == 1 and n.arena_nbytes < past[0].nbytes]
    assert len(copies) > 2  # each past is copied once, to the output


def test_refusals_of_pasts_that_grow():
    graph, _ = appending()
    donated = {"past_k": "present_k", "past_v": "present_v"}
    net = tir.compile(graph, ONE, sizes={"new": (1, 4), "past": 9}, donate=donated)
    x, mask, buffer = (
        np.zeros((1, 2, HEADS * WIDTH), "float32"),
        np.zeros((2, 7), "float32"),
        np.zeros((1, HEADS, 7, WIDTH), "float32"),
    )
    other = np.zeros((1, HEADS, 9, WIDTH), "float32")
    view = np.zeros((1, HEADS, 6, WIDTH), "float32")[:, :, :5]
    fixed = np.zeros((1, HEADS, 7, WIDTH), "float32")
    fixed.flags.writeable = False
    for k, v, message in (
        (view, buffer[:, :, :5], r"^input `past_k` has room for 6 rows along axis 2, and the call makes it 7; pass a view of the first "),
        (buffer[:, :, :5].copy(), buffer[:, :, :5], r"^input `past_k` has room for 5 rows along axis 2, and the call makes it 7; "),
        (buffer[:, :, :5], other[:, :, :5], "inputs that grow must have room for as many rows, got {'past_k': 7, 'past_v': 9}$"),
        (buffer[:, :, 2:], other[:, :, :5], r"^input `past_k` must be a view of the first rows .* such as buffer\[:, :, :5\]$"),
        (buffer[:, :, :5], fixed[:, :, :5], "^input `past_v` is written but the array is read-only$"),
        (buffer[:, :, :5], buffer[:, :, :5], "^growing: input `past_k` overlaps input `past_v` in memory; pass another array$"),
    ):  # fmt: skip
        with pytest.raises(GraphError, match=message):
            net(x, mask, k, v)
    with pytest.raises(GraphError, match=r"^the size `past \+ new` must be 7, got 8 in the input `mask`$"):
        net(x, np.zeros((2, 8), "float32"), buffer[:, :, :5], other[:, :, :5])
