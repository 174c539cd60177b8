"""Every pattern, at shapes drawn at random, against float64 references; that it is recognised, and that its trace replays."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tir
from schedule import replay, templates
from schedule.open_schedule import OpenSchedule
from schedule.primitive import find_block
from schedule.templates.annotate import annotate
from schedule.templates.gemm import Sum
from tests import programs
from tests.schedule.templates import patterns
from tests.sweeps import one_in, quick
from tir import te
from tir.constants import with_constants
from tir.ir import For, annotation
from tir.traverse import walk_stmts

ROUNDS = 6  # shapes for each pattern in a part


def close(result: np.ndarray, case: patterns.Case) -> bool:
    return bool(np.all(np.abs(result - case.expected) <= case.bound))


@quick(lambda name, cores, part: part == 0 and cores == 1 + [*patterns.PATTERNS].index(name) % 2)
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("name", patterns.PATTERNS)
@pytest.mark.parametrize("cores", [1, 2])
def test_random_shapes(name, cores, part):
    """Scheduled programs give what the reference does, with one of their inputs constant or none; a program that is not recognised
    has the sketches' default."""
    target = tir.Target("llvm", num_cores=cores)
    rng = np.random.default_rng((cores, part))
    recognised = 0
    for n in range(ROUNDS):
        case = patterns.PATTERNS[name](rng)
        inputs = [b.name for b in case.func.buffers[:-1]]
        func = with_constants(case.func, inputs[n % 3 : n % 3 + 1])
        s = templates.schedule(func, target)
        if s is None:
            continue
        recognised += 1
        assert replay(func, s.trace).func == s.func
        result = np.full(case.expected.shape, np.nan, "float32")
        tir.build(s.func, target)(*case.inputs, result)
        assert close(result, case), f"{s.func.script()}\noff by {np.max(np.abs(result - case.expected)):.3g}"
    assert recognised == ROUNDS if name != "convolution" else recognised >= ROUNDS // 3


def test_a_wrong_result_is_seen():
    case = patterns.product(np.random.default_rng(0))
    wrong = case.expected + 1.01 * np.maximum(case.bound, 1e-30)
    assert close(case.expected, case) and not close(wrong, case)


@one_in(2)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "sizes", [(150, 149, 151), (311, 97, 109), (31, 600, 259), (300, 1030, 35), (1, 1500, 1601), (2003, 11, 71)]
)
def test_products_that_threads_share(sizes, cores):
    """Large enough for two threads, a cut sum and several blocks."""
    M, K, N = sizes
    instance = tir.workloads.make("gmm", (M, K, N))
    target = tir.Target("llvm", num_cores=cores)
    s = templates.schedule(instance.func, target)
    assert s is not None
    assert ("T.parallel" in s.script) == (cores == 2)
    inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
    tir.build(s.func, target)(*inputs, *outputs)
    assert instance.check(outputs, inputs).ok


