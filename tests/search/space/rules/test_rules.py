"""Sketch rules: where each applies, what it makes, and the sketches of whole functions."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent, indent

import pytest

import tir
from codegen.target import Target
from schedule import replay
from schedule.open_schedule import OpenSchedule, Stage
from schedule.templates.block_analysis import epilogue, reuses_data
from search.space import generation
from search.space.rules import (
    DEFAULT,
    PACKING,
    REDUCTION,
    ROWS,
    CacheWrite,
    Inline,
    MultiLevelTiling,
    ReduceInThreads,
    Rule,
    Skip,
    TilingWithFusion,
    Verdict,
)
from search.space.sketch import Sketch
from tests.programs import argmax, batched_matmul, chained_matmuls, elementwise_chain, matmul, sum_of_three_axes, total
from tests.schedule.harness import same_numbers, well_formed, without_header
from tests.search import once
from tests.sweeps import one_in
from tir import te, workloads
from tir.ir import Kind, PrimFunc, const_shape
from tir.traverse import blocks, loops, loops_to

ONE = Target("llvm", num_cores=1, mcpu="x86-64-v4")
TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")


def generate(func: PrimFunc, target: Target, rules: Sequence[Rule] = DEFAULT) -> tuple[Sketch, ...]:
    """The sketches that rules derive, without that of the templates for all blocks at once."""
    return once.generate(func, target, tuple(rules))


def state(func: PrimFunc) -> OpenSchedule:
    return OpenSchedule(func, TWO, [b.name for b in blocks(func)])


def verdicts(rule, func: PrimFunc) -> dict[str, Verdict]:
    s = state(func)
    return {b.name: rule.applies(s, b.name) for b in blocks(func)}


def only(rule, func: PrimFunc) -> set[str]:
    """The blocks that a rule applies to."""
    return {block for block, verdict in verdicts(rule, func).items() if verdict is not Verdict.SKIP}


def rules_of(sketches: Sequence[Sketch]) -> list[str]:
    return ["; ".join(s.rules) for s in sketches]


def conv2d(padding: int = 1) -> PrimFunc:
    return workloads.make("conv2d", (1, 7, 13, 3, 5, 3, 3, 1, padding)).func


MLP = workloads.make("mlp", (7, 13, 109, 5)).func
SOFTMAX = workloads.make("softmax", (7, 109)).func
LAYERNORM = workloads.make("layernorm", (7, 109)).func


# --- inline ------------------------------------------------------------------------------------------------------------


def stage(value, shape=(7, 13)) -> PrimFunc:
    """`value(X)` gives the formula of a stage B, which an output C reads."""
    X = te.placeholder((13, 13), name="X")
    B = te.compute(shape, value(X), name="B")
    C = te.compute(shape, lambda i, j: B[i, j] + 1.0, name="C")
    return te.create_prim_func([X, C])


@pytest.mark.parametrize("value", [
    lambda X: lambda i, j: X[i, j] * 2.0,
    lambda X: lambda i, j: -X[i, j],
    lambda X: lambda i, j: X[j, 3] / 3.0,
    lambda X: lambda i, j: X[0, i + 1] - X[i + 2, j],
])  # fmt: skip
def test_simple_stages_are_inlined(value):
    assert verdicts(Inline(), stage(value)) == {"B": Verdict.ONLY, "C": Verdict.SKIP}
    (new,) = Inline().apply(state(stage(value)), "B")
    assert [b.name for b in blocks(new.func)] == ["C"]
    same_numbers(stage(value), new.func)


@pytest.mark.parametrize("value", [
    pytest.param(lambda X: lambda i, j: te.exp(X[i, j]), id="intrinsic"),
    pytest.param(lambda X: lambda i, j: te.if_then_else(i > 3, X[i, j], 0.0), id="choice"),
    pytest.param(lambda X: lambda i, j: X[j, i], id="transposed"),
    pytest.param(lambda X: lambda i, j: X[i, i], id="axis twice"),
    pytest.param(lambda X: lambda i, j: X[i, j // 2], id="divided"),
    pytest.param(lambda X: lambda i, j: X[0, i + j - j], id="sum of axes, until simplified"),
    pytest.param(lambda X: lambda i, j: X[i // 2, j], id="axis scaled"),
])  # fmt: skip
def test_other_stages_are_not_inlined(value, request):
    expected = {"B"} if "simplified" in request.node.callspec.id else set()
    assert only(Inline(), stage(value)) == expected


def test_reductions_and_outputs_are_not_inlined():
    assert only(Inline(), matmul(7, 13, 109)) == set()
    assert only(Inline(), LAYERNORM) == {"mean", "centred"}
    assert only(Inline(), elementwise_chain()) == {"Y"}


# --- tiling ------------------------------------------------------------------------------------------------------------


def test_what_reuses_data():
    def reusing(func):
        return {b.name for b in blocks(func) if reuses_data(b)}

    assert reusing(matmul(7, 13, 109)) == {"C"}
    assert reusing(MLP) == {"C", "F"}
    assert reusing(conv2d()) == {"conv"}
    assert reusing(workloads.make("depthwise", (1, 7, 13, 5, 3, 3, 1, 1)).func) == {"conv"}
    assert reusing(matmul(1, 13, 109)) == {"C"}  # the vector is read again for each column
    assert reusing(matmul(1, 13, 1)) == set()  # an inner product reads each element once
    for func in (SOFTMAX, LAYERNORM, elementwise_chain(), argmax(), total()):
        assert reusing(func) == set()


def test_the_elementwise_consumer():
    assert epilogue(state(MLP), "C") == "D"
    assert epilogue(state(MLP), "D") is None  # read by a reduction
    assert epilogue(state(MLP), "F") is None  # an output
    assert epilogue(state(conv2d()), "conv") == "Y"
    assert epilogue(state(conv2d()), "pad") is None
    assert epilogue(state(SOFTMAX), "power") is None  # two consumers
    assert epilogue(state(LAYERNORM), "mean") is None  # one element for many


def test_which_blocks_are_tiled_and_fused():
    assert verdicts(MultiLevelTiling(), MLP) == {"C": Verdict.ONLY, "D": Verdict.SKIP, "F": Verdict.ONLY}
    assert verdicts(TilingWithFusion(), MLP) == {"C": Verdict.APPLY, "D": Verdict.SKIP, "F": Verdict.SKIP}
    assert verdicts(CacheWrite(), MLP) == {"C": Verdict.SKIP, "D": Verdict.SKIP, "F": Verdict.APPLY}
    assert verdicts(CacheWrite(), conv2d()) == {"pad": Verdict.SKIP, "conv": Verdict.SKIP, "Y": Verdict.SKIP}


def test_a_tiled_block_is_not_tiled_again():
    (new,) = MultiLevelTiling().apply(state(matmul(7, 13, 109)), "C")
    for rule in (MultiLevelTiling(), TilingWithFusion(), CacheWrite(), ROWS, REDUCTION, Inline()):
        assert rule.applies(new, "C") is Verdict.SKIP, rule.name


def test_tiles_of_an_axis():
    (new,) = MultiLevelTiling().apply(state(conv2d()), "conv")
    tiles = {t.axis: t for t in new.tiles}
    assert {axis: (t.extent, t.reduce, len(t.columns), t.vector) for axis, t in tiles.items()} == {
        "v_co": (5, False, 3, False),
        "v_oh": (7, False, 3, False),
        "v_ow": (13, False, 3, True),
        "v_rc": (3, True, 1, False),
        "v_rh": (3, True, 1, False),
        "v_rw": (3, True, 1, False),
    }
    assert sorted(c for t in new.tiles for c in t.columns) == list(range(new.columns)) == list(range(12))
    assert [len(level) for level in new.tiled("conv").levels] == [4, 3, 3, 3, 3, 3]  # one image: its axis stays outermost
    assert new.tiled("conv").levels[-1] == ("co_3", "oh_3", "ow_3")


def test_lanes_are_counted_in_the_width_of_what_is_computed():
    def bits(func):
        return {t.bits for s in generate(func, ONE) for t in s.tiles}

    assert bits(matmul(7, 13, 109, dtype="float64")) == {64}
    assert bits(matmul(7, 13, 109, dtype="float16")) == {32}  # computed in float32
    assert bits(matmul(7, 13, 109, dtype="int8")) == {8}


def test_the_vectorised_axis_goes_innermost():
    """It is the last dimension written, wherever it stands among the axes."""
    A, B = te.placeholder((7, 13), name="A"), te.placeholder((13, 109), name="B")
    k = te.reduce_axis((0, 13), name="k")
    C = te.compute((7, 109), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((109, 7), lambda j, i: C[i, j], name="D")
    (new,) = MultiLevelTiling().apply(state(te.create_prim_func([A, B, D])), "C")
    assert new.tiled("C").levels[-1] == ("i_3", "j_3")


def test_cache_write_leaves_the_block_to_be_tiled_with_its_copy():
    before = state(matmul(7, 13, 109))
    before.pending.pop()
    (new,) = CacheWrite().apply(before, "C")
    assert before.pending == [] and new.pending == ["C"]
    assert CacheWrite().applies(new, "C") is Verdict.SKIP
    assert TilingWithFusion().applies(new, "C") is Verdict.ONLY
    assert [s.rules[-1] for s in TilingWithFusion().apply(new, "C")] == [
        "C: tiling with fusion at level 1",
        "C: tiling with fusion at level 2",
    ]


# --- reductions and rows -----------------------------------------------------------------------------------------------


def row_sum(columns: int, dtype: str = "float32") -> PrimFunc:
    X = te.placeholder((7, columns), dtype, name="X")
    k = te.reduce_axis((0, columns), name="k")
    return te.create_prim_func([X, te.compute((7,), lambda i: te.sum(X[i, k], axis=k), name="Y")])


def column_sum() -> PrimFunc:
    X = te.placeholder((109, 7), name="X")
    k = te.reduce_axis((0, 109), name="k")
    return te.create_prim_func([X, te.compute((7,), lambda i: te.sum(X[k, i], axis=k), name="Y")])


def test_reductions_that_gain_nothing_by_tiles_are_whole_nests():
    for func in (row_sum(32), row_sum(31), row_sum(109, "int8"), column_sum(), sum_of_three_axes(), total()):
        assert only(REDUCTION, func) == {b.name for b in blocks(func)}
    assert only(REDUCTION, elementwise_chain()) == only(REDUCTION, matmul(40, 13, 109)) == set()
    (new,) = REDUCTION.apply(state(row_sum(109)), "Y")
    assert new.scheduled["Y"] == new.scheduled["Y_rf"] == Stage.DONE and REDUCTION.applies(new, "Y") is Verdict.SKIP
    same_numbers(row_sum(109), new.func)


def test_rows_are_reduced_side_by_side():
    func = row_sum(109)
    (sketch,) = generate(func, TWO, rules=(REDUCTION, Skip()))
    columns = {c.name: c.column for c in sketch.choices}
    row = sketch.stand_ins()
    row[columns["Y side by side"]] = 1
    for rows in (2, 4):
        row[columns["Y rows"]] = rows
        scheduled = replay(func, sketch.trace(row))
        assert f"in T.unroll({rows})" in scheduled.script
        same_numbers(func, scheduled.func)


def test_a_reduction_that_cannot_be_factored_makes_no_state():
    """A reducer that is not associative keeps the order of its terms."""
    X = te.placeholder((7, 109), name="X")
    k = te.reduce_axis((0, 109), name="k")
    reducer = te.comm_reducer(lambda a, b: a - b, lambda t: te.const(0, t), name="difference")
    func = te.create_prim_func([X, te.compute((7,), lambda i: reducer(X[i, k], axis=k), name="Y")])
    assert REDUCTION.apply(state(func), "Y") == []
    assert rules_of(generate(func, TWO)) == ["Y: skip"]


def test_threads_share_a_reduction_with_few_results():
    assert only(ReduceInThreads(), total(10000)) == {"S"}
    assert only(ReduceInThreads(), total(1000)) == set()  # not worth waking a thread
    assert only(ReduceInThreads(), total(10007)) == set()  # a prime
    assert only(ReduceInThreads(), matmul(4, 2000, 5)) == {"C"}
    assert only(ReduceInThreads(), matmul(109, 2000, 5)) == set()
    (new,) = ReduceInThreads().apply(state(total(10000)), "S")
    assert [(c.name, c.options) for c in new.choices] == [("S parts", (2, 4, 8, 10, 16))]
    assert new.scheduled["S"] == Stage.COMBINED and ReduceInThreads().applies(new, "S_rf") is Verdict.SKIP
    rules = (ReduceInThreads(), REDUCTION, Skip())
    both = ["S: reduce in threads; S_rf: reduction", "S: reduction"]
    assert rules_of(generate(total(10000), TWO, rules=rules)) == both
    assert rules_of(generate(total(1 << 20), TWO, rules=rules)) == both[:1]  # surely worth it
    assert rules_of(generate(total(1 << 20), ONE, rules=rules)) == both[1:]
    same_numbers(total(10000), new.func, seeds=(0,))


def test_a_stage_that_is_read_across_rows_is_not_fused():
    X = te.placeholder((7, 13), name="X")
    B = te.compute((7, 13), lambda i, j: te.exp(X[i, j]), name="B")
    C = te.compute((13, 7), lambda j, i: B[i, j], name="C")
    D = te.compute((7, 13), lambda i, j: B[i, j] + C[j, i], name="D")
    assert only(ROWS, te.create_prim_func([X, C, D])) == set()


def test_skip_changes_nothing():
    s = state(matmul(7, 13, 109))
    (new,) = Skip().apply(s, "C")
    assert new.trace == s.trace and new.rules == ["C: skip"] and s.rules == []


# --- whole functions ---------------------------------------------------------------------------------------------------


def test_sketches_of_a_matrix_product():
    for func in (matmul(7, 13, 109), batched_matmul()):
        assert rules_of(generate(func, TWO)) == ["C: packing", "C: multi-level tiling"]
    for func in (matmul(7, 17, 109), matmul(511, 511, 511), workloads.make("gmm").func):  # of more terms than lanes
        assert rules_of(generate(func, TWO)) == ["C: packing", "C: packing, the sum in parts", "C: multi-level tiling"]
    transposed = rules_of(generate(_transposed_right(7), TWO))
    assert transposed[0] == "C: packing" and "C: reduction" in rules_of(generate(_transposed_right(3), TWO))


def _transposed_right(rows: int) -> PrimFunc:
    A, B = te.placeholder((rows, 40), name="A"), te.placeholder((37, 40), name="B")
    k = te.reduce_axis((0, 40), name="k")
    return te.create_prim_func([A, B, te.compute((rows, 37), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")])


def test_what_cannot_be_packed():
    """One row, which reuses nothing of the right operand; windows, whose indices are sums of axes."""
    assert only(PACKING, matmul(1, 13, 109)) == set()
    assert only(PACKING, conv2d()) == set()
    assert only(PACKING, workloads.make("depthwise", (1, 7, 13, 5, 3, 3, 1, 1)).func) == set()
    assert only(PACKING, matmul(2, 13, 109)) == {"C"}
    assert only(PACKING, MLP) == {"C", "F"}


def test_sketches_of_chained_matrix_products():
    """Each in every way, and block of rows by block of rows. F has few columns and a long sum."""
    single = ["packing", "multi-level tiling"]
    expected = {f"F: {f}; C: {c}" for f in [*single, "packing, the sum in parts", "dot products"] for c in single} | {
        "F: fuse products"
    }
    assert set(rules_of(generate(chained_matmuls(), TWO))) == expected


def test_sketches_of_matmul_exp_matmul():
    found = rules_of(generate(MLP, TWO))
    ways = ["packing", "tiling with fusion at level 1", "tiling with fusion at level 2"]
    expected = {
        f"F: {f}; D: skip; C: {c}"
        for f in ("packing", "packing, the sum in parts", "multi-level tiling", "dot products")
        for c in ways
    }
    assert set(found) == expected | {"F: fuse products"}
    assert found[0] == "F: fuse products"


def test_sketches_of_convolution_and_relu():
    levels = [f"conv: tiling with fusion at level {n}" for n in (1, 2)]
    unrolled = [
        f"Y: skip; conv: pixels in lanes{rows}" for rows in (", row by row", "", ", the sum in parts")
    ]  # of which the padding is a part
    assert rules_of(generate(conv2d(), TWO)) == [*unrolled, *(f"Y: skip; {c}; pad: skip" for c in levels)]
    assert rules_of(generate(conv2d(padding=0), TWO)) == [*unrolled, *(f"Y: skip; {c}" for c in levels)]
    wide = workloads.make("conv2d", (1, 7, 13, 3, 17, 3, 3, 1, 0)).func
    direct, *others = (f"Y: skip; {c}" for c in ("conv: direct convolution", *levels))
    assert rules_of(generate(wide, TWO)) == [*unrolled, direct, *others]
    depthwise = workloads.make("depthwise", (1, 7, 13, 5, 3, 3, 1, 1)).func
    own = "Y: skip; conv: depthwise convolution"  # of which the padding is a part
    assert rules_of(generate(depthwise, TWO)) == [own, *(f"Y: skip; {c}; pad: skip" for c in levels)]


def test_sketches_of_reductions():
    for func in (row_sum(109), row_sum(7), column_sum()):
        assert rules_of(generate(func, TWO)) == ["Y: reduction"]
    assert rules_of(generate(total(), TWO)) == ["S: reduction"]
    assert rules_of(generate(argmax(), TWO)) == ["M: skip"]


def test_templates_begin():
    """The first sketch is what they make of the blocks that they know; rules schedule the others."""
    for func, first in ((row_sum(109), "Y: reduction"), (workloads.make("softmax", (1024, 109)).func, "Y: rows")):
        assert rules_of(generation.generate(func, TWO, max_sketches=1))[0] == first
    known, unknown = te.placeholder((109, 13), name="A"), te.placeholder((7, 4), "int32", name="I")
    doubled = te.compute((109, 13), lambda i, j: known[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 4), name="k")
    gathered = te.compute((7, 13), lambda i, j: te.sum(doubled[unknown[i, k], j] * doubled[i, j], axis=k), name="C")
    found = rules_of(generation.generate(te.create_prim_func([known, unknown, gathered]), TWO))
    assert "B: elementwise" in found[0] and not any("B: elementwise" in rules for rules in found[1:])


def test_sketches_of_rows():
    """Where there are rows for all threads, stages are in the loop over rows; what is costly is kept, or computed again."""
    (sketch,) = generate(workloads.make("softmax", (1024, 109)).func, TWO)
    assert sketch.rules == ("Y: rows",) and "place of power" in [c.name for c in sketch.choices]


def test_one_long_row_is_reduced_by_all_threads():
    func = workloads.make("softmax", (1, 1 << 19)).func
    found = rules_of(generate(func, TWO))
    assert found and all("total: reduce in threads" in rules and "rows" not in rules for rules in found)
    assert tir.default_schedule(func, TWO).func.script().count("T.parallel") == 4
    assert tir.default_schedule(func, ONE).func.script().count("T.parallel") == 0


# --- scripts -----------------------------------------------------------------------------------------------------------

HEAD = """
    @T.prim_func
    def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((13, 109), "float32"), C: T.Buffer((7, 109), "float32")):
        T.func_attr({"tir.noalias": T.bool(True)})
        # with T.block("root"):
