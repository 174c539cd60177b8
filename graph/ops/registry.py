"""The table of operators: by name and version of the operator set, a function from tensors to tensors.

    @operator("Softmax", since=13)
    def softmax(x, *, axis=-1): ...

Positional parameters are inputs, keyword ones attributes, named as in ONNX; those without a default are required. Shapes, element
types, the number of operations and the reference follow from the tensor expressions that the function returns.

A composite is an operator that is defined by calls of others. An imported graph has those in its place.

    @composite("CastLike", 15)
    def cast_like(apply, x, target):
        return apply("Cast", x, to=target.dtype)

Operators of ONNX's own domain have plain names. Those of another domain, as in `domain="com.microsoft"`, are called by the name
of the domain, a dot, and their own: `com.microsoft.BiasGelu`. Versions are those of the domain.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, Protocol

import numpy as np

from tir import dtypes, te
from tir.empty import without_empty
from tir.ir import PrimFunc, is_script_name
from tir.nearest import nearest_name
from tir.verify.bounds import check_bounds

from ..ir import Call, Value

NEWEST = 1 << 30  # a version above all; operators since this one exist in graphs alone, not in files

KINDS: dict[str, tuple[str, ...]] = {
    "float": tuple(filter(dtypes.is_float, dtypes.TABLE)),
    "integer": tuple(filter(dtypes.is_int, dtypes.TABLE)),
    "number": tuple(name for name in dtypes.TABLE if name != "bool"),
}


class Apply(Protocol):
    """The writer of a composite, whose inputs are values of a graph, of known shapes. It applies operators to them.

    Inputs at the end and attributes that are None are left out. A result of constants alone is a constant.
    """

    def __call__(self, operator: str, /, *inputs: Value | None, **attributes: Any) -> Any:
        """The output of the newest operator of that name, or the tuple of them."""

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """A new constant, of an array or numbers; of an element type where that is given."""

    def fresh(self, name: str) -> str:
        """A name that no value and no loop has."""

    def dtype(self, value: Value) -> str:
        """The element type of a value in the file, which may be a narrow one (see `graph.ops.narrow_types`)."""

    def known(self, value: Value) -> np.ndarray | None:
        """The elements of a value that is constant, else None."""


class Body(Protocol):
    """A graph that a call of a composite holds, as a branch or the body of a loop. A call of it adds its calls."""

    outputs: int

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The values of its outputs for those of its inputs."""

    def needed(self, output: int) -> set[int]:
        """The numbers of the inputs on which an output may depend."""


