"""The programs in torch, for comparison where it is installed, as its users write them. Memory for results is torch's own where
the function has no `out`; it is reused from call to call."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from math import sqrt
from typing import Any

import numpy as np

from tir.ir import const_shape
from tir.workloads import EPSILON, Arrays, Instance, Shape

Call = Callable[[], Any]


def installed() -> bool:
    """Whether torch can be imported."""
    return find_spec("torch") is not None


def rivals(instance: Instance, inputs: Arrays, outputs: Arrays, threads: int) -> dict[str, Call]:
    """The program in numpy, which writes to `outputs`, and in torch where that is installed and has it, by name.

    To be made before any kernel of ours is built: building loads the OpenMP runtime, and where torch brings the one that ours
    will share, its threads wait as torch has them wait.
    """
    found: dict[str, Call] = {"numpy": lambda: instance.numpy(inputs, outputs)}
    if installed() and (call := torch_call(instance, inputs, threads)) is not None:
        found["torch"] = call
    return found


def torch_call(instance: Instance, inputs: Arrays, threads: int) -> Call | None:
    """The program in torch on these arrays, not copied; None for one that is not written here."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    out = torch.empty(const_shape(instance.func.buffers[-1]), dtype=getattr(torch, instance.dtype))
    return torch_program(instance.name, tuple(torch.from_numpy(np.asarray(a)) for a in inputs), out, instance.shape)


def torch_program(name: str, inputs: tuple[Any, ...], out: Any, shape: tuple[int, ...]) -> Call | None:
    """A program in torch on tensors of any device, in `out` where torch can; None for one that is not written here."""
    import torch

    make = _PROGRAMS.get(name)
    return None if make is None else make(torch, out, shape, *inputs)


# --- the call of each program: of the module torch, the result, the shape, and the inputs ---------------------------------


def _mlp(torch: Any, out: Any, shape: Shape, A: Any, B: Any, E: Any) -> Call:
    D = A.new_empty((A.shape[0], B.shape[1]))
    return lambda: torch.matmul(torch.matmul(A, B, out=D).exp_(), E, out=out)


def _conv2d(torch: Any, out: Any, shape: Shape, X: Any, K: Any) -> Call:
    return lambda: torch.relu_(torch.conv2d(X, K, None, *shape[-2:]))


def _depthwise(torch: Any, out: Any, shape: Shape, X: Any, K: Any) -> Call:
    stride, padding = shape[-2:]
    kernel = K.unsqueeze(1)
    return lambda: torch.relu_(torch.conv2d(X, kernel, None, stride, padding, groups=X.shape[1]))


def _attention(torch: Any, out: Any, shape: Shape, *inputs: Any) -> Call:
    Q, K, V = (a.unsqueeze(0) for a in inputs)
    scale = 1 / sqrt(shape[-1])
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(Q, K, V, scale=scale)[0]


# Images with their channels last are views of torch's channels-last format, in which its convolutions are fastest; their kernels
# are put into it beforehand, as modules of torch have them.


def _kernels(torch: Any, kernels: Any) -> Any:
    """Kernels (K, ..., CI, CO) as (CO, CI, K, ...), in the channels-last format where there is one."""
    moved = kernels.movedim((-1, -2), (0, 1)).contiguous()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return moved.contiguous(memory_format=formats[moved.ndim]) if moved.ndim in formats else moved


def _convolution(name: str) -> Callable[..., Call]:
    """A convolution of images with their channels last by the function of torch."""

    def make(torch: Any, out: Any, shape: Shape, images: Any, kernels: Any) -> Call:
        X, K = images.movedim(-1, 1), _kernels(torch, kernels)
        dims = X.ndim - 2
        stride, padding, dilation, groups = (*shape[dims + 4 :], *(1, 1)[len(shape) - dims - 6 :])
        convolve = getattr(torch, name)
        return lambda: convolve(X, K, None, stride, padding, dilation, groups).movedim(1, -1)

    return make


def _conv_bn_relu(torch: Any, out: Any, shape: Shape, images: Any, kernels: Any, bias: Any, scale: Any, offset: Any) -> Call:
    X, K = images.movedim(-1, 1), _kernels(torch, kernels)
    mean, variance = torch.zeros_like(bias), torch.ones_like(bias)
    stride, padding = shape[-2:]
    normalise = torch.nn.functional.batch_norm

    def call() -> Any:
        convolved = torch.conv2d(X, K, bias, stride, padding)
        return torch.relu_(normalise(convolved, mean, variance, scale, offset, eps=0.0)).movedim(1, -1)

    return call


def _depthwise_nhwc(torch: Any, out: Any, shape: Shape, images: Any, kernels: Any) -> Call:
    X, K = images.movedim(-1, 1), kernels.movedim(-1, 0).unsqueeze(1).contiguous(memory_format=torch.channels_last)
    stride, padding = shape[-2:]
    return lambda: torch.conv2d(X, K, None, stride, padding, groups=X.shape[1]).movedim(1, -1)


def _conv2d_transpose(torch: Any, out: Any, shape: Shape, images: Any, kernels: Any) -> Call:
    X, K = images.movedim(-1, 1), kernels.permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)
    return lambda: torch.conv_transpose2d(X, K, None, *shape[-2:]).movedim(1, -1)


def _capsule(torch: Any, out: Any, shape: Shape, X: Any, K: Any) -> Call:
    """The rows of capsules as images of their own, their columns as channels."""
    N, H, W, side, _, CI = X.shape
    images = X.permute(0, 3, 1, 2, 4, 5).reshape(N * side, H, W, side * CI)
    kernel = _kernels(torch, K.permute(0, 1, 2, 4, 3, 5).reshape(*K.shape[:2], side * CI, -1))
    seen = images.movedim(-1, 1)
    stride, padding = shape[-2:]

    def call() -> Any:
        found = torch.conv2d(seen, kernel, None, stride, padding).movedim(1, -1)
        return found.reshape(N, side, *found.shape[1:3], side, -1).permute(0, 2, 3, 1, 4, 5)

    return call


def _attention_weights(torch: Any, out: Any, shape: Shape, Q: Any, K: Any) -> Call:
    query, key = Q.transpose(1, 2), K.permute(0, 2, 3, 1)
    return lambda: torch.softmax(torch.matmul(query, key), -1, out=out)


_PROGRAMS: dict[str, Callable[..., Call]] = {
    "gmm": lambda torch, out, shape, A, B: lambda: torch.matmul(A, B, out=out),
    "gemv": lambda torch, out, shape, A, x: lambda: torch.mv(A, x, out=out),
    "add_relu": lambda torch, out, shape, A, B: lambda: torch.add(A, B, out=out).relu_(),
    "mlp": _mlp,
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "conv1d": _convolution("conv1d"),
    "conv2d_nhwc": _convolution("conv2d"),
    "conv3d": _convolution("conv3d"),
    "conv_bn_relu": _conv_bn_relu,
    "depthwise_nhwc": _depthwise_nhwc,
    "conv2d_transpose": _conv2d_transpose,
    "capsule": _capsule,
    "norm": lambda torch, out, shape, A: lambda: torch.linalg.vector_norm(A, dim=(1, 2), out=out),
    "attention_weights": _attention_weights,
    "softmax": lambda torch, out, shape, X: lambda: torch.softmax(X, 1, out=out),
    "layernorm": lambda torch, out, shape, X, scale, bias: lambda: torch.layer_norm(X, X.shape[1:], scale, bias, EPSILON),
    "attention": _attention,
}
