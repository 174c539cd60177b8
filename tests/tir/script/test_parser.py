"""Scripts read: what each form of the dialect means, what is refused and how, and that printing and parsing are inverse."""

from __future__ import annotations

import math
import pickle
import re
from textwrap import dedent, indent

import numpy as np
import pytest

from benchmarks import published
from benchmarks.published import SECONDS as PUBLISHED
from benchmarks.published import program, with_output
from schedule import Schedule
from tests.programs import symbolic
from tests.schedule.harness import round_trip, same_numbers, without_header
from tir import te, workloads
from tir.interpreter import run
from tir.ir import (
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
    Load,
    PrimFunc,
    Range,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    const,
    seq,
)
from tir.script import Module, ScriptError, parse
from tir.script import ir as I
from tir.script import tir as T
from tir.verify import verify

SIZE = 7


def script(body: str, params: str = 'A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")') -> str:
    """A function with this body, as a text that starts with the decorator."""
    return f"@T.prim_func\ndef main({params}):\n{indent(dedent(body).strip(chr(10)), '    ')}\n"


def parsed(body: str, params: str = 'A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")') -> PrimFunc:
    func = parse(script(body, params))
    assert isinstance(func, PrimFunc)
    round_trip(func)
    return func


def becomes(
    body: str, expected: str, params: str = 'A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")', sound: bool = True
) -> PrimFunc:
    """Assert that a body prints as `expected`, and that the function is well formed; returns it."""
    func = parsed(body, params)
    lines = without_header(func.script()).splitlines()[2:]
    found = dedent("\n".join(lines))
    assert found == dedent(expected).strip("\n"), f"it became\n{found}"
    if sound:
        report = verify(func)
        assert report.ok, str(report)
    return func


# --- the published programs --------------------------------------------------------------------------------------------

needs_published = pytest.mark.skipif(
    not published.FOLDER.is_dir(), reason="the published programs lie beside the checkout, in shared/published, and not here"
)


@needs_published
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_programs_parse_as_they_are(name: str):
    parsed = parse(published.source(name))
    func = parsed["main"] if isinstance(parsed, Module) else parsed
    round_trip(func)
    report = verify(func)
    assert report.ok, str(report)
    assert not report.unproved, str(report)


@needs_published
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_programs_run_when_executed(name: str):
    """As Python modules too, not only as texts."""
    path = published.FOLDER / f"{name}.py"
    namespace: dict = {"__name__": name}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    found = namespace.get("Module", namespace.get("main"))
    assert found == parse(path.read_text())


# Numbers of the naive programs: sizes, and products of them. Sizes are odd where the program does not tile.
ODD = {"1024": "13", "2048": "7", "3072": "11", "1048576": "169", "3145728": "143", "2097152": "91"}


