"""Names in scope, and what is known of the variables among them."""

from __future__ import annotations

from tir.ir import Buffer, Const, Var
from tir.script.scopes import Domain, Facts, Scopes

i, n, x = Var("i"), Var("n"), Var("x")


def test_inner_names_hide_outer_and_captured_ones():
    scopes = Scopes({"N": 7, "i": 3})
    scopes.bind("i", i)
    with scopes.inner({"i": x + 1}):
        assert scopes.find("i") == x + 1
        assert scopes.visible() == ["i"]
        assert scopes.here.variables_around() == {"i", "x"}
    assert (scopes.find("i"), scopes.find("N"), scopes.local("N"), scopes.find("j")) == (i, 7, None, None)
    assert scopes.here is scopes.root


def test_the_line_of_an_ended_name_is_that_of_its_last_binding():
    scopes = Scopes({})
    for scopes.line in (3, 5):
        with scopes.inner():
            scopes.bind("y", x)
    assert scopes.ended == {"y": 5}


def test_all_names_of_a_value_are_bound_to_another():
    scopes = Scopes({})
    scopes.bind("s", n)
    with scopes.inner({"t": n, "u": x}):
        scopes.rebind(n, Const(13))
        assert [scopes.find(name) for name in "stu"] == [Const(13), Const(13), x]


def test_a_loop_in_steps_counts_from_0():
    facts = Facts()
    value = facts.running(i, Const(2), Const(7))
    assert (value, facts.ranges["i"]) == (i + 2, (0, 6))
    assert facts.domains[value] == Domain(Const(2), Const(7), i)
    assert str(facts.running(x, Const(2), Const(4), 3)) == "x * 3 + 2"
    assert len(facts.domains) == 1  # T.axis.remap would take a loop in steps for one over all values


def test_what_a_let_is_known_to_be():
    facts = Facts()
    facts.counter("i", Const(7))
    facts.let("x", i * 4)
    facts.let("y", x + 1)
    assert (facts.ranges["y"], facts.lets["y"]) == ((1, 25), i * 4 + 1)
    facts.let("y", Buffer("A", (Const(7),), "int32")[i])  # memory may change
    assert "y" not in facts.lets and "y" not in facts.ranges
    facts.counter("x", Const(2))
    assert "x" not in facts.lets and facts.ranges["x"] == (0, 1)
