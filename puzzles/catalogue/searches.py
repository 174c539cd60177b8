"""Puzzles of lessons 9 to 12: what rules make of a program, and what a cost model sees of it."""

from __future__ import annotations

from ..programs import product, total
from ..puzzle import Puzzle, at_least, at_most
from .cores import TILE

PUZZLES = (
    Puzzle(
        name="nine-sketches",
        lesson=9,
        title="More for the rules",
        text="The rules of the paper make three sketches of this sum. Take a step after which they make nine.",
        program=lambda: total(256),
        goals=(
            at_least(
                "sketches",
                9,
                "ansor",
                missed="Each block has its own choices. A rule does not touch a block whose loops are split already.",
            ),
        ),
        hints=("Three choices for one block: how many for two?", "Which primitive makes two sums of one?"),
        start='k_0, k_1 = s.split("k", [None, 16])',
    ),
    Puzzle(
        name="seen-strides",
        lesson=11,
        title="What a vector steps over",
        text="The model sees how far apart the lanes of a vector are. Make vectors for which no operand is more than one element.",
        program=lambda: product(48, 64, 48),
        goals=(
            at_least("length", 8, "vectorized", missed="There is no vector."),
            at_most("feature", 1, "B0.stride"),
            at_most("feature", 1, "B1.stride", missed="The lanes of an operand are a row apart: each is a load of its own."),
            at_most("feature", 1, "B2.stride", missed="The lanes of an operand are a row apart: each is a load of its own."),
        ),
        hints=("Vectors along `i` step from row to row.", "Along `j`, A does not move at all: stride 0."),
        start='s.reorder("k", "j", "i")\ns.vectorize("i")',
    ),
    Puzzle(
        name="seen-registers",
        lesson=11,
        title="What the model sees of a tile",
        text="The features of a register tile: its sums, and the loads that they share. Get 12 for 8.",
        program=lambda: product(48, 64, 48),
        goals=(
            at_least("feature", 12, "accumulators", missed="The sums of the tile, in vectors of 8 lanes."),
            at_most("feature", 8, "register_loads", missed="Rows and vectors of columns: R + V, where R · V is 12."),
        ),
        hints=("12 = 12 · 1 = 6 · 2 = 4 · 3. Which sum is least?",),
        start=TILE.format(12, 8) + "s.unroll(i_1)\ns.vectorize(j_1)",
    ),
    Puzzle(
        name="empty-lanes",
        lesson=11,
        title="Empty lanes",
        text="Tiles of 12 columns leave lanes of 8 empty. Change the tile so that none is.",
        program=lambda: product(48, 64, 48),
        goals=(
            at_least("length", 8, "vectorized", missed="There is no vector."),
            at_most("feature", 1, "lane_waste", missed="12 columns take two vectors of 8: 16 lanes for 12 elements."),
            at_most("guards", 0, missed="The tile does not divide the columns, and the last has a condition."),
        ),
        hints=("The columns of a tile are a multiple of 8 that divides 48.",),
        start=TILE.format(4, 12) + "s.unroll(i_1)\ns.vectorize(j_1)",
    ),
)
