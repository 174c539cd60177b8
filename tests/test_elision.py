"""Dots in scripts stand for the lines that they say, and nothing else."""

import numpy as np
import pytest

from tests.elision import completed, elided

TWO_BLOCKS = """\
for i in range(7):
    with T.block("B"):
        v_i = T.axis.spatial(7, i)
        B[v_i] = A[v_i]
for i in range(7):
    with T.block("C"):
        v_i = T.axis.spatial(7, i)
        C[v_i] = B[v_i]
D[0] = C[0]"""


@pytest.mark.parametrize(("listed", "lines"), [
    ("...", range(9)),
    ("...\nD[0] = C[0]", range(9)),
    ("for i in range(7):\n    ...\nE[0] = 1", [0, 1, 2, 3, "E[0] = 1"]),  # the rest of the loop
    ('with T.block("C"):\n    ...', ['with T.block("C"):', "    v_i = T.axis.spatial(7, i)", "    C[v_i] = B[v_i]"]),
    ('with T.block("C"):\n    v_i = T.axis.spatial(7, i)\n    ...',
     ['with T.block("C"):', "    v_i = T.axis.spatial(7, i)", "    C[v_i] = B[v_i]"]),  # the one of its block, not of `B`
])  # fmt: skip
def test_dots_stand_for_lines_of_the_script_before(listed, lines):
    before = TWO_BLOCKS.split("\n")
    assert completed(listed, TWO_BLOCKS) == "\n".join(before[n] if isinstance(n, int) else n for n in lines)


@pytest.mark.parametrize(("listed", "message"), [
    ("for i in range(8):\n    ...", "the line above a `...` was not there before: for i in range(8):"),
    ("D[0] = C[0]\n...", "`...` stands for nothing below D[0] = C[0]"),
    ("...\n    D[0] = 1\n", "`...` hides what D[0] = 1 is in"),
    ('with T.block("D"):\n    v_i = T.axis.spatial(7, i)\n    ...', "`...` in a block that was not there before"),
])  # fmt: skip
def test_dots_without_lines_of_the_script_before(listed, message):
    with pytest.raises(AssertionError) as caught:
        completed(listed, TWO_BLOCKS)
    assert message in str(caught.value)


@pytest.mark.parametrize("seed", range(50))
def test_what_is_left_out_comes_back(seed):
    """Of nests in which some headers change, lines come and go, and what is in a loop moves by an indentation."""
    rng = np.random.default_rng(seed)

    def nest(depth: int) -> list[str]:
        if depth == 3 or rng.random() < 0.2:
            return [f"x = {rng.integers(3)}" for _ in range(rng.integers(1, 4))]
        header = f'with T.block("{rng.integers(4)}"):' if rng.random() < 0.3 else f"for i in range({rng.integers(3)}):"
        return [line for _ in range(rng.integers(1, 3)) for line in (header, *("    " + x for x in nest(depth + 1)))]

    before = [line for _ in range(3) for line in nest(0)]
    after = ["for o in range(2):", *("    " + x if rng.random() < 0.97 else "    y = 1" for x in before)]
    for script in (before, after, [x for x in before if rng.random() < 0.9]):
        short = elided("\n".join(script), "\n".join(before))
        assert completed(short, "\n".join(before)) == "\n".join(script)
        assert len(short.splitlines()) <= len(script)
    assert elided("\n".join(before), "\n".join(before)) == "..."
