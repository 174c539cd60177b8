"""Generation of Python text from a function of the IR."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import assert_never

from .. import dtypes
from ..arith.simplify import wraps
from ..empty import inits_of_empty_reductions
from ..intrinsics import SHIFTS
from ..ir.blocks import Axis, Block
from ..ir.buffers import Buffer, Load
from ..ir.expressions import TRUE, Binary, Call, Cast, Const, Expr, Select, Unary, Var
from ..ir.foreign import Opaque
from ..ir.functions import PrimFunc
from ..ir.statements import IN_ANY_ORDER, Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store
from ..script.printer import PRECEDENCE, last_index, stmt_text
from ..traverse import axis_loops, blocks, fresh, loads, pure_reduction_loops, variables, walk
from .errors import DivisionByZero, InterpreterError, InvalidShift, OutOfBounds, Uninitialised
from .python_functions import plain_names

_MAX_NESTING = 15  # CPython allows 20 nested loops; deeper ones go into a function of their own


@dataclass(frozen=True, slots=True)
class Site:
    """A place where the program may be wrong: the error to raise, and the variables (name, Python name) visible there."""

    error: type[InterpreterError]
    message: str
    visible: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Binding:
    """The Python name of a variable of the IR, and its exclusive bound if it counts from 0."""

    python: str
    extent: int | None = None


@dataclass(slots=True)
class _Body:
    """The lines of one generated function; `depth` is the indentation of the next, `loops` the number of loops around it."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    loops: int = 0


