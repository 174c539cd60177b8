"""The foundations of every primitive: registration, argument checks, and looking up loops and blocks by name.

A primitive is a pure function `(func, arguments) -> (new func, names it made)`: the names are a str, a list of str, or None.
It first refuses, then rewrites. The types of its parameters give the kinds of its arguments: `loop: LoopName`. Traces, open
schedules and the methods of `Schedule` read these types, so a user's primitive works in all of them.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, SupportsIndex, TypeVar

import numpy as np

from tir.dtypes import limits
from tir.ir import Block, Buffer, Const, Expr, For, Kind, Load, Node, Opaque, PrimFunc, Seq, Stmt, seq, with_deep_recursion
from tir.ir.memo import memoized
from tir.nearest import did_you_mean
from tir.traverse import (
    foreign_calls,
    fresh,
    loads,
    loops,
    map_statements,
    named_buffers,
    names,
    stores,
    substatements,
    walk_stmts,
)

from .buffer_annotations import without_stale_annotations
from .error import Mark, ScheduleError, listing
from .random_variables import KnownInt, KnownStr, without_variables

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Named = TypeVar("Named", For, Block)

REGISTRY: dict[str, Primitive] = {}  # filled by the decorator when a primitive's module is imported, constant afterwards


class ArgumentKind(Enum):
    """The meaning of an argument, beyond its Python type."""

    LOOP = "the name of a loop"
    BLOCK = "the name of a block"
    BUFFER = "the name of a buffer"
    DECISION = "the outcome of a random choice"
    RANDOMNESS = "the generator that a random choice draws from"
    OF_AXES = "a function of the axes of the block"
    OF_INDICES = "a function of the indices of the buffer"
    OF_NEW_INDICES = "a function of the new indices, those that the index map gives"


FUNCTIONS = {ArgumentKind.OF_AXES, ArgumentKind.OF_INDICES, ArgumentKind.OF_NEW_INDICES}
LoopName = Annotated[str, ArgumentKind.LOOP]
BlockName = Annotated[str, ArgumentKind.BLOCK]
LoopOrBlockName = Annotated[str, ArgumentKind.LOOP, ArgumentKind.BLOCK]
BufferName = Annotated[str, ArgumentKind.BUFFER]
BufferPlace = int | BufferName  # its number among the buffers read, or written, by the block; or its name
BufferOfBlock = list[str | int] | tuple[str, int] | BufferName  # ("read", 0), ("write", 1), or its name
Decision = Annotated[T | None, ArgumentKind.DECISION]  # a primitive with one returns (value, decision)
Randomness = Annotated[np.random.Generator | None, ArgumentKind.RANDOMNESS]


class Primitive(Generic[P, R]):
    """A registered primitive; calling it checks the arguments and applies it. Its errors show the call as written."""

    def __init__(self, function: Callable[Concatenate[PrimFunc, P], tuple[PrimFunc, R]]):
        functools.update_wrapper(self, function)
        self.name: str = function.__name__
        self.function = function
        self.parameters = list(inspect.signature(function).parameters.values())[1:]

    @functools.cached_property
    def types(self) -> dict[str, Any]:
        """The declared types, by the name of the parameter."""
        return typing.get_type_hints(self.function)

    @functools.cached_property
    def kinds(self) -> dict[str, frozenset[ArgumentKind]]:
        """The argument kinds of each parameter, by its name."""
        declared = typing.get_type_hints(self.function, include_extras=True)
        return {p.name: frozenset(_kinds_in(declared[p.name])) for p in self.parameters}

    def parameter(self, kind: ArgumentKind) -> str | None:
        """The name of the parameter of a kind, or None."""
        return next((name for name, kinds in self.kinds.items() if kind in kinds), None)

    @functools.cached_property
    def decision(self) -> str | None:
        """The name of the parameter that takes a decision; None for a primitive without a choice."""
        return self.parameter(ArgumentKind.DECISION)

    @functools.cached_property
    def randomness(self) -> str | None:
        """The name of the parameter that takes a source of random numbers; traces leave it out."""
        return self.parameter(ArgumentKind.RANDOMNESS)

    @functools.cached_property
    def functions(self) -> list[str]:
        """The names of the parameters that take functions of indices, which traces hold as text."""
        return [name for name, kinds in self.kinds.items() if kinds & FUNCTIONS]

    @functools.cached_property
    def draws_a_list(self) -> bool:
        """True for a primitive whose declared return type is a list of drawn values."""
        if self.decision is None:
            return False
        _, made = typing.get_args(self.types["return"])
        return typing.get_origin(typing.get_args(made)[0]) is list

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.Signature(self.parameters)

    def bound(self, args: tuple, kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """The arguments by parameter name, as given; TypeError on a wrong count or name."""
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}{self.signature_text()}: {error}") from None

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name, converted to the declared types, without those equal to their default.

        TypeError on a wrong count or name, ScheduleError on a wrong type.
        """
        result = {}
        for name, given in self.bound(args, kwargs).arguments.items():
            p, declared = self.signature.parameters[name], self.types[name]
            several = p.kind is p.VAR_POSITIONAL
            try:
                value = [_converted(v, declared) for v in given] if several else _converted(given, declared)
            except TypeError:
                shown = _shown(list(given) if several else given)
                reason = f"`{name}` must be {_type_in_words(declared, plural=several)}, got {shown}"
                raise ScheduleError(reason, hint=_hint_for(given)) from None
            if p.default is p.empty or type(value) is not type(p.default) or value != p.default:
                result[name] = value
        return result

    def signature_text(self) -> str:
        return f"({', '.join(str(p.replace(annotation=p.empty)) for p in self.parameters)})"

    def need_parameters(self, bound: dict[str, Any]) -> None:
        """Refuse the arguments of a step of a trace if one is missing or unknown."""
        names = [p.name for p in self.parameters]
        strange = next((n for n in bound if n not in names), None)
        if strange is not None:
            raise ScheduleError(f"`{self.name}` has no parameter `{strange}`", hint=did_you_mean(strange, names))
        for p in self.parameters:
            if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.name not in bound:
                raise ScheduleError(f"`{self.name}` needs the argument `{p.name}`")

    def spread(self, bound: dict[str, Any]) -> tuple[list, dict[str, Any]]:
        """Bound arguments as positional and keyword arguments, as many of them positional as possible."""
        given = inspect.BoundArguments(self.signature, bound)
        return list(given.args), given.kwargs

    def text(self, bound: dict[str, Any]) -> str:
        """The call as source text: `split('i', [None, 16])`."""
        args, kwargs = self.spread({k: v for k, v in bound.items() if k != self.randomness})
        return f"{self.name}({', '.join([*map(_shown, args), *(f'{k}={_shown(v)}' for k, v in kwargs.items())])})"

    def raw_text(self, args: tuple, kwargs: dict[str, Any]) -> str:
        """The call as source text, with arguments that did not pass `bind`."""
        defaults = {p.name: p.default for p in self.parameters}
        bound = self.signature.bind(*args, **kwargs).arguments
        return self.text({k: v for k, v in bound.items() if v is not defaults[k]})

    def apply(self, func: PrimFunc, bound: dict[str, Any]) -> Any:
        """Apply the primitive to arguments that `bind` has checked."""
        bound = without_variables(bound)
        args, kwargs = self.spread(bound)
        try:
            made: Any = with_deep_recursion(lambda: self.function(func, *args, **kwargs))
            new, names = made
            _need_kept_memory(func, new)
            _need_countable(new)
        except ScheduleError as error:
            raise error.located(self.text(bound), func) from None
        return without_stale_annotations(func, new), names

    def __call__(self, func: PrimFunc, *args: P.args, **kwargs: P.kwargs) -> tuple[PrimFunc, R]:
        try:
            bound = self.bind(args, kwargs)
        except ScheduleError as error:
            raise error.located(self.raw_text(args, kwargs), func) from None
        return self.apply(func, bound)


