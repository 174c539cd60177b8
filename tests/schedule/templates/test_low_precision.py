"""Products of numbers of 8 and 16 bits by instructions for them: any shape and layout, exact or within the bound of sums."""

from __future__ import annotations

import re
import warnings
from functools import partial as having
from math import ceil, prod

import numpy as np
import pytest

import tir
from schedule import replay, templates
from schedule.open_schedule import OpenSchedule
from schedule.templates import low_precision
from tests import programs
from tests.arrays import narrowed, widened
from tests.emulation import arm, emulate, needs_emulator
from tests.schedule.templates.patterns import check_estimates, gamma
from tests.sweeps import one_in
from tir import te
from tir.constants import with_constants
from tir.interpreter import run
from tir.ir import For, Kind
from tir.traverse import blocks, loads, stores, walk_stmts

AMX = tir.Target("llvm", num_cores=1, mcpu="sapphirerapids", vector_bits=512)
HERE = tir.Target("llvm", num_cores=1).features >= {"amx-tile", "amx-int8", "amx-bf16"}
runs = pytest.mark.skipif(not HERE, reason="this processor has no tile registers")
LANES = {"vpdpbusd": {"avx512vnni", "avx512vl"}, "vdpbf16ps": {"avx512bf16", "avx512vl"}}
PAIRS = [("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"), ("uint8", "uint8"), ("bfloat16", "bfloat16")]


def product(M, N, K, left="int8", right="int8", across=(False, False), batch=(), after=None, attrs=None):
    """C = A · B in the type of its sum, either operand transposed, each of a batch; then `after`, if that is given."""
    lie = "ki" if across[0] else "ik", "jk" if across[1] else "kj"
    total = "float32" if left == "bfloat16" else "int32"
    return programs.product(M, N, K, *lie, (left, right), total, batch, after, attrs=attrs)


def inputs(func, seed=0):
    rng = np.random.default_rng(seed)
    result = []
    for p in func.buffers[:-1]:
        shape = [d.value for d in p.shape]
        if p.dtype == "bfloat16":
            result.append(narrowed(rng.standard_normal(shape), p.dtype))
        else:
            limits = np.iinfo(p.dtype)
            result.append(rng.integers(limits.min, limits.max, shape, endpoint=True).astype(p.dtype))
    return result


def expected(a, b, across=(False, False)):
    """The product in float64, and the bound of its error: none for integers."""
    x, y = (widened(v, "bfloat16" if v.dtype == np.uint16 else str(v.dtype)).astype(np.float64) for v in (a, b))
    x, y = (v.swapaxes(-1, -2) if t else v for v, t in zip((x, y), across, strict=True))
    bound = gamma(2 * x.shape[-1]) * (abs(x) @ abs(y)) if a.dtype == np.uint16 else np.zeros(())
    return x @ y, bound


def scheduled(func, target=None):
    target = target or tir.Target("llvm", num_cores=1)
    s = templates.schedule(func, target)
    assert s is not None and replay(func, s.trace).func == s.func
    return s.func


def multiply(func, target=None, instructions=("tdp", *LANES)):
    """Build the default schedule, which must use one of the instructions, and run it."""
    target = target or tir.Target("llvm", num_cores=1)
    kernel = tir.build(scheduled(func, target), target)
    assembly = kernel.asm()
    assert any(name in assembly for name in instructions)
    given, (out,) = inputs(func), func.buffers[-1:]
    result = np.empty([d.value for d in out.shape], np.uint16 if out.dtype == "bfloat16" else out.dtype)
    kernel(*given, result)
    return given, result


@one_in(4)
@runs
@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("shape", [(33, 47, 130), (109, 97, 1031), (64, 64, 128), (16, 200, 67)])
def test_any_shape_and_type(left, right, shape):
    func = product(*shape, left, right)
    (a, b), result = multiply(func)
    value, bound = expected(a, b)
    assert np.all(abs(result - value) <= bound)


@runs
def test_blocks_of_columns_that_do_not_divide_them():
    target = tir.Target("llvm", num_cores=1, l2=1 << 16)
    func = product(50, 500, 300)
    c = low_precision.matches(OpenSchedule(func, target, at_seed=True).block("C"))
    assert low_precision.tiles(c, low_precision.instruction(c, target.machine), target.machine).block < 16
    (a, b), result = multiply(func, target)
    assert np.array_equal(result, expected(a, b)[0])


