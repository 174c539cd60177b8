"""Networks of open sizes: right at all sizes, one copy of equal constants, refusals."""

from __future__ import annotations

import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

import tir
from graph import Builder, Graph, GraphError, OpenGraph, OpenModel
from graph.general import GeneralKernels, Numbers, fitted, polynomial_value, samples
from graph.onnx import load_onnx
from graph.passes.check import widened
from graph.reference import evaluate
from graph.sizes import OpenInput
from graph.tables import Planned
from tests.codegen.c_programs import CC
from tests.codegen.harness import ONE, at_once
from tests.sweeps import one_in
from tir import te
from tir.ir import Const

from .models import model
from .open_networks import WIDTH, drawn
from .server import serve

RNG = np.random.default_rng(0)
W = RNG.uniform(-1, 1, (24, 24)).astype("float32")
EPS = np.finfo("float32").eps


def proto(first=("batch", "seq", 24), second=("batch", "seq", 24)):
    """y = (x w + z) summed over the rows of each batch, whose number of rows comes in by the shape of x, too."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "z"], ["b"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["count"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["b", "one"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "count"], ["y"]),
    ]
    constants = {"w": W, "one": np.array([1])}
    inputs = {"x": (TensorProto.FLOAT, first), "z": (TensorProto.FLOAT, second)}
    return model(nodes, inputs, ["y", "b"], constants)


@pytest.fixture(scope="module")
def net() -> OpenModel:
    return tir.compile(load_onnx(proto()), ONE, sizes={"batch": (1, 3), "seq": (1, 13)})


def given(batch: int, seq: int) -> list[np.ndarray]:
    return [RNG.uniform(-1, 1, (batch, seq, 24)).astype("float32") for _ in range(2)]


def check(found, x, z):
    b, s = x.astype("float64") @ W + z, x.shape[1]
    bound = np.abs(x).astype("float64") @ np.abs(W) + np.abs(z)
    assert [a.shape for a in found] == [(x.shape[0], 24), b.shape]
    assert (np.abs(found[1] - b) <= 26 * EPS * bound).all()
    assert (np.abs(found[0] - s * b.sum(1)) <= (28 + s) * EPS * s * bound.sum(1)).all()


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (3, 13), (1, 13), (2, 7), (5, 1), (1, 0), (0, 3)])
def test_all_sizes(net, batch, seq):
    x, z = given(batch, seq)
    check(net(x, z), x, z)
    check(net({"z": z, "x": x}), x, z)
    assert set(net.named) == {(1, 1), (1, 13), (3, 1), (3, 13)}
    out = [np.empty_like(a) for a in net(x, z)]
    assert all(a is b for a, b in zip(net(x, z, out=out), out, strict=True))
    check(out, x, z)
    run = net.bind(x, z)
    x *= 2
    check(run(), x, z)
    static = tir.compile(load_onnx(proto(), {"batch": batch, "seq": seq}), ONE)
    assert all(np.array_equal(a, b) for a, b in zip(static(x, z), net(x, z), strict=True))


def test_equal_constants_are_held_once(net):
    packed = {tuple(sorted(a.tobytes() for a in m.graph.constants.values())) for m in net.named.values()}
    distinct = {content for contents in packed for content in contents}
    assert len(packed) < len(net.named) and net.weights_nbytes <= sum(map(len, distinct)) + 64 * (len(distinct) + len(net.models))


@pytest.mark.parametrize(("steps", "columns"), [(64, 704), (96, 1000), (1009, 67), (1500, 134), (2600, 330), (13, 7), (1, 5)])
def test_kernels_of_all_sizes_read_one_packed_weight(steps, columns):
    """Vectors, few rows, several tiles, and sums in parts."""
    weight = RNG.uniform(-1, 1, (steps, columns)).astype("float32")

    def read(shapes):
        builder = Builder("product")
        x = builder.input("x", shapes["x"], "float32")
        return builder.graph(y=builder("Relu", builder("MatMul", x, builder.constant(weight))))

    graph = OpenGraph("product", (OpenInput("x", ("n", steps), "float32"),), ("y",), read)
    opened = tir.compile(graph, ONE, sizes={"n": (1, 5, 17, 64)})
    for n in (1, 2, 5, 11, 17, 33, 64):
        x = RNG.uniform(-1, 1, (n, steps)).astype("float32")
        wanted, most = x.astype("f8") @ weight, np.abs(x).astype("f8") @ np.abs(weight)
        assert (np.abs(opened(x)[0] - np.maximum(wanted, 0)) <= steps * EPS * most).all()
    blocks = {id(block): block.nbytes for network in opened.models for block in network.weights.values()}
    assert len(blocks) == 1 and sum(blocks.values()) == opened.weights_nbytes
    assert opened.weights_nbytes <= 4 * steps * (columns + 2 * tir.Target(ONE).lanes(32) + columns // 8)  # with the last panels


def test_a_variant_is_a_model_of_its_own(net, tmp_path):
    x, z = given(2, 7)
    variant = net.at({"batch": 2, "seq": 7})
    check(tir.load(variant.save(tmp_path / "net.model"))(x, z), x, z)
    assert "compiled for batch = 1, seq = 13" in str(net)
    assert repr(net) == "<OpenModel test(x: float32[batch, seq, 24], z: float32[batch, seq, 24]) -> y, b>"
    assert len(net.profile(x, z, runs=1).kernels) == len(variant.kernels)


def test_calls_of_several_threads(net):
    def calls(seed):
        rng = np.random.default_rng(seed)
        rows = [(x, z) for _ in range(6) for x, z in [rng.uniform(-1, 1, (2, 1, *rng.integers(1, 4, 1), 24)).astype("float32")]]

        def run():
            for x, z in rows:
                check(net(x, z), x, z)

        return run

    at_once(*map(calls, range(4)))


@one_in(4)
@pytest.mark.parametrize("seed", range(16))
def test_random_networks_by_one_plan(seed):
    """Sizes up to the named ones, and beyond, and none at all, beside the interpreter in float64."""
    network, rng = drawn(seed), np.random.default_rng(seed)
    net = tir.compile(network, ONE, sizes={"batch": 4, "rows": (1, 11)})
    planned = 0
    for batch, rows in (*rng.integers((2, 1), (5, 12), (8, 2)).tolist(), (3, 13), (2, 0)):
        arrays = [rng.uniform(-1, 1, (batch, rows, WIDTH)).astype("float32") for _ in range(2)]
        wanted = evaluate(*widened(network.at({"batch": batch, "rows": rows}), arrays))
        found = net(*arrays)
        for a, b in zip(found, wanted, strict=True):
            assert a.shape == b.shape, (seed, batch, rows)
            scale = max(1.0, np.abs(b).max(initial=0.0))
            assert (np.abs(a - b) <= 64 * (rows + WIDTH) * EPS * scale).all(), (seed, batch, rows)
        planned += isinstance(net._by_shapes[arrays[0].shape, arrays[1].shape], Planned)
    assert planned >= 1, seed


def _cut(b, x, z):
    """The first five rows, or the few that there are."""
    return b("Slice", x, starts=(0,), ends=(5,), axes=(1,))


def _short(b, x, z):
    """Rows from the last but 28, of which the largest sample has others."""
    return b("Slice", x, starts=(-29,), ends=(1 << 20,), axes=(1,))


def _dropped(b, x, z):
    return b("Slice", x, starts=(4,), ends=(1 << 20,), axes=(1,))


def _even(b, x, z):
    """Rows filled up to an even number."""
    return b("Concat", x, x, axis=1) if x.shape[1] % 2 else x


def _common(b, x, z):
    """As many rows as there are in a batch, at most."""
    return b("Slice", x, starts=(0,), ends=(x.shape[0],), axes=(1,))


def _of_few_rows(b, x, z):
    """Chosen by a constant condition, which is the same in all samples."""
    return b("Where", b.constant(np.array(x.shape[1] > 3)), b("Sin", x), b("Cos", x))


def _scaled(b, x, z):
    return b("Mul", x, b.constant(np.array(1 / min(max(x.shape[1], 1), 3), "float32")))


def _masked(b, x, z):
    """The first columns, as many as there are rows."""
    return b("Where", b.constant(np.arange(6) < x.shape[1]), x, b.constant(np.array(0.5, "float32")))


@pytest.mark.parametrize("changed", [_cut, _short, _dropped, _even, _common, _of_few_rows, _scaled, _masked])
def test_networks_that_are_others_beyond_some_size(changed):
    """A plan is not used where the network was not seen to be what it is for."""

    def read(shapes):
        b = Builder("network")
        x = b.input("x", shapes["x"], "float32")
        product = b("MatMul", x, b.constant(W[:6, :6]))
        return b.graph(b("Softmax", b("Relu", changed(b, product, x)), axis=-1))

    graph = OpenGraph("network", (OpenInput("x", ("batch", "rows", 6), "float32"),), ("y",), read)
    net = tir.compile(graph, ONE, sizes={"batch": 16, "rows": 32})
    for batch in (2, 7):
        for rows in (0, 2, 3, 4, 5, 7, 28, 29, 30, 31):
            x = RNG.uniform(-1, 1, (batch, rows, 6)).astype("float32")
            (wanted,) = evaluate(graph.at({"batch": batch, "rows": rows}), [x])
            (found,) = net(x)
            assert found.shape == wanted.shape, (batch, rows)
            assert np.abs(found - wanted).max(initial=0.0) <= 64 * EPS, (batch, rows)


def test_sizes_between_samples_are_not_read(monkeypatch):
    net = tir.compile(drawn(8), ONE, sizes={"batch": 4, "rows": 11})
    monkeypatch.setattr("graph.sizes.OpenGraph.at", lambda *given: pytest.fail("reads the network"))
    for rows in (2, 3, 5, 7, 8):
        net(*(np.ones((3, rows, WIDTH), "float32") for _ in range(2)))


def test_a_servers_calls():
    """Four threads, more sizes than are kept."""
    seconds, alone, wrong = serve(800)
    assert len(seconds) == 800 and {size for size, _ in seconds} == {*alone} and wrong == []


def test_values_that_live_at_the_same_time_share_no_memory():
    """The offsets of a plan at random sizes, beside the lifetimes."""
    for seed in range(2):
        net = tir.compile(drawn(seed), ONE, sizes={"batch": 4, "rows": 11})
        for program in net._variants.programs:
            row = {name: 1 if name in program.plan.ones else int(RNG.integers(2, 9)) for name in ("batch", "rows")}
            network = program.at(row)
            words = network._blocks[0].view(np.int64)
            ends = {}
            for n, below in program.tables.below:
                value = next(v for v, at in program._at.items() if at == n)
                shape = [polynomial_value(f, row) for f in program.plan.shape(value)]
                ends[n] = int(words[n]) + int(np.prod(shape)) * program.tables.itemsizes[n]
                assert all(words[n] >= ends[m] for m in below) and ends[n] <= network.arena_nbytes


def test_the_oldest_variants_go(net, monkeypatch):
    monkeypatch.setattr("graph.variants.MAX_KEPT_VARIANTS", 2)
    for seq in (20, 21, 22, 20):
        x, z = given(1, seq)
        check(net(x, z), x, z)
    assert list(net._others) == [(1, 22), (1, 20)] and len(net._by_shapes) <= len(net.models)
    gc.collect()
    programs = net._variants.programs
    blocks = {id(block) for one in (*net.models, *programs) for block in one.weights.values()}
    assert {id(block) for block in net._variants.constants._blocks.values()} == blocks  # none of those that went


def test_open_graphs():
    graph = load_onnx(proto())
    assert isinstance(graph, OpenGraph) and graph.sizes == ("batch", "seq")
    assert str(graph).splitlines()[1:] == [
        "    input x: float32[batch, seq, 24]", "    input z: float32[batch, seq, 24]", "    output y, b",
    ]  # fmt: skip
    part = load_onnx(proto(), {"batch": 4})
    assert isinstance(part, OpenGraph) and part.inputs[0].shape == (4, "seq", 24)
    assert isinstance(load_onnx(proto(), {"x": (4, 5, 24)}), Graph)  # which says the sizes of z
    unnamed = load_onnx(proto(first=(None, 5, 24), second=(4, 5, 24)))
    assert unnamed.sizes == ("x.0",) and unnamed.at({"x.0": 4}).inputs[0].shape == (4, 5, 24)


def test_a_size_may_be_the_sum_of_others():
    nodes = [helper.make_node("Concat", ["x", "z"], ["y"], axis=0), helper.make_node("Add", ["y", "m"], ["s"])]
    inputs = {"x": (TensorProto.FLOAT, ("a", 3)), "z": (TensorProto.FLOAT, ("b", 3)), "m": (TensorProto.FLOAT, ("all", 1))}
    proto = model(nodes, inputs, ["s"], {})
    assert load_onnx(proto).sizes == ("a", "b", "all")
    graph = load_onnx(proto, {"all": "a + b"})
    assert graph.sizes == ("a", "b") and graph.at({"a": 2, "b": 5}).inputs[2].shape == (7, 1)
    assert load_onnx(proto, {"all": "a + b", "a": 4}).inputs[2].shape == ("4 + b", 1)
    assert load_onnx(proto, {"all": "a + 2", "a": 4, "b": 2}).inputs[2].shape == (6, 1)
    with pytest.raises(GraphError, match=r"^the size `a \+ b` must be 7, got 6 in the input `m`$"):
        graph.sizes_of([(2, 3), (5, 3), (6, 1)])
    with pytest.raises(GraphError, match=r"^test: the size `all` is the sum 'a \+ c'; the sizes are a, all, b$"):
        load_onnx(proto, {"all": "a + c"})


def test_refusals(net):
    graph = load_onnx(proto())
    x, z = given(1, 1)
    for call, message in (
        (lambda: net(x[0], z), r"^input `x` must have shape \[batch, seq, 24\], got \[1, 24\]$"),
        (lambda: net(x, given(2, 1)[0]), "^the size `batch` is 1 in the input `x`, but 2 in `z`$"),
        (lambda: net(x), r"^test: the inputs are x, z; got 1 array\(s\)$"),
        (lambda: net(x, [[0]]), "^input `z` must be an array, got list$"),
        (lambda: net(x.astype("float64"), z), "^input `x` must have dtype float32, got float64$"),
        (lambda: net.at({"batch": 1}), "^test: the sizes are batch, seq; got batch$"),
        (lambda: graph.at({"batch": 1, "seq": -1}), "^test: a size must be an int of at least 0, got seq = -1$"),
    ):
        with pytest.raises(GraphError, match=message):
            call()
    with pytest.raises(ValueError, match=r"^sizes names sizes for all of batch, seq of test; seq is left out$"):
        tir.compile(graph, ONE, sizes={"batch": 1})
    with pytest.raises(ValueError, match=r"^sizes was given, but no size of test is open$"):
        tir.compile(graph.at({"batch": 1, "seq": 1}), ONE, sizes={"batch": 1})


def test_sizes_that_were_not_named_need_no_new_kernels(net, monkeypatch):
    """They run kernels of open sizes, which are compiled once, and no further memory holds weights."""
    x, z = given(3, 5)
    check(net(x, z), x, z)
    net(*given(7, 3))  # beyond the named ones, where the network is read, and is found to be the same
    before = net.weights_nbytes
    monkeypatch.setattr("graph.kernels.KernelJob.done", lambda job: pytest.fail(f"compiles {job.func.name}"))
    monkeypatch.setattr("graph.model.loaded", lambda *given: pytest.fail("links an entry"))
    for batch, seq in ((2, 5), (3, 11), (7, 3), (2, 29), (1, 11), (2, 1)):
        x, z = given(batch, seq)
        check(net(x, z), x, z)
    assert net.weights_nbytes == before


def test_a_variant_with_kernels_of_open_sizes_is_exported(net, tmp_path):
    x, z = given(2, 9)
    variant = net.at({"batch": 2, "seq": 9})
    assert any(k.sizes for k in variant.kernels)
    for copy in (tir.load(variant.save(tmp_path / "net.model")), pickle.loads(pickle.dumps(variant))):
        check(copy(x, z), x, z)
    if CC is not None:
        variant.export(tmp_path / "net.so")
        check(tir.load(tmp_path / "net.so")(x, z), x, z)


def test_a_polynomial_that_holds_by_chance_is_not_used():
    """Its kernel must have the very script of the function at the sizes of a call."""
    n = te.var("n")
    A = te.placeholder((n, 3), "float32", name="A")
    func = te.create_prim_func([A, te.compute((n, 3), lambda i, j: A[i, j] * 2.0, name="B")])
    general = GeneralKernels(["n"], tir.Target(ONE), None, None)
    rows = [{"n": size} for size in (3, 5, 7)]
    funcs = [tir.specialize(func, row) for row in rows]
    columns = zip(*(Numbers.of(func).values for func in funcs), strict=True)
    formulas = tuple(fitted(["n"], rows, values) for values in columns)
    assert general.learned(rows[0], funcs[0], Numbers.of(funcs[0]), formulas).sizes == (3,)
    found = general.kernel(tir.specialize(func, {"n": 11}), {"n": 11})
    assert found is not None and found.sizes == (11,)
    assert general.kernel(tir.specialize(func, {"n": 12}), {"n": 11}) is None
    # A kernel for any number of rows serves one, too, but only that of the very numbers is made for it, and serves no others.
    known = tuple((((), value),) for value in Numbers.of(funcs[1]).values)
    for asked, extents in ((known, 0), (formulas, 2)):
        opened = general.learned(rows[1], funcs[1], Numbers.of(funcs[1]), asked).opened
        assert sum(not isinstance(b.shape[0], Const) for b in opened.buffers) == extents


@pytest.mark.parametrize(("values", "formula"), [
    ([6, 6, 6, 6, 6, 6, 6, 6, 6], ((((), 6)),)),
    ([(1 << 63) - 1] * 9, ((((), (1 << 63) - 1)),)),
    ([a * b for a in (3, 5, 9) for b in (2, 3, 4)], ((("a", "b"), 1),)),
    ([4 * a + 1 for a in (3, 5, 9) for b in (2, 3, 4)], (((), 1), (("a",), 4))),
    ([a * a + 2 * b for a in (3, 5, 9) for b in (2, 3, 4)], ((("b",), 2), (("a", "a"), 1))),
    ([a // 2 + a % 3 for a in (3, 5, 9) for b in (2, 3, 4)], None),
])  # fmt: skip
def test_fitted_polynomials(values, formula):
    rows = [{"a": a, "b": b} for a in (3, 5, 9) for b in (2, 3, 4)]
    assert fitted(("a", "b"), rows, values) == formula


def test_samples_of_sizes():
    for largest in (1, 2, 5, 8, 512):
        rows = samples(["a", "b"], [{"a": 1, "b": 1}, {"a": largest, "b": 128}])
        assert rows[0] == {"a": max(largest, 9), "b": 128} and len(rows) <= 9 + 5 + 5
        for one in ([], ["a"], ["b"]):
            own = [row for row in rows if [name for name in row if row[name] == 1] == one]
            for name in {"a", "b"}.difference(one):
                values = {row[name] for row in own}
                assert len(values) >= 3 and max(values) == own[0][name] and {n % 2 for n in values} == {0, 1}
    assert [row["a"] for row in samples(["a"], [{"a": 1}, {"a": 9}])][:3] == [9, 6, 3]


def test_models_of_old_sizes_go_while_others_call(monkeypatch):
    """Calls at more sizes than are kept, from several threads at once."""

    class Named:
        def __init__(self, rows: int):
            self.rows = rows

        def __call__(self, x, out=None):
            assert len(x) == self.rows
            return [x]

    monkeypatch.setattr("graph.variants.MAX_KEPT_VARIANTS", 1500)
    graph = OpenGraph("network", (OpenInput("x", ("n",), "float32"),), ("y",), lambda shapes: shapes)
    variants = SimpleNamespace(programs=(), read=lambda graph, sizes: Named(sizes["n"]))
    network = OpenModel(graph, variants, [])
    arrays = [np.empty(n, "float32") for n in range(3000)]

    def call(thread: int) -> None:
        for n in np.random.default_rng(thread).integers(0, len(arrays), 4000):
            network(arrays[n])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(call, range(6)))
    finally:
        sys.setswitchinterval(interval)
    assert len(network.models) == 1500
