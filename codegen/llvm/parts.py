"""Long bodies in parts: functions called one after the other, as LLVM's time grows with the square of a function's size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeGuard

from tir.ir import Allocate, For, Seq, Stmt, Store, seq
from tir.traverse import walk_stmts

from ..passes.free_variables import free_names
from .writer import Writer

MAX_STATEMENTS = 1024  # loops and stores of a body that are written in one function
PART_STATEMENTS = 256  # loops and stores of a part, unless one statement of the body has more


class Parts(Writer):
    """Writes long bodies."""

    def is_long(self, s: Stmt) -> bool:
        """True where a body is to be written in parts."""
        body = isinstance(s, Seq) or _is_memory(s)
        return body and self.lane is None and self.mask is None and not self.constants and _statement_count(s) > MAX_STATEMENTS

    def parts(self, s: Stmt) -> None:
        """Write a body as calls of its parts. Its temporaries belong to the function around."""
        part: list[Stmt] = []
        size = 0

        def end() -> None:
            nonlocal size
            self._written_apart(seq(*part))
            part.clear()
            size = 0

        for x in _straight(s):
            if _is_memory(x):
                if part and x.buffer.name in self.buffers:  # another one of that name
                    end()
                self.allocate(x.buffer)
                continue
            more = _statement_count(x)
            if part and size + more > PART_STATEMENTS:
                end()
            part.append(x)
            size += more
        end()

    def _written_apart(self, s: Stmt) -> None:
        if any(b.scope == "register" for b in free_names(s)[1].values()):
            self.stmt(s)
            return
        writer, passed, parameters = self.inner(s)
        number = len(self.module.functions)
        self.module.functions.append("")  # keeps the numbers of inner functions apart
        writer.stmt(s)
        name = f"@tir.part.{number}"
        header = f"define internal i32 {name}({', '.join(map(str, parameters))}) noinline #0"
        self.module.functions[number] = writer.finish(header)
        call = f"call i32 {name}({', '.join(map(str, passed))})"
        if writer.fails or writer.heap:
            status = self.op(call, "i32")
            self.leave_if(self.compare("ne", status, 0), status)
        else:
            self.line(call)


def _is_memory(s: Stmt) -> TypeGuard[Allocate]:
    return isinstance(s, Allocate) and s.buffer.scope != "register"


def _statement_count(s: Stmt) -> int:
    """The number of loops and stores in a statement, or one more than a function may have."""
    return sum(1 for _ in islice((x for x in walk_stmts(s) if isinstance(x, For | Store)), MAX_STATEMENTS + 1))


def _straight(s: Stmt) -> Iterator[Stmt]:
    """The statements that run one after the other, and the allocations around them, which may be many levels, in order."""
    left = [s]
    while left:
        x = left.pop()
        if isinstance(x, Seq):
            left += reversed(x.stmts)
            continue
        yield x
        if _is_memory(x):
            left.append(x.body)
