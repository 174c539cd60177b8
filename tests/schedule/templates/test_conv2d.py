"""Direct convolutions: what is one in any layout, and loops over panels of channels, pixels and the window."""

from __future__ import annotations

import pytest

from schedule.primitive import find_block
from schedule.templates import conv2d
from tests.schedule.templates.patterns import by_rule, check_estimates, matched, outcome, relu
from tir.traverse import variables

MATCHES = {
    "iik kj -> ij": "A pixels=i channels=j sum=k",
    "(i+k) kj -> ij": "A pixels=i channels=j sum=k",
    "(2i+k) kj -> ij": "A pixels=i channels=j sum=k",
    "nc(h+r)(w+q) ocrq -> nohw": "A pixels=nhw channels=o sum=cqr",
    "nc(2h+r)(2w+q) ocrq -> nohw": "A pixels=nhw channels=o sum=cqr",
    "nc(h+r)(w+2q) ocrq -> nohw": "A pixels=nhw channels=o sum=cqr",
    "n(h+r)(w+q)c rqco -> nhwo": "A pixels=nhw channels=o sum=cqr",
    "n(h+r)(w+q)c orqc -> nhwo": "A pixels=nhw channels=o sum=cqr",
    "n(h+r)(w+q)c rqoc -> nhwo": "A pixels=nhw channels=o sum=cqr",
    "nc(w+q) ocq -> now": "A pixels=nw channels=o sum=cq",
    "ngc(h+r)(w+q) gocrq -> ngohw": "A groups=g pixels=nhw channels=o sum=cqr",
    "z(h+r)(w+q)c rqco -> zhwo": "A pixels=zhw channels=o sum=cqr",
    "n(h+r)(w+q)(o/5) rqo -> nhwo": "A pixels=nhw channels=o sum=qr members=5",
    "n(h+r)(w+q)(5(o/5)+c) rqco -> nhwo": "A pixels=nhw channels=o sum=cqr members=5",
    "convolution of bytes": "A pixels=nhw channels=o sum=cqr",
    "one pixel": "A pixels=nhw channels=o sum=cqr",
    "one channel": "A pixels=nhw channels=o sum=cqr",
}


def test_what_is_matched():
    assert matched(conv2d.matches) == MATCHES


SCHEDULES = [
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 5, "w": 7}, "znver2",
     "Y: direct convolution | B_global ...v, Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 5, "w": 7}, "znver4",
     "Y: direct convolution | B_global p.v, Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 5, "w": 7}, "sapphirerapids",
     "Y: direct convolution | B_global p.v, Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 2, "c": 5, "o": 17, "h": 5, "w": 13, "after": relu}, "znver2",
     "Y: direct convolution | B_global ....v, Y ......uv, Z ....v | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 2, "c": 5, "o": 17, "h": 5, "w": 13, "after": relu}, "znver4",
     "Y: direct convolution | B_global p...v, Y p.....uv, Z p...v | pragma_auto_unroll_max_step=64, in_order=True"),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 24, "h": 5, "w": 7}, "znver2: direct convolution",
     "Y: direct convolution | B_global ..uv, Y .....uv, Y_global ...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 3, "o": 24, "h": 5, "w": 7}, "znver4: direct convolution",
     "Y: direct convolution | B_global p.u, Y p...uv, Y_global p.uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 40, "h": 4, "w": 9, "after": relu}, "znver2: direct convolution",
     "Y: direct convolution | B_global ..uv, Y .....uv, Z ...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 40, "h": 4, "w": 9, "after": relu}, "znver4: direct convolution",
     "Y: direct convolution | B_global p.u, Y p...uv, Z p.uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 5, "w": 7, "constants": ["B"]}, "znver2",
     "Y: direct convolution | B_global ...v, Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 5, "w": 7, "constants": ["B"]}, "znver4",
     "Y: direct convolution | B_global p.v, Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)(5(o/16)+c) rqco -> nhwo", {"n": 1, "c": 5, "o": 32, "h": 5, "w": 7}, "znver2",
     "Y: direct convolution | B_global ....v, Y ......uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)(5(o/16)+c) rqco -> nhwo", {"n": 1, "c": 5, "o": 32, "h": 5, "w": 7}, "znver4",
     "Y: direct convolution | B_global p...v, Y p....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)(o/16) rqo -> nhwo", {"n": 1, "o": 64, "h": 5, "w": 7}, "znver2",
     "Y: direct convolution | B_global ...v, Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)(o/16) rqo -> nhwo", {"n": 1, "o": 64, "h": 5, "w": 7}, "znver4",
     "Y: direct convolution | B_global p..v, Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("gn(h+r)(w+q)c grqco -> gnhwo", {"g": 2, "n": 1, "c": 3, "o": 16, "h": 3, "w": 7}, "znver2",
     "Y: direct convolution | B_global ....v, Y ......uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("gn(h+r)(w+q)c grqco -> gnhwo", {"g": 2, "n": 1, "c": 3, "o": 16, "h": 3, "w": 7}, "znver4",
     "Y: direct convolution | B_global p...v, Y p....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(w+q)c qco -> nwo", {"n": 2, "c": 5, "o": 17, "w": 19}, "znver2",
     "Y: direct convolution | B_global ...v, Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(w+q)c qco -> nwo", {"n": 2, "c": 5, "o": 17, "w": 19}, "znver4",
     "Y: direct convolution | B_global p..v, Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 40, "o": 48, "h": 3, "w": 5}, "znver2: direct convolution, the sum in parts",
     "Y: direct convolution | B_global ....v, Y .....uv | prefetch=[['B', 32]], pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 40, "o": 48, "h": 3, "w": 5}, "znver4: direct convolution, the sum in parts",
     "Y: direct convolution, the sum in parts | B_global p.v, Y ....uv | prefetch=[['B', 32]], "
     "pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 24, "h": 5, "w": 7, "kinds": ("float16", "float16")}, "znver2",
     "Y: direct convolution | A_global ..v, B_global ...v, Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 24, "h": 5, "w": 7, "kinds": ("float16", "float16")}, "znver4",
     "Y: direct convolution | B_global p.v, A_global pv, Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c orqc -> nhwo", {"n": 1, "c": 4, "o": 32, "h": 1, "w": 7}, "znver2",
     "Y: direct convolution | B_global ...u, Y ....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c orqc -> nhwo", {"n": 1, "c": 4, "o": 32, "h": 1, "w": 7}, "znver4",
     "Y: direct convolution | B_global p.u, Y ...uv | pragma_auto_unroll_max_step=64, in_order=True"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "expected"), SCHEDULES)
