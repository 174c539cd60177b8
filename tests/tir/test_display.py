"""What `print`, a prompt and a notebook show."""

from __future__ import annotations

import tir
from schedule import Schedule
from search import generate
from tir import te, workloads
from tir.display import count_text

ONE = "llvm -num-cores 1 -mcpu x86-64-v3"


def scaled() -> tir.PrimFunc:
    A = te.placeholder((7, 13), name="A")
    return te.create_prim_func([A, te.compute((7, 13), lambda i, j: A[i, j] * 2.0, name="B")], name="scaled")


def test_functions_and_statements() -> None:
    func = scaled()
    assert str(func) == func.script() and repr(func) == "<PrimFunc scaled(A[7, 13], B[7, 13])>"
    assert (
        str(func.body)
        == """\
for i, j in T.grid(7, 13):
    with T.block("B"):
        v_i, v_j = T.axis.remap("SS", [i, j])
        B[v_i, v_j] = A[v_i, v_j] * T.float32(2.0)
"""
    )


def test_schedules_and_traces() -> None:
    s = Schedule(scaled())
    s.split("i", [None, 4])
    assert str(s) == s.func.script() and repr(s) == "Schedule(scaled, 1 step(s))"
    assert str(s.trace) == "s.split('i', [None, 4])  # i_0, i_1\n" and repr(s.trace) == "<Trace of 1 step(s)>"


def test_kernels() -> None:
    kernel = tir.build(scaled(), ONE)
    assert (
        str(kernel)
        == f"""\
kernel scaled for {ONE}
  A: float32[7, 13], read
  B: float32[7, 13], written
  {len(kernel.code):,} bytes of machine code
"""
    )
    assert repr(kernel) == f"<Kernel scaled(A[7, 13], B[7, 13]) for {ONE}>"


def test_workloads_and_sketches() -> None:
    gmm = workloads.get("gmm")
    assert (
        str(gmm)
        == """\
gmm M,K,N[,batch]: C = A·B: a matrix product, or a batch of them
  M        number of rows of A and C, 1024
  K        number of columns of A, 1024
  N        number of columns of B and C, 1024
  batch    number of matrix products, may be left out
"""
    )
    assert repr(gmm) == "<Workload gmm M,K,N[,batch]>"
    sketch = generate(gmm.build("float32", 7, 13, 9), tir.Target(ONE))[0]
    assert repr(sketch) == f"<Sketch {sketch.name} of {sketch.func.name}, {sketch.columns} open numbers>"


def test_a_notebook_shows_scripts_in_colours() -> None:
    func = scaled()
    s = Schedule(func)
    for shown in (func, s, s.trace):
        bundle = shown._repr_mimebundle_()
        assert bundle["text/plain"] == str(shown).rstrip("\n") and bundle["text/html"].startswith('<div class="highlight"><pre')
    assert '<span style="color: #008000; font-weight: bold">def</span>' in func._repr_mimebundle_()["text/html"]


def test_a_notebook_shows_what_changed_in_colours() -> None:
    s = Schedule(scaled())
    s.vectorize("j")
    changed = tir.diff(scaled(), s.func)
    bundle = changed._repr_mimebundle_()
    assert isinstance(changed, str) and bundle["text/plain"] == changed.rstrip("\n")
    added = [line for line in bundle["text/html"].splitlines() if line.startswith('<span style="color:#1a7f37">+')]
    assert len(added) == sum(line.startswith("+") for line in changed.splitlines()) and "&quot;B&quot;" in bundle["text/html"]


def test_numbers_of_things():
    assert [count_text(n, "trial") for n in (0, 1, 1200)] == ["0 trials", "1 trial", "1,200 trials"]
