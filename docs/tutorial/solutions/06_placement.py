"""Tiles of 16 rows by 4, 8 or 16 columns: two tiles of rows make 18 rows of E each, so 2 * 18 * 32 = 1152 exponentials; E takes
18 rows of the columns of a tile, at most 288 elements.

More rows a tile repeat fewer exponentials, but then a column of tiles has left the cache before its rows are used again.
"""

import tir
from explorer.simulate import events, run
from tir import te
from tir.script import parse

N = 32
X = te.placeholder((N + 2, N), name="X")
E = te.compute((N + 2, N), lambda i, j: te.exp(X[i, j]), name="E")
Y = te.compute((N, N), lambda i, j: E[i, j] + E[i + 1, j] + E[i + 2, j], name="Y")
func = te.create_prim_func([X, Y])

for columns in (4, 8, 16):
    s = tir.Schedule(func)
    _, tile, _, _ = s.tile(*s.get_loops("Y"), 16, columns)
    s.compute_at("E", tile)
    program = parse(tir.dump(s.func, "llvm -num-cores 1", after="compact_buffers"))
    found, buffers = events(program)
    taken, memory = sum(event.accesses[-1][0] == "E" for event in found), 18 * columns
    print(f"16 × {columns}: {taken} exponentials, {memory} elements, {run(program).misses} misses")
    assert dict(buffers)["E"] == (18, columns)
    assert (taken, run(program).misses) == (1152, 1120) and memory <= 600
    assert tir.equivalent(func, s)
