"""Writes docs/primitives.md and a page a family from the docstrings of the primitives: `python -m docs.generate`.

The docstring of a primitive has a first sentence, what there is to say about arguments, `Rewrite` (before => after, as
pseudo-code), `Legal`, and `Example   PROGRAM: STEPS`: Python statements on a schedule `s` of one of the programs below. The pages
show the program before and after the last of the steps. The families are the folders of `schedule/primitives`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

from schedule import REGISTRY, Schedule
from tir import te
from tir.ir import PrimFunc
from tir.script import parse

DOCS = Path(__file__).parent

INTRODUCTION = """\
# Primitives

A primitive is a method of `tir.Schedule` that rewrites the program and keeps what it computes, or refuses and says why. Loops
and blocks are given by name. Lessons [4](tutorial/04_tiling.py), [5](tutorial/05_vectors.py) and
[6](tutorial/06_placement.py) of the course show what they do to caches and cores. Each name below leads to its rule, and to a
program before and after it. These pages are written by `python -m docs.generate` from the docstrings; their examples run in the
tests. Each example starts from the program that stands above it.

```python
import tir
from tir.script import tir as T
```

`s.func` is the program as it is now, `s.trace` the steps taken, and `s.diff()` what they have changed, as a unified diff of the
scripts. `s.undo()` takes back the last step; `s.checkpoint()` gives a place for `s.undo(to=...)` and `s.diff(...)`.

```python
@T.prim_func
def doubled(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32")):
    for i in range(13):
        with T.block("B"):
            v_i = T.axis.spatial(13, i)
            B[v_i] = A[v_i] * 2.0


s = tir.Schedule(doubled)
s.split("i", [None, 4], tail="cut", names=["outer", "inner", "rest"])
before = s.checkpoint()
s.vectorize("inner")
s.unroll("rest")
assert "+        for inner in T.vectorized(4):" in s.diff(before)
s.undo(to=before)
assert str(s.trace) == "s.split('i', [None, 4], tail='cut', names=['outer', 'inner', 'rest'])  # outer, inner, rest\\n"
```
"""

HEADLINE = """\
# {}

The family among [all primitives](../primitives.md).

```python
import tir
from tir.script import tir as T
```"""


def vector(n: int = 13) -> PrimFunc:
    """B = 2 A."""
    A = te.placeholder((n,), name="A")
    return te.create_prim_func([A, te.compute((n,), lambda i: A[i] * 2.0, name="B")])


def nothing() -> PrimFunc:
    """B = the sums of rows without elements."""
    A = te.placeholder((13, 0), name="A")
    k = te.reduce_axis((0, 0), name="k")
    return te.create_prim_func([A, te.compute((13,), lambda i: te.sum(A[i, k], axis=k), name="B")])


def sized() -> PrimFunc:
    """B = 2 A, of a size given at the call."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    return te.create_prim_func([A, te.compute((n,), lambda i: A[i] * 2.0, name="B"), n])


def elementwise() -> PrimFunc:
    """B = A + 1."""
    A = te.placeholder((7, 13), name="A")
    return te.create_prim_func([A, te.compute((7, 13), lambda *i: A[i] + 1.0, name="B")])


def chain() -> PrimFunc:
    """C = 3 (A + 1)."""
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    return te.create_prim_func([A, te.compute((7, 13), lambda i, j: B[i, j] * 3.0, name="C")])


def rows() -> PrimFunc:
    """The sums of the rows of A."""
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    return te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="B")])


def padded_sums() -> PrimFunc:
    """The sums of three neighbours in A, which is 0 outside."""
    A = te.placeholder((13,), name="A")
    r = te.reduce_axis((0, 3), name="r")

    def term(i):
        return te.if_then_else(te.all(i >= 1, i < 14), A[i - 1], 0.0)

    return te.create_prim_func([A, te.compute((13,), lambda i: te.sum(term(i + r), axis=r), name="C")])


def matmul(n: int = 13) -> PrimFunc:
    """C = A · B."""
    A, B = te.placeholder((7, 5), name="A"), te.placeholder((5, n), name="B")
    k = te.reduce_axis((0, 5), name="k")
    return te.create_prim_func([A, B, te.compute((7, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


def scaled_sum() -> PrimFunc:
    """The sums of the rows of 3 A."""
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    return te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i, k] * 3.0, axis=k), name="C")])


