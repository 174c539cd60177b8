# %% [markdown]
# # 14. How do you put your own idea into the search?
#
# A search has three parts that you can replace without touching the rest. A **rule** says which structures there are (lesson
# 9). A **model** says which rows are promising (lesson 11). A **policy** says which candidates to measure next (lesson 12).
# This lesson writes one of each. What they propose is checked like everything else: a bad idea makes slow candidates, not
# wrong ones.

# %%
import matplotlib.pyplot as plt
import numpy as np
from course import keep
from pretended import Pretended

import tir
from schedule.open_schedule import Stage
from schedule.open_trace import Role
from search import Candidate, generate
from search.population.mutate import neighbours
from search.population.sample import sample
from search.space.rules import DEFAULT, rule
from tir import workloads

func = workloads.make("gmm", (610, 109, 770)).func
target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v4 -num-cores 2")

# %% [markdown]
# ## A rule
#
# The idea: a few rows at a time, each a vector along the columns, and the reduction around them. `state` is a schedule whose
# numbers may be open: `choose` leaves one open with options, `sizes` leaves tile sizes open, `branch` leaves steps open.


# %%
@rule("row tiles", when=lambda state, block: block not in state.scheduled and len(state.axes(block)) == 3)
def row_tiles(state, block):
    (_, i), (columns, j), (_, k) = state.axes(block)
    tile, row = state.split(i, [None, state.choose("rows of a tile", (1, 2, 3, 4, 5, 6, 8, 10, 12), block=block)])
    j_0, j_1 = state.split(j, [None, *state.sizes(block, columns.var.name, vector=True)])
    state.reorder(tile, j_0, k, row, j_1)
    state.vectorize(j_1)
    ways = {"serial": lambda s: None, "parallel": lambda s: s.parallel(tile)}
    state.branch("threads", ways, block=block, role=Role.PARALLEL)
    state.scheduled[block] = Stage.DONE  # no other rule shall take it again


sketch = generate(func, target, rules=(row_tiles, *DEFAULT))[0]
print(sketch, [c.name for c in sketch.choices])
assert sketch.rules[0] == "C: row tiles"

# %% [markdown]
# ## A model
#
# The idea: a register tile should be large, but its sums must fit into registers. `score` gets a matrix and returns a number a
# row; higher is better. It may learn in `update`; this one has nothing to learn.

# %%
REGISTERS = 24  # of 32: some hold elements of A and B
rows_column = next(c.column for c in sketch.choices if c.name == "rows of a tile")
threads_column = next(c.column for c in sketch.choices if c.name == "threads")
width_column = sketch.tiles[0].columns[-1]


class FullRegisters:
    def score(self, sketch, rows):
        vectors = rows[:, rows_column] * -(-rows[:, width_column] // 16)
        return np.where(vectors <= REGISTERS, vectors, 0.0)

    def update(self, sketch, rows, seconds):
        pass


rng = np.random.default_rng(0)
rows = sample(sketch, target, 200, rng)
best = rows[np.argmax(FullRegisters().score(sketch, rows))]
print(tir.replay(func, sketch.trace(best)).func.outline())
assert FullRegisters().score(sketch, best[None])[0] <= REGISTERS

# %% [markdown]
# ## A policy
#
# The idea: go uphill. Measure the neighbours of the best row, those that differ by one step in one number, until none is
# faster. A policy has two methods: `propose` returns candidates, `update` gets their measurements.


# %%
class Climb:
    def __init__(self, task):
        self.best, self.seconds, self.known = None, float("inf"), set()

    def propose(self, n, rng):
        rows = sample(sketch, target, n, rng) if self.best is None else neighbours(sketch, target, self.best)
        new = [row for row in dict.fromkeys(map(tuple, rows.tolist())) if row not in self.known][:n]
        self.known.update(new)
        return [Candidate(sketch.name, row, sketch.trace(row).as_json()) for row in new]

    def update(self, measurements):
        for m in measurements:
            if m.candidate.sketch == sketch.name and m.seconds < self.seconds:
                self.best, self.seconds = np.array(m.candidate.row), m.seconds


# %% [markdown]
# ## All together
#
# The same loop runs any policy: it measures, keeps records, and checks results. To be quick and the same everywhere, a formula
# plays the machine: what is computed in vain costs, and larger register tiles are faster until they spill. Without `measurer`
# the machine plays itself.


# %% tags=["machine"]
def seconds(candidate):
    row = np.array(candidate.row)
    rows, width, threads = row[rows_column], row[width_column], 2 if row[threads_column] else 1
    work = -(-610 // rows) * rows * -(-770 // width) * width  # with what is computed beyond the edge
    return 1e-8 * work / (1.0 + FullRegisters().score(sketch, row[None])[0]) / threads


def tried(policy, trials=40):
    result = tir.autotune(func, target, trials=trials, policy=policy, first=(), measurer=lambda task: Pretended(task, seconds))
    return [trial["best"] for trial in result.history], result


class AtRandom(Climb):
    def update(self, measurements):
        pass  # so that each batch is drawn anew


climbed, result = tried(Climb)
drawn, _ = tried(AtRandom)
print(f"uphill {climbed[-1] * 1e6:.0f} µs, at random {drawn[-1] * 1e6:.0f} µs")
print(result.schedule.trace)
assert drawn[-1] < climbed[-1] < climbed[0]

plt.step(range(1, len(climbed) + 1), np.array(climbed) * 1e6, where="post", label="uphill", color="#1a9850")
plt.step(range(1, len(drawn) + 1), np.array(drawn) * 1e6, where="post", label="at random", color="#4393c3")
plt.xlabel("trial")
plt.ylabel("µs of the best (pretended)")
plt.legend()
keep("14_own_parts")

# %% [markdown]
# Uphill is quickly better than where it began, and yet random rows found a better one: it stood on a hill that was not the
# highest. Ideas are cheap to try and easy to be wrong about; that is what measurements are for.
#
# Each of these parts fits into a file that the command line takes: `python -m tir.tune gmm --rules my_rules.py`, and
# `--model`, `--policy`. [Ten experiments](../experiments.md) has more.
#
# ## Exercise
#
# `Climb` gets stuck on a hill: where no neighbour is faster, it has nothing to propose, and the search ends early. Make it
# start again at a random row then. [The solution](solutions/14_own_parts.py)
