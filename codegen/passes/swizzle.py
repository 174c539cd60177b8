"""The layout of shared memory that the products of warpgroups read: panels of 128 bytes, their parts of 16 bytes permuted."""

from __future__ import annotations

from schedule.machine import MAX_ACCESS_BYTES
from tir import dtypes
from tir.arith.simplify import simplify
from tir.ir import Buffer, Call, Const, Expr, Load, PrimFunc, Store
from tir.memory import SWIZZLED
from tir.traverse import rewrite

from .gpu_kernels import GPUError

LINE = 128  # bytes of a row of a panel, which all banks deliver at once
PARTS = 8  # parts of a row, of 16 bytes, and rows after which the permutation repeats


def alignment(b: Buffer) -> int:
    """The bytes at a multiple of which a buffer in shared memory starts: that of a vector, or of a whole permutation."""
    return LINE * PARTS if b.scope == SWIZZLED else MAX_ACCESS_BYTES


def swizzle_shared(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   A[..., i, j]   in scope `shared.swizzled`, of 2 bytes an element
              => A[..., j // 64, i, (j // 8 % 8) ^ (i % 8), j % 8]

    Eight rows of a column of parts lie in different banks, as do the parts of a row (PTX ISA, "Shared Memory Matrix Layout", the
    128-byte swizzle). Raises GPUError for other than whole panels of eight rows.
    """

    def change(n):
        match n:
            case Buffer(scope=scope) if scope == SWIZZLED:
                return n.with_(shape=_panels(n))
            case Load(buffer, indices) | Store(buffer, indices) if buffer.scope == SWIZZLED:
                return n.with_(indices=_place(indices, LINE // PARTS // dtypes.nbytes(buffer.dtype)))
        return None

    return rewrite(func, change)


def _panels(b: Buffer) -> tuple[Expr, ...]:
    width = LINE // dtypes.nbytes(b.dtype)
    *others, rows, columns = b.shape
    if not isinstance(rows, Const) or not isinstance(columns, Const) or rows.value % PARTS or columns.value % width:
        raise GPUError(f"`{b.name}` in scope `{SWIZZLED}` must have a multiple of {PARTS} rows and of {width} columns, got "
                       f"{rows} and {columns}")  # fmt: skip
    return (*others, Const(int(columns.value) // width), rows, Const(PARTS), Const(width // PARTS))


def _place(indices: tuple[Expr, ...], each: int) -> tuple[Expr, ...]:
    """The place of an element, of which a part has `each`."""
    *others, row, column = indices
    part, turn = column // each % PARTS, simplify(row % PARTS)
    permuted = part if turn == Const(0) else Call("bit_xor", (part, turn), "int32")
    return (*others, column // (each * PARTS), row, permuted, column % each)
