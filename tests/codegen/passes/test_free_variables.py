"""The parts of a statement that use a buffer, and the ranges of scalar parameters."""

from codegen.passes.free_variables import scalar_ranges, statements_using
from tests.schedule.legality.nests import loops, stored
from tir.ir import Buffer, Const, Var, nest, seq

X, Y = (Buffer(name, (Const(9),)) for name in "XY")


def test_statements_that_use_a_buffer():
    use, other = stored(X, 0, value=Y[1]), stored(Y, 2)
    assert statements_using(nest(loops(i=9), seq(other, use, other)), "X") == nest(loops(i=9), use)
    assert statements_using(seq(other, other), "X") == seq(other, other)


def test_extents_are_not_negative():
    n, m = Var("n"), Var("m", "int8")
    assert scalar_ranges([Buffer("Z", (n, Const(3))), n, m]) == {"n": (0, 2**31 - 1), "m": (-128, 127)}
