"""Seeds: the numbers that the formulas of templates give; where they are the default schedule, and that the search begins there."""

from __future__ import annotations

import numpy as np
import pytest

from codegen import lower
from codegen.target import Target
from schedule import replay
from search.policy.default_schedule import default_schedule
from search.policy.named import make_policy, seeds
from search.population.sample import legalize
from search.space import generate
from search.space.sketch import Sketch
from search.task import Task
from tests.sweeps import quick
from tir import workloads
from tir.ir import For, Node, PrimFunc
from tir.traverse import rewrite

ONE = Target("llvm", num_cores=1, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)
SHORT = Target("llvm", num_cores=1, mcpu="x86-64-v3", l1=32768, l2=1 << 20, l3=1 << 25)
TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)
SHAPES = [
    ("gmm", (109, 107, 97)), ("gmm", (1021, 1100, 509)), ("gmm", (127, 64, 70, 3)), ("mlp", (70, 64, 77, 60)),
    ("conv2d", (1, 14, 13, 16, 48, 3, 3, 1, 1)), ("conv2d_nhwc", (1, 14, 14, 16, 33, 3, 1, 1)), ("conv_bn_relu", (1, 14, 14, 16, 32, 3, 2, 1)),
    ("depthwise_nhwc", (1, 15, 14, 32, 3, 1, 1)), ("conv2d_transpose", (1, 5, 5, 16, 32, 4, 2, 1)), ("softmax", (61, 109)),
    ("norm", (2, 97, 110)), ("attention_weights", None),
]  # fmt: skip


def bare(node: Node) -> Node | None:
    return node.with_(annotations=(), body=rewrite(node.body, bare)) if isinstance(node, For) else None


def program(func: PrimFunc, target: Target) -> PrimFunc:
    """The lowered program, without annotations of loops: those of a row may say what is so without them, too."""
    return rewrite(lower(func, target), bare)


def made(sketch: Sketch, row: np.ndarray) -> PrimFunc:
    return replay(sketch.func, sketch.trace(row.tolist())).func


@quick(lambda name, shape, target: target is SHORT or (SHAPES.index((name, shape)) % 2 == 0) == (target is ONE))
@pytest.mark.parametrize(("name", "shape", "target"), [
    *((name, shape, target) for name, shape in SHAPES for target in (ONE, TWO)),
    *((*SHAPES[n], SHORT) for n in (2, 4)),  # whose tiles have thirteen rows of one vector
], ids=lambda v: f"{v.mcpu}-{v.num_cores}" if isinstance(v, Target) else str(v))  # fmt: skip
def test_the_first_seed_is_the_default_schedule(name: str, shape: tuple[int, ...] | None, target: Target) -> None:
    func = workloads.make(name, shape).func
    (sketch, row), *_ = seeds(generate(func, target, max_sketches=1), target)
    assert row.tolist() == list(sketch.seed), "a seed is in canonical form"
    assert program(made(sketch, row), target) == program(default_schedule(func, target).func, target)


def test_a_search_begins_at_the_seeds() -> None:
    func = workloads.make("gmm", (109, 107, 97)).func
    task = Task.of(func, ONE)
    first = make_policy(task).propose(4, np.random.default_rng(0))
    wanted = [(sketch.name, tuple(row.tolist())) for sketch, row in seeds(generate(func, ONE), ONE)]
    assert [(c.sketch, c.row) for c in first][: len(wanted)] == wanted
    assert not seeds(generate(func, ONE, space="ansor"), ONE)


def test_seeds_are_rows_of_their_sketches() -> None:
    """Canonical form keeps what is legal: it may change a seed, but only once."""
    for sketch, row in seeds(generate(workloads.make("mlp", (70, 64, 77, 60)).func, TWO), TWO):
        assert (legalize(sketch, TWO, row[None])[0] == row).all()
        made(sketch, row)
