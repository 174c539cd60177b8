"""Functions read from texts and from Python: what they see around them, sizes, attributes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.programs import symbolic
from tests.schedule.harness import round_trip, without_header
from tests.tir.script.parsing import Body, parsed
from tir import te
from tir.ir import Evaluate, Expr, const
from tir.script import parse
from tir.script import tir as T

N, M = 7, 13
SHAPE = (N, M)


def half(x: Expr) -> Expr:
    return x * 0.5


@T.prim_func
def scaled(A: T.Buffer(SHAPE, "float32"), b: T.handle):
    B = T.match_buffer(b, (N, M), "float32")
    for i, j in T.grid(N, M):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = half(A[vi, vj]) + N


def test_a_decorated_function_sees_its_surroundings():
    assert scaled == parsed(
        """
        # with T.block("root"):
        for i, j in T.grid(7, 13):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(0.5) + 7
        """
    ).with_(name="scaled")


def test_local_names_and_numpy_scalars_are_captured():
    n, m, factor = np.int64(3), 4, np.float64(0.25)
    sizes = {"m": m}

    class Config:
        k = 2

    @T.prim_func(private=True)
    def f(A: T.Buffer((n, m), "float32"), B: "T.Buffer((n, m), 'float32')"):  # noqa: UP037
        for i, j in T.grid(n, sizes["m"]):
            B[i, j] = A[i, j] * factor + T.float32(Config.k * len(sizes))

    assert without_header(f.script()) == (
        "@T.prim_func\n"
        'def f(A: T.Buffer((3, 4), "float32"), B: T.Buffer((3, 4), "float32")):\n'
        "    for i, j in T.grid(3, 4):\n"
        "        B[i, j] = A[i, j] * T.float32(0.25) + T.float32(2.0)"
    )


def test_forms_mean_nothing_outside():
    with pytest.raises(
        TypeError, match=r"^T.grid has a meaning only inside a function under @T.prim_func; it is the range of a `for`$"
    ):
        T.grid(1, 2)
    with pytest.raises(
        TypeError, match=r"^T.int32\(\) makes a size only inside a function under @T.prim_func, as `n = T.int32\(\)`$"
    ):
        T.int32()
    assert T.exp(T.float32(1)) == te.exp(const(1.0))


def test_symbolic_sizes():
    expected = """
        for i in range(n):
            B[i] = A[i] + T.float32(1.0)
        """
    wanted = None
    for params, header in (
        ('A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32"), n: T.int32', ""),
        ('A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")', ""),
        ("a: T.handle, b: T.handle, n: T.int32", "A = T.match_buffer(a, n)\nB = T.match_buffer(b, [n])\n"),
        ("a: T.handle, b: T.handle", "n = T.int32()\nA = T.match_buffer(a, (n,))\nB = T.match_buffer(b, (n,))\n"),
        ("a: T.handle, b: T.handle", 'n = T.var("int32")\nA = T.match_buffer(a, (n,))\nB = T.match_buffer(b, ("n",))\n'),
    ):
        func = Body(f"{header}for i in range(n):\n    B[i] = A[i] + 1", params).becomes(expected)
        wanted = wanted or func
        assert func == wanted
    assert [p.name for p in func.params] == ["A", "B", "n"]


def test_printed_symbolic_functions_are_python():
    """Python evaluates the annotations, and does not know the sizes."""
    func = symbolic()
    round_trip(func)
    namespace: dict = {}
    source = func.script()
    import linecache

    linecache.cache["<symbolic>"] = (len(source), None, source.splitlines(True), "<symbolic>")
    exec(compile(source, "<symbolic>", "exec"), namespace)
    assert namespace["main"] == func


def test_attributes_and_docstrings():
    func = parsed(
        '''
        """What it does."""
        T.func_attr({"global_symbol": "main", "tir.noalias": T.bool(True), "target": T.target({"kind": "llvm", "num-cores": 16})})
        T.func_attr({"list": [1, (2.5, "x")], "int": T.int64(3)})
        pass
        '''
    )
    assert func.attrs == (
        ("global_symbol", "main"),
        ("int", 3),
        ("list", [1, [2.5, "x"]]),
        ("target", {"kind": "llvm", "num-cores": 16}),
        ("tir.noalias", True),
    )
    assert func.body == Evaluate(const(0))


def test_a_text_that_is_indented_as_a_whole():
    plain = """
# a copy
from tir.script import tir as T
N = 7
@T.prim_func
def f(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
    for i in range(N):
        B[i] = A[i]
"""
    assert parse("".join(f"    {line}\n" for line in plain.splitlines())) == parse(plain)


def test_something_else_than_a_text():
    with pytest.raises(TypeError, match=r"^parse takes the text of a script, got bytes$"):
        parse(b"@T.prim_func")
