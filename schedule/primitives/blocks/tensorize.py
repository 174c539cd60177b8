"""tensorize: a nest becomes an intrinsic that computes the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

from tir.arith.bounds import ranges_of
from tir.arith.intervals import Ranges
from tir.arith.polynomial import Polynomial, add, as_constant, polynomial, split_terms, to_expr
from tir.arith.simplify import simplify
from tir.ir.blocks import Block, Iter
from tir.ir.buffers import Buffer, Load, Range
from tir.ir.expressions import TRUE, Binary, Call, Cast, Const, Expr, Select, Unary, Var, as_int, cast, conjunction
from tir.ir.functions import PrimFunc
from tir.ir.nodes import Node
from tir.ir.statements import For, If, Let, Seq, Stmt, Store, seq
from tir.nearest import did_you_mean
from tir.traverse import (
    blocks,
    children,
    loops,
    map_children,
    map_statements,
    replace_buffers,
    rewrite,
    stored_names,
    substitute,
    walk,
    walk_stmts,
)

from ...error import ScheduleError
from ...intrinsics.tensor_intrin import TensorIntrin, registered
from ...legality.iter_map import Unproved
from ...primitive import LoopOrBlockName, block_at, named_at, primitive, replace_path
from ...rewriting.clones import clone
from ...rewriting.edits import Names, with_accesses
from .blockize import blockize


@primitive
def tensorize(
    func: PrimFunc, block_or_loop: LoopOrBlockName, tensor_intrin: str, preserve_unit_iters: bool = True
) -> tuple[PrimFunc, None]:
    """Replace the computation of a block, or of the nest at a loop, by a registered intrinsic. A loop is blockized first.

    The intrinsic (`TensorIntrin.register(name, desc, impl)`) takes buffers. Each is matched to a window of a buffer of the
    function, whose dimensions are some of the buffer's, in order. Its loops and indices have 64 bits if those of the function
    have. The init that `blockize` moves outside stays. `preserve_unit_iters` is that of `blockize`. Source: TensorIR, ASPLOS
    2023, section 4.1.

    Rewrite   with T.block("C_o"): for i_1: for j_1: with T.block("C"): S        =>   with T.block("C_o"): impl
    Legal     if the body equals the description, up to names, loops of extent 1, and order of operands (+, *, min, max, and, or),
              and has the annotations of its blocks.
              No block in it has a condition or allocates a buffer. The description uses all its parameters, and no buffer is
              matched to both an output and another parameter. The implementation computes the same as the description, tried
              on random small integers. For a loop, `blockize` is legal.
    Example   matmul_16: s.tensorize("j", "fma_16_f32")
    """
    known = registered()
    if tensor_intrin not in known:
        hint = did_you_mean(tensor_intrin, known) or "TensorIntrin.register makes one known"
        raise ScheduleError(f"no tensor intrinsic is called `{tensor_intrin}`", hint=hint)
    intrinsic = known[tensor_intrin]
    named, _ = named_at(func, block_or_loop)
    if type(named) is For:
        func, name = blockize(func, block_or_loop, preserve_unit_iters)
    else:
        name = block_or_loop
    target, above = block_at(func, name)
    difference = intrinsic.difference()
    if difference is not None:
        raise ScheduleError(
            f"the implementation of `{tensor_intrin}` is not what its description says: {difference}",
            hint=f"register {tensor_intrin!r} again with desc and impl that agree",
        )

    if any(v.dtype == "int64" for v in (*(it.var for it in target.iters), *(x.var for x in loops(target.body)))):
        wide = (_with_wide_indices(f, tensor_intrin) for f in (intrinsic.desc, intrinsic.impl))
        intrinsic = TensorIntrin(tensor_intrin, *wide)
    windows = _matched_views(intrinsic, tensor_intrin, target, named)
    *_, inner = blocks(target)
    for key, value in (a for b in blocks(intrinsic.desc.body) for a in b.annotations):
        if (key, value) not in inner.annotations:
            hint = f"annotate({inner.name!r}, {key!r}, {value}) says that it holds"
            raise ScheduleError(f"`{tensor_intrin}` needs a block with {key}={value}", (named, "without it"), hint=hint)

    names = Names.of(func)
    place = {p.name: windows[d.name] for p, d in zip(intrinsic.impl.buffers, intrinsic.desc.buffers, strict=True)}
    body = _implementation_on(intrinsic, place, names)
    own = {b.name: b.with_(name=names.buffer(b.name)) for b in intrinsic.impl.allocs}
    new = target.with_(body=replace_buffers(body, own), allocs=(*target.allocs, *own.values()))
    return replace_path(func, above, new), None


def _with_wide_indices(func: PrimFunc, name: str) -> PrimFunc:
    """A function of an intrinsic with loops, axes and indices of 64 bits."""
    counting = {x.name for x in loops(func.body)} | {it.var.name for b in blocks(func.body) for it in b.iters}

    def wide(e: Expr) -> Expr:
        return simplify(cast(e, "int64"))

    def visit(n: Node) -> Node | None:
        match n:
            case Var(v) if v in counting:
                return Var(v, "int64")
            case For() | Iter():
                return n.with_(extent=wide(n.extent))
            case Range():
                return Range(wide(n.min), wide(n.extent))
            case Binary(op, a, b) if {a.dtype, b.dtype} == {"int32", "int64"}:
                return Binary(op, wide(a), wide(b))
            case Load() | Store():
                n = n.with_(indices=tuple(map(wide, n.indices)))
        if (type(n) is Store and n.value.dtype != n.buffer.dtype) or (type(n) is Let and n.value.dtype != n.var.dtype):
            reason = f"`{name}` computes with its loop variables, which have 64 bits here"
            raise ScheduleError(reason, hint="convert them where they are no indices: T.Cast('int32', i)")
        return n

    return rewrite(func, visit)


def _matched_views(intrinsic: TensorIntrin, name: str, target: Block, named: For | Block) -> Mapping[str, BufferView]:
    """The places of an intrinsic's parameters in a block; refuses a block that does not match the description."""
    what = f"`{named.name}` is not what `{name}` computes"
    try:
        description = _without_blocks(intrinsic.desc.body)
    except Unproved as reason:
        raise ScheduleError(f"the description of `{name}` cannot be compared: {reason}", hint=reason.hint) from None
    try:
        actual = _without_blocks(target.body)
    except Unproved as reason:
        raise ScheduleError(f"{what}: {reason}", (named, "compared with it"), hint=reason.hint) from None
    matcher = _Matcher(ranges_of([x for x in walk_stmts(actual) if isinstance(x, For)]))
    found = next(matcher.stmts(description, actual, _Match()), None)
    if found is None:
        hint = _what_to_try(description, actual)
        raise ScheduleError(f"{what}: {matcher.reason}", (named, "compared with it"), hint=hint)
    written = stored_names(intrinsic.desc.body)
    for p in intrinsic.desc.buffers:
        if p.name not in found.windows:
            raise ScheduleError(
                f"`{p.name}` of `{name}` is not used by its description, so its place is unknown",
                hint=f"register {name!r} again without the parameter",
            )
    for mine, window in found.windows.items():
        for other, same in found.windows.items():
            if mine in written and other != mine and same.buffer.name == window.buffer.name:
                raise ScheduleError(
                    f"`{window.buffer.name}` would be both `{mine}` of `{name}`, which it writes, and `{other}`",
                    (named, "uses one buffer twice"),
                    hint="cache_read or cache_write makes a copy for one of the two",
                )
    return found.windows


