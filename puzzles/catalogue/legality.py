"""Puzzles of lesson 7: what is refused and why, and moves that look illegal and are not."""

from __future__ import annotations

from ..programs import layers, neighbours, product, statement
from ..puzzle import Puzzle, at_most

PUZZLES = (
    Puzzle(
        name="two-that-collide",
        lesson=7,
        title="Two iterations that collide",
        text="Find a step that the compiler refuses with a witness: two iterations, one of which reads what the other writes.",
        program=lambda: statement("A[i + 1, j] = A[i, j + 1] + 1.0", "(7, 13)", 6, 12),
        refusal="witness: i = 0 writes A[1, 1], i = 1 reads it",
        hints=("Which loop carries a value from one iteration to the next?", "Ask for its iterations at once: `s.parallel`."),
        start='s.reorder("j", "i")',
    ),
    Puzzle(
        name="looks-illegal",
        lesson=7,
        title="It reads its neighbour",
        text="Each element is made of one beside it, in the same array. Run it in 6 steps.",
        program=lambda: statement("A[i + 1, j] = A[i, j + 1] + 1.0", "(7, 13)", 6, 12),
        goals=(at_most("steps", 6, missed="6 · 12 iterations in 6 steps: 12 lanes."),),
        hints=(
            "The neighbour is in the row before. Which iterations share a row?",
            "Within one `i`, no iteration of `j` needs another.",
        ),
        start='s.parallel("j")',
    ),
    Puzzle(
        name="four-at-a-time",
        lesson=7,
        title="Four at a time",
        text="Iteration i + 4 reads what iteration i has written, so the loop is no vector. A part of it is.",
        program=lambda: statement("A[i + 4] = A[i] + 1.0", "(36,)", 32),
        goals=(at_most("steps", 8, missed="32 iterations in 8 steps."),),
        hints=("How many iterations in a row do not touch one another?", "Split first."),
        start='i_0, i_1 = s.split("i", [None, 2])\ns.vectorize(i_1)',
    ),
    Puzzle(
        name="the-other-loop",
        lesson=7,
        title="Across the chain",
        text="Along `j` each element waits for the one before. Make 8 lanes all the same.",
        program=lambda: statement("A[i, j + 1] = A[i, j] + 1.0", "(8, 17)", 8, 16),
        goals=(at_most("steps", 16, missed="128 iterations in 16 steps: 8 lanes."),),
        hints=("The rows are independent of each other.", "A vector is innermost; may the loops be exchanged?"),
        start='s.parallel("i")',
    ),
    Puzzle(
        name="diagonal-chain",
        lesson=7,
        title="Which exchange?",
        text="Each element waits for the one above and to the left. Run the nest in 8 steps.",
        program=lambda: statement("A[i + 1, j + 1] = A[i, j] + 1.0", "(9, 17)", 8, 16),
        goals=(at_most("steps", 8, missed="128 iterations in 8 steps: 16 lanes."),),
        hints=("Within one row nothing waits.",),
        start='s.reorder("j", "i")\ns.vectorize("i")',
    ),
    Puzzle(
        name="a-lost-addition",
        lesson=7,
        title="A lost addition",
        text="Two iterations that add to one element at once would lose an addition. Make the compiler say so, and say the remedy.",
        program=lambda: product(16, 16, 16),
        refusal="hint: rfactor('k', 0) gives each iteration its own partial result",
        hints=("Which loop adds?", "`s.parallel` of it."),
        start='s.parallel("j")',
    ),
    Puzzle(
        name="not-final",
        lesson=7,
        title="Clipped too early",
        text="R clips the sums of H. Make the compiler refuse to clip each sum as it is stored, and say why.",
        program=lambda: layers(12),
        refusal="its result is not final where it is stored",
        hints=("There is an inline in the other direction.",),
        start='s.compute_inline("R")',
    ),
    Puzzle(
        name="not-finished-yet",
        lesson=7,
        title="Rows that are not there yet",
        text="Y needs three rows of E. Make the compiler say that they are not finished where you want to use them.",
        program=lambda: neighbours(16),
        refusal="are not finished in the same windows",
        hints=("Move the reader into a loop of its producer.",),
        start='i, j = s.get_loops("Y")\ns.compute_at("E", i)',
    ),
)
