"""What scripts are refused, where the error points, and what it says."""

from __future__ import annotations

import pickle

import pytest

from tests.tir.script.parsing import BUFFERS, script
from tir import dtypes
from tir.memory import SCOPES
from tir.script import ScriptError, parse
from tir.script import tir as T

INTEGERS = 'A: T.Buffer((7,), "int32"), n: T.int32'
HANDLE = "a: T.handle"

# By parameters: a body with marks around what the error points at, the message, and the hint where there is one.
ERRORS = {
    BUFFERS: [
        ("B[0, 0] = «T.ecp»(A[0, 0])", "`T.ecp` is not in the dialect", "did you mean `T.exp`?"),
        (
            "for i in range(7):\n    with T.block('B'):\n        vi = «T.axis.spacial»(7, i)",
            "`T.axis.spacial` is not in the dialect",
            "did you mean `T.axis.spatial`?",
        ),
        (
            "B[0, 0] = A[0, «T.ramp(0, 1, 16)»]",
            "`T.ramp` stands in a statement on vectors",
            "write a loop: for i in T.vectorized(16):",
        ),
        ("B[0, 0] = A[0, «k»]", "`k` is not defined"),
        ("for idx in range(7):\n    B[«idy», 0] = 0", "`idy` is not defined", "did you mean `idx`?"),
        (
            "for i in range(7):\n    C = T.Buffer((91,), data=A.data)\nB[0, 0] = «C»[0]",
            "`C` is not visible here",
            "line 4 binds it only within the statement that it stands in",
        ),
        ("«B[0]» = 0", "`B` has 2 dimensions, but 1 index is given", "its shape is (7, 13)"),
        ("B[0, 0] = «A»", "`A` is a buffer of 2 dimensions; a value is needed here", "index it: A[i, j]"),
        ("B[«0.5», 0] = 0", "an index must be an integer, got T.float32(0.5) of dtype float32"),
        (
            "B[0, 0] = «T.call_pure_extern('float32', 'gamma', A[0, 0])»",
            "`T.call_pure_extern('float32', 'gamma', A[0, 0])` is a foreign call; a value is needed here",
            "foreign calls are statements: T.evaluate(T.call_extern(...))",
        ),
        (
            "T.evaluate(«T.call_extern('int32', 'f', A.data, mask=3)»)",
            "`T.call_extern`: got an unexpected keyword argument 'mask'",
            "T.call_extern(*args, dtype=)",
        ),
        (
            "x = T.alloc_buffer((4, 4), axis_separators=«[2]»)",
            "axis separators are ascending numbers of dimensions, from 1 to 1, got [2]",
        ),
        ("B[0, «:4»] = 0", "the elements of a vector are stated with their bounds", "A[i * 4:i * 4 + 4]"),
        ("B[0, 0:4] = A[0, «0:5»]", "a vector of 5 elements beside one of 4"),
        ("«n, m = T.int32(), T.int32(), T.int32()»", "2 names, but 3 values"),
        ("C = «T.allocate_const([1.0, 2.0], 'float32', [3])»", "2 number(s) for the extents (3)"),
        ("C = «T.allocate_const([1.0, 0.5], 'int32')»", "0.5 is not an integer, and cannot be a constant of dtype int32"),
        (
            "B[0, 0] = «A[0, 0:4]»",
            "`A[0, 0:4]` is a region; a value is needed here",
            "slices stand only in T.reads, T.writes and T.match_buffer; use a loop",
        ),
        (
            "B[0, 0] = «T.Cast('float64', A[0, 0])»",
            "a value of dtype float64 is stored into `B`, which holds float32",
            'convert it: T.Cast("float32", ...)',
        ),
        (
            "for i in «A.shape»:\n    pass",
            "`A.shape` is no range of a loop",
            "range(n), T.grid(m, n), T.serial(n), T.parallel(n), T.vectorized(n), ...",
        ),
        ("«for i, j in T.grid(1, 2, 3):»\n    pass", "2 loop variables, but 3 extents"),
        ("for i in range(0, 9, «0»):\n    pass", "the step of a loop is a positive constant, not `0`"),
        (
            "for i in «T.thread_binding(4)»:\n    pass",
            "T.thread_binding needs the axis",
            'T.thread_binding(128, thread="threadIdx.x")',
        ),
        (
            "for i in T.thread_binding(4, thread=«'threadIdx.w'»):\n    pass",
            "'threadIdx.w' is no thread axis",
            "did you mean `threadIdx.z`?",
        ),
        ("x = «T.grid(4)»", "`T.grid` is the range of a `for`"),
        ("«T.alloc_buffer((4,))»", "`T.alloc_buffer` stands alone to the right of `=`"),
        (
            "x = «T.alloc_buffer()»",
            "`T.alloc_buffer`: missing a required argument: 'shape'",
            "T.alloc_buffer(shape, dtype=float32, data=None, strides=None, elem_offset=None, scope=global, align=-1, "
            "offset_factor=0, buffer_type=default, axis_separators=None)",
        ),
        (
            "x = T.alloc_buffer((4,), «'float23'»)",
            f"unknown dtype 'float23'; did you mean `float32`? known are {', '.join(dtypes.TABLE)}",
        ),
        (
            "x = T.alloc_buffer((4,), scope=«'locl'»)",
            f"no storage scope is named 'locl'; did you mean local? there are: {', '.join(SCOPES)}",
        ),
        (
            "x = T.allocate((4,), 'float32', «'wrap'»)",
            f"no storage scope is named 'wrap'; did you mean warp? there are: {', '.join(SCOPES)}",
        ),
        ("x = T.alloc_buffer((4, 4), strides=«(8, 1)»)", "buffers are dense and row-major; strides are not in the dialect"),
        (
            "C = «T.match_buffer(A[0:4, 0:3], (3, 4))»",
            "a region of extents (4, 3) is not of shape (3, 4)",
            "only dimensions of extent 1 may be left out",
        ),
        ("C = «T.Buffer((92,), data=A.data)»", "a view up to element 92 of `A`, which has 91"),
        (
            "C = «T.Buffer((91,), 'int32', data=A.data)»",
            "a view of `A` as int32, but it holds float32",
            "bits cannot be reinterpreted",
        ),
        (
            "C = «T.Buffer((91,))»",
            "a view says whose elements it shows",
            "C = T.Buffer(shape, data=A.data), or T.alloc_buffer(shape)",
        ),
        ("C = T.Buffer((91,), data=«A»)", "`A` is no memory", "A.data of a buffer, or what T.allocate made"),
        (
            "C = T.Buffer((91,), data=A.data)\nwith T.block('b'):\n    T.reads(«C[0:91]»)\n    B[0, 0] = C[0]",
            "a region of `C`, which is another view of `A`, cannot be kept",
            "state the region of `A`",
        ),
        (
            "C = T.allocate([4], 'float32', 'global', «B[0, 0] > 0»)\nB[0, 0] = 0",
            "memory is allocated always, not under a condition",
        ),
        ("vi = «T.axis.spatial(7, 0)»", "`T.axis.spatial` stands directly in a block", 'with T.block("C"): ...'),
        (
            "with T.block('b'):\n    for i in range(7):\n        «T.where(i < 3)»",
            "`T.where` stands directly in a block",
            'with T.block("C"): ...',
        ),
        (
            "for i in range(7):\n    with T.block('b'):\n        B[0, 0] = 0\n        vi = «T.axis.spatial(7, i)»",
            "the axes of a block stand before its statements",
        ),
        (
            "for i in range(7):\n    with T.block('b'):\n        vi, vj = «T.axis.remap('SS', [i])»",
            "2 names, 2 kinds and 1 loops; they must be as many",
        ),
        (
            "for i in range(7):\n    with T.block('b'):\n        vi = T.axis.remap(«'X'», [i])",
            "'X' is no kind of axis",
            '"S" is spatial, "R" reduce, "O" opaque',
        ),
        (
            "for i in range(7):\n    with T.block('b'):\n        vi = T.axis.remap('S', [«i + 1»])",
            "`i + 1` is no loop variable",
            "vi = T.axis.spatial(extent, i + 1)",
        ),
        (
            "for i in range(7):\n    with T.block('b'):\n        T.where(i < 3)\n        «T.where(i < 4)»",
            "`T.where` is stated twice in this block",
        ),
        (
            "with T.block('b'):\n    with T.init():\n        pass\n    with «T.init()»:\n        pass",
            "T.init is stated twice in this block",
        ),
        (
            "with T.block('b'):\n    C = T.alloc_buffer((4,))\n    T.writes(«C[0]»)",
            "`C` is allocated in this block",
            "a block states what it reads and writes of buffers around it",
        ),
        ("with T.block('b'):\n    T.reads(«3»)", "`3` is no region of a buffer", "A[i, j] or A[0:16, j]"),
        ("with T.block('b'):\n    T.reads(A[«0:7:2», 0])", "a region has no steps", "state the whole range"),
        (
            "with T.block('b'):\n    T.block_attr(«{'a': A[0, 0]}»)",
            "attributes hold plain data, not Load",
            "numbers, strings, lists and dictionaries",
        ),
        ("T.func_attr(«3»)", "attributes are a dictionary with strings as keys", '{"pragma_unroll": 16}'),
        (
            "«T.attr(0, 'thread_extent', 4)»",
            "T.attr with 'thread_extent' may change what the program means",
            "T.launch_thread, or T.thread_binding",
        ),
        ("with «open('x')» as f:\n    pass", "`open('x')` has no meaning in a `with`", 'with T.block("C"):'),
        ("with «T.allocate([4])»:\n    pass", "`T.allocate` needs a name", "with T.allocate([4]) as x:"),
        ("with T.block('b') as «b»:\n    pass", "`T.block` binds no name"),
        ("n = «T.float32()»", "a size must be an integer, not float32"),
        ("«x = y = 3»", "one name at a time is assigned"),
        ("«a, b = 1, 2, 3»", "2 names, but 3 values"),
        ("x = 'text' + «i».real", "`i` is not defined"),
        ("x = «(3).real»", "`(3).real` cannot be read: nothing is executed in a text"),
        ("B[0, 0] = «T.float32('tall')»", 'T.float32 takes a number, or for floats "inf", "-inf" or "nan"; got \'tall\''),
        ("B[0, 0] = «A.size»", "a buffer has no `size`", "index it: A[i, j]"),
    ],
    INTEGERS: [
        ("A[0] = «0.5»", "0.5 is not an integer, and cannot be a constant of dtype int32"),
        ("A[0] = «A[0] / 2»", "`/` needs floating operands, got int32 in `A[0] / 2`; use // or .astype('float32')"),
        ("A[0] = «T.truncdiv(T.float32(1), 2)»", "`T.truncdiv` divides integers, got float32"),
        ("if «n»:\n    A[0] = 0", "a condition must be bool, `n` is int32", "compare it: x != 0"),
        ("A[0] = 1 if n < 3 and «n» else 2", '`and` needs bool operands, got int32 in `T.Cast("int32", n < 3) and n`'),
        (
            "x: T.int64 = «n * 2»\nA[0] = x",
            "`x` is declared as int64, but its value is int32",
            'convert it: T.Cast("int64", ...)',
        ),
        (
            'A[0] = «T.abs(A[0], dtype="int64")»',
            "dtype is 'int64', and `T.abs(A[0])` is int32",
            "convert what it is applied to: T.Cast(dtype, x)",
        ),
        ("A[0] = «T.exp(A[0])»", "exp needs a floating argument, got int32; use .astype('float32')"),
        ("A[0] = «[n for n in A]»", "a comprehension is not in the dialect", "write it out, or compute it before the function"),
        ("«while n < 3:»\n    A[0] = 0", "`while` is not in the dialect", "only counted loops: for i in range(n)"),
        ("«return A»", "`return` is not in the dialect", "results are written to parameters"),
        ("«n + 1»", "this value is not used", "T.evaluate(...) evaluates an expression for its effect"),
        ("«n += 1»", "`n` is no element of a buffer", "bind a new name: y = x + 1"),
        ("«A.shape» = 3", "`A.shape` cannot be assigned to", "a name, or an element A[i, j]"),
    ],
    HANDLE: [
        (
            "A = T.match_buffer(a, (7,), elem_offset=«3»)",
            "buffers start at their first element; elem_offset is not in the dialect",
        ),
        (
            "A = T.match_buffer(a, (7,))\nB = «T.match_buffer(a, (7,))»",
            "`a` has a shape already",
            "another view is T.Buffer(shape, data=A.data)",
        ),
        ("«a»[0] = 0", "`a` is no buffer"),
    ],
}
# The same with the marks in the parameters.
PARAMETER_ERRORS = [
    ("«a: T.handle»", "the handle `a` is given no shape", "A = T.match_buffer(a, (128,))"),
    ("«A»", "the parameter `A` has no annotation", 'write A: T.Buffer((128, 128), "float32")'),
    ("A: «int»", "`int` is no type of a parameter", 'T.Buffer((128, 128), "float32"), T.handle, or T.int32 for a size'),
    ("«x: T.float32»", "the scalar parameter `x` must be an integer, got float32", "pass it as T.Buffer((1,), ...)"),
]


