"""Weights of 8 and 4 bits: products that convert them where they are read, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tir
from graph import Builder
from graph.compilation import passes_for
from graph.fusion import fuse
from graph.ir import Graph
from graph.ops import find
from graph.ops.unpacked import MAX_BLOCK, byte_codes, middle, packed
from graph.passes import optimize
from graph.passes import weights as graph_weights
from graph.passes.check import check_passes
from graph.passes.weights import dot_lanes, keep_weights_narrow, vector_registers
from graph.reference import evaluate
from schedule.primitive import find_loop
from tests.emulation import arm, emulate, needs_emulator
from tir import load_onnx
from tir.ir import Const

from .models import model

ONE = "llvm -num-cores 1"
FLOATS = f"{ONE} -mcpu x86-64-v3"  # without dot products of bytes
ROUNDED_LANES, MOST_ROW_BITS = dot_lanes(tir.Target(ONE))
LANES = ROUNDED_LANES if MOST_ROW_BITS == 32 else None  # of rows that keep 32 bits
MOST_ROWS = vector_registers(tir.Target(FLOATS)) // 2  # each row has a sum of a block, and one of all
UNIT = 2.0**-24  # the unit roundoff of float32
RNG = np.random.default_rng(0)


class Case:
    """A product of x by weights (number - zero) * scale, and what it is in float64. Numbers of `bits` bits are in blocks along the sum."""

    def __init__(self, rows, steps, columns, block=0, symmetric=True, operator="MatMul", transposed=False, bias=False, bits=4):
        most = 1 << bits
        low, high = (-most // 2, most // 2) if symmetric and block else (0, most) if block else (-127, 128)
        self.numbers = RNG.integers(low, high, (steps, columns)).astype("int8" if symmetric else "uint8")
        groups = -(-steps // block) if block else 1
        self.scales = RNG.uniform(0.5, 1, (groups, columns)).astype("f4")
        self.zeros = None if symmetric else RNG.integers(0, most, self.scales.shape).astype("uint8")
        self.x, self.bias = RNG.standard_normal((rows, steps)).astype("f4"), RNG.standard_normal(columns).astype("f4")
        turned = [
            None if a is None else a.T if transposed and a.ndim == 2 else a for a in (self.numbers, self.scales, self.zeros)
        ]
        constants = {n: a for n, a in zip("wsz", turned, strict=True) if a is not None} | ({"b": self.bias} if bias else {})
        if not block:
            constants["s"] = self.scales[0]
        axis = {"axis": int(transposed), "block_size": block} if block else {"axis": int(not transposed)}
        names = [n for n in "wsz" if n in constants]
        nodes = [
            helper.make_node("DequantizeLinear", names, ["d"], **axis),
            helper.make_node(operator, ["x", "d", *(["b"] if bias else [])], ["y"], **({"transB": 1} if transposed else {})),
        ]
        self.graph = load_onnx(model(nodes, {"x": self.x}, ["y"], constants, opset=21))
        by_step = np.repeat(np.arange(groups), block or steps)[:steps]
        zero = 0 if self.zeros is None else self.zeros[by_step].astype("f8")
        weights = (self.numbers - zero) * self.scales[by_step].astype("f8")
        x, add = self.x.astype("f8"), self.bias if bias else 0
        self.exact, self.size = x @ weights + add, np.abs(x) @ np.abs(weights) + np.abs(add)
        # Of products by numbers as they are stored, from 0 on, before what the zero points add is taken away.
        self.stored = np.abs(x) @ (most * self.scales[by_step].astype("f8")) if block else 0

    def check(self, found: np.ndarray) -> None:
        steps = self.x.shape[1]
        bound = UNIT * ((steps + 2) * self.size + 4 * np.sqrt(steps) * self.stored)
        assert (np.abs(found - self.exact) <= bound).all()
        assert np.abs(self.exact).max() > 100 * bound.max(), "the bound says something"


def operators(graph: Graph) -> list[str]:
    return [c.operator for c in graph.calls]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("target", [ONE, FLOATS])
@pytest.mark.parametrize(
    ("rows", "steps", "columns", "block"),
    [(1, 64, 48, 32), (1, 200, 109, 64), (3, 130, 32, 128), (7, 96, 16, 32), (1, 33, 5, 32), (1, 64, 1, 128), (13, 31, 96, 64)],
)
def test_blocks_of_4_and_8_bits(rows, steps, columns, block, target, symmetric, bits):
    """Whole and partial vectors; sums that end within a block, and within a word."""
    case = Case(rows, steps, columns, block, symmetric, bits=bits)
    compiled = tir.compile(case.graph, target)
    lanes = LANES if target == ONE else None
    few = "BlockProduct" if rows <= vector_registers(tir.Target(target)) // 2 else "UnpackBlocks"
    assert operators(compiled.graph)[0] == ("BlockDots" if lanes and columns % lanes == 0 else few)
    case.check(compiled(case.x)[0])
    for narrow in (keep_weights_narrow(case.graph), keep_weights_narrow(case.graph, 1)):
        case.check(evaluate(narrow, [case.x])[0])
    assert {a.dtype.name for a in narrow.constants.values()} == {"uint8", "float32"}


@pytest.mark.parametrize("bits", [4, 8])
def test_many_rows_unpack_blocks_once(bits):
    case = Case(MOST_ROWS + 1, 70, 24, 32, bits=bits)
    compiled = tir.compile(case.graph, FLOATS)
    assert operators(compiled.graph)[:2] == ["UnpackBlocks", "MatMul"]
    case.check(compiled(case.x)[0])


def dots(x: np.ndarray, columns: int = 32, bits: int = 4, **attributes) -> tuple[Graph, np.ndarray, np.ndarray]:
    """A product by blocks of 32 numbers with a middle zero point, the weights, and the product in float64."""
    numbers = RNG.integers(0, 1 << bits, (x.shape[1], columns))
    scales = RNG.uniform(0.5, 1, (x.shape[1] // 32, columns)).astype("f4")
    builder = Builder(fold=False)
    given = [builder.constant(a) for a in (packed(numbers, 32, len(scales), bits), scales)]
    y = builder("BlockProduct", builder.input("x", x.shape, "float32"), *given, bits=bits, **attributes)
    weights = (numbers - middle(bits)) * np.repeat(scales, 32, axis=0).astype("f8")
    return builder.graph(y=y), weights, x.astype("f8") @ weights


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 2, 12, 109])
def test_rows_may_be_rounded_to_8_bits(rows, bits):
    """By leave alone, and to the nearest of 127 steps of the largest magnitude of a block."""
    x = RNG.standard_normal((rows, 96)).astype("f4") * np.float32(10.0) ** RNG.integers(-3, 3, (rows, 1)).astype("f4")
    graph, weights, exact = dots(x, bits=bits, row_bits=8)
    most = np.abs(x.reshape(rows, -1, 32)).max(-1).repeat(32, axis=1)
    rounded = np.rint(x / (most / 127)) * (most / 127)
    for found in (evaluate(keep_weights_narrow(graph, 1), [x])[0], tir.compile(graph, ONE)(x)[0]):
        assert (np.abs(found - exact) <= most / 127 * 0.51 @ np.abs(weights)).all()
        if ROUNDED_LANES:  # ties of rounding are rare, and count for one step
            close = np.abs(found - rounded @ weights) <= 1e-5 * np.abs(rounded) @ np.abs(weights)
            assert close.mean() > 0.9 and np.abs(found - exact).max() > 1e-4 * np.abs(exact).max()


def test_fixed_point_rows_keep_zeros_tiny_numbers_and_what_is_not_finite():
    x = np.zeros((6, 64), "f4")
    x[1], x[2, 3], x[3, 40], x[4, 5] = 1e-20, np.nan, np.inf, -np.inf
    x[5] = np.where(np.arange(64) < 32, 1e-35, 1e30)  # blocks have scales of their own
    with np.errstate(invalid="ignore"):
        graph, weights, exact = dots(x)
    for found in (evaluate(keep_weights_narrow(graph, 1), [x])[0], tir.compile(graph, ONE)(x)[0]):
        assert (found[0] == 0).all() and not np.isfinite(found[2:5]).any()
        assert (np.abs(found - exact)[[1, 5]] <= 1e-6 * np.abs(x[[1, 5]]) @ np.abs(weights)).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", ["middle", "integers", "floats"])
@pytest.mark.parametrize(("rows", "steps"), [(1, 96), (13, 77)])
def test_fixed_point_rows_are_off_by_the_rounding_of_their_largest(rows, steps, points, bits):
    """Elements of one sign, beside outliers, and of all magnitudes; numbers at an integer zero point add nothing at all."""
    numbers, scales = RNG.integers(0, 1 << bits, (steps, 32)), RNG.uniform(-1, 1, (3, 32)).astype("f4")
    zeros = {"middle": None, "integers": RNG.integers(0, 1 << bits, (3, 32)).astype("uint8")}.get(
        points, scales + np.float32(2.3)
    )
    block = np.arange(steps) // 32
    zero = np.full((steps, 32), middle(bits)) if zeros is None else zeros[block].astype("f8")
    if points != "floats":
        numbers[:, ::3] = zero[:, ::3]
    builder = Builder(fold=False)
    given = [builder.constant(a) for a in (packed(numbers, 32, 3, bits), scales, zeros) if a is not None]
    graph = builder.graph(y=builder("BlockProduct", builder.input("x", (rows, steps), "float32"), *given, bits=bits))
    narrow, compiled = keep_weights_narrow(graph, 1), tir.compile(graph, ONE)
    weights = np.abs(numbers - zero) * np.abs(scales[block])
    taken = (np.abs(numbers) + np.abs(zero)) * np.abs(scales[block]) if points == "floats" else weights
    plain = np.abs(RNG.standard_normal((rows, steps))).astype("f4")
    outliers, mixed = plain.copy(), plain * np.float32(10.0) ** RNG.integers(-12, 12, steps).astype("f4")
    outliers[:, [3, 40]] *= np.float32(1e6)
    for x in (plain, outliers, mixed):
        most = np.stack([x[:, block == b].max(1) for b in range(3)])[block].T
        exact = x.astype("f8") @ ((numbers - zero) * scales[block])
        for found in (evaluate(narrow, [x])[0], *([compiled(x)[0]] if LANES else [])):
            assert (np.abs(found - exact) <= UNIT * (1.1 * most @ weights + 9 * x @ taken)).all()


def test_a_block_whose_sums_no_int32_holds_is_multiplied_as_floats():
    steps = 2 * MAX_BLOCK
    builder = Builder(fold=False)
    given = [builder.constant(a) for a in (packed(np.full((steps, 16), 255), steps, 1, 8), np.ones((1, 16), "f4"))]
    graph = builder.graph(y=builder("BlockProduct", builder.input("x", (1, steps), "float32"), *given, bits=8))
    assert operators(keep_weights_narrow(graph, 1)) == ["BlockProduct"]
    found = tir.compile(graph, ONE)(np.full((1, steps), -1, "f4"))[0]
    assert (np.abs(found + 127.0 * steps) <= UNIT * steps * (255 + 128) * steps).all()


def test_rows_keep_8_or_32_bits():
    with pytest.raises(ValueError, match="rows that keep 8 or 32 bits are supported, got row_bits=16"):
        dots(np.zeros((1, 32), "f4"), row_bits=16)


def test_codes_have_the_first_numbers_of_a_word_lowest():
    numbers = np.arange(16)[:, None].repeat(3, 1)
    codes = byte_codes(packed(numbers, 16, 1, 4), 4)
    assert codes.shape == (1, 2, 3, 4) and (codes[0, 1, 2] & 15).tolist() == [8, 9, 10, 11]
    assert (codes[0, 1, 2] >> 4).tolist() == [12, 13, 14, 15]
    assert byte_codes(packed(numbers, 16, 1, 8), 8)[0, 3, 0].tolist() == [12, 13, 14, 15]


@pytest.mark.parametrize("row_bits", [32, 8])
@pytest.mark.parametrize("processor", ["znver4", "sapphirerapids", "alderlake", "x86-64-v3", "skylake-avx512", "x86-64"])
def test_dot_products_of_few_bits_by_processor(processor, row_bits):
    """Numbers are unpacked in a buffer that is not made in advance, once for the rows of a tile. Without VNNI, sums of pairs of
    products pay for one digit."""
    target = tir.Target(f"{ONE} -mcpu {processor}")
    lanes, most = dot_lanes(target)
    by_dots = lanes is not None and row_bits <= most
    vnni, pairs = processor in ("znver4", "sapphirerapids", "alderlake"), processor in ("x86-64-v3", "skylake-avx512")
    assert by_dots == (vnni or (pairs and row_bits == 8))
    graph, *_ = dots(np.zeros((8, 64), "f4"), row_bits=row_bits)
    (group, *_) = fuse(optimize(graph, passes_for(target)))
    script = tir.default_schedule(group.func, target).func.script()
    assert ("vpdpbusd" in script) == ('scope="local"' in script) == by_dots


@needs_emulator
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("rows", "row_bits"), [(1, 32), (13, 8)])
@pytest.mark.parametrize(("processor", "instruction"), [("neoverse-v2", "usdot"), ("cortex-a76", "sdot")])
def test_dot_products_of_few_bits_on_aarch64(processor, instruction, rows, row_bits, bits):
    """Numbers of 4 bits are bytes with signs as they are; those of 8 change theirs, at a subtraction for each sum."""
    target, x = arm(processor), RNG.standard_normal((rows, 96)).astype("f4")
    graph, weights, exact = dots(x, bits=bits, row_bits=row_bits)
    narrow = optimize(graph, passes_for(target))
    (group,) = fuse(narrow)
    kernel = tir.build(tir.default_schedule(group.func, target).func, target)
    assert f"\t{instruction}\t" in kernel.asm()
    assert ("splat (i8 -128)" in kernel.llvm_ir()) == (instruction == "sdot" and bits == 8)
    found = np.zeros((rows, 32), "f4")
    emulate(kernel, *(x if v.name == "x" else narrow.constants[v.name] for v in group.inputs), found)
    most = np.abs(x.reshape(rows, -1, 32)).max(-1).repeat(32, axis=1)
    bound = most / 127 * 0.51 if row_bits == 8 else UNIT * (1.1 * most + 9 * np.abs(x))
    assert (np.abs(found - exact) <= bound @ np.abs(weights)).all() and np.ptp(found) > 0


@pytest.mark.parametrize(("rows", "together"), [(1, 2), (109, 1)])
def test_panels_of_one_tile_of_rows_are_read_together(rows, together):
    """Each is two streams, of codes and of scales, of the four that this memory has; with many rows, arithmetic takes longer."""
    target = tir.Target(f"{ONE} -mcpu znver3")
    x = RNG.standard_normal((rows, 96)).astype("f4")
    graph, weights, exact = dots(x, columns=96, row_bits=8)
    (group, *_) = fuse(optimize(graph, passes_for(target)))
    s = tir.default_schedule(group.func, target)
    _, _, _, panels, *_ = s.get_loops("sums_update_o")
    assert find_loop(s.func, panels).extent == Const(together)
    found = tir.compile(graph, f"{ONE} -mcpu x86-64-v3")(x)[0]
    steps = np.abs(x.reshape(rows, -1, 32)).max(-1).repeat(32, axis=1) / 127
    assert (np.abs(found - exact) <= steps * 0.51 @ np.abs(weights)).all()


@pytest.mark.parametrize("rows", [1, 5])
def test_bytes_by_columns(rows):
    case = Case(rows, 70, 109)
    compiled = tir.compile(case.graph, ONE)
    assert operators(compiled.graph)[:2] == ["ByteProduct", "Mul"]
    case.check(compiled(case.x)[0])


@pytest.mark.parametrize("block", [0, 32])
def test_layers_with_a_bias(block):
    """Gemm with its weights transposed, as exporters write it."""
    case = Case(2, 70, 24, block, operator="Gemm", transposed=True, bias=True)
    compiled = tir.compile(case.graph, ONE)
    assert {"ByteProduct", "BlockProduct"} & set(operators(compiled.graph))
    case.check(compiled(case.x)[0])


def weight_bytes(case: Case) -> int:
    return sum(a.nbytes for a in tir.compile(case.graph, ONE).weights.values())


def test_weights_take_the_bytes_of_their_numbers():
    case = Case(1, 256, 128, 32)
    numbers, scales = 256 * 128 // 2, 256 // 32 * 128 * 4
    assert numbers + scales <= weight_bytes(case) < 1.1 * (numbers + scales) + 4096
    case = Case(1, 256, 128)
    assert weight_bytes(case) < 1.1 * 256 * 128 + 4096


@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_are_packed_the_first_lowest(bits):
    numbers, in_word = RNG.integers(0, 1 << bits, (40, 3)), 32 // bits
    words = packed(numbers, 16, 3, bits).view("uint32")
    assert words.shape == (3, 16 // in_word, 3)
    for step, column in np.ndindex(48, 3):
        word = int(words[step // 16, step % 16 // in_word, column])
        wanted = numbers[step, column] if step < 40 else middle(bits)
        assert word >> bits * (step % in_word) & ((1 << bits) - 1) == wanted


def test_a_product_of_one_row_keeps_its_sums_in_registers():
    """Words and scales are packed in tiles of whole vectors; the sums of a block have a tile of their own."""
    (group,) = fuse(optimize(Case(1, 64, 256, 32).graph, passes_for(tir.Target(FLOATS))))
    script = tir.default_schedule(group.func, "llvm -num-cores 1 -mcpu znver4").func.script()
    assert "for ax2 in T.vectorized(128)" in script or "T.vectorized(128)" in script
    assert script.count("_global = T.alloc_buffer") == 2


@pytest.mark.parametrize("kind", ["correct", "wrong"])
def test_the_pass_is_checked(kind, monkeypatch):
    case = Case(2, 70, 24, 32)
    if kind == "wrong":
        monkeypatch.setattr(graph_weights, "packed", lambda numbers, *sizes: packed(numbers[::-1], *sizes))
        with pytest.raises(ValueError, match="the pass stay_narrow changes the output"):
            check_passes(case.graph, [case.x], passes_for(tir.Target(ONE)))
        return
    check_passes(case.graph, [case.x], passes_for(tir.Target(ONE)))


@pytest.mark.parametrize("zero", [-128, -9, -8, 7, 127])
def test_zero_points_beyond_4_bits(zero):
    numbers, scales = RNG.integers(-8, 8, (64, 5)).astype("int8"), np.full((2, 5), 0.5, "float32")
    builder = Builder(fold=False)
    x = builder.input("x", (3, 64), "float32")
    weights = (builder.constant(a) for a in (numbers, scales, np.full((2, 5), zero, "int8")))
    graph = builder.graph(builder("MatMul", x, builder("DequantizeLinear", *weights, axis=0, block_size=32)))
    given = RNG.integers(-2, 3, (3, 64)).astype("float32")
    wanted = given @ ((numbers - float(zero)) * 0.5)
    for read in (graph, keep_weights_narrow(graph)):
        np.testing.assert_array_equal(evaluate(read, [given])[0], wanted)


def test_other_weights_become_floats():
    """Blocks that words do not divide."""
    for block, numbers in ((6, 100), (6, 7)):
        constants = {"w": np.full((36, 5), numbers, "int8"), "s": np.ones((-(-36 // block), 5), "f4")}
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=block),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
        ]
        x = RNG.standard_normal((2, 36)).astype("f4")
        graph = load_onnx(model(nodes, {"x": x}, ["y"], constants, opset=21))
        assert not {"BlockProduct", "ByteProduct"} & set(operators(keep_weights_narrow(graph)))
        np.testing.assert_allclose(tir.compile(graph, ONE)(x)[0], evaluate(graph, [x])[0], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("rows", [1, MOST_ROWS + 1])
@pytest.mark.parametrize("zeros", ["none", "numbers", "floats"])
@pytest.mark.parametrize("bits", [4, 8])
def test_matmul_nbits(rows, zeros, bits):
    """Of onnxruntime's domain, by its definition; blocks of an odd number of zero points."""
    length, columns, block = 80, 7, 32
    numbers, points = RNG.integers(0, 1 << bits, (columns, 96)), RNG.integers(0, 1 << bits, (columns, 4))
    scales = RNG.uniform(0.5, 1, (columns, 3)).astype("f4")

    def in_bytes(array):
        return (array[:, ::2] | array[:, 1::2] << 4 if bits == 4 else array).astype("u1")

    constants = {"b": in_bytes(numbers).reshape(columns, 3, -1), "s": scales.reshape(-1)}
    zero = np.full((columns, 3), 1 << bits - 1)
    if zeros == "numbers":
        zero = points[:, :3]
        constants["z"] = in_bytes(points if bits == 4 else zero).reshape(-1)
    elif zeros == "floats":
        zero = constants["z"] = RNG.uniform(-3, 30, (columns, 3)).astype("f4")
    x = RNG.standard_normal((2, rows, length)).astype("f4")
    node = helper.make_node(
        "MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", K=length, N=columns, block_size=block, bits=bits
    )
    proto = model([node], {"x": x}, ["y"], constants)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph = load_onnx(proto)
    weights = ((numbers - np.repeat(zero.astype("f8"), block, axis=1)) * np.repeat(scales.astype("f8"), block, axis=1))[
        :, :length
    ]
    (found,) = tir.compile(graph, ONE)(x)
    bound = UNIT * (length + 2) * 2.0**bits * np.abs(x).sum(axis=-1, keepdims=True)
    assert (np.abs(found - x @ weights.T) <= bound).all()


