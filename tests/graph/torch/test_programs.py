"""Programs of `torch.export` as graphs, and `torch.compile` with the backend, against torch itself in eager mode."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tir
from cli.run import main
from graph import GraphError, OpenGraph
from graph.compilation import final
from graph.passes.integers import SUMS
from graph.reference import evaluate

torch = pytest.importorskip("torch")
backend = pytest.importorskip("graph.torch.backend")
nn, functional = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Block(nn.Module):
    """A convolution with a batch norm, a shortcut, and attention with a mask of its own."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1, groups=3, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.register_buffer("mask", torch.ones(35, 35).tril().bool())

    def forward(self, x):
        y = functional.hardswish(self.norm(self.conv(x))) + x
        rows = y.flatten(2).transpose(1, 2)
        found, weights = self.attention(rows, rows, rows, attn_mask=~self.mask)
        return {"rows": found, "weights": weights, "mean": rows.mean(1)}


class Updated(nn.Module):
    """Writes in place, to views of its input's copy, and to a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(3))
        self.register_buffer("table", torch.arange(12.0).reshape(4, 3))

    def forward(self, x, n):
        y = x.clone()
        y[:, 1].mul_(2)
        y[0] += self.table[n]
        self.steps.add_(1)
        return y, y.t(), self.steps * 2


def close(found, wanted, roundings=64):
    """Each result is within so many roundings of the largest element of torch's in float64, and of its type."""
    assert len(found) == len(wanted)
    for a, (b, dtype) in zip(found, wanted, strict=True):
        a = torch.as_tensor(a)
        assert (a.shape, a.dtype) == (b.shape, dtype)
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0
        assert (a.double() - b.double()).abs().max() <= roundings * eps * b.double().abs().max()


def in_float64(module, inputs):
    """The tensors that a module gives in float64, with their types in its own."""
    own = [t.dtype for t in torch.utils._pytree.tree_leaves(module(*inputs))]
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    module = module if not isinstance(module, nn.Module) else type(module).double(module)
    return list(zip(torch.utils._pytree.tree_leaves(module(*wide)), own, strict=True))


def test_an_exported_program():
    module, inputs = Block().eval(), (torch.randn(2, 6, 5, 7),)
    program = torch.export.export(module, inputs)
    graph = tir.from_torch(program)
    assert [(v.name, v.shape, v.dtype) for v in graph.inputs] == [("x", (2, 6, 5, 7), "float32")]
    found = tir.compile(graph, cache=None)(*inputs)
    pointers = {p.data_ptr() for p in module.parameters()}
    assert {a.ctypes.data for a in graph.constants.values()} & pointers, "parameters share their memory"
    assert set(graph.constants) & set(module.state_dict()), "and have their names"
    close(found, in_float64(module, inputs))