def test_schedules(rule, about, target, expected):
    assert outcome(rule, about, target) == expected


@pytest.mark.parametrize("where", ["znver2", "znver4"])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("rule", ["hik (h/4)ke -> ieh", "(h/4)ke hik -> ieh"])
def test_products_by_heads_in_groups_are_of_one_matrix_with_pixels_or_of_none(rule, columns, where):
    """Rows that belong to the weights alone are no pixels of an image: it has the columns, if there are several."""
    about = {"h": 32, "i": 7, "k": 5, "e": columns}
    assert outcome(rule, about, where)
    found = conv2d.matches(find_block(by_rule(rule, **about), "Y"))
    image = variables(*found.image.indices) if found is not None else set()
    assert found is None or found.pixels[-1].var.name in image


# Programs, and on which targets the template suits them.
SUITED = [
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 5, "w": 7}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 2, "c": 40, "o": 96, "h": 12, "w": 13}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 2, "c": 40, "o": 96, "h": 12, "w": 13}, ("B",), [True, True, True]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 16, "o": 40, "h": 9, "w": 21}, (), [True, True, True]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 16, "o": 64, "h": 9, "w": 21, "kinds": ("float16", "float16")}, (), [True, True, True]),
    ("nc(2h+r)(2w+q) ocrq -> nohw", {"n": 1, "c": 16, "o": 40, "h": 9, "w": 21}, (), [True, True, True]),
    ("n(h+r)(w+q)c orqc -> nhwo", {"n": 1, "c": 16, "o": 40, "h": 9, "w": 21}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"c": 5, "o": 2}, (), [False, False, False]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"c": 5, "o": 4}, (), [True, False, False]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"c": 5, "o": 8}, (), [True, True, True]),
    ("n(h+r)(w+q)(5(o/16)+c) rqco -> nhwo", {"n": 1, "c": 5, "o": 64, "h": 5, "w": 7}, (), [True, True, True]),
    ("n(h+r)(w+q)(5(o/12)+c) rqco -> nhwo", {"n": 1, "c": 5, "o": 48, "h": 5, "w": 7}, (), [True, True, True]),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 3, "c": 8, "o": 32, "h": 6, "w": 9}, (), [True, True, True]),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 64, "o": 48, "h": 20, "w": 20}, (), [True, True, True]),
    ("nc(w+q) ocq -> now", {"n": 2, "c": 50, "o": 33, "w": 40}, (), [True, True, True]),
    ("n(h+r)(2w+3q)c rqco -> nhwo", {"n": 1, "c": 17, "o": 48, "h": 4, "w": 20}, (), [True, True, True]),
    ("nc(h+z)(w+y) oczy -> nohw", {"n": 1, "c": 70, "o": 64, "h": 9, "w": 9}, (), [True, True, True]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(conv2d, rule, about, constants, suits)