def weighted_means() -> PrimFunc:
    """Means of B, weighted by the softmax of each row of A."""
    A, B = te.placeholder((7, 13), name="A"), te.placeholder((13,), name="B")
    k, r, j = (te.reduce_axis((0, 13), name=name) for name in "krj")
    top = te.compute((7,), lambda i: te.max(A[i, k], axis=k), name="top")
    power = te.compute((7, 13), lambda i, n: te.exp(A[i, n] - top[i]), name="power")
    total = te.compute((7,), lambda i: te.sum(power[i, r], axis=r), name="total")
    return te.create_prim_func([A, B, te.compute((7,), lambda i: te.sum(power[i, j] / total[i] * B[j], axis=j), name="C")])


def bytes_product() -> PrimFunc:
    """C = A · B of int8, summed as int32."""
    A, B = te.placeholder((7, 5), "int8", name="A"), te.placeholder((5, 13), "int8", name="B")
    k = te.reduce_axis((0, 5), name="k")

    def term(i, j):
        return A[i, k].astype("int32") * B[k, j].astype("int32")

    return te.create_prim_func([A, B, te.compute((7, 13), lambda i, j: te.sum(term(i, j), axis=k), name="C")])


def powers() -> PrimFunc:
    """B = max(A ** 2, 1)."""
    A = te.placeholder((7, 13), name="A")

    def larger(x, y):
        return te.select(x < y, y, x)

    return te.create_prim_func([A, te.compute((7, 13), lambda *i: larger(te.pow(A[i], 2.0), te.const(1.0)), name="B")])


def matmul_relu() -> PrimFunc:
    """D = max(A · B, 0)."""
    A, B = te.placeholder((7, 5), name="A"), te.placeholder((5, 13), name="B")
    k = te.reduce_axis((0, 5), name="k")
    C = te.compute((7, 13), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, te.compute((7, 13), lambda i, j: te.maximum(C[i, j], 0.0), name="D")])


def matmul_add() -> PrimFunc:
    """D = A · B + E."""
    A, B, E = te.placeholder((7, 5), name="A"), te.placeholder((5, 13), name="B"), te.placeholder((7, 13), name="E")
    k = te.reduce_axis((0, 5), name="k")
    C = te.compute((7, 13), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, E, te.compute((7, 13), lambda i, j: C[i, j] + E[i, j], name="D")])


def padded() -> PrimFunc:
    """B = A between two zeros."""
    A = te.placeholder((13,), name="A")
    inside = lambda i: te.all(i >= 1, i < 14)  # noqa: E731
    return te.create_prim_func([A, te.compute((15,), lambda i: te.if_then_else(inside(i), A[i - 1], 0.0), name="B")])