def test_views_buffers_and_integers():
    module, x, n = Updated(), torch.randn(4, 3), torch.tensor(2)
    program = torch.export.export(module, (x, n))
    graph = tir.from_torch(program)
    assert [v.name for v in graph.inputs] == ["b_steps", "x", "n"]
    found = evaluate(graph, [np.full(3, 5, "float32"), x.numpy(), n.numpy()])
    y = x.clone()
    y[:, 1].mul_(2)
    y[0] += module.table[2]
    for array, wanted in zip(found, (y, y.t(), np.full(3, 12), np.full(3, 6)), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_places_in_the_memory_of_a_view_are_refused():
    class Strided(nn.Module):
        def forward(self, x):
            return x.t().as_strided((2, 2), (1, 2), 1)

    with pytest.raises(GraphError, match="places in the memory of a tensor with gaps"):
        tir.from_torch(torch.export.export(Strided(), (torch.randn(3, 4),)))


def test_open_shapes_are_given():
    class Rows(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 3, -1) + x.shape[0]

    x = torch.randn(4, 6)
    program = torch.export.export(Rows(), (x,), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    opened = tir.from_torch(program)
    assert isinstance(opened, OpenGraph) and opened.sizes == ("x.0",)
    for n in (4, 7, 13):
        given = torch.randn(n, 6)
        np.testing.assert_array_equal(evaluate(opened.at({"x.0": n}), [given.numpy()])[0], given.reshape(3 * n, 2) + n)
    graph = tir.from_torch(program, shapes={"x": (5, 6)})
    given = torch.randn(5, 6)
    np.testing.assert_array_equal(evaluate(graph, [given.numpy()])[0], given.reshape(15, 2) + 5)
    with pytest.raises(GraphError, match=r"the shape \[5, 7\] for the input `x` contradicts the program: \[x.0, 6\]"):
        tir.from_torch(program, shapes={"x": (5, 7)})
    with pytest.raises(GraphError, match="shapes names `y`; the inputs are x"):
        tir.from_torch(program, shapes={"x": (5, 6), "y": (1,)})


def test_a_program_of_open_sizes_is_compiled_once(monkeypatch):
    """Its parameters are held once; sizes out of the range of the program, or that contradict each other, are refused."""
    module, n = nn.Sequential(nn.Linear(13, 24), nn.GELU(), nn.Linear(24, 7)).eval(), torch.export.Dim("n", min=2, max=40)
    program = torch.export.export(module, (torch.randn(4, 13),), dynamic_shapes={"input": {0: n}})
    model = tir.compile(tir.from_torch(program), cache=None, sizes={"input.0": 16})
    monkeypatch.setattr("graph.compilation.assembled", None)  # nothing is compiled any more
    for rows in (16, 2, 7, 9):
        x = torch.randn(rows, 13)
        torch.testing.assert_close(model(x)[0], module(x))
    with pytest.raises(GraphError, match=r"the size `input.0` is 41, but the program is for 2 to 40"):
        model(torch.randn(41, 13))

    class Pair(nn.Module):
        def forward(self, x, y):
            return x + y[1:]

    n = torch.export.Dim("n", max=40)
    dims = {"x": {0: n}, "y": {0: n + 1}}
    graph = tir.from_torch(torch.export.export(Pair(), (torch.randn(4), torch.randn(5)), dynamic_shapes=dims))
    with pytest.raises(GraphError, match=r"the size `y.0` is 9, but s\w+ \+ 1 is 8"):
        graph.at({"x.0": 7, "y.0": 9})
    assert graph.at({"x.0": 7, "y.0": 8}).outputs[0].shape == (7,)


def missing(x):
    return torch.fft.rfft(x).abs() + torch.special.i0(x).sum()


class Missing(nn.Module):
    def forward(self, x):
        return missing(x)


def test_what_is_missing_is_one_error():
    with pytest.raises(GraphError) as raised:
        tir.from_torch(torch.export.export(Missing(), (torch.randn(8),)))
    first, *lines = str(raised.value).splitlines()
    assert first == "program: the program cannot be imported"
    assert [line.split(":")[0].strip() for line in lines[:2]] == ["aten._fft_r2c", "aten.i0"]
    assert "there is no such operator (1 call)" in lines[0] and "graph.composite" in lines[-1]
    with pytest.raises(
        TypeError, match=r"from_torch takes a program, such as torch.export.export\(model, args\) gives, got Missing"
    ):
        tir.from_torch(Missing())


def compiled(module, *inputs, **how):
    """A module compiled by the backend, and the warnings of its first call."""
    function = torch.compile(module, backend=tir.torch_backend, **how)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        found = function(*inputs)
    return function, found, [str(w.message) for w in noted if "eager mode" in str(w.message)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_compile(dtype):
    module = nn.Sequential(nn.Linear(13, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 7)).eval().to(dtype)
    x = torch.randn(5, 13).to(dtype)
    function, found, noted = compiled(module, x)
    assert not noted
    again = function(x)
    assert torch.equal(found, again)
    close([found], in_float64(module, (x,)))


@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_that_torch_runs_as_one_operator(norm_first):
    """Of a transformer's encoder in inference, with keys that are padding."""
    module = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True, norm_first=norm_first).eval()
    x, padding = torch.randn(2, 7, 16), torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 5:] = True
    for named in ({}, {"src_key_padding_mask": padding}):
        function = torch.compile(module, backend=tir.torch_backend)
        torch.testing.assert_close(function(x, **named), module(x, **named))


def test_new_sizes_and_new_parameters():
    module = nn.Linear(7, 3).eval()
    function, _, noted = compiled(module, torch.randn(2, 7))
    for rows in (4, 9, 2, 1):
        x = torch.randn(rows, 7)
        torch.testing.assert_close(function(x), module(x))
    module.weight.mul_(2)
    torch.testing.assert_close(function(x), module(x))
    module.bias = nn.Parameter(torch.ones(3))
    torch.testing.assert_close(function(x), module(x))
    assert not noted


def test_one_compilation_serves_many_sizes(monkeypatch):
    """The second sizes begin a model for all; a number among the inputs is one of them, one among the results is not."""
    made = []
    monkeypatch.setattr(backend, "compile", lambda graph, **options: made.append(graph) or tir.compile(graph, **options))
    linear = nn.Linear(13, 7)

    def function(x):
        return linear(x).softmax(1).sum(0) / x.shape[0] + x.shape[1]

    fast = torch.compile(function, backend=tir.torch_backend, options={"cache": None}, dynamic=True)
    for rows in (4, 9, 2, 7, 5):
        x = torch.randn(rows, 13)
        torch.testing.assert_close(fast(x), function(x))
    assert [type(graph).__name__ for graph in made] == ["Graph", "OpenGraph"]
    with torch.no_grad():
        linear.weight.mul_(2)  # another model: its parameters are constants
    torch.testing.assert_close(fast(x), function(x))
    made.clear()
    counted = torch.compile(lambda x: (x * 2, x.shape[0] * 3), backend=tir.torch_backend, options={"cache": None}, dynamic=True)
    for rows in (4, 9, 3):
        x = torch.randn(rows, 5)
        doubled, number = counted(x)
        assert number == 3 * rows and (doubled == 2 * x).all()


def test_a_buffer_that_calls_write_is_an_input(monkeypatch):
    """As a counter or a cache of keys: a model that had it as a constant would be compiled in each call."""
    module, eager, n = Updated(), Updated(), torch.tensor(1)
    x = torch.randn(4, 3)
    function, _, noted = compiled(module, x, n)
    eager(x, n)
    monkeypatch.setattr("graph.torch.backend.Bound", lambda *given: pytest.fail("it is compiled again"))
    for _ in range(2):
        for found, wanted in zip(function(x, n), eager(x, n), strict=True):
            torch.testing.assert_close(found, wanted)
    assert torch.equal(module.steps, torch.full((3,), 3.0)) and not noted


def test_several_outputs_and_a_changed_input():
    def function(x, flag):
        x.add_(1)
        return x * 2, x.view(-1), flag, x.shape[0]

    x, wanted = torch.randn(3, 5), torch.zeros(())
    given = x.clone()
    wanted = function(given, True)
    mine = x.clone()
    _, found, noted = compiled(function, mine, True)
    assert not noted and found[2:] == wanted[2:]
    torch.testing.assert_close((mine, *found[:2]), (given, *wanted[:2]))
    assert found[1].data_ptr() == mine.data_ptr()


def test_strides_and_empty_results():
    def function(x, y):
        return x.t() @ y[::2], y[:0]

    x, y = torch.randn(7, 4).t().contiguous().t(), torch.randn(14, 3)
    _, found, noted = compiled(function, x, y)
    torch.testing.assert_close(found, function(x, y))
    assert not noted


def test_what_is_missing_runs_in_eager_mode():
    x = torch.randn(8)
    function, found, noted = compiled(missing, x)
    torch.testing.assert_close(found, missing(x))
    assert len(noted) == 1 and "aten._fft_r2c" in noted[0]
    torch.testing.assert_close(function(x), missing(x))


class Islands(nn.Module):
    """Operators that are missing, with complex numbers between them, and layers before, between and after them."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(8, 16), nn.Linear(9, 5)

    def forward(self, x):
        spectrum = torch.fft.rfft(functional.relu(self.before(x)))
        scores = functional.gelu(self.after(torch.view_as_real(spectrum).sum(-1)))
        return torch.special.i0(scores) @ scores.T, self.before.bias.sum(), x.shape[0]


def test_missing_nodes_are_islands_between_compiled_parts(monkeypatch):
    """Parts are compiled once for each number of rows, with parameters as constants, and one warning names what is not."""
    parts = []
    monkeypatch.setattr(
        "graph.torch.backend.compile", lambda graph, **options: parts.append(graph) or tir.compile(graph, **options)
    )
    module = Islands().eval()
    function, _, noted = compiled(module, torch.randn(3, 8))
    assert len(noted) == 1 and noted[0].startswith("3 node(s) of a traced graph run in eager mode")
    assert all(name in noted[0] for name in ("aten._fft_r2c", "aten.view_as_real", "aten.i0"))
    weights = {tuple(sorted(array.shape)) for graph in parts for array in graph.constants.values()}
    assert {(8, 16), (16,), (5, 9), (5,)} <= weights and len(parts) >= 2
    for rows in (3, 5, 7, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(function(x), module(x))
    count = len(parts)
    torch.testing.assert_close(function(x), module(x))
    assert len(parts) == count


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(5, 3, batch_first=True, **options)

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(("kind", "options"), [
    (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    (nn.GRU, {"num_layers": 2, "bidirectional": True}),
    (nn.GRU, {"bias": False}),
    (nn.RNN, {"bidirectional": True}),
    (nn.RNN, {"nonlinearity": "relu"}),
])  # fmt: skip
def test_recurrent_layers(kind, options):
    module, x = Recurrent(kind, **options).eval(), torch.randn(2, 7, 5)
    wanted = torch.utils._pytree.tree_leaves(module(x))
    graph = tir.from_torch(torch.export.export(module, (x,)))
    assert sum("Step" in c.operator for c in graph.calls) <= 7 * 4, "a call for each step of a direction of a layer"
    for found, exact in zip(evaluate(graph, [x.numpy()]), wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(found), exact)
    with torch._dynamo.config.patch(allow_rnn=True):
        _, found, noted = compiled(module, x)
    torch.testing.assert_close(torch.utils._pytree.tree_leaves(found), wanted)
    assert not noted


def test_a_recurrent_layer_with_a_projection_is_an_island():
    module, x = nn.Sequential(nn.Linear(5, 5), Recurrent(nn.LSTM, proj_size=2)).eval(), torch.randn(2, 7, 5)
    with torch._dynamo.config.patch(allow_rnn=True):
        _, found, noted = compiled(module, x)
    torch.testing.assert_close(found, module(x))
    assert len(noted) == 1 and "a projection of states is not supported" in noted[0] and "1 node(s)" in noted[0]


def test_what_depends_on_strides_is_not_parted():
    """A compiled part gives arrays without gaps, in which as_strided would find other elements."""

    def function(x):
        y = torch.special.i0(x.t() * 2)
        return y.t() + 1, (y * 2).as_strided((2, 2), (1, 3), 1)

    x = torch.randn(3, 5)
    _, found, noted = compiled(function, x)
    torch.testing.assert_close(found, function(x))
    assert len(noted) == 1 and "aten.i0" in noted[0]


def test_numbers_that_depend_on_data():
    def function(x, z):
        return x * x.sum().item() + 1, z * 2, x @ x.T

    x, z = torch.randn(3, 5), torch.randn(2, dtype=torch.complex64)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        _, found, noted = compiled(function, x, z)
    torch.testing.assert_close(found, function(x, z))
    assert len(noted) <= 1


def test_training_runs_in_eager_mode():
    module, x = nn.Linear(7, 3), torch.randn(2, 7)
    with torch.enable_grad():
        _, found, noted = compiled(module, x)
        found.sum().backward()
    assert module.weight.grad is not None
    assert noted == [
        "tir compiles inference only, and a model that needs gradients runs in eager mode: call it under torch.no_grad()"
    ]


def test_options():
    x = torch.randn(2, 7)
    _, found, _ = compiled(nn.Linear(7, 3), x, options={"cache": None, "target": "llvm -num-cores 1"})
    assert found.shape == (2, 3)
    with pytest.raises(Exception, match="tir has no option 'record'; there are cache, plan, records, target, winograd"):
        compiled(nn.Linear(7, 3), x, options={"record": "tune.db"})


def test_a_file_of_a_program_on_the_command_line(tmp_path, capsys):
    module, x = nn.Linear(7, 3), torch.randn(2, 7)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    np.savez(tmp_path / "x.npz", input=x.numpy())
    arguments = ["--inputs", str(tmp_path / "x.npz"), "--outputs", str(tmp_path / "y.npz"), "--threads", "1"]
    assert main([str(tmp_path / "m.pt2"), *arguments]) == 0
    with np.load(tmp_path / "y.npz") as found:
        (y,) = (found[name] for name in found.files)
    np.testing.assert_allclose(y, module(x).numpy(), rtol=1e-5, atol=1e-6)
    assert main([str(tmp_path / "none.pt2")]) == 2
    assert "none.pt2: No such file or directory" in capsys.readouterr().err


class Quantised(nn.Module):
    """A convolution and a linear layer as PT2E leaves them, with weights of bytes by channel."""

    def __init__(self):
        super().__init__()
        self.register_buffer("filters", torch.randint(-127, 128, (16, 8, 3, 3), dtype=torch.int8))
        self.register_buffer("weights", torch.randint(-127, 128, (40, 16), dtype=torch.int8))
        self.bias = nn.Parameter(torch.randn(16))
        self.register_buffer("scales", torch.rand(40) / 99 + 0.001)
        self.register_buffer("zeros", torch.zeros(40, dtype=torch.int64))

    def forward(self, x):
        x = self.bytes(x, 0.02, 128)
        y = functional.relu(functional.conv2d(x, self.channels(self.filters), self.bias, padding=1))
        return functional.linear(self.bytes(y.mean((2, 3)), 0.01, 0), self.channels(self.weights))

    def bytes(self, x, *parameters):
        of_bytes = torch.ops.quantized_decomposed
        q = of_bytes.quantize_per_tensor(x, *parameters, 0, 255, torch.uint8)
        return of_bytes.dequantize_per_tensor(q, *parameters, 0, 255, torch.uint8)

    def channels(self, weights):
        n = len(weights)
        limits = -127, 127, torch.int8
        return torch.ops.quantized_decomposed.dequantize_per_channel(weights, self.scales[:n], self.zeros[:n], 0, *limits)


def test_quantised_products_are_of_integers():
    import torch.ao.quantization.fx._decomposed

    model, x = Quantised().eval(), torch.randn(2, 8, 12, 12)
    graph = final(tir.from_torch(torch.export.export(model, (x,))), tir.Target("llvm -num-cores 1"))
    assert sum(c.operator in SUMS for c in graph.calls) == 2
    assert not {"Conv", "MatMul"} & {c.operator for c in graph.calls}
    for found in (tir.compile(graph)(x)[0], torch.compile(model, backend=backend.compiled)(x)):
        torch.testing.assert_close(torch.as_tensor(found), model(x), rtol=1e-5, atol=1e-5)
