"""Images at other sizes."""

from __future__ import annotations

from typing import Any

from ...ir import Value
from ...ops.registry import Apply
from .types import Table, aten


def resized(apply: Apply, x: Value, size: Any, factors: Any, **how: Any) -> Value:
    """An image of other extents. Elements lie by the factors where these are given, else by the extents."""
    factors = [None] * len(size) if size is not None else factors
    size = [int(e * f) for e, f in zip(x.shape[2:], factors, strict=True)] if size is None else size
    for axis, (extent, factor) in enumerate(zip(size, factors, strict=True), 2):
        exact = factor is None or factor * x.shape[axis] == extent
        x = apply("Resize", x, axes=(axis,), **({"sizes": (extent,)} if exact else {"scales": (float(factor),)}), **how)
    return x


def _smooth(apply: Apply, x: Value, size: Any, align_corners: bool, factors: Any, mode: str, antialias: int = 0) -> Value:
    if align_corners and antialias:  # elements would lie elsewhere than without antialias
        raise ValueError("antialias with align_corners is not supported")
    corners = "align_corners" if align_corners else "half_pixel"
    how = {"mode": mode, "coordinate_transformation_mode": corners, "antialias": antialias}
    return resized(apply, x, size, factors, exclude_outside=antialias, **how)


@aten("upsample_bicubic2d.vec")
def bicubic(apply, x, size, align_corners, factors):
    return _smooth(apply, x, size, align_corners, factors, "cubic")


@aten("upsample_bicubic2d")
def bicubic_sized(apply, x, size, align_corners, *factors):
    """Of a size and the factors for it, of which None are given, or those that make it."""
    if any(f is not None and f * e != s for f, e, s in zip(factors, x.shape[2:], size, strict=False)):
        raise ValueError(f"factors {list(factors)} that do not make {list(size)} of {list(x.shape[2:])} are not supported")
    return bicubic(apply, x, size, align_corners, None)


GRID_MODES, GRID_PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")  # by torch's numbers

OPERATORS: Table = {
    "upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec": lambda apply, x, size, factors: resized(
        apply, x, size, factors, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec": lambda apply, x, size, factors: (
        resized(apply, x, size, factors, mode="nearest", nearest_mode="round_prefer_ceil")
    ),
    "upsample_linear1d.vec upsample_bilinear2d.vec upsample_trilinear3d.vec": lambda apply, x, size, align_corners, factors: (
        _smooth(apply, x, size, align_corners, factors, "linear")
    ),
    "grid_sampler_2d grid_sampler_3d grid_sampler": lambda apply, x, grid, mode, padding, align_corners: apply(
        "GridSample", x, grid, mode=GRID_MODES[mode], padding_mode=GRID_PADDINGS[padding], align_corners=int(align_corners)
    ),
    "_upsample_bilinear2d_aa.vec": lambda apply, x, size, align_corners, factors: _smooth(
        apply, x, size, align_corners, factors, "linear", 1
    ),
}