def _need_countable(func: PrimFunc) -> None:
    """Refuse a step that makes a loop, an axis or a dimension of a buffer too long for its dtype."""
    found = _uncountable(func.body) or _too_long(func.allocs)
    if found is not None:
        name, extent, dtype = found
        raise ScheduleError(
            f"`{name}` would count to {extent}, and {dtype} ends at {limits(dtype)[1]}",
            hint="make the function with sizes of int64, as te.const(7, 'int64') or T.int64(7)",
        )


def _too_long(buffers: Iterable[Buffer]) -> tuple[str, int, str] | None:
    return next(((b.name, n, dim.dtype) for b in buffers for dim in b.shape if (n := _beyond(dim, dim.dtype))), None)


def _beyond(extent: Expr, dtype: str) -> int:
    """A constant extent that exceeds its own dtype or the given one; else 0."""
    if type(extent) is not Const or type(extent.value) is not int:
        return 0
    return extent.value if extent.value > min(limits(dtype)[1], limits(extent.dtype)[1]) else 0


@memoized
def _uncountable(s: Stmt) -> tuple[str, int, str] | None:
    """The first loop, axis or buffer below that is too long for its dtype: name, extent, dtype."""
    found = None
    if type(s) is For and (n := _beyond(s.extent, s.var.dtype)):
        found = s.name, n, s.var.dtype
    elif type(s) is Block:
        found = next(((it.var.name, n, it.var.dtype) for it in s.iters if (n := _beyond(it.extent, it.var.dtype))), None)
        found = found or _too_long(s.allocs)
    return found or next((x for inner in substatements(s) if (x := _uncountable(inner)) is not None), None)