def test_matmul_nbits_refusals():
    constants = {"b": np.zeros((7, 1, 8), "u1"), "s": np.ones(7, "f4")}
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=32, N=7, block_size=32, bits=2)
    proto = model([node], {"x": np.ones((2, 32), "f4")}, ["y"], constants)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ValueError, match="numbers of 4 or 8 bits are supported, got bits=2"):
        load_onnx(proto)


@pytest.mark.parametrize(("bits", "zeros", "columns"), [(4, None, 96), (8, "float32", 48), (4, "uint8", 80), (4, None, 70)])
def test_a_table_of_embeddings_that_makes_scores_is_held_once(bits, zeros, columns):
    """Its rows are gathered from the panels that the product reads, where dot products compute its columns. Products of rows that
    keep more bits than dot products pay for read words, and so do their tables."""
    rng, steps = np.random.default_rng(columns), 96
    words = packed(rng.integers(0, 1 << bits, (steps, columns)), 32, 3, bits)
    scales = rng.uniform(0.5, 1, (3, columns)).astype("float16").astype("float32")
    given = [words, scales, *([] if zeros is None else [rng.integers(3, 9, (3, columns)).astype(zeros)])]
    if zeros == "float32":
        given[2] += np.float32(1 / 3)
    b = Builder("tied")
    x, tokens = b.input("x", (1, steps), "float32"), b.input("tokens", (5,), "int64")
    table = [b.constant(a) for a in given]
    rows = b("UnpackBlocks", *(b("Gather", a, tokens, axis=-1) for a in table), length=steps, bits=bits)
    graph = b.graph(scores=b("BlockProduct", x, *table, bits=bits), rows=rows)
    assert "UnpackBlocks" in operators(keep_weights_narrow(graph, 16, 8))
    held = keep_weights_narrow(graph, 16)
    panels = columns % 16 == 0
    assert ("BlockColumns" in operators(held)) == panels == ("UnpackBlocks" not in operators(held))
    for places in ([0, columns - 1, 7, 7, 33], [-1, -columns, -7, 7, -33]):
        own = [np.zeros((1, steps), "float32"), np.array(places)]
        own[0][0, ::7] = 1
        for a, e in zip(evaluate(held, own), evaluate(graph, own), strict=True):
            np.testing.assert_allclose(a, e, rtol=0, atol=1e-4 * np.abs(e).max())
    if panels:
        kinds = [str(a.dtype) for a in held.constants.values()]
        assert sorted(kinds) == sorted(["uint8", "float16", *([zeros] if zeros else [])])


@pytest.mark.parametrize("block", [0, 32])
def test_weights_are_narrow_behind_a_transpose(block):
    """As torch writes them, a row of weights for each column of the result."""
    case = Case(3, 64, 48, block)
    builder = Builder()
    weights, scales = (
        builder.constant(np.ascontiguousarray(a.T)) for a in (case.numbers, case.scales if block else case.scales[0])
    )
    numbers = builder.called(
        find("DequantizeLinear"), [weights, scales], {"axis": int(block > 0), "block_size": block}, "real", fold=False
    )
    y = builder("MatMul", builder.input("x", case.x.shape, "float32"), builder("Transpose", *numbers, perm=(1, 0)))
    narrow = optimize(builder.graph(y), passes_for(tir.Target(FLOATS)))
    assert [c.operator for c in narrow.calls if "Product" in c.operator] == ["BlockProduct" if block else "ByteProduct"]
    (found,) = evaluate(narrow, [case.x])
    assert np.all(np.abs(found - case.exact) <= 64 * UNIT * case.size)
