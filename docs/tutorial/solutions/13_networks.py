"""What is above 0.3 ms, added up. The softmax is below it from the first trial on, so no round for it can gain anything.

The product gets all rounds but the first of the other, until it is below the limit, too; then nothing is left to be gained.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from pretended import falling

import tir
from search import WeightedFunction
from tir import workloads

LIMIT = 3e-4


def above(seconds):
    return sum(max(t - LIMIT, 0.0) for t in seconds) + 1e-9


layers = [
    WeightedFunction(workloads.make("gmm", (61, 67, 109)).func),
    WeightedFunction(workloads.make("softmax", (61, 109)).func),
]
found = tir.tune_tasks(layers, "llvm -num-cores 1", trials=32, objective=above, measurer=falling, policy="random", model="none")
rounds = [r.task for r in found.rounds]
print(rounds, found.objective)
assert rounds[:3] == [0, 1, 0] and found.objective == 1e-9
