"""Packing: every way to read an operand that a branch offers, where its copy is, and that it computes the same."""

from __future__ import annotations

import pytest

from tests.codegen.harness import ONE, TWO, same
from tests.schedule.templates.patterns import TARGETS, by_rule, planned, relu, scheduled

WAYS = [
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver2", {"pack A for Y": "by rows"},
     "Y: packing | B_global ..v, A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver2", {"pack A for Y": "by tiles"},
     "Y: packing | B_global ..v, A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver2", {"pack B for Y": "as it is"},
     "Y: packing | Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver2", {"Y unroll": 0},
     "Y: packing | B_global ..v, Y ...uv | pragma_auto_unroll_max_step=0"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver2", {"Y unroll": 16},
     "Y: packing | B_global ..v, Y ...uv | pragma_auto_unroll_max_step=16"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver2", {"Y unroll": 512},
     "Y: packing | B_global ..v, Y ...uv | pragma_auto_unroll_max_step=512"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver4", {"pack A for Y": "by rows"},
     "Y: packing | A_global p.v, Y p..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver4", {"pack A for Y": "by tiles"},
     "Y: packing | A_global p.v, Y p..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver4", {"pack B for Y": "in front"},
     "Y: packing | B_global .v, Y p..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver4", {"Y unroll": 0},
     "Y: packing | Y p..uv | pragma_auto_unroll_max_step=0"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver4", {"Y unroll": 16},
     "Y: packing | Y p..uv | pragma_auto_unroll_max_step=16"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver4", {"Y unroll": 512},
     "Y: packing | Y p..uv | pragma_auto_unroll_max_step=512"),
    ("ik kj -> ij", {"i": 33, "j": 40, "k": 64}, "znver4", {"Y vectors": "half registers"},
     "Y: packing | Y p..uuv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 17, "j": 40, "k": 33, "after": relu}, "znver2", {"pack A for Y": "by rows"},
     "Y: packing | B_global ..uv, A_global ..v, Y ...uv, Z ...v | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 17, "j": 40, "k": 33, "after": relu}, "znver2", {"pack A for Y": "by tiles"},
     "Y: packing | B_global ..uv, A_global ..v, Y ...uv, Z ...v | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 17, "j": 40, "k": 33, "after": relu}, "znver4", {"pack A for Y": "by rows"},
     "Y: packing | B_global ..uv, A_global p.v, Y p.uv, Z p.v | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 17, "j": 40, "k": 33, "after": relu}, "znver4", {"pack A for Y": "by tiles"},
     "Y: packing | B_global ..uv, A_global p.v, Y p.uv, Z p.v | pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 40, "j": 40, "k": 24}, "znver2", {"pack A for Y": "by tiles"},
     "Y: packing | A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 40, "j": 40, "k": 24}, "znver2", {"pack B for Y": "in front"},
     "Y: packing | B_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 40, "j": 40, "k": 24}, "znver4", {"pack A for Y": "by tiles"},
     "Y: packing | A_global p.v, Y p..uv | pragma_auto_unroll_max_step=64"),
    ("ki kj -> ij", {"i": 40, "j": 40, "k": 24}, "znver4", {"pack B for Y": "in front"},
     "Y: packing | B_global .v, Y p..uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver2", {"pack A for Y": "as it is"},
     "Y: packing | Y ...uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver2", {"pack A for Y": "by tiles"},
     "Y: packing | A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver2", {"pack B for Y": "in front"},
     "Y: packing | B_global ...v, A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver2", {"pack B for Y": "at its panels"},
     "Y: packing | B_global ...v, A_global ..v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver4", {"pack A for Y": "by rows"},
     "Y: packing | A_global p.v, Y p.uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver4", {"pack A for Y": "by tiles"},
     "Y: packing | A_global p.v, Y p.uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver4", {"pack B for Y": "in front"},
     "Y: packing | B_global p.v, Y p.uv | pragma_auto_unroll_max_step=64"),
    ("bik bkj -> bij", {"b": 4, "i": 9, "j": 40, "k": 12}, "znver4", {"pack B for Y": "at its panels"},
     "Y: packing | Y p.uv | pragma_auto_unroll_max_step=64"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 3, "w": 7}, "znver2", {"template of Y": "direct convolution", "pack B for Y": "as it is"},
     "Y: direct convolution | Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 3, "w": 7}, "znver2", {"template of Y": "direct convolution", "pack B for Y": "in front"},
     "Y: direct convolution | B_global ...v, Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 3, "w": 7}, "znver4", {"template of Y": "direct convolution", "pack B for Y": "as it is"},
     "Y: direct convolution | Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c rqco -> nhwo", {"n": 1, "c": 3, "o": 32, "h": 3, "w": 7}, "znver4", {"template of Y": "direct convolution", "pack B for Y": "at its panels"},
     "Y: direct convolution | Y p...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c orqc -> nhwo", {"n": 1, "c": 16, "o": 32, "h": 1, "w": 7}, "znver2", {"template of Y": "direct convolution", "pack B for Y": "in front"},
     "Y: direct convolution | B_global ....u, Y .....uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("n(h+r)(w+q)c orqc -> nhwo", {"n": 1, "c": 16, "o": 32, "h": 1, "w": 7}, "znver4", {"template of Y": "direct convolution", "pack B for Y": "at its panels"},
     "Y: direct convolution | B_global p.u, Y ...uv | pragma_auto_unroll_max_step=64, in_order=True"),
    ("ik kj -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16")}, "znver2", {"pack A for Y": "as it is"},
     "Y: packing | Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16")}, "znver2", {"pack A for Y": "by tiles"},
     "Y: packing | A_global .v, Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16")}, "znver2", {"pack B for Y": "in front"},
     "Y: packing | B_global ..v, A_global .v, Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16")}, "znver4", {"pack A for Y": "by rows"},
     "Y: packing | A_global .v, Y .uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16")}, "znver4", {"pack A for Y": "by tiles"},
     "Y: packing | A_global .v, Y .uv | pragma_auto_unroll_max_step=64"),
    ("ik kj -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16")}, "znver4", {"pack B for Y": "in front"},
     "Y: packing | B_global .v, Y .uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16"), "constants": ["B"]}, "znver2", {"pack A for Y": "as it is"},
     "Y: packing | B_global ..uv, Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16"), "constants": ["B"]}, "znver2", {"pack A for Y": "by tiles"},
     "Y: packing | B_global ..uv, A_global .v, Y ..uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16"), "constants": ["B"]}, "znver4", {"pack A for Y": "by rows"},
     "Y: packing | B_global .u, A_global .v, Y .uv | pragma_auto_unroll_max_step=64"),
    ("ik jk -> ij", {"i": 9, "j": 40, "k": 12, "kinds": ("float16", "float16"), "constants": ["B"]}, "znver4", {"pack A for Y": "by tiles"},
     "Y: packing | B_global .u, A_global .v, Y .uv | pragma_auto_unroll_max_step=64"),
    ("ikr jkr -> ij", {"i": 9, "j": 16, "k": 8, "r": 3}, "znver2", {"pack A for Y": "by rows"},
     "Y: packing | B_global ..uv, A_global ...v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ikr jkr -> ij", {"i": 9, "j": 16, "k": 8, "r": 3}, "znver2", {"pack A for Y": "by tiles"},
     "Y: packing | B_global ..uv, A_global ...v, Y ...uv | pragma_auto_unroll_max_step=64"),
    ("ikr jkr -> ij", {"i": 9, "j": 16, "k": 8, "r": 3}, "znver4", {"pack A for Y": "by rows"},
     "Y: packing | A_global p.v, Y ...."),
    ("ikr jkr -> ij", {"i": 9, "j": 16, "k": 8, "r": 3}, "znver4", {"pack A for Y": "by tiles"},
     "Y: packing | A_global p.v, Y ...."),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 2, "c": 3, "o": 16, "h": 3, "w": 7}, "znver2", {"template of Y": "direct convolution", "pack B for Y": "in front"},
     "Y: direct convolution | B_global ...uv, Y ......uv, Y_global ...uv | pragma_auto_unroll_max_step=64, "
     "in_order=True"),
    ("ngc(h+r)(w+q) gocrq -> ngohw", {"n": 1, "g": 2, "c": 3, "o": 16, "h": 3, "w": 7}, "znver4", {"template of Y": "direct convolution", "pack B for Y": "in front"},
     "Y: direct convolution | B_global p.u, Y p....uv, Y_global p.uv | pragma_auto_unroll_max_step=64, in_order=True"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "target", "decisions", "expected"), WAYS)
def test_each_way(rule, about, target, decisions, expected):
    func = by_rule(rule, **about)
    assert planned(func, target, decisions) == expected
    if "kinds" in about or "ik jk" in rule:  # conversions and transposes move elements
        same(scheduled(func, TARGETS[target], decisions).func, targets=(ONE if target == "znver2" else TWO,), reference=func)


@pytest.mark.parametrize("target", ["znver2", "znver4"])
@pytest.mark.parametrize(("rule", "transposed"), [("ik kj -> ij", False), ("ik jk -> ij", True)])
def test_vectors_are_not_gathered(rule, transposed, target):
    """A transposed operand is read from a copy alone."""
    found = scheduled(by_rule(rule, i=17, j=40, k=33), TARGETS[target], {}).alternatives
    ways = {option for name, about in found.items() if name == "pack B for Y" for option in about.options}
    taken = "B_global" not in planned(by_rule(rule, i=17, j=40, k=33), target)
    assert ("as it is" in ways or taken) != transposed
