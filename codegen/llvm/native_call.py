"""Calls from Python to machine code, without ctypes: functions of CPython that LLVM compiles, which check numpy's arrays.

A function of CPython is a `PyMethodDef` with the address of its code. The code is called with pointers to its arguments, which
are objects. It reads the attributes of an array from the object, by numpy's C interface (`PyArrayObject`). It compares them with
a table of words, one table a kernel; so one function serves all kernels with arguments of the same kinds. Where anything differs
it declines, and Python finds the error.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Sequence, Set
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from tir import dtypes
from tir.arith.polynomial import polynomial
from tir.ir import Buffer, Expr, Var

from ..llvm_binding import llvm
from ..processor import host_processor
from ..runtime.memory import DECLINED
from ..target import Target
from .compile import Library, machine

# Bytes from the beginning of an array, as an object, to its attributes; the type of any object is before these.
TYPE, HEAD = 8, 16
DATA, RANK, SHAPE, DTYPE, FLAGS = HEAD, HEAD + 8, HEAD + 16, HEAD + 40, HEAD + 48
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # in flags
KIND = HEAD + 8  # of a dtype: kind, type and byte order as characters, a byte of flags, and its number in 32 bits
KIND_MASK = 0xFFFF_FFFF_00FF_FFFF  # all of that but the flags

MAX_SIZE = 2**31 - 1  # the largest size, and factor of one, so that no length overflows 64 bits
FASTCALL = 0x80  # CPython's convention of a call: an array of pointers to the arguments, and their number

RUNTIME = ("PyLong_AsLongLongAndOverflow", "PyLong_FromLongLong", "PyEval_SaveThread", "PyEval_RestoreThread")


class ArgumentForm(NamedTuple):
    """The form of an argument to check: an array of a rank, which may be written, or a size where the rank is None."""

    rank: int | None
    written: bool = False


def native_call(entry: Callable, params: Sequence[Buffer | Var], written: Set[str], short: int) -> Callable[..., int]:
    """A function of arguments for `params` that calls a function of ctypes with their addresses and sizes, and returns its
    status; DECLINED, without a call, for arguments that are not certain to pass `arguments.checked`.

    It releases Python's global lock unless all sizes are at most `short`; without sizes, unless `short` is not 0.
    """
    address = ctypes.cast(entry, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
    words = _table(address, params, written, short) if supported() else None
    if words is None:
        return lambda *arguments: DECLINED
    table = np.array(words, np.uint64).view(_Table)
    table.entry = entry
    table.method = method = _method(
        tuple(ArgumentForm(len(p.shape), p.name in written) if isinstance(p, Buffer) else ArgumentForm(None) for p in params)
    )
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return new(("PyCFunction_NewEx", ctypes.pythonapi))(ctypes.addressof(method), table, None)


class _Table(np.ndarray):
    """The words that a call compares. It keeps alive the code, and the method definition that CPython reads by address."""

    entry: object
    method: _MethodDef


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))
    library: object


# --- the interpreter's layout of objects ---------------------------------------------------------------------------------


@cache
def supported() -> bool:
    """True where objects have the layout that this module reads: in 64-bit CPython with its global lock, by probes of arrays."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or object.__basicsize__ != HEAD or sys.byteorder != "little":
        return False
    fixed = np.zeros((3, 5, 7), "float32")
    fixed.flags.writeable = False
    odd = np.zeros(41, "uint8")[1:].view("float64")
    return all(map(_as_known, (fixed, np.zeros((5, 3), "int64").T, np.zeros((), "bool"), np.zeros(13, ">u2"), odd, odd[::2])))


def _as_known(array: np.ndarray) -> bool:
    """True where the words at the known places of an array agree with its attributes."""

    def word(place: int) -> int:
        return ctypes.c_uint64.from_address(place).value

    def half(place: int) -> int:
        return ctypes.c_int32.from_address(place).value

    at, flags = id(array), array.flags
    known = CONTIGUOUS * flags.c_contiguous | ALIGNED * flags.aligned | WRITEABLE * flags.writeable
    return (
        np.ndarray.__basicsize__ >= FLAGS + 4
        and word(at + TYPE) == id(np.ndarray)
        and word(at + DATA) == array.ctypes.data
        and half(at + RANK) == array.ndim
        and all(word(word(at + SHAPE) + 8 * n) == length for n, length in enumerate(array.shape))
        and word(at + DTYPE) == id(array.dtype)
        and half(at + FLAGS) & (CONTIGUOUS | ALIGNED | WRITEABLE) == known
        and ctypes.string_at(id(array.dtype) + KIND, 3) == f"{array.dtype.kind}{array.dtype.char}{array.dtype.byteorder}".encode()
        and half(id(array.dtype) + KIND + 4) == array.dtype.num
    )