@dataclass(frozen=True)
class Operator:
    """An operator in the versions `since` to `until` of the operator set. Its `name` begins with the domain, but for ONNX's own.

    `define` makes tensors from tensors; for a composite, values from an `Apply` and values. `operands` are the attributes that
    inputs become, by the positions of these. Such inputs must be constants, unless the name is a positional parameter, too: those
    are attributes if all of them are constants, else tensors. The other fields are properties that passes use:

    view          it has the elements of its first input in their order, so that it needs no kernel
    moves         elements of its results are those of its first input, at strides from an offset on
    keeps         elements of its results are elements of its inputs, of the same type
    monotone      elements of its result are some of its first input, chosen by their order, so that it commutes with scaling
    changes       it changes some elements of its first input, by `te.scatter`, so that it can do so in place
    commutative   its two inputs may be exchanged
    neutral       its second input of this number, or either if it is commutative, gives back the other one
    sums          elements of its result are sums, which begin with 0 and are never -0, unless there are further inputs than two
    bias          the position of its last input, which is added to such sums, times `alpha` where that is an attribute
    linear        it is linear in each of its two inputs, unless there are further ones
    channels      the dimension of its result that counts the output channels of its second input, the weights
    integers      it is computed in integers where its first two inputs are quantised
    halves        the least number of results with which it reads and writes 16-bit floats, computing in float32; 0 for never
    """

    name: str
    since: int
    until: int
    define: Callable[..., Any]
    operands: Mapping[int, str]
    composite: bool = False
    view: bool = False
    moves: bool = False
    keeps: bool = False
    monotone: bool = False
    changes: bool = False
    commutative: bool = False
    neutral: float | None = None
    sums: bool = False
    bias: int | None = None
    linear: bool = False
    channels: int | None = None
    integers: bool = False
    halves: int = 0

    def unknown(self, given: Iterable[str]) -> list[str]:
        """The names of attributes that it does not take, in order."""
        if any(p.kind is p.VAR_KEYWORD for p in self._parameters):
            return []
        return sorted(set(given) - {p.name for p in self._parameters if p.kind is p.KEYWORD_ONLY} - self._tensors)

    def misfit(self, inputs: Sequence[Any], attributes: Collection[str]) -> str:
        """The reason why it does not take so many inputs, or these attributes; empty if it does."""
        least, most = self.arity()
        if unknown := self.unknown(attributes):
            return f"the attribute {unknown[0]} is not supported"
        if missing := [a for a in self.required if a not in attributes]:
            return f"the attribute {missing[0]} is missing"
        if not least <= len(inputs) <= most:
            return f"it has {len(inputs)} input(s)"
        omitted = next((n for n, given in enumerate(inputs[:least]) if not given), None)
        return "" if omitted is None else f"its input {omitted} is missing"

    def taken(self, given: Sequence[Any], constant: Callable[[Any], bool]) -> tuple[list[tuple[int, str]], list[int]]:
        """The inputs that become attributes, with the names of these, and those that are tensors; by their positions."""
        present = {n: name for n, name in self.operands.items() if n < len(given) and given[n]}
        open_ = any(name in self._tensors and not constant(given[n]) for n, name in present.items())
        fixed = {n for n, name in self.operands.items() if not (open_ and name in self._tensors)}
        return [(n, name) for n, name in present.items() if n in fixed], [n for n in range(len(given)) if n not in fixed]

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the attributes that must be given."""
        return tuple(p.name for p in self._parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)

    def arity(self) -> tuple[int, int]:
        """The least and the largest number of inputs that are tensors."""
        inputs = [p for p in self._parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
        if any(p.kind is p.VAR_POSITIONAL for p in inputs):
            return 0 if self.composite else 1, NEWEST
        return sum(p.default is p.empty for p in inputs), len(inputs)

    @property
    def _tensors(self) -> set[str]:
        """The names of operands that may be tensors."""
        return set(self.operands.values()) & {p.name for p in self._parameters if p.kind is p.POSITIONAL_OR_KEYWORD}

    @property
    def _parameters(self) -> list[inspect.Parameter]:
        return _signature(self.define)[self.composite :]


@cache
def _signature(define: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a definition."""
    return list(inspect.signature(define).parameters.values())


MAX_KNOWN_CALLS = 1024  # calls in each cache: the largest networks have some hundreds of different ones

_TABLE: dict[str, list[Operator]] = {}


Register = Callable[[Callable], Callable]


def operator(
    name: str, since: int = 1, until: int = NEWEST, operands: Mapping[int, str] | None = None, domain: str = "", **properties: Any
) -> Register:
    """Register a function as the definition of an operator in some versions of the operator set; see `Operator`."""
    return _registering(partial(Operator, qualified(name, domain), since, until, operands=operands or {}, **properties))


def composite(
    name: str, since: int = 1, until: int = NEWEST, operands: Mapping[int, str] | None = None, domain: str = ""
) -> Register:
    """Register a definition of an operator by others, through an `Apply`. It is tried where operators of that name refuse."""
    return _registering(partial(Operator, qualified(name, domain), since, until, operands=operands or {}, composite=True))


def composites(rows: Mapping[str, Callable], domain: str = "", since: int = 1) -> None:
    """Register a table of composites, each under all names of its key."""
    for called, define in rows.items():
        for name in called.split():
            composite(name, since, domain=domain)(define)


def qualified(name: str, domain: str) -> str:
    """The name of an operator in graphs: with its domain in front, unless that is ONNX's own."""
    return f"{domain}.{name}" if domain else name


