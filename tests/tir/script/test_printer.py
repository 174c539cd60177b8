"""The printed script: whole functions, expressions with as few parentheses as keep their tree, and the places of statements."""

from __future__ import annotations

import ast
import io

import numpy as np
import pytest

from tests.programs import relu_of_matmul
from tir import te
from tir.ir import (
    FALSE,
    TRUE,
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Iter,
    Kind,
    Let,
    PrimFunc,
    Range,
    Region,
    Select,
    Store,
    Unary,
    Var,
    const,
    nest,
    seq,
)
from tir.script.printer import expr_text, func_text, printed, show, stmt_text
from tir.traverse import rewrite, walk_stmts

i, j, k = Var("i"), Var("j"), Var("k")


def buffer(name: str, *shape: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, tuple(const(d) for d in shape), dtype, scope)


A, B = buffer("A", 7, 13), buffer("B", 13)


# --- functions ---------------------------------------------------------------------------------------------------------


def test_blocks():
    assert relu_of_matmul(7, 109, 13).script() == (
        "from tir.script import tir as T\n"
        "\n"
        "\n"
        "@T.prim_func\n"
        'def main(A: T.Buffer((7, 109), "float32"), B: T.Buffer((109, 13), "float32"), D: T.Buffer((7, 13), "float32")):\n'
        '    T.func_attr({"tir.noalias": T.bool(True)})\n'
        '    # with T.block("root"):\n'
        "    C = T.alloc_buffer((7, 13))\n"
        "    for i, j, k in T.grid(7, 13, 109):\n"
        '        with T.block("C"):\n'
        '            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])\n'
        "            with T.init():\n"
        "                C[v_i, v_j] = T.float32(0.0)\n"
        "            C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]\n"
        "    for i_1, j_1 in T.grid(7, 13):\n"
        '        with T.block("D"):\n'
        '            v_i, v_j = T.axis.remap("SS", [i_1, j_1])\n'
        "            D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))\n"
    )


def test_scheduled_block_with_everything():
    o, p, v = Var("i_0"), Var("i_1"), Var("v_i")
    block = Block(
        "B",
        (Iter(v, const(13), Axis.SPATIAL, o * 4 + p), Iter(Var("v_k"), const(1), Axis.REDUCE, const(0))),
        Store(B, (v,), B[v] + A[0, v]),
        init=Store(B, (v,), const(0.0)),
        predicate=o * 4 + p < 13,
        reads=(Region(A, (Range(const(0), const(1)), Range(v, const(1)))),),
        writes=(Region(B, (Range(v * 2, const(3)),)),),
        allocs=(buffer("S", 4, dtype="int8", scope="local"),),
        annotations=(("note", [1, "two", {"three": True}]),),
    )
    loops = For(o, const(4), For(p, const(4), block, Kind.VECTORIZED), Kind.PARALLEL, (("pragma", 16),))
    assert func_text(PrimFunc("f", (A, B), loops)).split("\n\n\n")[1] == (
        "@T.prim_func\n"
        'def f(A: T.Buffer((7, 13), "float32"), B: T.Buffer((13,), "float32")):\n'
        '    # with T.block("root"):\n'
        '    for i_0 in T.parallel(4, annotations={"pragma": 16}):\n'
        "        for i_1 in T.vectorized(4):\n"
        '            with T.block("B"):\n'
        "                v_i = T.axis.spatial(13, i_0 * 4 + i_1)\n"
        "                v_k = T.axis.reduce(1, 0)\n"
        "                T.where(i_0 * 4 + i_1 < 13)\n"
        "                T.reads(A[0, v_i])\n"
        "                T.writes(B[v_i * 2:v_i * 2 + 3])\n"
        '                T.block_attr({"note": [1, "two", {"three": T.bool(True)}]})\n'
        '                S = T.alloc_buffer((4,), "int8", scope="local")\n'
        "                with T.init():\n"
        "                    B[v_i] = T.float32(0.0)\n"
        "                B[v_i] = B[v_i] + A[0, v_i]\n"
    )