def _need_kept_memory(old: PrimFunc, new: PrimFunc) -> None:
    """Refuse a step that changes the layout of a foreign call's buffers, or after which a call has only a part of one."""

    def given(s: Opaque) -> tuple[Any, ...]:
        return s.call.op, tuple((b.shape, b.dtype) for b in named_buffers(s.call))

    calls = foreign_calls(new.body)
    if not calls:
        return
    before = foreign_calls(old.body)
    known = {given(s) for s in before}
    for s in calls:
        buffers = named_buffers(s.call)
        around, found = loops(s.body), loads(s.body)
        whole = [x.buffer for x in found] == buffers and [x.extent for x in around] == [dim for b in buffers for dim in b.shape]
        whole = whole and all(Load(x.buffer, x.indices) == x.value for x in stores(s.body))
        in_order = [v for x in found for v in x.indices] == [x.var for x in around]
        if given(s) not in known or not (whole and in_order):
            raise _other_memory([x for x in before if x.call.op == s.call.op] or [s])


def _other_memory(calls: list[Opaque]) -> ScheduleError:
    return ScheduleError(
        f"`T.{calls[0].call.op}` is a foreign call, and its memory would be another than the one that it expects",
        *((x, "the call") for x in calls),
        hint="steps may move the call, and change other buffers",
    )


def need_own_memory(func: PrimFunc, buffer: Buffer) -> None:
    """Refuse to change the layout of a buffer that is passed to a foreign call."""
    if calls := [s for s in foreign_calls(func.body) if buffer in named_buffers(s.call)]:
        raise _other_memory(calls)


def primitive(function: Callable[Concatenate[PrimFunc, P], tuple[PrimFunc, R]]) -> Primitive[P, R]:
    """Decorator: register `function` under its name as a primitive of schedules. TypeError for one without types:
    schedules and traces read the kinds of its arguments from them."""
    _need_types(function)
    result = Primitive(function)
    REGISTRY[result.name] = result
    return result