@one_in(2)
@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize(("left", "right"), [p for p in PAIRS if p != ("uint8", "uint8")])
@pytest.mark.parametrize("shape", [(65, 95, 330), (109, 97, 2061)])
def test_dot_products_in_lanes(left, right, shape, bits):
    here = tir.Target("llvm")
    name = "vdpbf16ps" if left == "bfloat16" else "vpdpbusd"
    if not LANES[name] <= here.features:
        pytest.skip(f"this processor has no {name}")
    target = tir.Target("llvm", num_cores=1, mattr=f"{here.mattr},-amx-tile".lstrip(","), vector_bits=bits)
    func = product(*shape, left, right)
    (a, b), result = multiply(func, target, [name])
    value, bound = expected(a, b)
    assert np.all(abs(result - value) <= bound)


@one_in(2)
@pytest.mark.parametrize("across", [(True, False), (False, True)])
@pytest.mark.parametrize(("kind", "name"), [("int8", "vpdpbusd"), ("bfloat16", "vdpbf16ps")])
@pytest.mark.parametrize("shape", [(33, 70, 131), (30, 67, 10)])
def test_transposed_operands_in_lanes(across, kind, name, shape):
    """Columns in squares, then the steps and the columns that are left over; rows too short for a vector."""
    here = tir.Target("llvm")
    if not LANES[name] <= here.features:
        pytest.skip(f"this processor has no {name}")
    func = product(*shape, kind, kind, across)
    (a, b), result = multiply(func, tir.Target("llvm", num_cores=1, mattr=f"{here.mattr},-amx-tile".lstrip(",")))
    value, bound = expected(a, b, across)
    assert np.all(abs(result - value) <= bound)


@one_in(3)
@pytest.mark.skipif("avx2" not in tir.Target("llvm").features, reason="this processor has no vectors of 256 bits")
@pytest.mark.parametrize(("left", "right"), [p for p in PAIRS if p[0] != "bfloat16"])
@pytest.mark.parametrize("across", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(65, 95, 331), (7, 13, 109), (19, 33, 2061)])
def test_bytes_are_widened_where_no_instruction_takes_them(left, right, across, shape):
    target = tir.Target("llvm", num_cores=1, mcpu="x86-64-v3")
    func = product(*shape, left, right, across)
    kernel = tir.build(scheduled(func, target), target)
    assembly = kernel.asm()
    assert "vpmaddwd" in assembly and "vpmulld" not in assembly
    given = inputs(func)
    result = np.empty([d.value for d in func.buffers[-1].shape], "int32")
    kernel(*given, result)
    assert np.array_equal(result, expected(*given, across)[0])


@one_in(2)
@pytest.mark.skipif("avx2" not in tir.Target("llvm").features, reason="this processor has no vectors of 256 bits")
@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("across", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(65, 95, 331), (7, 13, 109), (19, 33, 2061), (3, 96, 64)])
def test_small_weights_are_multiplied_as_bytes(left, across, shape):
    """Exact where the products of each two weights by the largest byte just fit 16 bits."""
    target = tir.Target("llvm", num_cores=1, mcpu="x86-64-v3")
    func = product(*shape, left, "int8", across, attrs={"narrow_pairs": True})
    kernel = tir.build(scheduled(func, target), target)
    assert "vpmaddubsw" in kernel.asm()
    rng, steps = np.random.default_rng(0), shape[2]
    pairs = np.array([(127, 1), (-128, 0), (64, 64), (-1, -127), (-128, 127), (0, 127), (-64, -64)], np.int8)
    b = rng.choice(pairs, ((steps + 1) // 2, shape[1])).transpose(0, 2, 1).reshape(-1, shape[1])[:steps]
    a = rng.choice(np.array([np.iinfo(left).min, np.iinfo(left).max, 1], left), (shape[0], steps), p=(0.2, 0.7, 0.1))
    given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), across, strict=True)]
    result = np.empty(shape[:2], "int32")
    kernel(*given, result)
    assert np.array_equal(result, a.astype(int) @ b.astype(int))


