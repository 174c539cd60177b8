"""Puzzles of lessons 5 and 8: lanes, workers, registers, the inner loop of the machine code."""

from __future__ import annotations

from ..programs import product, total
from ..puzzle import Puzzle, at_least, at_most

TILE = 'i_0, i_1 = s.split("i", [None, {}])\nj_0, j_1 = s.split("j", [None, {}])\ns.reorder(i_0, j_0, "k", i_1, j_1)\n'

PUZZLES = (
    Puzzle(
        name="sixteen-lanes",
        lesson=5,
        title="Sixteen at once",
        text="Let 16 iterations be one step.",
        program=lambda: product(16, 16, 16),
        goals=(
            at_most(
                "steps",
                272,
                missed="16 rows of C are set in 16 steps, and 256 additions of 16 lanes follow; a vector must be innermost.",
            ),
        ),
        hints=("Which loop may be a vector? Not the one that adds.", "`k` must not be inside the vector: reorder first."),
        start='s.reorder("i", "k", "j")',
        allowed=("reorder", "vectorize"),
    ),
    Puzzle(
        name="two-workers",
        lesson=5,
        title="And two of them",
        text="Now two workers, each with vectors.",
        program=lambda: product(16, 16, 16),
        goals=(at_most("steps", 136, missed="Half of 272: both workers must have vectors, and equal shares."),),
        hints=("`s.parallel` shares the iterations of a loop.", "The outermost loop is shared, the innermost is the vector."),
        start='s.reorder("i", "k", "j")\ns.vectorize("j")',
    ),
    Puzzle(
        name="lanes-of-a-sum",
        lesson=5,
        title="The lanes of one sum",
        text="One sum over 256 elements, each addition after the one before. Give the lanes partial sums of their own.",
        program=lambda: total(256),
        goals=(
            at_most(
                "steps",
                34,
                missed="L lanes need 256 / L additions, one step to begin, and L + 1 to add up the lanes. Which L is best?",
            ),
        ),
        hints=(
            "`s.rfactor(loop)` gives each iteration of a loop a partial sum.",
            "Split `k` first; the inner loop is that of the lanes.",
            "16 lanes.",
        ),
        start='_, lane = s.split("k", [None, 8])\ns.rfactor(lane)\ns.vectorize(lane)',
    ),
    Puzzle(
        name="register-tile",
        lesson=5,
        title="Full registers",
        text="The processor has 16 registers of 8 lanes. Keep sums in them, so many that no cycle is lost.",
        program=lambda: product(48, 64, 48),
        goals=(
            at_least(
                "peak",
                100,
                missed="The core begins two multiply-adds a cycle, and each takes 4 cycles: fewer than 8 sums leave it waiting. Whatever else is loaded or moved takes cycles, too.",
            ),
            at_most("spills", 0, missed="The sums, a row of B and an element of A need more registers than there are."),
        ),
        hints=(
            "A tile of rows by columns; the rows are unrolled, the columns are vectors.",
            "`k` runs around the tile.",
            "6 rows by 16 columns.",
        ),
        start=TILE.format(8, 16) + "s.unroll(i_1)\ns.vectorize(j_1)",
    ),
    Puzzle(
        name="few-operands",
        lesson=5,
        title="The shape of the tile",
        text="Eight sums in registers, in a tile of any shape. Which shape loads least?",
        program=lambda: product(48, 64, 64),
        goals=(
            at_least("fma", 8, missed="The tile has fewer than eight vectors of sums."),
            at_most(
                "operands", 6, missed="A row costs a broadcast of A, a vector of columns a load of B: R + V, where R · V is 8."
            ),
            at_most("spills", 0),
        ),
        hints=("Count for 8 rows by 1 vector, then for 4 by 2.",),
        start=TILE.format(8, 8) + "s.unroll(i_1)\ns.vectorize(j_1)",
    ),
    Puzzle(
        name="unrolled-sum",
        lesson=8,
        title="Less around the work",
        text="An iteration of the scalar loop has 6 instructions, one of them a multiply-add. Without vectors, let a third be.",
        program=lambda: product(48, 64, 48),
        goals=(
            at_least(
                "fma", 4, missed="A loop of its own counts and jumps as often as before. Its iterations must be written out."
            ),
            at_most("instructions", 13),
        ),
        hints=("Counting and jumping is needed once for several iterations.", "Split `k`, and unroll the inner part."),
        start='k_0, k_1 = s.split("k", [None, 4])',
        allowed=("split", "reorder", "unroll"),
    ),
    Puzzle(
        name="nothing-stored",
        lesson=8,
        title="Sums that stay",
        text="The tile is right, yet each multiply-add loads C and stores it. Make the sums stay in registers.",
        program=lambda: product(48, 64, 48),
        goals=(
            at_least(
                "fma",
                8,
                missed="The rows of the tile are a loop: LLVM sees one row at a time, and its sums go to memory and back.",
            ),
            at_most("instructions", 18),
        ),
        hints=("Which primitive writes the rows of a tile out?",),
        start=TILE.format(4, 16) + "s.vectorize(j_1)",
    ),
    Puzzle(
        name="registers-to-spare",
        lesson=8,
        title="Registers to spare",
        text="A tile of 6 × 16 reaches the peak with 15 registers. Reach it with 13.",
        program=lambda: product(48, 64, 48),
        goals=(
            at_least(
                "peak",
                100,
                missed="An operand is loaded for each row and for each vector of columns, and the core issues only so many instructions a cycle.",
            ),
            at_most(
                "registers", 13, missed="R rows by V vectors take R · V sums, and registers for a row of B and an element of A."
            ),
        ),
        hints=(
            "At least 8 sums are needed, 12 are more than that.",
            "Count R · V + V + 1 for several shapes.",
            "3 rows by 24 columns.",
        ),
        start=TILE.format(6, 16) + "s.unroll(i_1)\ns.vectorize(j_1)",
    ),
    Puzzle(
        name="packed-product",
        lesson=8,
        title="A packed product",
        text="What libraries of products do: B is copied once, tile by tile, into the order of reading, and a register tile works on it. The copy is called B_global.",
        program=lambda: product(24, 24, 48),
        goals=(
            at_least("peak", 100, missed="The register tile does not reach the peak: see the puzzle register-tile."),
            at_most(
                "loads",
                24 * 48,
                "B",
                missed="B is read again for each tile of rows. A copy in the order of the tiles reads it once.",
            ),
            at_most(
                "leaps",
                24,
                "B_global",
                missed="The copy has the layout of B: from one k to the next the tile leaps over a whole row. `s.pack` lays out a tile after the other.",
            ),
        ),
        hints=(
            "Begin with a tile that solves register-tile.",
            "`s.pack(block, operand)` makes the copy; operand 1 is B.",
        ),
        start=TILE.format(6, 16) + "s.unroll(i_1)\ns.vectorize(j_1)",
    ),
)