def rendered(marked: str, message: str, hint: str | None = None) -> str:
    """The text of the error at the marks."""
    ((number, line),) = [(n, line) for n, line in enumerate(marked.splitlines(), 1) if "«" in line]
    before, at, after = line.replace("»", "«").split("«")
    pointer = " " * len(before) + "^" * len(at)
    where = f"<script>:{number}:{len(before) + 1}: {message}\n{number:5} | {before}{at}{after}\n      | {pointer}"
    return where if hint is None else f"{where}\n  hint: {hint}"


@pytest.mark.parametrize(
    ("marked", "expected"),
    [(script(body, params), says) for params, cases in ERRORS.items() for body, *says in cases]
    + [(script("pass", params), says) for params, *says in PARAMETER_ERRORS],
)
def test_errors(marked: str, expected: list[str]):
    with pytest.raises(ScriptError) as caught:
        parse(marked.replace("«", "").replace("»", ""))
    found = str(caught.value)
    assert found == rendered(marked, *expected), f"the message was\n{found}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == found
    assert (again.lineno, again.offset) == (caught.value.lineno, caught.value.offset)


@pytest.mark.parametrize(("text", "message"), [
    ("@T.prim_func\ndef main(*A):\n    pass\n",
     "<script>:2:1: a function of the dialect has plain parameters only\n    2 | def main(*A):\n      | ^^^^^^^^^^^^^"),
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
    ("print(1)",
     "<script>:1:1: only imports, constants, functions and modules stand at the top of a script\n" "    1 | print(1)\n" "      | ^^^^^^^^"),
    ("\n    @T.prim_func\n    def f(A: T.handle\n",
     "<script>:3:10: not Python: '(' was never closed\n    3 |     def f(A: T.handle\n      |          ^"),
    (
        "\n    @T.prim_func\n    def f(A: T.Buffer((7,))):\n        A[0] = T.ecp(A[1])\n",
        "<script>:4:16: `T.ecp` is not in the dialect\n    4 |         A[0] = T.ecp(A[1])\n      |                ^^^^^\n"
        "  hint: did you mean `T.exp`?",
    ),
    ("@T.prim_func\ndef f(A: T.handle\n",
     "<script>:2:6: not Python: '(' was never closed\n    2 | def f(A: T.handle\n      |      ^"),
    ("@I.ir_module\nclass Some:\n    x = 3",
     "<script>:3:5: a module holds functions under @T.prim_func, and nothing else\n    3 |     x = 3\n      |     ^^^^^"),
    ('@T.prim_func\ndef f(Ä: T.Buffer((1,), "float32")):\n    Ä[0] = "ü" + Ö',
     '<script>:3:18: `Ö` is not defined\n    3 |     Ä[0] = "ü" + Ö\n      |                  ^'),
    ("N = open('x')\n", "<script>:1:5: `open` is not defined\n    1 | N = open('x')\n      |     ^^^^"),
])  # fmt: skip
def test_errors_of_texts(text: str, message: str):
    with pytest.raises(ScriptError) as caught:
        parse(text)
    assert str(caught.value) == message, str(caught.value)


def test_an_error_in_a_decorated_function_names_its_file():
    with pytest.raises(ScriptError) as caught:

        @T.prim_func
        def broken(A: T.Buffer((7,), "float32")):
            A[0] = abs(missing)

    error = caught.value
    line = "            A[0] = abs(missing)"
    assert str(error) == (
        f"{__file__}:{error.lineno}:24: `missing` is not defined\n{error.lineno:5} | {line}\n      | {' ' * 23}{'^' * 7}"
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