@pytest.mark.parametrize("across", [(False, False), (True, False)])
@pytest.mark.parametrize("steps", [58, 116])
def test_bytes_of_rows_are_moved_in_vectors(across, steps):
    """Rows that end within a step, and rows that lie across the memory: no masks of bytes, which are moved one by one."""
    target = tir.Target("llvm", num_cores=1, mcpu="x86-64-v3")
    func = product(784, 64, steps, "uint8", "int8", across, attrs={"narrow_pairs": True})
    ir = tir.build(scheduled(with_constants(func, ["B"]), target), target).main.llvm_ir()
    assert "@llvm.masked" not in ir


@pytest.mark.parametrize("left", ["int8", "uint8"])
def test_a_mark_of_small_weights_is_of_the_second_factor(left):
    """A transposed result has the vectors of the other factor, whose pairs may be anything."""
    A, B = te.placeholder((9, 40), left, name="A"), te.placeholder((40, 16), "int8", name="B")
    k = te.reduce_axis((0, 40), name="k")
    target = tir.Target("llvm", num_cores=1, mcpu="x86-64-v3")
    for shape, transposed in (((9, 16), False), ((16, 9), True)):

        def sums(*at, transposed=transposed):
            i, j = at[::-1] if transposed else at
            return te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k)

        func = te.create_prim_func([A, B, te.compute(shape, sums, name="C", attrs={"narrow_pairs": True})])
        assert ("vpmaddubsw" in scheduled(func, target).script()) == (not transposed)


@pytest.mark.skipif("avx2" not in tir.Target("llvm").features, reason="this processor has no vectors of 256 bits")
@pytest.mark.parametrize("batch", [1, 3])
def test_threads_copy_columns_that_the_sum_lies_across_in_a_batch(batch):
    """Whole and partial vectors of columns apart."""
    func = product(67, 109, 515, "int8", "uint8", (False, True), (batch,))
    (a, b), result = multiply(func, tir.Target("llvm", num_cores=2, mcpu="x86-64-v3"), ["vpmaddwd"])
    assert np.array_equal(result, expected(a, b, (False, True))[0])


@one_in(3)
@pytest.mark.skipif("avx2" not in tir.Target("llvm").features, reason="this processor has no vectors of 256 bits")
@pytest.mark.parametrize("across", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(65, 95, 331), (61, 333, 109), (61, 133, 2061)])
def test_halves_are_converted_as_they_are_packed(across, shape):
    target = tir.Target("llvm", num_cores=1, mcpu="x86-64-v3")
    func = product(*shape, "bfloat16", "bfloat16", across)
    made = scheduled(func, target)
    (last,) = [b for b in blocks(made) if b.is_reduction]
    assert {x.buffer.dtype for x in loads(last.body)} == {"float32"}
    given = inputs(func)
    result = np.empty([d.value for d in func.buffers[-1].shape], "float32")
    tir.build(made, target)(*given, result)
    value, bound = expected(*given, across)
    assert np.all(abs(result - value) <= bound)


def test_bytes_without_signs_have_no_dot_product():
    target = tir.Target("llvm", num_cores=1, mcpu="icelake-server")
    assert "vpdpbusd" in tir.build(scheduled(product(64, 64, 64, "uint8", "int8"), target), target).asm()
    unsigned = tir.build(scheduled(product(64, 64, 64, "uint8", "uint8"), target), target).asm()
    assert "vpdpbusd" not in unsigned and "vpdpwssd" in unsigned, "LLVM adds VPMADDWD to its sum"