"""

GUARD = (
    "i_0_j_0_fused // 2 * 3 + i_1 * 3 + i_2 * 3 + i_3 < 7 and i_0_j_0_fused % 2 * 64 + j_1 * 32 + j_2 * 32 + j_3 < 109 "
    "and k_0 * 5 + k_1 < 13"
)

SCRIPTS = [
    """
        C_local = T.alloc_buffer((7, 109), scope="local")
        for i_0_j_0_fused in T.parallel(6):
            for i_1, j_1, k_0, i_2, j_2, k_1 in T.grid(1, 2, 3, 1, 1, 5):
                for i_3 in T.unroll(3):
                    for j_3 in T.vectorized(32):
                        with T.block("C"):
                            v_i = T.axis.spatial(7, i_0_j_0_fused // 2 * 3 + i_1 * 3 + i_2 * 3 + i_3)
                            v_j = T.axis.spatial(109, i_0_j_0_fused % 2 * 64 + j_1 * 32 + j_2 * 32 + j_3)
                            v_k = T.axis.reduce(13, k_0 * 5 + k_1)
                            T.where(GUARD)
                            with T.init():
                                C_local[v_i, v_j] = T.float32(0.0)
                            C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0 in range(3):
                for ax1 in T.vectorized(64):
                    with T.block("C_local"):
                        v0 = T.axis.spatial(7, i_0_j_0_fused // 2 * 3 + ax0)
                        v1 = T.axis.spatial(109, i_0_j_0_fused % 2 * 64 + ax1)
                        T.where(i_0_j_0_fused // 2 * 3 + ax0 < 7 and i_0_j_0_fused % 2 * 64 + ax1 < 109)
                        C[v0, v1] = C_local[v0, v1]
    """,
    """
        C_local = T.alloc_buffer((7, 109), scope="local")
        for i_0_j_0_fused in T.parallel(6):
            for i_1, j_1 in T.grid(1, 2):
                for k_0, i_2, j_2, k_1 in T.grid(3, 1, 1, 5):
                    for i_3 in T.unroll(3):
                        for j_3 in T.vectorized(32):
                            with T.block("C"):
                                v_i = T.axis.spatial(7, i_0_j_0_fused // 2 * 3 + i_1 * 3 + i_2 * 3 + i_3)
                                v_j = T.axis.spatial(109, i_0_j_0_fused % 2 * 64 + j_1 * 32 + j_2 * 32 + j_3)
                                v_k = T.axis.reduce(13, k_0 * 5 + k_1)
                                T.where(GUARD)
                                with T.init():
                                    C_local[v_i, v_j] = T.float32(0.0)
                                C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
                for ax0 in range(3):
                    for ax1 in T.vectorized(32):
                        with T.block("C_local"):
                            v0 = T.axis.spatial(7, i_0_j_0_fused // 2 * 3 + ax0)
                            v1 = T.axis.spatial(109, i_0_j_0_fused % 2 * 64 + j_1 * 32 + ax1)
                            T.where(i_0_j_0_fused // 2 * 3 + ax0 < 7 and i_0_j_0_fused % 2 * 64 + j_1 * 32 + ax1 < 109)
                            C[v0, v1] = C_local[v0, v1]
    """,
    """
        for i_0_j_0_fused in T.parallel(6):
            for i_1, j_1, k_0, i_2, j_2, k_1 in T.grid(1, 2, 3, 1, 1, 5):
                for i_3 in T.unroll(3):
                    for j_3 in T.vectorized(32):
                        with T.block("C"):
                            v_i = T.axis.spatial(7, i_0_j_0_fused // 2 * 3 + i_1 * 3 + i_2 * 3 + i_3)
                            v_j = T.axis.spatial(109, i_0_j_0_fused % 2 * 64 + j_1 * 32 + j_2 * 32 + j_3)
                            v_k = T.axis.reduce(13, k_0 * 5 + k_1)
                            T.where(GUARD)
                            with T.init():
                                C[v_i, v_j] = T.float32(0.0)
                            C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """,
]


TILED = (
    [CacheWrite(), TilingWithFusion(levels=(1,)), Skip()],
    [CacheWrite(), TilingWithFusion(levels=(2,)), Skip()],
    [MultiLevelTiling()],
)


@pytest.mark.parametrize("n", range(3))
def test_scripts_of_a_matrix_product(n):
    func = matmul(7, 13, 109)
    sketch = generate(func, TWO, rules=TILED[n])[0]
    row = [1, 1, 3, 2, 1, 32, 5, *[0] * (sketch.columns - 7)]  # the first of each way to go on
    scheduled = replay(func, sketch.trace(row))
    body = dedent(SCRIPTS[n]).strip().replace("GUARD", GUARD)
    scheduled.unannotate("i_0_j_0_fused", "schedule")
    scheduled.unannotate("k_1", "pragma_auto_unroll_max_step")
    assert without_header(scheduled.script) == f"{dedent(HEAD).strip()}\n{indent(body, '    ')}"
    well_formed(scheduled.func)
    same_numbers(func, scheduled.func)


def packed_row(sketch: Sketch, left: int, right: int) -> list[int]:
    """Tiles of 3 rows by 32 columns, two of columns in a block; what is done to the operands."""
    row = sketch.stand_ins()
    sizes = {"v_i": (1, 3), "v_j": (2, 32), "v_k": (200,)}
    for t in sketch.tiles:
        for column, size in zip(t.columns, sizes[t.axis], strict=True):
            row[column] = size
    for c in sketch.choices:
        row[c.column] = {"pack A for C": left, "pack B for C": right}.get(c.name, 0)
    return row


@one_in(3)
@pytest.mark.parametrize("func", [matmul(7, 13, 109), matmul(7, 513, 37), batched_matmul()])
@pytest.mark.parametrize("way", range(6))
def test_operands_are_packed_in_every_way(func, way):
    for sketch in generate(func, TWO):
        if "packing" not in str(sketch):
            continue
        ways = {(left, right): sketch.variant(packed_row(sketch, left, right)) for left in range(3) for right in range(2)}
        assert len(set(ways.values())) == 6
        left, right = list(ways)[way]
        scheduled = replay(func, sketch.trace(packed_row(sketch, left, right)))
        well_formed(scheduled.func)
        same_numbers(func, scheduled.func, seeds=(0,))
        copies = {b.name for b in blocks(scheduled.func)} - {"C"}
        assert copies == {*(["A_global"] if left else []), *(["B_global"] if right else [])}


def test_a_packed_product():
    """The loop order of GotoBLAS: the left block is packed where threads start on a block of rows, the right one in front."""
    func = matmul(7, 13, 109)
    (sketch,) = [s for s in generate(func, TWO) if "packing" in str(s)]
    scheduled = replay(func, sketch.trace(packed_row(sketch, 1, 1)))
    assert [x.name for x in loops_to(scheduled.func.body, "C")] == [
        "i_0", "j_0", "i_1", "j_1", "k", "i_2", "j_2"
    ]  # fmt: skip
    kinds = {x.name: x.kind for x in loops(scheduled.func.body)}
    assert (kinds["i_2"], kinds["j_2"]) == (Kind.UNROLLED, Kind.VECTORIZED)
    shapes = {b.name: const_shape(b) for b in scheduled.func.allocs}
    assert shapes["B_global"] == (2, 2, 13, 32)  # 109 columns filled up to 2 blocks of 2 tiles


def test_one_core_gets_no_parallel_loops():
    for func in (matmul(7, 13, 109), MLP, SOFTMAX):
        for sketch in generate(func, ONE):
            for n in range(4):
                row = [n if c in {b.column for b in sketch.branches} else 1 for c in range(sketch.columns)]
                assert all(step.name not in ("parallel", "fuse") for step in sketch.picked(sketch.variant(row)))


def test_a_sketch_in_words_and_its_holes():
    sketch = generate(matmul(7, 13, 109), ONE)[0]
    assert str(sketch) == "sketch 0: C: packing (8 holes)"
    with pytest.raises(ValueError, match=r"sketch 0 has 8 hole\(s\), got a row of 7"):
        sketch.trace([1] * 7)
