"""An answer to each puzzle, and for some a wrong one more, with words of the verdict that explains it."""

from __future__ import annotations

from puzzles.catalogue.cores import TILE
from puzzles.catalogue.networks import BLOCKS

TILED = TILE + "s.unroll(i_1)\ns.vectorize(j_1)\n"
SHARED = """\
for_A = s.cache_read("C", 0, "shared")
s.compute_at(for_A, k_0)
loops = s.get_loops(for_A)
s.bind(loops[-2], "threadIdx.y")
s.bind(loops[-1], "threadIdx.x")
for_B = s.cache_read("C", 1, "shared")
s.compute_at(for_B, k_0)
loops = s.get_loops(for_B)
s.bind(loops[-2], "threadIdx.y")
s.bind(loops[-1], "threadIdx.x")
"""
ROLLING = 's.compute_at("E", i)\ns.rolling_buffer("E", 0)'

SOLUTIONS = {
    "first-swap": 's.reorder("i", "k", "j")',
    "column-sums": 's.reorder("k", "j")',
    "keep-it-at-hand": 's.reorder("j", "k", "i")',
    "first-split": 's.split("i0", [None, 13])',
    "even-shares": 's.parallel(s.fuse("i0", "i1"))',
    "no-condition": 'j_0, j_1, rest = s.split("j", [None, 4], tail="cut")\ns.reorder("k", j_1)\ns.vectorize(j_1)',
    "square-tiles": """\
i_0, i_1 = s.split("i", [None, 4])
j_0, j_1 = s.split("j", [None, 4])
k_0, k_1 = s.split("k", [None, 4])
s.reorder(i_0, j_0, k_0, i_1, k_1, j_1)
""",
    "turned-around": 's.tile(*s.get_loops("B"), 4, 4)',
    "flat-tiles": 'i_0, j_0, i_1, j_1 = s.tile("i", "j", 4, 8)\ns.reorder(i_0, j_0, "k", i_1, j_1)',
    "sixteen-lanes": 's.reorder("i", "k", "j")\ns.vectorize("j")',
    "two-workers": 's.reorder("i", "k", "j")\ns.vectorize("j")\ns.parallel("i")',
    "lanes-of-a-sum": '_, lane = s.split("k", [None, 16])\ns.rfactor(lane)\ns.vectorize(lane)',
    "register-tile": TILED.format(6, 16),
    "few-operands": TILED.format(4, 16),
    "unrolled-sum": 'k_0, k_1 = s.split("k", [None, 4])\ns.unroll(k_1)',
    "nothing-stored": TILED.format(4, 16),
    "registers-to-spare": TILED.format(3, 24),
    "packed-product": TILED.format(6, 16) + 's.pack("C", 1)',
    "nowhere": 's.compute_inline("A")\ns.compute_inline("B")\ns.compute_inline("C")',
    "one-row": 's.reorder("i", "k", "j")\ns.reverse_compute_at("D", "i")',
    "rolling-rows": 'i, j = s.get_loops("Y")\n' + ROLLING,
    "narrow-strips": 'i, j = s.get_loops("Y")\nj_0, j_1 = s.split(j, [None, 4])\ns.reorder(j_0, i, j_1)\n' + ROLLING,
    "small-tile": 'i, j = s.get_loops("Y")\ni_0, j_0, i_1, j_1 = s.tile(i, j, 4, 4)\ns.compute_at("E", j_0)',
    "store-once": 's.reverse_compute_at(s.cache_write("C", 0, "local"), "j")',
    "column-at-hand": 's.reorder("j", "i", "k")\ncopy = s.cache_read("C", 1, "global")\ns.compute_at(copy, "j")',
    "two-that-collide": 's.parallel("i")',
    "looks-illegal": 's.vectorize("j")',
    "four-at-a-time": '_, lanes = s.split("i", [None, 4])\ns.vectorize(lanes)',
    "the-other-loop": 's.reorder("j", "i")\ns.vectorize("i")',
    "diagonal-chain": 's.vectorize("j")',
    "a-lost-addition": 's.parallel("k")',
    "not-final": 's.reverse_compute_inline("R")',
    "not-finished-yet": 's.reverse_compute_at("Y", s.get_loops("E")[0])',
    "nine-sketches": '_, k_1 = s.split("k", [None, 16])\ns.rfactor(k_1)',
    "seen-strides": 's.reorder("i", "k", "j")\ns.vectorize("j")',
    "seen-registers": TILED.format(4, 24),
    "empty-lanes": TILED.format(4, 16),
    "two-layers": 's.compute_inline("R")\ns.compute_at("H", s.get_loops("Z")[0])',
    "bytes-between": """\
s.compute_inline("R")
i_0, i_1 = s.split("i", [None, 2])
s.reorder(i_0, "k", i_1, "j")
i, j, m = s.get_loops("Z")
i_0, i_1 = s.split(i, [None, 2])
s.reorder(i_0, m, i_1, j)
""",
    "one-pass": """\
s.compute_inline("A")
s.compute_inline("B")
s.compute_inline("C")
i, j = s.get_loops("Y")
s.parallel(i)
s.vectorize(j)
""",
    "no-idle-thread": 'i_0, i_1 = s.split("i0", [None, 125])\ns.bind(i_0, "blockIdx.x")\ns.bind(i_1, "threadIdx.x")',
    "shared-tiles": BLOCKS + SHARED,
}

# More that is tempting and wrong, besides each puzzle's start: the answer, and words of its verdict.
WRONG = {
    "seen-strides": ('s.reorder("k", "j", "i")\ns.vectorize("i")\ns.cache_write("C", 0, "global")', "a row apart"),
    "even-shares": ('s.split("i0", [2, None])\ns.parallel("i0_0")', "A share of whole rows or columns has more"),
    "shared-tiles": (BLOCKS + 's.cache_read("C", 0, "shared")\ns.cache_read("C", 1, "shared")', "one thread"),
    "registers-to-spare": (TILED.format(8, 8), "the core issues only so many instructions a cycle"),
    "packed-product": (TILED.format(6, 16) + 's.cache_read("C", 1, "global")', "leaps over a whole row"),
    "sixteen-lanes": ('s.vectorize("k")', "`k` drives the reduction axis"),
    "two-workers": ('s.parallel("k")', "rfactor('k', 0) gives each iteration its own partial result"),
    "lanes-of-a-sum": ('_, k_1 = s.split("k", [None, 16])\ns.vectorize(k_1)', "its iterations depend on each other"),
    "register-tile": (TILED.format(4, 16), "fewer than 8 sums leave it waiting"),
    "four-at-a-time": (
        '_, lanes = s.split("i", [None, 8])\ns.vectorize(lanes)',
        "witness: i_1 = 0 writes A[4], i_1 = 4 reads it",
    ),
    "the-other-loop": ('s.vectorize("j")', "witness: j = 0 writes A[0, 1], j = 1 reads it"),
    "looks-illegal": ('s.reorder("j", "i")', "cannot prove that no dependence through `A` runs against the new order"),
    "one-row": ('s.reorder("i", "k", "j")\ns.reverse_compute_at("D", "k")', "`k` is a loop of the reduction"),
    "square-tiles": ('s.tile("i", "j", 4, 4)', "A tile of t × t takes"),
    "no-condition": ('s.reorder("k", "j")\ns.vectorize("j")', "j 13"),
}
