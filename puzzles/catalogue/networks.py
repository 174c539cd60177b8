"""Puzzles of lessons 13 and 15: two layers of a network, and threads of a GPU."""

from __future__ import annotations

from ..programs import chain, doubled, layers, product
from ..puzzle import Puzzle, at_least, at_most

BLOCKS = """\
i_0, i_1 = s.split("i", [None, 8])
j_0, j_1 = s.split("j", [None, 8])
k_0, k_1 = s.split("k", [None, 8])
s.reorder(i_0, j_0, k_0, i_1, j_1, k_1)
s.bind(i_0, "blockIdx.y")
s.bind(j_0, "blockIdx.x")
s.bind(i_1, "threadIdx.y")
s.bind(j_1, "threadIdx.x")
"""

PUZZLES = (
    Puzzle(
        name="two-layers",
        lesson=13,
        title="Two layers, one row",
        text="Between two layers of a network lie two whole arrays. Keep one row, and compute nothing twice.",
        program=lambda: layers(12),
        goals=(
            at_most("temporaries", 48, missed="A row of 12 floats is 48 bytes."),
            at_most(
                "loads",
                12**3,
                "X",
                missed="The first layer is computed again for each element of the second: move it one loop out.",
            ),
        ),
        hints=("R is a formula: inline it.", "A row of the second layer needs a row of the first: `s.compute_at`."),
        start='s.compute_inline("R")\ni, j, m = s.get_loops("Z")\ns.compute_at("H", j)',
    ),
    Puzzle(
        name="bytes-between",
        lesson=13,
        title="What a network moves",
        text="The weights do not fit into the cache, and each row of X brings all of them again. Bring them for several rows at once.",
        program=lambda: layers(12),
        goals=(
            at_most(
                "misses",
                576,
                missed="V and W have 36 lines each. Brought for r rows at once, they are brought 12 / r times, if r rows of sums stay.",
            ),
            at_most("temporaries", 576, missed="One whole array between the layers is enough."),
        ),
        hints=(
            "Inline the clipping.",
            "Split `i` of each product; the order is i_0, k, i_1, j.",
            "A row of sums takes 3 lines, an element of X one: how many rows fit beside a row of weights that comes and goes?",
        ),
        start='s.compute_inline("R")\ni_0, i_1 = s.split("i", [None, 3])\ns.reorder(i_0, "k", i_1, "j")\ni_0, i_1 = s.split(s.get_loops("Z")[0], [None, 3])\ns.reorder(i_0, "m", i_1, "j_2")',
    ),
    Puzzle(
        name="one-pass",
        lesson=13,
        title="One pass over memory",
        text="Four operators of a network, each a pass over memory. Make one pass of them, two workers, 16 lanes.",
        program=lambda: chain(16, 16),
        goals=(
            at_most("misses", 128, missed="X and Y have 64 lines each; what is between them need not be in memory."),
            at_most("steps", 8, missed="256 elements, 16 lanes, two workers."),
        ),
        hints=("Inline first.", "Then `s.parallel` and `s.vectorize` on the loops of Y."),
        start='s.compute_inline("A")\ns.compute_inline("B")\ns.compute_inline("C")\ni, j = s.get_loops("Y")\ns.vectorize(j)',
    ),
    Puzzle(
        name="no-idle-thread",
        lesson=15,
        title="No idle thread",
        text="A thousand elements, blocks of at least 100 threads. Leave no thread without an element.",
        program=lambda: doubled(1000),
        goals=(
            at_least("threads", 100, "threadIdx.x", missed="A block has fewer than 100 threads."),
            at_least("threads", 4, "blockIdx.x", missed="There are fewer than 4 blocks."),
            at_most("guards", 0, missed="The last block has threads without an element, and each thread has a condition."),
        ),
        hints=('`s.bind(loop, "threadIdx.x")` makes threads of iterations.', "1000 = 8 × 125."),
        start='i_0, i_1 = s.split("i0", [None, 128])\ns.bind(i_0, "blockIdx.x")\ns.bind(i_1, "threadIdx.x")',
    ),
    Puzzle(
        name="shared-tiles",
        lesson=15,
        title="Through shared memory",
        text="Each thread reads A and B from slow memory. Let a block load a tile of each once, for all its threads.",
        program=lambda: product(16, 16, 16),
        goals=(
            at_least("threads", 8, "threadIdx.x"),
            at_most("loads", 512, "A", missed="A tile of A is loaded again by each column of threads."),
            at_most("loads", 512, "B", missed="A tile of B is loaded again by each row of threads."),
            at_most("length", 8, "serial", missed="A copy of the whole array, not shared by threads: one thread makes it."),
        ),
        hints=(
            '`s.cache_read("C", 0, "shared")` copies A.',
            "`s.compute_at` the loop over tiles of `k`; B is operand 1.",
            "Bind the last two loops of a copy to threadIdx.y and threadIdx.x.",
        ),
        start=BLOCKS,
    ),
)
