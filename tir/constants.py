"""Constant parameters of a function: buffers with the same elements at every call, such as the weights of a network.

The attribute `CONSTANTS` lists their names; the function never writes them. Values computed from them alone can be prepared once
(`codegen.constants`). The attribute is part of the script, and so of the keys of tasks.

With the attribute `SHARED`, the functions of a network at other sizes read these constants, too. Templates then pack them in an
order that follows from the constants alone, so that one packed copy serves all.
"""

from __future__ import annotations

from collections.abc import Iterable

from .ir import Buffer, PrimFunc, annotated, annotation
from .traverse import stored_names

CONSTANTS = "constants"
SHARED = "constants_shared"


def constants(func: PrimFunc) -> tuple[Buffer, ...]:
    """The constant parameters of a function, in call order. Raises ValueError where the attribute names anything else."""
    names = annotation(func.attrs, CONSTANTS, ())
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{func.name}: the attribute {CONSTANTS!r} is a list of names of parameters, got {names!r}")
    if not names:
        return ()
    known, written = [b.name for b in func.buffers], stored_names(func)
    for name in names:
        if name not in known:
            raise ValueError(f"{func.name}: constant `{name}` is no parameter that is a buffer; there are {', '.join(known)}")
        if name in written:
            raise ValueError(f"{func.name}: `{name}` cannot be constant, since the function writes it")
    return tuple(b for b in func.buffers if b.name in names)


def with_constants(func: PrimFunc, names: Iterable[str]) -> PrimFunc:
    """`func` with these parameters constant, and no others. Raises ValueError for names of anything else."""
    wanted = set(names)
    order = [*(p.name for p in func.params if p.name in wanted), *sorted(wanted - {p.name for p in func.params})]
    attrs = tuple(a for a in func.attrs if a[0] != CONSTANTS)
    marked = func.with_(attrs=annotated(attrs, CONSTANTS, order) if order else attrs)
    constants(marked)
    return marked


def with_shared_constants(func: PrimFunc) -> PrimFunc:
    """`func` with its constants shared by functions of other sizes; itself where it has none."""
    return func.with_(attrs=annotated(func.attrs, SHARED, True)) if annotation(func.attrs, CONSTANTS, ()) else func


def without_shared_constants(func: PrimFunc) -> PrimFunc:
    """`func` as its constants are its own: records know it by that form."""
    return func.with_(attrs=tuple(a for a in func.attrs if a[0] != SHARED))
