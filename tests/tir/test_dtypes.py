"""The table of dtypes, and that every table that depends on it has all of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tir
from codegen.cuda.expressions import STORAGE, VALUE
from codegen.export import C_TYPES
from codegen.llvm.values import TYPES
from tir import dtypes, te
from tir.script import tir as T


@pytest.mark.parametrize("table", [STORAGE, VALUE, C_TYPES, TYPES], ids=["storage", "value", "c", "llvm"])
def test_every_dtype_is_in_every_table(table):
    assert set(table) == set(dtypes.TABLE)


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_every_dtype_is_copied_by_script_interpreter_and_llvm(dtype):
    A = te.placeholder((7,), dtype, name="A")
    func = te.create_prim_func([A, te.compute((7,), lambda i: A[6 - i], name="B")])
    assert tir.script.parse(func.script()) == func and hasattr(T, dtype)
    a = np.arange(7).astype(dtypes.storage(dtype))
    for run in (lambda *arrays: tir.run(func, *arrays), tir.build(func, "llvm -num-cores 1")):
        b = np.zeros_like(a)
        run(a, b)
        assert (b == a[::-1]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32"), np.dtype("float32").type])
def test_dtypes_of_numpy_stand_for_their_names(dtype):
    n, A = te.var("n", np.int64), te.placeholder((7,), dtype, name="A")
    made = (
        A,
        A[0].astype(np.float64).astype(dtype),
        te.const(1, dtype),
        te.infinity(dtype),
        te.max_value(dtype),
        te.min_value(dtype),
    )
    assert n.dtype == "int64" and {type(x.dtype) for x in made} == {str} and {x.dtype for x in made} == {"float32"}
    assert te.scan((7,), lambda y, i: 1.0, 0, dtype).dtype == tir.workloads.make("gmm", (7, 13, 5), dtype).dtype == "float32"
    assert te.placeholder((7,), np.bool_).dtype == "bool"


@pytest.mark.parametrize(
    ("dtype", "message"),
    [("flaot32", "unknown dtype 'flaot32'; did you mean `float32`? known are"), (np.complex64, "unknown dtype 'complex64'"),
     (np.dtype(">f4"), "unknown dtype '>f4'"), (np.dtype("datetime64[s]"), "unknown dtype"), (float, "a dtype is a string such as")],
)  # fmt: skip
def test_other_dtypes_are_refused(dtype, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        te.placeholder((7,), dtype)


def test_integers_that_floats_hold_exactly_are_folded():
    for dtype, mantissa in (("float64", 53), ("float32", 24), ("float16", 11), ("bfloat16", 8)):
        exact = te.const(2**mantissa, "int64")
        assert str(tir.simplify(exact.astype(dtype))) == str(te.const(float(2**mantissa), dtype))
        assert "int64" in repr(tir.simplify((exact + 1).astype(dtype)))
