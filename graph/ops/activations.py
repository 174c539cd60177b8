"""Activation functions: formulas of each element."""

from __future__ import annotations

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .elementwise import elementwise, like, one, unary, zero
from .registry import need, operator


def _softplus(x: Expr) -> Expr:
    """log(1 + e^x), without overflow."""
    return te.maximum(x, zero(x)) + te.log(one(x) + te.exp(-te.abs(x)))


unary("HardSwish", 14, lambda x: x * te.maximum(zero(x), te.minimum(one(x), x * like(x, 1 / 6) + like(x, 0.5))))
unary("Mish", 18, lambda x: x * te.tanh(_softplus(x)))
unary("Relu", 6, lambda x: te.maximum(x, zero(x)), "number")
unary("Sigmoid", 6, te.sigmoid)
unary("Softplus", 1, _softplus)
unary("Softsign", 1, lambda x: x / (one(x) + te.abs(x)))


@operator("LeakyRelu", 6)
def leaky_relu(x, *, alpha=0.01):
    need("the input", x, dtype="float")
    return elementwise("leaky_relu", lambda a: te.select(a < zero(a), a * like(a, alpha), a), x)


@operator("Elu", 6)
def elu(x, *, alpha=1.0):
    need("the input", x, dtype="float")
    return elementwise("elu", lambda a: te.select(a < zero(a), (te.exp(a) - one(a)) * like(a, alpha), a), x)


@operator("Celu", 12)
def celu(x, *, alpha=1.0):
    need("the input", x, dtype="float")

    def formula(a: Expr) -> Expr:
        return te.select(a < zero(a), (te.exp(a / like(a, alpha)) - one(a)) * like(a, alpha), a)

    return elementwise("celu", formula, x)


@operator("Selu", 6)
def selu(x, *, alpha=1.6732631921768188, gamma=1.0507010221481323):
    need("the input", x, dtype="float")

    def formula(a: Expr) -> Expr:
        return te.select(a < zero(a), (te.exp(a) - one(a)) * like(a, alpha), a) * like(a, gamma)

    return elementwise("selu", formula, x)


@operator("ThresholdedRelu", 10)
def thresholded_relu(x, *, alpha=1.0):
    need("the input", x, dtype="float")
    return elementwise("thresholded_relu", lambda a: te.select(a > like(a, alpha), a, zero(a)), x)


@operator("HardSigmoid", 6)
def hard_sigmoid(x, *, alpha=0.2, beta=0.5):
    need("the input", x, dtype="float")

    def formula(a: Expr) -> Expr:
        return te.maximum(zero(a), te.minimum(one(a), a * like(a, alpha) + like(a, beta)))

    return elementwise("hard_sigmoid", formula, x)


@operator("Gelu", 20)
def gelu(x, *, approximate="none"):
    """x times the normal distribution function at x; `tanh` is the approximation by that function."""
    need("the input", x, dtype="float")
    if approximate == "none":
        return elementwise("gelu", lambda a: a * like(a, 0.5) * (one(a) + te.erf(a * like(a, 0.5**0.5))), x)
    if approximate != "tanh":
        raise ValueError(f"approximate must be none or tanh, got {approximate!r}")
    root = (2 / np.pi) ** 0.5

    def formula(a: Expr) -> Expr:
        return a * like(a, 0.5) * (one(a) + te.tanh((a + a * a * a * like(a, 0.044715)) * like(a, root)))

    return elementwise("gelu", formula, x)


@operator("Swish", 24)
def swish(x, *, alpha=1.0):
    need("the input", x, dtype="float")
    return elementwise("swish", lambda a: a * te.sigmoid(a * like(a, alpha)), x)


@operator("Shrink", 9)
def shrink(x, *, bias=0.0, lambd=0.5):
    """Numbers from -lambd to lambd become 0, others come closer to it by `bias`."""
    need("the input", x, dtype="number")

    def formula(a: Expr) -> Expr:
        real = a if dtypes.is_float(a.dtype) else a.astype("float32")
        shrunk = te.select(real > like(real, lambd), real - like(real, bias), zero(real))
        return te.select(real < like(real, -lambd), real + like(real, bias), shrunk).astype(a.dtype)

    return elementwise("shrink", formula, x)
