"""Binding of a call's arguments to the parameters of a kernel, by position or name; omitted sizes are inferred, outputs made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from tir.analysis.write_before_read import writes_before_reads
from tir.arith.polynomial import polynomial
from tir.arrays import ArgumentError, result_conversion
from tir.ir import Block, Buffer, Const, Evaluate, Expr, Load, PrimFunc, Stmt, Store, Var, nest, seq
from tir.nearest import did_you_mean, no_such
from tir.traverse import children, fresh, loads, names, substatements, substitute

from .arguments import dimension_value

MAX_PLANS = 64  # orders of a kernel's arguments that are remembered, as names may come in any

Make = Callable[[tuple[int, ...], str, bool], Any]


class _Plan(NamedTuple):
    """The argument of each parameter: its position, its name, or None; then which arrays are given, made, and sizes inferred."""

    sources: tuple[int | str | None, ...]
    arrays: tuple[int, ...]
    made: tuple[int, ...]
    sizes: tuple[int, ...]


class LibraryOfOne:
    """A kernel that is a library of itself: `library["main"]`, or by the function's name."""

    func: PrimFunc
    _written: Set[str]  # the names of the buffers that it writes

    @cached_property
    def _signature(self) -> Signature:
        return Signature(self.func, self._written)

    def __getitem__(self, name: str) -> Self:
        if name not in ("main", self.func.name):
            raise KeyError(no_such("function of this library", name, [self.func.name]))
        return self


