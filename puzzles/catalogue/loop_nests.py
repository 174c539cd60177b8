"""Puzzles of lessons 1 to 4: the order of loops, blocks and guards, tiles."""

from __future__ import annotations

from ..programs import column_sums, doubled, product, transposed
from ..puzzle import Puzzle, at_least, at_most

PUZZLES = (
    Puzzle(
        name="first-swap",
        lesson=1,
        title="One swap",
        text="The product walks down the columns of B, and each step touches another line. One step mends it.",
        program=lambda: product(16, 16, 16),
        goals=(
            at_most(
                "misses",
                1152,
                missed="A line holds 4 elements of a row. Which loop must be innermost so that B is read row by row?",
            ),
            at_most("taken", 1),
        ),
        hints=("`s.reorder` takes the loops in their new order.", "Along which loop do both B and C go through a row?"),
        start='s.reorder("k", "i", "j")',
        allowed=("reorder",),
    ),
    Puzzle(
        name="column-sums",
        lesson=1,
        title="Sums of columns",
        text="Each sum goes down a column of A. Read every line of A only once.",
        program=lambda: column_sums(16, 16),
        goals=(at_most("misses", 68, missed="A has 64 lines and S has 4. More misses mean that a line was brought again."),),
        hints=("The sums need not be finished one after the other.", "All 16 sums fit into 4 lines: add a row at a time."),
        start='j_0, j_1 = s.split("j", [None, 4])',
    ),
    Puzzle(
        name="keep-it-at-hand",
        lesson=1,
        title="Used at once, used up",
        text="An element of B serves 16 rows of C. Let all its uses follow one another.",
        program=lambda: product(16, 16, 16),
        goals=(
            at_most(
                "distance",
                2,
                "B",
                missed="Between two uses of an element of B other elements come: the loop that changes no index of B must be innermost.",
            ),
        ),
        hints=("B[k, j] does not depend on one of the three loops.", "`i` is the innermost loop."),
        start='s.reorder("i", "k", "j")',
        allowed=("reorder",),
    ),
    Puzzle(
        name="first-split",
        lesson=3,
        title="A split without a rest",
        text="Divide the loop in two so that no iteration needs a condition, and no loop is longer than 13.",
        program=lambda: doubled(26),
        goals=(
            at_most(
                "guards", 0, missed="The inner length does not divide 26, so the last tile needs a condition on its iterations."
            ),
            at_most("length", 13, "serial", missed="A loop is still too long: `split` makes two of one."),
        ),
        hints=('`s.split("i0", [None, n])` makes an inner loop of n iterations.', "26 = 2 × 13."),
        start='s.split("i0", [None, 8])',
        allowed=("split",),
    ),
    Puzzle(
        name="even-shares",
        lesson=3,
        title="Even shares",
        text="Two workers share 7 rows of 13: one gets 3 rows, the other 4. Share the work more evenly.",
        program=lambda: doubled(7, 13),
        goals=(
            at_most("steps", 46, missed="91 elements make a share of at least 46. A share of whole rows or columns has more."),
        ),
        hints=("The shares need not be whole rows.", "`s.fuse` makes one loop of two, and returns its name."),
        start='s.parallel("i0")',
        allowed=("split", "reorder", "fuse", "parallel"),
    ),
    Puzzle(
        name="no-condition",
        lesson=3,
        title="The rest by itself",
        text="Make vectors of 4 columns, though 13 is not a multiple of 4, and leave no condition in the program.",
        program=lambda: product(13, 7, 13),
        goals=(
            at_least("length", 4, "vectorized", missed="No loop of 4 iterations is a vector."),
            at_most("length", 4, "vectorized"),
            at_most("guards", 0, missed="A vector with a condition masks its lanes. Cut the rest off into a loop of its own."),
        ),
        hints=("Read what `tail` does on the page of primitives.", 'With `tail="cut"` the rest is a third loop.'),
        start='j_0, j_1 = s.split("j", [None, 4])\ns.reorder("k", j_1)\ns.vectorize(j_1)',
    ),
    Puzzle(
        name="square-tiles",
        lesson=4,
        title="The largest tile that fits",
        text="Tile all three loops, so that the parts of A, B and C that a tile works on stay in the cache.",
        program=lambda: product(24, 24, 24),
        goals=(
            at_most("misses", 1872, missed="A tile of t × t takes t²/4 lines of each of A, B and C. The cache has 16 lines."),
        ),
        hints=(
            "Split each loop in two; then the three outer loops come first.",
            "Inside a tile, `j` is innermost: rows.",
            "t = 4.",
        ),
        start='i_0, i_1 = s.split("i", [None, 8])\nj_0, j_1 = s.split("j", [None, 8])\nk_0, k_1 = s.split("k", [None, 8])\ns.reorder(i_0, j_0, k_0, i_1, k_1, j_1)',
    ),
    Puzzle(
        name="turned-around",
        lesson=4,
        title="A transpose",
        text="Either A or B is walked by columns, whatever the order of the two loops. Bring every line once all the same.",
        program=lambda: transposed(32, 32),
        goals=(
            at_most(
                "misses", 512, missed="A and B have 256 lines each. A column of 32 elements takes 32 lines, and the cache has 16."
            ),
        ),
        hints=("Work on a tile whose lines of both arrays fit.", "`s.tile(i, j, rows, columns)` is two splits and a reorder."),
        start='i, j = s.get_loops("B")\ns.reorder(j, i)',
    ),
    Puzzle(
        name="flat-tiles",
        lesson=4,
        title="A tile for a long sum",
        text="K is long, M and N are short. Choose rows and columns of a tile whose sums run over all of `k`.",
        program=lambda: product(8, 64, 24),
        goals=(
            at_most(
                "misses",
                1200,
                missed="A step of k takes a line of A for each row of the tile, and a quarter of a line of B for each column.",
            ),
        ),
        hints=("The order is i_0, j_0, k, i_1, j_1.", "4 rows leave 12 lines for B and C."),
        start='i_0, j_0, i_1, j_1 = s.tile("i", "j", 4, 4)\ns.reorder(i_0, j_0, "k", i_1, j_1)',
    ),
)
