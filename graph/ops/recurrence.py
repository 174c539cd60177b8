"""Recurrences, RNN, GRU and LSTM: loops over time that call one step.

The contribution of the input to a step does not depend on the state: it is one product for all time steps. The steps are
operators of their own. Shapes are of T time steps, N sequences and H hidden units. An omitted state is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tir import te
from tir.ir import Expr

from ..ir import Value
from .loops import MIN_LOOPED_STEPS, looped
from .registry import NEWEST, Apply, composite, define, need, operator, shape_of

ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")  # activations that have such a number
BETA = ("Affine", "ScaledTanh", "HardSigmoid")
STEPS = ("GRUStep", "LSTMStep", "RNNStep")  # of each recurrence; an omitted state is zero
ACTIVATIONS = (*ALPHA, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")


# --- one step ----------------------------------------------------------------------------------------------------------


def _activation(name: str, alpha: float | None, beta: float | None, clip: float | None) -> Callable[[te.Tensor], te.Tensor]:
    """An activation of elements that are first clipped to -clip and clip."""
    given = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None}
    if name not in ACTIVATIONS:
        raise ValueError(f"the activation {name!r} is not supported; expected one of {', '.join(ACTIVATIONS)}")
    if name in ("Affine", "ScaledTanh") and len(given) < 2:
        raise ValueError(f"the activation {name} needs alpha and beta")

    def stage(x: te.Tensor) -> te.Tensor:
        if clip is not None:
            x = define("Clip", x, min=-clip, max=clip)
        if name not in ("Affine", "ScaledTanh"):
            return define(name, x, **given)
        a, b = te.const(alpha, x.dtype), te.const(beta, x.dtype)
        return te.compute(x.shape, lambda *i: x[i] * a + b if name == "Affine" else te.tanh(x[i] * b) * a, name=name.lower())

    return stage


def _activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], *clips: float | None) -> list[Any]:
    """The activations of a step, each clipped; `alphas` and `betas` are taken in order, then the operators' defaults."""
    alpha, beta = iter(alphas), iter(betas)
    return [
        _activation(n, next(alpha, None) if n in ALPHA else None, next(beta, None) if n in BETA else None, clip)
        for n, clip in zip(names, clips, strict=True)
    ]


def _product(h: te.Tensor | None, r: te.Tensor | None, bias: te.Tensor | None = None) -> te.Tensor | None:
    """h (N, H) times r (M, H) transposed, plus a bias (M)."""
    return None if h is None else define("Gemm", h, r, bias, transB=1)


def _gate(x: te.Tensor, product: te.Tensor | None, number: int, units: int, factor: te.Tensor | None = None) -> te.Tensor:
    """The sum (N, H) of one gate, of inputs and products (N, gates H) with gates side by side; products times a factor."""

    def formula(n: Expr, j: Expr) -> Expr:
        index = n, j + number * units if number else j
        if product is None:
            return x[index]
        return x[index] + (product[index] if factor is None else factor[n, j] * product[index])

    return te.compute((shape_of(x)[0], units), formula, name=f"gate_{number}")


def _peephole(gate: te.Tensor, p: te.Tensor | None, number: int, c: te.Tensor | None) -> te.Tensor:
    """A gate that also sees the cell: plus its part of p (3 H) times c (N, H)."""
    if p is None or c is None:
        return gate
    first = number * shape_of(gate)[1]
    return te.compute(gate.shape, lambda n, j: gate[n, j] + p[j + first if first else j] * c[n, j], name="seen")


def _where_live(live: te.Tensor | None, *states: tuple[te.Tensor, te.Tensor | None]) -> tuple[te.Tensor, ...]:
    """The new value of each state (N, H) where the sequence is `live` (N), else the old one; then the first with zeros there."""
    if live is None:
        return tuple(new for new, _ in states)

    def chosen(new: te.Tensor, old: te.Tensor | None) -> te.Tensor:
        zero = te.const(0, new.dtype)
        return te.compute(new.shape, lambda n, j: te.select(live[n], new[n, j], zero if old is None else old[n, j]), name="kept")

    return (*(chosen(*state) for state in states), chosen(states[0][0], None))


@operator("RNNStep", NEWEST)
def rnn_step(x, h=None, r=None, live=None, *, activations=("Tanh",), alphas=(), betas=(), clip=None):
    """x (N, H), h (N, H), r (H, H), live (N) -> the next h, see `_where_live`."""
    (f,) = _activations(activations, alphas, betas, clip)
    return _where_live(live, (f(_gate(x, _product(h, r), 0, shape_of(x)[1])), h))