def _registering(made: Callable[..., Operator]) -> Register:
    def register(define: Callable) -> Callable:
        new = made(define=define)
        _TABLE.setdefault(new.name, []).append(new)
        return define

    return register


def define(name: str, *inputs: te.Tensor | None, **attributes) -> Any:
    """The results of the newest operator of that name for tensors."""
    found = find(name)
    assert found is not None, name
    return found.define(*inputs, **{key: value for key, value in attributes.items() if value is not None})


def find(name: str, opset: int = 0) -> Operator | None:
    """The operator of that name in a version of the operator set (0 for the newest); None for an unknown one."""
    return next(iter(alternatives(name, opset)), None)


def alternatives(name: str, opset: int = 0) -> list[Operator]:
    """The operators of that name in a version of the operator set: the first that takes a call defines it."""
    return [o for o in _TABLE.get(name, ()) if o.since <= (opset or NEWEST) <= o.until]


def versions(name: str) -> str:
    """The versions of the operator set that have an operator of that name, in words; empty for an unknown name."""
    spans = sorted((o.since, o.until) for o in _TABLE.get(name, ()) if o.since < NEWEST)
    return " and ".join(f"{low} and later" if high == NEWEST else f"{low} to {high}" for low, high in spans)


def names() -> tuple[str, ...]:
    """The names of all operators that files have."""
    return tuple(sorted(name for name, versions in _TABLE.items() if any(o.since < NEWEST for o in versions)))


HOW_TO_ADD = "an operator can be added, by graph.operator or graph.composite: docs/networks.md, An operator"


def unknown(name: str) -> str:
    """The reason why there is no operator of a name in a version that a file has, with the versions or the nearest name."""
    known = versions(name)
    domain = name.rpartition(".")[0]
    near = "" if known else nearest_name(name, [other for other in names() if other.rpartition(".")[0] == domain])
    return f"there is no such operator{f'; it is for versions {known}' if known else f'; did you mean {near}?' if near else ''}"


def tensors(call: Call, inputs: Sequence[te.Tensor | None]) -> tuple[te.Tensor, ...]:
    """The outputs of a call on these tensors, as many as its operator has.

    Raises ValueError or TypeError where the tensors or the attributes do not fit the operator, LookupError for an unknown one.
    """
    outputs = definition(call).define(*inputs, **dict(call.attributes))
    return outputs if isinstance(outputs, tuple) else (outputs,)


def definition(call: Call) -> Operator:
    """The operator of a call. Raises LookupError for an unknown one."""
    found = find(call.operator, call.opset)
    if found is None or found.composite:
        raise LookupError(f"there is no operator {call.operator} of version {call.opset}")
    return found


def result_types(call: Call) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The shapes and element types of the results of a call's operator; errors as of `tensors`."""
    return _result_types(anonymous(replace(call, outputs=())))


@lru_cache(MAX_KNOWN_CALLS)
def _result_types(call: Call) -> tuple[tuple[tuple[int, ...], str], ...]:
    placeholders = [None if v is None else placeholder(v, v.name) for v in call.inputs]
    types = tuple((shape_of(t), t.dtype) for t in tensors(call, placeholders))
    if any(0 in v.shape for v in call.values):
        outputs = tuple(Value(f"out{n}", *type_) for n, type_ in enumerate(types))
        if any(check_bounds(without_empty(function(replace(call, outputs=outputs))))):  # operators read in bounds
            shapes = " and ".join(str(list(v.shape)) for v in call.values if 0 in v.shape)
            raise ValueError(f"it reads elements of {shapes}, which has none")
    return types


def anonymous(call: Call) -> Call:
    """A call with names of its own, the same for calls that are equal but for names."""
    renamed = {v: Value(f"p{n}", v.shape, v.dtype) for n, v in enumerate(dict.fromkeys(call.values))}
    outputs = tuple(Value(f"out{n}", v.shape, v.dtype) for n, v in enumerate(call.outputs))
    return replace(call.with_inputs(renamed), outputs=outputs)


def function_name(*operators: str) -> str:
    """The name of operators in functions, without their domains: `matmul`, and `and_`, as `and` is a keyword there."""
    name = "_".join(operator.rpartition(".")[2] for operator in operators).lower()
    return name if is_script_name(name) else f"{name}_"


