# %% [markdown]
# # 7. How does the compiler know that a step is right?
#
# A schedule that computes something else is worth nothing, however fast. So each primitive first proves that the result stays
# the same. What it cannot prove, it refuses. This lesson breaks the rules, and looks at the proofs.

# %%
from itertools import product

import matplotlib.pyplot as plt
from course import keep

import tir
from explorer.simulate import events
from tir.script import tir as T


def verdict(func, step, *loops):
    """What a schedule says to a step: nothing, or why not."""
    try:
        getattr(tir.Schedule(func), step)(*loops)
    except tir.ScheduleError as error:
        return str(error)
    return ""


# %% [markdown]
# ## A program that depends on its order
#
# In a product of matrices, blocks and their axes tell what may be exchanged (lesson 3), and most questions end there. Here is a
# program that has no blocks. Each element is made of one that an earlier iteration has made.


# %%
@T.prim_func
def wavefront(A: T.Buffer((7, 13))):
    for i, j in T.grid(6, 12):
        A[i + 1, j] = A[i, j + 1] + 1.0


refused = verdict(wavefront, "reorder", "j", "i")
print(refused)
assert "cannot prove that no dependence through `A` runs against the new order" in refused

# %% [markdown]
# May we trust that refusal? We write the exchanged program by hand, and run both on the same numbers.


# %%
@T.prim_func
def exchanged(A: T.Buffer((7, 13))):
    for j, i in T.grid(12, 6):
        A[i + 1, j] = A[i, j + 1] + 1.0


difference = tir.equivalent(wavefront, exchanged)
print(difference)
assert not difference

# %% [markdown]
# ## Dependences
#
# Two iterations *depend* on each other if both touch the same element and at least one writes it. Iteration (i, j) writes A[i +
# 1, j]. The iteration that reads it is (i', j') with i' = i + 1 and j' + 1 = j. So each arrow, from the write to the read, goes
# one step on in i and one step back in j. We find them all by watching the program.


# %%
def dependences(func):
    """Pairs of iterations, the earlier one first, that touch the same element, which one of them writes."""
    touched, pairs = {}, set()
    for event in events(func)[0]:
        now = tuple(value for _, value in event.loops)
        for array, place, writes in event.accesses:
            earlier = touched.setdefault((array, place), [])
            pairs |= {(then, now) for then, wrote in earlier if (writes or wrote) and then != now}
            earlier.append((now, writes))
    return pairs


found = dependences(wavefront)
steps = {(sink[0] - source[0], sink[1] - source[1]) for source, sink in found}
print(f"{len(found)} dependences, each by {steps}")
assert steps == {(1, -1)} and len(found) == 5 * 11

plt.figure(figsize=(8, 3.6))
plt.plot(*zip(*((j, i) for i, j in product(range(6), range(12))), strict=True), "o", color="#4393c3")
for (i, j), (i_2, j_2) in found:
    plt.annotate("", (j_2, i_2), (j, i), arrowprops={"arrowstyle": "->", "color": "#b2182b", "shrinkA": 4, "shrinkB": 4})
plt.gca().invert_yaxis()
plt.xlabel("j")
plt.ylabel("i")
keep("07_legality")

# %% [markdown]
# The compiler writes such an arrow as a *direction vector*, a sign for each loop: `<` where the iteration that comes first has
# the smaller value, `>` where it has the larger, `=` where they are equal. Here it is (<, >). From it follow the answers:
#
# - **reorder(j, i)**: the order of two iterations is decided by the first loop in which they differ. In the exchanged order
#   that is `j`, and the arrow points backwards: the read would come before the write. Refused.
# - **parallel(i)**: all iterations of `i` run at once, and the arrows lead from one to another. Refused.
# - **parallel(j)**: within one `i` there is no arrow at all. Legal.
#
# We check it by brute force: a new order is right if each arrow still leads from earlier to later.


# %%
def brute_force(func, step):
    ways = {
        "reorder": lambda source, sink: source[::-1] < sink[::-1],  # compares j first
        "parallel i": lambda source, sink: source[0] == sink[0],
        "parallel j": lambda source, sink: source[0] < sink[0],  # i is outside, and keeps them apart
    }
    return all(ways[step](source, sink) for source, sink in dependences(func))


REQUESTS = {"reorder": ("reorder", "j", "i"), "parallel i": ("parallel", "i"), "parallel j": ("parallel", "j")}
for step, request in REQUESTS.items():
    answer = verdict(wavefront, *request)
    print(f"{step:<12}{'refused' if answer else 'legal'}")
    assert brute_force(wavefront, step) == (not answer)

# %% [markdown]
# ## Witnesses
#
# Where the compiler finds two concrete iterations that collide, it shows them. Such a *witness* can be checked by hand.

# %%
print(verdict(wavefront, "parallel", "i"))
assert "witness: i = 0 writes A[1, 1], i = 1 reads it" in verdict(wavefront, "parallel", "i")

# %% [markdown]
# The same holds for programs that are wrong from the start. The last iteration of this one reads past the end:


# %%
@T.prim_func
def shift(X: T.Buffer((13,)), Y: T.Buffer((13,))):
    for i in range(13):
        Y[i] = X[i + 1]


print(tir.verify(shift))
assert "is 13, outside 0 .. 12, where i=12" in str(tir.verify(shift))

# %% [markdown]
# ## Proofs without running
#
# The compiler does not watch the program. Loops may run a billion times, or their lengths may not be known. It calculates with
# symbols: it assumes i < i' and asks whether i + 1 = i' and j = j' + 1 have a solution within the loops. If it proves that
# there is none, the step is legal.
#
# So there is a third answer, *I do not know*, and it counts as no. This program shows it. All its iterations touch different
# elements, and any order is right. But the proof takes two equations at once, which the compiler does not try.


# %%
@T.prim_func
def diagonal(A: T.Buffer((13, 13))):
    for i, j in T.grid(7, 7):
        A[i + j, i - j + 6] = A[i + j, i - j + 6] + 1.0


refused = verdict(diagonal, "parallel", "i")
print(refused.splitlines()[0])
assert refused and brute_force(diagonal, "parallel i") and not dependences(diagonal)

# %% [markdown]
# A refusal too many costs some speed. An acceptance too many would cost the result. [How legality is decided](../legality.md)
# has the questions in order, and how they are answered.
#
# ## Exercise
#
# Here are three more statements for the body of the two loops. For each, draw the arrows, and say which of the three requests
# is legal. Then ask the compiler. [The solution](solutions/07_legality.py)
#
# 1. `A[i + 1, j + 1] = A[i, j] + 1.0`
# 2. `A[i, j + 1] = A[i, j] + 1.0`
# 3. `A[i + 1, j] = A[i, j] + A[i, j + 1]`
