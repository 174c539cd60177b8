"""The simulator itself: instructions beside exact arithmetic, and each of its traps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.codegen.cuda.ptx.arithmetic import ELEMENTWISE, operand_types
from tests.codegen.cuda.ptx.machine import SPACE_BITS, Machine
from tests.codegen.cuda.ptx.memory import Memory, PTXError
from tests.codegen.cuda.ptx.text import parse

RNG = np.random.default_rng(0)
EDGES = [
    0,
    1,
    2,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFF,
    0x00800000,
    0x3F800000,
    0x3F800001,
    0x7F7FFFFF,
    0x7F800000,
    0x7FC00000,
]


def bits(count: int, dtype: str = "u4") -> np.ndarray:
    drawn = RNG.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), count, "u8")
    drawn[: len(EDGES)] = EDGES
    return RNG.permutation(drawn).astype(dtype)


def compute(name: str, *operands: np.ndarray) -> np.ndarray:
    parts = name.split(".")
    with np.errstate(all="ignore"):
        return ELEMENTWISE[parts[0]](
            parts, *(x.view(t) for x, t in zip(operands, operand_types(parts, len(operands)), strict=True))
        )


def rounded(exact: Fraction, dtype: type) -> float:
    """To the nearest, ties to even, by comparing the neighbours."""
    near = dtype(float(exact)) if abs(exact) < 2**1023 else dtype(np.inf if exact > 0 else -np.inf)
    if not np.isfinite(near):
        return near
    about = [near, np.nextafter(near, dtype(-np.inf)), np.nextafter(near, dtype(np.inf))]
    return min(
        (x for x in about if np.isfinite(x)), key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(f"u{x.itemsize}")) & 1)
    )


@pytest.mark.parametrize(
    ("name", "dtype", "spread"), [("fma.rn.f32", np.float32, 40), ("fma.rn.f64", np.float64, 60), ("fma.rn.f64", np.float64, 480)]
)
def test_a_fused_product_is_rounded_once(name: str, dtype: type, spread: int) -> None:
    """Also where the sum lies between two numbers, cancels, or is subnormal."""
    a, b, c = (np.ldexp(RNG.integers(-(2**10), 2**10, 3000).astype(dtype), RNG.integers(-spread, spread, 3000)) for _ in range(3))
    c[::3] = np.nextafter(-(a * b)[::3], dtype(0))
    c[1::9] = (a * b)[1::9] * dtype(2.0 ** -(np.finfo(dtype).nmant + 1))
    a[::2] = np.nextafter(a[::2], dtype(np.inf))
    got = compute(name, a, b, c)
    for x, y, z, r in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert r == rounded(exact, dtype), (x, y, z, r)


def test_directed_rounding_is_to_its_side() -> None:
    a, b, c = (RNG.normal(size=500).astype(np.float32) for _ in range(3))
    for x, y, z, down, up in zip(a, b, c, compute("fma.rm.f32", a, b, c), compute("fma.rp.f32", a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert Fraction(float(down)) <= exact <= Fraction(float(up)) and up in (down, np.nextafter(down, np.float32(np.inf)))


def _signed(x: int, width: int = 32) -> int:
    return x - (x >> (width - 1) << width)


INTEGERS = {
    "mul.lo.s32": lambda a, b: a * b, "mul.hi.u32": lambda a, b: a * b >> 32, "mul.hi.s32": lambda a, b: _signed(a) * _signed(b) >> 32,
    "sub.s32": lambda a, b: a - b, "div.u32": lambda a, b: a // b if b else -1, "rem.u32": lambda a, b: a % b if b else a,
    "div.s32": lambda a, b: int(Fraction(_signed(a), _signed(b))) if b else -1,
    "shl.b32": lambda a, b: a << b if b < 32 else 0, "shr.u32": lambda a, b: a >> b if b < 32 else 0, "shr.s32": lambda a, b: _signed(a) >> min(b, 31),
    "min.s32": lambda a, b: min(_signed(a), _signed(b)), "max.u32": max,
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_around(name: str) -> None:
    a, b = bits(500), bits(500)
    b[::2] %= 40
    expected = [INTEGERS[name](int(x), int(y)) & 0xFFFFFFFF for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(compute(name, a, b).view(np.uint32), np.array(expected, np.uint32))


DOTS = {
    "dp4a.u32.u32": 255 * 5 + 2 * 255 + 3 * 7, "dp4a.s32.s32": -5 - 2 + 21,
    "dp2a.lo.u32.u32": 3 * 7 + 0xFF02, "dp2a.hi.u32.s32": -3 + 0xFF02 * 5,
}  # fmt: skip


def test_wide_products_and_fields() -> None:
    a, b = bits(500, "u8"), bits(500, "u8")
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert compute("mul.hi.u64", a, b).tolist() == [x * y >> 64 for x, y in pairs]
    assert compute("mul.hi.s64", a, b).tolist() == [_signed(x, 64) * _signed(y, 64) >> 64 for x, y in pairs]
    assert compute("popc.b64", a).tolist() == [x.bit_count() for x, _ in pairs]
    words = [compute(name, *(np.array([n], np.uint32) for n in (0xFF020003, 0x05FF0107, 9)))[0] for name in DOTS]
    assert words == [(x + 9) % 2**32 for x in DOTS.values()]
    start, count = bits(500) % 70, bits(500) % 70
    masks = [((1 << int(c)) - 1) << int(s) & (2**64 - 1) for s, c in zip(start, count, strict=True)]
    fields = [y & ~mask | x << int(s) & mask for (x, y), s, mask in zip(pairs, start, masks, strict=True)]
    assert compute("bfi.b64", a, b, start, count).tolist() == fields


def test_numbers_are_converted_as_the_manual_says() -> None:
    x = np.array([0.5, 1.5, -1.5, 3e9, -3e9, np.nan, np.inf, 255.5], np.float32)
    assert compute("cvt.rni.s32.f32", x).tolist() == [0, 2, -2, 2**31 - 1, -(2**31), 0, 2**31 - 1, 256]
    assert compute("cvt.rzi.u8.f32", x).tolist() == [0, 1, 0, 255, 0, 0, 255, 255]
    assert compute("cvt.rzi.s64.f32", x)[5] == -(2**63) and compute("cvt.sat.f32.f32", x).tolist() == [0.5, 1, 0, 1, 0, 0, 1, 1]
    assert compute("cvt.s64.s32", np.array([-5], np.int32)).tolist() == [-5] and compute(
        "cvt.u16.u32", np.array([65537], np.uint32)
    ).tolist() == [1]
    assert compute("cvt.rna.tf32.f32", np.array([1 + 2.0**-11], np.float32)).view(np.float32)[0] == 1 + 2.0**-10
    nan, one = np.array([np.nan], np.float32), np.ones(1, np.float32)
    ordered = {name: compute(f"setp.{name}.f32", nan, one)[0] for name in ("eq", "ne", "lt", "neu", "ltu", "geu", "nan", "num")}
    assert ordered == {"eq": False, "ne": False, "lt": False, "neu": True, "ltu": True, "geu": True, "nan": True, "num": False}
    assert compute("min.f32", nan, one)[0] == 1 and np.signbit(compute("min.f32", 0 * one, -0.0 * one)[0])


def test_approximations_move_within_their_bounds() -> None:
    x = RNG.uniform(0.5, 2, 10_000).astype(np.float32)
    for name, true, bound in (
        ("rcp.approx.ftz.f32", 1 / x.astype(float), 2.0**-23),
        ("ex2.approx.ftz.f32", np.exp2(x.astype(float)), 2.0**-21.5),
    ):
        error = abs(compute(name, x) / true - 1)
        assert 2.0**-25 < error.max() <= bound
    assert compute("rcp.approx.ftz.f32", np.array([0, -np.inf, 1e-39], np.float32)).tolist() == [np.inf, -0.0, np.inf]
    assert (compute("rcp.approx.ftz.f64", RNG.uniform(1, 2, 9)).view(np.uint64) & np.uint64(0xFFFFFFFF) == 0).all()


KERNEL = """
.visible .entry k(.param .u64 k_param_0)
{{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<4>;
  .shared .align 16 .b8 S[256];
  ld.param.u64 %rd1, [k_param_0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r2, S;
  shl.b32 %r3, %r1, 2;
  add.s32 %r2, %r2, %r3;
  setp.lt.u32 %p1, %r1, 8;
  {body}
  ret;
}}
"""


def launched(body: str, threads: int = 64) -> np.ndarray:
    """The words of an array of as many after a block of threads ran."""
    memory = Memory("A", 4 * threads, 4, data=np.arange(threads, dtype=np.uint32))
    machine = Machine(parse(KERNEL.format(body=body)), [memory], (1, 1, 1), (threads, 1, 1), np.arange(1), 0, 4)
    machine.launch("k", [np.array([1 << SPACE_BITS], np.uint64).view(np.uint8).reshape(1, 8)])
    return memory.data.view(np.uint32)[:threads]


def test_lanes_part_and_meet_again() -> None:
    """Loops of as many iterations as the lane has a number, then a shuffle of all."""
    body = """mov.u32 %r4, 0; mov.u32 %r5, 0;
      $L0: setp.ge.u32 %p2, %r4, %r1; @%p2 bra $L1; add.s32 %r5, %r5, %r4; add.s32 %r4, %r4, 1; bra.uni $L0;
      $L1: shfl.sync.bfly.b32 %r6|%p3, %r5, 1, 31, -1; st.global.u32 [%rd3], %r6;"""
    assert launched(body).tolist() == [(n ^ 1) * ((n ^ 1) - 1) // 2 for n in range(64)]


TRAPS = {
    "ld.global.u32 %r4, [%rd3+4];": "4 bytes at 256 are outside the 256 of A",
    "ld.global.u32 %r4, [%rd2];": "the address 0x0 is in no array",
    "@%p1 ld.global.v2.u32 {%r4, %r5}, [%rd3];": "8 bytes at 4 of A are not aligned",
    "ld.shared.u32 %r4, [%r2]; add.s32 %r4, %r4, 1; st.global.u32 [%rd3], %r4;": "a value that nothing wrote is stored in A",
    "@%p2 st.global.u32 [%rd3], %r1;": "register %p2 is read, and nothing wrote it",
    "@%p1 mov.u32 %r4, 0; ld.shared.u32 %r5, [%r4];": "register %r4 is read, and nothing wrote it",
    "st.shared.u32 [%r2], %r1; xor.b32 %r4, %r2, 4; ld.shared.u32 %r5, [%r4];": r"race: a thread reads byte 4 of shared memory",
    "ld.shared.u32 %r5, [S]; @%p1 st.shared.u32 [S], %r1;": "race: a thread writes byte 0 of shared memory",
    "st.global.u32 [%rd1], %r1;": "race: a thread writes byte 0 of A",
    "@%p1 bra $L; bar.sync 0; $L:": "some threads wait at a barrier that others of their block do not reach",
    "@%p1 bra $L; bar.sync 0; bra.uni $M; $L: bar.sync 0; $M:": "threads of one block wait at different barriers",
    "@%p1 shfl.sync.bfly.b32 %r4|%p2, %r1, 1, 31, -1;": "lanes that a shuffle names are not there",
    "@%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r2];": "lanes of a warp part at an instruction of the whole warp",
    "cp.async.ca.shared.global [%r2], [%rd3], 4; cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r4, [%r2];": "a copy to them is on its way",
    "cp.async.ca.shared.global [%r2], [%rd3], 4;": "ends with copies that it has not waited for",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r4, %r5, %r6, %r7}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%r1, %r1, %r1, %r1};": "has not been rounded",
    "vote.sync.any.pred %p2, %p1, -1;": r"the instruction `vote\.sync\.any\.pred` is not known",
    "cvt.rn.e4m3x2.f32 %r4, %r1, %r1;": r"the instruction `cvt\.rn\.e4m3x2\.f32` is not known",
}  # fmt: skip


@pytest.mark.parametrize("body", TRAPS)
def test_what_no_kernel_may_do_is_trapped(body: str) -> None:
    with pytest.raises(PTXError, match=TRAPS[body]):
        launched(body)