def function(call: Call) -> PrimFunc:
    """One call as a function of its different inputs and its outputs, in order; loops and blocks as `ops` wrote them."""
    return _function(anonymous(call))


@lru_cache(MAX_KNOWN_CALLS)
def _function(call: Call) -> PrimFunc:
    placeholders = {v: placeholder(v, v.name) for v in dict.fromkeys(call.values)}
    results = tensors(call, [None if v is None else placeholders[v] for v in call.inputs])
    return te.create_prim_func([*placeholders.values(), *results[: len(call.outputs)]], name=function_name(call.operator))


def placeholder(value: Value, name: str) -> te.Tensor:
    """An input tensor of the type of a value."""
    return te.placeholder(value.shape, value.dtype, name=name)


def shape_of(tensor: te.Tensor) -> tuple[int, ...]:
    return tuple(int(d) for d in tensor.shape)  # type: ignore[arg-type]


def need(
    what: str,
    x: Any,
    shape: Sequence[int | None] | None = None,
    dtype: str | None = None,
    ranks: Container[int] | None = None,
    broadcast: Sequence[int] | None = None,
) -> None:
    """Refuse an operand that does not fit; one that is left out fits.

    `shape` are its extents, None for any; `dtype` its element type, or a kind of them: "float", "number", "integer"; `ranks` the
    numbers of dimensions it may have; `broadcast` a shape that it must broadcast to. Raises TypeError for a wrong element type
    and ValueError for a wrong shape.
    """
    if x is None:
        return
    found = shape_of(x)
    rank = len(found)
    if dtype is not None and x.dtype not in KINDS.get(dtype, (dtype,)):
        article = {"float": "of floats", "integer": "of integers", "number": "of numbers"}.get(dtype, dtype)
        raise TypeError(f"{what} must be {article}, got {x.dtype}")
    if ranks is not None and rank not in ranks:
        raise ValueError(f"{what} has {rank} dimension(s), {list(found)}, which do not fit")
    if shape is not None and (len(shape) != rank or any(e not in (None, f) for e, f in zip(shape, found, strict=True))):
        wanted = ", ".join("any" if e is None else str(e) for e in shape)
        raise ValueError(f"{what} must have the shape [{wanted}], got {list(found)}")
    if broadcast is not None:
        tail = broadcast[len(broadcast) - rank :] if rank <= len(broadcast) else ()
        if len(tail) != rank or any(f not in (1, e) for f, e in zip(found, tail, strict=True)):
            raise ValueError(f"{what} must broadcast to {list(broadcast)}, got {list(found)}")


def wide(x: Any) -> Any:
    """An element in the type in which sums are made: halves in float32."""
    return x.astype(dtypes.computed(x.dtype))


def narrow(x: te.Tensor, dtype: str) -> te.Tensor:
    """A tensor rounded to an element type; itself where it has that."""
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: x[i].astype(dtype), name="rounded")


def scalar(what: str, value: Any) -> Any:
    """The number of an operand of one element, with or without dimensions; None for an omitted one."""
    if isinstance(value, tuple):
        if len(value) != 1:
            raise ValueError(f"{what} must be one number, got {list(value)}")
        return value[0]
    return value


def known_number(apply: Apply, what: str, value: Value) -> Any:
    """The number of an operand of one element; None where it is not constant."""
    array = apply.known(value)
    return None if array is None else scalar(what, tuple(array.reshape(-1).tolist()))


def element(what: str, given: Any, dtype: str) -> Any:
    """An operand of one element, a number or a tensor, as an expression of an element type; None for an omitted one."""
    if isinstance(given, te.Tensor):
        need(what, given, dtype=dtype)
        if prod(shape_of(given)) != 1:
            raise ValueError(f"{what} must be one number, got a tensor of {list(shape_of(given))}")
        return given[tuple(te.const(0) for _ in range(given.ndim))]
    number = scalar(what, given)
    return None if number is None else te.const(number, dtype)
