"""What convolutions of images with their channels last share: a stage that pads, names of axes, extents, views of windows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .. import te
from ..ir import Expr

AXES = {1: ("l",), 2: ("h", "w"), 3: ("d", "h", "w")}  # of an image, by how many it has


def named(names: Sequence[str], formula: Callable[..., Any]) -> Callable[..., Any]:
    """A function of any number of indices with names for them, as `te.compute` takes the names of axes from it."""

    def value(*index: Expr) -> Any:
        return formula(*index)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(value)["__signature__"] = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return value


def reach(kernel: int, dilation: int) -> int:
    """How many elements lie between the first and the last that a kernel looks at, both included."""
    return dilation * (kernel - 1) + 1


def extent(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """How many outputs a convolution has along an axis of `size` elements, padded on each side."""
    return (size + 2 * padding - reach(kernel, dilation)) // stride + 1


def padded(X: te.Tensor, names: Sequence[str], before: int, after: int, dtype: str) -> te.Tensor:
    """A stage that puts zeros before and after some axes of images; X itself if there are none to put.

    `names` has a name for each axis; those in AXES[3] are the ones that are padded, and so is `l`.
    """
    if before == after == 0:
        return X
    images = [n for n, name in enumerate(names) if name in ("l", *AXES[3])]
    extents = [int(s) for s in X.shape]  # type: ignore[arg-type]

    def value(*index: Expr) -> Expr:
        limits = [limit for n in images for limit in (index[n] >= before, index[n] < before + extents[n])]
        inner = tuple(i - before if n in images else i for n, i in enumerate(index))
        return te.if_then_else(te.all(*limits), X[inner], te.const(0, dtype))

    shape = [s + before + after if n in images else s for n, s in enumerate(extents)]
    return te.compute(shape, named(names, value), name="pad")


def windows(image: np.ndarray, dims: int, kernel: int, stride: int, dilation: int = 1) -> np.ndarray:
    """A view (outputs..., other axes..., kernel...) of what each output sees of an image whose first `dims` axes are its own."""
    view = sliding_window_view(image, (reach(kernel, dilation),) * dims, axis=tuple(range(dims)))
    steps = slice(None, None, stride), slice(None, None, dilation)
    return view[(steps[0],) * dims + (slice(None),) * (image.ndim - dims) + (steps[1],) * dims]
