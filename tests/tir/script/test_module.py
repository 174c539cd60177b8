"""Scripts of several functions."""

from __future__ import annotations

from textwrap import dedent

import pytest

from schedule import Schedule
from tir.script import Module, parse
from tir.script import ir as I
from tir.script import tir as T

N = 7


@I.ir_module
class Two:
    """Two functions."""

    @T.prim_func
    def main(A: T.Buffer[(7,), "int32"], B: T.Buffer(7, "int32")):  # noqa: UP037
        for i in range(N):
            B[i] = A[i] + 1

    @T.prim_func
    def other(A: T.Buffer((), "int8")):
        A[()] = 3


def test_modules():
    assert isinstance(Two, Module)
    assert list(Two) == ["main", "other"]
    assert Two["main"] is Two.main
    assert repr(Two) == "Module(Two: main, other)"
    assert Two.script() == (
        "from tir.script import ir as I, tir as T\n"
        "\n"
        "\n"
        "@I.ir_module\n"
        "class Two:\n"
        "    @T.prim_func\n"
        '    def main(A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32")):\n'
        "        for i in range(7):\n"
        "            B[i] = A[i] + 1\n"
        "\n"
        "    @T.prim_func\n"
        '    def other(A: T.Buffer((), "int8")):\n'
        "        A[()] = T.int8(3)\n"
    )
    assert parse(Two.script()) == Two
    with pytest.raises(AttributeError, match="module Two has no function 'mian'; it has main, other"):
        Two.mian  # noqa: B018
    with pytest.raises(KeyError, match="module Two has no function 'mian'; it has main, other"):
        Two["mian"]


def test_names_of_newer_versions_of_tvm():
    from tir.script import s_tir, tirx

    assert tirx is s_tir is T
    given = "@I.ir_module(s_tir=True)\nclass Two:\n    @T.prim_func(s_tir=True)\n    def main(A: T.Buffer((7,), 'int32')):\n"
    given += "        for i in range(7):\n            with T.sblock('A'):\n                v = T.axis.spatial(7, i)\n                A[v] = 3\n"
    s = Schedule(parse(given))
    assert s.get_loops(s.get_sblock("A", func_name="main")) == ["i"]
    with pytest.raises(ImportError, match="cannot import name 'tirz'"):
        from tir.script import tirz  # noqa: F401


def test_a_module_holds_functions_of_the_dialect_only():
    with pytest.raises(TypeError, match=r"^Plain\.f is not a function of the dialect; decorate it with @T\.prim_func$"):

        @I.ir_module
        class Plain:
            def f(A): ...


def test_relax_is_no_part_of_the_dialect_and_the_import_says_so():
    with pytest.raises(
        ImportError, match=r"tir\.script has no relax: .*; take out those under @R\.function, and R from the import"
    ):
        from tir.script import relax  # noqa: F401
    from tir.script import ir_module

    assert ir_module is I.ir_module


def test_texts_may_hold_constants_imports_and_several_functions():
    text = """
        '''Programs.'''
        import numpy as np
        from tvm.script import ir as J, tir as P
        N, M = 4 * 2 - 1, 9
        SHAPE: tuple = (N, max(N, M))

        @P.prim_func
        def f(A: P.Buffer(SHAPE, "float32")):
            A[N - 1, SHAPE[1] - 1] = P.exp(A[0, 0])

        @P.prim_func(private=True)
        def g(A: P.Buffer((*SHAPE, 2), "float32")):
            A[*SHAPE, 1] = 0
    """
    both = parse(dedent(text))
    assert isinstance(both, Module)
    assert list(both) == ["f", "g"]
    assert str(both["f"].body.value) == "T.exp(A[0, 0])"
    assert [str(i) for i in both["g"].body.indices] == ["7", "9", "1"]
