"""The nodes of the IR: expressions, statements, blocks, buffers and functions.

Nodes are frozen dataclasses: constructors only store, equality and hashing are structural. Operators on expressions build
nodes (`a + b`, `a < b`) except `==`, which compares; `a.equal(b)` builds an equality. Folding belongs to `simplify`, checking to
`verify`, traversal to `traverse`.

Loop names and block names are unique within a function and are the handles of schedules. The iteration variables of a block
are visible only inside that block. Loop variables occur only in the bindings and predicates of blocks; programs without blocks,
such as lowered ones, use them freely.
"""

from __future__ import annotations

import keyword
import math
import sys
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from . import dtypes

R = TypeVar("R")

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGICAL = ("and", "or")
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
_OF_BOOL = frozenset((*COMPARISONS, *LOGICAL))

# Most nodes of the expressions of a block. Programs are trees: a shared expression counts at each occurrence.
MAX_NODES = 100_000
MAX_DEPTH = 2000  # levels of nodes

# Trees are walked by recursion, and Python's usual limit of 1000 calls ends at sums of some 200 terms. The limit is the whole
# process's, so it is raised only when a program needs it. Calls of Python take little of the stack of a thread.
MAX_CALLS = 10_000
CALLS_A_LEVEL = 4  # of a rewrite or a comparison
CALLS_AROUND = 300  # of the caller of this package, and of its functions around a walk


def make_room(levels: int = MAX_DEPTH) -> bool:
    """Raise Python's recursion limit, with a warning, where trees of so many levels need it; True if it was raised."""
    limit = sys.getrecursionlimit()
    if limit >= min(MAX_CALLS, CALLS_A_LEVEL * levels + CALLS_AROUND):
        return False
    said = f"a program is nested so deeply that Python's limit of {limit} calls, which is the process's, is raised to {MAX_CALLS}"
    warnings.warn(f"{said}; sys.setrecursionlimit({MAX_CALLS}) before says that it may be", RuntimeWarning, stacklevel=2)
    sys.setrecursionlimit(MAX_CALLS)
    return True


def with_deep_recursion(call: Callable[[], R]) -> R:
    """The result of a function without effects, called again with a raised recursion limit after a RecursionError."""
    try:
        return call()
    except RecursionError:
        if not make_room():
            raise
    return call()


def is_script_name(name: str) -> bool:
    """True for a name that a script can use: an identifier in Python's normal form (`ﬁ` is read as `fi`), not a keyword."""
    return name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name


MAX_NAME_LETTERS = 255  # of a user's name, which goes into generated names, lines of code and names of files


def need_name(name: object) -> str:
    """`name`, checked. ValueError where a script cannot use it, or it is longer than MAX_NAME_LETTERS."""
    if not isinstance(name, str) or not is_script_name(name):
        raise ValueError(f"a name must be a Python identifier, got {name!r}")
    if len(name) > MAX_NAME_LETTERS:
        raise ValueError(f"a name has at most {MAX_NAME_LETTERS} letters, got {len(name)}: {name[:20]}...")
    return name


