"""Inputs donated to outputs: caches that are changed in place, in the order that readers need; refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

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
