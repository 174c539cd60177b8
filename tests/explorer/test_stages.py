"""What the explorer's page is made of: stages, small instances, what these touch, and boxes."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import tir
from examples.ladder import rung
from explorer.nest import boxes
from explorer.simulate import LINE, LINES, events, run
from explorer.small import first_iterations, shortened, small
from explorer.stages import of_programs, of_schedule
from schedule import Schedule
from tests.programs import matmul
from tir import te
from tir.traverse import loops


def tiled(M=109, K=40, N=64) -> Schedule:
    s = Schedule(matmul(M, K, N))
    i, j, k = s.get_loops("C")
    i_0, i_1 = s.split(i, [None, 16])
    j_0, j_1 = s.split(j, [None, 32])
    s.reorder(i_0, j_0, k, i_1, j_1)
    s.parallel(i_0)
    s.vectorize(j_1)
    return s


def test_a_stage_for_each_step():
    s = tiled()
    stages = of_schedule(s)
    assert [x.title for x in stages] == [
        "as written", "s.split('i', [None, 16])", "s.split('j', [None, 32])", "s.reorder('i_0', 'j_0', 'k', 'i_1', 'j_1')",
        "s.parallel('i_0')", "s.vectorize('j_1')",
    ]  # fmt: skip
    assert stages[0].func == s.original == matmul(109, 40, 64) and stages[-1].func == s.func
    assert [len(x.trace) for x in stages] == [*range(6)]
    assert stages[1].about.startswith("Divide") and "Rewrite" in stages[1].about and "Legal" not in stages[1].about
    assert s.copy().original == s.original
    assert [(x.title, x.trace) for x in of_programs({"a": s.original, "b": s.func})] == [("a", None), ("b", None)]


@pytest.mark.parametrize("name", ["tile_all", "vectorize", "packed", "searched"])
def test_small_instances_have_the_loops_and_guards_of_the_real_ones(name):
    s = rung(name).scheduled((256, 512, 512, 192))
    found = small(s.original, s.trace.steps)
    assert [x.name for x in loops(found[-1].body)] == [x.name for x in loops(s.func.body)]
    assert [x.kind for x in loops(found[-1].body)] == [x.kind for x in loops(s.func.body)]
    assert max(x.extent.value for x in loops(found[-1].body)) <= 32 and len(found) == len(s.trace) + 1
    assert not tir.verify(found[-1]).errors


def test_tails_stay_tails():
    """109 rows in tiles of 16 leave a part of a tile; so do those of the small instance."""
    s = tiled()
    *_, last = small(s.original, s.trace.steps)
    assert "where" in last.outline() and "where" in s.func.outline()
    *_, last = small(matmul(112, 40, 64), s.trace.steps)
    assert "where" not in last.outline()


@pytest.mark.parametrize(("name", "shape", "image"), [
    ("conv2d", (1, 14, 14, 64, 64, 3, 3, 1, 1), (1, 8, 8, 8)),
    ("depthwise", (1, 28, 28, 32, 3, 3, 1, 1), (1, 13, 9, 9)),  # 28 and 32 are near one another
    ("conv1d", (1, 256, 64, 128, 3, 2, 1), (1, 36, 9)),  # a stride of 2: 256 to 128
])  # fmt: skip
def test_small_convolutions(name, shape, image):
    """Padding compares with numbers that are no extents, a stride makes one extent a multiple of another."""
    s = tir.default_schedule(tir.workloads.make(name, shape).func, "llvm -mcpu znver4 -num-cores 2")
    found = small(s.original, s.trace.steps)
    assert [(x.name, x.kind) for x in loops(found[-1].body)] == [(x.name, x.kind) for x in loops(s.func.body)]
    assert tuple(d.value for d in found[0].buffers[0].shape) == image and not tir.verify(found[-1]).errors


def test_lengths_that_belong_together_stay_together():
    A = te.placeholder((57, 64), name="A")
    func = te.create_prim_func([A, te.compute((55, 64), lambda i, j: A[i, j] + A[i + 2, j], name="B")])
    short = shortened(func, 8)
    assert [tuple(d.value for d in b.shape) for b in short.buffers] == [(10, 8), (8, 8)]  # 57 is near 55, 64 far from both
    assert not tir.verify(short).errors
    assert [x.extent.value for x in loops(first_iterations(func).body)] == [4, 4]


def test_what_a_program_touches():
    found, buffers = events(matmul(3, 2, 5))
    assert buffers == [("A", (3, 2)), ("B", (2, 5)), ("C", (3, 5))]
    assert Counter(name for e in found for name, _, write in e.accesses if write) == {
        "C": 3 * 5 + 3 * 5 * 2
    }  # first 0, then sums
    update = next(e for e in found if len(e.accesses) == 4)
    assert [(name, write) for name, _, write in update.accesses] == [("C", False), ("A", False), ("B", False), ("C", True)]
    last = found[-1]
    assert last.loops == (("i", 2), ("j", 4), ("k", 1)) and last.accesses[-1] == ("C", 14, True)


def test_hits_and_misses():
    """Each line is fetched once if all fit; a column of a wide matrix misses every time if it is longer than the cache."""
    n = LINE * LINES // 2
    A = te.placeholder((n,), name="A")
    copied = run(te.create_prim_func([A, te.compute((n,), lambda i: A[i], name="B")]))
    assert (copied.hits, copied.misses, copied.steps) == (2 * n - 2 * n // LINE, 2 * n // LINE, n)
    A = te.placeholder((LINES + 1, 8), name="A")
    across = run(te.create_prim_func([A, te.compute((8, LINES + 1), lambda j, i: A[i, j], name="B")]))
    reads = [how for frame in across.frames for _, _, own in frame for buffer, _, how in own if buffer == 0]
    assert set(reads) == {1} and len(reads) == 8 * (LINES + 1)


def test_lanes_and_workers_run_together():
    s = tiled()
    r = run(small(s.original, s.trace.steps)[-1])
    assert {len(f) for f in r.frames} >= {2}  # both workers
    assert max(lanes for f in r.frames for _, lanes, _ in f) == 4
    both = next(f for f in r.frames if len(f) == 2)
    assert both[0][0]["i_0"] < both[1][0]["i_0"]
    assert run(small(s.original, s.trace.steps)[0]).steps > r.steps
    data = r.as_json()
    assert data["hits"] == r.hits and len(data["frames"][0][0][2]) % 3 == 0


def test_of_large_buffers_what_is_touched_is_drawn():
    r = run(first_iterations(matmul(100, 100, 100)))
    data = r.as_json()
    assert [(b["shape"], b["drawn"]) for b in data["buffers"]] == [([100, 100], [4, 4])] * 3
    places = {own[n + 1] for f in data["frames"] for _, _, own in f for n in range(0, len(own), 3)}
    assert places == set(range(16))


def test_boxes():
    text = boxes(tiled().func)
    assert re.findall(r'class="loop (\w+)"><b data-loop="(\w+)"', text) == [
        ("parallel", "i_0"), ("serial", "j_0"), ("serial", "k"), ("serial", "i_1"), ("vector", "j_1"),
    ]  # fmt: skip
    assert text.count("<div") == text.count("</div>") and "where i_0 * 16 + i_1 &lt; 109" in text
    assert "C[i_0 * 16 + i_1, j_0 * 32 + j_1] = T.float32(0.0)" in text
