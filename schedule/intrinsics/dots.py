"""The instructions of processors that add a few products of narrow numbers to each lane of a vector.

The templates and the backend read the same table. A lane has 32 bits, and each operand fills it with two or four numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

BYTES = ("int8", "uint8")
LETTERS = {"int8": "s8", "uint8": "u8", "bfloat16": "bf16", "int16": "s16"}  # of operands, in names of intrinsics


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot product of `left` and `right` numbers, in either order, into `total`. By the number of lanes, `features` has the sets
    of LLVM's features of which it needs one. With `clamps`, the sum of each two products is clamped to 16 bits."""

    name: str
    left: str
    right: str
    total: str
    features: Mapping[int, tuple[Set[str], ...]]
    clamps: bool = False


_PAIRS = {8: ({"avx2"},), 16: ({"avx512bw"},)}
DOTS = (
    Dot("vpdpbusd", "uint8", "int8", "int32", {8: ({"avx512vnni", "avx512vl"}, {"avxvnni"}), 16: ({"avx512vnni"},)}),
    Dot("vdpbf16ps", "bfloat16", "bfloat16", "float32", {8: ({"avx512bf16", "avx512vl"},), 16: ({"avx512bf16"},)}),
    Dot("vpmaddwd", "int16", "int16", "int32", _PAIRS),
    Dot("vpmaddubsw", "uint8", "int8", "int32", _PAIRS, clamps=True),
    Dot("sdot", "int8", "int8", "int32", {4: ({"dotprod"},)}),
    Dot("udot", "uint8", "uint8", "int32", {4: ({"dotprod"},)}),
    Dot("usdot", "uint8", "int8", "int32", {4: ({"i8mm"},)}),
    Dot("bfdot", "bfloat16", "bfloat16", "float32", {4: ({"bf16"},)}),
)


def letters(left: str, right: str) -> str:
    """The end of an intrinsic's name, for operands of these types: only bytes differ."""
    return LETTERS[left] if left == right and left not in BYTES else LETTERS[left] + LETTERS[right]


def find_dot(left: str, right: str, lanes: int, known: Set[str], clamps: bool = False) -> Dot | None:
    """The instruction for numbers of these types, in either order, on a processor with the `known` features."""
    for dot in DOTS:
        fits = {left, right} == {dot.left, dot.right} and dot.clamps == clamps
        if fits and any(known >= needed for needed in dot.features.get(lanes, ())):
            return dot
    return None