@one_in(2)
@pytest.mark.parametrize(("name", "shape"), [
    ("mlp", (191, 139, 127, 113)),
    ("softmax", (300, 257)),
    ("layernorm", (301, 256)),
    ("conv2d", (1, 19, 17, 33, 40, 3, 3, 1, 1)),
    ("conv2d", (2, 29, 31, 16, 65, 3, 3, 2, 1)),
    ("conv2d", (1, 7, 9, 96, 67, 3, 3, 1, 1)),  # few pixels
    ("conv2d", (1, 29, 31, 40, 97, 1, 1, 1, 0)),
    ("conv2d", (1, 64, 32, 40, 47, 1, 1, 1, 0)),  # whose rows of pixels are pages
    ("conv2d", (2, 109, 13, 19, 67, 5, 5, 1, 2)),
    ("conv2d", (1, 131, 130, 3, 67, 32, 32, 32, 0)),  # a stride longer than the registers
    ("depthwise", (2, 57, 61, 19, 3, 3, 1, 1)),
    ("conv1d", (2, 217, 96, 131, 3, 2, 1)),
    ("conv2d_nhwc", (1, 29, 37, 33, 40, 3, 1, 1, 2)),
    ("conv2d_nhwc", (1, 19, 17, 36, 128, 3, 1, 1, 1, 4)),
    ("conv2d_nhwc", (2, 29, 31, 64, 64, 3, 2, 1, 1, 2)),
    ("conv3d", (1, 7, 13, 9, 33, 40, 3, 1, 1)),
    ("conv_bn_relu", (1, 19, 17, 33, 40, 3, 1, 1)),
    ("conv2d_transpose", (1, 7, 13, 33, 40, 4, 2, 1)),
    ("conv2d_transpose", (2, 7, 5, 32, 67, 5, 3, 2)),
    ("conv2d_transpose", (1, 23, 27, 40, 33, 3, 1, 0)),
    ("conv2d_transpose", (1, 33, 35, 48, 3, 4, 2, 1)),
    ("conv2d_nhwc", (1, 39, 47, 64, 5, 5, 1, 2)),
    ("conv2d_nhwc", (2, 69, 53, 32, 3, 7, 2, 0)),
    ("capsule", (1, 7, 9, 13, 19, 3, 1, 1)),
    ("norm", (1, 509, 521)),
    ("attention_weights", (1, 109, 7, 13)),
])  # fmt: skip
@pytest.mark.parametrize("cores", [1, 2])
def test_workloads(name, shape, cores):
    instance = tir.workloads.make(name, shape)
    target = tir.Target("llvm", num_cores=cores)
    s = templates.schedule(instance.func, target)
    assert s is not None
    assert ("T.parallel" in s.script) == (cores == 2)
    inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
    tir.build(s.func, target)(*inputs, *outputs)
    assert instance.check(outputs, inputs).ok


@one_in(2)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("name", "shape"), [
    ("conv3d", (1, 7, 13, 9, 24, 40, 3, 1, 1)),
    ("conv_bn_relu", (1, 13, 9, 48, 40, 3, 1, 1)),
    ("conv2d", (1, 48, 9, 11, 67, 3, 3, 1, 1)),
    ("attention_weights", (2, 13, 3, 7)),
    ("attention_weights", (1, 64, 5, 109)),
])  # fmt: skip
def test_workloads_with_a_small_cache(name, shape, cores):
    """Sums of convolutions in parts; rows shorter than two rounds of vectors; operands whose dimensions are permuted."""
    instance = tir.workloads.make(name, shape)
    target = tir.Target("llvm -l2 32768", num_cores=cores)
    s = templates.schedule(instance.func, target)
    assert s is not None
    inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
    tir.build(s.func, target)(*inputs, *outputs)
    assert instance.check(outputs, inputs).ok


@one_in(2)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("sizes", "relu", "across"), [
    ((13, 70, 17), False, False),
    ((40, 109, 33), True, False),
    ((72, 1100, 50), True, False),  # the sum in parts
    ((97, 1040, 33), False, False),
    ((31, 300, 35), True, True),  # the sum walks the memory of both operands
])  # fmt: skip
def test_the_last_columns_are_dot_products(sizes, relu, across, cores):
    """Too few columns for a vector are a block of their own, whose lanes are steps of the sum."""
    target, (M, K, N), rng = tir.Target("llvm -mcpu x86-64-v3", num_cores=cores), sizes, np.random.default_rng(cores)
    A, B = te.placeholder((M, K), name="A"), te.placeholder((N, K) if across else (K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * (B[j, k] if across else B[k, j]), axis=k), name="C")
    out = te.compute((M, N), lambda i, j: te.maximum(C[i, j], 0.0), name="D") if relu else C
    func = te.create_prim_func([A, B, out])
    s = templates.schedule(func, target)
    assert replay(func, s.trace).func == s.func
    names = [b.name for b in tir.traverse.blocks(s.func)]
    assert [n.startswith("C_") and n.endswith("_rf") for n in names].count(True) == 1
    a, b = (rng.uniform(-1, 1, shape).astype("float32") for shape in ((M, K), (N, K) if across else (K, N)))
    value = a.astype("float64") @ (b.T if across else b).astype("float64")
    bound = patterns.gamma(K) * (abs(a).astype("float64") @ abs(b.T if across else b).astype("float64"))
    result = np.full((M, N), np.nan, "float32")
    tir.build(s.func, target)(a, b, result)
    assert np.all(np.abs(result - (np.maximum(value, 0) if relu else value)) <= bound)