def _need_types(function: Callable) -> None:
    """Refuse a primitive of which a parameter or the result has no type."""
    _, *parameters = inspect.signature(function).parameters
    for name in parameters:
        if name not in function.__annotations__:
            raise TypeError(
                f"primitive {function.__name__}: the parameter `{name}` needs a type, such as int, or LoopName, BlockName or "
                f"BufferName of schedule.primitive"
            )
    if "return" not in function.__annotations__:
        raise TypeError(
            f"primitive {function.__name__}: the result needs a type: `-> tuple[PrimFunc, str]`, the new function and the name "
            f"that it made; list[str] for several, None for none"
        )


# --- argument types ------------------------------------------------------------------------------------------------------


def _kinds_in(declared: Any) -> Iterator[ArgumentKind]:
    """The argument kinds in a declared type, those of its elements included."""
    if typing.get_origin(declared) is Annotated:
        yield from (kind for kind in declared.__metadata__ if isinstance(kind, ArgumentKind))
    for inner in typing.get_args(declared):
        yield from _kinds_in(inner)


def _shown(value: Any) -> str:
    """An argument as source text; a node, whose text may be the whole program, by its class."""
    return f"<{type(value).__name__}>" if isinstance(value, Node) else repr(value)


def _hint_for(value: Any) -> str | None:
    """A hint for a node given instead of its name, or a list instead of several arguments."""
    match value:
        case Node() if name := getattr(value, "name", None):
            return f"loops, blocks and buffers are given by name, here {name!r}"
        case ([*names],) if all(isinstance(n, str) for n in names):
            return f"give them one by one: {', '.join(map(repr, names))}"
        case _:
            return None


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError
    return value if isinstance(value, KnownInt) else value.__index__()


def _number(value: Any) -> float:
    return value if isinstance(value, float) else _integer(value)


def _exactly(*kinds: type) -> Callable[[Any], Any]:
    def convert(value):
        if type(value) not in kinds:
            raise TypeError
        return value

    return convert


def json_data(value: Any) -> Any:
    """`value` as JSON data (tuples become lists); TypeError for other values, NaN and infinity included."""
    match value:
        case float() if not math.isfinite(value):
            raise TypeError
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [json_data(v) for v in value]
        case dict() if all(isinstance(k, str) for k in value):
            return {k: json_data(v) for k, v in value.items()}
        case _ if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a numpy scalar
            return json_data(value.item())
        case _:
            raise TypeError


# By simple argument type: a converter, the type in words, and its plural.
_ARGUMENT_TYPES: dict[Any, tuple[Callable[[Any], Any], str, str]] = {
    int: (_integer, "an integer", "integers"),
    float: (_number, "a number", "numbers"),
    bool: (_exactly(bool), "a bool", "bools"),
    str: (_exactly(str, KnownStr), "a name", "names"),
    type(None): (_exactly(type(None)), "None", "None"),
    Any: (json_data, "JSON data", "JSON data"),
}


def _converted(value: Any, hint: Any) -> Any:
    """A value converted to a declared type: a simple one, a list, a union, or a class; TypeError where it does not fit."""
    if hint in _ARGUMENT_TYPES:
        return _ARGUMENT_TYPES[hint][0](value)
    args = typing.get_args(hint)
    if typing.get_origin(hint) is list and isinstance(value, (list, tuple)):
        return [_converted(v, args[0]) for v in value]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for option in args:
            try:
                return _converted(value, option)
            except TypeError:
                continue
    elif isinstance(value, typing.get_origin(hint) or hint):
        return value
    raise TypeError


def _type_in_words(hint: Any, plural: bool = False) -> str:
    if hint in _ARGUMENT_TYPES:
        _, one, several = _ARGUMENT_TYPES[hint]
        return several if plural else one
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple):
        return f"{'lists' if plural else 'a list'} of {' or '.join(_type_in_words(a, True) for a in args)}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type_in_words(a, plural) for a in args))
    return "a function" if origin is Callable else f"a {getattr(hint, '__name__', hint)}"


