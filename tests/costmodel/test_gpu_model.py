"""The formula for GPUs: what it prefers, and where it sees a limit."""

from __future__ import annotations

import numpy as np

from codegen.target import Target
from costmodel import GPUModel
from search.backends import search_backend
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.space import generate
from tests.search.gpu.candidates import product
from tir import workloads

TARGET = Target("cuda")
MODEL = GPUModel(TARGET.machine)


def whole(func):
    """The sketch of a product whose sum is not split."""
    (sketch,) = [s for s in generate(func, TARGET) if not s.made]
    return sketch


def scores(shape, *rows):
    """Of rows that give (vthread, threads, elements, elements) of i and j, and the two steps of k."""
    sketch = whole(workloads.make("gmm", shape).func)
    full = [[1, *i, *j, *k, *sketch.stand_ins()[11:]] for i, j, k in rows]
    return MODEL.score(sketch_programs(sketch), np.array(full, dtype=np.int64))


def test_a_large_product_wants_register_tiles_and_whole_warps():
    good, single, few, thin = scores(
        (4096, 4096, 4096),
        ((2, 16, 1, 4), (2, 16, 1, 4), (2, 4)),  # 256 threads of 8 by 8
        ((1, 16, 1, 1), (1, 16, 1, 1), (2, 4)),  # an element a thread
        ((1, 2, 1, 4), (1, 2, 1, 4), (2, 4)),  # 4 threads
        ((2, 16, 1, 4), (2, 16, 1, 4), (1, 1)),  # one step of the sum at a time
    )
    assert good > single and good > few and good > thin


def test_a_small_product_wants_many_blocks():
    large, small = scores((256, 4096, 256), ((2, 16, 1, 4), (2, 16, 1, 4), (2, 4)), ((1, 16, 1, 1), (1, 16, 1, 1), (2, 8)))
    assert small > large


def cores(shape, factor, *rows):
    """The clocks of rows of a product on tensor cores that give (group, warps, fragments) of i, (warps, fragments) of j, the steps
    of k, the elements that a thread copies at once, and the tiles that take turns."""
    sketch = whole(product(factor, *shape))
    columns = {c.name.removeprefix("C "): c.column for c in sketch.choices}
    full = np.array([sketch.stand_ins() for _ in rows])
    for row, (*tiles, width, stages) in zip(full, rows, strict=True):
        row[:6] = tiles
        row[[columns["A_shared vector"], columns["B_shared vector"]]], row[columns["stages"]] = width, stages
    return np.exp(-MODEL.score(sketch_programs(sketch), full))


def test_tensor_cores_want_large_warps_wide_copies_ahead_and_groups_of_rows():
    best = (8, 2, 4, 4, 4, 2, 8, 4)  # 128 by 256, 8 warps of 64 by 64
    large = (8192, 8192, 8192)
    good, single, narrow, late, rows = cores(
        large, "float16", best, (8, 2, 1, 4, 1, 2, 8, 4), (8, 2, 4, 4, 4, 2, 1, 4), (8, 2, 4, 4, 4, 2, 8, 1), (1, *best[1:])
    )
    assert good < min(single, narrow, late, rows) and single > 1.5 * good
    (rounded,) = cores(large, "tf32", (8, 2, 4, 4, 4, 4, 4, 3))
    lanes = np.exp(-scores(large, ((2, 16, 1, 4), (2, 16, 1, 4), (2, 8))))[0]
    assert good < rounded < lanes / 2 and good > 2 * 8192**3 / (132 * 4096)  # no faster than the hardware


def test_a_small_product_wants_small_tiles_of_tensor_cores():
    large, small = cores((256, 256, 1024), "float16", (1, 2, 4, 4, 4, 2, 8, 4), (1, 2, 1, 2, 1, 4, 8, 4))
    assert small < large


def test_a_long_sum_with_few_results_is_better_split():
    split, *_, whole = generate(product("float16", 128, 128, 8192), TARGET)
    rng = np.random.default_rng(0)
    best = [MODEL.score(sketch_programs(s), sample(s, TARGET, 200, rng)).max() for s in (split, whole)]
    assert split.made and not whole.made and best[0] > best[1] + np.log(2)


def test_it_tells_rows_and_not_sketches_without_tiles_apart():
    for name in ("softmax", "norm"):
        sketch = generate(workloads.make(name).func, TARGET, max_sketches=1)[0]
        found = MODEL.score(sketch_programs(sketch), sample(sketch, TARGET, 5, np.random.default_rng(0)))
        assert np.isfinite(found).all() and len(set(found)) == 1 and found[0] < -np.log(1000)


def test_it_is_the_formula_of_gpus():
    priors = [search_backend(t).prior(t) for t in (TARGET, Target("llvm"))]
    assert [isinstance(p, GPUModel) for p in priors] == [True, False]