def reduced(name: str, text: str) -> str:
    """A published program with smaller sizes: as many tiles of the same kinds, or fewer."""
    if name in ("00_lowered_naive", "01_lowered_reorder", "10_blocks_naive"):
        return re.sub(r"\d{4,}", lambda m: ODD[m[0]], text)
    if name != "22_blocks_metaschedule":  # sizes, their products and numbers of tiles are multiples of 64; tiles are smaller

        def shrink(m: re.Match) -> str:
            n = int(m[0])
            return str(n // 4096 if n > 1000000 else n // 64 if n >= 64 else n)

        return re.sub(r"(?<![\w.])\d+(?![\w.])", shrink, text)
    for old, new in (  # M, K, L, N = 64, 16, 32, 192
        ("A: T.Buffer((1024, 2048)", "A: T.Buffer((64, 16)"),
        ("B: T.Buffer((2048, 1024)", "B: T.Buffer((16, 32)"),
        ("E: T.Buffer((1024, 3072)", "E: T.Buffer((32, 192)"),
        ("F: T.Buffer((1024, 3072)", "F: T.Buffer((64, 192)"),
        ("alloc_buffer((1024, 1024))", "alloc_buffer((64, 32))"),
        ("alloc_buffer((1024, 3072))", "alloc_buffer((64, 192))"),
        ("T.serial(32,", "T.serial(2,"),
        ("T.serial(4,", "T.serial(1,"),
        ("T.grid(2, 1, 32)", "T.grid(1, 1, 2)"),
        ("T.grid(128, 32, 2, 16, 1)", "T.grid(1, 32, 2, 16, 1)"),
        ("T.grid(256, 1024)", "T.grid(64, 32)"),
        ("T.grid(1, 4, 16)", "T.grid(1, 1, 1)"),
        ("T.grid(128, 32, 6, 8, 2)", "T.grid(4, 32, 6, 8, 2)"),
        ("v_m = T.axis.spatial(1024", "v_m = T.axis.spatial(64"),
        ("v0 = T.axis.spatial(1024", "v0 = T.axis.spatial(64"),
        ("v_l = T.axis.spatial(1024", "v_l = T.axis.spatial(32"),
        ("v_n = T.axis.spatial(3072", "v_n = T.axis.spatial(192"),
        ("v1 = T.axis.spatial(3072", "v1 = T.axis.spatial(192"),
        ("v_rk = T.axis.reduce(2048", "v_rk = T.axis.reduce(16"),
        ("v_rl = T.axis.reduce(1024", "v_rl = T.axis.reduce(32"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return text


@needs_published
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_programs_compute_what_numpy_does(name: str):
    """At reduced size; at full size that is asserted by `python -m benchmarks published`."""
    import tir

    func = program(reduced(name, published.source(name)))
    assert verify(func).ok
    (M, K), (_, L), (_, N) = (tuple(int(d.value) for d in b.shape) for b in func.buffers[:3])  # type: ignore[attr-defined]
    instance = workloads.make("mlp", (M, K, L, N))
    inputs = instance.inputs(np.random.default_rng(0))
    for call in (lambda *a: run(func, *a), tir.build(func, target="llvm")):
        F = instance.outputs()
        call(*inputs, F[0].reshape(-1) if len(func.buffers[3].shape) == 1 else F[0])
        found = instance.check(F, inputs)
        assert found.ok, found


def test_the_output_can_be_a_temporary():
    func = parsed("S = T.decl_buffer((7,))\nfor i in range(7):\n    S[i] = A[i, 0]\nB[0, 0] = S[1]")
    lifted = with_output(func, "S")
    assert [p.name for p in lifted.params] == ["A", "B", "S"]
    assert verify(lifted).ok
    assert with_output(lifted, "S") is lifted


# --- functions and modules ---------------------------------------------------------------------------------------------

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
        func = becomes(f"{header}for i in range(n):\n    B[i] = A[i] + 1", expected, params)
        wanted = wanted or func
        assert func == wanted
    assert [p.name for p in func.params] == ["A", "B", "n"]


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


# --- blocks ------------------------------------------------------------------------------------------------------------


def test_a_block_with_everything():
    becomes(
        """
        for io, ii, ko in T.grid(2, 4, 13):
            with T.block("B"):
                vi = T.axis.spatial(7, io * 4 + ii)
                vk = T.axis.R(13, ko)
                T.where(io * 4 + ii < 7)
                T.reads(A[vi, 0:13], B)
                T.writes([B[vi, vk:vk + 1]])
                T.block_attr({"pragma": 1})
                T.block_attr({"again": T.bool(False)})
                S = T.alloc_buffer((1,), "float32", scope="local")
                with T.init():
                    B[vi, 0] = T.float32(0)
                S[0] = A[vi, vk]
                B[vi, 0] = B[vi, 0] + S[0]
        """,
        """
        # with T.block("root"):
        for io, ii, ko in T.grid(2, 4, 13):
            with T.block("B"):
                vi = T.axis.spatial(7, io * 4 + ii)
                vk = T.axis.reduce(13, ko)
                T.where(io * 4 + ii < 7)
                T.reads(A[vi, 0:13], B[0:7, 0:13])
                T.writes(B[vi, vk])
                T.block_attr({"again": T.bool(False), "pragma": 1})
                S = T.alloc_buffer((1,), scope="local")
                with T.init():
                    B[vi, 0] = T.float32(0.0)
                S[0] = A[vi, vk]
                B[vi, 0] = B[vi, 0] + S[0]
        """,
    )


def test_nested_blocks_as_blockize_makes_them():
    becomes(
        """
        for io, ko in T.grid(1, 13):
            with T.block("B_o"):
                vio, vko = T.axis.remap("SR", [io, ko])
                T.reads(A[vio * 7:vio * 7 + 7, vko])
                T.writes(B[vio * 7:vio * 7 + 7, 0])
                with T.init():
                    for i_init in range(7):
                        with T.block("B_init"):
                            vi = T.axis.spatial(7, i_init)
                            T.reads()
                            T.writes(B[vio * 7 + vi, 0])
                            B[vio * 7 + vi, 0] = T.float32(0)
                for i in range(7):
                    with T.block("B"):
                        vi = T.axis.spatial(7, i)
                        B[vio * 7 + vi, 0] = B[vio * 7 + vi, 0] + A[vio * 7 + vi, vko]
        """,
        """
        # with T.block("root"):
        for io, ko in T.grid(1, 13):
            with T.block("B_o"):
                vio, vko = T.axis.remap("SR", [io, ko])
                T.reads(A[vio * 7:vio * 7 + 7, vko])
                T.writes(B[vio * 7:vio * 7 + 7, 0])
                with T.init():
                    for i_init in range(7):
                        with T.block("B_init"):
                            vi = T.axis.spatial(7, i_init)
                            T.reads()
                            T.writes(B[vio * 7 + vi, 0])
                            B[vio * 7 + vi, 0] = T.float32(0.0)
                for i in range(7):
                    with T.block("B"):
                        vi = T.axis.spatial(7, i)
                        B[vio * 7 + vi, 0] = B[vio * 7 + vi, 0] + A[vio * 7 + vi, vko]
        """,
    )


def test_the_root_block_is_the_function():
    written_out = """
        T.func_attr({"tir.noalias": T.bool(True)})
        with T.block("root"):
            T.reads()
            T.writes()
            T.block_attr({"meta_schedule.parallel": 8})
            C = T.alloc_buffer((7,))
            for i in range(7):
                with T.block("C"):
                    vi = T.axis.spatial(7, i)
                    C[vi] = A[vi, 0]
            B[0, 0] = C[0]
        """
    func = parsed(written_out)
    assert [b.name for b in func.allocs] == ["C"]
    assert func.attrs == (("meta_schedule.parallel", 8), ("tir.noalias", True))
    assert isinstance(func.body, Seq)


def test_a_block_called_root_inside_the_root():
    func = parsed('with T.block("root"):\n    with T.block("root"):\n        B[0, 0] = A[0, 0]')
    assert func.body == Block("root", (), func.body.body)
    assert without_header(func.script()).splitlines()[2:] == [
        '    with T.block("root"):',
        '        with T.block("root"):',
        "            B[0, 0] = A[0, 0]",
    ]


def test_axes_of_every_kind():
    func = parsed(
        """
        for i, j, k, l, m in T.grid(7, 2, 3, 4, 5):
            with T.block():
                a, b = T.axis.remap("SR", [i, j])
                c = T.axis.remap("O", [k])
                d = T.axis.scan(4, l)
                e = T.axis.opaque(T.int64(5), T.Cast("int64", m), dtype="int64")
                B[a, 0] = A[a, b + c + d + T.Cast("int32", e)]
        """
    )
    (block,) = [n for n in [func.body.body.body.body.body.body] if isinstance(n, Block)]
    assert block.name == "block"
    assert [(it.var.name, it.axis.value, it.var.dtype) for it in block.iters] == [
        ("a", "S", "int32"), ("b", "R", "int32"), ("c", "O", "int32"), ("d", "O", "int32"), ("e", "O", "int64"),
    ]  # fmt: skip


def test_axes_that_start_elsewhere_are_shifted():
    becomes(
        """
        for i in range(2, 7):
            for j in range(1, 13):
                with T.block("B"):
                    vi = T.axis.spatial((2, 7), i)
                    vj = T.axis.remap("S", [j])
                    T.where(j < 12)
                    B[vi, vj] = A[vi - 2, vj - 1]
        """,
        """
        # with T.block("root"):
        for i, j in T.grid(5, 12):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(j + 1 < 12)
                B[vi + 2, vj + 1] = A[vi + 2 - 2, vj + 1 - 1]
        """,
    )


def test_windows_of_buffers_are_put_in():
    becomes(
        """
        for i in range(7):
            with T.block("B"):
                vi = T.axis.spatial(7, i)
                row = T.match_buffer(A[vi, 3:8], (5,))
                out = T.match_buffer(B[vi:vi + 1, 0:13], (1, 13), offset_factor=1)
                T.reads(row[0:5])
                T.writes(out[0, 2])
                for j in range(5):
                    out[0, 2] = row[j] + row[4 - j]
        """,
        """
        # with T.block("root"):
        for i in range(7):
            with T.block("B"):
                vi = T.axis.spatial(7, i)
                T.reads(A[vi, 3:8])
                T.writes(B[vi, 2])
                for j in range(5):
                    B[vi, 2] = A[vi, 3 + j] + A[vi, 3 + (4 - j)]
        """,
    )


# --- names -------------------------------------------------------------------------------------------------------------


def test_names_are_made_unique():
    """Loops and blocks are handles; iteration variables keep their names, and loops make way for them."""
    becomes(
        """
        for i, j in T.grid(7, 13):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for i in range(7):
            for i_1 in range(13):
                with T.block("B"):
                    vi, j = T.axis.remap("SS", [i, i_1])
                    B[vi, j] = B[vi, j] * 2.0
        for i in range(7):
            for B_1 in range(13):
                with T.block():
                    v, w = T.axis.remap("SS", [i, B_1])
                    B[v, w] = B[v, w] * 3.0
        """,
        """
        # with T.block("root"):
        for i, j_1 in T.grid(7, 13):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j_1])
                B[vi, vj] = A[vi, vj]
        for i_2, i_1 in T.grid(7, 13):
            with T.block("B_2"):
                vi, j = T.axis.remap("SS", [i_2, i_1])
                B[vi, j] = B[vi, j] * T.float32(2.0)
        for i_3, B_1 in T.grid(7, 13):
            with T.block("block"):
                v, w = T.axis.remap("SS", [i_3, B_1])
                B[v, w] = B[v, w] * T.float32(3.0)
        """,
    )


def test_a_buffer_called_like_the_namespace():
    becomes("for i in range(7):\n    T[i] = T.exp(T[i]) + S[i]", """
        for i in range(7):
            T[i] = T.exp(T[i]) + S[i]
        """, 'T: T.Buffer((7,), "float32"), S: T.Buffer((7,), "float32")')  # fmt: skip


def test_blocks_with_strange_names():
    func = parsed("with T.block('a \"b\" \\\\ c\\n'):\n    B[0, 0] = A[0, 0]")
    assert func.body.name == 'a "b" \\ c\n'


# --- statements --------------------------------------------------------------------------------------------------------


def test_loops_of_every_kind():
    becomes(
        """
        for i in T.serial(7, annotations={"pragma_unroll": 16, "none": None}):
            for j in T.parallel(0, 3):
                for k in T.vectorized(T.int64(2)):
                    for l in T.unroll(2, annotations=None):
                        A[i, j * 4 + T.Cast("int32", k) * 2 + l] = 0
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            for tx in T.thread_binding(0, 13, "threadIdx.x", annotations={"a": [1, "b"]}):
                for ty in T.thread_binding(1, "threadIdx.y"):
                    B[bx, tx] = ty
        """,
        """
        for i in T.serial(7, annotations={"none": None, "pragma_unroll": 16}):
            for j in T.parallel(3):
                for k in T.vectorized(T.int64(2)):
                    for l in T.unroll(2):
                        A[i, j * 4 + T.Cast("int32", k) * 2 + l] = T.float32(0.0)
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            for tx in T.thread_binding(13, thread="threadIdx.x", annotations={"a": [1, "b"]}):
                for ty in T.thread_binding(1, thread="threadIdx.y"):
                    B[bx, tx] = T.Cast("float32", ty)
        """,
    )


def test_loops_that_start_elsewhere_or_step():
    becomes(
        """
        n = A.shape[0]
        for i in range(2, n):
            for j in range(1, 13, 4):
                for k in T.serial(i, n):
                    B[i, j] = A[k, j - 1]
        """,
        """
        for i, j in T.grid(5, 3):
            for k in range(5 - i):
                B[i + 2, j * 4 + 1] = A[k + (i + 2), j * 4 + 1 - 1]
        """,
    )


def test_threads_of_lowered_programs():
    expected = """
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            for tx in T.thread_binding(13, thread="threadIdx.x"):
                B[bx, tx] = A[bx, tx]
        """
    becomes(
        """
        bx = T.launch_thread("blockIdx.x", 7)
        with T.launch_thread("threadIdx.x", 13) as tx:
            B[bx, tx] = A[bx, tx]
        """,
        expected,
    )
    becomes(
        """
        bx = T.env_thread("blockIdx.x")
        tx = T.env_thread("threadIdx.x")
        T.launch_thread(bx, 7)
        with T.launch_thread(tx, 13):
            B[bx, tx] = A[bx, tx]
        """,
        expected,
    )


def test_lets():
    becomes(
        """
        for i in range(7):
            x: T.int32 = i * 2
            y = x + 1
            scale, offset = 2.0, T.float32(1)
            B[i, 0] = A[i, x // 2] * scale + offset
            with T.let(z, y + x):
                B[i, 1] = A[i, z // 7]
            with T.LetStmt(A[i, 0]) as w:
                B[i, 2] = w
            x = A[i, y % 2]
            B[i, 3] = T.let(v, x + 1.0, v * v) + T.Let(u * u, where={u: x})
            last: T.let[T.float32] = x
        for i in range(7):
            x: T.int64 = 3
            B[i, 5] = T.Cast("float32", x)
        """,
        """
        for i in range(7):
            x: T.int32 = i * 2
            y: T.int32 = x + 1
            offset: T.float32 = T.float32(1.0)
            B[i, 0] = A[i, x // 2] * T.float32(2.0) + offset
            with T.LetStmt(y + x) as z:
                B[i, 1] = A[i, z // 7]
            with T.LetStmt(A[i, 0]) as w:
                B[i, 2] = w
            x_1: T.float32 = A[i, y % 2]
            B[i, 3] = (x_1 + T.float32(1.0)) * (x_1 + T.float32(1.0)) + x_1 * x_1
            last: T.float32 = x_1
            T.evaluate(0)
        for i_1 in range(7):
            x: T.int64 = T.int64(3)
            B[i_1, 5] = T.Cast("float32", x)
        """,
    )


def test_lets_of_a_block_that_its_header_uses():
    becomes(
        """
        for i in range(7):
            with T.block("B"):
                x = i * 1
                vi = T.axis.spatial(7, x)
                y = vi + 0
                T.writes(B[y, 0:13])
                B[y, 0] = A[y, 1]
        """,
        """
        # with T.block("root"):
        for i in range(7):
            with T.block("B"):
                vi = T.axis.spatial(7, i * 1)
                T.writes(B[vi + 0, 0:13])
                x: T.int32 = i * 1
                y: T.int32 = vi + 0
                B[y, 0] = A[y, 1]
        """,
        sound=False,  # a block does not see the loops around it
    )


def test_conditions():
    flag = "captured"
    assert flag
    becomes(
        """
        for i, j in T.grid(7, 13):
            if 1 <= i < 5 and not (j == 3 or j > 7):
                B[i, j] = A[i - 1, j]
            elif i != j:
                B[i, j] = A[i, j] if j < 5 else T.float32(0)
            else:
                B[i, j] = T.Select(T.And(i < 3, j < 3), 1.0, A[i, j])
        if 1 + 1 == 2:
            B[0, 0] = 1
        else:
            B[0, 0] = nothing
        if T.bool(True):
            pass
        """,
        """
        for i, j in T.grid(7, 13):
            if 1 <= i and i < 5 and not (j == 3 or j > 7):
                B[i, j] = A[i - 1, j]
            else:
                if i != j:
                    B[i, j] = T.if_then_else(j < 5, A[i, j], T.float32(0.0))
                else:
                    B[i, j] = T.Select(i < 3 and j < 3, T.float32(1.0), A[i, j])
        B[0, 0] = T.float32(1.0)
        if T.bool(True):
            T.evaluate(0)
        """,
    )


def test_remarks_are_read_over():
    becomes(
        """
        T.attr(A.data, "buffer_dim_align", 1)
        with T.attr(0, "pragma_scope", 1):
            for i in range(7):
                B[i, 0] = T.likely(A[i, 0])
        ...
        """,
        """
        for i in range(7):
            B[i, 0] = A[i, 0]
        """,
    )


def test_augmented_assignment():
    becomes("B[1, 2] += A[0, 0]\nB[1, 2] *= 2", """
        B[1, 2] = B[1, 2] + A[0, 0]
        B[1, 2] = B[1, 2] * T.float32(2.0)
        """)  # fmt: skip


# --- buffers and views -------------------------------------------------------------------------------------------------


def test_flat_views_of_parameters_are_resolved():
    func = becomes(
        """
        A_1 = T.Buffer((91,), data=A.data)
        for io, ii in T.grid(7, 13):
            cse: T.int32 = io * 13
            B_1 = T.Buffer((91,), data=B.data, align=64)
            B_1[cse + ii] = A_1[io * 13 + ii] + A_1[90 - (io * 13 + ii)]
        """,
        """
        for io, ii in T.grid(7, 13):
            cse: T.int32 = io * 13
            B[io, ii] = A[io, ii] + A[6 - io, 12 - ii]
        """,
    )
    a, b = np.arange(91, dtype="float32").reshape(7, 13) ** 2, np.zeros((7, 13), "float32")
    run(func, a, b)
    assert np.array_equal(b, a + a[::-1, ::-1])


def test_views_that_do_not_divide_keep_their_remainders():
    """7 columns of 13 seen as 13 of 7: rows cross."""
    func = parsed(
        """
        A_1 = T.Buffer((13, 7), data=A.data)
        B_1 = T.Buffer((13, 7), data=B.data)
        for i, j in T.grid(13, 7):
            B_1[i, j] = A_1[i, j] * 2.0
        """
    )
    assert "//" in func.script()
    assert verify(func).ok
    a, b = np.arange(91, dtype="float32").reshape(7, 13), np.zeros((7, 13), "float32")
    run(func, a, b)
    assert np.array_equal(b, 2 * a)


def test_memory_takes_the_shape_of_its_views():
    becomes(
        """
        with T.allocate([91], "float32", "global") as C:
            C_1 = T.Buffer((7, 13), data=C)
            for i, j in T.grid(7, 13):
                C_1[i, j] = A[i, j]
            C_2 = T.decl_buffer((7, 13), data=C)
            for i, j in T.grid(7, 13):
                B[i, j] = C_2[i, j]
        """,
        """
        C = T.decl_buffer((7, 13))
        for i, j in T.grid(7, 13):
            C[i, j] = A[i, j]
        for i_1, j_1 in T.grid(7, 13):
            B[i_1, j_1] = C[i_1, j_1]
        """,
    )


def test_memory_with_views_of_several_shapes_is_flat():
    becomes(
        """
        C = T.allocate([91], scope="local")
        C_1 = T.Buffer((7, 13), data=C, scope="local")
        for i, j in T.grid(7, 13):
            C_1[i, j] = A[i, j]
        C_2 = T.Buffer((13, 7), data=C, scope="local")
        C_3 = T.Buffer((13,), data=C, elem_offset=13, scope="local")
        for j, i in T.grid(13, 7):
            B[i, j] = C_2[j, i] + C_3[j] + C[i]
        """,
        """
        C = T.decl_buffer((91,), scope="local")
        for i, j in T.grid(7, 13):
            C[i * 13 + j] = A[i, j]
        for j_1, i_1 in T.grid(13, 7):
            B[i_1, j_1] = C[j_1 * 7 + i_1] + C[j_1 + 13] + C[i_1]
        """,
    )


def test_a_handle_gets_its_shape_from_a_view():
    becomes(
        """
        A = T.Buffer((7,), data=a)
        A_1 = T.decl_buffer((7,), data=a)
        A[0] = A_1[3]
        """,
        "A[0] = A[3]",
        'a: T.handle("float32")',
    )


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


# --- expressions -------------------------------------------------------------------------------------------------------

f, g, b = (
    Load(Buffer("A", (const(7), const(13))), (Var("i"), Var("j"))),
    Load(Buffer("G", (const(7),), "int8"), (Var("i"),)),
    None,
)
i, j = Var("i"), Var("j")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
    ],
)
def test_expressions(text: str, expected: Expr):
    func = parsed(
        f"for i, j in T.grid(7, 13):\n    T.evaluate({text})", 'A: T.Buffer((7, 13), "float32"), G: T.Buffer((7,), "int8")'
    )
    assert func.body.body.body == Evaluate(expected)


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


# --- errors ------------------------------------------------------------------------------------------------------------

EMPTY = ""
HANDLE = "a: T.handle"
INTEGERS = 'A: T.Buffer((7,), "int32"), n: T.int32'

# The body, and the whole message; positions count the two lines above the body.
ERRORS = [
    (
        "B[0, 0] = T.ecp(A[0, 0])",
        """
        <script>:3:15: `T.ecp` is not in the dialect
            3 |     B[0, 0] = T.ecp(A[0, 0])
              |               ^^^^^
          hint: did you mean `T.exp`?
        """,
    ),
    (
        "for i in range(7):\n    with T.block('B'):\n        vi = T.axis.spacial(7, i)",
        """
        <script>:5:18: `T.axis.spacial` is not in the dialect
            5 |             vi = T.axis.spacial(7, i)
              |                  ^^^^^^^^^^^^^^
          hint: did you mean `T.axis.spatial`?
        """,
    ),
    (
        "A[T.ramp(0, 1, 16)] = 0",
        """
        <script>:3:7: `T.ramp` is not in the dialect
            3 |     A[T.ramp(0, 1, 16)] = 0
              |       ^^^^^^
          hint: write the scalar statement under `for i in T.vectorized(n)`
        """,
    ),
    (
        "B[0, 0] = A[0, k]",
        """
        <script>:3:20: `k` is not defined
            3 |     B[0, 0] = A[0, k]
              |                    ^
        """,
    ),
    (
        "for idx in range(7):\n    B[idy, 0] = 0",
        """
        <script>:4:11: `idy` is not defined
            4 |         B[idy, 0] = 0
              |           ^^^
          hint: did you mean `idx`?
        """,
    ),
    (
        "for i in range(7):\n    C = T.Buffer((91,), data=A.data)\nB[0, 0] = C[0]",
        """
        <script>:5:15: `C` is not visible here
            5 |     B[0, 0] = C[0]
              |               ^
          hint: line 4 binds it only within the statement that it stands in
        """,
    ),
    (
        "B[0] = 0",
        """
        <script>:3:5: `B` has 2 dimensions, but 1 index is given
            3 |     B[0] = 0
              |     ^^^^
          hint: its shape is (7, 13)
        """,
    ),
    (
        "B[0, 0] = A",
        """
        <script>:3:15: `A` is a buffer of 2 dimensions; a value is needed here
            3 |     B[0, 0] = A
              |               ^
          hint: index it: A[i, j]
        """,
    ),
    (
        "B[0.5, 0] = 0",
        """
        <script>:3:7: an index must be an integer, got T.float32(0.5) of dtype float32
            3 |     B[0.5, 0] = 0
              |       ^^^
        """,
    ),
    (
        "B[0, 0:4] = 0",
        """
        <script>:3:10: elements are stored one at a time
            3 |     B[0, 0:4] = 0
              |          ^^^
          hint: write a loop: for i in T.vectorized(16): A[i] = ...
        """,
    ),
    (
        "B[0, 0] = A[0, 0:4]",
        """
        <script>:3:15: `A[0, 0:4]` is a region; a value is needed here
            3 |     B[0, 0] = A[0, 0:4]
              |               ^^^^^^^^^
          hint: slices stand only in T.reads, T.writes and T.match_buffer; use a loop
        """,
    ),
    (
        "B[0, 0] = T.Cast('float64', A[0, 0])",
        """
        <script>:3:15: a value of dtype float64 is stored into `B`, which holds float32
            3 |     B[0, 0] = T.Cast('float64', A[0, 0])
              |               ^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: convert it: T.Cast("float32", ...)
        """,
    ),
    (
        "A[0] = 0.5",
        """
        <script>:3:12: 0.5 is not an integer, and cannot be a constant of dtype int32
            3 |     A[0] = 0.5
              |            ^^^
        """,
        INTEGERS,
    ),
    (
        "A[0] = A[0] / 2",
        """
        <script>:3:12: `/` needs floating operands, got int32 in `A[0] / 2`; use // or .astype('float32')
            3 |     A[0] = A[0] / 2
              |            ^^^^^^^^
        """,
        INTEGERS,
    ),
    (
        "A[0] = T.truncdiv(A[0], 2)",
        """
        <script>:3:12: `T.truncdiv` rounds toward zero, and `A[0]` is not provably at least 0 and `2` above 0
            3 |     A[0] = T.truncdiv(A[0], 2)
              |            ^^^^^^^^^^^^^^^^^^^
          hint: T.floordiv rounds down
        """,
        INTEGERS,
    ),
    (
        "if n:\n    A[0] = 0",
        """
        <script>:3:8: a condition must be bool, `n` is int32
            3 |     if n:
              |        ^
          hint: compare it: x != 0
        """,
        INTEGERS,
    ),
    (
        "A[0] = 1 if n < 3 and n else 2",
        """
        <script>:3:27: `and` needs bool operands, got int32 in `T.Cast("int32", n < 3) and n`
            3 |     A[0] = 1 if n < 3 and n else 2
              |                           ^
        """,
        INTEGERS,
    ),
    (
        "x: T.int64 = n * 2\nA[0] = x",
        """
        <script>:3:18: `x` is declared as int64, but its value is int32
            3 |     x: T.int64 = n * 2
              |                  ^^^^^
          hint: convert it: T.Cast("int64", ...)
        """,
        INTEGERS,
    ),
    (
        'A[0] = T.abs(A[0], dtype="int64")',
        """
        <script>:3:12: dtype is 'int64', and `T.abs(A[0])` is int32
            3 |     A[0] = T.abs(A[0], dtype="int64")
              |            ^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: convert what it is applied to: T.Cast(dtype, x)
        """,
        INTEGERS,
    ),
    (
        "A[0] = T.exp(A[0])",
        """
        <script>:3:12: exp needs a floating argument, got int32; use .astype('float32')
            3 |     A[0] = T.exp(A[0])
              |            ^^^^^^^^^^^
        """,
        INTEGERS,
    ),
    (
        "A[0] = [n for n in A]",
        """
        <script>:3:12: a comprehension is not in the dialect
            3 |     A[0] = [n for n in A]
              |            ^^^^^^^^^^^^^^
          hint: write it out, or compute it before the function
        """,
        INTEGERS,
    ),
    (
        "while n < 3:\n    A[0] = 0",
        """
        <script>:3:5: `while` is not in the dialect
            3 |     while n < 3:
              |     ^^^^^^^^^^^^
          hint: only counted loops: for i in range(n)
        """,
        INTEGERS,
    ),
    (
        "return A",
        """
        <script>:3:5: `return` is not in the dialect
            3 |     return A
              |     ^^^^^^^^
          hint: results are written to parameters
        """,
        INTEGERS,
    ),
    (
        "n + 1",
        """
        <script>:3:5: this value is not used
            3 |     n + 1
              |     ^^^^^
          hint: T.evaluate(...) evaluates an expression for its effect
        """,
        INTEGERS,
    ),
    (
        "n += 1",
        """
        <script>:3:5: `n` is no element of a buffer
            3 |     n += 1
              |     ^^^^^^
          hint: bind a new name: y = x + 1
        """,
        INTEGERS,
    ),
    (
        "A.shape = 3",
        """
        <script>:3:5: `A.shape` cannot be assigned to
            3 |     A.shape = 3
              |     ^^^^^^^
          hint: a name, or an element A[i, j]
        """,
        INTEGERS,
    ),
    (
        "for i in A.shape:\n    pass",
        """
        <script>:3:14: `A.shape` is no range of a loop
            3 |     for i in A.shape:
              |              ^^^^^^^
          hint: range(n), T.grid(m, n), T.serial(n), T.parallel(n), T.vectorized(n), ...
        """,
    ),
    (
        "for i, j in T.grid(1, 2, 3):\n    pass",
        """
        <script>:3:5: 2 loop variables, but 3 extents
            3 |     for i, j in T.grid(1, 2, 3):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    (
        "for i in range(0, 9, 0):\n    pass",
        """
        <script>:3:26: the step of a loop is a positive constant, not `0`
            3 |     for i in range(0, 9, 0):
              |                          ^
        """,
    ),
    (
        "for i in T.thread_binding(4):\n    pass",
        """
        <script>:3:14: T.thread_binding needs the axis
            3 |     for i in T.thread_binding(4):
              |              ^^^^^^^^^^^^^^^^^^^
          hint: T.thread_binding(128, thread="threadIdx.x")
        """,
    ),
    (
        "for i in T.thread_binding(4, thread='threadIdx.w'):\n    pass",
        """
        <script>:3:41: 'threadIdx.w' is no thread axis
            3 |     for i in T.thread_binding(4, thread='threadIdx.w'):
              |                                         ^^^^^^^^^^^^^
          hint: did you mean `threadIdx.z`?
        """,
    ),
    (
        "x = T.grid(4)",
        """
        <script>:3:9: `T.grid` is the range of a `for`
            3 |     x = T.grid(4)
              |         ^^^^^^^^^
        """,
    ),
    (
        "T.alloc_buffer((4,))",
        """
        <script>:3:5: `T.alloc_buffer` stands alone to the right of `=`
            3 |     T.alloc_buffer((4,))
              |     ^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    (
        "x = T.alloc_buffer()",
        """
        <script>:3:9: `T.alloc_buffer`: missing a required argument: 'shape'
            3 |     x = T.alloc_buffer()
              |         ^^^^^^^^^^^^^^^^
          hint: T.alloc_buffer(shape, dtype=float32, data=None, strides=None, elem_offset=None, scope=global, align=-1, \
offset_factor=0, buffer_type=default, axis_separators=None)
        """,
    ),
    (
        "x = T.alloc_buffer((4,), 'float23')",
        """
        <script>:3:30: unknown dtype 'float23'; known are float64, float32, float16, bfloat16, int64, int32, int16, int8, \
uint64, uint32, uint16, uint8, bool
            3 |     x = T.alloc_buffer((4,), 'float23')
              |                              ^^^^^^^^^
        """,
    ),
    (
        "x = T.alloc_buffer((4,), scope='locl')",
        """
        <script>:3:36: no storage scope is named 'locl'; did you mean local? there are: global, shared, shared.dyn, warp, \
local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator
            3 |     x = T.alloc_buffer((4,), scope='locl')
              |                                    ^^^^^^
        """,
    ),
    (
        "x = T.allocate((4,), 'float32', 'wrap')",
        """
        <script>:3:37: no storage scope is named 'wrap'; did you mean warp? there are: global, shared, shared.dyn, warp, \
local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator
            3 |     x = T.allocate((4,), 'float32', 'wrap')
              |                                     ^^^^^^
        """,
    ),
    (
        "x = T.alloc_buffer((4, 4), strides=(8, 1))",
        """
        <script>:3:40: buffers are dense and row-major; strides are not in the dialect
            3 |     x = T.alloc_buffer((4, 4), strides=(8, 1))
              |                                        ^^^^^^
        """,
    ),
    (
        "A = T.match_buffer(a, (7,), elem_offset=3)",
        """
        <script>:3:45: buffers start at their first element; elem_offset is not in the dialect
            3 |     A = T.match_buffer(a, (7,), elem_offset=3)
              |                                             ^
        """,
        HANDLE,
    ),
    (
        "pass",
        """
        <script>:2:10: the handle `a` is given no shape
            2 | def main(a: T.handle):
              |          ^^^^^^^^^^^
          hint: A = T.match_buffer(a, (128,))
        """,
        HANDLE,
    ),
    (
        "A = T.match_buffer(a, (7,))\nB = T.match_buffer(a, (7,))",
        """
        <script>:4:9: `a` has a shape already
            4 |     B = T.match_buffer(a, (7,))
              |         ^^^^^^^^^^^^^^^^^^^^^^^
          hint: another view is T.Buffer(shape, data=A.data)
        """,
        HANDLE,
    ),
    (
        "a[0] = 0",
        """
        <script>:3:5: `a` is no buffer
            3 |     a[0] = 0
              |     ^
        """,
        HANDLE,
    ),
    (
        "C = T.match_buffer(A[0:4, 0:3], (3, 4))",
        """
        <script>:3:9: a region of extents (4, 3) is not of shape (3, 4)
            3 |     C = T.match_buffer(A[0:4, 0:3], (3, 4))
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: only dimensions of extent 1 may be left out
        """,
    ),
    (
        "C = T.Buffer((92,), data=A.data)",
        """
        <script>:3:9: a view up to element 92 of `A`, which has 91
            3 |     C = T.Buffer((92,), data=A.data)
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    (
        "C = T.Buffer((91,), 'int32', data=A.data)",
        """
        <script>:3:9: a view of `A` as int32, but it holds float32
            3 |     C = T.Buffer((91,), 'int32', data=A.data)
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: bits cannot be reinterpreted
        """,
    ),
    (
        "C = T.Buffer((91,))",
        """
        <script>:3:9: a view says whose elements it shows
            3 |     C = T.Buffer((91,))
              |         ^^^^^^^^^^^^^^^
          hint: C = T.Buffer(shape, data=A.data), or T.alloc_buffer(shape)
        """,
    ),
    (
        "C = T.Buffer((91,), data=A)",
        """
        <script>:3:30: `A` is no memory
            3 |     C = T.Buffer((91,), data=A)
              |                              ^
          hint: A.data of a buffer, or what T.allocate made
        """,
    ),
    (
        "C = T.Buffer((91,), data=A.data)\nwith T.block('b'):\n    T.reads(C[0:91])\n    B[0, 0] = C[0]",
        """
        <script>:5:17: a region of `C`, which is another view of `A`, cannot be kept
            5 |         T.reads(C[0:91])
              |                 ^^^^^^^
          hint: state the region of `A`
        """,
    ),
    (
        "C = T.allocate([4], 'float32', 'global', B[0, 0] > 0)\nB[0, 0] = 0",
        """
        <script>:3:46: memory is allocated always, not under a condition
            3 |     C = T.allocate([4], 'float32', 'global', B[0, 0] > 0)
              |                                              ^^^^^^^^^^^
        """,
    ),
    (
        "vi = T.axis.spatial(7, 0)",
        """
        <script>:3:10: `T.axis.spatial` stands directly in a block
            3 |     vi = T.axis.spatial(7, 0)
              |          ^^^^^^^^^^^^^^^^^^^^
          hint: with T.block("C"): ...
        """,
    ),
    (
        "with T.block('b'):\n    for i in range(7):\n        T.where(i < 3)",
        """
        <script>:5:13: `T.where` stands directly in a block
            5 |             T.where(i < 3)
              |             ^^^^^^^^^^^^^^
          hint: with T.block("C"): ...
        """,
    ),
    (
        "for i in range(7):\n    with T.block('b'):\n        B[0, 0] = 0\n        vi = T.axis.spatial(7, i)",
        """
        <script>:6:18: the axes of a block stand before its statements
            6 |             vi = T.axis.spatial(7, i)
              |                  ^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    (
        "for i in range(7):\n    with T.block('b'):\n        vi, vj = T.axis.remap('SS', [i])",
        """
        <script>:5:22: 2 names, 2 kinds and 1 loops; they must be as many
            5 |             vi, vj = T.axis.remap('SS', [i])
              |                      ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
    (
        "for i in range(7):\n    with T.block('b'):\n        vi = T.axis.remap('X', [i])",
        """
        <script>:5:31: 'X' is no kind of axis
            5 |             vi = T.axis.remap('X', [i])
              |                               ^^^
          hint: "S" is spatial, "R" reduce, "O" opaque
        """,
    ),
    (
        "for i in range(7):\n    with T.block('b'):\n        vi = T.axis.remap('S', [i + 1])",
        """
        <script>:5:37: `i + 1` is no loop variable
            5 |             vi = T.axis.remap('S', [i + 1])
              |                                     ^^^^^
          hint: vi = T.axis.spatial(extent, i + 1)
        """,
    ),
    (
        "for i in range(7):\n    with T.block('b'):\n        T.where(i < 3)\n        T.where(i < 4)",
        """
        <script>:6:13: `T.where` is stated twice in this block
            6 |             T.where(i < 4)
              |             ^^^^^^^^^^^^^^
        """,
    ),
    (
        "with T.block('b'):\n    with T.init():\n        pass\n    with T.init():\n        pass",
        """
        <script>:6:14: T.init is stated twice in this block
            6 |         with T.init():
              |              ^^^^^^^^
        """,
    ),
    (
        "with T.block('b'):\n    C = T.alloc_buffer((4,))\n    T.writes(C[0])",
        """
        <script>:5:18: `C` is allocated in this block
            5 |         T.writes(C[0])
              |                  ^^^^
          hint: a block states what it reads and writes of buffers around it
        """,
    ),
    (
        "with T.block('b'):\n    T.reads(3)",
        """
        <script>:4:17: `3` is no region of a buffer
            4 |         T.reads(3)
              |                 ^
          hint: A[i, j] or A[0:16, j]
        """,
    ),
    (
        "with T.block('b'):\n    T.reads(A[0:7:2, 0])",
        """
        <script>:4:19: a region has no steps
            4 |         T.reads(A[0:7:2, 0])
              |                   ^^^^^
          hint: state the whole range
        """,
    ),
    (
        "with T.block('b'):\n    T.block_attr({'a': A[0, 0]})",
        """
        <script>:4:22: attributes hold plain data, not Load
            4 |         T.block_attr({'a': A[0, 0]})
              |                      ^^^^^^^^^^^^^^
          hint: numbers, strings, lists and dictionaries
        """,
    ),
    (
        "T.func_attr(3)",
        """
        <script>:3:17: attributes are a dictionary with strings as keys
            3 |     T.func_attr(3)
              |                 ^
          hint: {"pragma_unroll": 16}
        """,
    ),
    (
        "T.attr(0, 'thread_extent', 4)",
        """
        <script>:3:5: T.attr with 'thread_extent' may change what the program means
            3 |     T.attr(0, 'thread_extent', 4)
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: T.launch_thread, or T.thread_binding
        """,
    ),
    (
        "with open('x') as f:\n    pass",
        """
        <script>:3:10: `open('x')` has no meaning in a `with`
            3 |     with open('x') as f:
              |          ^^^^^^^^^
          hint: with T.block("C"):
        """,
    ),
    (
        "with T.allocate([4]):\n    pass",
        """
        <script>:3:10: `T.allocate` needs a name
            3 |     with T.allocate([4]):
              |          ^^^^^^^^^^^^^^^
          hint: with T.allocate([4]) as x:
        """,
    ),
    (
        "with T.block('b') as b:\n    pass",
        """
        <script>:3:26: `T.block` binds no name
            3 |     with T.block('b') as b:
              |                          ^
        """,
    ),
    (
        "n = T.float32()",
        """
        <script>:3:9: a size must be an integer, not float32
            3 |     n = T.float32()
              |         ^^^^^^^^^^^
        """,
    ),
    (
        "x = y = 3",
        """
        <script>:3:5: one name at a time is assigned
            3 |     x = y = 3
              |     ^^^^^^^^^
        """,
    ),
    (
        "a, b = 1, 2, 3",
        """
        <script>:3:5: 2 names, but 3 values
            3 |     a, b = 1, 2, 3
              |     ^^^^^^^^^^^^^^
        """,
    ),
    (
        "x = 'text' + i.real",
        """
        <script>:3:18: `i` is not defined
            3 |     x = 'text' + i.real
              |                  ^
        """,
    ),
    (
        "x = (3).real",
        """
        <script>:3:9: `(3).real` cannot be read: nothing is executed in a text
            3 |     x = (3).real
              |         ^^^^^^^^
        """,
    ),
    (
        "B[0, 0] = T.float32('tall')",
        """
        <script>:3:15: T.float32 takes a number, or for floats "inf", "-inf" or "nan"; got 'tall'
            3 |     B[0, 0] = T.float32('tall')
              |               ^^^^^^^^^^^^^^^^^
        """,
    ),
    (
        "B[0, 0] = A.size",
        """
        <script>:3:15: a buffer has no `size`
            3 |     B[0, 0] = A.size
              |               ^^^^^^
          hint: index it: A[i, j]
        """,
    ),
    (
        "pass",
        """
        <script>:2:10: the parameter `A` has no annotation
            2 | def main(A):
              |          ^
          hint: write A: T.Buffer((128, 128), "float32")
        """,
        "A",
    ),
    (
        "pass",
        """
        <script>:2:10: `int` is no type of a parameter
            2 | def main(A: int):
              |          ^^^^^^
          hint: T.Buffer((128, 128), "float32"), T.handle, or T.int32 for a size
        """.replace("2:10", "2:13").replace("          ^^^^^^", "             ^^^"),
        "A: int",
    ),
    (
        "pass",
        """
        <script>:2:10: the scalar parameter `x` must be an integer, got float32
            2 | def main(x: T.float32):
              |          ^^^^^^^^^^^^
          hint: pass it as T.Buffer((1,), ...)
        """,
        "x: T.float32",
    ),
    (
        "pass",
        """
        <script>:2:1: a function of the dialect has plain parameters only
            2 | def main(*A):
              | ^^^^^^^^^^^^^
        """,
        "*A",
    ),
]


@pytest.mark.parametrize("case", ERRORS, ids=lambda c: c[0].splitlines()[-1].strip())
def test_errors(case: tuple):
    body, message, *params = case
    with pytest.raises(ScriptError) as caught:
        parse(script(body, *params))
    found = str(caught.value)
    assert found == dedent(message).strip("\n"), f"the message was\n{found}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == found
    assert (again.lineno, again.offset) == (caught.value.lineno, caught.value.offset)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "<script>: there is no function in this script\n  hint: put @T.prim_func above the function"),
        (
            "def f(A: T.Buffer((1,))):\n    pass",
            "<script>:1:1: @T.prim_func belongs above the function `f`, and nothing else\n"
            "    1 | def f(A: T.Buffer((1,))):\n"
            "      | ^^^^^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            "@R.function\ndef f(x):\n    return x",
            "<script>:2:1: @T.prim_func belongs above the function `f`, and nothing else\n"
            "    2 | def f(x):\n"
            "      | ^^^^^^^^^\n"
            "  hint: functions of relax are not read; take them out, the others stand for themselves",
        ),
        (
            "print(1)",
            "<script>:1:1: only imports, constants, functions and modules stand at the top of a script\n"
            "    1 | print(1)\n"
            "      | ^^^^^^^^",
        ),
        (
            "\n    @T.prim_func\n    def f(A: T.handle\n",
            "<script>:3:10: not Python: '(' was never closed\n    3 |     def f(A: T.handle\n      |          ^",
        ),
        (
            "\n    @T.prim_func\n    def f(A: T.Buffer((7,))):\n        A[0] = T.ecp(A[1])\n",
            "<script>:4:16: `T.ecp` is not in the dialect\n    4 |         A[0] = T.ecp(A[1])\n      |                ^^^^^\n"
            "  hint: did you mean `T.exp`?",
        ),
        (
            "@T.prim_func\ndef f(A: T.handle\n",
            "<script>:2:6: not Python: '(' was never closed\n    2 | def f(A: T.handle\n      |      ^",
        ),
        (
            "@I.ir_module\nclass Some:\n    x = 3",
            "<script>:3:5: a module holds functions under @T.prim_func, and nothing else\n    3 |     x = 3\n      |     ^^^^^",
        ),
        (
            '@T.prim_func\ndef f(Ä: T.Buffer((1,), "float32")):\n    Ä[0] = "ü" + Ö',
            '<script>:3:18: `Ö` is not defined\n    3 |     Ä[0] = "ü" + Ö\n      |                  ^',
        ),
        (
            "N = open('x')\n",
            "<script>:1:5: `open` is not defined\n    1 | N = open('x')\n      |     ^^^^",
        ),
    ],
)
def test_errors_of_texts(text: str, message: str):
    with pytest.raises(ScriptError) as caught:
        parse(text)
    assert str(caught.value) == message, str(caught.value)


def test_an_error_in_a_decorated_function_names_its_file():
    with pytest.raises(ScriptError) as caught:

        @T.prim_func
        def broken(A: T.Buffer((7,), "float32")):
            A[0] = half(missing)

    error = caught.value
    line = "            A[0] = half(missing)"
    assert str(error) == (
        f"{__file__}:{error.lineno}:25: `missing` is not defined\n{error.lineno:5} | {line}\n      | {' ' * 24}{'^' * 7}"
    )
    with open(__file__) as source:
        assert source.read().splitlines()[error.lineno - 1] == line


def test_an_error_of_a_captured_function_is_reported_at_its_call():
    def fails(x):
        raise ValueError("no good")

    with pytest.raises(ScriptError, match="no good"):

        @T.prim_func
        def f(A: T.Buffer((7,), "float32")):
            A[0] = fails(A[0])


def test_an_error_of_a_comparison_by_python_is_reported_at_it():
    with pytest.raises(ScriptError, match=r"not .*iterable"):

        @T.prim_func
        def f(A: T.Buffer((7,), "float32")):
            A[0] = 1.0 if 1 in 2 else 0.0


def test_functions_without_source_are_refused():
    namespace: dict = {"T": T}
    with pytest.raises(ScriptError) as caught:
        exec("@T.prim_func\ndef f(A: T.Buffer((7,), 'float32')):\n    A[0] = 0", namespace)
    assert str(caught.value) == (
        "<string>: the source of `f` cannot be read\n  hint: put the function into a file, or give its text to tir.script.parse"
    )


def test_a_text_executes_nothing():
    for text in ("__import__('os')", "(1).__class__", "'{0.x}'.format(3)", "[].append(3)", "T.exp.__globals__", "(lambda: 1)()"):
        with pytest.raises(ScriptError):
            parse(script(f"x = {text}"))


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


class Programs:
    """Random functions with every kind of node, well formed or not quite: what matters is that nothing is lost in print."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.taken = 0
        self.buffers = [
            Buffer("A", (const(7), const(13))),
            Buffer("B", (const(5),), "int8"),
            Buffer("C", (), "float64", "shared"),
        ]
        self.sizes = [Var("n"), Var("m", "int64")]
        self.buffers.append(Buffer("D", (self.sizes[0], self.sizes[0] * 2 + 1, Const(3, "int64")), "bfloat16"))

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def name(self, prefix: str) -> str:
        self.taken += 1
        return f"{prefix}{self.taken}"

    def integer(self, scope: list[Var], dtype: str = "int32", depth: int = 2) -> Expr:
        if depth == 0:
            variables = [v for v in scope if v.dtype == dtype]
            if variables and self.rng.random() < 0.6:
                return self.pick(variables)
            return Const(self.pick([0, 1, 7, -1, -13, 127]), dtype)
        a, b = self.integer(scope, dtype, depth - 1), self.integer(scope, dtype, int(self.rng.integers(depth)))
        match self.pick(["binary", "binary", "neg", "select", "cast", "load", "abs"]):
            case "neg":
                return Unary("neg", a)
            case "select":
                return Select(self.condition(scope, depth - 1), a, b, bool(self.rng.integers(2)))
            case "cast":
                return Cast(dtype, self.value(scope, self.pick(["int64", "float32", "bool", "int32"]), depth - 1))
            case "load" if dtype == "int8":
                return Load(self.buffers[1], (self.integer(scope, depth=depth - 1),))
            case "abs":
                return Call("abs", (a,), dtype)
        return Binary(self.pick(["+", "-", "*", "//", "%", "min", "max"]), a, b)

    def condition(self, scope: list[Var], depth: int = 2) -> Expr:
        if depth == 0:
            return Const(bool(self.rng.integers(2)), "bool")
        match self.pick(["compare", "compare", "and", "or", "not", "equal"]):
            case "compare":
                dtype = self.pick(["int32", "int64", "float32", "float16"])
                op = self.pick(["<", "<=", ">", ">=", "==", "!="])
                return Binary(op, self.value(scope, dtype, depth - 1), self.value(scope, dtype, depth - 1))
            case "not":
                return Unary("not", self.condition(scope, depth - 1))
            case "equal":
                return Binary("==", self.condition(scope, depth - 1), self.condition(scope, depth - 1))
            case op:
                return Binary(op, self.condition(scope, depth - 1), self.condition(scope, depth - 1))

    def value(self, scope: list[Var], dtype: str, depth: int = 2) -> Expr:
        if dtype == "bool":
            return self.condition(scope, depth)
        if not dtype.startswith(("float", "bfloat")):
            return self.integer(scope, dtype, depth)
        if depth == 0:
            return const(self.pick([0.0, -0.0, 1.5, -2.25, 1e-30, 1e30, math.inf, -math.inf, math.nan]), dtype)
        a, b = self.value(scope, dtype, depth - 1), self.value(scope, dtype, int(self.rng.integers(depth)))
        match self.pick(["binary", "neg", "call", "pow", "load", "select", "cast"]):
            case "neg":
                return Unary("neg", a)
            case "call":
                return Call(
                    self.pick(["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "abs", "floor", "ceil"]), (a,), dtype
                )
            case "pow":
                return Call("pow", (a, b), dtype)
            case "select":
                return Select(self.condition(scope, depth - 1), a, b, bool(self.rng.integers(2)))
            case "cast":
                return Cast(dtype, self.value(scope, self.pick(["int64", "float32", "bool", "float64"]), depth - 1))
            case "load":
                found = [b for b in self.buffers if b.dtype == dtype]
                if found:
                    return self.load(self.pick(found), scope, depth - 1)
        return Binary(self.pick(["+", "-", "*", "/", "min", "max"]), a, b)

    def load(self, buffer: Buffer, scope: list[Var], depth: int) -> Load:
        return Load(buffer, tuple(self.integer(scope, self.pick(["int32", "int64"]), depth) for _ in buffer.shape))

    def buffer(self, scope: list[Var]) -> Buffer:
        shape = tuple(self.pick([const(3), Const(4, "int64"), self.sizes[0]]) for _ in range(int(self.rng.integers(3))))
        return Buffer(self.name("S"), shape, self.pick(["float32", "int8", "float64"]), self.pick(["global", "local"]))

    def notes(self) -> tuple:
        if self.rng.random() < 0.7:
            return ()
        values = [1, -2.5, 'a "b"\\n', True, None, [1, [2, "x"]], {"k": False}, math.inf]
        return tuple((key, self.pick(values)) for key in sorted({self.pick("abc"), self.pick(["d.e", "f g"])}))

    def statement(self, scope: list[Var], depth: int, blocks: bool = True) -> Stmt:
        kinds = ["store", "store", "evaluate"] + (["for", "for", "if", "let", "allocate", "block", "block"] if depth else [])
        match self.pick(kinds):
            case "store":
                b = self.pick(self.buffers)
                to = self.load(b, scope, 1)
                return Store(b, to.indices, self.value(scope, b.dtype))
            case "evaluate":
                return Evaluate(self.value(scope, self.pick(["int32", "float32", "bool"])))
            case "for":
                dtype = self.pick(["int32", "int32", "int64"])
                var = Var(self.name("i"), self.pick([dtype, dtype, "int64"]))
                kind = self.pick(list(Kind))
                extent = self.pick([Const(1, dtype), Const(7, dtype), self.integer(scope, dtype, 1)])
                thread = self.pick(["threadIdx.x", "vthread.y"]) if kind is Kind.THREAD else ""
                return For(var, extent, self.body([*scope, var], depth - 1), kind, self.notes(), thread)
            case "if":
                orelse = self.body(scope, depth - 1) if self.rng.integers(2) else None
                return If(self.condition(scope), self.body(scope, depth - 1), orelse)
            case "let":
                dtype = self.pick(["int32", "int64", "float32", "bool"])
                var = Var(self.name("x"), dtype)
                return Let(var, self.value(scope, dtype), self.body([*scope, var], depth - 1))
            case "allocate":
                b = self.buffer(scope)
                self.buffers.append(b)
                result = Allocate(b, self.body(scope, depth - 1))
                self.buffers.remove(b)
                return result
        return self.block(scope, depth)

    def block(self, scope: list[Var], depth: int) -> Stmt:
        iters = []
        for _ in range(int(self.rng.integers(4))):
            loops = [v for v in scope if v.name.startswith("i")]
            binding = self.pick(loops) if loops and self.rng.integers(2) else self.integer(scope, depth=1)
            extent = self.pick([const(7), Const(7, "int64"), self.sizes[0], const(1)])
            iters.append(Iter(Var(self.name("v"), self.pick(["int32", "int64"])), extent, self.pick(list(Axis)), binding))
        inner = [*scope, *(it.var for it in iters)]
        regions: list = [None, None]
        for n in range(2):
            if self.rng.integers(2):
                chosen = [self.pick(self.buffers) for _ in range(int(self.rng.integers(3)))]
                regions[n] = tuple(self.region(b, inner) for b in chosen)
        allocs = tuple(self.buffer(inner) for _ in range(int(self.rng.integers(2))))
        self.buffers += allocs
        body, init = self.body(inner, depth - 1), self.body(inner, depth - 1) if self.rng.integers(2) else None
        for b in allocs:
            self.buffers.remove(b)
        predicate = self.condition(scope) if self.rng.integers(2) else Const(True, "bool")
        return Block(self.name("b"), tuple(iters), body, init, predicate, *regions, allocs, self.notes())

    def region(self, buffer: Buffer, scope: list[Var]) -> Region:
        ranges = []
        for _ in buffer.shape:
            start = self.pick([const(0), *(v for v in scope if v.dtype == "int32")])
            ranges.append(Range(start, self.pick([const(1), const(4), self.sizes[0]])))
        return Region(buffer, tuple(ranges))

    def body(self, scope: list[Var], depth: int) -> Stmt:
        return seq(*(self.statement(scope, depth) for _ in range(int(self.rng.integers(1, 4)))))

    def function(self) -> PrimFunc:
        params = (*self.buffers[:2], self.sizes[0], *self.buffers[2:], self.sizes[1])
        return PrimFunc(self.pick(["main", "f"]), params, self.body(list(self.sizes), 3), (), self.notes())


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_round_trip(seed: int):
    round_trip(Programs(seed).function())


def test_floats_keep_their_sign_and_nan():
    x = Buffer("X", (const(7),))
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4028234663852886e38, 0.1]
    func = PrimFunc("f", (x,), seq(*(Store(x, (const(0),), const(v)) for v in values)))
    round_trip(func)
    again = [s.value.value for s in parse(func.script()).body.stmts]
    assert [repr(v) for v in again] == [repr(v) for v in values]


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


@pytest.mark.parametrize(
    ("extent", "reason"),
    [
        ("9**9**9", "a number of more than 1024 bits"),
        ("1 << 10**9", "a number of more than 1024 bits"),
        ("*".join(["99999999999"] * 1000), "a number of more than 1024 bits"),
        ("round(5, -10**9)", "a number of more than 1024 digits"),
        ("len('a' * 10**10)", "more than 100000 items"),
        ("len([0] * 99999 + [0] * 99999)", "more than 100000 items"),
        ("len('%1000000000d' % 1)", "`%` formats no text here; write an f-string"),
        ("sum(range(10**10))", "more than 100000 items"),
        ("len((*range(10**10),))", "more than 100000 items"),
    ],
)
def test_what_python_computes_is_limited(extent, reason):
    with pytest.raises(ScriptError, match=re.escape(reason)):
        parse(f"@T.prim_func\ndef f(A: T.Buffer(({extent},))):\n    A[0] = 0.0\n")


@pytest.mark.parametrize("terms", ["+".join(["A[0]"] * 20_000), "-" * 20_000 + "A[0]"])
def test_an_expression_that_is_nested_too_deeply(terms):
    with pytest.raises(ScriptError, match="nested too deeply"):
        parse(f"@T.prim_func\ndef f(A: T.Buffer((1,))):\n    A[0] = {terms}\n")


def test_something_else_than_a_text():
    with pytest.raises(TypeError, match=r"^parse takes the text of a script, got bytes$"):
        parse(b"@T.prim_func")