def test_lowered_statements():
    n, at = Var("n"), Var("at")
    T_ = buffer("S", 91)
    body = Let(at, i * 13 + j, If((at % 2).equal(0), Store(T_, (at,), const(1.0)), seq(Store(T_, (at,), A[i, j]), Evaluate(at))))
    serial = For(i, const(7), For(j, n, body, Kind.UNROLLED), annotations=(("x", 1.5),))
    f = PrimFunc("f", (A, n), Allocate(T_, seq(serial, For(k, const(3), Evaluate(k), Kind.THREAD, thread="threadIdx.x"))))
    assert func_text(f).split("\n\n\n")[1] == (
        "@T.prim_func\n"
        'def f(A: T.Buffer((7, 13), "float32"), n: T.int32):\n'
        "    S = T.decl_buffer((91,))\n"
        '    for i in T.serial(7, annotations={"x": 1.5}):\n'
        "        for j in T.unroll(n):\n"
        "            at: T.int32 = i * 13 + j\n"
        "            if at % 2 == 0:\n"
        "                S[at] = T.float32(1.0)\n"
        "            else:\n"
        "                S[at] = A[i, j]\n"
        "                T.evaluate(at)\n"
        '    for k in T.thread_binding(3, thread="threadIdx.x"):\n'
        "        T.evaluate(k)\n"
    )


def test_rank_0():
    x, y = te.placeholder((), name="x"), None
    y = te.compute((), lambda: x + 1.0, name="y")
    assert func_text(te.create_prim_func([x, y])).splitlines()[4:] == [
        'def main(x: T.Buffer((), "float32"), y: T.Buffer((), "float32")):',
        '    T.func_attr({"tir.noalias": T.bool(True)})',
        '    # with T.block("root"):',
        '    with T.block("y"):',
        "        y[()] = x[()] + T.float32(1.0)",
    ]


def test_a_triangular_nest_is_no_grid():
    assert stmt_text(For(i, const(7), For(j, i + 1, Evaluate(j)))) == (
        "for i in range(7):\n    for j in range(i + 1):\n        T.evaluate(j)\n"
    )


def test_remap_needs_loops_of_the_same_extent():
    def block(*iters: Iter) -> str:
        return stmt_text(nest([(i, 7), (j, 13)], Block("b", iters, Evaluate(const(0))))).splitlines()[2:-1]

    v, w = Var("v"), Var("w")
    same = Iter(v, const(7), Axis.SPATIAL, i), Iter(w, const(13), Axis.OPAQUE, j)
    assert [x.strip() for x in block(*same)] == ['v, w = T.axis.remap("SO", [i, j])']
    other = Iter(v, const(8), Axis.SPATIAL, i), Iter(w, const(13), Axis.OPAQUE, j)
    assert [x.strip() for x in block(*other)] == ["v = T.axis.spatial(8, i)", "w = T.axis.opaque(13, j)"]


def test_script_is_python():
    for f in (
        relu_of_matmul(7, 109, 13),
        rewrite(relu_of_matmul(7, 109, 13), lambda n: n.with_(kind=Kind.PARALLEL) if isinstance(n, For) else None),
    ):
        ast.parse(f.script())


def test_show_writes_plain_text_to_a_file():
    out = io.StringIO()
    show(relu_of_matmul(7, 109, 13), out)
    assert out.getvalue() == relu_of_matmul(7, 109, 13).script()


# --- expressions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (i + j * k, "i + j * k"),
        ((i + j) * k, "(i + j) * k"),
        (i - (j - k), "i - (j - k)"),
        (i - j - k, "i - j - k"),
        (i * (j // k), "i * (j // k)"),
        (i * j // k, "i * j // k"),
        (-(i + j), "-(i + j)"),
        (-i * j, "-i * j"),
        (-(i * j), "-(i * j)"),
        (Unary("neg", const(3)), "T.neg(3)"),
        (i - const(-3), "i - -3"),
        (const(2) + const(3), "T.int32(2) + 3"),
        ((i < j).equal(j < k), "(i < j) == (j < k)"),
        (Binary("and", Binary("or", i < j, TRUE), FALSE), "(i < j or T.bool(True)) and T.bool(False)"),
        (Binary("or", Binary("and", i < j, TRUE), FALSE), "i < j and T.bool(True) or T.bool(False)"),
        (Unary("not", i < j), "not i < j"),
        (Unary("not", Binary("and", TRUE, FALSE)), "not (T.bool(True) and T.bool(False))"),
        (Binary("and", Unary("not", TRUE), FALSE), "not T.bool(True) and T.bool(False)"),
        (te.maximum(i, j) + te.minimum(i, 3), "T.max(i, j) + T.min(i, 3)"),
        (Cast("float16", i + j), 'T.Cast("float16", i + j)'),
        (Select(i < j, i, j), "T.Select(i < j, i, j)"),
        (Select(i < j, i, j, lazy=True), "T.if_then_else(i < j, i, j)"),
        (Call("pow", (B[i], B[j]), "float32"), "T.pow(B[i], B[j])"),
        (A[i + 1, j % 4], "A[i + 1, j % 4]"),
        (const(2.5), "T.float32(2.5)"),
        (Const(1e-30, "float64"), "T.float64(1e-30)"),
        (Const(float("inf"), "float32"), 'T.float32("inf")'),
        (Const(float("-inf"), "float16"), 'T.float16("-inf")'),
        (Const(7, "int64"), "T.int64(7)"),
        (Const(-7), "-7"),
        (Const(-128, "int8"), "T.int8(-128)"),
    ],
)
def test_expressions(expr: Expr, text: str):
    assert expr_text(expr) == text
    assert str(expr) == text


_OPS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or",
}  # fmt: skip


