"""Substitution of loop variables: what is proved of the variables that stay."""

from schedule.rewriting.loops import substitute_loops
from tir.ir import TRUE, Binary, Block, Buffer, Const, For, Store, Var

I, J, K = Var("i"), Var("j"), Var("k")
A = Buffer("A", (Const(13),), "int32")


def guarded(predicate) -> Block:
    return Block("B", (), Store(A, (Const(0),), Const(0)), None, predicate)


def substituted(predicate, mapping) -> Block:
    block = guarded(predicate)
    return substitute_loops(block, mapping, [For(I, Const(7), block), For(K, Const(5), block)])


def test_a_variable_that_stays_and_is_brought_in_is_one():
    assert substituted(I < J, {"j": I + 1}).predicate == TRUE
    assert substituted(I + K < J + 5, {"j": I}).predicate == TRUE


def test_variables_that_stay_get_their_names_back():
    assert substituted(J + K < 7, {"j": I}).predicate == (I + K < 7)
    assert substituted(J < I + K, {"j": Const(3)}).predicate == Binary("<", Const(3), I + K)
