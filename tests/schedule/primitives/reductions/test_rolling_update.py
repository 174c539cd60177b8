import numpy as np
import pytest

import tir
from docs.generate import weighted_means
from schedule import Trace, replay
from tests.arrays import copies
from tests.schedule.harness import Checked, well_formed
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc


def attention(rows: int, keys: int, dtype: str = "float32") -> PrimFunc:
    """softmax of scores, rounded to `dtype`, times values."""
    X, V = te.placeholder((rows, keys), name="X"), te.placeholder((keys, 3), dtype, name="V")
    k, r, j = (te.reduce_axis((0, keys), name=name) for name in "krj")
    top = te.compute((rows,), lambda i: te.max(X[i, k], axis=k), name="top")
    power = te.compute((rows, keys), lambda i, n: te.exp(X[i, n] - top[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, r], axis=r), name="total")
    weights = te.compute((rows, keys), lambda i, n: (power[i, n] / total[i]).astype(dtype), name="weights")

    def term(i, e):
        return weights[i, j].astype("float32") * V[j, e].astype("float32")

    return te.create_prim_func([X, V, te.compute((rows, 3), lambda i, e: te.sum(term(i, e), axis=j), name="Y")])


def tiled(func: PrimFunc, tile: int) -> Checked:
    """The stages of attention by tiles of rows and keys, and a rolling update of the loops over keys; partial results each."""
    s, steps = Checked(func), []
    for block in ("top", "power", "total", "weights", "Y"):
        loops = s.get_loops(block)
        outer, inner = s.split(loops[0], [None, 4])
        step, key = s.split(loops[-1], [None, tile])
        s.reorder(outer, step, inner, *loops[1:-1], key)
        steps.append(step)
        if block in ("top", "total"):
            s.rfactor(step, 1)
            steps.append(s.get_loops(block)[1])
    s.rolling_update(*steps)
    return s


def need_close(s: Checked, arrays: list[np.ndarray], roundings: float) -> None:
    """Both functions are the same but for `roundings` units of float32 of the sum of absolute terms, in every order of loops."""
    well_formed(s.func)
    old, magnitude = copies(arrays), copies(arrays)
    run(s.before, *old)
    magnitude[1] = abs(magnitude[1])
    run(s.before, *magnitude)
    for seed in (0, 1):
        new = copies(arrays)
        run(s.func, *new, seed=seed)
        np.testing.assert_array_equal(np.isnan(new[-1]), np.isnan(old[-1]))
        assert (abs(new[-1] - old[-1]) <= roundings * np.finfo(np.float32).eps * magnitude[-1])[~np.isnan(old[-1])].all(), new
    assert replay(s.before, Trace.from_json(s.trace.to_json())).script == s.script


def test_sums_are_corrected_as_the_maximum_grows():
    """Scores that rise, so that each step corrects, rows that begin with -inf, and one that has nothing else."""
    rng = np.random.default_rng(0)
    s = Checked(weighted_means())
    assert s.rolling_update("k", "n", "r", "j") == "k_m"
    scores = np.sort(rng.normal(0, 5, (7, 13)), axis=1).astype(np.float32)
    scores[3, :5], scores[4, 2:9], scores[5] = -np.inf, -np.inf, -np.inf
    arrays = [scores, rng.normal(size=13).astype(np.float32), np.empty(7, np.float32)]
    need_close(s, arrays, 4 * 13)
    kernel, got = tir.build(s.func, "llvm"), copies(arrays)
    expected = copies(arrays)
    run(s.func, *expected)
    kernel(*got)
    np.testing.assert_allclose(got[-1], expected[-1], rtol=13 * 4 * np.finfo(np.float32).eps)


@pytest.mark.parametrize(("rows", "keys", "tile"), [(7, 13, 5), (4, 12, 4), (1, 1, 3), (9, 5, 8)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tiles_of_rows_and_keys(rows: int, keys: int, tile: int, dtype: str):
    """Weights of halves are rounded before they are divided, and not behind."""
    rng = np.random.default_rng(1)
    s = tiled(attention(rows, keys, dtype), tile)
    assert "Y_quotient" in s.script and "weights[v_i, v_n] / " not in s.script
    half = 1 if dtype == "float32" else 2 * np.finfo(np.float16).eps / np.finfo(np.float32).eps
    arrays = [rng.normal(0, 4, (rows, keys)), rng.normal(size=(keys, 3)), np.empty((rows, 3))]
    given = [a.astype(t) for a, t in zip(arrays, ("float32", dtype, "float32"), strict=True)]
    need_close(s, given, 4 * keys * half)


def test_what_is_not_proportional_is_refused():
    X, k, r = te.placeholder((7, 13), name="X"), te.reduce_axis((0, 13), name="k"), te.reduce_axis((0, 13), name="r")
    top = te.compute((7,), lambda i: te.max(X[i, k], axis=k), name="top")
    power = te.compute((7, 13), lambda i, n: te.exp(X[i, n] - top[i]), name="power")
    s = Checked(te.create_prim_func([X, te.compute((7,), lambda i: te.sum(power[i, r] + 1.0, axis=r), name="C")]))
    s.refuses("""
        rolling_update('k', 'n', 'r'): `C` reads `power`, and is not proportional to exponentials of differences from `top`
           11 |         with T.block("top"):
              |         ^^^^^^^^^^^^^^^^^^^^ the maximum
              ...
           21 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: merge the loops of all blocks that read the exponentials; a sum is only divided by
    """)
    s.refuses("""
        rolling_update('n', 'r'): one maximum over the loops is needed, got 0
          hint: a loop must drive the reduction axis of m[...] = max(m[...], x)
    """)
    with pytest.raises(tir.ScheduleError, match="`C` reads `power`"):
        s.rolling_update("k", "n")


def test_another_row_and_another_iteration_are_refused():
    """A sum of another row, and an exponential that an earlier iteration made, when the maximum was another."""
    X, k, r = te.placeholder((13, 13), name="X"), te.reduce_axis((0, 13), name="k"), te.reduce_axis((0, 13), name="r")
    j = te.reduce_axis((0, 13), name="j")
    top = te.compute((13,), lambda i: te.max(X[i, k], axis=k), name="top")
    power = te.compute((13, 13), lambda i, n: te.exp(X[i, n] - top[i]), name="power")
    total = te.compute((13,), lambda i: te.sum(power[i, r], axis=r), name="total")
    divided = te.compute((13,), lambda i: te.sum(power[i, j] / total[j], axis=j), name="C")
    with pytest.raises(tir.ScheduleError, match="`C` reads `power` and `total`, and is not proportional"):
        Checked(te.create_prim_func([X, divided])).rolling_update("k", "n", "r", "j")
    late = te.compute((13,), lambda i: te.sum(te.if_then_else(r > 0, power[i, r - 1], 0.0), axis=r), name="C")
    with pytest.raises(tir.ScheduleError, match="`power` may be read in a later iteration of `k_m` than that which makes it"):
        Checked(te.create_prim_func([X, late])).rolling_update("k", "n", "r")
