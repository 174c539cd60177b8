"""Convolutions by Winograd's minimal filtering, where it is estimated to take fewer cycles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from schedule import templates
from search.keys import key
from tir import dtypes
from tir.ir import PrimFunc

from ..fusion import group_of
from ..ir import Call, Graph, Value
from ..ops.registry import MAX_KNOWN_CALLS
from ..ops.winograd import POINTS, transformed_weights
from .rewriting import Rewriting, rewrite, windows_of

if TYPE_CHECKING:
    from codegen import Target


# Least ratio of estimated cycles, direct to filtered, that is worth the accuracy that is lost. That of halves is lost in their
# rounding anyway.
MIN_GAIN, MIN_GAIN_OF_HALVES = 1.25, 1.0
MAX_FORM_RATIO = 2.0  # of estimated cycles, up to which another form than the chosen one is worth a measurement
DIRECT = "direct"  # the form of a convolution that is not filtered; others are tiles, as 4x4
Tile = tuple[int, ...]  # outputs along each axis; empty where a convolution is computed directly


def filter_minimally(graph: Graph, choose: Callable[[Call], Tile]) -> Graph:
    """The graph with minimal filtering by the tile that `choose` picks for each convolution of stride 1 without dilation and
    groups. Their weights must be constant, and are transformed here."""
    return rewrite(graph, lambda r, call: _rule(r, call, choose))


def fastest(target: Target, forms: Mapping[str, str] | None = None) -> Callable[[Call], Tile]:
    """The choice of the fewest cycles, as the templates estimate them, unless `forms` have another by the `direct_key`. Integers
    are left to `integers`, and float64 is direct, whose users may want the accuracy that is lost."""

    def choose(call: Call) -> Tile:
        cycles = _cycles_by_tile(call, target)
        best = min(cycles, key=lambda tile: cycles[tile])
        chosen = best if cycles[()] > _min_gain(call) * cycles[best] else ()
        known = forms.get(direct_key(call)) if forms else None
        return next((tile for tile in cycles if _form(tile) == known), chosen)

    return choose


def other_form(call: Call, target: Target) -> str | None:
    """The form of a convolution by the other algorithm than the chosen one, if it is estimated to be about as fast."""
    cycles, chosen = _cycles_by_tile(call, target), fastest(target)(call)
    others = {tile: c for tile, c in cycles.items() if bool(tile) != bool(chosen) and c < MAX_FORM_RATIO * cycles[chosen]}
    return _form(min(others, key=lambda tile: others[tile])) if others else None


def direct_key(call: Call) -> str:
    """The key of a convolution alone, computed directly."""
    return key(_alone(_by_tiles(call, ())))


def _form(tile: Tile) -> str:
    return "x".join(map(str, tile)) or DIRECT


def _cycles_by_tile(call: Call, target: Target) -> dict[Tile, float]:
    """The estimated cycles of a convolution by each tile that its types allow, the empty one included."""
    dtype = call.values[0].dtype
    fits = dtypes.is_float(dtype) and dtype != "float64"
    return {tile: _cycles(_by_tiles(call, tile), target) for tile in ((), *(tiles(call.values[1].shape[2:]) if fits else ()))}


def least_cycles(call: Call, target: Target) -> float:
    """The estimated cycles of a convolution or a product by constant weights, filtered minimally where that is chosen. Those of a
    filtered one are as many more as others may take for their accuracy."""
    tile = fastest(target)(call) if filterable(call) else ()
    return _cycles(_by_tiles(call, tile), target) * (_min_gain(call) if tile else 1.0)


def _min_gain(call: Call) -> float:
    return MIN_GAIN_OF_HALVES if dtypes.is_half(call.values[0].dtype) else MIN_GAIN


def _rule(r: Rewriting, call: Call, choose: Callable[[Call], Tile]) -> list[Call] | None:
    weight = r.known(call.inputs[1]) if filterable(call) else None
    if weight is None or not (tile := choose(call)):
        return None
    transformed = r.constant(transformed_weights(weight, tile), name=f"{call.values[1].name}_points")
    return [replace(_by_tiles(call, tile), inputs=(call.inputs[0], transformed, *call.inputs[2:]), outputs=call.outputs)]


def filterable(call: Call) -> bool:
    """True for a convolution of stride 1 without dilation and groups, of a kernel that there are tiles for."""
    moved = (n for name in ("strides", "dilations") for n in call.attribute(name, None) or ())
    plain = call.operator == "Conv" and call.attribute("group", 1) == 1 and all(n == 1 for n in moved)
    return plain and bool(tiles(call.values[1].shape[2:]))


def tiles(kernel: tuple[int, ...]) -> list[Tile]:
    """The tiles for a kernel, as outputs along each axis: all axes of more than one tap have the same number of points."""
    found = [tuple(1 if r == 1 else n + 2 - r for r in kernel) for n in POINTS]
    return [t for t in found if max(t) > 1 and all(m > 1 or r == 1 for m, r in zip(t, kernel, strict=True))]


def _by_tiles(call: Call, tile: Tile) -> Call:
    """A convolution of anonymous values by a tile; for the empty tile the direct one."""
    x, weight, *bias = (Value(f"p{n}", v.shape, v.dtype) for n, v in enumerate(call.values))
    outputs = (Value("out", call.outputs[0].shape, call.outputs[0].dtype),)
    if not tile:
        return Call(call.operator, (x, weight, *bias), outputs, call.attributes)
    kernel = weight.shape[2:]
    moved = windows_of(call)
    pads = (*(w.before for w in moved), *(w.after for w in moved))
    points = tuple(m + r - 1 for m, r in zip(tile, kernel, strict=True) if m > 1)
    weight = replace(weight, shape=(*points, *weight.shape[1::-1]), dtype=dtypes.computed(weight.dtype))
    attributes = (
        ("kernel", kernel),
        ("pads", pads),
        ("tile", tile),
        *((n, a) for n, a in call.attributes if n == "output_dtype"),
    )
    return Call("WinogradConv", (x, weight, *bias), outputs, attributes)


@lru_cache(MAX_KNOWN_CALLS)
def _cycles(call: Call, target: Target) -> float:
    return templates.cycles(_alone(call), target)


def _alone(call: Call) -> PrimFunc:
    return group_of([call], call.values[1:]).func