@operator("GRUStep", NEWEST)
def gru_step(
    x, h=None, r=None, hidden=None, bias=None, live=None, *, activations=("Sigmoid", "Tanh"), alphas=(), betas=(), clip=None
):  # fmt: skip
    """x (N, 3 H) of the update, reset and hidden gates, h (N, H), live (N) -> the next h, see `_where_live`.

    Where the reset is applied to products, r is (3 H, H), with a bias (3 H). Where it is applied to the state, r is (2 H, H), and
    the reset state is multiplied with `hidden` (H, H)."""
    f, g = _activations(activations, alphas, betas, clip, clip)
    rows, units = shape_of(x)[0], shape_of(x)[1] // 3
    product = _product(h, r, bias)
    if h is None and bias is not None:
        product = te.compute(shape_of(x), lambda n, j: bias[j], name="bias")
    update, reset = (f(_gate(x, product, number, units)) for number in range(2))
    if hidden is None or h is None:
        new = g(_gate(x, product, 2, units, reset))
    else:
        reset_state = te.compute((rows, units), lambda n, j: reset[n, j] * h[n, j], name="left")
        last: te.Tensor = define("Gemm", reset_state, hidden, transB=1)
        new = g(te.compute((rows, units), lambda n, j: x[n, j + 2 * units] + last[n, j], name="gate_2"))

    def formula(n: Expr, j: Expr) -> Expr:
        value = (te.const(1, x.dtype) - update[n, j]) * new[n, j]
        return value if h is None else value + update[n, j] * h[n, j]

    return _where_live(live, (te.compute((rows, units), formula, name="state"), h))


@operator("LSTMStep", NEWEST)
def lstm_step(
    x, h=None, c=None, r=None, p=None, live=None, *, activations=("Sigmoid", "Tanh", "Tanh"), alphas=(), betas=(), clip=None,
    input_forget=0,
):  # fmt: skip
    """x (N, 4 H) of the input, output, forget and cell gates, h and c (N, H), r (4 H, H), p (3 H) of the first three gates,
    live (N) -> the next h and c, see `_where_live`. With `input_forget` the cell forgets as much as it takes in. As onnxruntime,
    `clip` is for the gates alone, not for the cell."""
    f, g, last = _activations(activations, alphas, betas, clip, clip, None)
    units, product = shape_of(x)[1] // 4, _product(h, r)
    gates = [_gate(x, product, number, units) for number in range(4)]
    taken, added, forgotten = f(_peephole(gates[0], p, 0, c)), g(gates[3]), f(_peephole(gates[2], p, 2, c))

    def formula(n: Expr, j: Expr) -> Expr:
        value = taken[n, j] * added[n, j]
        if c is None:
            return value
        return value + (te.const(1, x.dtype) - taken[n, j] if input_forget else forgotten[n, j]) * c[n, j]

    cell = te.compute(gates[0].shape, formula, name="cell")
    shown, seen = f(_peephole(gates[1], p, 1, cell)), last(cell)
    state = te.compute(cell.shape, lambda n, j: shown[n, j] * seen[n, j], name="state")
    return _where_live(live, (state, h), (cell, c))


@operator("SequenceMask", NEWEST)
def sequence_mask(lengths, *, steps):
    """A mask (T, N): True where time step t belongs to sequence n, which has `lengths[n]` steps."""
    need("sequence_lens", lengths, (None,), "integer")
    return te.compute((steps, *lengths.shape), lambda t, n: t.astype(lengths.dtype) < lengths[n], name="mask")


# --- all steps ---------------------------------------------------------------------------------------------------------


def _row(apply: Apply, x: Any, number: int) -> Any:
    """x[number]; None where there is no x."""
    if x is None:
        return None
    extent, *shape = shape_of(x)
    return apply("Reshape", x if extent == 1 else _rows(apply, x, number, number + 1), shape=tuple(shape), allowzero=1)


def _rows(apply: Apply, x: Any, begin: int, end: int) -> Any:
    """x[begin:end]."""
    return apply("Slice", x, starts=(begin,), ends=(end,), axes=(0,))


def _stacked(apply: Apply, parts: Sequence[Any], shape: Sequence[int]) -> Any:
    """Parts one after the other, in a shape."""
    return apply("Reshape", apply("Concat", *parts, axis=0), shape=tuple(shape), allowzero=1)


