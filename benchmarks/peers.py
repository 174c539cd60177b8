"""The programs in torch, for comparison where it is installed, as its users write them. Memory for results is torch's own where
the function has no `out`; it is reused from call to call."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from math import sqrt
from typing import Any

import numpy as np

from tir.workloads import EPSILON, Arrays, Instance


def installed() -> bool:
    """Whether torch can be imported."""
    return find_spec("torch") is not None


def torch_call(instance: Instance, inputs: Arrays, threads: int) -> Callable[[], Any] | None:
    """The program in torch on these arrays, without copying them, as a function that returns its result; None for a program
    that is not written here."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    make = _PROGRAMS.get(instance.name)
    if make is None:
        return None
    out = torch.empty(_shape(instance), dtype=getattr(torch, instance.dtype))
    return make(torch, tuple(torch.from_numpy(np.asarray(a)) for a in inputs), out, instance.shape)


def _shape(instance: Instance) -> tuple[int, ...]:
    from tir.ir import const_shape

    return const_shape(instance.func.buffers[-1])


def _gmm(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    A, B = inputs
    return lambda: torch.matmul(A, B, out=out)


def _gemv(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    A, x = inputs
    return lambda: torch.mv(A, x, out=out)


def _add_relu(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    A, B = inputs
    return lambda: torch.add(A, B, out=out).relu_()


def _mlp(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    A, B, E = inputs
    D = torch.empty((A.shape[0], B.shape[1]), dtype=A.dtype)
    return lambda: torch.matmul(torch.matmul(A, B, out=D).exp_(), E, out=out)


def _conv2d(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    X, K = inputs
    stride, padding = shape[-2:]
    return lambda: torch.relu_(torch.conv2d(X, K, None, stride, padding))


def _depthwise(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    X, K = inputs
    stride, padding = shape[-2:]
    kernel = K.unsqueeze(1)
    return lambda: torch.relu_(torch.conv2d(X, kernel, None, stride, padding, groups=X.shape[1]))


def _softmax(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    (X,) = inputs
    return lambda: torch.softmax(X, 1, out=out)


def _layernorm(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    X, weight, bias = inputs
    return lambda: torch.layer_norm(X, X.shape[1:], weight, bias, EPSILON)


def _attention(torch: Any, inputs: Any, out: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
    Q, K, V = (a.unsqueeze(0) for a in inputs)
    scale = 1 / sqrt(shape[-1])
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(Q, K, V, scale=scale)[0]


_PROGRAMS: dict[str, Callable[..., Callable[[], Any]]] = {
    "gmm": _gmm,
    "gemv": _gemv,
    "add_relu": _add_relu,
    "mlp": _mlp,
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "attention": _attention,
}
