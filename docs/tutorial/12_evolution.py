# %% [markdown]
# # 12. How does a search get better?
#
# Random rows are mostly slow. But rows that are like a fast row are often fast. **Evolution** uses that: it keeps the best
# rows of a population, changes them a little (**mutation**), mixes two of them (**crossover**), and does so again and again.
#
# To see it without noise, this lesson measures nothing. The cost model's formula plays the machine: its score is the truth.

# %%
import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from costmodel import TileModel
from search import generate
from search.population.mutate import crossover, move, mutations
from search.population.programs import sketch_programs
from search.population.sample import sample
from tir import workloads

target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu znver4 -num-cores 2 -l1 32768 -l2 1048576 -l3 33554432")
sketch = generate(workloads.make("gmm", (384, 384, 384)).func, target, space="ansor")[0]
model, programs = TileModel(target.machine), sketch_programs(sketch)


def speed(rows):
    """The truth of this lesson: higher is faster."""
    return model.score(programs, rows)


# %% [markdown]
# ## Mutation
#
# An operator maps a matrix of rows to a matrix of rows. `move` takes a factor from one level of an axis to another, as 8·4
# becomes 4·8. The product stays, so the row stays legal.

# %%
rng = np.random.default_rng(0)
rows = sample(sketch, target, 5, rng)
moved = move(sketch, target, rows, rng)
for before, after in zip(rows, moved, strict=True):
    print(before, "->", after)
assert rows.shape == moved.shape and (rows != moved).any()

# %% [markdown]
# There are several such operators. A sketch takes those that can change it.

# %%
table = {name: m.operate for name, m in mutations().items() if m.suits(sketch)}
print(list(table))
assert {"move", "redraw", "parallel", "pragma"} <= set(table)

# %% [markdown]
# ## Crossover
#
# Two parents, one child: it takes some axes or blocks from one, and the rest from the other. All sizes of an axis go together,
# since only together do they divide it.

# %%
others = sample(sketch, target, 5, rng)
print(rows[0], "and", others[0], "->", crossover(sketch, target, rows, others, rng)[0])

# %% [markdown]
# ## Generations
#
# Here is the whole loop. The best tenth survives; parents are drawn by rank, the better the likelier; of the children 85 % are
# mutants of one parent, and 15 % have two. Beside it, random search looks at as many rows.

# %% tags=["machine"]
SIZE, GENERATIONS = 128, 12


def evolve(seed, credit=None, crossed=0.15):
    """The best speed after each generation. `credit` counts, for each operator, children and those better than their parent."""
    rng = np.random.default_rng(seed)
    rows, best = sample(sketch, target, SIZE, rng), []
    names = list(table)
    for _ in range(GENERATIONS):
        rows = rows[np.argsort(-speed(rows), kind="stable")]
        best.append(speed(rows[:1])[0])
        weights = 1.0 / np.arange(1, SIZE + 1)
        parents = rows[rng.choice(SIZE, (2, SIZE), p=weights / weights.sum())]
        operator = rng.integers(len(names), size=SIZE)
        children = parents[0].copy()
        for n, name in enumerate(names):
            own = operator == n
            children[own] = table[name](sketch, target, parents[0][own], rng)
            if credit is not None:
                tried, better = credit.get(name, (0, 0))
                won = speed(children[own]) > speed(parents[0][own])
                credit[name] = tried + int(own.sum()), better + int(won.sum())
        two = rng.random(SIZE) < crossed
        children[two] = crossover(sketch, target, parents[0][two], parents[1][two], rng)
        children[: SIZE // 10] = rows[: SIZE // 10]
        rows = children
    return np.array(best)


def at_random(seed):
    rng = np.random.default_rng(seed)
    found = [speed(sample(sketch, target, SIZE, rng)).max() for _ in range(GENERATIONS)]
    return np.maximum.accumulate(found)


credit: dict = {}
bred, drawn = evolve(0, credit), at_random(0)
factor = np.exp(bred[-1] - drawn[-1])
print(f"after {SIZE * GENERATIONS} rows the evolution's best is {factor:.2f} times as fast as that of random search")
assert (np.diff(bred) >= 0).all() and bred[-1] > drawn[-1]

plt.plot(np.exp(bred - bred[-1]), label="evolution", color="#1a9850")
plt.plot(np.exp(drawn - bred[-1]), label="random", color="#4393c3")
plt.xlabel("generation")
plt.ylabel("speed of the best")
plt.legend()
keep("12_evolution")

# %% [markdown]
# A curve never falls, as the best survive. Evolution climbs past what luck finds.
#
# ## Credit
#
# Which operator made children that were better than their parents? A search can count, and apply those more often that pay.
# This is called **credit assignment**. In the study of this project's search it gained nothing, so all stay equally likely.

# %% tags=["machine"]
for name, (tried, better) in sorted(credit.items(), key=lambda item: -item[1][1] / item[1][0]):
    print(f"{name:<20}{better:>4} of {tried:>4} children better than their parent")
assert sum(tried for tried, _ in credit.values()) == SIZE * GENERATIONS

# %% [markdown]
# In a real search the model plays this part between two batches of measurements: evolution runs on its scores, and the best
# rows are measured, together with some random ones, in case the model is wrong; then the model learns from them. See [the
# search](../searching.md).
#
# ## Exercise
#
# Is crossover worth it? Compare `crossed=0.15` with `crossed=0.0`, and mind that one seed proves nothing: take five, and
# compare the medians of the last generation. [The solution](solutions/12_evolution.py)