class _Recurrence:
    """The common part of the three kinds of recurrences; inputs and attributes are as ONNX has them."""

    def __init__(
        self, apply: Apply, x, w, r, b, gates: int, direction: str, hidden_size, sequence_lens, layout: int, *initial, p=None
    ):  # fmt: skip
        directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if direction not in directions:
            raise ValueError(f"the direction {direction!r} is not supported; expected one of {', '.join(directions)}")
        need("the input", x, ranks=(3,))
        need("the weights of states", r, ranks=(3,))
        self.apply, self.layout, self.backward = apply, layout, directions[direction]
        self.w, self.b, self.initial = w, b, initial
        self.x = self.with_layout(x)
        self.steps, self.sequences, inputs = shape_of(self.x)
        self.units, count = shape_of(r)[-1], len(self.backward)
        need("the weights of inputs", w, (count, gates * self.units, inputs))
        need("the weights of states", r, (count, gates * self.units, self.units))
        need("the biases", b, (count, 2 * gates * self.units))
        need("the peepholes", p, (count, 3 * self.units))
        for what, state in zip("hc", initial, strict=False):
            need(f"initial_{what}", state, (*((self.sequences, count) if layout else (count, self.sequences)), self.units))
        if hidden_size not in (None, self.units):
            raise ValueError(f"hidden_size {hidden_size} contradicts the weights, {list(shape_of(r))}")
        self.live = self._live(sequence_lens)

    def _live(self, lengths: Value | None) -> Value | None:
        """The mask (T, N) of the steps of each sequence, from their `lengths`; None where all sequences have all steps."""
        if lengths is None:
            return None
        known = self.apply.known(lengths)
        need("sequence_lens", lengths, (self.sequences,), "integer")
        short = known is None or known.min(initial=self.steps) < self.steps
        if known is not None and not all(0 <= n <= self.steps for n in known):
            raise ValueError(f"sequence_lens {known.tolist()} do not fit {self.sequences} sequence(s) of {self.steps} steps")
        return self.apply("SequenceMask", lengths, steps=self.steps) if short else None

    def with_layout(self, x: Any) -> Any:
        """`x` with its first two dimensions exchanged if the layout is 1."""
        return self.apply("Transpose", x, perm=(1, 0, *range(2, len(shape_of(x))))) if self.layout and x is not None else x

    def bias(self, number: int) -> tuple[Any, Any]:
        """The biases of inputs and of states in one direction."""
        if self.b is None:
            return None, None
        both = _row(self.apply, self.b, number)
        (count,) = shape_of(both)
        return _rows(self.apply, both, 0, count // 2), _rows(self.apply, both, count // 2, count)

    def inputs(self, number: int, bias: Any) -> Any:
        """The products of the inputs of all steps of one direction with their weights: (T, N, gates H)."""
        flat = self.apply("Reshape", self.x, shape=(self.steps * self.sequences, shape_of(self.x)[2]), allowzero=1)
        product = self.apply("Gemm", flat, _row(self.apply, self.w, number), bias, transB=1)
        return self.apply("Reshape", product, shape=(self.steps, self.sequences, shape_of(product)[1]), allowzero=1)

    def run(self, start: Callable[[int], tuple[Any, Callable[..., Any]]]) -> tuple[Any, ...]:
        """All outputs as ONNX has them. For each direction `start` gives the bias of the inputs, and the
        step: a function of its input (N, gates H), its states and the live sequences."""
        apply, count = self.apply, len(self.backward)
        if not self.steps:
            zeros = apply.constant(np.zeros((count, self.sequences, self.units), self.x.dtype))
            y = apply.constant(np.zeros((0, count, self.sequences, self.units), self.x.dtype))
            return (
                apply("Transpose", y, perm=(2, 0, 1, 3)) if self.layout else y,
                *(self.with_layout(zeros) if x is None else x for x in self.initial),
            )
        outputs, last = list[Any](), list[Any]()
        for number, backward in enumerate(self.backward):
            bias, step = start(number)
            states = [_row(apply, self.with_layout(x), number) for x in self.initial]
            steps = self._looped if self.steps >= MIN_LOOPED_STEPS else self._written_out
            rows, states = steps(step, self.inputs(number, bias), states, backward)
            outputs.append(rows)
            last.append(states)
        if all(isinstance(rows, Value) for rows in outputs):
            outputs = [apply("Unsqueeze", rows, axes=(1,)) for rows in outputs]
            y = apply("Concat", *outputs, axis=1) if count > 1 else outputs[0]
        else:
            parts = [part for row in zip(*outputs, strict=True) for part in row]
            y = _stacked(apply, parts, (self.steps, count, self.sequences, self.units))
        if self.layout:
            y = apply("Transpose", y, perm=(2, 0, 1, 3))
        ends = (_stacked(apply, state, (count, self.sequences, self.units)) for state in zip(*last, strict=True))
        return (y, *(self.with_layout(state) for state in ends))

    def _looped(self, step: Callable[..., Any], inputs: Value, states: list[Any], backward: bool) -> tuple[Value, list[Value]]:
        """The rows (T, N, H) and the last states of one direction, whose steps are those of a loop."""
        zero = self.apply.constant(np.zeros((self.sequences, self.units)), self.x.dtype)

        def body(states: Sequence[Value], slices: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
            x, live = slices if self.live is not None else (*slices, None)
            results = step(x, *states, live)
            results = results if isinstance(results, tuple) else (results,)
            return results[: len(states)], [results[0] if live is None else results[-1]]

        arrays = [inputs] if self.live is None else [inputs, self.live]
        given = [zero if x is None else x for x in states]
        found, (rows,) = looped(self.apply, self.steps, given, arrays, body, [backward] * len(arrays), [backward])
        return rows, list(found)

    def _written_out(
        self, step: Callable[..., Any], inputs: Value, states: list[Any], backward: bool
    ) -> tuple[list[Any], list[Any]]:
        """The rows of all steps, each (N, H), and the last states of one direction."""
        rows: list[Any] = [None] * self.steps
        for t in range(self.steps)[:: -1 if backward else 1]:
            results = step(_row(self.apply, inputs, t), *states, _row(self.apply, self.live, t))
            results = results if isinstance(results, tuple) else (results,)
            states = [*results[: len(states)]]
            rows[t] = results[0] if self.live is None else results[-1]
        return rows, states

    def activations(self, number: int, each: int, names, alphas: Sequence[float], betas: Sequence[float]) -> dict[str, Any]:
        """The attributes of the steps of one direction for their `each` activations."""
        if names is None:
            return {}
        if len(names) != each * len(self.backward):
            raise ValueError(f"{each} activation(s) are needed in each direction, got {', '.join(names)}")
        first, end = number * each, (number + 1) * each

        def share(numbers: Sequence[float], takers: Sequence[str]) -> tuple[float, ...]:
            before, all_ = (sum(name in takers for name in names[:n]) for n in (first, end))
            return tuple(numbers[before:all_])

        return {"activations": tuple(names[first:end]), "alphas": share(alphas, ALPHA), "betas": share(betas, BETA)}


@composite("RNN")
def rnn(
    apply, x, w, r, b=None, sequence_lens=None, initial_h=None, *, activations=None, activation_alpha=(), activation_beta=(),
    clip=None, direction="forward", hidden_size=None, layout=0,
):  # fmt: skip
    """x (T, N, ...), w (directions, H, ...), r (directions, H, H), b (directions, 2 H) -> y (T, directions, N, H), the last h."""
    recurrence = _Recurrence(apply, x, w, r, b, 1, direction, hidden_size, sequence_lens, layout, initial_h)

    def start(number: int):
        chosen = recurrence.activations(number, 1, activations, activation_alpha, activation_beta)
        weight, (own, other) = _row(apply, r, number), recurrence.bias(number)
        bias = None if own is None else apply("Add", own, other)
        return bias, lambda x, h, live: apply("RNNStep", x, h, weight, live, clip=clip, **chosen)

    return recurrence.run(start)


@composite("GRU")
def gru(
    apply, x, w, r, b=None, sequence_lens=None, initial_h=None, *, activations=None, activation_alpha=(), activation_beta=(),
    clip=None, direction="forward", hidden_size=None, layout=0, linear_before_reset=0,
):  # fmt: skip
    """As RNN, with the weights of three gates one after the other; `linear_before_reset` multiplies before it resets."""
    recurrence = _Recurrence(apply, x, w, r, b, 3, direction, hidden_size, sequence_lens, layout, initial_h)

    def start(number: int):
        chosen = recurrence.activations(number, 2, activations, activation_alpha, activation_beta)
        weight, (own, other), units = _row(apply, r, number), recurrence.bias(number), recurrence.units
        if linear_before_reset:
            return own, lambda x, h, live: apply("GRUStep", x, h, weight, None, other, live, clip=clip, **chosen)
        bias = None if own is None else apply("Add", own, other)
        gates, hidden = _rows(apply, weight, 0, 2 * units), _rows(apply, weight, 2 * units, 3 * units)
        return bias, lambda x, h, live: apply("GRUStep", x, h, gates, hidden, None, live, clip=clip, **chosen)

    return recurrence.run(start)


@composite("LSTM")
def lstm(
    apply, x, w, r, b=None, sequence_lens=None, initial_h=None, initial_c=None, p=None, *, activations=None, activation_alpha=(),
    activation_beta=(), clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    """As RNN, with the weights of four gates one after the other, and p (directions, 3 H); also gives the last c."""
    recurrence = _Recurrence(apply, x, w, r, b, 4, direction, hidden_size, sequence_lens, layout, initial_h, initial_c, p=p)

    def start(number: int):
        chosen = recurrence.activations(number, 3, activations, activation_alpha, activation_beta)
        weight, peepholes, (own, other) = _row(apply, r, number), _row(apply, p, number), recurrence.bias(number)
        bias = None if own is None else apply("Add", own, other)

        def step(x, h, c, live):
            return apply("LSTMStep", x, h, c, weight, peepholes, live, clip=clip, input_forget=input_forget or None, **chosen)

        return bias, step

    return recurrence.run(start)