class Generator:
    """Turns a function of the IR into Python text."""

    def __init__(self, func: PrimFunc, *, fast: bool, traps: bool):
        self.func, self.fast, self.traps = func, fast, traps
        self.sites: list[Site] = []
        self.functions: list[str] = []
        self._texts: list[str] = []
        self._taken = set(plain_names()) | set(dir(builtins)) | set(keyword.kwlist) | {"rng", "started"}
        self._kinds: dict[str, str] = {}  # of the Python names bound so far: "int", "buffer", or the dtype of a let
        self._scope: dict[str, _Binding] = {}
        self._buffers: dict[str, tuple[str, Buffer]] = {}
        self._body = _Body()
        self._statement: Stmt | None = None
        self._said: tuple[Stmt | None, str] = None, ""  # a statement, and its first line
        # For each reduction block, the spatial points whose init has run: a set in the generated program.
        self._tracked = traps and not fast and any(b.init is not None and b.is_reduction for b in blocks(func))
        entry = fresh(self._taken, func.name if func.name.isidentifier() else "main")
        parameters = []
        for p in func.params:
            if isinstance(p, Buffer):
                parameters.append(self._declare(p))
            else:
                python = self._name(p.name, "int")
                self._scope[p.name] = _Binding(python)
                parameters.append(python)
        if self._tracked:
            self._line("started = set()")
        for b in func.allocs:
            self._allocate(b)
        self._stmt(func.body)
        self._finish(entry, parameters)
        self.text = "\n\n\n".join(self._texts)

    # names

    def _name(self, wanted: str, kind: str) -> str:
        """A Python name for a variable: `wanted` itself, unless that is taken, visible here, or was of another kind before."""
        visible = {b.python for b in self._scope.values()} | {p for p, _ in self._buffers.values()}
        if self._kinds.get(wanted) == kind and wanted not in visible:
            return wanted
        name = fresh(self._taken, wanted)
        self._kinds[name] = kind
        return name

    def _declare(self, b: Buffer) -> str:
        python = self._name(b.name, f"buffer {b.dtype} {len(b.shape)}")
        self._buffers[b.name] = (python, b)
        return python

    @contextmanager
    def _scoped(self) -> Iterator[None]:
        scope, buffers = self._scope.copy(), self._buffers.copy()
        yield
        self._scope, self._buffers = scope, buffers

    def _site(self, error: type[InterpreterError], message: str) -> int:
        if self._statement is not self._said[0]:
            self._said = (
                self._statement,
                stmt_text(self._statement).strip().splitlines()[0] if self._statement is not None else "",
            )
        where = f", in `{self._said[1]}`" if self._said[1] else ""
        visible = tuple((name, b.python) for name, b in self._scope.items())
        self.sites.append(Site(error, _braces(message) + _braces(where, literal=True), visible))
        return len(self.sites) - 1

    # lines

    def _line(self, text: str) -> None:
        self._body.lines.append("    " * self._body.depth + text)

    def _finish(self, name: str, parameters: list[str]) -> None:
        head = f"def {name}({', '.join([*parameters, 'rng'])}):"
        self._texts.append("\n".join([head, *(self._body.lines or ["    pass"])]) + "\n")
        self.functions.append(name)

    def _allocate(self, b: Buffer) -> None:
        shape = ", ".join(self._expr(d) for d in b.shape)
        python = self._declare(b)
        self._line(f"{python} = allocate_{b.dtype}(({shape}{',' if len(b.shape) == 1 else ''}))")

    # statements

    def _stmt(self, s: Stmt) -> None:
        self._statement = None if isinstance(s, (For, Block)) else s
        match s:
            case Seq(stmts):
                for x in stmts:
                    self._stmt(x)
            case For():
                self._init_of_nothing(s)
                if self._body.loops >= _MAX_NESTING:
                    self._outlined(s)
                else:
                    self._for(s)
            case Block():
                with self._scoped():
                    self._block(s)
            case Store(buffer, indices, value):
                place, _ = self._element(buffer, indices)
                text = self._typed(value)
                self._line(f"{place} = {_stored(text, buffer.dtype)}")
            case If(condition, then, orelse):
                self._line(f"if {self._expr(condition)}:")
                self._indented(then)
                if orelse is not None:
                    self._line("else:")
                    self._indented(orelse)
            case Let(var, value, body):
                text = self._expr(value)
                with self._scoped():
                    python = self._name(var.name, "int" if dtypes.is_int(var.dtype) else var.dtype)
                    self._line(f"{python} = {text}")
                    self._scope[var.name] = _Binding(python)
                    self._stmt(body)
            case Allocate(buffer, body):
                with self._scoped():
                    self._allocate(buffer)
                    self._stmt(body)
            case Evaluate(value):
                self._line(self._expr(value))
            case Opaque(call):
                raise InterpreterError(f"{self.func.name}: `T.{call.op}` is a foreign call, and cannot be run")
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def _indented(self, s: Stmt) -> None:
        with self._scoped():
            self._body.depth += 1
            self._stmt(s)
            self._body.depth -= 1

    def _for(self, loop: For) -> None:
        extent = self._expr(loop.extent)
        shuffles = self.traps and loop.kind in IN_ANY_ORDER and not _accumulates(loop)
        with self._scoped():
            python = self._name(loop.name, "int")
            self._scope[loop.name] = _Binding(python, loop.extent.value if isinstance(loop.extent, Const) else None)
            note = "" if loop.kind is Kind.SERIAL else f"  # {loop.kind.value}"
            self._line(f"for {python} in {f'shuffled({extent}, rng)' if shuffles else f'range({extent})'}:{note}")
            self._body.loops += 1
            self._indented(loop.body)
            self._body.loops -= 1

    def _init_of_nothing(self, loop: For) -> None:
        """Generate the inits of reductions over a loop, for calls whose sizes leave it no iterations."""
        if isinstance(loop.extent, Const) or not variables(loop.extent) <= {p.name for p in self.func.sizes}:
            return
        reduces = any(b.init and loop.name in pure_reduction_loops(b) for b in blocks(loop))
        if reduces and (inits := inits_of_empty_reductions(loop)) is not None:
            self._stmt(If(loop.extent < 1, inits))

    def _outlined(self, loop: For) -> None:
        """The loop in a function of its own, called here."""
        outer, self._body = self._body, _Body()
        name = fresh(self._taken, f"{self.func.name}_{loop.name}")
        used = {n.name for n in walk(loop) if isinstance(n, (Var, Buffer))}
        parameters = [b.python for n, b in self._scope.items() if n in used]
        parameters += [p for n, (p, _) in self._buffers.items() if n in used]
        parameters += ["started"] if self._tracked else []
        self._for(loop)
        self._finish(name, parameters)
        self._body = outer
        self._line(f"{name}({', '.join([*parameters, 'rng'])})")

    def _block(self, b: Block) -> None:
        self._line(f"# block {b.name}")
        depth = self._body.depth
        if b.predicate != TRUE:
            self._line(f"if {self._expr(b.predicate)}:")
            self._body.depth += 1
        bound = []
        for it in b.iters:  # every binding is over the loop variables, none sees another iteration variable
            extent, binding = self._expr(it.extent), self._expr(it.binding)
            if self.traps and not self._inside(it.binding, it.extent):
                domain = f"its domain, 0 .. {last_index(it.extent)}"
                message = f"`{it.var.name}` of block `{b.name}` is bound to {{value}}, outside {domain}"
                binding = f"within({binding}, {extent}, {self._site(OutOfBounds, message)})"
            bound.append((it, binding))
        for it, binding in bound:
            python = self._name(it.var.name, "int")
            self._scope[it.var.name] = _Binding(python, it.extent.value if isinstance(it.extent, Const) else None)
            self._line(f"{python} = {binding}")
        for buffer in b.allocs:
            self._allocate(buffer)
        if b.init is not None:
            self._init(b)
        self._stmt(b.body)
        self._body.depth = depth

    def _init(self, b: Block) -> None:
        first = [f"{self._scope[it.var.name].python} == 0" for it in b.reduction]
        if not first:
            self._stmt(b.init)  # type: ignore[arg-type]
            return
        self._line(f"if {' and '.join(first)}:")
        spatial = [self._scope[it.var.name].python for it in b.iters if it.axis is not Axis.REDUCE]
        point = f"({', '.join([repr(b.name), *spatial])})" if spatial else repr(b.name)
        if self._tracked:
            self._line(f"    started.add({point})")
        self._indented(b.init)  # type: ignore[arg-type]
        if self._tracked:
            message = f"block `{b.name}` updates its output before its init has run for this spatial point"
            self._statement = None
            self._line(f"elif {point} not in started:")
            self._line(f"    raise Trap({self._site(Uninitialised, message)}, 0)")

    # expressions

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, Buffer]:
        if buffer.name not in self._buffers:
            raise InterpreterError(
                f"{self.func.name}: the buffer `{buffer.name}` is used, but is neither a parameter nor allocated around its use"
            )
        python, declared = self._buffers[buffer.name]
        if len(indices) != len(declared.shape):
            raise InterpreterError(
                f"{self.func.name}: `{buffer.name}` has {len(declared.shape)} dimension(s), but is indexed with {len(indices)}: "
                f"`{Load(buffer, indices)}`"
            )
        texts = []
        for dim, (index, extent) in enumerate(zip(indices, declared.shape, strict=True)):
            text = self._expr(index)
            if self.traps and not self._inside(index, extent):
                message = f"index {{value}} of dimension {dim} of `{buffer.name}` is outside 0 .. {last_index(extent)}"
                text = f"at({text}, {self._expr(extent)}, {self._site(OutOfBounds, message)})"
            texts.append(text)
        return f"{python}[{', '.join(texts) or '()'}]", declared

    def _inside(self, index: Expr, extent: Expr) -> bool:
        """True where the index needs no check: a variable that counts from 0 to within `extent`, or a constant inside."""
        if not isinstance(extent, Const):
            return False
        match index:
            case Const(value):
                return 0 <= value < extent.value
            case Var(name) if name in self._scope:
                bound = self._scope[name].extent
                return bound is not None and bound <= extent.value
            case _:
                return False

    def _typed(self, value: Expr) -> str:
        """A value to be stored; exact index arithmetic is wrapped into the range of its dtype."""
        text = self._expr(value)
        exact = dtypes.is_int(value.dtype) and not isinstance(value, Const) and not wraps(value)
        return f"{value.dtype}({text})" if exact else text

    def _expr(self, e: Expr, outer: int = 0) -> str:
        match e:
            case Const():
                return _constant(e)
            case Var(name):
                if name not in self._scope:
                    raise InterpreterError(f"{self.func.name}: the variable `{name}` is used where nothing binds it")
                return self._scope[name].python
            case Load(buffer, indices):
                text, declared = self._element(buffer, indices)
                return _loaded(text, declared.dtype)
            case Cast(dtype, value):
                return self._cast(dtype, value)
            case Select(c, t, f, lazy):
                if lazy:
                    text = f"({self._expr(t, 1)} if {self._expr(c, 1)} else {self._expr(f, 1)})"
                else:
                    text = f"select({self._expr(c)}, {self._expr(t)}, {self._expr(f)})"
                return _wrapped_choice(text, e.dtype, t, f)
            case Call(op, (a, by)) if op in SHIFTS and not isinstance(by, Const):
                bits = dtypes.bits(e.dtype)
                site = self._site(InvalidShift, f"`{e}` shifts by {{value}}, and {e.dtype} has {bits} bits")
                return f"{e.dtype}({op}({self._expr(a)}, at({self._expr(by)}, {bits}, {site})))"
            case Call(op, args):
                return f"{e.dtype}({op}({', '.join(self._expr(a) for a in args)}))"
            case Unary("not", a):
                text = f"not {self._expr(a, PRECEDENCE['not'])}"
                return f"({text})" if outer > PRECEDENCE["not"] else text
            case Unary("neg", a):
                text = f"-{self._expr(a, PRECEDENCE['neg'])}"
                if dtypes.is_int(e.dtype) and wraps(e):
                    return f"{e.dtype}({text})"
                return f"({text})" if outer > PRECEDENCE["neg"] else text
            case Binary(op, a, b):
                return self._binary(e, op, a, b, outer)
            case _:
                raise InterpreterError(f"{self.func.name}: `{e}` ({type(e).__name__}) has no meaning in a function")

    def _binary(self, e: Binary, op: str, a: Expr, b: Expr, outer: int) -> str:
        if op in ("min", "max"):
            return _wrapped_choice(f"{op}({self._expr(a)}, {self._expr(b)})", a.dtype, a, b)
        if op in ("and", "or") and loads(b):
            return f"{'both' if op == 'and' else 'either'}({self._expr(a)}, {self._expr(b)})"
        p = PRECEDENCE[op]
        dtype = a.dtype
        if dtypes.is_float(dtype) and op in ("//", "%"):
            text = f"{'quotient' if op == '//' else 'rest'}_{dtypes.computed(dtype)}({self._expr(a)}, {self._expr(b)})"
            return _rounded(text, dtype)
        checked = op in ("//", "%") and not (isinstance(b, Const) and b.value != 0)
        if checked:
            site = self._site(DivisionByZero, f"`{e}` divides {{value}} by zero")
            text = f"{'floordiv' if op == '//' else 'floormod'}({self._expr(a)}, {self._expr(b)}, {site})"
            p = 9
        else:
            text = f"{self._expr(a, p + 1 if p == 4 else p)} {op} {self._expr(b, p + 1)}"
        if p > 4 and (dtypes.is_half(dtype) or (dtypes.is_int(dtype) and wraps(e))):
            return f"{dtype}({text})"
        return f"({text})" if p < outer else text

    def _cast(self, dtype: str, value: Expr) -> str:
        if dtype == "bool":
            return f"({self._expr(value, 5)} != 0)"
        text, origin = self._expr(value), value.dtype
        if dtypes.is_float(dtype):
            if dtypes.is_half(origin) and dtype == "float32":
                return text
            return f"{dtype}({text})"
        if dtypes.is_float(origin):
            return f"saturated_{dtype}({text})"
        if origin == "bool":
            return f"int({text})" if dtype != "uint64" else f"uint64({text})"
        return f"{dtype}({text})"


