"""Longer functions of the same structure."""

from __future__ import annotations

from search.population.enlarge import enlarge
from tests.programs import matmul
from tir import workloads
from tir.arith.symbolic import SymbolicInt, formula
from tir.ir import Buffer, Const, const_shape
from tir.traverse import blocks, loads, loops, rewrite, walk
from tir.verify import verify


def shapes(func) -> dict[str, tuple[int, ...]]:
    return {n.name: const_shape(n) for n in walk(func) if isinstance(n, Buffer)}


def test_what_is_counted_by_an_axis_is_as_long():
    longer = enlarge(matmul(7, 13, 109), {("C", "v_i"): lambda n: max(n, 31)})
    assert shapes(longer) == {"A": (31, 13), "B": (13, 109), "C": (31, 109)}
    assert [x.extent.value for x in loops(longer.body)] == [31, 109, 13]


def test_lengths_remember_those_of_the_function():
    longer = enlarge(matmul(7, 13, 109), {("C", "v_i"): lambda n: max(n, 31)})
    sizes = [x.extent.value for x in loops(longer.body)]
    assert [formula(n) for n in sizes] == [("const", 7), ("const", 109), ("const", 13)]


def test_padding_grows_with_what_reads_it():
    func = workloads.make("conv2d_nhwc", (1, 7, 9, 3, 5, 3, 1, 1)).func
    longer = enlarge(func, {("Y", "v_h"): lambda n: max(n, 40), ("Y", "v_rh"): lambda n: max(n, 11)})
    before, after = shapes(func), shapes(longer)
    assert after["Y"] == (1, 40, 9, 5) and after["K"][0] == 11
    assert after["pad"][1] - before["pad"][1] == (40 - 7) + (11 - 3) == after["X"][1] - before["X"][1]
    assert not verify(rewrite(longer, plain)).findings


def plain(node):
    return Const(int(node.value), node.dtype) if isinstance(node, Const) and isinstance(node.value, SymbolicInt) else None


def test_lengths_that_suit_all_axes_that_are_one():
    func = workloads.make("mlp", (7, 13, 9, 5)).func
    first, *_, last = (b.name for b in blocks(func) if b.is_reduction)
    axis, same = next((a.var.name, b.var.name) for a in block(func, first).iters for b in block(func, last).iters
                      if a.extent == b.extent == Const(9))  # fmt: skip
    longer = enlarge(func, {(first, axis): lambda n: -(-n // 15) * 15, (last, same): lambda n: -(-n // 7) * 7})
    assert next(it.extent.value for it in block(longer, last).iters if it.var.name == same) == 105


def block(func, name):
    return next(b for b in blocks(func) if b.name == name)


def test_a_function_without_wishes_is_itself():
    func = matmul(7, 13, 109)
    assert enlarge(func, {}) is func


def test_an_index_that_counts_down_starts_further_up():
    """The kernel of a transposed convolution is read from its end."""
    func = workloads.make("conv2d_transpose", (1, 3, 5, 7, 18, 4, 2, 1)).func
    longer = enlarge(func, {("Y", "v_rh"): lambda n: max(n, 11)})
    (read,) = (x for x in loads(block(longer, "Y").body) if x.buffer.name == "K")
    assert str(read.indices[0]) == "10 - v_rh" and shapes(longer)["K"] == (11, 4, 7, 18)
    assert [formula(c.value) for c in walk(read.indices[0]) if isinstance(c, Const)] == [("const", 3)]
    assert not verify(rewrite(longer, plain)).findings