@pytest.mark.parametrize("cores", [1, 2])
def test_what_follows_sums_of_short_rows_is_done_with_them(cores):
    """Results are not many times fewer than what they are made of, so they are not written and read again."""
    X, k = te.placeholder((70000, 5), name="X"), te.reduce_axis((0, 5), name="k")
    total = te.compute((70000,), lambda i: te.sum(X[i, k], axis=k), name="total")
    func = te.create_prim_func([X, te.compute((70000,), lambda i: total[i] * 0.25, name="Y")])
    s = templates.schedule(func, tir.Target("llvm", num_cores=cores))
    assert s.get_loops("Y")[:1] == s.get_loops("total")[:1]
    x = np.random.default_rng(0).integers(-9, 9, (70000, 5)).astype("float32")
    y = np.empty(70000, "float32")
    tir.build(s.func, f"llvm -num-cores {cores}")(x, y)
    assert (y == x.sum(1) * 0.25).all()


@pytest.mark.parametrize("batch", [(), (1,), (1, 1)])
def test_a_left_operand_of_dot_products_is_transposed_in_a_batch_of_one(batch):
    (M, K, N), target = (3, 500, 8), tir.Target("llvm -mcpu x86-64-v2 -num-cores 1")
    A, B, k = te.placeholder((*batch, K, M), name="A"), te.placeholder((N, K), name="B"), te.reduce_axis((0, K), name="k")
    C = te.compute((*batch, M, N), lambda *i: te.sum(A[(*i[:-2], k, i[-2])] * B[i[-1], k], axis=k), name="C")
    func = te.create_prim_func([A, B, C])
    s = templates.decided(func, target)
    assert s is not None and "C: dot products" in s.rules
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, shape).astype("float32") for shape in ((*batch, K, M), (N, K)))
    result = np.full((*batch, M, N), np.nan, "float32")
    tir.build(s.func, target)(a, b, result)
    assert np.array_equal(result, a.swapaxes(-1, -2) @ b.T)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("rows", "copied"), [(3, False), (40, True)])
def test_attention_of_few_rows_reads_keys_in_place(rows, copied, cores):
    """A packed copy of the keys would be read once; inner products take them as they lie in a cache."""
    func, rng = programs.attention(5, rows, 64, keys=109), np.random.default_rng(rows)
    s = templates.decided(func, tir.Target("llvm -mcpu x86-64-v3", num_cores=cores))
    assert ("score: dot products" in s.rules) != copied == ("O: attention" in s.rules)
    assert ("K_global = " in s.func.script()) == copied
    q, k, v = (rng.standard_normal((5, n, 64), np.float32) for n in (rows, 109, 109))
    result = np.full((5, rows, 64), np.nan, "float32")
    tir.build(s.func, tir.Target("llvm -mcpu x86-64-v3", num_cores=cores))(q, k, v, result)
    sizes = abs(q).astype("f8") @ abs(k.swapaxes(1, 2))
    scores = q.astype("f8") @ k.swapaxes(1, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    bound = (2 * patterns.gamma(64) * sizes.max() + patterns.gamma(2 * 109)) * (weights @ abs(v))
    assert np.all(np.abs(result - weights @ v) <= bound)


@pytest.mark.parametrize("sizes", [(37, 45), (64, 7), (5, 109)])
@pytest.mark.parametrize("left", [False, True])
def test_an_outer_product_may_have_a_sum_of_one_element(sizes, left):
    """Its axis is in no factor, or in one: no product of matrices."""
    target = tir.Target("llvm -num-cores 1")
    func, rng = patterns.outer(*sizes, left), np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (sizes[0], 1)).astype("float32"), rng.integers(-9, 9, sizes[1]).astype("float32")
    result = np.full(sizes, np.nan, "float32")
    tir.build(tir.default_schedule(func, target).func, target)(a if left else a[:, 0], b, result)
    assert np.array_equal(result, a * b)