def blur() -> PrimFunc:
    """C[i] = the sum of three neighbours of 2 A."""
    A = te.placeholder((15,), name="A")
    B = te.compute((15,), lambda i: A[i] * 2.0, name="B")
    return te.create_prim_func([A, te.compute((13,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")])


def row_buffer() -> PrimFunc:
    """C = 3 (A + 1), by rows that a block keeps."""
    return parse("""
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), C: T.Buffer((7, 13), "float32")):
    for i in range(7):
        with T.block("rows"):
            v_i = T.axis.spatial(7, i)
            row = T.alloc_buffer((13,))
            for j in range(13):
                with T.block("B"):
                    v_j = T.axis.spatial(13, j)
                    row[v_j] = A[v_i, v_j] + T.float32(1.0)
            for k in range(13):
                with T.block("C"):
                    v_k = T.axis.spatial(13, k)
                    C[v_i, v_k] = row[v_k] * T.float32(3.0)
""")  # type: ignore[return-value]


PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    f.__name__: f
    for f in (
        vector,
        nothing,
        sized,
        elementwise,
        powers,
        chain,
        rows,
        scaled_sum,
        weighted_means,
        bytes_product,
        padded_sums,
        matmul,
        matmul_relu,
        matmul_add,
        padded,
        blur,
        row_buffer,
    )
} | {"matmul_16": lambda: _columns_last(matmul(16))}


def _columns_last(func: PrimFunc) -> PrimFunc:
    s = Schedule(func)
    s.reorder("k", "j")
    return s.func


def families() -> dict[str, list[str]]:
    """The primitives by the folder that they are in, in the order of the methods of `Schedule`."""
    result: dict[str, list[str]] = {}
    for name in vars(Schedule):
        if name in REGISTRY:
            result.setdefault(REGISTRY[name].function.__module__.split(".")[-2], []).append(name)
    return result


def parts(name: str) -> dict[str, str]:
    """The docstring of a primitive: its text, and what follows each of the words Rewrite, Legal and Example."""
    text = inspect.cleandoc(REGISTRY[name].__doc__ or "")
    found = re.split(r"^(Rewrite|Legal|Example)( +)", text, flags=re.MULTILINE)
    result = {"Text": found[0].strip()}
    for word, spaces, rest in zip(found[1::3], found[2::3], found[3::3], strict=True):
        result[word] = dedent(" " * len(word + spaces) + rest.rstrip())
    missing = {"Rewrite", "Legal", "Example"} - set(result)
    if missing:
        raise ValueError(f"the docstring of `{name}` has no part {', '.join(sorted(missing))}")
    return result


def example(name: str) -> tuple[str, str, PrimFunc, PrimFunc]:
    """The program of a primitive's example, its last step, and the functions before and after that."""
    program, _, steps = " ".join(parts(name)["Example"].split()).partition(": ")
    if program not in PROGRAMS:
        raise ValueError(f"the example of `{name}` is on `{program}`; programs are {', '.join(PROGRAMS)}")
    *setup, last = _statements(steps)
    s = Schedule(PROGRAMS[program](), seed=0)
    for step in setup:
        exec(step, {"s": s})
    before = s.func
    s = Schedule(before, seed=0)
    exec(last, {"s": s})
    if not any(step.name == name for step in s.trace):
        raise ValueError(f"the last step of the example of `{name}` is {last}")
    return program, last, before, s.func


def _statements(text: str) -> list[str]:
    import ast

    return [ast.get_source_segment(text, node) or "" for node in ast.parse(text).body]


def _body(func: PrimFunc) -> str:
    """The script of a function, without the import line."""
    script = func.script()
    return script[script.index("@T.prim_func") :]


def entry(name: str) -> str:
    """The section of one primitive."""
    said = parts(name)
    program, step, before, after = example(name)
    signature = str(inspect.signature(getattr(Schedule, name))).replace("(self, ", "(").replace("'", "")
    about = f" {PROGRAMS[program].__doc__}" if PROGRAMS[program].__doc__ else ""
    lines = [
        f"## {name}",
        f"```text\n{name}{signature}\n```",
        said["Text"],
        f"```text\nRewrite\n{indent(said['Rewrite'], '  ')}\nLegal\n{indent(said['Legal'], '  ')}\n```",
    ]
    if before == after:
        lines += [
            f"Example, on `{program}`:{about} The program stays as it is.",
            f"```python\n{_body(before)}\ns = tir.Schedule(main)\n{step}\nassert s.func == main\n```",
        ]
    else:
        lines += [
            f"Before, on `{program}`:{about}",
            f"```python\n{_body(before)}\ns = tir.Schedule(main)\n{step}\n```",
            "After:",
            f"```python\n{_body(after)}\nassert s.func == main\n```",
        ]
    return "\n\n".join(lines)


def pages() -> dict[str, str]:
    """The texts of all pages, by their places in docs: the index, and a page a family."""
    found = families()
    left = sorted(set(REGISTRY) - {name for names in found.values() for name in names})
    if left:
        raise ValueError(f"Schedule has no method for {', '.join(left)}")
    lists = (f"## {f.capitalize()}\n\n{', '.join(f'[{n}](primitives/{f}.md#{n})' for n in names)}" for f, names in found.items())
    result = {"primitives.md": INTRODUCTION + "\n" + "\n\n".join(lists) + "\n"}
    for family, names in found.items():
        result[f"primitives/{family}.md"] = "\n\n".join([HEADLINE.format(family.capitalize()), *map(entry, names)]) + "\n"
    return result


if __name__ == "__main__":
    for place, text in pages().items():
        (DOCS / place).parent.mkdir(exist_ok=True)
        (DOCS / place).write_text(text)
