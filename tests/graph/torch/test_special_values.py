"""torch's operators on NaN, infinities, -0 and the extremes of integers, with operands drawn by their schemas, against torch."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from graph.ir import Value
from graph.ops.registry import _TABLE
from graph.reference import evaluate
from tests.sweeps import one_in

torch = pytest.importorskip("torch")
from graph.torch.importer import Importer, UnsupportedNodes, array_of, dtype_name  # noqa: E402

DRAWS = 48  # calls of an overload that are tried; torch refuses many of them
SHAPES = ((7,), (3, 7), (2, 3, 7), (1, 2, 5, 7), ())
DTYPES = tuple(getattr(torch, name) for name in ("float32", "float32", "float64", "int64", "int32", "int8", "uint8", "bool"))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e30, -1e30, 1e-30, np.inf, -np.inf, np.nan)
INTEGERS = (0, 1, -1, 2, -3, 5, 7)
NUMBERS = (0, 1, -1, 3, 0.5, -0.3, True, float("inf"), float("-inf"), float("nan"))
FINITE = 7  # of these
BOUNDS = ("other", "min", "max", "value", "exponent", "threshold", "end", "fill_value")  # operands that may be any number
UNSURE = ("gelu",)  # of which torch's vectors and its scalars differ in infinities
CANCELLING = ("fmod", "remainder", "addcmul", "addcdiv", "lerp")  # of very large and small numbers rounding decides
OF_ROWS = (  # besides elementwise operators; others may end the process where operands do not fit
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "cat", "count_nonzero", "cummax", "cummin", "cumprod", "cumsum",
    "diff", "fill", "flip", "full_like", "isin", "linalg_vector_norm", "logcumsumexp", "logsumexp", "masked_fill", "max", "mean",
    "median", "min", "nansum", "norm", "ones_like", "prod", "roll", "softmax", "sort", "stack", "std", "sum", "topk", "tril",
    "triu", "var", "var_mean", "where", "zeros_like", "log_softmax", "_softmax", "_log_softmax", "select", "slice", "diagonal",
    "constant_pad_nd", "repeat", "expand", "permute", "unsqueeze", "squeeze", "glu", "nan_to_num", "bucketize", "searchsorted",
    "scalar_tensor", "arange", "_to_copy", "to", "type_as", "cosine_similarity", "l1_loss", "mse_loss", "addcmul", "addcdiv", "dist", "outer", "trapezoid", "cross",
)  # fmt: skip
LEFT_OUT = ("layout", "device", "memory_format", "pin_memory", "non_blocking", "copy", "generator")  # of operands


def overloads() -> list[str]:
    """The names of the overloads that have a composite."""
    names = [name.removeprefix("aten.") for name in _TABLE if name.startswith("aten.") and not name.endswith(UNSURE)]
    return sorted(
        name
        for name in names
        if (found := _operator(name)) is not None and (_elementwise(found) or name.partition(".")[0] in OF_ROWS)
    )


def _elementwise(operator: Any) -> bool:
    return torch.Tag.pointwise in operator.tags


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


class Drawn:
    """Operands for the calls of an overload, of one shape and element type but for some."""

    def __init__(self, operator: Any, rng: np.random.Generator):
        self.operator, self.rng, name = operator, rng, operator._schema.name
        self.far = _elementwise(operator) and not any(part in name for part in CANCELLING)
        self.extremes = "pow" not in name and "mean" not in name  # powers overflow, and sums of floats are rounded
        self.shape, self.dtype = SHAPES[rng.integers(len(SHAPES))], DTYPES[rng.integers(len(DTYPES))]
        self.tensors: list[Any] = []
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        arguments = operator._schema.arguments
        for n, a in enumerate(arguments):
            if a.has_default_value() and (a.name in LEFT_OUT or rng.integers(2)):
                if not a.kwarg_only and any(not b.has_default_value() for b in arguments[n:]):
                    self.args.append(a.default_value)
                elif not a.kwarg_only:
                    break
            elif a.kwarg_only:
                self.kwargs[a.name] = self.operand(str(a.type), a.name)
            else:
                self.args.append(self.operand(str(a.type), a.name))

    def tensor(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """A tensor of special values; sums are not asked for what rounding leaves of very large ones."""
        if dtype is torch.bool:
            values = [False, True]
        elif dtype.is_floating_point:
            values = [v for v in FLOATS if self.far or abs(v) not in (1e30, 1e-30)]
        else:
            info = torch.iinfo(dtype)
            values = [v for v in INTEGERS if v >= info.min] + ([info.min, info.max] if self.extremes else [])
        self.tensors.append(torch.from_numpy(np.array(self.rng.choice(np.array(values), shape))).to(dtype))
        return self.tensors[-1]

    def operand(self, kind: str, name: str) -> Any:
        """An operand of a type of torch's schemas."""
        rng, rank = self.rng, max(1, len(self.shape))
        if kind.startswith("Optional["):
            return None if rng.integers(2) else self.operand(kind[9:-1], name)
        match kind:
            case "Tensor":
                own = self.shape
                if rng.integers(3) == 0:
                    own = tuple(1 if rng.integers(2) else e for e in self.shape[rng.integers(rank) :])
                return self.tensor(self.dtype if rng.integers(4) else DTYPES[rng.integers(len(DTYPES))], own)
            case "List[Tensor]":
                return [self.tensor(self.dtype, self.shape) for _ in range(2)]
            case "bool":
                return bool(rng.integers(2))
            case "int" | "SymInt" if "dtype" in name:
                return DTYPES[rng.integers(len(DTYPES))]
            case "int" | "SymInt":
                return int(rng.integers(-rank, rank)) if "dim" in name else int(rng.integers(-1, 4))
            case "List[int]" | "List[SymInt]" if "dim" in name:
                return rng.permutation(rank)[: rng.integers(rank + 1)].tolist()
            case "List[int]" | "List[SymInt]":
                return [int(v) for v in rng.integers(0, 3, 1 + rng.integers(rank))] if rng.integers(2) else list(self.shape)
            case "number" | "float":
                found = NUMBERS[rng.integers(len(NUMBERS) if name in BOUNDS else FINITE)]
                return found if kind == "number" else float(found)
            case "str":
                return str(rng.choice(["floor", "trunc", "none", "tanh"]))
        raise NotImplementedError(kind)

    @property
    def defined(self) -> bool:
        """False where floats become integers that do not hold them, of which torch has no rule."""
        dtypes = [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, torch.dtype)]
        narrow = any(not d.is_floating_point and d is not torch.bool for d in dtypes)
        floats = [t for t in self.tensors if t.dtype.is_floating_point]
        return not narrow or all(bool((t.abs() < 4).all() and (t >= 0).all()) for t in floats)