def test_permuted_operands_are_read_where_they_are():
    """But not where that would make both factors the same array, or pack nothing."""
    target = tir.Target("llvm", num_cores=1)

    def copies(a, b, rows):
        turned = te.compute((40, 30), lambda k, j: b[j, k], name="turned")
        k = te.reduce_axis((0, 40), name="k")
        s = templates.schedule(
            te.create_prim_func(
                [
                    *{a.name: a, b.name: b}.values(),
                    te.compute((rows, 30), lambda i, j: te.sum(a[i, k] * turned[k, j], axis=k), name="C"),
                ]
            ),
            target,
        )
        assert s is not None
        return "turned" in [x.name for x in tir.traverse.blocks(s.func)]

    a, b = te.placeholder((30, 40), name="A"), te.placeholder((30, 40), name="B")
    assert not copies(a, b, 30)
    assert copies(b, b, 30)
    assert not copies(te.placeholder((3, 40), name="A"), b, 3)


def blocks(name: str, shape: tuple[int, ...]):
    return {b.name: b for b in tir.traverse.blocks(tir.workloads.make(name, shape).func)}


def test_channels_of_a_group_see_the_same_channels_of_the_image():
    grouped = templates.conv2d.matches(blocks("conv2d_nhwc", (1, 7, 9, 12, 96, 3, 1, 1, 1, 3))["Y"])
    assert grouped is not None and grouped.members == 32 and [it.var.name for it in grouped.channels] == ["v_co"]
    for cores in (1, 2):
        processor = tir.Target("llvm", num_cores=cores).machine
        assert 32 % templates.conv2d.tiles(grouped, processor).columns == 0
    plain = templates.conv2d.matches(blocks("conv2d_nhwc", (1, 7, 9, 12, 96, 3, 1, 1))["Y"])
    assert plain is not None and plain.members is None
    assert templates.conv2d.matches(blocks("depthwise_nhwc", (1, 7, 9, 12, 3, 1, 1))["Y"]) is None


@pytest.mark.parametrize(("sizes", "template", "temporaries"), [
    ((3, 32, 16, 9, 3, 1, True), "direct convolution", "P Y K_reindex_global"),
    ((2, 33, 17, 8, 3, 2, False), "pixels in lanes", "Y_reindex_global P_reindex"),
    ((3, 32, 16, 9, 3, 1, False), "direct convolution", "P Y_reindex_global K_reindex_global"),
    ((5, 4, 4, 30, 3, 1, True), "pixels in lanes, row by row", "P Y"),
    ((5, 8, 6, 30, 3, 1, False), "pixels in lanes, row by row", "P"),
    ((2, 48, 40, 7, 1, 1, True), "pixels in lanes", "X_reindex_global Y Y_rf"),
    ((6, 2, 2, 30, 3, 1, True), "depthwise convolution", "Y"),
], ids=str)  # fmt: skip
def test_a_convolution_in_groups_is_one_for_each(sizes, template, temporaries):
    """The axis of the channels becomes one of groups and one of the channels in a group, and no array is copied for that."""
    case, target = patterns.grouped(*sizes), tir.Target("llvm -mcpu x86-64-v4", num_cores=2)
    s = OpenSchedule(case.func, target, at_seed=True)
    assert templates.build(s) == []
    assert s.rules[0] == f"Y: {template}"
    annotate(s)
    plain = s.plain(case.func)
    assert replay(case.func, plain.trace).func == plain.func
    assert {b.name for b in plain.func.allocs} == set(temporaries.split())
    result = np.full(case.expected.shape, np.nan, "float32")
    tir.build(plain.func, "llvm -num-cores 2")(*case.inputs, result)
    assert close(result, case)


def with_pixels_in_lanes(func, block: str, target: tir.Target, channels: int, pixels: int) -> OpenSchedule:
    s = OpenSchedule(func, target, at_seed=True)
    found = templates.conv2d.matches(s.block(block))
    tile = templates.im2col.tiles(found, target.machine, s.constants)
    templates.im2col.build(s, found, Sum.WHOLE, sizes=tile._replace(mr=channels, nr=pixels))
    annotate(s)
    return s