# --- comparing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferView:
    """The place of a parameter of an intrinsic: its dimension n is dimension `dims[n]` of `buffer`, from `base` on. None marks a
    dimension of extent 1 that the buffer lacks."""

    buffer: Buffer
    dims: tuple[int | None, ...]
    base: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Match:
    """The equalities found so far: actual loops by those of the description, and windows by its buffers."""

    loops: tuple[tuple[str, Expr], ...] = ()
    windows: Mapping[str, BufferView] = field(default_factory=dict)


def _what_to_try(description: Stmt, actual: Stmt) -> str:
    """The hint for a block that does not match a description."""
    wanted, found = ([str(loop.extent) for loop in loops(x)] for x in (description, actual))
    if wanted and wanted != found:
        return f"split and reorder first, to loops over {', '.join(wanted)} in this order"
    return "TensorIntrin.register makes an intrinsic known that computes this"


def _without_blocks(stmt: Stmt) -> Stmt:
    """A statement without blocks and loops of extent 1; raises Unproved if a block has a condition or allocates a buffer."""

    def visit(s):
        match s:
            case For(var, Const(1), body):
                return visit(substitute(body, {var.name: Const(0, var.dtype)}))
            case Block():
                if s.predicate != TRUE:
                    hint = "choose factors that divide the extents, peel the loop, or pad_einsum first"
                    raise Unproved(f"`{s.name}` runs only where `{s.predicate}`", hint)
                if s.allocs:
                    raise Unproved(f"`{s.name}` allocates `{s.allocs[0].name}`", f"lift_alloc({s.allocs[0].name!r}) first")
                bindings = {it.var.name: it.binding for it in s.iters}
                body = visit(substitute(s.body, bindings))
                if s.init is None:
                    return body
                init = visit(substitute(s.init, bindings))
                return seq(If(conjunction(*s.first_step), init), body)
            case Seq(stmts):
                return seq(*(visit(x) for x in stmts))
            case _:
                return map_statements(s, visit)

    return visit(stmt)