def imported(operator: Any, args: list[Any], kwargs: dict[str, Any], wanted: Any) -> list[Any]:
    """The results of one call by the interpreter. Raises UnsupportedNodes."""
    graph, bound = torch.fx.Graph(), dict[str, Any]()

    def placed(given: Any) -> Any:
        if isinstance(given, list):
            return [placed(v) for v in given]
        if not isinstance(given, torch.Tensor):
            return given
        node = graph.placeholder(f"x{len(bound)}")
        node.meta["val"], bound[node.name] = given, given
        return node

    args, kwargs = placed(args), {k: placed(v) for k, v in kwargs.items()}
    node = graph.call_function(operator, tuple(args), kwargs)
    node.meta["val"] = wanted
    many = isinstance(wanted, list | tuple)
    graph.output(tuple(graph.call_function(_item, (node, n)) for n in range(len(wanted))) if many else (node,))
    values = {n: Value(n, tuple(t.shape), dtype_name(t.dtype)) for n, t in bound.items()}
    importer = Importer("call", torch.fx.GraphModule(torch.nn.Module(), graph), values)
    results = importer.run()
    outputs = [importer.value(r) if isinstance(r, torch.Tensor) else r for r in results]
    keep = [n for n, r in enumerate(outputs) if isinstance(r, Value)]
    found = evaluate(importer.graph(*(outputs[n] for n in keep)), [array_of(t.contiguous()) for t in bound.values()])
    for n, array in zip(keep, found, strict=True):
        outputs[n] = array
    return outputs


def _item(results: Any, n: int) -> Any:
    return results[n]


def differs(found: Any, wanted: Any) -> bool:
    """True where elements differ by more than some roundings of the largest finite one, or NaN, or infinities, are elsewhere."""
    if not isinstance(wanted, torch.Tensor):
        return found != wanted
    found, wanted = np.asarray(found), array_of(wanted.contiguous())
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return True
    if found.dtype.kind != "f":
        return not np.array_equal(found, wanted)
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return True
    bound = 64 * np.finfo(found.dtype).eps
    return bool((np.abs(found - wanted)[finite] > bound * np.maximum(np.abs(wanted[finite]), 1e-37)).any())


@one_in(12)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", overloads())
def test_special_values(name):
    operator, rng = _operator(name), np.random.default_rng(zlib.crc32(name.encode()))
    if torch.Tag.nondeterministic_seeded in operator.tags or operator._schema.is_mutable:
        pytest.skip("its results are random, or it writes an operand")
    wrong, accepted = [], 0
    for _ in range(DRAWS):
        given = Drawn(operator, rng)
        try:
            with torch.no_grad():
                wanted = operator(*given.args, **given.kwargs)
        except (RuntimeError, IndexError, TypeError, ValueError, OverflowError, NotImplementedError):
            continue
        try:
            with torch.no_grad(), np.errstate(all="ignore"):
                found = imported(operator, given.args, given.kwargs, wanted) if given.defined else None
        except UnsupportedNodes:
            continue
        if found is None:
            continue
        accepted += 1
        results = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        if name.startswith(("topk", "var_mean")):  # places of equal elements are anywhere, and a mean by updates may be NaN
            found, results = found[:1], results[:1]
        if any(differs(a, b) for a, b in zip(found, results, strict=True)):
            wrong.append(f"{given.args} {given.kwargs}\n  ours  {found}\n  torch {results}")
    assert not wrong, f"{len(wrong)} of {accepted}:\n" + "\n".join(wrong[:2])
