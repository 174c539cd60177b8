# %% [markdown]
# # 11. Which candidates are promising?
#
# The last lesson left millions of candidates, and measuring one takes a tenth of a second or more. So a search looks at
# thousands, and measures a few. Which few? It asks a **cost model**: a function that orders candidates by how fast they will
# be, without building one. It need not know the time. It must know who is faster.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from course import keep

import costmodel.dataset
import tir
from costmodel import NAMES, GBDTModel
from costmodel.dataset import Dataset
from costmodel.metrics import pair_accuracy

# %% [markdown]
# ## What is seen of a candidate
#
# A model does not see the program, but **features** of it: numbers that say how much is computed, how many bytes go into each
# cache, how long the vectors are, how often data is used again. There are 187 for each statement, after the Ansor paper. Most
# are logarithms, log2(x + 1), since twice as many bytes should mean the same step whether there are ten or a million.
#
# The project keeps a small sample of measured candidates, from a processor with two threads: features and seconds. We take one
# task of it, a matrix product with 234 candidates that ran.

# %%
data = Dataset.load(Path(costmodel.dataset.__file__).with_name("sample.npz"))
task = 9
programs = np.flatnonzero((data.task == task) & np.isfinite(data.seconds))
milliseconds = data.seconds[programs] * 1e3
print(f"{len(programs)} programs, {milliseconds.min():.2f} to {milliseconds.max():.1f} ms")
statement = data.matrix[data.program == programs[0]][-1]
for name in ("float_mad", "threads", "lanes", "l1_bytes", "accumulators"):
    print(f"{name:<14}{2 ** statement[NAMES.index(name)] - 1:>14.0f}")
assert len(programs) == 234 and len(NAMES) == 187

# %% [markdown]
# ## A formula
#
# The first model needs no measurements. It estimates the time of each statement from the features, as you would with pencil
# and paper: so many multiply-adds, so many at once; so many bytes into each cache, at so many bytes a second. The time of a
# program is the sum over its statements. How good is it? Take all pairs of candidates, and ask how often it says rightly which
# is faster. A coin gets half of them.

# %% tags=["machine"]
target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu znver4 -num-cores 2")


def scores(model, chosen):
    """What a model says of programs, higher is better: estimates of their statements, corrected by trees, and added up."""
    matrix, place = data.statements(chosen)
    logarithms = model.loss.start(matrix.T) + model.predict(matrix.T)
    return model.loss.scores(np.bincount(place, model.loss.parts(logarithms), len(chosen)))


estimate = GBDTModel(target.machine)  # without a tree
print(f"the formula orders {pair_accuracy(scores(estimate, programs), data.seconds[programs]):.0%} of the pairs rightly")
assert 0.6 < pair_accuracy(scores(estimate, programs), data.seconds[programs]) < 0.9

# %% [markdown]
# ## Trees
#
# The second model learns. A *decision tree* asks questions, such as "more than 30 accumulators?", and says a number at the
# end. *Boosted* trees are many small ones, each fitted to what those before it still get wrong. Here they begin with a rough
# estimate of the time, and correct its logarithm; the time of a program is the sum over its statements.
#
# A model must be judged by candidates that it has not seen. A third of them is kept back.

# %% tags=["machine"]
order = np.random.default_rng(0).permutation(len(programs))
held = programs[order[: len(programs) // 3]]
rest = programs[order[len(programs) // 3 :]]


def learned(chosen):
    """Trees that have seen these programs."""
    model = GBDTModel(target.machine, seed=0)
    matrix, place = data.statements(chosen)
    model.data = Dataset(matrix, place, np.zeros(len(chosen), int), data.seconds[chosen], ["product"])
    model.fit()
    return model


seen = (16, 64, len(rest))
accuracy = []
for n in seen:
    model = learned(rest[:n])
    accuracy.append(pair_accuracy(scores(model, held), data.seconds[held]))
    print(f"after {n:>3} measurements: {accuracy[-1]:.0%}")
by_formula = pair_accuracy(scores(estimate, held), data.seconds[held])
print(f"the formula on these: {by_formula:.0%}")
assert accuracy[-1] > by_formula and accuracy[-1] > 0.8

# %% [markdown]
# With few measurements the formula is as good or better, and it costs nothing; with a hundred the trees win. So a search asks
# both, and trusts each as far as it has ordered the last batches rightly.
#
# ## What it gets wrong
#
# Look at the picture. Left, the formula: candidates of the same score differ by several times, as it knows nothing of, say,
# how a loop is unrolled. Right, the trees: a band along the diagonal, wide at the fast end. There the candidates are alike,
# and what is left is the noise of the timings themselves. That is why a search still measures, and why the best of the model
# is never taken unmeasured.

# %%
figure, axes = plt.subplots(1, 2)
for ax, title, x in (
    (axes[0], "formula", scores(estimate, held)),
    (axes[1], f"trees, {len(rest)} programs seen", scores(model, held)),
):
    ax.scatter(x, data.seconds[held] * 1e3, s=10, color="#4393c3")
    ax.set(title=title, xlabel="score", yscale="log")
axes[0].set_ylabel("measured ms")
keep("11_cost_model")

# %% [markdown]
# ## Exercise
#
# The trees see 187 features. Which one alone orders the pairs best, higher or lower meaning faster? Take the last statement of
# each program, and try all. Can you guess the winner? [The solution](solutions/11_cost_model.py)