# --- the words of a kernel -----------------------------------------------------------------------------------------------


def _table(entry: int, params: Sequence[Buffer | Var], written: Set[str], short: int) -> list[int] | None:
    """The entry, `short`, the largest value of each size, and the dtype, flags, bytes of an element and lengths of each array. A
    length is a constant and a factor for each size; None where one is not linear in the sizes."""
    sizes = [p.name for p in params if isinstance(p, Var)]
    words = [entry, short, *(min(int(dtypes.limits(p.dtype)[1]), MAX_SIZE) for p in params if isinstance(p, Var))]
    for p in params:
        if isinstance(p, Buffer):
            dtype = np.dtype(dtypes.storage(p.dtype))
            flags = CONTIGUOUS | (ALIGNED | WRITEABLE) * (p.name in written)
            words += (ctypes.c_uint64.from_address(id(dtype) + KIND).value & KIND_MASK, flags, dtype.itemsize)
            for d in p.shape:
                found = _length(d, sizes)
                if found is None:
                    return None
                words += (x % 2**64 for x in found)
    return words


def _length(d: Expr, sizes: Sequence[str]) -> list[int] | None:
    """A length as a constant and a factor for each size; None where it is not linear in the sizes, or factors are large."""
    found = polynomial(d)
    factors = {m[0].name: c for m, c in found.items() if len(m) == 1 and isinstance(m[0], Var)}
    if len(factors) + (() in found) < len(found) or not factors.keys() <= set(sizes):
        return None
    numbers = [found.get((), 0), *(factors.get(name, 0) for name in sizes)]
    return numbers if all(abs(x) <= MAX_SIZE for x in numbers[1:]) or not factors else None


# --- the code ------------------------------------------------------------------------------------------------------------


@lru_cache(256)
def _method(kinds: tuple[ArgumentForm, ...]) -> _MethodDef:
    """The method definition with the code for arguments of these kinds; kernels keep theirs alive."""
    module = llvm.parse_assembly(_Code().text(kinds))
    module.verify()
    target = Target("llvm", num_cores=1, mcpu=host_processor()[0])
    runtime = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in RUNTIME}
    library = Library([machine(target, level=1).emit_object(module)], ["call"], target, runtime)
    method = _MethodDef(b"kernel", library.address("call"), FASTCALL, None)
    method.library = library
    return method