def parsed(tree: ast.expr) -> Expr:
    """The expression that Python sees in a text of integers, comparisons and logic."""
    match tree:
        case ast.Name(name):
            return Var(name)
        case ast.Constant(value):
            return const(value)
        case ast.UnaryOp(ast.USub(), ast.Constant(value)):
            return const(-value)
        case ast.UnaryOp(ast.USub(), operand):
            return Unary("neg", parsed(operand))
        case ast.UnaryOp(ast.Not(), operand):
            return Unary("not", parsed(operand))
        case ast.BinOp(left, op, right):
            return Binary(_OPS[type(op)], parsed(left), parsed(right))
        case ast.Compare(left, [op], [right]):
            return Binary(_OPS[type(op)], parsed(left), parsed(right))
        case ast.BoolOp(op, [first, *others]):
            result = parsed(first)
            for x in others:
                result = Binary(_OPS[type(op)], result, parsed(x))
            return result
        case ast.Call(ast.Attribute(_, "min" | "max" as op), [a, b]):
            return Binary(op, parsed(a), parsed(b))
        case ast.Call(ast.Attribute(_, "neg"), [a]):
            return Unary("neg", parsed(a))
        case ast.Call(ast.Attribute(_, "int32"), [a]):
            return parsed(a)
        case ast.Call(ast.Attribute(_, "if_then_else"), [c, t, f]):
            return Select(parsed(c), parsed(t), parsed(f), lazy=True)
    raise AssertionError(ast.dump(tree))


def random_integer(rng: np.random.Generator, depth: int) -> Expr:
    if depth == 0:
        return [i, j, k, const(3), const(-2), const(0)][rng.integers(6)]
    a, b = random_integer(rng, depth - 1), random_integer(rng, int(rng.integers(depth)))
    if rng.integers(2):
        a, b = b, a
    op = rng.choice(["+", "-", "*", "//", "%", "min", "max", "neg", "select"])
    if op == "neg":
        return Unary("neg", a)
    if op == "select":
        return Select(random_condition(rng, depth - 1), a, b, lazy=True)
    return Binary(str(op), a, b)


def random_condition(rng: np.random.Generator, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.3:
        op = str(rng.choice(["<", "<=", ">", ">=", "==", "!="]))
        return Binary(op, random_integer(rng, depth), random_integer(rng, depth))
    if rng.random() < 0.2:
        return Unary("not", random_condition(rng, depth - 1))
    return Binary(str(rng.choice(["and", "or", "=="])), random_condition(rng, depth - 1), random_condition(rng, depth - 1))


def test_text_keeps_the_tree():
    rng = np.random.default_rng(0)
    for _ in range(500):
        for e in (random_integer(rng, 4), random_condition(rng, 3)):
            assert parsed(ast.parse(expr_text(e), mode="eval").body) == e, expr_text(e)


# --- places ------------------------------------------------------------------------------------------------------------


def test_spans_show_each_statement():
    f = relu_of_matmul(7, 109, 13)
    out = printed(f)
    assert out.text == f.script().split("\n\n\n")[1]
    shown = {}
    for s in walk_stmts(f.body):
        if id(s) in out.spans:
            line, start, end = out.spans[id(s)]
            shown[getattr(s, "name", "store")] = out.lines[line][start:end]
    assert shown == {
        "i": "i",
        "j": "j",
        "k": "k",
        "i_1": "i_1",
        "j_1": "j_1",
        "C": 'with T.block("C"):',
        "D": 'with T.block("D"):',
        "store": "D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))",
    }
