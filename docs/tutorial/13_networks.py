# %% [markdown]
# # 13. How does a whole network become fast?
#
# A network is many functions: products, convolutions, what is between them. It has two questions of its own. Which functions
# are there at all, once neighbours are fused? And who gets how much of the time that a search may take?

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnx
from course import keep
from onnx import TensorProto, helper, numpy_helper
from pretended import falling

import tir
from search import WeightedFunction
from tir import workloads

AVX2 = "llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v3 -num-cores 1"

# %% [markdown]
# ## From a file to a graph
#
# ONNX is a file format for networks: a list of operators with names for what passes between them. We make a small one, two
# layers of a classifier; most are exported from torch or others.

# %%
rng = np.random.default_rng(0)
weights = {
    name: rng.uniform(-1, 1, shape).astype("float32")
    for name, shape in (("W1", (40, 24)), ("b1", (24,)), ("W2", (24, 10)), ("b2", (10,)))
}
nodes = [
    helper.make_node("MatMul", ["x", "W1"], ["h1"]),
    helper.make_node("Add", ["h1", "b1"], ["h2"]),
    helper.make_node("Relu", ["h2"], ["h3"]),
    helper.make_node("MatMul", ["h3", "W2"], ["h4"]),
    helper.make_node("Add", ["h4", "b2"], ["h5"]),
    helper.make_node("Softmax", ["h5"], ["y"], axis=1),
]
graph = helper.make_graph(
    nodes,
    "classifier",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, (7, 40))],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, (7, 10))],
    [numpy_helper.from_array(value, name) for name, value in weights.items()],
)
path = Path(tempfile.mkdtemp()) / "classifier.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

network = tir.load_onnx(path)
print(network)

# %% [markdown]
# ## Fusion: six operators, fewer functions
#
# An operator alone reads its input from memory and writes its output there. Most of these trips are needless: an Add and a
# Relu can be done to the sums of a product while they are still in registers. That is the `reverse_compute_at` of lesson 6,
# found by the compiler. So the compiled model has fewer kernels than operators. Their nests, as for a processor with AVX2: in
# the first two, the last loop takes up a tile of sums as soon as it is complete.

# %%
model = tir.compile(network, "llvm -num-cores 1")
x = rng.uniform(-1, 1, (7, 40)).astype("float32")
(y,) = model(x)
for kernel in sorted(model.profile(x, runs=1).kernels, key=lambda k: k.name):  # the order of their times differs
    print(kernel.name, tir.default_schedule(kernel.func, AVX2).func.outline(), sep=": ")

hidden = np.maximum(x @ weights["W1"] + weights["b1"], 0)
expected = np.exp(hidden @ weights["W2"] + weights["b2"])
expected /= expected.sum(axis=1, keepdims=True)
terms = 40 + 24 + 10  # of the sums on the way to an element
assert len(model.kernels) < len(nodes)
assert np.abs(y - expected).max() <= 2 * terms * np.finfo("float32").eps * np.abs(hidden @ weights["W2"]).max()

# %% [markdown]
# From outside, the network is one function: its kernels are called by machine code, one after the other, and temporaries share
# memory that is planned in advance.
#
# ## Who gets the trials?
#
# Tuning a network is tuning several functions under one budget. Say there are two: a product, called three times, and a
# softmax. The time of the network is 3 · t₁ + t₂. A trial is well spent where it makes this sum smaller, and that is hard to
# know before. The **task scheduler** estimates it from the progress of each task so far. It gives each a round, and then the
# next round always to the task with the largest expected gain.
#
# As in the last lesson a formula plays the machine (`falling`). The product gets faster with every trial, first quickly and
# then slowly; the softmax is as fast as it will ever be.

# %%
functions = {
    "product": WeightedFunction(workloads.make("gmm", (61, 67, 109)).func, weight=3),
    "softmax": WeightedFunction(workloads.make("softmax", (61, 109)).func),
}


found = tir.tune_tasks(list(functions.values()), AVX2, trials=96, measurer=falling, policy="random", model="none")
rounds = [r.task for r in found.rounds]
print(rounds)
print(f"3 · t₁ + t₂ = {found.objective * 1e6:.0f} µs")

# %% [markdown]
# The product gets most of the rounds, once it is clear that the softmax does not move.

# %%
counts = [np.cumsum([task == n for task in rounds]) for n in range(len(functions))]
assert rounds.count(0) > rounds.count(1) > 0
for name, count in zip(functions, counts, strict=True):
    plt.step(range(1, len(rounds) + 1), count, where="post", label=name)
plt.xlabel("round")
plt.ylabel("rounds of each task")
plt.legend()
keep("13_networks")

# %% [markdown]
# On a real network this is one command: `python -m tir.tune model.onnx --seconds 600 --records tune.db`.
#
# ## A model of torch
#
# Most networks are written in torch. `torch.compile(model, backend="tir")` runs one with kernels of this compiler, and
# `tir.from_torch` makes a graph like the one above of what `torch.export` gives. torch does not come along with this package:
# where it is missing, the cell says so, and the course goes on.

# %% tags=["machine"]
try:
    import torch
except ModuleNotFoundError:
    print("torch is not installed here: pip install 'tir-compiler[torch]'")
else:
    classifier = torch.nn.Sequential(torch.nn.Linear(40, 24), torch.nn.ReLU(), torch.nn.Linear(24, 10), torch.nn.Softmax(dim=1))
    exported = torch.export.export(classifier.eval(), (torch.from_numpy(x),))
    print(tir.from_torch(exported))
    (probabilities,) = tir.compile(tir.from_torch(exported), "llvm -num-cores 1")(x)
    torch.testing.assert_close(torch.from_numpy(probabilities), classifier(torch.from_numpy(x)).detach())
    compiled = torch.compile(classifier, backend=tir.torch_backend)  # or backend="tir", where the package is installed
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.from_numpy(x)), classifier(torch.from_numpy(x)))

# %% [markdown]
# [Models of torch](../torch.md) has the rest. The largest networks today write text: [generation](../generation.md) follows a
# language model from its file to tokens, with caches that are changed in place, and `python -m examples.generate model.gguf
# --prompt "Once upon a time"` is a generator of less than 250 lines to read and change.
#
# ## Exercise
#
# The objective may be any function of the times. Write one that only asks that no call takes longer than 0.3 ms: the sum of
# what each function is above it. Which task gets the rounds now, and why? [The solution](solutions/13_networks.py)