class _Matcher:
    """Matcher of a description with a statement, whose loops have the ranges `inner`; `reason` is the deepest difference."""

    def __init__(self, inner: Ranges):
        self.inner = inner
        self.reason = "it is something else"
        self.depth = -1
        self.level = 0

    def fail(self, reason: str) -> None:
        if self.level > self.depth:
            self.depth, self.reason = self.level, reason

    def stmts(self, d: Stmt, a: Stmt, m: _Match) -> Iterator[_Match]:
        self.level += 1
        match d, a:
            case For(), For():
                if simplify(d.extent) == simplify(a.extent):
                    yield from self.stmts(d.body, a.body, replace(m, loops=(*m.loops, (d.name, a.var))))
                else:
                    self.fail(f"`{a.name}` runs over {a.extent}, not {d.extent}")
            case Seq(ds), Seq(xs) if len(ds) == len(xs):
                yield from self.all(self.stmts, ds, xs, m)
            case Store(), Store():
                for placed in self.access(d, a, m):
                    yield from self.exprs(d.value, a.value, placed)
            case If(c, then, None), If(e, other, None):
                for same in self.exprs(c, e, m):
                    yield from self.stmts(then, other, same)
            case _:
                self.fail(f"it has {_statement_text(a)}, the description {_statement_text(d)}")
        self.level -= 1

    def all(self, compare, ds, xs, m: _Match) -> Iterator[_Match]:
        if not ds:
            yield m
            return
        for first in compare(ds[0], xs[0], m):
            yield from self.all(compare, ds[1:], xs[1:], first)

    def exprs(self, d: Expr, a: Expr, m: _Match) -> Iterator[_Match]:
        self.level += 1
        match d, a:
            case Load(), Load():
                yield from self.access(d, a, m)
            case Binary(op, x, y), Binary(other, u, v) if op == other and d.dtype == a.dtype and not _is_index(d):
                yield from self.all(self.exprs, (x, y), (u, v), m)
                if op in ("+", "*", "min", "max", "and", "or"):
                    yield from self.all(self.exprs, (x, y), (v, u), m)
            case ((Cast() | Unary() | Select() | Call()), _) if _without_operands(d) == _without_operands(a):
                yield from self.all(self.exprs, children(d), children(a), m)
            case _ if _is_index(d) and _is_index(a):
                if simplify(substitute(d, dict(m.loops))) == simplify(a):
                    yield m
                else:
                    self.fail(f"it computes with `{a}`, the description with `{d}`")
            case _ if d == a:
                yield m
            case _:
                self.fail(f"it computes `{a}`, the description `{d}`")
        self.level -= 1

    def access(self, d: Load | Store, a: Load | Store, m: _Match) -> Iterator[_Match]:
        """The matches of the description's buffer with windows of the actual one."""
        if d.buffer.dtype != a.buffer.dtype:
            self.fail(
                f"`{a.buffer.name}` is of {a.buffer.dtype}, but `{d.buffer.name}` of the description is of {d.buffer.dtype}"
            )
            return
        loops = dict(m.loops)
        wanted = [polynomial(simplify(substitute(i, loops))) for i in d.indices]
        parts = [split_terms(polynomial(simplify(i, self.inner)), {*self.inner}) for i in a.indices]
        known = m.windows.get(d.buffer.name)
        if known is not None and known.buffer.name != a.buffer.name:
            self.fail(f"it has both `{known.buffer.name}` and `{a.buffer.name}` for `{d.buffer.name}` of the description")
            return
        for dims in [known.dims] if known is not None else list(_dimension_choices(d.buffer, len(parts))):
            base = _view_base(wanted, parts, dims, [i.dtype for i in a.indices])
            if base is not None and (known is None or base == known.base):
                yield replace(m, windows={**m.windows, d.buffer.name: BufferView(a.buffer, dims, base)})
                continue
            indices = ", ".join(map(str, a.indices))
            places = ", ".join(map(str, d.indices))
            self.fail(f"`{a.buffer.name}[{indices}]` is not one window like `{d.buffer.name}[{places}]` of the description")


