"""Functions over buffers and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from .buffers import Buffer
from .expressions import Var
from .nodes import Annotations, Node, annotated, node, printer
from .statements import Stmt


@node
class PrimFunc(Node):
    """A function over buffers (and scalar sizes): `params` in call order, `allocs` its temporaries, one statement tree."""

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    allocs: tuple[Buffer, ...] = ()
    attrs: Annotations = field(default=(), hash=False)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are buffers, in call order."""
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def sizes(self) -> tuple[Var, ...]:
        """The parameters that are sizes, in call order."""
        return tuple(p for p in self.params if isinstance(p, Var))

    def script(self) -> str:
        """The function in the script dialect, as Python source."""
        return printer().func_text(self)

    def __str__(self) -> str:
        return self.script()

    def __repr__(self) -> str:
        return f"<PrimFunc {printer().signature_text(self)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ..display import code

        return code(self.script())

    def outline(self) -> str:
        """The loop nest in short form: one line for each perfect nest of loops and for each assignment. It cannot be parsed."""
        return printer().outline_text(self)

    def show(self) -> None:
        """Print the script, coloured in a terminal."""
        printer().show(self)

    def with_attr(self, key: str, value: Any) -> PrimFunc:
        """The function with attribute `key` set to `value`, plain data."""
        return self.with_(attrs=annotated(self.attrs, key, value))

    def specialize(self, values: Mapping[Any, int]) -> PrimFunc:
        """The function for values of its sizes, keyed by name or by variable; see `tir.specialize`."""
        import tir

        return tir.specialize(self, {size.name if isinstance(size, Var) else size: value for size, value in values.items()})


def need_func(value: Any, caller: str) -> PrimFunc:
    """The function `value`, or the only one of a module. TypeError, in the name of `caller`, for anything else."""
    if isinstance(value, PrimFunc):
        return value
    if isinstance(value, Mapping):
        if len(value) == 1:
            return need_func(next(iter(value.values())), caller)
        known = f"{len(value)}: {', '.join(value)}; choose one: module[{next(iter(value))!r}]" if value else "none"
        raise TypeError(f"{caller} takes one function, and this module has {known}")
    hint = ""
    if hasattr(value, "func"):
        hint = f" (a {type(value).__name__}'s program is its .func)"
    elif hasattr(value, "op"):
        hint = " (te.create_prim_func makes one of tensors)"
    raise TypeError(f"{caller} takes a PrimFunc, got {type(value).__name__}{hint}")
