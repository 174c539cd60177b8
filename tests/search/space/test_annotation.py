"""The space `ansor`: how many sketches the paper's rules make of known computations, and each sketch's script.

The counts are those of TVM's tests for a CPU with four threads (tests/python/auto_scheduler/test_auto_scheduler_sketch_generation.py).
The scripts are in the folder `sketches`, where `...` stands for lines of an earlier one. `python -m tests.search.space.test_annotation`
writes them anew, to be read before they are kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codegen.target import Target
from schedule import replay
from search.population.sample import sample
from search.space.rules.rfactor import ansor_needs_rfactor
from search.space.rules.tiling import needs_tiling
from search.space.show import sketch_text
from tests import programs
from tests.elision import completed, elided
from tests.schedule.harness import same_numbers, well_formed
from tests.search.once import generate
from tests.sweeps import one_in
from tir import te, workloads
from tir.traverse import blocks

FOUR = Target("llvm", num_cores=4, mcpu="x86-64-v4")
FOLDER = Path(__file__).parent / "sketches"

CASES = {
    "matmul": (lambda: programs.matmul(512, 512, 512), 3),
    "small_matmul": (lambda: programs.matmul(8, 512, 8), 5),
    "chained_matmuls": (lambda: programs.chained_matmuls(512, 512, 512, 512), 9),
    "conv_norm_relu": (lambda: programs.conv_norm_relu(1, 56, 56, 512, 512, 3, 1, 1), 3),
    "max_pool": (lambda: programs.max_pool(1, 56, 56, 512, 1), 1),
    "row_minimum": (lambda: programs.row_minimum(10, 1024), 3),
    "softmax": (lambda: workloads.make("softmax", (1, 1024)).func, 9),
    "winograd": (lambda: programs.winograd(1, 28, 128, 128), 3),
    "total": (lambda: programs.total(128), 3),
}


def scripts(name: str) -> list[str]:
    make, _ = CASES[name]
    return [sketch_text(s) for s in generate(make(), FOUR, space="ansor")]


def written(texts: list[str]) -> str:
    """The texts of sketches, each with `...` for what it has in common with an earlier one: the one that leaves the fewest lines."""
    kept = texts[:1]
    bodies = [text.partition("\n")[2] for text in texts]
    for n, text in enumerate(texts[1:], 1):
        forms = [f"# sketch {n}, as sketch {m}\n{elided(bodies[n], bodies[m])}\n" for m in range(n)]
        kept.append(min((text, *forms), key=lambda form: form.count("\n")))
    return "\n".join(kept)


def read(text: str) -> list[str]:
    """The texts of sketches that were `written`."""
    bodies: list[str] = []
    for kept in text.removesuffix("\n").split("\n\n"):
        title, _, body = kept.partition("\n")
        _, _, earlier = title.partition(", as sketch ")
        bodies.append(completed(body, bodies[int(earlier)]) if earlier else body)
    return [f"# sketch {n}\n{body}\n" for n, body in enumerate(bodies)]


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_sketches_is_known(name):
    make, count = CASES[name]
    assert len(generate(make(), FOUR, space="ansor")) == count


@pytest.mark.parametrize("name", CASES)
def test_the_scripts_of_the_sketches(name):
    assert scripts(name) == read((FOLDER / f"{name}.txt").read_text())


SMALL = {
    "matmul": lambda: programs.matmul(7, 13, 109),
    "few results": lambda: programs.matmul(3, 109, 5),
    "chained matmuls": programs.chained_matmuls,
    "convolution": programs.conv_norm_relu,
    "max pool": programs.max_pool,
    "row minimum": programs.row_minimum,
    "winograd": lambda: programs.winograd(1, 4, 3, 5),
    "total": programs.total,
}


@one_in(2)
@pytest.mark.parametrize("space", ["ansor", "limited"])
@pytest.mark.parametrize("name", SMALL)
def test_random_candidates_compute_the_same(name, space):
    func = SMALL[name]()
    rng = np.random.default_rng(0)
    sketches = generate(func, FOUR, space=space)
    for n in rng.choice(len(sketches), size=min(3, len(sketches)), replace=False):
        (row,) = sample(sketches[n], FOUR, 1, rng).tolist()
        scheduled = replay(func, sketches[n].trace(row))
        well_formed(scheduled.func)
        same_numbers(func, scheduled.func, seeds=(0,))


def test_tiles_divide_and_are_bounded():
    for space, limit, levels in (("ansor", 64, 3), ("limited", 16, 1)):
        for sketch in generate(programs.matmul(96, 60, 100), FOUR, space=space):
            assert {(t.perfect, t.limit) for t in sketch.tiles} == {(True, limit)}
            assert {len(t.columns) for t in sketch.tiles if not t.reduce} == {levels}
            rows = sample(sketch, FOUR, 200, np.random.default_rng(0))
            for t in sketch.tiles:
                assert (t.extent % np.prod(rows[:, t.columns], axis=1) == 0).all()
                assert rows[:, t.columns[-1]].max() <= limit


# --- what decides --------------------------------------------------------------------------------------------------------


def wanting(test, func) -> set[str]:
    return {b.name for b in blocks(func) if test(b)}


def test_what_needs_tiling():
    assert wanting(needs_tiling, programs.matmul(7, 13, 109)) == {"C"}
    assert wanting(needs_tiling, programs.conv_norm_relu()) == {"conv"}
    assert wanting(needs_tiling, workloads.make("depthwise", (1, 7, 13, 5, 3, 3, 1, 1)).func) == {"conv"}  # the weight lacks h, w
    assert wanting(needs_tiling, workloads.make("softmax", (7, 109)).func) == set()
    assert wanting(needs_tiling, programs.max_pool()) == set()
    assert wanting(needs_tiling, programs.row_minimum()) == set()
    # The output reads the mean's factor, the weight and the bias, each of which lacks an axis; it reduces nothing.
    assert wanting(needs_tiling, workloads.make("layernorm", (13, 70)).func) == {"Y"}
    assert wanting(needs_tiling, programs.winograd()) == {"bgemm"}  # the transforms say that they walk constants
    assert wanting(needs_tiling, programs.matmul(1, 13, 1)) == set()  # axes of one iteration do not count


def test_what_needs_rfactor():
    def factored(func, threads=4):
        return wanting(lambda b: b.is_reduction and ansor_needs_rfactor(b, threads), func)

    assert factored(programs.matmul(8, 512, 8)) == {"C"}
    assert factored(programs.matmul(8, 63, 8)) == set()  # fewer terms than results
    assert factored(programs.matmul(8, 512, 9)) == set()  # 72 results, more than 16 a thread
    assert factored(programs.row_minimum(7, 5)) == {"Y"}
    assert factored(programs.row_minimum(7, 4)) == set()  # no more terms than threads
    assert factored(programs.row_minimum(7, 2), threads=1) == {"Y"}


def test_stages_without_reads_and_cheap_intrinsics_are_inlined():
    X = te.placeholder((7, 13), name="X")
    root = te.compute((7, 13), lambda i, j: te.sqrt(X[i, j]), name="root")
    func = te.create_prim_func([X, te.compute((7, 13), lambda i, j: root[i, j] + 1.0, name="Y")])
    assert [s.rules for s in generate(func, FOUR, space="ansor")] == [("Y: skip", "root: inline")]
    rules = generate(programs.winograd(), FOUR, space="ansor", max_sketches=1)[0].rules
    assert {"A: inline", "B: inline", "G: inline", "data_pack: unroll constants"} <= set(rules)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        (FOLDER / f"{case}.txt").write_text(written(scripts(case)))
