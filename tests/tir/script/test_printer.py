"""The printed script: whole functions, expressions with as few parentheses as keep their tree, and the places of statements."""

from __future__ import annotations

import ast
import io
import math

import pytest

from schedule import Schedule
from tests.programs import relu_of_matmul
from tests.schedule.harness import round_trip, same_numbers
from tests.tir.script.random_functions import RandomFunction
from tir import te, workloads
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
    Seq,
    Store,
    Unary,
    Var,
    const,
    nest,
    seq,
)
from tir.script import parse
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


@pytest.mark.parametrize(("expr", "text"), [
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
])  # fmt: skip
def test_expressions(expr: Expr, text: str):
    assert expr_text(expr) == text
    assert str(expr) == text


# --- printing and parsing are inverse ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", workloads.names())
def test_workloads_round_trip(name: str):
    round_trip(workloads.make(name).func)


def test_scheduled_programs_round_trip():
    s = Schedule(workloads.make("mlp", (7, 13, 5, 11)).func)
    m, _, k = s.get_loops("C")
    outer, inner = s.split(m, [None, 4])
    s.vectorize(inner)
    s.annotate(outer, "pragma", [1, 2.5, {"a": None}])
    s.parallel(outer)
    round_trip(s.func)
    same_numbers(s.func, parse(s.func.script()), llvm=False)
    assert k


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_round_trip(seed: int):
    round_trip(RandomFunction(seed).function())


def test_deep_expressions_keep_their_tree():
    made = RandomFunction(0)
    expressions = [f(made.sizes, depth=4) for _ in range(150) for f in (made.integer, made.condition)]
    round_trip(PrimFunc("f", (*made.sizes, *made.buffers), seq(*map(Evaluate, expressions))))


def test_declared_buffers_and_allocations_are_told_apart():
    S, R = Buffer("S", (const(7),)), Buffer("R", (const(3),), "int8", "local")
    at = (const(0),)
    store, other = Store(S, at, const(1.0)), Store(R, at, const(1, "int8"))
    for func in (
        PrimFunc("f", (), Allocate(S, store)),
        PrimFunc("f", (), store, (S,)),
        PrimFunc("f", (), Seq((Allocate(S, store), Allocate(R, other)))),
        PrimFunc("f", (), Allocate(S, Seq((store, Allocate(R, Seq((other, store))))))),
        PrimFunc("f", (), Allocate(S, Seq((Allocate(R, Seq((other, store))), store)))),
        PrimFunc("f", (), Block("b", (), Seq((Allocate(R, other), store)), allocs=(S,))),
        PrimFunc("f", (), Seq((Let(Var("x"), const(1), Evaluate(Var("x"))), Let(Var("x"), const(2), Evaluate(Var("x")))))),
    ):
        round_trip(func)


def test_floats_keep_their_sign_and_nan():
    x = Buffer("X", (const(7),))
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4028234663852886e38, 0.1]
    func = PrimFunc("f", (x,), seq(*(Store(x, (const(0),), const(v)) for v in values)))
    round_trip(func)
    again = [s.value.value for s in parse(func.script()).body.stmts]
    assert [repr(v) for v in again] == [repr(v) for v in values]


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