class Signature:
    """The parameters of a function as a call sees them. `written` are the names of the buffers that it writes.

    Written buffers that are not read before their first write, in program order, are `outputs`. A call may omit them: they are
    made, of zeros unless every element is certainly written. All other parameters are `inputs`. `last` is True if the outputs
    are the last parameters.
    """

    def __init__(self, func: PrimFunc, written: Set[str]):
        self.func = func
        self.outputs = tuple(b for b in func.buffers if b.name in written and _first_access(func.body, b.name) != "read")
        self._made = {b.name for b in self.outputs}
        self.inputs = tuple(p for p in func.params if p.name not in self._made)
        self.last = func.params == (*self.inputs, *self.outputs)
        self._names = [p.name for p in func.params]
        self._sizes = bool(func.sizes)
        self._plans: dict[tuple, _Plan] = {}

    @cached_property
    def constant(self) -> bool:
        """True where no parameter is a size, and all lengths are known."""
        return all(isinstance(p, Buffer) and p.has_const_shape for p in self.func.params)

    @cached_property
    def whole(self) -> frozenset[str]:
        """The names of outputs of which every element is certainly written; arrays made for others hold zeros."""
        return frozenset(b.name for b in self.outputs if _written_whole(self.func, b))

    def bound(
        self, args: tuple, named: Mapping[str, Any], view: Callable[[Any, Buffer], Any], make: Make, make_like: bool = True
    ) -> tuple[list[Any], Callable[[], Any]]:
        """The arguments of a call in the order of the parameters, and a function that gives the call's result.

        The result is None where all parameters were given, else the outputs: given as `out`, or made, like the inputs if
        `make_like`. `view` turns an argument into an array that the kernel takes; `make(shape, dtype, zeros)` makes one. Raises
        ArgumentError.
        """
        out = None
        if "out" in named and "out" not in self._names:
            out, named = named["out"], {name: a for name, a in named.items() if name != "out"}
        if out is not None:
            named = self._with_out(named, out if isinstance(out, (tuple, list)) else (out,))
        kinds = tuple(isinstance(a, (int, np.integer)) for a in args) if self._sizes else len(args)
        plan = self._plans.get((kinds, *named))
        if plan is None:
            plan = self._planned(args, named)
            if len(self._plans) < MAX_PLANS:
                self._plans[kinds, *named] = plan
        given = [None if s is None else args[s] if isinstance(s, int) else named[s] for s in plan.sources]
        back = result_conversion(given[n] for n in plan.arrays) if plan.made and make_like else None
        for n in plan.arrays:
            try:
                given[n] = view(given[n], self.func.params[n])  # type: ignore[arg-type]
            except TypeError as error:
                raise ArgumentError(f"{self.func.name}: {self._names[n]} {error}") from None
        if plan.sizes:
            self._solve(given, plan.sizes)
        for n in plan.made:
            b = self.func.params[n]
            assert isinstance(b, Buffer)
            given[n] = make(self._shape(b, given), b.dtype, b.name not in self.whole)
        if not plan.made and out is None:
            return given, lambda: None

        def results() -> Any:
            arrays: list[Any] = given
            made = {n: back.of(arrays[n], self.func.params[n].dtype) if back is not None else arrays[n] for n in plan.made}
            found = [made.get(n, named.get(b.name)) for n, b in enumerate(self.func.params) if b.name in self._made]
            return found[0] if len(found) == 1 else tuple(found)

        if back is not None and back.copies:
            return given, results
        shared = results()
        return given, lambda: shared

    def _takes(self) -> str:
        func, left = self.func, [b.name for b in self.outputs]
        text = f"{func.name} takes {len(func.params)} argument(s) ({', '.join(self._names)})"
        optional = [p.name for p in func.params if p.name in self._made or not isinstance(p, Buffer)]
        return f"{text}, of which {', '.join(optional)} may be left out" if optional or left else text

    def _with_out(self, named: Mapping[str, Any], outs: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name, with those given as `out` by their names."""
        if len(outs) != len(self.outputs):
            wanted = ", ".join(b.name for b in self.outputs) or "none"
            raise ArgumentError(f"{self.func.name}: out takes the outputs ({wanted}), got {len(outs)}")
        given = dict(named)
        for b, a in zip(self.outputs, outs, strict=True):
            if b.name in given:
                raise ArgumentError(f"{self.func.name}: {b.name} is given twice, by name and by out")
            given[b.name] = a
        return given

    def _planned(self, args: tuple, named: Mapping[str, Any]) -> _Plan:
        """The plan of a call's arguments; outputs and sizes may be left out."""
        for name in named:
            if name not in self._names:
                hint = did_you_mean(name, self._names)
                raise ArgumentError(f"{self._takes()}; {name!r} is not one of them{f'; {hint}' if hint else ''}")
        rest = [p for p in self.func.params if p.name not in named]
        ways: list[list[Buffer | Var]] = [rest]
        for sizes, outputs in ((False, True), (True, False), (False, False)):
            ways.append([p for p in rest if (sizes or isinstance(p, Buffer)) and (outputs or p.name not in self._made)])
        fitting = [way for way in ways if len(way) == len(args)]
        if not fitting:
            raise ArgumentError(f"{self._takes()}, got {len(args) + len(named)}")
        kinds = [isinstance(a, (int, np.integer)) for a in args]
        best = next((way for way in fitting if [not isinstance(p, Buffer) for p in way] == kinds), fitting[0])
        placed = {p.name: n for n, p in enumerate(best)}
        params = list(enumerate(self.func.params))
        missing = [n for n, p in params if p.name not in named and p.name not in placed]
        self._refuse_names_before_positions(placed, named)
        return _Plan(
            tuple(placed.get(p.name, p.name if p.name in named else None) for _, p in params),
            tuple(n for n, p in params if isinstance(p, Buffer) and n not in missing),
            tuple(n for n in missing if isinstance(self.func.params[n], Buffer)),
            tuple(n for n in missing if not isinstance(self.func.params[n], Buffer)),
        )

    def _refuse_names_before_positions(self, placed: Mapping[str, int], named: Mapping[str, Any]) -> None:
        """Refuse inputs by name before inputs by position, as Python does: `product(a, b, A=x)`."""
        arrays = [p.name for p in self.func.buffers if p.name in placed or (p.name in named and p.name not in self._made)]
        for name, following in pairwise(arrays):
            if name in named and following in placed:
                reason = f"{name} is given by name, so {following}, which comes after it, cannot be given by position"
                raise ArgumentError(f"{self.func.name}: {reason}")

    def _solve(self, given: list[Any], sizes: Sequence[int]) -> None:
        """Infer omitted sizes from the shapes of arrays."""
        unknown = {self._names[n]: n for n in sizes}
        known = self._known(given)
        while unknown and (found := self._found(given, known, unknown)) is not None:
            name, value = found
            given[unknown.pop(name)], known[name] = value, Const(value)
        if unknown:
            raise ArgumentError(f"{self.func.name}: {', '.join(unknown)} does not follow from the shapes of the arrays; pass it")

    def _known(self, given: Sequence[Any]) -> dict[str, Expr]:
        """The sizes that are given."""
        pairs = [(p.name, a) for p, a in zip(self.func.params, given, strict=True) if isinstance(p, Var)]
        return {name: Const(int(a)) for name, a in pairs if isinstance(a, (int, np.integer)) and not isinstance(a, bool)}

    def _found(self, given: Sequence[Any], known: Mapping[str, Expr], unknown: Mapping[str, int]) -> tuple[str, int] | None:
        """An unknown size and its value, by a dimension that is a linear form of it; None if no dimension is."""
        for n, b in enumerate(self.func.params):
            shape = getattr(given[n], "shape", ()) if isinstance(b, Buffer) else ()
            if isinstance(b, Buffer) and len(shape) == len(b.shape):
                for d, length in zip(b.shape, shape, strict=True):
                    found = _solved_size(d, int(length), known)
                    if found is not None and found[0] in unknown:
                        return found
        return None

    def _shape(self, b: Buffer, given: Sequence[Any]) -> tuple[int, ...]:
        sizes = self._known(given)
        shape = tuple(found for d in b.shape if (found := dimension_value(d, sizes)) is not None)
        if len(shape) < len(b.shape) or any(length < 0 for length in shape):
            wrong = ", ".join(f"{p.name} = {given[n]!r}" for n, p in enumerate(self.func.params) if isinstance(p, Var))
            raise ArgumentError(f"{self.func.name}: there is no array {b.name} for {wrong or 'its shape'}; pass {b.name}")
        return shape


def _solved_size(d: Expr, length: int, known: Mapping[str, Expr]) -> tuple[str, int] | None:
    """The one unknown size of a dimension and its value, where the dimension is a linear form of it."""
    form = polynomial(d if isinstance(d, Var) else substitute(d, known))
    terms = [m for m in form if m]
    if len(terms) != 1 or len(terms[0]) != 1 or not isinstance(terms[0][0], Var):
        return None
    factor, rest = form[terms[0]], length - form.get((), 0)
    return (terms[0][0].name, int(rest // factor)) if rest % factor == 0 else None


def _first_access(s: Stmt, name: str) -> str | None:
    """The first access of a statement to a buffer in program order: a possible "read", or a "write"; None without any."""
    if isinstance(s, Block) and s.init is not None and (found := _first_access(s.init, name)) is not None:
        return found
    if any(n.buffer.name == name for e in children(s) if isinstance(e, Expr) for n in loads(e)):
        return "read"
    if isinstance(s, Store):
        return "write" if s.buffer.name == name else None
    return next((found for part in substatements(s) if (found := _first_access(part, name)) is not None), None)


def _written_whole(func: PrimFunc, b: Buffer) -> bool:
    """True where every element of a buffer is certainly written, so that all of it may be read after the function."""
    if not b.has_const_shape:
        return False
    taken = names(func)
    loops = [Var(fresh(taken, f"i{n}")) for n in range(len(b.shape))]
    reading = nest(list(zip(loops, b.shape, strict=True)), Evaluate(Load(b, tuple(loops))))
    return writes_before_reads(seq(func.body, reading), b, {})