@one_in(2)
@runs
@pytest.mark.parametrize("across", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_transposed_operands(across, kind):
    func = product(70, 61, 131, kind, kind, across)
    (a, b), result = multiply(func)
    value, bound = expected(a, b, across)
    assert np.all(abs(result - value) <= bound)


@runs
@pytest.mark.parametrize("cores", [1, 2])
def test_threads_and_batches(cores):
    func = product(150, 149, 300, batch=(3,))
    (a, b), result = multiply(func, tir.Target("llvm", num_cores=cores))
    assert np.array_equal(result, expected(a, b)[0])


@runs
def test_what_follows_is_computed_with_the_tiles():
    def dequantised(x, j):
        return te.maximum(x.astype("float32") * 0.125 + j.astype("float32"), te.const(0.0, "float32"))

    func = product(77, 93, 200, after=dequantised)
    (a, b), result = multiply(func)
    assert np.array_equal(result, np.maximum(expected(a, b)[0] * 0.125 + np.arange(93), 0).astype(np.float32))


@runs
def test_sums_wrap_as_int32_does():
    func = product(32, 32, 1 << 18, "uint8", "uint8")
    target = tir.Target("llvm", num_cores=1)
    result = np.empty((32, 32), np.int32)
    tir.build(scheduled(func), target)(np.full((32, 1 << 18), 255, np.uint8), np.full((1 << 18, 32), 255, np.uint8), result)
    assert np.all(result == np.int64(255 * 255 * (1 << 18)).astype(np.int32))


@runs
def test_constant_columns_are_packed_once():
    func = with_constants(product(100, 90, 140), ["B"])
    (a, b), result = multiply(func)
    assert np.array_equal(result, expected(a, b)[0])


@one_in(2)
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_the_schedule_computes_the_same_without_the_registers(left, right):
    """In the interpreter, with its traps, parts of the sum and partial tiles included."""
    func = product(5, 19, 150 if left == "bfloat16" else 300, left, right)
    target = tir.Target("llvm", num_cores=1, mcpu="sapphirerapids", vector_bits=512, l1=4096)
    s = OpenSchedule(func, target, at_seed=True)
    low_precision.build(s, low_precision.matches(s.block("C")))
    assert 'annotations={"instruction": "tdp' in s.script and "k_0_1" in s.script
    given, result = inputs(func), np.zeros((5, 19), func.buffers[-1].dtype)
    run(s.func, *given, result)
    value, bound = expected(*given)
    assert np.all(abs(result - value) <= bound)


@one_in(2)
@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize(("shape", "reads_rows"), [((61, 19, 12), True), ((5, 19, 4100), True), ((61, 19, 13), False)])
def test_rows_of_whole_steps_are_read_where_they_are(left, right, shape, reads_rows):
    """In the interpreter, with its traps: tiles that the rows do not fill, a sum in parts, and rows that end in a part of a step."""
    func = product(*shape, left, right)
    target = tir.Target("llvm", num_cores=1, mcpu="cooperlake", vector_bits=512)
    s = OpenSchedule(func, target, at_seed=True)
    c = low_precision.matches(s.block("C"))
    low_precision.build(s, c)
    read = {x.buffer.name for b in blocks(s.func) if b.name.startswith("C_") and b.name.endswith("_o") for x in loads(b)}
    assert ("A" in read) == reads_rows
    assert low_precision.in_place(c, low_precision.instruction(c, target.machine)) == reads_rows
    given, result = inputs(func), np.zeros(shape[:2], func.buffers[-1].dtype)
    run(s.func, *given, result)
    value, bound = expected(*given)
    assert np.all(abs(result - value) <= bound)


@pytest.mark.parametrize(("left", "steps", "across"), [("int8", 66, (False, True)), ("bfloat16", 33, (False, False))])
def test_blocks_of_columns_are_packed_where_they_are_used(left, steps, across):
    """Of one thread: a copy holds one block of columns, of which the last has fewer, or one tile of rows."""
    func = product(3, 418, steps, left, left, across)
    target = tir.Target("llvm", num_cores=1, mcpu="cooperlake", vector_bits=512, l2=1 << 15)
    s = OpenSchedule(func, target, at_seed=True)
    c = low_precision.matches(s.block("C"))
    t = low_precision.tiles(c, low_precision.instruction(c, target.machine), target.machine)
    assert ceil(418 / (16 * t.columns)) % t.block
    low_precision.build(s, c)
    text = tir.dump(s.func, target, after="compact_buffers")
    copies = dict(re.findall(r"(\w+_global) = T.decl_buffer\(\((\d+),", text))
    assert copies["B_global"] == str(t.block) and copies["A_global_global"] == "1"
    given, result = inputs(func), np.zeros((3, 418), func.buffers[-1].dtype)
    run(s.func, *given, result)
    value, bound = expected(*given, across)
    assert np.all(abs(result - value) <= bound)


@pytest.mark.parametrize(("l3", "own"), [(1 << 19, True), (1 << 25, False)])
def test_threads_pack_blocks_of_their_own_where_columns_leave_the_caches(l3, own):
    """Each an even share of them; else all pack all columns in front."""
    func = product(15, 1000, 94, "bfloat16", "bfloat16")
    target = tir.Target("llvm", num_cores=2, mcpu="cooperlake", vector_bits=512, l2=1 << 15, l3=l3)
    s = OpenSchedule(func, target, at_seed=True)
    low_precision.build(s, low_precision.matches(s.block("C")))
    parallel = [x for x in walk_stmts(s.func.body) if isinstance(x, For) and x.kind is Kind.PARALLEL]
    assert len(parallel) == 2 - own
    assert ("B_global" in {x.buffer.name for x in stores(parallel[-1])}) == own
    assert not own or parallel[0].extent.value % 2 == 0
    given, result = inputs(func), np.zeros((15, 1000), func.buffers[-1].dtype)
    run(s.func, *given, result)
    value, bound = expected(*given)
    assert np.all(abs(result - value) <= bound)


@pytest.mark.parametrize(("rows", "copies"), [(5, {"B_global"}), (61, {"A_global_global", "B_global"})])
def test_the_larger_of_two_signed_operands_is_made_unsigned(rows, copies):
    """The rows of the smaller one are read where they are, with their signs; in the interpreter, with its traps."""
    func = product(rows, 19, 12, across=(False, True))
    s = OpenSchedule(func, tir.Target("llvm", num_cores=1, mcpu="cooperlake", vector_bits=512), at_seed=True)
    low_precision.build(s, low_precision.matches(s.block("C")))
    made = {b.name: b.dtype for b in s.func.allocs if "global" in b.name and b.name[0] in "AB"}
    assert set(made) == copies and made[min(copies)] == "uint8"
    given, result = inputs(func), np.zeros((rows, 19), "int32")
    run(s.func, *given, result)
    assert np.array_equal(result, expected(*given, (False, True))[0])


def test_an_array_by_itself_is_copied_as_one_factor():
    """The copy is unsigned for VNNI; the other factor keeps its sign."""
    A, k = te.placeholder((19, 64), "int8", name="A"), te.reduce_axis((0, 64), "k")
    C = te.compute((19, 19), lambda i, j: te.sum(A[i, k].astype("int32") * A[j, k].astype("int32"), axis=k), name="C")
    target = tir.Target("llvm", num_cores=1, mcpu="cooperlake", vector_bits=512)
    func = scheduled(te.create_prim_func([A, C]), target)
    assert "vpdpbusd" in tir.build(func, target).asm() and [b.dtype for b in func.allocs].count("uint8") == 1
    (given,), result = inputs(func), np.zeros((19, 19), "int32")
    run(func, given, result)
    assert np.array_equal(result, given.astype(np.int32) @ given.T.astype(np.int32))


@pytest.mark.parametrize("batch", [(), (1,), (3,)])
def test_the_sums_that_correct_an_unsigned_operand_are_in_lanes(batch):
    func = scheduled(product(19, 31, 128, batch=batch), tir.Target("llvm", num_cores=1, mcpu="cooperlake", vector_bits=512))
    combined = [x for x in walk_stmts(func.body) if isinstance(x, For) and dict(x.annotations).get("combine_lanes")]
    assert {x.buffer.name for loop in combined for x in stores(loop)} == {"A_sum"}
    given, result = inputs(func), np.zeros((*batch, 19, 31), "int32")
    run(func, *given, result)
    assert np.array_equal(result, expected(*given)[0])


def test_processors_are_known_by_name():
    kernel = tir.build(scheduled(product(64, 64, 64), AMX), AMX)
    assert "tdpbssd" in kernel.asm()
    other = tir.Target("llvm", num_cores=1, mcpu="znver4")
    assert "tdp" not in tir.build(scheduled(product(64, 64, 64), other), other).asm()


def test_what_is_no_such_product():
    def found(func):
        c = low_precision.matches(OpenSchedule(func, AMX, at_seed=True).block("C"))
        return c is not None and low_precision.suits(c, AMX.machine)

    assert found(product(32, 32, 64))
    assert found(product(32, 32, 64, "int16", "int16"))
    assert not found(product(32, 32, 64, "int8", "int16"))
    assert not found(product(1, 32, 64))
    A, B, k = te.placeholder((32, 64), "int8", name="A"), te.placeholder((64, 32), "int8", name="B"), te.reduce_axis((0, 64), "k")
    for term in (
        lambda a, b: a.astype("int32") + b.astype("int32"),
        lambda a, b: (a * b).astype("int32"),  # wraps at 8 bits
        lambda a, b: a.astype("uint8").astype("int32") * b.astype("int32"),
    ):
        C = te.compute((32, 32), having(lambda term, i, j: te.sum(term(A[i, k], B[k, j]), axis=k), term), name="C")
        assert not found(te.create_prim_func([A, B, C]))
    C = te.compute((32, 32), lambda i, j: te.max(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k), name="C")
    assert not found(te.create_prim_func([A, B, C]))


def windows(H, W, C, O, kernel=(3, 3), stride=1, pads=1, dtypes=("uint8", "int8"), after=None):
    """A convolution of an image whose channels are last, in the type of its sum, then `after`, if that is given."""
    image, weights = dtypes
    total = "float32" if image == "bfloat16" else "int32"
    x = te.placeholder((2, H, W, C), image, name="x")
    w = te.placeholder((*kernel, C, O), weights, name="w")
    around = te.compute(
        (2, H + 2 * pads, W + 2 * pads, C),
        lambda n, i, j, c: te.if_then_else(
            te.all(i >= pads, i < H + pads, j >= pads, j < W + pads), x[n, i - pads, j - pads, c], te.const(3, image)
        ),
        name="around",
    )
    a, b, k = (te.reduce_axis((0, n), name) for n, name in zip((*kernel, C), "abk", strict=True))
    shape = (2, *((n + 2 * pads - m) // stride + 1 for n, m in zip((H, W), kernel, strict=True)), O)

    def term(n, i, j, o):
        return around[n, i * stride + a, j * stride + b, k].astype(total) * w[a, b, k, o].astype(total)

    y = te.compute(shape, lambda *i: te.sum(term(*i), axis=[a, b, k]), name="y")
    return te.create_prim_func([x, w, y if after is None else te.compute(shape, lambda *i: after(y[i]), name="z")])


@one_in(2)
@pytest.mark.parametrize("target", ["llvm -num-cores 2", "llvm -num-cores 1 -mcpu x86-64-v3"])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("int8", "uint8"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize(
    ("H", "W", "C", "O", "how"),
    [
        (13, 7, 8, 32, {}),
        (7, 109, 4, 13, {"stride": 2}),
        (1, 13, 12, 40, {"kernel": (1, 5), "pads": 2}),
        (13, 1, 64, 17, {"kernel": (3, 1)}),
        (5, 6, 7, 13, {}),  # channels that are no whole steps
    ],
)
def test_windows_of_an_image(H, W, C, O, how, dtypes, target):
    func, machine = windows(H, W, C, O, dtypes=dtypes, after=lambda e: e + 1, **how), tir.Target(target)
    arrays = inputs(func)
    found, wanted = (np.zeros([d.value for d in func.buffers[-1].shape], func.buffers[-1].dtype) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sums that another template schedules
        made = scheduled(func, machine)
    tir.build(made, machine)(*arrays, found)
    run(func, *arrays, wanted)
    if dtypes[0] == "bfloat16":
        magnitude = np.zeros_like(wanted)
        run(func, *(narrowed(abs(widened(a, "bfloat16")), "bfloat16") for a in arrays), magnitude)
        assert (abs(found - wanted) <= gamma(4 * C * prod(how.get("kernel", (3, 3)))) * magnitude).all()
    else:
        assert np.array_equal(found, wanted)
    assert np.ptp(found) > 0


@pytest.mark.parametrize(("dtypes", "C", "in_place"), [(("uint8", "int8"), 8, True), (("uint8", "int8"), 6, False)])
def test_windows_of_whole_steps_are_read_in_place(dtypes, C, in_place):
    """The instruction reads the padded image itself, of which no other copy is made."""
    target = tir.Target("llvm -num-cores 1 -mcpu znver4 -l1 32768 -l2 1048576 -l3 33554432")
    script = scheduled(windows(13, 7, C, 32, dtypes=dtypes), target).script()
    assert ("vpdpbusd" in script) == in_place
    assert not in_place or script.count("alloc_buffer") == 3, "the padded image, packed weights, sums"


# By processor, the instruction for each two types; a Cortex-A76 has none for bfloat16, nor for one signed and one unsigned byte.
ON_ARM = {
    "neoverse-v2": dict(zip(PAIRS, ("sdot", "usdot", "usdot", "udot", "bfdot"), strict=True)),
    "cortex-a76": dict(zip(PAIRS, ("sdot", "udot", "udot", "udot", ""), strict=True)),
}
DOTS_OF_ARM = re.compile(r"\t(sdot|udot|usdot|bfdot)\t")


@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize("mcpu", ON_ARM)
def test_instructions_of_aarch64(mcpu, kinds):
    """Of all signs; windows need an instruction for theirs, as no copy has the sums that correct other ones."""
    name, target = ON_ARM[mcpu][kinds], arm(mcpu)
    for func in (product(64, 48, 64, *kinds), product(7, 33, 66, *kinds, (True, True), (3,)), windows(7, 9, 8, 32, dtypes=kinds)):
        in_windows = func.buffers[0].name == "x"
        expected = set() if in_windows and mcpu == "cortex-a76" and kinds[0] != kinds[1] else {name} - {""}
        assert set(DOTS_OF_ARM.findall(tir.build(tir.default_schedule(func, target).func, target).asm())) == expected


@needs_emulator
@one_in(3)
@pytest.mark.parametrize("mcpu", ON_ARM)
@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize(
    ("make", "about"),
    [
        (product, {"M": 61, "N": 19, "K": 64}),
        (product, {"M": 7, "N": 33, "K": 66, "across": (False, True)}),
        (product, {"M": 117, "N": 13, "K": 37, "across": (True, False), "batch": (3,)}),
        (product, {"M": 17, "N": 40, "K": 64, "batch": (1,), "after": lambda e, j: e + 1}),
        (product, {"M": 1, "N": 33, "K": 40}),
        (product, {"M": 5, "N": 19, "K": 4100}),
        (windows, {"H": 13, "W": 7, "C": 8, "O": 32}),
        (windows, {"H": 7, "W": 19, "C": 4, "O": 13, "stride": 2, "after": lambda e: e + 1}),
        (windows, {"H": 5, "W": 6, "C": 7, "O": 13}),
    ],
)
def test_products_on_aarch64(make, about, kinds, mcpu):
    """Emulated, beside the interpreter. BFDOT rounds to odd, by at most an ulp, but a sum of two products once."""
    names = ("left", "right") if make is product else ("dtypes",)
    func, target = make(**about, **dict(zip(names, kinds if make is product else (kinds,), strict=True))), arm(mcpu)
    arrays = inputs(func)
    found, wanted, magnitude = (np.zeros([d.value for d in func.buffers[-1].shape], func.buffers[-1].dtype) for _ in range(3))
    emulate(tir.build(tir.default_schedule(func, target).func, target), *arrays, found)
    run(func, *arrays, wanted)
    if kinds[0] == "bfloat16":
        run(func, *(narrowed(abs(widened(a, "bfloat16")), "bfloat16") for a in arrays), magnitude)
        steps = about.get("K", 9 * about.get("C", 0))
        assert (abs(found - wanted) <= gamma(4 * steps) * magnitude).all()
    else:
        assert np.array_equal(found, wanted)
    assert np.ptp(found) > 0


# Programs, and on which targets the template suits them.
SUITED = [
    ("ik kj -> ij", {"i": 7, "j": 33, "k": 40, "kind": "int32", "kinds": ("uint8", "int8")}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 64, "j": 64, "k": 256, "kind": "int32", "kinds": ("uint8", "int8")}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 64, "j": 64, "k": 256, "kind": "int32", "kinds": ("uint8", "int8")}, ("B",), [True, True, True]),
    ("ik kj -> ij", {"i": 1, "j": 33, "k": 40, "kind": "int32", "kinds": ("uint8", "int8")}, (), [False, False, False]),
    ("ik kj -> ij", {"i": 2, "j": 33, "k": 40, "kind": "int32", "kinds": ("uint8", "int8")}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 200, "j": 100, "k": 2100, "kind": "int32", "kinds": ("uint8", "int8")}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 33, "j": 64, "k": 257, "kind": "int32", "kinds": ("int8", "int8")}, (), [True, True, True]),
    ("ik jk -> ij", {"i": 33, "j": 64, "k": 257, "kind": "int32", "kinds": ("int16", "int16")}, (), [True, True, True]),
    ("ki jk -> ij", {"i": 33, "j": 64, "k": 64, "kinds": ("bfloat16", "bfloat16")}, (), [False, True, True]),
    ("bik bkj -> bij", {"b": 3, "i": 17, "j": 40, "k": 100, "kind": "int32", "kinds": ("uint8", "int8")}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"c": 8, "o": 40, "kind": "int32", "kinds": ("uint8", "int8")}, (), [False, True, False]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(low_precision, rule, about, constants, suits, at_once=32)