# The GPU axes that a THREAD loop may be bound to.
THREAD_AXES = (*(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"), "vthread")


@dataclass_transform(frozen_default=True)
def node(cls):
    """Class decorator: a frozen, slotted dataclass. Its constructor takes a third of the time of `dataclass`'s, since it stores
    through the descriptors of the slots."""
    made = dataclass(frozen=True, slots=True, init=False)(cls)
    setters: dict[str, Any] = {f"set_{f.name}": vars(made)[f.name].__set__ for f in fields(made)}
    defaults = {f"default_{f.name}": f.default for f in fields(made) if f.default is not MISSING}
    arguments = ", ".join(f.name + (f"=default_{f.name}" if f"default_{f.name}" in defaults else "") for f in fields(made))
    body = "; ".join(f"set_{f.name}(self, {f.name})" for f in fields(made)) or "pass"
    scope = setters | defaults
    exec(f"def __init__(self, {arguments}): {body}", scope)
    made.__init__ = scope["__init__"]
    made.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


class Node:
    """A node of the IR: frozen, its children nodes or tuples of nodes, compared by structure."""

    __slots__ = ("__weakref__",)  # for `memo`

    def with_(self, **changes: Any) -> Any:
        """A copy with the given fields changed; the node itself if it has these values already."""
        for name, value in changes.items():
            if getattr(self, name) is not value:
                break
        else:
            return self
        cls: type = type(self)
        for name in cls.__slots__:  # type: ignore[attr-defined]
            if name not in changes:
                changes[name] = getattr(self, name)
        return cls(**changes)


def _printer() -> Any:
    """The package that prints the IR, imported on first use: it builds on this module."""
    from . import script

    return script


def _te() -> Any:
    """The functions of expressions, imported on first use: they build on this module."""
    import tir

    return tir.te


Infix = Callable[[Any, Any], Any]


def _infix(op: str) -> tuple[Infix, Infix]:
    """The methods of an operator on expressions: with the expression to the left, and to the right."""
    return lambda self, other: binary(op, self, other), lambda self, other: binary(op, other, self)


def _function(name: str) -> tuple[Infix, Infix]:
    """The two methods of an operator that stands for a function of `te`."""
    return lambda self, other: getattr(_te(), name)(self, other), lambda self, other: getattr(_te(), name)(other, self)


class Operators:
    """Python's operators, which make expressions, and numpy's functions of one element or two (`elementwise.UFUNCS`)."""

    __slots__ = ()

    __add__, __radd__ = _infix("+")
    __sub__, __rsub__ = _infix("-")
    __mul__, __rmul__ = _infix("*")
    __truediv__, __rtruediv__ = _infix("/")
    __floordiv__, __rfloordiv__ = _infix("//")
    __mod__, __rmod__ = _infix("%")
    __lt__, __gt__ = _infix("<")[0], _infix(">")[0]
    __le__, __ge__ = _infix("<=")[0], _infix(">=")[0]
    __pow__, __rpow__ = _function("pow")
    __lshift__, __rlshift__ = _function("shift_left")
    __rshift__, __rrshift__ = _function("shift_right")
    __and__, __rand__ = _function("bitwise_and")
    __or__, __ror__ = _function("bitwise_or")
    __xor__, __rxor__ = _function("bitwise_xor")

    def __neg__(self):
        return negative(as_expr(self))

    def __abs__(self):
        return _te().abs(self)

    def __invert__(self):
        return _te().bitwise_not(self)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return _te().of_numpy(ufunc, method, inputs, options)


class Expr(Operators, Node):
    """A scalar expression; `dtype` names its element type."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def dtype(self) -> str: ...

    def equal(self, other) -> Expr:
        """The expression `self == other` (the operator `==` compares the two trees instead)."""
        return binary("==", self, other)

    def not_equal(self, other) -> Expr:
        return binary("!=", self, other)

    def astype(self, dtype: dtypes.DTypeLike) -> Expr:
        """This value converted to `dtype`: floats truncate toward zero to integers, anything nonzero becomes True."""
        return cast(self, dtype)

    @property
    def is_zero(self) -> bool:
        """True where this is the constant 0, of any dtype."""
        return isinstance(self, Const) and self.value == 0

    @property
    def is_one(self) -> bool:
        """True where this is the constant 1, of any dtype."""
        return isinstance(self, Const) and self.value == 1

    def __bool__(self):
        raise TypeError(
            f"`{self}` has no truth value before it runs; use te.if_then_else, te.select, te.all or te.any instead of if, and, or"
        )

    def __str__(self) -> str:
        return _printer().expr_text(self)


@node
class Const(Expr):
    """A literal: an int, float or bool of the given dtype."""

    value: Any  # an int, float or bool, as dtype says
    dtype: str = "int32"


@node
class Var(Expr):
    """A named scalar: a loop variable, a block iteration variable, a let binding or a symbolic size."""

    name: str
    dtype: str = "int32"


@node
class Binary(Expr):
    """`a op b`, both of one dtype; `op` is one of ARITHMETIC, COMPARISONS or LOGICAL. `//` and `%` floor; `/` is for floats."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        e: Expr = self
        while type(e) is Binary and e.op not in _OF_BOOL:  # no recursion: a sum may be longer than Python has calls
            e = e.a
        return "bool" if type(e) is Binary else e.dtype


@node
class Unary(Expr):
    """`neg` (arithmetic) or `not` (bool)."""

    op: str
    a: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype


@node
class Cast(Expr):
    dtype: str
    value: Expr


@node
class Select(Expr):
    """`true_value if condition else false_value`. Both sides may be evaluated, unless `lazy`: then only the chosen one is,
    so that the other may access out of bounds (`T.if_then_else`)."""

    condition: Expr
    true_value: Expr
    false_value: Expr
    lazy: bool = False

    @property
    def dtype(self) -> str:
        return self.true_value.dtype


@node
class Call(Expr):
    """An intrinsic applied to arguments; `op` is one of `intrinsics.INTRINSICS`."""

    op: str
    args: tuple[Expr, ...]
    dtype: str


@node
class Buffer(Node):
    """A dense row-major array. `scope` is one of `memory.SCOPES`: "global", or a memory nearer to the processor.
    `axis_separators` group its dimensions for memory of several dimensions, such as textures: a group is one dimension there.
    Flat memory ignores them."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str = "float32"
    scope: str = "global"
    axis_separators: tuple[int, ...] = ()

    @property
    def has_const_shape(self) -> bool:
        return all(isinstance(dim, Const) for dim in self.shape)

    def __getitem__(self, indices) -> Load:
        return Load(self, tuple(as_index(i) for i in (indices if isinstance(indices, tuple) else (indices,))))


@node
class Load(Expr):
    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


TRUE = Const(True, "bool")
FALSE = Const(False, "bool")


class Kind(Enum):
    """The way the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unroll"
    THREAD = "thread_binding"


IN_ANY_ORDER = (Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD)  # kinds of loops whose iterations may run side by side


class Axis(Enum):
    """The kind of a block iteration variable: data parallel, a commutative reduction, or ordered."""

    SPATIAL = "S"
    REDUCE = "R"
    OPAQUE = "O"


NOT_SPATIAL = (Axis.REDUCE, Axis.OPAQUE)  # kinds of axes whose iterations cannot run side by side


class Stmt(Node):
    """A statement, which is run for its effect on buffers."""

    __slots__ = ()

    def __str__(self) -> str:
        return _printer().stmt_text(self)


Annotations = tuple[tuple[str, Any], ...]  # sorted by key; values are JSON data, of which lists and dicts have no hash


@node
class For(Stmt):
    """`for var in range(extent): body`. `thread` names the GPU axis of a THREAD loop ("blockIdx.x", "vthread.x", ...)."""

    var: Var
    extent: Expr
    body: Stmt
    kind: Kind = Kind.SERIAL
    annotations: Annotations = field(default=(), hash=False)
    thread: str = ""

    @property
    def name(self) -> str:
        return self.var.name


@node
class Seq(Stmt):
    """Statements in order; at least two, none itself a Seq (see `seq`)."""

    stmts: tuple[Stmt, ...]


@node
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@node
class If(Stmt):
    condition: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """Bind `var` to `value` within `body`."""

    var: Var
    value: Expr
    body: Stmt


@node
class Allocate(Stmt):
    """`buffer` exists, uninitialised, within `body`."""

    buffer: Buffer
    body: Stmt


@node
class Evaluate(Stmt):
    """Evaluate an expression for its effect."""

    value: Expr


NOTHING = Evaluate(Const(0))  # a statement without effect


@node
class Text(Node):
    """A text among the arguments of a foreign call."""

    value: str


@node
class Address(Node):
    """The memory of a buffer among the arguments of a foreign call."""

    buffer: Buffer


@node
class Foreign(Node):
    """A call of a function that the IR does not know. Its arguments are expressions, texts, addresses and foreign calls."""

    op: str
    args: tuple[Node, ...]
    dtype: str = ""


@node
class Opaque(Stmt):
    """A foreign call for its effect. `body` models that effect for analyses: it reads all elements of the named buffers, and
    writes those of the ones that are not read-only. It does not model values: a function with a foreign call can be scheduled
    and printed, not run."""

    call: Foreign
    body: Stmt = field(compare=False, hash=False)


@node
class Range(Node):
    """The integers `min .. min + extent - 1`."""

    min: Expr
    extent: Expr


@node
class Region(Node):
    """A box of elements of a buffer, one range a dimension."""

    buffer: Buffer
    ranges: tuple[Range, ...]


@node
class Iter(Node):
    """A block iteration variable over `range(extent)`, bound to an expression of the loop variables around the block."""

    var: Var
    extent: Expr
    axis: Axis
    binding: Expr

    @property
    def domain(self) -> tuple[Expr, Expr]:
        """The conditions, over loop variables, that the binding is in the domain."""
        return self.binding >= 0, self.binding < self.extent


@node
class Block(Stmt):
    """The unit of scheduling: `body` runs for the bound values of `iters`, where `predicate` (over loop variables) holds.

    `init`, if any, runs before `body` in the first iteration of the reduction: where every REDUCE iteration variable is 0.
    `reads` and `writes` are kept only where the author stated them; `analysis.regions` derives them.
    """

    name: str
    iters: tuple[Iter, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr = TRUE
    reads: tuple[Region, ...] | None = None
    writes: tuple[Region, ...] | None = None
    allocs: tuple[Buffer, ...] = ()
    annotations: Annotations = field(default=(), hash=False)

    @property
    def spatial(self) -> tuple[Iter, ...]:
        """The data parallel axes."""
        return tuple(it for it in self.iters if it.axis is Axis.SPATIAL)

    @property
    def reduction(self) -> tuple[Iter, ...]:
        """The reduction axes."""
        return tuple(it for it in self.iters if it.axis is Axis.REDUCE)

    @property
    def is_reduction(self) -> bool:
        return bool(self.reduction)

    @property
    def first_step(self) -> tuple[Expr, ...]:
        """The conditions, over loop variables, of the first step of the reduction."""
        return tuple(it.binding.equal(0) for it in self.reduction)


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
        return _printer().func_text(self)

    def __str__(self) -> str:
        return self.script()

    def __repr__(self) -> str:
        return f"<PrimFunc {_printer().signature_text(self)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from .display import code

        return code(self.script())

    def outline(self) -> str:
        """The loop nest in short form: one line for each perfect nest of loops and for each assignment. It cannot be parsed."""
        return _printer().outline_text(self)

    def show(self) -> None:
        """Print the script, coloured in a terminal."""
        _printer().show(self)

    def with_attr(self, key: str, value: Any) -> PrimFunc:
        """The function with attribute `key` set to `value`, plain data."""
        return self.with_(attrs=annotated(self.attrs, key, value))

    def specialize(self, values: Mapping[Any, int]) -> PrimFunc:
        """The function for values of its sizes, keyed by name or by variable; see `tir.specialize`."""
        import tir

        return tir.specialize(self, {getattr(size, "name", size): value for size, value in values.items()})


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


# --- construction ------------------------------------------------------------------------------------------------------


def const(value, dtype: dtypes.DTypeLike | None = None) -> Const:
    """A literal; without `dtype`, Python's int is int32 (int64 where it does not fit), float is float32, bool is bool."""
    if type(value) is int and dtype in (None, "int32") and -(2**31) <= value < 2**31:  # most often
        return Const(value)
    if dtype is None:
        if isinstance(value, bool):
            dtype = "bool"
        elif isinstance(value, int):
            dtype = "int32" if -(2**31) <= value < 2**31 else "int64"
        elif isinstance(value, float):
            dtype = "float32"
        elif hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:  # a numpy scalar
            dtype, value = str(value.dtype), value.item()
        else:
            raise TypeError(
                f"cannot make an expression of {value!r} ({type(value).__name__}); use numbers, indices, elements A[i, j]"
            )
    dtype = dtypes.check(dtype)
    if dtypes.is_float(dtype):
        try:
            return Const(float(value) if value == value else math.nan, dtype)  # one NaN object, which equals itself in a tuple
        except (TypeError, ValueError):
            raise TypeError(f"{value!r} is not a number, and cannot be a constant of dtype {dtype}") from None
    if dtype == "bool":
        return Const(bool(value), dtype)
    if value != int(value):
        raise TypeError(f"{value!r} is not an integer, and cannot be a constant of dtype {dtype}")
    low, high = dtypes.limits(dtype)
    if not low <= value <= high:
        raise TypeError(f"{value!r} does not fit {dtype} ({low} .. {high})")
    # `+` makes a bool an int and leaves a SymbolicInt as it is
    return Const(+value if isinstance(value, int) else int(value), dtype)


def as_expr(value, dtype: str | None = None) -> Expr:
    """`value` as an expression: Python and numpy numbers become constants (of `dtype`, if given), tensors of rank 0 elements."""
    if isinstance(value, Expr):
        return value
    if type(value) is not int and hasattr(value, "as_scalar"):
        return value.as_scalar()
    return const(value, dtype)


def as_index(value) -> Expr:
    """`value` as an integer expression; TypeError otherwise."""
    result = as_expr(value)
    if not dtypes.is_int(result.dtype):
        raise TypeError(f"an index must be an integer, got {result} of dtype {result.dtype}")
    return result


def cast(value: Expr, dtype: dtypes.DTypeLike) -> Expr:
    dtype = dtypes.check(dtype)
    return value if value.dtype == dtype else Cast(dtype, value)


def unify(a, b) -> tuple[Expr, Expr]:
    """Both operands as expressions of one dtype. A Python number takes the dtype of the expression beside it."""
    if not isinstance(a, Expr) and not hasattr(a, "as_scalar"):
        b = as_expr(b)
        a = _literal_beside(a, b.dtype)
    elif not isinstance(b, Expr) and not hasattr(b, "as_scalar"):
        a = as_expr(a)
        b = _literal_beside(b, a.dtype)
    a, b = as_expr(a), as_expr(b)
    if a.dtype == b.dtype:
        return a, b
    dtype = dtypes.promote(a.dtype, b.dtype)
    return cast(a, dtype), cast(b, dtype)


def refuse_compared(value) -> None:
    """Raise TypeError for Python's True and False where an expression is expected: `i == j` of expressions gives these."""
    if isinstance(value, bool):
        raise TypeError(f"got {value}, no expression: `==` and `!=` compare structure; te.equal and te.not_equal compare values")


def _literal_beside(value, dtype: str) -> Const:
    """A number as a constant of `dtype`, if that holds numbers of its kind and size; else of its own dtype."""
    if dtype != "bool":
        refuse_compared(value)
    kinds = (int, float) if dtypes.is_float(dtype) else int if dtypes.is_int(dtype) else bool
    low, high = dtypes.limits(dtype)
    fits = isinstance(value, kinds) and (low <= value <= high or value != value)
    return const(value, dtype if fits else None)


ON_CONDITIONS = {"+": "or", "max": "or", "*": "and", "min": "and"}  # arithmetic operators on two conditions


def binary(op: str, a, b) -> Binary:
    """`a op b` with the operands brought to one dtype. A sum or maximum of conditions is `or`, their product or minimum `and`.

    Raises TypeError where that dtype does not have the operator.
    """
    a, b = unify(a, b)
    if a.dtype == "bool" and op in ARITHMETIC:
        if op not in ON_CONDITIONS:
            raise TypeError(f"`{op}` does not take bool, in `{a} {op} {b}`; use .astype('int32')")
        op = ON_CONDITIONS[op]
    if op in LOGICAL and a.dtype != "bool":
        raise TypeError(f"`{op}` needs bool operands, got {a.dtype} in `{a} {op} {b}`")
    if op == "/" and not dtypes.is_float(a.dtype):
        raise TypeError(f"`/` needs floating operands, got {a.dtype} in `{a} / {b}`; use // or .astype('float32')")
    return Binary(op, a, b)


def negative(value: Expr) -> Unary:
    """`-value`; TypeError for a condition."""
    if value.dtype == "bool":
        raise TypeError(f"`-` does not take bool, in `-{value}`; use te.logical_not or .astype('int32')")
    return Unary("neg", value)


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements in order, flattened; None is dropped, a single one is returned as it is."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        elif s is not None:
            flat.append(s)
    if not flat:
        raise ValueError("seq() needs at least one statement")
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def conjunction(*conditions: Expr) -> Expr:
    """`a and b and ...` without the trivially true; TRUE if nothing remains."""
    kept: list[Expr] = []
    for c in conditions:
        for part in conjuncts(c):
            if part != TRUE and part not in kept:
                kept.append(part)
    result: Expr = TRUE
    for c in kept:
        result = c if result is TRUE else Binary("and", result, c)
    return result


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The parts of a chain of `and`."""
    match condition:
        case Binary("and", a, b):
            return conjuncts(a) + conjuncts(b)
        case _:
            return () if condition == TRUE else (condition,)


def guarded(condition: Expr, body: Stmt) -> Stmt:
    """`body` under `condition`, or `body` itself if that is trivially true."""
    return body if condition == TRUE else If(condition, body)


def nest(loops, body: Stmt) -> Stmt:
    """`body` inside serial loops, outermost first; each loop is (var, extent) or a For whose body is replaced."""
    for loop in reversed(tuple(loops)):
        body = loop.with_(body=body) if isinstance(loop, For) else For(loop[0], as_index(loop[1]), body)
    return body


def all_zero(variables: Iterable[Var]) -> dict[str, Expr]:
    """The value 0 for each variable, by its name."""
    return {v.name: Const(0, v.dtype) for v in variables}


def annotation(annotations: Annotations, key: str, default=None):
    """The value under `key`, or `default`."""
    for k, v in annotations:
        if k == key:
            return v
    return default


def annotated(annotations: Annotations, key: str, value) -> Annotations:
    """The annotations with `key` set to `value`."""
    return tuple(sorted([(k, v) for k, v in annotations if k != key] + [(key, value)], key=lambda kv: kv[0]))


def opaque(call: Foreign, buffers: Iterable[Buffer], loop: Callable[[str], str], read_only: Collection[str] = ()) -> Opaque:
    """A foreign call with its effect on `buffers`, some `read_only`; `loop` makes the names of the effect's loops from wanted
    ones."""
    parts = []
    for b in buffers:
        loops = [Var(loop(f"{b.name}_{n}"), dim.dtype) for n, dim in enumerate(b.shape)]
        read = Load(b, tuple(loops))
        effect = Evaluate(read) if b.name in read_only else Store(b, tuple(loops), read)
        parts.append(nest(zip(loops, b.shape, strict=True), effect))
    return Opaque(call, seq(*parts) if parts else NOTHING)


def are_axis_separators(separators: Any, rank: int) -> bool:
    """True where `separators` divide the dimensions of a buffer of this rank into groups, none empty."""
    if not isinstance(separators, list | tuple) or not all(type(n) is int for n in separators):
        return False
    return all(0 < n < rank for n in separators) and list(separators) == sorted(set(separators))


def const_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape as Python ints; ValueError if a dimension is symbolic."""
    return tuple(as_int(dim, f"a dimension of {buffer.name}") for dim in buffer.shape)


def buffer_nbytes(*buffers: Buffer) -> int:
    """The bytes of buffers of constant shape, all together; ValueError if a dimension is symbolic."""
    return sum(math.prod(const_shape(b)) * dtypes.nbytes(b.dtype) for b in buffers)


def as_int(expr: Expr, what: str = "a value") -> int:
    if isinstance(expr, Const):
        return int(expr.value)
    raise ValueError(f"{what} is symbolic: `{expr}`; a constant is needed here")