@one_in(2)
@pytest.mark.parametrize("cores", [1, 2])
def test_pixels_as_lanes(cores):
    """Convolutions of any shape with channels before pixels, tiles of any size, whatever would be chosen for them."""
    target, rng = tir.Target("llvm", num_cores=cores), np.random.default_rng(cores)
    seen = 0
    while seen < ROUNDS:
        case = patterns.convolution(rng)
        found = templates.conv2d.matches(find_block(case.func, "Y"))
        if found is None or not found.transposed_result:
            continue
        seen += 1
        s = with_pixels_in_lanes(case.func, "Y", target, int(rng.integers(1, 7)), 16 * int(rng.integers(1, 5)))
        assert replay(case.func, s.trace).func == s.func
        result = np.full(case.expected.shape, np.nan, "float32")
        tir.build(s.func, target)(*case.inputs, result)
        assert close(result, case), f"{s.func.script()}\noff by {np.max(np.abs(result - case.expected)):.3g}"


def test_when_pixels_are_lanes():
    """Few pixels, or a short sum; an image is read in place where its pixels lie as those of the result do."""
    processor = tir.Target("llvm -num-cores 1 -mcpu x86-64-v4 -l1 49152 -l2 1048576 -l3 33554432").machine

    def found(*shape):
        return templates.conv2d.matches(blocks("conv2d", shape)["conv"])

    def faster(c):
        return templates.im2col.cycles(c, processor) < templates.conv2d.cycles(c, processor)

    few, many = found(1, 7, 7, 512, 512, 3, 3, 1, 1), found(1, 56, 56, 64, 64, 3, 3, 1, 1)
    assert faster(few) and not templates.im2col.in_place(few)
    assert not faster(many)
    short, strided = found(1, 13, 7, 31, 97, 1, 1, 1, 0), found(1, 13, 13, 31, 97, 1, 1, 2, 0)
    assert faster(short) and templates.im2col.in_place(short)
    assert not templates.im2col.in_place(strided)
    assert not templates.im2col.in_place(found(1, 32, 32, 31, 97, 1, 1, 1, 0))  # rows of a page
    last = templates.conv2d.matches(blocks("conv2d_nhwc", (1, 7, 9, 12, 96, 3, 1, 1))["Y"])
    assert not templates.im2col.suits(last, processor)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        # Channels are the lanes of few pixels, since their weights are packed for nothing.
        ((1, 7, 7, 512, 512, 3, 3, 1, 1), {"changing": "pixels in lanes", "constant": "direct convolution"}),
        ((1, 56, 56, 64, 64, 1, 1, 1, 0), {"changing": "pixels in lanes", "constant": "pixels in lanes"}),
    ],
)
def test_weights_that_are_constant_are_packed_for_nothing(shape, found):
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v4 -l1 49152 -l2 1048576 -l3 33554432")
    func = tir.workloads.make("conv2d", shape).func
    weights = func.buffers[1].name
    for kind, one in {"changing": func, "constant": with_constants(func, [weights])}.items():
        s = OpenSchedule(one, target, at_seed=True)
        templates.build(s)
        annotate(s)
        assert any(rule.startswith(f"conv: {found[kind]}") for rule in s.rules)


def test_a_tile_as_wide_as_the_row_stays_in_registers():
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v4 -l1 49152 -l2 1048576 -l3 33554432")
    func = tir.workloads.make("conv2d", (1, 5, 11, 64, 48, 3, 3, 1, 1)).func
    s = with_pixels_in_lanes(func, "conv", target, 6, 55)
    inner = max(tir.build(s.func, target).report().loops, key=lambda loop: loop.fma)
    assert (inner.fma, inner.stores) == (2 * 24, 0)  # two steps


def test_a_tile_partial_in_channels_and_pixels_stays_in_registers():
    """Neither channels that are not there nor pixels keep the accumulators from registers, though the image ends: after 11 rows
    of the last tile."""
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v4 -l1 49152 -l2 1048576 -l3 33554432")
    func = tir.workloads.make("conv2d", (1, 7, 7, 64, 50, 1, 1, 1, 0)).func
    s = with_pixels_in_lanes(func, "conv", target, 13, 32)
    inner = [loop for loop in tir.build(s.func, target).report().loops if loop.fma]
    assert [(loop.fma, loop.stores) for loop in inner] == [(2 * 26, 0), (2 * 26, 0), (2 * 22, 0)]  # two steps


