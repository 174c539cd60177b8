"""Puzzles of lesson 6: where a value lives, and when it is made."""

from __future__ import annotations

from ..programs import chain, neighbours, product, product_relu
from ..puzzle import Puzzle, at_most

PUZZLES = (
    Puzzle(
        name="nowhere",
        lesson=6,
        title="No place at all",
        text="Four small steps, three temporaries. None is needed.",
        program=lambda: chain(16, 16),
        goals=(
            at_most(
                "temporaries", 0, missed="A temporary that each element uses once may become part of the formula of its reader."
            ),
        ),
        hints=("`s.compute_inline(block)` puts the formula of a block into its readers.", "Y is what the caller gets: it stays."),
        start='s.compute_inline("A")',
    ),
    Puzzle(
        name="one-row",
        lesson=6,
        title="Clip a row as it is done",
        text="D clips C. Clip each row while it is in the cache, and keep only one row of C.",
        program=lambda: product_relu(16, 16, 16),
        goals=(
            at_most("temporaries", 64, missed="C is kept whole until the product is done."),
            at_most("misses", 1156, missed="The product itself walks down columns: see the first puzzle."),
        ),
        hints=(
            "`s.reverse_compute_at` moves a reader into a loop of its producer.",
            "A row is done when `k` is done: `i` is the loop.",
        ),
        start='s.reverse_compute_at("D", "i")',
    ),
    Puzzle(
        name="rolling-rows",
        lesson=6,
        title="Rows that roll",
        text="Y adds three rows of exponentials. Take each exponential once, and keep three rows, not all 34.",
        program=lambda: neighbours(32),
        goals=(
            at_most(
                "loads",
                1088,
                "X",
                missed="There are 34 · 32 = 1088 elements of X; more loads mean exponentials that are taken again.",
            ),
            at_most("temporaries", 384, missed="Three rows of 32 floats are 384 bytes."),
        ),
        hints=("Compute E at a row of Y.", "Two of the three rows were there in the last iteration: `s.rolling_buffer`."),
        start='i, j = s.get_loops("Y")\ns.compute_at("E", i)',
    ),
    Puzzle(
        name="narrow-strips",
        lesson=6,
        title="Rolling in strips",
        text="Three whole rows do not fit into the cache. Roll through strips of columns, so that they do.",
        program=lambda: neighbours(32),
        goals=(
            at_most("loads", 1088, "X", missed="Exponentials are taken again."),
            at_most(
                "misses", 552, missed="X has 272 lines, and Y has 256: little may be missed besides. How wide may a strip be?"
            ),
        ),
        hints=("Split `j` of Y, and let the strips be the outermost loop.", "Then compute E at `i`, and roll.", "4 columns."),
        start='i, j = s.get_loops("Y")\ns.compute_at("E", i)\ns.rolling_buffer("E", 0)',
    ),
    Puzzle(
        name="small-tile",
        lesson=6,
        title="A tile of exponentials",
        text="Keep at most 24 exponentials at a time, and miss at most 650 times.",
        program=lambda: neighbours(32),
        goals=(
            at_most("temporaries", 96, missed="At a row of Y three rows of E are needed: 96 elements, 384 bytes."),
            at_most("misses", 650),
        ),
        hints=(
            "Tile Y first.",
            "A tile of 4 × 4 of Y needs 6 × 4 of E.",
            "Compute E at the inner one of the two loops over tiles.",
        ),
        start='i, j = s.get_loops("Y")\ns.compute_at("E", i)',
    ),
    Puzzle(
        name="store-once",
        lesson=6,
        title="Store each sum once",
        text="C is stored after each addition. Add up in one element beside it, and store the sum.",
        program=lambda: product(16, 16, 16),
        goals=(
            at_most("stores", 256, "C", missed="C has 256 elements."),
            at_most("temporaries", 4, missed="The sums of a whole row wait for their copy: move it one loop further in."),
        ),
        hints=("`s.cache_write` makes the place beside C, and a copy to C.", "`s.reverse_compute_at` moves the copy."),
        start='copy = s.cache_write("C", 0, "local")\ns.reverse_compute_at(copy, "i")',
    ),
    Puzzle(
        name="column-at-hand",
        lesson=6,
        title="A column at hand",
        text="Columns of B are walked down 16 times each. Copy each column once into 4 lines.",
        program=lambda: product(16, 16, 16),
        goals=(
            at_most("loads", 256, "B", missed="B has 256 elements: each is read once, by the copy."),
            at_most("temporaries", 64, missed="The copy holds more than a column: compute it inside the loop over columns."),
            at_most("misses", 1600, missed="The copy helps only while it is used: columns must be the outermost loop."),
        ),
        hints=(
            '`s.cache_read(block, operand, "global")` makes a copy; B is operand 1.',
            "`s.reorder` first, then `s.compute_at(copy, ...)`.",
        ),
        start='copy = s.cache_read("C", 1, "global")\ns.reorder("j", "i", "k")',
    ),
)