class _Code:
    """`ptr @call(ptr table, ptr arguments, i64 count)` in LLVM IR: straight-line code, left where an argument does not fit."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = self.words = 0
        self.table = ""

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %x{self.count} = {text}")
        return f"%x{self.count}"

    def load(self, base: str, offset: int, type: str = "i64") -> str:
        place = self.op(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.op(f"load {type}, ptr {place}")

    def word(self) -> str:
        """The next word of the table."""
        self.words += 1
        return self.load(self.table, 8 * (self.words - 1))

    def need(self, *conditions: str) -> None:
        """Decline unless all comparisons hold; they are given without their opcode."""
        found = [self.op(f"icmp {c}") for c in conditions]
        all_of = found[0]
        for other in found[1:]:
            all_of = self.op(f"and i1 {all_of}, {other}")
        self.lines += [f"  br i1 {all_of}, label %next{self.count}, label %decline", f"next{self.count}:"]

    def text(self, kinds: tuple[ArgumentForm, ...]) -> str:
        """The module."""
        self.need(f"eq i64 %count, {len(kinds)}")
        self.table = self.load("%table", DATA, "ptr")
        entry, short = self.word(), self.word()
        given = [self.load("%arguments", 8 * n, "ptr") for n in range(len(kinds))]
        sizes = {n: self.size(given[n]) for n, k in enumerate(kinds) if k.rank is None}
        spans = {n: self.array(given[n], k.rank, list(sizes.values())) for n, k in enumerate(kinds) if k.rank is not None}
        for n, m in combinations(spans, 2):
            if kinds[n].written or kinds[m].written:
                self.apart(spans[n], spans[m])
        values = [sizes[n] if n in sizes else spans[n][0] for n in range(len(kinds))]
        self.finish(entry, short, values, list(sizes.values()))
        declared = (
            "declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)",
            "declare ptr @PyLong_FromLongLong(i64)",
            "declare ptr @PyEval_SaveThread()",
            "declare void @PyEval_RestoreThread(ptr)",
            "define ptr @call(ptr %table, ptr %arguments, i64 %count) nounwind {",
            "  %overflow = alloca i32",
        )
        return "\n".join([*declared, *self.lines, "}"]) + "\n"

    def size(self, argument: str) -> str:
        """The value of an int that is neither negative nor too large."""
        self.need(f"eq i64 {self.load(argument, TYPE)}, {id(int)}")
        value = self.op(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {argument}, ptr %overflow)")
        overflow = self.op("load i32, ptr %overflow")
        self.need(f"eq i32 {overflow}, 0", f"ule i64 {value}, {self.word()}")
        return value

    def array(self, argument: str, rank: int, sizes: Sequence[str]) -> tuple[str, str]:
        """The addresses of the begin and the end of an array that fits."""
        self.need(f"eq i64 {self.load(argument, TYPE)}, {id(np.ndarray)}")
        kind, flags, nbytes = self.word(), self.op(f"trunc i64 {self.word()} to i32"), self.word()
        begin, dtype = self.load(argument, DATA), self.load(argument, DTYPE, "ptr")
        found_kind = self.op(f"and i64 {self.load(dtype, KIND)}, {KIND_MASK - 2**64}")
        found_flags = self.op(f"and i32 {self.load(argument, FLAGS, 'i32')}, {flags}")
        last = self.op(f"sub i64 {nbytes}, 1")
        beside = self.op(f"and i64 {begin}, {last}")
        ranks = f"eq i32 {self.load(argument, RANK, 'i32')}, {rank}"
        self.need(f"eq i64 {found_kind}, {kind}", f"eq i32 {found_flags}, {flags}", f"eq i64 {beside}, 0", ranks)
        shape = self.load(argument, SHAPE, "ptr")
        lengths = [self.load(shape, 8 * n) for n in range(rank)]
        for length in lengths:
            self.need(f"eq i64 {length}, {self.length(sizes)}")
        for length in lengths:
            nbytes = self.op(f"mul i64 {nbytes}, {length}")
        return begin, self.op(f"add i64 {begin}, {nbytes}")

    def length(self, sizes: Sequence[str]) -> str:
        """A length of the table, for these sizes."""
        total = self.word()
        for size in sizes:
            term = self.op(f"mul i64 {size}, {self.word()}")
            total = self.op(f"add i64 {total}, {term}")
        return total

    def apart(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        """Decline where two spans of memory overlap."""
        after, before = self.op(f"icmp uge i64 {one[0]}, {other[1]}"), self.op(f"icmp uge i64 {other[0]}, {one[1]}")
        either = self.op(f"or i1 {after}, {before}")
        self.need(f"eq i1 {either}, 1")

    def finish(self, entry: str, short: str, values: Sequence[str], sizes: Sequence[str]) -> None:
        """Call the entry, without Python's global lock if that may take long, and return its status."""
        code, is_short = self.op(f"inttoptr i64 {entry} to ptr"), self.op(f"icmp ne i64 {short}, 0")
        for size in sizes:
            fits = self.op(f"icmp ule i64 {size}, {short}")
            is_short = self.op(f"and i1 {is_short}, {fits}")
        run = f"call i32 {code}({', '.join(f'i64 {v}' for v in values)})"
        self.lines += [
            f"  br i1 {is_short}, label %hold, label %release",
            "hold:",
            f"  %held = {run}",
            "  br label %done",
            "release:",
            "  %state = call ptr @PyEval_SaveThread()",
            f"  %free = {run}",
            "  call void @PyEval_RestoreThread(ptr %state)",
            "  br label %done",
            "done:",
            "  %status = phi i32 [%held, %hold], [%free, %release]",
            "  %wide = sext i32 %status to i64",
            "  br label %answer",
            "decline:",
            "  br label %answer",
            "answer:",
            f"  %result = phi i64 [%wide, %done], [{DECLINED}, %decline]",
            "  %object = call ptr @PyLong_FromLongLong(i64 %result)",
            "  ret ptr %object",
        ]
