"""Expressions of scripts: what each becomes, and what Python may compute."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import tir
from tests.tir.script.parsing import parsed, script
from tir import te
from tir.interpreter import run
from tir.ir import Binary, Buffer, Call, Cast, Evaluate, Expr, Load, Select, Unary, Var, const
from tir.script import ScriptError, parse
from tir.script import tir as T

i, j = Var("i"), Var("j")
f = Load(Buffer("A", (const(7), const(13))), (i, j))
g = Load(Buffer("G", (const(7),), "int8"), (i,))


@pytest.mark.parametrize(("text", "expected"), [
    ("i + 1", i + 1),
    ("1 + i", 1 + i),
    ("2 * 3 + i", 6 + i),
    ("-i", Unary("neg", i)),
    ("-3", const(-3)),
    ("-T.float32(3)", const(-3.0)),
    ("+i", i),
    ("A[i, j] + 1", f + 1.0),
    ("A[i, j] * 0.1", f * 0.1),
    ("G[i] + 1", Binary("+", g, const(1, "int8"))),
    ("G[i] + 1000", Binary("+", Cast("int32", g), const(1000))),
    ("G[i] + i", Binary("+", Cast("int32", g), i)),
    ("i + A[i, j]", Binary("+", Cast("float32", i), f)),
    ("i // 4 % 3", i // 4 % 3),
    ("T.floordiv(i, 4) + T.floormod(i, 4)", i // 4 + i % 4),
    ("T.truncdiv(i, 4) + T.truncmod(i, 4)", i // 4 + i % 4),
    ("T.ceildiv(i, 4)", (i + 4 - 1) // 4),
    ("T.ceildiv(13, 4) + i", 4 + i),
    ("i << 3", i * 8),
    ("i >> 3", i // 8),
    ("i & 7", i % 8),
    ("T.bitwise_and(i, 7)", i % 8),
    ("(i < 3) & (j < 3) | ~(i < j)", te.any(te.all(i < 3, j < 3), Unary("not", i < j))),
    ("(i < 3) + (j < 3) * (i < j)", te.any(i < 3, te.all(j < 3, i < j))),
    ("T.max(i < 3, T.min(j < 3, i < j))", te.any(i < 3, te.all(j < 3, i < j))),
    ("i == j", i.equal(j)),
    ("i < j < 3", te.all(i < j, j < 3)),
    ("i < 3 and j < 3 and i < j", te.all(i < 3, j < 3, i < j)),
    ("i < 3 or (j < 3 or i < j)", te.any(i < 3, te.any(j < 3, i < j))),
    ("T.all(i < 3, j < 3)", te.all(i < 3, j < 3)),
    ("T.Not(i < 3)", Unary("not", i < 3)),
    ("T.max(i, 3) + T.min(3, i)", te.maximum(i, 3) + te.minimum(3, i)),
    ("max(i, j, 3)", te.maximum(te.maximum(i, j), 3)),
    ("abs(i) + max(2, 3)", te.abs(i) + 3),
    ("T.if_then_else(i < 3, A[i, j], 0)", Select(i < 3, f, const(0.0), lazy=True)),
    ("T.Select(i < 3, 1, 2)", Select(i < 3, const(1), const(2))),
    ("A[i, j] if i < 3 else 0.5", Select(i < 3, f, const(0.5), lazy=True)),
    ('T.Cast("float16", i)', Cast("float16", i)),
    ('T.cast(i, "int64")', Cast("int64", i)),
    ('T.cast(i, "int32")', i),
    ('i.astype("float32")', Cast("float32", i)),
    ("T.int64(i)", Cast("int64", i)),
    ("T.float32(3)", const(3.0)),
    ("T.int8(-128)", const(-128, "int8")),
    ('T.float32("-inf")', const(-math.inf)),
    ('T.float16("inf")', const(math.inf, "float16")),
    ('T.float64("nan")', const(math.nan, "float64")),
    ('T.infinity("float32")', const(math.inf)),
    ('T.min_value("float32")', const(float(np.finfo("float32").min))),
    ('T.max_value("float16")', const(65504.0, "float16")),
    ('T.max_value("int8")', const(127, "int8")),
    ("T.exp(A[i, j])", Call("exp", (f,), "float32")),
    ("T.pow(A[i, j], 2)", Call("pow", (f, const(2.0)), "float32")),
    ("T.power(A[i, j], 2.0)", Call("pow", (f, const(2.0)), "float32")),
    ("T.sigmoid(T.tanh(T.erf(T.rsqrt(A[i, j]))))", te.sigmoid(te.tanh(te.erf(te.rsqrt(f))))),
    ("T.fabs(T.floor(T.ceil(T.sqrt(T.log(A[i, j])))))", te.abs(te.floor(te.ceil(te.sqrt(te.log(f)))))),
    ('T.exp(A[i, j], dtype="float32")', te.exp(f)),
    ('T.if_then_else(T.likely(i < 3, dtype="bool"), A[i, j], 0.0, dtype="float32")', te.if_then_else(i < 3, f, 0.0)),
    ('T.max_value(dtype="int8")', const(127, "int8")),
    ("T.log2(T.round(A[i, j])) + T.atan2(A[i, j], 1)", te.log2(te.round(f)) + te.atan2(f, 1.0)),
    ("A[i, j] ** 2", te.pow(f, 2.0)),
    ("i & 5", te.bit_and(i, 5)),
    ("i | j ^ ~i", te.bit_or(i, te.bit_xor(j, te.bit_xor(i, -1)))),
    ("i << j >> 2", te.shl(i, j) // 4),
    ("T.clip(A[i, j], 0, 6)", te.minimum(te.maximum(f, 0.0), 6.0)),
    ("T.isnan(A[i, j])", Binary("!=", f, f)),
    ("T.Div(A[i, j], 2)", f / 2.0),
    ("T.Mul(2, 3) + T.Sub(i, T.FloorMod(j, 2))", Binary("*", const(2), const(3)) + (i - j % 2)),
    ("T.meta_var(3) + i", 3 + i),
    ("A.shape[1] + i", 13 + i),
    ("A.dtype == 'float32' and i < 3", i < 3),
    ("[1, 2, 3][1:][0] + i", 2 + i),
    ("len((1, 2)) * int(2.5) + i", 4 + i),
    ("G[i].dtype == 'int8' or i", const(True)),
    ("True", const(True)),
])  # fmt: skip
def test_expressions(text: str, expected: Expr):
    func = parsed(
        f"for i, j in T.grid(7, 13):\n    T.evaluate({text})", 'A: T.Buffer((7, 13), "float32"), G: T.Buffer((7,), "int8")'
    )
    assert func.body.body.body == Evaluate(expected)


@pytest.mark.parametrize("shift", ["1395864320, 31, -3", 'T.int32(1395864320), T.int32(31), T.int32(-3), dtype="int32"'])
def test_products_with_a_fraction_are_rounded_to_nearest(shift):
    func = parse(
        "@T.prim_func\ndef main(A: T.Buffer((8,), 'int32'), B: T.Buffer((8,), 'int32')):\n"
        f"    for i in range(8):\n        x = T.bind(A[i])\n        B[i] = T.q_multiply_shift(x, {shift})\n"
    )
    a, b = np.array([-1000, 999, 7, -7, 2**30, -(2**30), 5, 0], "int32"), np.zeros(8, "int32")
    run(func, a, b)
    assert list(b) == [math.floor(int(x) * 1395864320 / 2**34 + 0.5) for x in a]


def test_helpers_of_python_build_expressions():
    calls = []

    def clipped(x, low, high=1.0):
        calls.append(x)
        return T.min(T.max(x, low), high)

    @T.prim_func
    def clip(A: T.Buffer((7,), "float32")):
        for i in range(7):
            A[i] = clipped(A[i], 0.0, high=6.0)

    assert len(calls) == 1
    assert str(clip.body.body.value) == "T.min(T.max(A[i], T.float32(0.0)), T.float32(6.0))"


def test_a_text_executes_nothing():
    for text in ("__import__('os')", "(1).__class__", "'{0.x}'.format(3)", "[].append(3)", "T.exp.__globals__", "(lambda: 1)()"):
        with pytest.raises(ScriptError):
            parse(script(f"x = {text}"))


@pytest.mark.parametrize(("extent", "reason"), [
    ("9**9**9", "a number of more than 1024 bits"),
    ("1 << 10**9", "a number of more than 1024 bits"),
    ("*".join(["99999999999"] * 1000), "a number of more than 1024 bits"),
    ("round(5, -10**9)", "a number of more than 1024 digits"),
    ("len('a' * 10**10)", "more than 100000 items"),
    ("len([0] * 99999 + [0] * 99999)", "more than 100000 items"),
    ("len('%1000000000d' % 1)", "`%` formats no text here; write an f-string"),
    ("sum(range(10**10))", "more than 100000 items"),
    ("len((*range(10**10),))", "more than 100000 items"),
])  # fmt: skip
def test_what_python_computes_is_limited(extent, reason):
    with pytest.raises(ScriptError, match=re.escape(reason)):
        parse(f"@T.prim_func\ndef f(A: T.Buffer(({extent},))):\n    A[0] = 0.0\n")


@pytest.mark.parametrize("terms", ["+".join(["A[0]"] * 3000), "+".join(["A[0]"] * 20_000), "-" * 20_000 + "A[0]"])
def test_an_expression_that_is_nested_too_deeply(terms):
    with pytest.raises(ScriptError, match="nested too deeply"):
        parse(f"@T.prim_func\ndef f(A: T.Buffer((1,))):\n    A[0] = {terms}\n")


def test_quotients_toward_zero():
    f = parsed(
        """
        for i, j in T.grid(7, 5):
            C[i, j] = T.truncdiv(A[i], B[j]) * 100 + T.truncmod(A[i], B[j]) * 10 + T.truncdiv(A[i], 3)
        """,
        'A: T.Buffer((7,), "int32"), B: T.Buffer((5,), "int32"), C: T.Buffer((7, 5), "int32")',
    )
    a, b = np.array([-7, -6, -1, 0, 1, 6, 7], "int32"), np.array([-3, -1, 1, 2, 7], "int32")
    c, compiled = np.zeros((7, 5), "int32"), np.zeros((7, 5), "int32")
    run(f, a, b, c)
    tir.build(f)(a, b, compiled)
    quotient = np.trunc(a[:, None] / b).astype("int32")
    assert np.array_equal(c, quotient * 100 + (a[:, None] - quotient * b) * 10 + np.trunc(a / 3).astype("int32")[:, None])
    assert np.array_equal(compiled, c)
