"""Calls of what the IR knows nothing about, and pure functions of libraries."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from schedule import Schedule, ScheduleError
from tests.schedule.harness import Checked
from tests.tir.script.parsing import Body, parsed
from tir.interpreter import InterpreterError
from tir.script import ScriptError
from tir.traverse import foreign_calls, named_buffers
from tir.verify import verify

TILES = """
X = T.alloc_buffer((7, 13))
for i, j in T.grid(7, 13):
    with T.block("X"):
        vi, vj = T.axis.remap("SS", [i, j])
        X[vi, vj] = A[vi, vj] + T.float32(1)
for t in range(3):
    with T.block("B"):
        vt = T.axis.spatial(3, t)
        T.reads(X[vt * 2:vt * 2 + 2, 0:13])
        T.writes(B[vt * 2:vt * 2 + 2, 0:13])
        W = T.match_buffer(X[vt * 2:vt * 2 + 2, 0:13], (2, 13), offset_factor=1)
        T.evaluate(T.call_extern("int32", "copy", T.tvm_access_ptr(T.type_annotation("float32"), W.data, W.elem_offset, 26, 1),
                                 T.address_of(B[vt * 2, 0]), W.strides[0], dtype="int32"))
"""


def test_a_foreign_call():
    func = Body(TILES).becomes("""
        # with T.block("root"):
        X = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            with T.block("X"):
                vi, vj = T.axis.remap("SS", [i, j])
                X[vi, vj] = A[vi, vj] + T.float32(1.0)
        for t in range(3):
            with T.block("B"):
                vt = T.axis.spatial(3, t)
                T.reads(X[vt * 2:vt * 2 + 2, 0:13])
                T.writes(B[vt * 2:vt * 2 + 2, 0:13])
                T.evaluate(T.call_extern("int32", "copy", T.tvm_access_ptr(T.type_annotation("float32"), X.data, vt * 26, 26, 1), T.address_of(B[vt * 2, 0]), 13, dtype="int32"))
    """)
    (call,) = foreign_calls(func.body)
    assert [b.name for b in named_buffers(call.call)] == ["X", "B"]
    report = verify(func)
    assert report.ok and "what this call reads and writes is unknown" in str(report)


def test_steps_that_keep_its_memory_are_taken():
    s = Schedule(parsed(TILES))
    s.split("t", [None, 2])
    s.transform_block_layout("X", lambda i, j: (j, i))
    s.blockize("t_1")
    assert "T.address_of(B[(vt_o * 2 + vt_i) * 2, 0])" in s.script
    assert tir.script.parse(s.script) == s.func
    assert "call_extern" in s.func.outline()


def test_steps_that_change_its_memory_are_refused():
    s = Checked(parsed(TILES.replace("7, 13", "7, 7").replace("0:13", "0:7").replace("(2, 13)", "(2, 7)"), SQUARES))
    with s.refusal("""
        transform_layout('X', ['write', 0], 'lambda i, j: (j, i)'): `T.call_extern` is a foreign call, and its memory would be another than the one that it expects
           17 |             T.evaluate(T.call_extern("int32", "copy", T.tvm_access_ptr(T.type_annotation("float32"), X.data, vt * 14, 26, 1), T.address_of(B[vt * 2, 0]), 7, dtype="int32"))
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the call
          hint: steps may move the call, and change other buffers
    """):
        s.transform_layout("X", ("write", 0), "lambda i, j: (j, i)")
    for call in (
        lambda: s.compute_inline("X"),
        lambda: s.unsafe_set_dtype("X", 0, "float64"),
        lambda: s.set_scope("X", 0, "local"),
        lambda: s.storage_align("X", 0, 0, 16, 4),
    ):
        with pytest.raises(ScheduleError, match="is a foreign call, and its memory would be another"):
            call()


SQUARES = 'A: T.Buffer((7, 7), "float32"), B: T.Buffer((7, 7), "float32")'


def test_it_can_neither_be_run_nor_compiled():
    func = parsed('T.evaluate(T.call_packed("f", A.data, B.data))')
    with pytest.raises(ValueError, match=r"^main: `T.call_packed` is a foreign call, which cannot be compiled$"):
        tir.build(func)
    with pytest.raises(InterpreterError, match=r"^main: `T.call_packed` is a foreign call, and cannot be run$"):
        tir.run(func, *np.zeros((2, 7, 13), "float32"))


def test_pure_functions_of_libraries_are_those_of_the_dialect():
    Body("""
        for i, j in T.grid(7, 13):
            B[i, j] = T.call_pure_extern("float32", "sinf", A[i, j]) + T.call_llvm_pure_intrin(
                "float32", "llvm.sqrt.f32", T.uint32(1), A[i, j]) * T.call_pure_extern("fmaxf", A[i, j], 0.5, dtype="float32")
    """).becomes("""
        for i, j in T.grid(7, 13):
            B[i, j] = T.sin(A[i, j]) + T.sqrt(A[i, j]) * T.max(A[i, j], T.float32(0.5))
    """)


def test_pointers_of_buffers():
    """`access_ptr` is short for the call that says what it points to."""
    pointer = 'T.tvm_access_ptr(T.type_annotation("float32"), W.data, W.elem_offset, 26, 1)'
    assert parsed(TILES.replace(pointer, 'W.access_ptr("r")')) == parsed(TILES)
    for stated, place in (("", "0, 91"), (", offset=2 * 13", "26, 65"), (", offset=13, extent=13", "13, 13")):
        func = parsed(f'with T.block("B"):\n    T.evaluate(T.call_extern("int32", "f", A.access_ptr("rw"{stated})))')
        assert f'T.tvm_access_ptr(T.type_annotation("float32"), A.data, {place}, 3)' in func.script()
    named = parsed('T.evaluate(T.call_extern("int32", "f", A.access_ptr(access_mask=3, ptr_type="handle", extent=13)))')
    assert "A.data, 0, 13, 3)" in named.script()
    for call, message in (
        ("""A.access_ptr("rw", content_lanes=4)""", "got an unexpected keyword argument 'content_lanes'"),
        ("""A.access_ptr("x")""", "the access of a pointer is one of 'r', 'w', 'rw', 'wr', got 'x'"),
        ("""A.access_ptr(4)""", "the access of a pointer is one of 'r', 'w', 'rw', 'wr', got 4"),
    ):
        with pytest.raises(ScriptError, match=message):
            parsed(f'T.evaluate(T.call_extern("int32", "f", {call}))')


def test_calls_and_pointers_are_statements_and_have_names():
    """Without `T.evaluate`, and through names for pointers and for what makes buffers."""
    func = parsed(
        """
        make = T.alloc_buffer
        X = make((13,), "int8", scope="shared")
        with T.block("B"):
            T.reads(A[0:7, 0:13])
            T.writes(X[0:13])
            pointer: T.handle = A.access_ptr("r")
            data = X.data
            T.evaluate(A.access_ptr("r"))
            T.call_extern("int32", "f", pointer, data, "text", 1.5)
            T.tvm_mfma("float32", data, dtype="float32")
        """
    )
    lines = func.script().splitlines()
    assert [line.strip() for line in lines[-3:]] == [
        'T.evaluate(T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 91, 1))',
        'T.evaluate(T.call_extern("int32", "f", T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 91, 1), X.data, "text", '
        "T.float32(1.5)))",
        'T.evaluate(T.tvm_mfma("float32", X.data, dtype="float32"))',
    ]
    assert '    X = T.alloc_buffer((13,), "int8", scope="shared")' in lines
    assert tir.script.parse(func.script()) == func
    with pytest.raises(ScriptError, match="is a foreign call; a value is needed here"):
        parsed('B[0, 0] = A.access_ptr("r")')


def test_strides_in_quotation_marks():
    """Names for strides are none any more, in parameters, too."""
    quoted = """
    @T.prim_func
    def main(A: T.Buffer((7, 13), "float32", strides=("s", "t"), offset_factor=1), B: T.Buffer((7, 13), strides=[13, 1])):
        B[0, 0] = A[0, 0] + T.Cast("float32", A.strides[0])
    """
    func = tir.script.parse(quoted)
    assert [p.name for p in func.params] == ["A", "B"]
    assert func == tir.script.parse(quoted.replace('strides=("s", "t"), ', "").replace(", strides=[13, 1]", ""))
    with pytest.raises(ScriptError, match="buffers are dense and row-major; strides are not in the dialect"):
        tir.script.parse(quoted.replace("[13, 1]", "[16, 1]"))