# --- finding -------------------------------------------------------------------------------------------------------------


@memoized
def named_below(node: Node) -> Mapping[type[Stmt], Mapping[str, Stmt]]:
    """By the name of each loop (For) and block (Block) below a node: the child statement that contains it, in program order."""
    found: dict[type[Stmt], dict[str, Stmt]] = {For: {}, Block: {}}
    for s in substatements(node):
        for kind, inner in named_below(s).items():
            names = found[kind]
            own = {s.name: s} if type(s) is kind else {}  # type: ignore[attr-defined]
            found[kind] = {**names, **own, **dict.fromkeys(inner, s), **names}
    return found


def path(func: PrimFunc, kind: type[For] | type[Block], name: str) -> list[Stmt]:
    """The path from the root to the loop (`kind` For) or block (Block) called `name`, inclusive; [] for an unknown name."""
    if not isinstance(name, str):
        raise ScheduleError(f"loops and blocks are given by name, got {_shown(name)}")
    found: list[Stmt] = []
    node: Node = func
    while (s := named_below(node)[kind].get(name)) is not None:
        found.append(s)
        if type(s) is kind and s.name == name:  # type: ignore[attr-defined]
            break
        node = s
    return found


def loop_at(func: PrimFunc, name: str) -> tuple[For, list[Stmt]]:
    """The loop called `name`, and the path from the root to it, inclusive; refuses an unknown name."""
    return _find(func, For, name)


def block_at(func: PrimFunc, name: str) -> tuple[Block, list[Stmt]]:
    """The block called `name`, and the path from the root to it, inclusive; refuses an unknown name."""
    return _find(func, Block, name)


def _find(func: PrimFunc, kind: type[Named], name: str) -> tuple[Named, list[Stmt]]:
    found = path(func, kind, name)
    if not found:
        existing = [s.name for s in walk_stmts(func.body) if type(s) is kind]
        (mine, other), another = (("loop", "block"), Block) if kind is For else (("block", "loop"), For)
        what = f"a {other}, not a {mine}" if path(func, another, name) else f"no {mine} of this function"
        raise ScheduleError(f"`{name}` is {what}; its {mine}s are {listing(existing)}", hint=did_you_mean(name, existing))
    target = found[-1]
    assert isinstance(target, kind)
    return target, found


def find_loop(func: PrimFunc, name: str) -> For:
    """The loop called `name`; refuses an unknown name, and lists the known ones."""
    return loop_at(func, name)[0]


def find_block(func: PrimFunc, name: str) -> Block:
    """The block called `name`; refuses an unknown name, and lists the known ones."""
    return block_at(func, name)[0]


def named_at(func: PrimFunc, name: str) -> tuple[For | Block, list[Stmt]]:
    """The loop or block called `name`, and the path from the root to it, inclusive; refuses an unknown or ambiguous name."""
    loop, block = path(func, For, name), path(func, Block, name)
    if loop and block:
        raise ScheduleError(f"`{name}` names a loop and a block", (loop[-1], "the loop"), (block[-1], "the block"))
    if not loop and not block:
        existing = [s.name for s in walk_stmts(func.body) if isinstance(s, (For, Block))]
        raise ScheduleError(
            f"`{name}` is no loop or block of this function; it has {listing(existing)}", hint=did_you_mean(name, existing)
        )
    found = loop or block
    target = found[-1]
    assert isinstance(target, For | Block)
    return target, found


def last_loop(path: Sequence[Stmt]) -> For:
    loop = path[-1]
    assert isinstance(loop, For)
    return loop


def loops_of(func: PrimFunc, block: str) -> list[For]:
    """The loops around a block, outermost first, up to the block that encloses it."""
    return loops_on(block_at(func, block)[1][:-1])


