"""Tile sizes by formula, recognition by structure, and what is left to others."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from itertools import accumulate
from math import ceil, prod
from operator import mul

import numpy as np
import pytest

import tir
from schedule import templates
from schedule.machine import CPU as Processor
from schedule.machine import Memory
from schedule.open_schedule import OpenSchedule
from schedule.primitive import find_block, loops_of
from schedule.product_blocks import Operand, Product, fastest, lines_of_pieces
from schedule.register_tiles import RegisterTile, product_tile
from schedule.templates import conv2d, depthwise, elementwise, gemm, gemv, inner_product, reduction, row_normalisation
from schedule.templates.division import balanced
from schedule.templates.lanes import partial_width
from tests.programs import product
from tir import te
from tir.constants import with_constants

WIDE, NARROW = Processor(1, 512, 32, 48 << 10, 1 << 20, 32 << 20), Processor(2, 256, 16, 32 << 10, 1 << 18, 8 << 20)
SIZES = (1, 2, 7, 13, 16, 17, 31, 33, 97, 109, 1024)


@pytest.mark.parametrize("processor", [WIDE, NARROW])
def test_register_tiles_fit(processor):
    """Accumulators, the fewer of rows and vectors of columns, and one of the others; of 32 registers one is free. No tile is larger
    than it has to be."""
    lanes = processor.lanes(32)
    for M, N, K in itertools.product(SIZES, SIZES, (1, 64, 1021)):
        mr, nr, cycles = product_tile(M, N, K, lanes, processor)
        vectors = -(-nr // lanes)
        assert mr * vectors + min(mr, vectors) + 1 <= min(processor.registers, 31)
        assert 1 <= mr <= M and nr <= N and cycles > 0


def test_a_large_product_fills_the_registers():
    mr, nr, _ = product_tile(1000, 1000, 1000, 16, WIDE)
    assert mr * nr // 16 >= 24


@pytest.mark.parametrize(("M", "N"), [(61, 160), (128, 208), (256, 192)])
def test_parts_of_a_sum_that_are_asked_for_are_shared_by_rows(M, N):
    """Rows and columns are shared by the seed. A sum in parts that is asked for has blocks of rows to share."""
    target = tir.Target("llvm", mcpu="znver4", num_cores=2, memory="2,2.83,8/2,2.83,22.6+16x4")
    A, B = te.placeholder((M, 2304), name="A"), te.placeholder((2304, N), name="B")
    k = te.reduce_axis((0, 2304), name="k")
    func = te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
    c = gemm.matches(find_block(func, "C"))
    assert not gemm.tiles(c, target.machine).by_rows
    asked = OpenSchedule(func, target, at_seed=True)
    gemm.build(asked, c, gemm.Sum.IN_PARTS)
    (shared, *_), *_ = asked.tiled("C").levels
    assert asked.loop(shared).extent.value % 2 == 0


@pytest.mark.parametrize("N", [128, 512, 1000])
def test_threads_do_not_write_the_same_rows_of_a_product_with_short_sums(N):
    """Prefetchers of one core would take lines that the other writes: what parts of columns gain in balance is less."""
    target = tir.Target("llvm", mcpu="znver4", num_cores=2, memory="2,2.83,8/2,2.83,22.6+16x4")
    A, B = te.placeholder((512, 32), name="A"), te.placeholder((32, N), name="B")
    k = te.reduce_axis((0, 32), name="k")
    func = te.create_prim_func([A, B, te.compute((512, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
    t = gemm.tiles(gemm.matches(find_block(func, "C")), target.machine)
    assert not t.columns_first and 512 / (t.mc * t.mr) > 1


def test_columns_that_are_not_packed_are_in_one_tile_if_they_end_in_a_part_of_a_vector():
    assert product_tile(65000, 36, 10, 8, WIDE).columns == 36
    assert product_tile(65000, 71, 11, 16, WIDE).columns == 71
    assert product_tile(65000, 40, 10, 8, WIDE).columns < 40  # whole vectors


@pytest.mark.parametrize("processor", [WIDE, NARROW])
def test_tiles_of_transposed_results_have_fewer_stores(processor):
    """Each column of a tile takes a store for each vector of its rows."""
    lanes, fewer = processor.lanes(32), 0
    for M, N, K in itertools.product((7, 13, 17, 28, 56, 109), (13, 24, 32, 64, 96), (64, 288, 1152)):

        def stores(transposed, M=M, N=N, K=K):
            rows = product_tile(M, N, K, lanes, processor, padded=False, transposed=transposed).rows
            return sum(ceil(min(rows, M - row) / lanes) for row in range(0, M, rows))

        assert stores(True) <= stores(False)
        fewer += stores(True) < stores(False)
    assert fewer > 0


@pytest.mark.parametrize("multiple", [1, 2, 3])
def test_balanced_blocks(multiple):
    for tiles, most in itertools.product(range(1, 60), (1, 2, 5, 9)):
        count = balanced(tiles, most, multiple)
        blocks = ceil(ceil(tiles / count) / multiple) * multiple  # some of them empty if need be
        assert 1 <= count <= most
        assert blocks * count >= tiles and ceil(tiles / blocks) == count


def test_balanced_leaves_no_room_where_it_can():
    assert balanced(32, 3, 1) == 2
    assert balanced(32, 5, 1) == 4
    assert balanced(79, 6, 1) == 5  # one tile too many, rather than five
    assert balanced(21, 8, 1) == 7
    assert balanced(73, 16, 2) == 13  # five tiles too many, the least between half of the most and the most


def test_good_width():
    assert partial_width(1024, 16, 4) == 64
    assert partial_width(96, 16, 4) == 48
    assert partial_width(1000, 16, 4) == 64  # the last round is partial, of sixteen
    assert partial_width(109, 16, 4) == 48
    assert partial_width(31, 16, 4) == 16
    assert partial_width(64, 16, 4) == 32  # two rounds


def test_processors():
    def processor(options: str) -> Processor:
        return tir.Target(f"llvm -num-cores 2 {options}").machine

    assert processor("-mcpu x86-64-v4").registers == 32
    assert (processor("-mcpu x86-64-v3").registers, processor("-mcpu x86-64-v3").cores) == (16, 2)
    half = processor("-mcpu x86-64-v4 -vector-bits 256")  # AVX-512 has as many short registers
    assert (half.lanes(32), half.registers) == (8, 32)
    assert processor("-mcpu x86-64 -mattr +avx2,+fma").registers == 16
    first = "-mcpu x86-64 -mattr +avx2,+avx512f"  # which has 32 long registers, and no more short ones than AVX2
    assert (processor(first).registers, processor(f"{first} -vector-bits 256").registers) == (32, 16)


def test_dot_products():
    """All multiply-adds count where threads are worth it; what must run in order stays with `gemm`."""
    A, B = te.placeholder((4, 4096), name="A"), te.placeholder((130, 4096), name="B")
    k = te.reduce_axis((0, 4096), name="k")
    func = te.create_prim_func([A, B, te.compute((4, 130), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")])
    assert inner_product.matches(find_block(func, "C"))
    assert "T.parallel" in templates.schedule(func, tir.Target("llvm -num-cores 8")).script
    once = tir.script.parse(
        "from tir.script import tir as T\n\n\n@T.prim_func\n"
        "def f(A: T.Buffer((4, 130)), B: T.Buffer((33, 130)), C: T.Buffer((4, 33))):\n"
        "    for i, j, k in T.grid(4, 33, 130):\n"
        "        with T.block('C'):\n"
        "            x, y, z = T.axis.remap('SSR', [i, j, k])\n"
        "            with T.init():\n"
        "                C[x, y] = T.float32(1)\n"
        "            C[x, y] = C[x, y] + A[x, z] * B[y, z]\n"
    )
    assert inner_product.matches(find_block(once, "C")) is None and gemm.matches(find_block(once, "C"))


def block(*tensors):
    func = te.create_prim_func([*tensors])
    return find_block(func, tensors[-1].name)


def test_names_do_not_matter():
    """A product by the name of a softmax is a product, and a sum by the name of a product is none."""
    A, B = te.placeholder((7, 13), name="softmax"), te.placeholder((13, 5), name="relu")
    k = te.reduce_axis((0, 13), name="row")
    assert gemm.matches(block(A, B, te.compute((7, 5), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="attention")))
    assert not gemm.matches(block(A, te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="gemm")))


def test_what_is_a_product_and_what_is_none():
    """Any reduction of pairs of elements has the form of a product: shortest paths and squared distances, too."""
    A, B = te.placeholder((7, 13), name="A"), te.placeholder((13, 5), name="B")
    k = te.reduce_axis((0, 13), name="k")

    def found(value, shape=(7, 5)):
        b = block(A, B, te.compute(shape, value, name="C"))
        return [kind for kind in (gemm, gemv, conv2d, depthwise) if kind.matches(b)]

    assert found(lambda i, j: te.sum(A[i, k] * B[k, j], axis=k)) == [gemm]
    assert found(lambda i, j: te.max(A[i, k] * B[k, j], axis=k)) == [gemm]
    assert found(lambda i, j: te.sum(A[i, k].astype("float64") * B[k, j].astype("float64"), axis=k)) == [gemm]
    assert found(lambda i, j: te.sum((A[i, k] - B[k, j]) * (A[i, k] - B[k, j]), axis=k)) == [gemm]
    assert found(lambda i, j: te.sum(A[i, k] * B[k, j] * A[0, k], axis=k)) == []
    assert found(lambda i, j: te.max(A[i, k] * B[12 - k, j], axis=k)) == []
    assert found(lambda i, j: te.sum(A[i, k] * B[12 - k, j], axis=k)) == [conv2d]  # whose image is read backwards
    assert found(lambda i, j: te.sum(A[i, k] * A[i, k], axis=k)) == []


def test_reductions_and_elements():
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    total, double = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="S"), te.compute((7, 13), lambda i, j: A[i, j] * 2.0)
    assert reduction.matches(block(A, total)) and not elementwise.matches(block(A, total))
    assert elementwise.matches(block(A, double)) and not reduction.matches(block(A, double))


def test_rows_need_a_use_of_the_row():
    """The stages of a softmax are found from its last block; a reduction alone is none."""
    s = tir.Schedule(tir.workloads.make("softmax", (7, 13)).func)
    found = row_normalisation.matches(s, "Y")
    assert found is not None and found.stages == ("top", "power", "total") and found.reductions == ("top", "total")
    part = row_normalisation.matches(s, "power")
    assert part is not None and part.stages == ("top",)
    assert row_normalisation.matches(s, "top") is None
    assert row_normalisation.matches(s, "Y", taken={"top", "power", "total"}) is None


@pytest.mark.parametrize(
    ("rows", "columns", "fetching"),
    [
        (97, 109, ["softmax"]), (97, 511, ["softmax"]), (97, 512, ["softmax", "layernorm"]),
        (15, 512, []), (7, 109, []), (7, 1 << 17, []),
    ],
)  # fmt: skip
def test_stages_that_read_no_new_row_fetch_the_next_one(rows, columns, fetching):
    """If all rows are larger than the first-level cache, and two of them with what is made of one fit into the second-level one.
    That is a stage with a function of each element, and one that reads a row of half a page or more again."""
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v3", l1=32 << 10, l2=1 << 20)
    for name in ("softmax", "layernorm"):
        script = templates.schedule(tir.workloads.make(name, (rows, columns)).func, target).script
        assert script.count(f'"prefetch": [["X", {columns}]]') == (name in fetching)


def test_rows_times_a_parameter_without_dimensions():
    A, scale = te.placeholder((97, 109), name="A"), te.placeholder((), name="scale")
    k = te.reduce_axis((0, 109), name="k")
    total = te.compute((97,), lambda i: te.sum(A[i, k], axis=k), name="S")
    made = te.compute((97, 109), lambda i, j: te.exp(A[i, j] * scale()) / total[i], name="Y")
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v3", l1=32 << 10, l2=1 << 20)
    assert '"prefetch": [["A", 109]]' in templates.schedule(te.create_prim_func([A, scale, made]), target).script


def test_rows_whose_result_ends_in_a_dimension_of_one_element_are_scheduled():
    from tir.script import tir as T

    @T.prim_func
    def mean_free(A: T.Buffer((7, 13), "float32"), Y: T.Buffer((7, 13, 1), "float32")):
        S = T.alloc_buffer((7,), "float32")
        for i, k in T.grid(7, 13):
            with T.block("S"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + A[vi, vk]
        for i, j in T.grid(7, 13):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj, 0] = A[vi, vj] - S[vi]

    assert row_normalisation.matches(tir.Schedule(mean_free), "Y") is None
    assert tir.default_schedule(mean_free, "llvm").trace


def test_unknown_functions_are_left_alone():
    from tir.script import tir as T

    @T.prim_func
    def symbolic(A: T.handle, B: T.handle):
        n = T.int32()
        X = T.match_buffer(A, (n,))
        Y = T.match_buffer(B, (n,))
        for i in range(n):
            with T.block("Y"):
                j = T.axis.spatial(n, i)
                Y[j] = X[j] + T.float32(1)

    target = tir.Target("llvm -mcpu x86-64-v3")
    assert templates.schedule(symbolic, target) is None
    narrow = tir.workloads.make("conv2d_nhwc", (1, 8, 8, 3, 3, 3, 1, 1))  # fewer channels than half a vector
    assert templates.schedule(narrow.func, target) is None


def test_sums_of_convolutions_are_cut_where_parts_stay_nearer():
    """Parts divide axes. There is one where L1 holds a panel and the lines of a tile, or where threads share rows."""

    def parts(shape, processor, program="conv2d_nhwc", name="Y"):
        found = conv2d.matches(find_block(tir.workloads.make(program, shape).func, name))
        return conv2d._fastest(found, RegisterTile(7, 64, 0.0), processor)[0]

    small, large = (Processor(1, 512, 32, l1 << 10, 64 << 10, 32 << 20) for l1 in (48, 1024))
    for shape in ((1, 13, 7, 40, 97, 3, 1, 1), (1, 13, 7, 109, 97, 3, 1, 1)):
        counts = parts(shape, small)
        assert prod(counts) > 1 and all(n % count == 0 for n, count in zip((3, 3, shape[3]), counts, strict=True))
        assert parts(shape, large) == [1, 1, 1]
    assert parts((1, 13, 7, 109, 97, 1, 1, 1), small) == [1, 1, 1]  # a prime number of channels is not cut
    assert parts((1, 9, 7, 40, 97, 3, 3, 1, 1), small, "conv2d", "conv")[0] > 1
    assert parts((1, 40, 109, 40, 97, 3, 3, 1, 1), replace(large, cores=5), "conv2d", "conv") == [1, 1, 1]


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1)])
def test_windows_are_unrolled_without_spills(kernel, stride, mcpu):
    """Taps share elements by their stride, and registers do not hold those of all taps beside a tile."""
    func = tir.workloads.make("conv2d", (1, 29, 29, 13, 40, kernel, kernel, stride, kernel // 2)).func
    target = tir.Target("llvm -num-cores 1", mcpu=mcpu)
    found = [loop for loop in tir.build(templates.schedule(func, target).func, target).report().loops if loop.fma]
    assert found and all(loop.spills == 0 and loop.fma > 16 for loop in found)


def test_what_is_packed_once_costs_nothing():
    """Constants are packed where others, which stay in the second-level cache, are read as they are; and are fetched ahead."""
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v4 -l2 2097152")
    func = product(30, 320, 250)
    plain, packed = (templates.schedule(with_constants(func, names), target) for names in ([], ["B"]))
    assert "B_global" not in plain.script and "B_global" in packed.script
    assert '"prefetch": [["B_global", 32]]' in packed.script  # more than the first-level cache holds


@pytest.mark.parametrize("kernel", [1, 3])
def test_packed_weights_of_a_convolution_are_fetched_ahead(kernel):
    """Loops over the elements of a kernel of one element move nothing: the loop over its channels does."""
    func = with_constants(tir.workloads.make("conv2d", (1, 7, 7, 109, 97, kernel, kernel, 1, kernel // 2)).func, ["K"])
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v3")
    s = templates.decided(func, target, {"template of conv": "direct convolution"}).plain(func)
    assert tir.build(s.func, target).main.llvm_ir().count("@llvm.prefetch") > 1


def test_columns_in_memory_are_packed_in_long_pieces_of_rows():
    """Where the first line of a piece costs more than those that follow it, a block of columns is wider."""
    left, right = Operand(4, 4, 4 * 4099), Operand(4, 4, 4 * 4093, (True,))
    product = Product(17, 4093, 4099, 32, left, right, steps=4099, columns_first=True)
    near, far = (
        fastest(product, RegisterTile(4, 24, 1.0), replace(NARROW, measured=Memory((2.0, 6.0, 14.0), (2.0, 6.0, row))), 1)[0]
        for row in (14.0, 20.0)
    )
    assert near.columns_first and far.columns_first and far.nc > near.nc


@pytest.mark.parametrize("cores", [1, 2])
def test_a_copy_of_pieces_of_rows_fetches_the_next_rows(cores):
    """The rows of a matrix that L2 does not hold. Constants are packed before any call."""
    target, large = tir.Target(f"llvm -mcpu x86-64-v3 -num-cores {cores}"), product(24, 1021, 509)
    known = with_constants(large, ["B"])
    for func, fetched in ((large, True), (product(24, 127, 109), False), (known, False)):
        s = templates.decided(func, target, {"pack B for C": "in front"}).plain(func)
        assert ('"prefetch": [["B"' in s.script) is fetched
    s = templates.decided(large, target, {"pack B for C": "in front"}).plain(large)
    packing = s.script.index('"prefetch": [["B"')
    assert packing < s.script.index('T.block("B_global")') and "@llvm.prefetch" in tir.build(s.func, target).main.llvm_ir()


@pytest.mark.parametrize("rows", [2, 3, 7, 13])
def test_inner_products_have_a_vector_of_the_sum_for_each_of_the_few(rows):
    """Rows or columns; and the more of these there are, the longer is the shortest sum."""

    def suited(*shape: int) -> bool:
        M, N, K = shape
        A, B, k = te.placeholder((M, K), name="A"), te.placeholder((N, K), name="B"), te.reduce_axis((0, K), name="k")
        func = te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")])
        return inner_product.suits(inner_product.matches(find_block(func, "C")), WIDE)

    assert suited(rows, 109, 16 * rows) and suited(109, rows, 16 * rows)
    assert not suited(rows, 109, 16 * rows - 1) and not suited(109, rows, 16 * rows - 1)


def test_few_rows_of_a_constant():
    """Its dot products are no longer without an alternative: it need not be transposed at each call."""
    A, B = te.placeholder((8, 768), name="A"), te.placeholder((96, 768), name="B")
    k = te.reduce_axis((0, 768), name="k")
    func = te.create_prim_func([A, B, te.compute((8, 96), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")])
    for machine in (WIDE, NARROW):
        found = inner_product.matches(find_block(func, "C"))
        assert inner_product.cycles(found, machine) < gemm.cycles(found, machine)
        assert inner_product.cycles(found, machine) > gemm.cycles(found, machine, frozenset({"B"}))


def test_threads_share_a_matrix_that_other_kernels_evict():
    """600 KB: alone they stay in the second-level cache, where one thread has read them as soon as a second one would start."""

    def product(constants):
        x, w = te.placeholder((160,), name="x"), te.placeholder((160, 960), name="w")
        k = te.reduce_axis((0, 160), "k")
        y = te.compute((960,), lambda j: te.sum(x[k] * w[k, j], axis=k), name="y")
        return te.create_prim_func([x, w, y], constants=[w] if constants else [])

    target = "llvm -num-cores 2 -mcpu x86-64-v4 -l2 1048576"
    shared = ["T.parallel" in tir.default_schedule(product(c), target).func.script() for c in (False, True)]
    assert shared == [False, True]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "rows", "loads"),
    [(56, 3, 1, 14, 48), (14, 3, 1, 14, 48), (56, 3, 2, 14, 116), (28, 5, 1, 7, 55)],
)
def test_depthwise_convolutions_load_each_vector_once(size, kernel, stride, rows, loads):
    """Each vector of a row of the image is loaded once a tile, from where it is, for all rows of the result; of a stride of two,
    taps that differ by one share what they are picked from. There are no copies and no gathers."""
    func = tir.workloads.make("depthwise", (1, size, size, 8, kernel, kernel, stride, kernel // 2)).func
    target = "llvm -num-cores 1 -mcpu x86-64-v4"
    made = tir.build(templates.schedule(func, tir.Target(target)).func, target)
    text, versions = made.llvm_ir(), 1 if size < 16 else 2  # of the tile: whole, and with lanes that are not there
    assert text.count("@llvm.fmuladd.v16f32(") == 1 + versions * rows * kernel**2
    found = re.findall(r"= load <16 x float>, ptr %t|= call <16 x float> @llvm.masked.load", text)
    assert len(found) == versions * loads
    assert "gather" not in text and re.findall(r"(\S+) = alloca \[", text) == ["%zeros"]  # what is read above and below the image


@pytest.mark.parametrize(("size", "kernel", "stride", "edges"), [(56, 3, 2, 1), (27, 3, 1, 4), (28, 5, 1, 4)])
def test_padding_is_asked_for_by_its_rows_alone(size, kernel, stride, edges):
    """The rows of a depthwise tile that may lie above or below the image ask whether they do; the others, which cannot, do not."""
    X, W = te.placeholder((8, size, size), name="X"), te.placeholder((8, kernel, kernel), name="W")
    around, count = kernel // 2, (size - 1) // stride + 1

    def padded(c, i, j):
        inside = [(around <= x) & (x < size + around) for x in (i, j)]
        return te.if_then_else(inside[0] & inside[1], X[c, i - around, j - around], 0.0)

    P = te.compute((8, size + 2 * around, size + 2 * around), padded, name="P")
    r, q = te.reduce_axis((0, kernel), "r"), te.reduce_axis((0, kernel), "q")
    taps = lambda c, i, j: te.sum(P[c, i * stride + r, j * stride + q] * W[c, r, q], axis=[r, q])  # noqa: E731
    func = te.create_prim_func([X, W, te.compute((8, count, count), taps, name="Y")])
    target = "llvm -num-cores 1 -mcpu x86-64-v3"
    text = tir.build(templates.schedule(func, tir.Target(target)).func, target).llvm_ir()
    asked = set(re.findall(r"select i1 (%\S+), ptr", text))
    assert len(asked) == edges


@pytest.mark.parametrize("extents", [(14, 14), (3, 5, 7), (28, 28), (5, 5), (7, 7)])
def test_rows_in_memory_are_summed_as_one(extents):
    """The last axes of what is read are one row, whose lanes run on from one of its own rows to the next."""
    X = te.placeholder((9, 11, *extents), name="X")
    k = [te.reduce_axis((0, n), f"k{i}") for i, n in enumerate(extents)]
    func = te.create_prim_func([X, te.compute((9, 11, 1), lambda n, c, _: te.sum(X[(n, c, *k)], axis=k), name="Y")])
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v4")
    text = tir.build(templates.schedule(func, target).func, target).llvm_ir()
    assert "gather" not in text and text.count("= load float, ptr") <= 4  # of results, before lanes are added to them
    x = np.random.default_rng(0).integers(-9, 9, (9, 11, *extents)).astype("float32")
    y = np.full((9, 11, 1), np.nan, "float32")
    tir.compile(func, "llvm -num-cores 1")(x, y)
    assert (y[..., 0] == x.reshape(9, 11, -1).sum(-1)).all()


@pytest.mark.parametrize("length", [2, 3, 4, 13])
def test_sums_of_short_rows_combine_lanes(length):
    X, k = te.placeholder((109, length), name="X"), te.reduce_axis((0, length), "k")
    func = te.create_prim_func([X, te.compute((109,), lambda n: te.sum(X[n, k], axis=k), name="Y")])
    target = tir.Target("llvm -num-cores 1 -mcpu x86-64-v4")
    assert "combine_lanes" in templates.schedule(func, target).script
    x, y = np.random.default_rng(0).integers(-9, 9, (109, length)).astype("float32"), np.full(109, np.nan, "float32")
    tir.compile(func, "llvm -num-cores 1")(x, y)
    assert (y == x.sum(1)).all()


def test_a_convolution_of_few_weights_reads_the_image_where_it_is():
    """As the first of a network: there is no copy of the image, and no tap of it is gathered. One of more weights unrolls it."""

    def text(channels: int) -> str:
        func = tir.workloads.make("conv2d", (1, 224, 224, channels, 32, 3, 3, 2, 1)).func
        return tir.build(templates.schedule(func, tir.Target(target)).func, target).llvm_ir()

    target = "llvm -num-cores 1 -mcpu x86-64-v4"
    first, later = text(3), text(64)
    assert "gather" not in first and "aligned_alloc" not in first and "aligned_alloc" in later


SLOW = Processor(1, 512, 32, 32 << 10, 1 << 20, 32 << 20, "znver4")  # one multiply-add of vectors a cycle
FAR = replace(WIDE, measured=Memory((2.0, 8.0, 20.0), (2.0, 40.0, 80.0)))  # a server of which others have most of the caches
MACHINES = {"wide": WIDE, "narrow": NARROW, "slow": SLOW, "far": FAR}


def packed(machine, rows, columns, steps):
    return gemm.tiles(gemm.matches(find_block(product(rows, columns, steps), "C")), machine, columns_first=True).right


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("columns", [384, 509, 768, 1000, 1024, 3001, 4096])
def test_enough_rows_pay_for_the_copy_of_columns_that_the_second_cache_does_not_hold(machine, columns):
    assert packed(MACHINES[machine], 2000, columns, 1021)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_packed_though_the_first_cache_holds_them(dtype):
    """They are converted once so."""
    A, B = te.placeholder((2000, 100), dtype, name="A"), te.placeholder((100, 110), dtype, name="B")
    k, wide = te.reduce_axis((0, 100), name="k"), "float32"
    C = te.compute((2000, 110), lambda i, j: te.sum(A[i, k].astype(wide) * B[k, j].astype(wide), axis=k), name="C")
    narrow = gemm.matches(find_block(te.create_prim_func([A, B, C]), "C"))
    small = replace(WIDE, l1=24 << 10)  # less than 100 x 110 floats
    assert gemm.tiles(narrow, small).right and packed(small, 2000, 111, 100)


def test_a_slice_counts_the_bytes_that_are_read():
    """Sixty-four of 4,112 columns: L1 holds them, though their rows lie far apart."""
    A, B, k = te.placeholder((300, 100), name="A"), te.placeholder((100, 4112), name="B"), te.reduce_axis((0, 100), name="k")
    C = te.compute((300, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    found = gemm.matches(find_block(te.create_prim_func([A, B, C]), "C"))
    assert gemm._row_bytes(found) == 4 * 4112


def test_a_step_of_the_sum_passes_all_dimensions_behind_its_own():
    A, B, k = te.placeholder((300, 100), name="A"), te.placeholder((100, 5, 64), name="B"), te.reduce_axis((0, 100), name="k")
    C = te.compute((5, 300, 64), lambda h, i, j: te.sum(A[i, k] * B[k, h, j], axis=k), name="C")
    found = gemm.matches(find_block(te.create_prim_func([A, B, C]), "C"))
    assert gemm._row_bytes(found) == 4 * 5 * 64


@pytest.mark.parametrize("columns", [509, 768, 1000, 3001])
@pytest.mark.parametrize("rows", [8, 32, 97, 256, 700])
def test_columns_are_packed_sooner_where_rows_are_farther_away(rows, columns):
    near, far = (packed(machine, rows, columns, 1021) for machine in (WIDE, FAR))
    assert far >= near and packed(FAR, rows, 3001, 1021)


@pytest.mark.parametrize("machine", MACHINES)
def test_columns_are_packed_sooner_where_rows_fall_into_the_same_sets(machine):
    """Of rows a page long, L2 has room for few; rows of a line more go everywhere."""
    same, others = (packed(MACHINES[machine], 97, columns, 800) for columns in (1024, 1040))
    assert same >= others and packed(MACHINES[machine], 700, 1024, 800)


# A step of a tile takes six cycles, a line from L2 two.
HASTY = tir.Target("llvm -mcpu znver3 -num-cores 1 -l1 32768 -l2 524288 -l3 33554432").machine


@pytest.mark.parametrize(("rows", "columns", "steps"), [(256, 256, 256), (784, 512, 128), (128, 64, 768), (256, 192, 2304)])
def test_columns_from_l2_are_packed_where_multiply_adds_are_as_fast_as_their_lines(rows, columns, steps):
    """Of pieces of rows none is prefetched. What L1 holds is read where it is."""
    assert packed(HASTY, rows, columns, steps)
    assert not packed(HASTY, 40, 32, 64)


@pytest.mark.parametrize(("nbytes", "row", "alignment", "lines"), [
    (64, 1024, 64, 1), (64, 1024, 16, 1.75), (64, 1040, 64, 1.75), (96, 768, 64, 2), (32, 1024, 64, 1), (32, 1024, 16, 1.25),
    (4, 4, 4, 1), (12, 12, 4, 1.125),
])  # fmt: skip
def test_lines_of_pieces_of_rows(nbytes, row, alignment, lines):
    operand = Operand(4, 4, row, alignment=alignment)
    assert lines_of_pieces(nbytes, operand) == lines
    starts = [alignment * n + row * k + nbytes * j for n in range(64) for k in range(64) for j in range(64)]
    touched = [(start + nbytes - 1) // 64 - start // 64 + 1 for start in starts]
    assert sum(touched) / len(touched) == pytest.approx(lines)


@pytest.mark.parametrize("machine", MACHINES)
def test_columns_of_a_single_tile_of_rows_are_not_packed(machine):
    """Each is read once, in place or for its copy."""
    assert not any(packed(MACHINES[machine], 4, columns, 64) for columns in (16, 32, 64))


@pytest.mark.parametrize(("columns", "steps", "packed"), [
    *((256, steps, False) for steps in (512, 1000, 1020, 1400)),
    *((256, steps, True) for steps in (1023, 1024, 2048)),
    (32, 2048, False),
])  # fmt: skip
def test_rows_are_packed_where_they_share_a_set(columns, steps, packed):
    """Of the first-level cache, which has eight lines in a set; a tile has a dozen rows or more. For a few
    columns none are."""
    found = gemm.matches(find_block(product(97, columns, steps), "C"))
    assert gemm.tiles(found, SLOW).left == packed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_a_packed_copy_are_an_odd_number_of_lines_apart(dtype):
    A, B = te.placeholder((97, 1024), dtype, name="A"), te.placeholder((1024, 256), dtype, name="B")
    k = te.reduce_axis((0, 1024), name="k")
    func = te.create_prim_func([A, B, te.compute((97, 256), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
    script = templates.schedule(func, tir.Target("llvm -num-cores 1 -mcpu x86-64-v4", l1=48 << 10, l2=1 << 20)).script
    ((multiple, offset),) = re.findall(r'"buffer_dim_align": \[\[0, \d+, (\d+), (\d+)\]\]', script)
    assert [int(n) * np.dtype(dtype).itemsize for n in (multiple, offset)] == [128, 64]


def test_last_columns_that_are_dot_products():
    """Few columns more than vectors, of rows that are read in place."""

    def columns(processor, *sizes):
        return gemm.plan(gemm.matches(find_block(product(*sizes), "C")), processor).dots

    assert [columns(WIDE, 256, n, 1152) for n in (15, 16, 17, 33, 48, 49, 50, 63)] == [0, 0, 1, 1, 0, 1, 2, 0]
    assert columns(WIDE, 256, 2049, 4096) == 0  # rows are packed
    assert any(columns(replace(NARROW, cores=1), 256, n, 1152) == 1 for n in (9, 17, 25, 33, 41, 49))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("cores", [2, 3, 8])
def test_more_threads_never_take_longer_by_the_model(machine, cores):
    for shape in ((128, 128, 600), (600, 600, 600), (97, 509, 1021), (13, 4000, 700), (3001, 17, 400)):
        times = []
        for threads in (1, cores):
            M, N, K = shape
            tile = product_tile(M, N, K, MACHINES[machine].lanes(32), MACHINES[machine])
            made = Product(M, N, K, 32, Operand(4, 4, 4 * K), Operand(4, 4, 4 * N), steps=K, columns_first=True)
            best, cycles = fastest(made, tile, MACHINES[machine], threads)
            assert best.by_rows or threads > 1
            times.append(cycles / threads)
        assert times[1] <= times[0]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [(8, 2000, 4000), (300, 2000, 4000), (3000, 1100, 1100), (97, 109, 130), (1, 7, 13)])
def test_blocks_fit_the_second_cache(machine, shape):
    """A block of columns beside a tile of rows; blocks of rows that are read for several blocks of columns stay in L3."""
    found, processor = gemm.matches(find_block(product(*shape), "C")), MACHINES[machine]
    t = gemm.tiles(found, processor)
    assert 1 <= t.kc <= shape[2] and t.nr * (t.nc - 1) < shape[1] and t.mr * (t.mc - 1) < shape[0]
    columns, rows = min(shape[1], t.nr * t.nc), min(shape[0], t.mr * t.mc)
    assert 4 * t.kc * (columns + min(rows, t.mr)) <= processor.l2 or t.nc == 1
    several = t.nr * t.nc < shape[1] and not t.columns_first
    assert not several or 4 * t.kc * (columns + rows) <= processor.l3_reuse_bytes or t.mc == 1


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("rows", "columns", "steps"), [(33, 1024, 600), (100, 1530, 1400)])
def test_few_rows_have_columns_packed_where_they_are_used(rows, columns, steps, cores):
    """In the loop of their block, and of the part of the sum where it has parts; a row of the source is read at once."""
    target = tir.Target(f"llvm -mcpu x86-64-v3 -num-cores {cores} -l1 32768 -l2 524288")
    s = tir.default_schedule(product(rows, columns, steps), target)
    names = [loop.rsplit("_", 1)[0] for loop in s.get_loops("C")]
    assert names[0] == "j" and "i" in names[1:3]
    *_, panels, part, _ = next(b for b in s.func.allocs if b.name == "B_global").shape
    around = [x.extent for x in loops_of(s.func, "B_global")]
    assert panels in around[around.index(part) + 1 :]


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "float16"])
@pytest.mark.parametrize(("image", "channels"), [((7, 7), 1024), ((7, 7), 33), ((2, 7, 5), 48), ((3, 3), 19), ((5, 11), 40)])
def test_pixels_of_small_images_are_transposed_as_one_row(image, channels, dtype):
    """Channels last become channels first, beside an array that lies so already: squares of both, also at their edges."""
    X, Z = te.placeholder((*image, channels), dtype, name="X"), te.placeholder((channels, *image), dtype, name="Z")
    func = te.create_prim_func([X, Z, te.compute((channels, *image), lambda c, *p: te.maximum(X[(*p, c)], Z[(c, *p)]), name="Y")])
    made = templates.schedule(func, tir.Target("llvm -num-cores 1 -mcpu x86-64-v3"))
    rng = np.random.default_rng(0)
    x, z = (rng.integers(0, 99, shape).astype(dtype) for shape in ((*image, channels), (channels, *image)))
    y = np.empty_like(z)
    tir.build(made.func, "llvm -num-cores 1")(x, z, y)
    assert np.array_equal(y, np.maximum(np.moveaxis(x, -1, 0), z))
    lanes = 4 if dtype == "float64" else 8
    row = next(n for n in (*accumulate(reversed(image), mul), lanes) if n >= min(lanes, prod(image)))
    assert f"T.axis.spatial({row}, " in made.script
