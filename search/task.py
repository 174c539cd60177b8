"""A tuning task: a function, a target, the number of operations, and the key of the function in records."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from codegen.target import Target
from tir import dtypes
from tir.ir import ARITHMETIC, Binary, Block, Call, Const, Expr, For, Load, Node, PrimFunc, Store, Unary, const_shape, need_func
from tir.script import parse
from tir.traverse import children, loads, walk

from .keys import key
from .measure.reference import NamedWorkload


@dataclass(frozen=True, slots=True)
class Task:
    """A tuning task: the text of its `target`, the `threads` of a kernel, its named `workload`."""

    func: PrimFunc
    target: str
    threads: int
    name: str
    key: str
    flop: int
    workload: NamedWorkload | None = None

    @property
    def resolved(self) -> Target:
        """The target itself, whose `machine` policies and models read."""
        return Target(self.target)

    @classmethod
    def of(
        cls, func: PrimFunc, target: str | Target = "llvm", *, name: str | None = None, workload: NamedWorkload | None = None
    ) -> Task:
        """The task of tuning `func`. ValueError for a bad target, a symbolic size, or a `workload` of other arrays."""
        func = need_func(func, "tuning")
        if workload is not None:
            _check_workload(func, workload)
        resolved = Target(target)
        operations = flop(func) if workload is None else workload.instance().flop
        return cls(func, target_text(resolved), resolved.num_cores, name or func.name, key(func), operations, workload)

    def as_json(self) -> dict[str, Any]:
        """The task as JSON data for another machine: script, target text, and the workload's name and arguments."""
        workload = None if self.workload is None else asdict(self.workload)
        return {"script": self.func.script(), "target": self.target, "name": self.name, "workload": workload}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Task:
        """The task of its `as_json` data. ScriptError or ValueError for any other data."""
        workload = None if data["workload"] is None else NamedWorkload.from_json(data["workload"])
        return cls.of(need_func(parse(data["script"]), "a task"), data["target"], name=data["name"], workload=workload)

    def default_trace(self, target: str | None = None) -> Any:
        """The trace, JSON data, of the default schedule of the function, for `target` (default: the task's)."""
        from .policy.default_schedule import default_schedule

        return default_schedule(self.func, target or self.target).trace.as_json()


def _check_workload(func: PrimFunc, workload: NamedWorkload) -> None:
    """ValueError unless the function takes the arrays of the workload, which it is to compute."""
    if not isinstance(workload, NamedWorkload):
        raise ValueError(f"workload takes search.NamedWorkload, got {workload!r}")
    mine, its = ([(str(b.dtype), const_shape(b)) for b in f.buffers] for f in (func, workload.instance().func))
    if mine != its:
        raise ValueError(f"{func.name} takes {_arrays(mine)}, but the workload {workload.name} takes {_arrays(its)}")


def _arrays(described: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype} {shape}" for dtype, shape in described)


def target_text(target: Target) -> str:
    """A string that makes exactly this target again."""
    plain = type(target)(str(target))
    differing = [f.name for f in fields(target) if getattr(target, f.name) != getattr(plain, f.name)]
    return " ".join([str(target), *(f"-{name.replace('_', '-')}={getattr(target, name)}" for name in differing)])


def flop(func: PrimFunc) -> int:
    """The number of arithmetic operations on data: `+ - * / // % min max`, negation and intrinsics count one each.

    Index arithmetic, comparisons, selections and conversions count nothing, nor does the initialisation of a reduction. 2MNK for
    a matrix product. ValueError if an extent is symbolic.
    """
    return _flop(func.body, inside_block=False)


def _flop(node: Node, inside_block: bool) -> int:
    match node:
        case Block():
            # The domain of an outermost block runs once, for any loops and predicate around it.
            repeats = 1 if inside_block else math.prod(_extent(it.extent) for it in node.iters)
            return repeats * _flop(node.body, inside_block=True)
        case For() if inside_block or not any(isinstance(n, Block) for n in walk(node.body)):
            return _extent(node.extent) * _flop(node.body, inside_block)
        case Store():
            return _operations(node.value)
        case Expr():
            return _operations(node)
        case _:
            return sum(_flop(child, inside_block) for child in children(node))


def _extent(extent: Expr) -> int:
    if not isinstance(extent, Const):
        raise ValueError(f"the extent `{extent}` is symbolic, so the operations cannot be counted")
    return int(extent.value)


def _operations(value: Node) -> int:
    match value:
        case Load() | Const():
            return 0
        case Binary(op) if op in ARITHMETIC and _is_data(value):
            own = 1
        case Unary("neg") | Call():
            own = int(_is_data(value))
        case _:
            own = 0
    return own + sum(_operations(child) for child in children(value))


def _is_data(value: Expr) -> bool:
    """True if an expression is computed from elements of buffers, or is a float, and so is no index."""
    return dtypes.is_float(value.dtype) or bool(loads(value))