def loops_on(above: Iterable[Stmt]) -> list[For]:
    """The loops on a path from the root below its last block, outermost first."""
    result: list[For] = []
    for stmt in above:
        if type(stmt) is Block:
            result = []
        elif type(stmt) is For:
            result.append(stmt)
    return result


def blocks_below(stmt: Stmt) -> list[Block]:
    """The outermost blocks of a statement, in program order; the statement itself if it is a block."""
    return [stmt] if type(stmt) is Block else [b for s in substatements(stmt) for b in blocks_below(s)]


def is_parameter(func: PrimFunc, buffer: str) -> bool:
    return any(p.name == buffer for p in func.buffers)


def need_not_parameter(func: PrimFunc, buffer: Buffer, why: str, mark: Mark, hint: str) -> None:
    """Refuse a parameter of the function: callers depend on its shape, dtype and layout. `why` ends the sentence."""
    if is_parameter(func, buffer.name):
        raise ScheduleError(f"`{buffer.name}` is a parameter of the function, and {why}", mark, hint=hint)


def fresh_names(func: PrimFunc, *wanted: str) -> list[str]:
    """Unused names of `func`, made from the wanted ones."""
    taken = names(func)
    return [fresh(taken, w) for w in wanted]


def constant_extent(loop: For) -> int:
    """The constant extent of a loop, in a sketch with its formula; refuses a symbolic extent."""
    if type(loop.extent) is not Const:
        raise ScheduleError(
            f"the extent of `{loop.name}` is not a constant",
            (loop, f"runs over {loop.extent}"),
            hint=f"split({loop.name!r}, [None, 4]) makes an inner loop whose extent is one",
        )
    return loop.extent.value


def fixed_factors(factors: list[int | None], example: str) -> list[int]:
    """The factors that are not None; refuses an empty list, a factor below 1, and more than one None."""
    if not factors:
        raise ScheduleError("at least one factor is needed", hint=example)
    if sum(f is None for f in factors) > 1:
        raise ScheduleError(f"at most one factor may be None, got {factors}", hint=example)
    known = [f for f in factors if f is not None]
    if any(f < 1 for f in known):
        raise ScheduleError(f"factors must be at least 1, got {min(known)}", hint=example)
    return known


# The hint for a loop whose extent depends on another loop.
DEPENDENT_EXTENT_HINT = "give the inner loop the largest extent, and its block a condition (T.where) for what is left out"


def need_serial(loop: For, what: str) -> None:
    """Refuse a marked or annotated loop; `what` is a participle: `split`, `fused`."""
    if loop.kind is not Kind.SERIAL:
        raise ScheduleError(
            f"`{loop.name}` is {KIND_WORDS[loop.kind]}, and only serial loops can be {what}",
            (loop, KIND_WORDS[loop.kind]),
            hint=f"loops are {what} first and marked afterwards; serial({loop.name!r}) takes the mark away",
        )
    if loop.annotations:
        keys = listing(k for k, _ in loop.annotations)
        raise ScheduleError(
            f"`{loop.name}` is annotated with {keys}, which would be lost",
            (loop, "annotated"),
            hint=f"unannotate({loop.name!r}, {loop.annotations[0][0]!r}) first, and annotate the new loops",
        )


KIND_WORDS = {
    Kind.SERIAL: "serial",
    Kind.PARALLEL: "parallel",
    Kind.VECTORIZED: "vectorized",
    Kind.UNROLLED: "unrolled",
    Kind.THREAD: "bound to a GPU axis",
}


def replace_path(func: PrimFunc, above: list[Stmt], new: Stmt) -> PrimFunc:
    """`func` with the last statement of a path from the root replaced by `new`."""
    for parent, old in zip(reversed(above[:-1]), reversed(above[1:]), strict=True):
        if type(parent) is Seq and type(new) is Seq:
            new = seq(*(new if s is old else s for s in parent.stmts))
        else:
            new = _with_child(parent, old, new)
    return func.with_(body=new)


def _with_child(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return map_statements(parent, lambda child: new if child is old else child)
