"""Random candidates of every workload compute what they should: built, run between canaries, and held against float64 numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = 4  # candidates for each shape and number of threads

SHAPES = {
    "gmm": [(7, 13, 109), (33, 65, 70)],
    "mlp": [(7, 13, 109, 5)],
    "conv2d": [(1, 7, 13, 3, 5, 3, 3, 1, 1), (2, 7, 7, 5, 17, 3, 3, 2, 0)],
    "depthwise": [(1, 7, 13, 5, 3, 3, 1, 1)],
    "softmax": [(7, 109)],
    "layernorm": [(13, 70)],
}

# In a process of its own, for wrong code may bring it down. Each candidate's name is printed before it is tried.
CHECK = """
import sys
from pathlib import Path
import numpy as np
import codegen
from codegen.target import Target
from schedule import replay
from search.oracle import Arrays, Workload, make_reference
from search.sample import sample
from search.space import generate

directory, name, shape, threads, count, seed = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), *map(int, sys.argv[4:])
workload = Workload(name, tuple(map(int, shape)))
func, target = workload.instance().func, Target("llvm", num_cores=threads)
make_reference(func, workload, seed, 0, directory)
arrays = Arrays(func, directory)
sketches, rng = generate(func, target), np.random.default_rng(seed)
for _ in range(count):
    sketch = sketches[rng.integers(len(sketches))]
    (row,) = sample(sketch, target, 1, rng).tolist()
    print(sketch.name, row, end=": ", flush=True)
    kernel = codegen.build(replay(func, sketch.trace(row)).func, target)
    arrays.reset()
    kernel(*arrays.working)
    verdict = arrays.verdict()
    print(verdict["outcome"], verdict.get("message", ""), flush=True)
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SHAPES.items() for shape in shapes])
def test_random_candidates_compute_the_reference(name, shape, threads, tmp_path):
    sizes = ",".join(map(str, shape))
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", CHECK, str(tmp_path), name, sizes, str(threads), str(COUNT), "0"],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = found.stdout.splitlines()
    assert found.returncode == 0, f"{found.stdout}\n{found.stderr[-2000:]}"
    assert len(lines) == COUNT and [line for line in lines if not line.endswith(": ok ")] == []