def _accumulates(loop: For) -> bool:
    """True for a loop over threads that reduce together: its first iteration initialises for all."""
    return loop.kind is Kind.THREAD and any(b.init and loop.name in axis_loops(b, Axis.REDUCE) for b in blocks(loop))


def _wrapped_choice(text: str, dtype: str, *choices: Expr) -> str:
    """A choice among values, wrapped into the range of its dtype where exact index arithmetic is beside wrapping arithmetic."""
    low, high = dtypes.limits(dtype)
    kinds = {wraps(x) for x in choices if not (isinstance(x, Const) and low <= x.value <= high)}
    return f"{dtype}({text})" if dtypes.is_int(dtype) and len(kinds) == 2 else text


def _rounded(text: str, dtype: str) -> str:
    return f"{dtype}({text})" if dtypes.is_half(dtype) else text


def _braces(text: str, literal: bool = False) -> str:
    """The text escaped for `str.format`, but for the field {value} unless all is `literal`."""
    text = text.replace("{", "{{").replace("}", "}}")
    return text if literal else text.replace("{{value}}", "{value}")


def _loaded(text: str, dtype: str) -> str:
    if dtypes.is_half(dtype):
        return f"{dtype}_value({text})"
    if dtype == "bool":
        return f"bool({text})"
    return f"{'uint64' if dtype == 'uint64' else 'int'}({text})" if dtypes.is_int(dtype) else text


def _stored(text: str, dtype: str) -> str:
    return f"{dtype}_bits({text})" if dtypes.is_half(dtype) else text


def _constant(c: Const) -> str:
    if c.dtype == "bool":
        return str(bool(c.value))
    if dtypes.is_float(c.dtype):
        return f"{c.dtype}({c.value!r})"
    text = str(c.value)
    if c.dtype == "uint64":
        return f"uint64({text})"
    return f"({text})" if c.value < 0 else text
