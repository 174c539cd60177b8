"""Dot products of narrow numbers become one instruction, where the processor has it, and compute the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.llvm.dot import INTRINSICS
from codegen.processor import INSTRUCTION_SETS
from schedule import Schedule
from schedule.intrinsics.dots import DOTS
from tests.arrays import narrowed, widened
from tests.emulation import arm, emulate, needs_emulator
from tests.schedule.harness import same_numbers
from tests.schedule.primitives.blocks.test_tensorize import dot, tiled
from tests.schedule.templates.patterns import gamma
from tir import te
from tir.interpreter import run

KINDS = ("vpdpbusd", "vdpbf16ps")
HAS_THEM = "llvm -num-cores 1 -mcpu znver4"  # has VNNI and BF16


def scheduled(kind: str, m: int = 7, k: int = 5):
    """The function and the schedule with the intrinsic."""
    func = dot(m, 32, k) if kind == "vpdpbusd" else dot(m, 32, k, 2, "bfloat16", "bfloat16", "float32")
    s = Schedule(func)
    s.tensorize(tiled(s), "dot_16x4_vnni" if kind == "vpdpbusd" else "dot_16x2_bf16")
    s.decompose_reduction("C_o", "ko")
    return func, s.func


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 5, 13])
def test_one_instruction(kind, k):
    before, after = scheduled(kind, k=k)
    kernel = tir.build(after, HAS_THEM)
    assert kind in kernel.asm()
    assert ".gather" not in kernel.llvm_ir()
    same_numbers(before, after)


@pytest.mark.parametrize(("mcpu", "lanes"), [("x86-64-v3", 8), ("skylake-avx512", 16)])
@pytest.mark.parametrize("k", [1, 5, 13])
def test_pairs_of_int16_are_multiplied_and_added(mcpu, lanes, k):
    before = dot(7, 32, k, 2, "int16", "int16", "int32")
    s = Schedule(before)
    s.tensorize(tiled(s, lanes), f"dot_{lanes}x2_s16")
    s.decompose_reduction("C_o", "ko")
    kernel = tir.build(s.func, f"llvm -num-cores 1 -mcpu {mcpu}")
    assert "vpmaddwd" in kernel.asm() and "vpmulld" not in kernel.asm()
    same_numbers(before, s.func)


@pytest.mark.parametrize(("mcpu", "lanes"), [("x86-64-v3", 8), ("skylake-avx512", 16), ("x86-64", 8)])
def test_pairs_of_bytes_are_added_within_16_bits(mcpu, lanes):
    """Sums of two products are clamped, as the program says, wherever they leave 16 bits."""
    before = dot(7, 32, 13)
    s = Schedule(before)
    s.annotate("C", "narrow_pairs", True)
    s.tensorize(tiled(s, lanes), f"dot_{lanes}x4_pairs_u8s8")
    s.decompose_reduction("C_o", "ko")
    target = tir.Target("llvm", num_cores=1, mcpu=mcpu)
    kernel = tir.build(s.func, target)
    assert ("vpmaddubsw" in kernel.asm()) == (mcpu != "x86-64")
    same_numbers(before, s.func)
    if not tir.Target("llvm").features >= target.features:
        return
    a, b = np.full((7, 52), 255, np.uint8), np.random.default_rng(0).integers(-128, 128, (13, 32, 4)).astype(np.int8)
    b[::2, ::3], b[1::2, ::3] = -128, 127
    c, wanted = np.zeros((2, 7, 32), np.int32)
    kernel(a, b, c)
    run(s.func, a, b, wanted)
    assert np.array_equal(c, wanted)
    assert not np.array_equal(c, a.astype(np.int32) @ b.transpose(0, 2, 1).reshape(52, 32).astype(np.int32))


@pytest.mark.skipif("avx2" not in tir.Target("llvm").features, reason="this processor has no vectors of 256 bits")
def test_extreme_int16_wrap():
    before = dot(3, 32, 5, 2, "int16", "int16", "int32")
    s = Schedule(before)
    s.tensorize(tiled(s, 8), "dot_8x2_s16")
    s.decompose_reduction("C_o", "ko")
    least = [np.full([d.value for d in p.shape], -0x8000, p.dtype) for p in before.buffers]
    other = [a.copy() for a in least]
    tir.build(s.func, tir.Target("llvm", mcpu="x86-64-v3"))(*least)
    run(before, *other)
    assert np.array_equal(least[2], other[2])


@pytest.mark.parametrize("kind", KINDS)
def test_other_processors_run_plain_vector_code(kind):
    before, after = scheduled(kind)
    target = tir.Target("llvm", mcpu="x86-64")
    kernel = tir.build(after, target)
    assert kind not in kernel.asm() and "x86.avx512" not in kernel.llvm_ir()
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 3, [d.value for d in p.shape]) for p in before.buffers]
    if kind == "vpdpbusd":
        arrays = [a.astype(p.dtype) for a, p in zip(arrays, before.buffers, strict=True)]
    else:
        narrow = [(a.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for a in arrays[:2]]
        arrays = [*narrow, arrays[2].astype(np.float32)]
    other = [a.copy() for a in arrays]
    kernel(*arrays)
    run(before, *other)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, other, strict=True))


def test_rounding_is_that_of_the_program():
    """Each product is exact in float32 and each sum is rounded, the second pair first, as the program says."""
    _, after = scheduled("vdpbf16ps", k=13)
    rng = np.random.default_rng(1)
    a, b = (
        (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for shape in ((7, 26), (13, 32, 2))
    )
    c, d = np.zeros((7, 32), np.float32), np.zeros((7, 32), np.float32)
    tir.build(after)(a, b, c)
    run(after, a, b, d)
    assert np.array_equal(c, d)


def test_extreme_bytes_wrap_and_do_not_saturate():
    _, after = scheduled("vpdpbusd", k=13)
    a, b = np.full((7, 52), 255, np.uint8), np.full((13, 32, 4), -128, np.int8)
    b[:, ::2] = 127
    c = np.zeros((7, 32), np.int32)
    tir.build(after)(a, b, c)
    assert np.array_equal(c, a.astype(np.int32) @ b.transpose(0, 2, 1).reshape(52, 32).astype(np.int32))


@pytest.mark.parametrize(("mcpu", "lanes"), [("x86-64-v3", 8), ("skylake-avx512", 16)])
@pytest.mark.parametrize(("right", "mask"), [("int8", None), ("uint8", None), ("uint8", 255), ("uint8", 127)])
def test_bytes_are_multiplied_in_pairs_without_an_instruction_for_four(mcpu, lanes, right, mask):
    """Sums of int16 hold two products of 7 bits by 8; others are sums of int32. Exact, at the ends of the range too."""
    A, B = te.placeholder((5, 12), "int8", name="A"), te.placeholder((3, 32, 4), right, name="B")
    G = B if mask is None else te.compute((3, 32, 4), lambda a, b, c: te.bit_and(B[a, b, c], te.const(mask, right)), name="G")
    ko, ki = te.reduce_axis((0, 3), name="ko"), te.reduce_axis((0, 4), name="ki")

    def product(i, j):
        return te.sum(A[i, ko * 4 + ki].astype("int32") * G[ko, j, ki].astype("int32"), axis=[ko, ki])

    before = te.create_prim_func([A, B, te.compute((5, 32), product, name="C")])
    s = Schedule(before)
    s.tensorize(tiled(s, lanes), f"dot_{lanes}x4_{'s8s8' if right == 'int8' else 's8u8'}")
    s.decompose_reduction("C_o", "ko")
    kernel = tir.build(s.func, f"llvm -num-cores 1 -mcpu {mcpu}")
    assert ("vpmaddubsw" in kernel.asm()) == (mask == 127)
    assert "vpmaddwd" in kernel.asm() and "vpmulld" not in kernel.asm()
    same_numbers(before, s.func)
    if {8: "avx2", 16: "avx512bw"}[lanes] in tir.Target("llvm").features:
        low, high = np.iinfo(right).min, np.iinfo(right).max
        for a, b in ((-128, high), (-128, low), (127, high)):
            given, weights, c = np.full((5, 12), a, "int8"), np.full((3, 32, 4), b, right), np.zeros((5, 32), "int32")
            kernel(given, weights, c)
            assert (c == 12 * a * (b if mask is None else b & mask)).all()


@pytest.mark.parametrize("k", [1, 13])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_two_factors_of_one_sign_take_one_more_instruction_a_vector(dtype, k):
    """Exact, at the ends of the range too; what is taken off again serves all vectors of a row."""
    func = dot(7, 32, k, 4, dtype, dtype)
    s = Schedule(func)
    inner = tiled(s)
    s.unroll("j_0")
    s.reorder("i", "ko", "j_0", inner)
    s.tensorize(inner, "dot_16x4_s8s8" if dtype == "int8" else "dot_16x4_u8u8")
    s.decompose_reduction("C_o", "ko")
    text = tir.build(s.func, HAS_THEM).llvm_ir()
    assert text.count("= call <16 x i32> @llvm.x86.avx512.vpdpbusd.512") == 3
    same_numbers(func, s.func)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for left, right in ((low, low), (high, low), (high, high)):
        a, b = np.full((7, 4 * k), left, dtype), np.full((k, 32, 4), right, dtype)
        b[:, ::2] = high
        c = np.zeros((7, 32), np.int32)
        tir.build(s.func)(a, b, c)
        assert np.array_equal(c, a.astype(np.int32) @ b.transpose(0, 2, 1).reshape(4 * k, 32).astype(np.int32))


def test_what_is_no_dot_product_stays_as_it_is():
    """No signs, signs that differ, elements of a lane not side by side: the same numbers."""
    for func in (dot(7, 32, 5, 4, "uint8", "uint8"), dot(7, 32, 5, 4, "int8", "uint8")):
        s = Schedule(func)
        s.vectorize(tiled(s))
        s.unroll("ki")
        same_numbers(func, s.func)
    A, B = te.placeholder((7, 4), "uint8", name="A"), te.placeholder((4, 16), "int8", name="B")

    def row(i, j):
        terms = [A[i, k].astype("int32") * B[k, j].astype("int32") for k in range(4)]
        return terms[0] + terms[1] + terms[2] + terms[3] + A[i, 0].astype("int32")

    func = te.create_prim_func([A, B, te.compute((7, 16), row, name="C")])
    s = Schedule(func)
    s.vectorize("j")
    assert "vpdpbusd" not in tir.build(s.func, HAS_THEM).asm()
    same_numbers(func, s.func)


@pytest.mark.parametrize("width", [4, 8])
def test_elements_of_lanes_lie_side_by_side(width):
    """Four numbers of each lane, of which the next one has others between them: the same numbers, by other instructions."""
    A, B = te.placeholder((7, 4), "uint8", name="A"), te.placeholder((16, width), "int8", name="B")

    def row(i, j):
        return sum((A[i, k].astype("int32") * B[j, k].astype("int32") for k in range(4)), start=A[i, 0].astype("int32"))

    func = te.create_prim_func([A, B, te.compute((7, 16), row, name="C")])
    s = Schedule(func)
    s.vectorize(s.split("j", [None, 8])[-1])
    assert ("avx2.pmadd.wd" in tir.build(s.func, "llvm -num-cores 1 -mcpu x86-64-v3").llvm_ir()) == (width == 4)
    same_numbers(func, s.func)


def test_the_backend_knows_each_instruction_of_the_table():
    assert {dot.name: set(dot.features) for dot in DOTS} == {name: set(known) for name, (known, _) in INTRINSICS.items()}
    assert set().union(*(s for dot in DOTS for sets in dot.features.values() for s in sets)) <= INSTRUCTION_SETS


def for_arm(left: str, right: str, k: int, mcpu: str, largest: int | None = None):
    """A product, each of whose instructions has four lanes, for a processor; with `largest`, those of uint8 are at most that."""
    parts, total = (2, "float32") if left == "bfloat16" else (4, "int32")
    A, B = te.placeholder((7, parts * k), left, name="A"), te.placeholder((k, 32, parts), right, name="B")

    def bounded(x):
        if largest is None or x.dtype != "uint8":
            return x
        return te.compute(x.shape, lambda *i: te.bit_and(x[i], te.const(largest, "uint8")), name=f"{x.name}_bounded")

    F, G = bounded(A), bounded(B)
    ko, ki = te.reduce_axis((0, k), name="ko"), te.reduce_axis((0, parts), name="ki")

    def term(i, j):
        return te.sum(F[i, ko * parts + ki].astype(total) * G[ko, j, ki].astype(total), axis=[ko, ki])

    before = te.create_prim_func([A, B, te.compute((7, 32), term, name="C")])
    letters = "bf16" if parts == 2 else "".join({"int8": "s8", "uint8": "u8"}[x] for x in (left, right))
    s = Schedule(before)
    inner = tiled(s, 4)
    s.unroll("j_0")
    s.reorder("i", "ko", "j_0", inner)
    s.tensorize(inner, f"dot_4x{parts}_{letters}")
    s.decompose_reduction("C_o", "ko")
    return before, s.func, tir.build(s.func, arm(mcpu))


# Types of factors, by processor the instruction, and how many are emitted for a row of 32 columns.
ON_ARM = [
    ("int8", "int8", None, {"neoverse-v2": ("sdot", 8), "cortex-a76": ("sdot", 8)}),
    ("uint8", "uint8", None, {"neoverse-v2": ("udot", 8), "cortex-a76": ("udot", 8)}),
    ("uint8", "int8", None, {"neoverse-v2": ("usdot", 8), "cortex-a76": ("udot", 9)}),  # of 128 a once for all columns
    ("int8", "uint8", None, {"neoverse-v2": ("usdot", 8), "cortex-a76": ("sdot", 9)}),
    ("int8", "uint8", 127, {"neoverse-v2": ("usdot", 8), "cortex-a76": ("sdot", 8)}),
    ("uint8", "int8", 127, {"neoverse-v2": ("usdot", 8), "cortex-a76": ("sdot", 8)}),
    ("bfloat16", "bfloat16", None, {"neoverse-v2": ("bfdot", 8), "cortex-a76": ("bfdot", 0)}),
]


@pytest.mark.parametrize(("left", "right", "largest", "emitted"), ON_ARM)
@pytest.mark.parametrize("mcpu", ["neoverse-v2", "cortex-a76"])
def test_instructions_of_aarch64(left, right, largest, emitted, mcpu):
    before, after, kernel = for_arm(left, right, 13, mcpu, largest)
    name, count = emitted[mcpu]
    assert kernel.llvm_ir().count(f"@llvm.aarch64.neon.{name}.") == count + (count > 0)  # and its declaration
    assert (f"\t{name}\t" in kernel.asm()) == (count > 0)
    same_numbers(before, after)


@needs_emulator
@pytest.mark.parametrize(("left", "right", "largest", "emitted"), [x for x in ON_ARM if x[0] != "bfloat16"])
@pytest.mark.parametrize("mcpu", ["neoverse-v2", "cortex-a76"])
def test_bytes_are_exact_on_aarch64(left, right, largest, emitted, mcpu):
    """At random, and at the ends of the range."""
    _, _, kernel = for_arm(left, right, 13, mcpu, largest)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(np.iinfo(x).min, np.iinfo(x).max, s, x, True) for x, s in ((left, (7, 52)), (right, (13, 32, 4))))
    a[:2] = [[np.iinfo(left).min], [np.iinfo(left).max]]
    b[:, :2] = [[np.iinfo(right).min], [np.iinfo(right).max]]
    c = np.zeros((7, 32), np.int32)
    emulate(kernel, a, b, c)
    a, b = (x & np.uint8(largest) if largest is not None and x.dtype == np.uint8 else x for x in (a, b))
    assert np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32).transpose(0, 2, 1).reshape(52, 32))


@needs_emulator
def test_bfloat16_of_aarch64_is_within_the_bound_of_sums():
    """The sum of two products and its addition are both rounded to odd, by at most an ulp: two times the rounding to nearest."""
    _, _, kernel = for_arm("bfloat16", "bfloat16", 13, "neoverse-v2")
    rng = np.random.default_rng(1)
    a, b = (narrowed(rng.standard_normal(shape), "bfloat16") for shape in ((7, 26), (13, 32, 2)))
    c = np.zeros((7, 32), np.float32)
    emulate(kernel, a, b, c)
    x, y = widened(a, "bfloat16").astype(np.float64), widened(b, "bfloat16").astype(np.float64)
    y = y.transpose(0, 2, 1).reshape(26, 32)
    assert (abs(c - x @ y) <= gamma(2 * (13 + 1)) * (abs(x) @ abs(y))).all()
    a, b = (narrowed(rng.integers(-8, 9, shape), "bfloat16") for shape in ((7, 26), (13, 32, 2)))
    emulate(kernel, a, b, c)
    y = widened(b, "bfloat16").transpose(0, 2, 1).reshape(26, 32)
    assert np.array_equal(c, widened(a, "bfloat16") @ y)