@pytest.mark.parametrize("stride", [28, 29, 32, 64])
def test_an_image_whose_stride_takes_all_registers_is_not_read_row_by_row(stride):
    """As of the patches of 32 x 32 of a vision transformer: pixels are picked from as many vectors as the stride."""
    shape = (1, 2 * stride, 3 * stride, 3, 40, stride, stride, stride, 0)
    processor = tir.Target("llvm -mcpu x86-64-v4 -num-cores 1").machine
    first, *_ = templates.im2col.variants(templates.conv2d.matches(blocks("conv2d", shape)["conv"]), processor)
    assert first is not Sum.BY_ROWS


def test_few_channels_are_no_lanes():
    processor = tir.Target("llvm -mcpu x86-64-v4 -num-cores 1").machine
    for shape, fits in (
        ((1, 9, 7, 64, 3, 4, 2, 1), True),
        ((1, 9, 7, 64, 16, 4, 2, 1), False),
        ((1, 9, 7, 40, 3, 4, 2, 1), False),
    ):
        found = templates.few_channels.matches(blocks("conv2d_transpose", shape)["Y"])
        assert found is not None and templates.few_channels.suits(found, processor) == fits
        assert not fits or templates.few_channels.tiles(found, processor).rows * shape[4] <= 32
    assert templates.few_channels.matches(blocks("conv2d", (1, 9, 7, 16, 3, 3, 3, 1, 1))["conv"]) is None


def test_threads_share_the_classes_of_a_transposed_convolution_as_they_are_free():
    """They have one, two or four elements of the kernel. Its sums have no masks, also in the last panel of channels."""
    target = tir.Target("llvm -mcpu x86-64-v4 -num-cores 2")
    s = templates.schedule(tir.workloads.make("conv2d_transpose", (1, 46, 46, 33, 91, 3, 2, 1)).func, target)
    (loop,) = (x for x in walk_stmts(s.func.body) if isinstance(x, For) and x.name == s.get_loops("Y")[0])
    assert annotation(loop.annotations, "schedule") == "dynamic"
    text = tir.dump(s.func, target, "asm")
    assert "vfmadd231ps" in text and not re.search(r"(vbroadcastss|vfmadd).*{%k", text)


def test_pixels_of_a_transposed_convolution_have_classes():
    found = templates.conv2d_transpose.matches(blocks("conv2d_transpose", (1, 7, 9, 12, 32, 5, 3, 1))["Y"])
    assert found is not None and [it.var.name for it in found.channels] == ["v_co"]
    assert [(x.pixel.var.name, x.kernel.var.name, x.stride) for x in found.classes] == [("v_h", "v_rh", 3), ("v_w", "v_rw", 3)]
    whole = templates.conv2d_transpose.matches(blocks("conv2d_transpose", (1, 7, 9, 12, 32, 5, 1, 1))["Y"])
    assert whole is not None and whole.classes == ()
    assert templates.conv2d_transpose.matches(blocks("softmax", (7, 13))["total"]) is None


@pytest.mark.parametrize(
    ("batch", "heads", "rows", "steps", "columns"), [(4, 3, 1, 64, 77), (5, 1, 1, 13, 109), (2, 7, 1, 7, 32)]
)
def test_a_batch_of_vectors_times_matrices_is_tiled(batch, heads, rows, steps, columns):
    """Attention of one token: heads of queries share keys, and the axis of tokens has one iteration."""
    q, keys = te.placeholder((batch, heads, rows, steps), name="q"), te.placeholder((batch, steps, columns), name="keys")
    k = te.reduce_axis((0, steps), name="k")
    scores = te.compute(
        (batch, heads, rows, columns), lambda b, h, i, j: te.sum(q[b, h, i, k] * keys[b, k, j], axis=k), name="scores"
    )
    func = te.create_prim_func([q, keys, scores])
    s = templates.decided(func, tir.Target("llvm -num-cores 1"))
    assert s is not None and s.rules == ["scores: packing"]
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (batch, heads, rows, steps)).astype("f4")
    y = rng.integers(-8, 9, (batch, steps, columns)).astype("f4")
    found = np.empty((batch, heads, rows, columns), "f4")
    tir.build(s.plain(func).func, "llvm -num-cores 1")(x, y, found)
    np.testing.assert_array_equal(found, np.einsum("bhik,bkj->bhij", x, y))
