"""Barriers stand where threads read what others wrote, and nowhere else."""

from __future__ import annotations

from textwrap import indent

import pytest

import tir
from codegen.build import lower
from codegen.passes.thread_storage_sync import BARRIER
from tests.codegen.cuda.kernels import check, no_compiler, staged
from tir.ir import Call
from tir.script import parse
from tir.traverse import walk

OWN = """
for t in T.thread_binding(13, thread="threadIdx.x"):
    {write}
for t in T.thread_binding(13, thread="threadIdx.x"):
    {read}
"""
LOOP = "\nfor k in range(4):" + indent(OWN, "    ")
GUARDED = "\nif A[0] > 3:" + indent(OWN, "    ")


def barriers(body: str, **statements: str) -> int:
    """The number of barriers in a block of 13 threads that share a tile."""
    lines = indent(body.format(**statements), "        ")
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((13,), "int32"), C: T.Buffer((13,), "int32"), n: T.int32):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        tile = T.decl_buffer((4, 26), "int32", scope="shared")
{lines}
""")
    lowered = lower(func, tir.Target("cuda"), after="thread_storage_sync")
    return sum(isinstance(n, Call) and n.op == BARRIER for n in walk(lowered.body))


@pytest.mark.parametrize(("write", "read", "once", "again"), [
    ("tile[0, t] = A[t]", "C[t] = tile[0, t]", 0, 0),
    ("tile[0, t] = A[t]", "C[t] = tile[0, 12 - t]", 1, 2),
    ("tile[0, t * 2] = A[t]", "C[t] = tile[0, t]", 1, 2),
    ("for j in range(2): tile[0, t * 2 + j] = A[t]", "for j in range(2): C[t] = tile[0, t * 2 + j]", 0, 0),
    ("for j in range(3): tile[0, t * 2 + j] = A[t]", "for j in range(2): C[t] = tile[0, t * 2 + j]", 1, 2),
    ("for j in range(n): tile[0, t * 2 + j] = A[t]", "for j in range(2): C[t] = tile[0, t * 2 + j]", 1, 2),
    ("tile[1, t] = A[t]", "C[t] = tile[0, 12 - t]", 0, 0),
    ("tile[0, t + 13] = A[t]", "C[t] = tile[0, 12 - t]", 0, 0),
    ("tile[0, t + 11] = A[t]", "C[t] = tile[0, 12 - t]", 1, 2),
    ("C[t] = tile[0, t]", "C[t] = tile[0, 12 - t]", 0, 0),  # nothing is written
    ("C[t] = tile[0, t]", "tile[0, 12 - t] = A[t]", 1, 2),
    ("tile[0, t] = A[t]", "tile[0, 12 - t] = C[t]", 1, 2),
    ("if t < 5: tile[0, t] = A[t]", "if t > 7: C[t] = tile[0, t]", 0, 0),
    ("if t < 5: tile[0, t] = A[t]", "if t > 7: C[t] = tile[0, 12 - t]", 1, 2),
    ("if t < 1: tile[0, t] = A[t]", "C[t] = tile[0, 0]", 1, 2),
    ("if t < 1: C[t] = tile[0, 5]", "tile[0, t] = A[t]", 1, 2),
    ("C[t] = A[t]", "tile[0, t] = C[12 - t]", 1, 2),  # in global memory
])  # fmt: skip
def test_barriers_between_accesses(write, read, once, again):
    assert barriers(OWN, write=write, read=read) == once
    assert barriers(LOOP, write=write, read=read) == again
    assert barriers(GUARDED, write=write, read=read) == once


@pytest.mark.parametrize(("first", "second", "count"), [
    ("C[t] = tile[k % 2, (t + 1) % 13]", "tile[(k + 1) % 2, t] = A[t]", 1),  # the one before the read of what was written last
    ("C[t] = tile[k % 2, (t + 1) % 13]", "tile[k % 2, t] = A[t]", 2),
    ("C[t] = tile[k % 3, (t + 1) % 13]", "tile[(k + 2) % 3, t] = A[t]", 1),
    ("C[t] = tile[k % 2, (t + 1) % 13 + k]", "tile[k % 2, t + k] = A[t]", 2),
])  # fmt: skip
def test_rows_in_turns_need_one(first, second, count):
    assert barriers(LOOP, write=first, read=second) == count


THREADS = 'for t in T.thread_binding({n}, thread="threadIdx.x"):\n    {statement}\n'


def threads(statement: str, n: int = 13) -> str:
    return THREADS.format(n=n, statement=statement)


@pytest.mark.parametrize(("body", "count"), [
    (threads("tile[0, t] = A[t]") + "own[0] = tile[0, 0]\n" + threads("C[t] = own[0]"), 1),  # every thread reads for itself
    (threads("tile[0, t] = A[t]") + "tile[0, 0] = tile[0, 0]\n", 0),  # the first does
    (threads("tile[0, t] = A[t]") + "if A[0] > 3:\n" + indent(threads("C[t] = A[t]"), "    ")
     + "else:\n" + indent(threads("C[t] = tile[0, 12 - t]"), "    "), 1),
    ("for k in range(4):\n" + indent("row: T.int32 = A[k]\n" + threads("tile[row, t] = A[t]")
     + threads("C[t] = tile[row + 1, 12 - t]"), "    "), 1),  # the row of the next iteration may be any
    (threads("tile[0, t * 3] = A[t]", 5) + threads("if t == 3: C[t] = tile[0, t * 5]"), 0),
    ('for y in T.thread_binding(2, thread="threadIdx.y"):\n' + indent(threads("tile[y, t] = A[t]"), "    ")
     + 'for y in T.thread_binding(2, thread="threadIdx.y"):\n' + indent(threads("if y * 13 + t == 15: C[t] = tile[0, t * 2]"), "    "), 1),
])  # fmt: skip
def test_barriers_of_threads_that_do_different_things(body, count):
    assert barriers('own = T.decl_buffer((1,), "int32", scope="local")\n' + body) == count


CUBE = """for z in T.thread_binding(2, thread="threadIdx.z"):
    for y in T.thread_binding(3, thread="threadIdx.y"):
        for t in T.thread_binding(13, thread="threadIdx.x"):
            {statement}
"""


@pytest.mark.parametrize(("reader", "count"), [("z == 1 and y == 0", 1), ("z == 0 and y == 2", 0), ("z == 1 and y == 2", 1)])
def test_threads_of_three_axes_are_different(reader, count):
    write, read = "if z == 0 and y == 2: tile[0, t] = A[t]", f"if {reader}: C[t] = tile[0, t]"
    assert barriers(CUBE.format(statement=write) + CUBE.format(statement=read)) == count


@pytest.mark.parametrize("extent", ["1", "2", "n"])
def test_a_barrier_before_a_loop_is_one_for_what_follows_too(extent):
    read = 'for t in T.thread_binding(13, thread="threadIdx.x"):\n    C[t] = tile[0, 12 - t]\n'
    write = 'for t in T.thread_binding(13, thread="threadIdx.x"):\n    tile[0, t] = A[t]\n'
    assert barriers(f"{write}for k in range({extent}):\n{indent(read, '    ')}{read}") == 1
    assert barriers(f"{write}for k in range({extent}):\n{indent(write, '    ')}{read}") == 1


@no_compiler
@pytest.mark.parametrize(("value", "count"), [(lambda B, i: B[i] + 1.0, 0), (lambda B, i: B[63 - i], 1)])
def test_a_barrier_where_threads_read_what_others_wrote(value, count) -> None:
    func = staged(value, "shared")
    check(func, func, barriers=count)
