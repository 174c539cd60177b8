"""Transposed convolutions: pixels sorted by their remainders, of any stride, and what is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedule.templates import conv2d_transpose
from tests.schedule.templates.patterns import TARGETS, by_rule, matched, outcome_of, relu, rule_block
from tir import te
from tir.ir import Const, Load

MATCHES = {
    "iik kj -> ij": "A pixels=i channels=j sum=k",
    "(i+k) kj -> ij": "A pixels=i channels=j sum=k",
    "(2i+k) kj -> ij": "A pixels=i channels=j sum=k",
    "n(h+r)(w+q)c rqco -> nhwo": "A pixels=nhw channels=o sum=cqr",
    "z(h+r)(w+q)c rqco -> zhwo": "A pixels=zhw channels=o sum=cqr",
    "transposed": "A pixels=nhw channels=o sum=cqr hr%2 wq%2",
    "transposed, one class": "A pixels=nhw channels=o sum=cqr hr%2",
}


def test_what_is_matched():
    assert matched(conv2d_transpose.matches) == MATCHES


SCHEDULES = [  # stride of columns, channels, rows and columns; that of rows is 2 where columns have none
    (2, 17, 7, 9, None, "znver2",
     "Y: transposed convolution | B_global ......v, Y .........uv | pragma_auto_unroll_max_step=64, in_order=True"),
    (2, 17, 7, 9, None, "znver4",
     "Y: transposed convolution | B_global p.v, Y p.....uv | schedule=dynamic, pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    (2, 17, 7, 9, relu, "znver2",
     "Y: transposed convolution; Z: elementwise | B_global ......v, Y .........uv, Z ..v | "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    (2, 17, 7, 9, relu, "znver4",
     "Y: transposed convolution; Z: elementwise | B_global p.v, Y p.....uv, Z pv | schedule=dynamic, "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    (3, 24, 4, 8, None, "znver2",
     "Y: transposed convolution | B_global ...v, Y ......uv | pragma_auto_unroll_max_step=64, in_order=True"),
    (3, 24, 4, 8, None, "znver4",
     "Y: transposed convolution | B_global pv, Y p...uv | schedule=dynamic, pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    (3, 24, 4, 8, relu, "znver2",
     "Y: transposed convolution; Z: elementwise | B_global ...v, Y ......uv, Z ..v | pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    (3, 24, 4, 8, relu, "znver4",
     "Y: transposed convolution; Z: elementwise | B_global pv, Y p...uv, Z pv | schedule=dynamic, "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    (1, 16, 5, 7, None, "znver2",
     "Y: transposed convolution | B_global ....v, Y .......uv | pragma_auto_unroll_max_step=64, in_order=True"),
    (1, 16, 5, 7, None, "znver4",
     "Y: transposed convolution | B_global p.v, Y p....uv | schedule=dynamic, pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    (1, 16, 5, 7, relu, "znver2",
     "Y: transposed convolution | B_global ....v, Y .......uv, Z ....v | pragma_auto_unroll_max_step=64, in_order=True"),
    (1, 16, 5, 7, relu, "znver4",
     "Y: transposed convolution | B_global p.v, Y p....uv, Z p.v | schedule=dynamic, pragma_auto_unroll_max_step=64, "
     "in_order=True"),
]  # fmt: skip


@pytest.mark.parametrize(("stride", "o", "h", "w", "after", "target", "expected"), SCHEDULES)
def test_pixels_are_sorted_by_remainders(stride, o, h, w, after, target, expected):
    """Loops over the classes are outside of the tiles. An epilogue has a nest of its own where a row of pixels has classes."""
    rows = max(stride, 2)

    def where(x):
        own = te.equal((x["h"] + x["r"]) % rows, 0)
        return te.all(own, te.equal((x["w"] + x["q"]) % stride, 0)) if stride > 1 else own

    rule = f"n((h+r)/{rows})((w+q)/{stride})c rqco -> nhwo" if stride > 1 else "n((h+r)/2)(w+q)c rqco -> nhwo"
    func = by_rule(rule, where=where, after=after, n=1, c=5, o=o, h=h, w=w)
    assert outcome_of(func, target, "transposed convolution") == expected


@pytest.mark.parametrize(("o", "suits"), [(4, True), (3, False), (8, True)])
def test_half_a_vector_of_channels_suits(o, suits):
    found = conv2d_transpose.matches(rule_block("transposed"))
    it = found.channels[-1]
    narrow = replace(found, channels=(replace(it, extent=Const(o)),))
    assert conv2d_transpose.suits(narrow, TARGETS["znver2"].machine) == suits
    assert not conv2d_transpose.suits(replace(narrow, classes=()), TARGETS["znver2"].machine)
    turned = Load(found.weights.buffer, (2 - found.weights.indices[0], *found.weights.indices[1:]))
    assert conv2d_transpose.suits(replace(narrow, classes=(), weights=turned), TARGETS["znver2"].machine) == suits


@pytest.mark.parametrize(("name", "rows", "pixels"), [("transposed", 2 * 9 * 2, 6), ("transposed, one class", 2 * 9, 11)])
def test_rows_of_pixels_of_a_class(name, rows, pixels):
    """An image of 2 by 9 rows of 11 pixels: two classes of columns make two rows of each."""
    found = conv2d_transpose.matches(rule_block(name))
    assert (found.rows, found.pixels_of_class) == (rows, pixels)
    assert found.step_classes == (4 if name == "transposed" else 2)
