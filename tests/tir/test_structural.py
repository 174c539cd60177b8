"""Functions that are the same but for names."""

from __future__ import annotations

import tir
from tir import te
from tir.script import parse


def chain(names: str = "ABCijklm", extent: int = 7, factor: float = 2.0) -> tir.PrimFunc:
    a, b, c, *_ = names
    i, j = names[3], names[4]
    A = te.placeholder((extent, 5), name=a)
    B = te.compute((extent, 5), eval(f"lambda {i}, {j}: A[{i}, {j}] * {factor}", {"A": A}), name=b)
    C = te.compute((extent, 5), eval(f"lambda {j}, {i}: B[{j}, {i}] + 1.0", {"B": B}), name=c)
    return te.create_prim_func([A, C], name=names)


def test_names_do_not_count() -> None:
    assert tir.structural_equal(chain(), chain("XYZabcde"))
    assert chain() != chain("XYZabcde")


def test_a_block_may_be_called_what_a_buffer_is() -> None:
    text = chain().script()
    assert tir.structural_equal(parse(text), parse(text.replace('T.block("B")', 'T.block("D")')))


def test_all_else_counts() -> None:
    assert not tir.structural_equal(chain(), chain(extent=6))
    assert not tir.structural_equal(chain(), chain(factor=3.0))
    s = tir.Schedule(chain())
    s.parallel(s.get_loops("B")[0])
    assert not tir.structural_equal(chain(), s.func)


def test_which_name_is_used_where_counts() -> None:
    A, B = te.placeholder((7,), name="A"), te.placeholder((7,), name="B")
    one = te.create_prim_func([A, B, te.compute((7,), lambda i: A[i] - B[i], name="C")])
    other = te.create_prim_func([B, A, te.compute((7,), lambda i: A[i] - B[i], name="C")])
    assert not tir.structural_equal(one, other)


def annotated(names: str = "ABCijklm", key: str = "A") -> tir.PrimFunc:
    """`chain` with attributes and annotations that name its buffers, loops, blocks and axes; those of `key` name another."""
    a, b, c, i, *_ = names
    s = tir.Schedule(chain(names).with_attr("global_symbol", names).with_attr("constants", [{"A": a, "C": c}[key]]))
    first = s.get_loops(b)[0]
    s.annotate(b, "simplify_const_tensor_indices", [f"v_{i}"])
    s.annotate(c, "non_temporal", c)
    s.annotate(first, "prefetch", [[a, 8]])
    s.annotate(first, "note", {"of": {a: f"{first} below {b}", "steps": 3}, "on": [True, 1.5, None]})
    s.annotate(b, "note", f"{b} is read by {c}")
    return s.func


def test_names_in_attributes_and_annotations_do_not_count() -> None:
    assert tir.structural_equal(annotated(), annotated("XYZabcde"))
    n, size = te.var("n"), te.var("size")
    one, other = (
        te.create_prim_func([A := te.placeholder((m,), name="A"), te.compute((m,), lambda i, A=A: A[i] + 1.0), m])
        for m in (n, size)
    )
    assert tir.structural_equal(one.with_attr("assumed", ["n % 4 == 0"]), other.with_attr("assumed", ["size % 4 == 0"]))
    assert not tir.structural_equal(one.with_attr("assumed", ["n % 4 == 0"]), other.with_attr("assumed", ["size % 8 == 0"]))


def test_what_an_attribute_names_counts() -> None:
    assert not tir.structural_equal(annotated(), annotated("XYZabcde", key="C"))
    assert not tir.structural_equal(chain().with_attr("constants", ["A"]), chain("BACijklm").with_attr("constants", ["A"]))
    assert not tir.structural_equal(chain().with_attr("note", "a"), chain().with_attr("note", "b"))
    assert not tir.structural_equal(chain().with_attr("note", 1), chain().with_attr("note", 2))
