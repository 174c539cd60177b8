"""Directions (<, <); (=, <); and, of the third, (<, =) together with (<, >).

In the first both components go on, so the loops may be exchanged. i may not be parallel; within one i there is no arrow, so j
may. In the second the arrows stay within one i: i may be parallel, j may not, and the loops may be exchanged. In the third the
arrow (<, >) forbids the exchange; all arrows go from one i to the next, so j may be parallel.
"""

import tir
from tir.script import parse

STATEMENTS = ("A[i + 1, j + 1] = A[i, j] + 1.0", "A[i, j + 1] = A[i, j] + 1.0", "A[i + 1, j] = A[i, j] + A[i, j + 1]")
REQUESTS = (("reorder", "j", "i"), ("parallel", "i"), ("parallel", "j"))


def legal(statement, step, *loops):
    func = parse(f"@T.prim_func\ndef f(A: T.Buffer((7, 13))):\n    for i, j in T.grid(6, 12):\n        {statement}\n")
    try:
        getattr(tir.Schedule(func), step)(*loops)
    except tir.ScheduleError:
        return False
    return True


answers = {statement: [legal(statement, *request) for request in REQUESTS] for statement in STATEMENTS}
for statement, row in answers.items():
    print(f"{statement:<40}", dict(zip(("reorder", "parallel i", "parallel j"), row, strict=True)))
assert list(answers.values()) == [[True, False, True], [True, True, False], [False, False, True]]
