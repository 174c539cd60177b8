"""Activation functions: formulas of each element, whose keywords are the operators' attributes."""

from __future__ import annotations

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .elementwise import like, one, unary, zero


def _softplus(x: Expr) -> Expr:
    """log(1 + e^x), without overflow. A quotient corrects the rounding error of the sum with 1 (Goldberg, What Every Computer
    Scientist Should Know About Floating-Point Arithmetic, ACM Computing Surveys 23(1), 1991, theorem 4)."""
    power = te.exp(-te.abs(x))
    more = one(x) + power
    rest = te.select(te.equal(more, one(x)), power, te.log(more) * (power / (more - one(x))))
    return te.maximum(x, zero(x)) + rest


def _mish(x: Expr) -> Expr:
    """x tanh(log(1 + e^x)), as x n / (n + 2) with n = e^x (e^x + 2); from 20 on that is x."""
    power = te.exp(te.minimum(x, like(x, 20)))
    n = power * (power + like(x, 2))
    return x * (n / (n + like(x, 2)))


def _less_one(x: Expr) -> Expr:
    """e^x - 1 for x below 0, accurate also where e^x is close to 1: 2 t / (1 - t) with t = tanh(x / 2)."""
    t = te.tanh(x * like(x, 0.5))
    return like(x, 2) * t / (one(x) - t)


def _elu(x: Expr, *, alpha=1.0) -> Expr:
    return te.select(x < zero(x), _less_one(x) * like(x, alpha), x)


def _celu(x: Expr, *, alpha=1.0) -> Expr:
    """For a negative alpha, e^u - 1 of a positive u is e^u (1 - e^-u)."""
    u = x / like(x, alpha)
    power = _less_one(u) if alpha >= 0 else -te.exp(u) * _less_one(-u)
    return te.select(x < zero(x), power * like(x, alpha), x)


def _hard_sigmoid(x: Expr, *, alpha=0.2, beta=0.5) -> Expr:
    return te.clip(x * like(x, alpha) + like(x, beta), zero(x), one(x))


def _gelu(x: Expr, *, approximate="none") -> Expr:
    """x times the normal distribution function at x; `tanh` is the approximation by that function."""
    if approximate == "none":
        return x * like(x, 0.5) * (one(x) + te.erf(x * like(x, 0.5**0.5)))
    if approximate != "tanh":
        raise ValueError(f"approximate must be none or tanh, got {approximate!r}")
    root = (2 / np.pi) ** 0.5
    return x * like(x, 0.5) * (one(x) + te.tanh((x + x * x * x * like(x, 0.044715)) * like(x, root)))


def _shrink(x: Expr, *, bias=0.0, lambd=0.5) -> Expr:
    """Numbers from -lambd to lambd become 0, others come closer to it by `bias`."""
    real = x if dtypes.is_float(x.dtype) else x.astype("float64")
    shrunk = te.select(real > like(real, lambd), real - like(real, bias), zero(real))
    return te.select(real < like(real, -lambd), real + like(real, bias), shrunk).astype(x.dtype)


unary("Celu", 12, _celu)
unary("Elu", 1, _elu)
unary("Gelu", 20, _gelu)
unary("HardSigmoid", 1, _hard_sigmoid, called="hard_sigmoid")
unary("HardSwish", 14, lambda x: x * _hard_sigmoid(x, alpha=1 / 6))
unary("LeakyRelu", 1, lambda x, *, alpha=0.01: te.select(x < zero(x), x * like(x, alpha), x), called="leaky_relu")
unary("Mish", 18, _mish)
unary("Relu", 1, lambda x: te.maximum(x, zero(x)), "number")
unary("Selu", 6, lambda x, *, alpha=1.6732631921768188, gamma=1.0507010221481323: _elu(x, alpha=alpha) * like(x, gamma))
unary("Shrink", 9, _shrink, "number")
unary("Sigmoid", 1, te.sigmoid)
unary("Softplus", 1, _softplus)
unary("Softsign", 1, lambda x: x / (one(x) + te.abs(x)))
unary("Swish", 24, lambda x, *, alpha=1.0: x * te.sigmoid(x * like(x, alpha)))
unary("ThresholdedRelu", 10, lambda x, *, alpha=1.0: te.select(x > like(x, alpha), x, zero(x)), called="thresholded_relu")