def _dimension_choices(b: Buffer, rank: int) -> Iterator[tuple[int | None, ...]]:
    """The possible matches of the dimensions of `b` to `rank` dimensions, in order; None for an unmatched one of extent 1."""
    count = len(b.shape)
    optional = [n for n, d in enumerate(b.shape) if as_int(d) == 1]
    for left_out in range(len(optional) + 1):
        for missing in combinations(optional, left_out):
            kept = [n for n in range(count) if n not in missing]
            if len(kept) > rank:
                continue
            for chosen in reversed(list(combinations(range(rank), len(kept)))):  # the last dimensions first
                places = dict(zip(kept, chosen, strict=True))
                yield tuple(places.get(n) for n in range(count))


def _view_base(
    wanted: list[Polynomial], parts: list[tuple[Polynomial, Polynomial]], dims: tuple[int | None, ...], dtypes: Sequence[str]
) -> tuple[Expr, ...] | None:
    """The start of the window, if loops inside index its dimensions as `wanted`, and no other dimensions; else None."""
    base: list[Expr] = []
    for n, (here, there) in enumerate(parts):
        place = next((k for k, d in enumerate(dims) if d == n), None)
        index = wanted[place] if place is not None else {}
        rest = add(here, index, -1)
        offset = as_constant(rest)
        if offset is None:
            return None
        base.append(simplify(to_expr(add(there, {(): offset} if offset else {}), dtypes[n])))
    if any(as_constant(w) != 0 for w, d in zip(wanted, dims, strict=True) if d is None):
        return None
    return tuple(base)


def _without_operands(e: Expr) -> Node:
    """An operation with nothing in place of its operands."""
    return map_children(e, lambda operand: TRUE)


def _is_index(e: Expr) -> bool:
    return e.dtype in ("int32", "int64") and not any(type(n) is Load for n in walk(e)) and not isinstance(e, Const)


def _statement_text(s: Stmt) -> str:
    match s:
        case For():
            return f"the loop `{s.name}` over {s.extent}"
        case Store(buffer):
            return f"a store to `{buffer.name}`"
        case Seq(stmts):
            return f"{len(stmts)} statements"
        case _:
            return f"a statement of kind {type(s).__name__}"


def _implementation_on(intrinsic: TensorIntrin, windows: Mapping[str, BufferView], names: Names) -> Stmt:
    """The implementation on windows of the function's buffers, under fresh names."""

    def place(w: BufferView, given: tuple[Expr, ...]) -> tuple[Expr, ...]:
        result = list(w.base)
        for n, d in enumerate(w.dims):
            if d is not None:
                result[d] = simplify(result[d] + given[n])
        return tuple(result)

    # Fresh names first: loops of the implementation must not capture variables of the windows.
    return with_accesses(clone(intrinsic.impl.body, names), {p: (w.buffer, partial(place, w)) for p, w in windows.items()})
