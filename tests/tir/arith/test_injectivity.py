"""What the values of expressions determine, compared with all values of their variables."""

from __future__ import annotations

import numpy as np

from tir.arith.injectivity import counts_once, determined, tried_injective
from tir.arith.polynomial import polynomial
from tir.arith.simplify import simplify
from tir.ir import NOTHING, Axis, Block, Const, For, Iter, Var


def test_determined_by_brute_force() -> None:
    """Whatever `determined` claims holds for all values; and it finds what mixed radix and divisions with remainder give."""
    rng = np.random.default_rng(0)
    a, b, c = Var("a"), Var("b"), Var("c")
    sizes = {"a": 5, "b": 4, "c": 3}
    ranges = {n: (0, s - 1) for n, s in sizes.items()}
    values = dict(zip(sizes, np.indices(tuple(sizes.values())).reshape(3, -1), strict=True))

    def evaluate(e):
        return eval(str(e), {}, values) + 0 * values["a"]

    claims = 0
    for _ in range(300):
        expressions = []
        for _ in range(rng.integers(1, 4)):
            e = (
                a * int(rng.integers(-12, 13))
                + b * int(rng.integers(-4, 5))
                + c * int(rng.integers(-2, 3))
                + int(rng.integers(-3, 4))
            )
            match rng.integers(3):
                case 0:
                    e = e // int(rng.integers(1, 7))
                case 1:
                    e = e % int(rng.integers(1, 7))
            expressions.append(e)
        found = determined([polynomial(simplify(e, ranges)) for e in expressions], set(), ranges)
        key = np.stack([evaluate(e) for e in expressions], axis=1)
        group = np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)
        for name in found:
            claims += 1
            for g in np.unique(group):
                assert len(np.unique(values[name][group == g])) == 1, (name, [str(e) for e in expressions])
    assert claims > 100
    wide = {"f": (0, 10**9)}
    f = Var("f")
    for parts in ((f // 13, f % 13), (f // 91, f // 13 % 7, f % 13), (f // 4 * 7 + (f % 4), f % 4)):
        assert determined([polynomial(simplify(e, wide)) for e in parts], set(), wide) == {"f"}, parts
    assert determined([polynomial(f // 13), polynomial(f % 12)], set(), wide) == set()


def test_loops_outside_are_not_taken_to_be_at_0() -> None:
    """The values of `i * (1 - o)` differ in the first iteration of `o` only."""
    i, o, v = Var("i"), Var("o"), Var("v")
    for binding, once in ((i - i * o, False), (i + i * o, False), ((i * 3 + o * 7) % 5, False), (i * 3 % 7 + o * 7, True)):
        block = Block("B", (Iter(v, Const(35), Axis.SPATIAL, binding),), NOTHING)
        assert counts_once(block, [For(i, Const(5), block)], Axis.SPATIAL) is once


def test_injectivity_by_brute_force() -> None:
    """Exactly where iterations that differ in some loops differ in places; algebra finds some, enumeration the others."""
    rng = np.random.default_rng(1)
    sizes = {"a": 5, "b": 4, "c": 3, "o": 2}
    loops = [For(Var(name), Const(size), NOTHING) for name, size in sizes.items()]
    points = np.indices(tuple(sizes.values())).reshape(4, -1)
    values = dict(zip(sizes, points, strict=True))
    answers = []
    for _ in range(400):
        places = []
        for _ in range(rng.integers(1, 4)):
            a, b, c, o = (Var(name) * int(rng.integers(-12, 13)) for name in sizes)
            e = a + b + c + (o if rng.random() < 0.5 else Var("o") * Var("a"))
            match rng.integers(4):
                case 0:
                    e = e // int(rng.integers(1, 7))
                case 1:
                    e = e % int(rng.integers(1, 37))
            places.append(e)
        names = set(rng.choice(["a", "b", "c"], rng.integers(1, 3), replace=False).tolist())
        at = np.stack([*(eval(str(e), {}, values) + 0 * values["o"] for e in places), values["o"]])
        kept = np.stack([values[name] for name in sorted(names)])
        both = np.unique(np.concatenate([at, kept]), axis=1).shape[1]
        answers.append(both == np.unique(at, axis=1).shape[1])
        assert tried_injective(names, {"a", "b", "c"}, places, loops) == answers[-1], (names, [str(e) for e in places])
    assert 40 < sum(answers) < 360
