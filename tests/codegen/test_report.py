"""Reports: counts of known kernels, for fixed processors, and the reading of single instructions."""

from __future__ import annotations

from textwrap import dedent, indent

import llvmlite.binding as llvm
import pytest

import codegen
from codegen import report as reports
from codegen.report import Counts, Instruction, Loop, Report, read_assembly
from schedule import Schedule
from schedule.machine import Core
from tir import te

from .matmul import matmul, tiled

pytestmark = pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="reports are of x86 assembly")

ZEN = "llvm -num-cores 1 -mcpu znver4"
SKX = "llvm -num-cores 1 -mcpu skylake-avx512"
AVX2 = "llvm -num-cores 1 -mcpu haswell"


def report(func, target=SKX):
    return codegen.build(func, target).report()


def dedent_from(script, line):
    return dedent("\n".join(script.splitlines()[line - 1 :]))


def test_register_tile():
    kernel = codegen.build(tiled(96, 109, 192, 6, 64), SKX)
    r = kernel.report()
    loop = r.loop("k")
    assert (loop.fma, loop.loads, loop.broadcasts, loop.stores, loop.spills, loop.width) == (24, 4, 6, 0, 0, 512)
    assert (loop.gathers, loop.calls, loop.arithmetic) == (0, 0, 0)
    assert r.spills == 0
    assert loop.nest == ("i_0", "j_0", "k") and loop.depth == 3
    assert loop.text == "for k in range(109)"
    assert kernel.lowered.script().splitlines()[loop.line - 1].strip() == "for k in range(109):"
    assert loop.source.startswith("for k in range(109):\n    ") and loop.source in dedent_from(kernel.lowered.script(), loop.line)
    assert loop.code.count("vfmadd") == 24 and loop.code.startswith(f".L{loop.label}:\n")
    assert r.listing("k") == f"{loop.source}\n{indent(loop.code, '    ')}" and r.listing("k") in r.listing()
    assert (loop.limit, loop.cycles, loop.share) == ("fma", 12.0, 1.0)
    assert (r.elsewhere.loads, r.elsewhere.stores) == (24, 24)  # the accumulators, in front of the loop and behind it


def test_tile_of_a_smaller_machine():
    loop = report(tiled(96, 109, 192, 6, 16), AVX2).loop("k")
    assert (loop.fma, loop.loads, loop.broadcasts, loop.width) == (12, 2, 6, 256)
    assert loop.share == 1.0


def test_zen4_has_one_wide_multiply_add_a_cycle():
    loop = report(tiled(96, 109, 192, 6, 64), ZEN).loop("k")
    assert (loop.fma, loop.cycles, loop.share) == (24, 24.0, 1.0)


def test_too_large_a_tile_spills():
    r = report(tiled(96, 109, 192, 12, 64))
    loop = r.loop("k")
    assert loop.fma == 48
    assert (
        loop.spills >= 2 * (48 + 1 - 32) and r.spills == loop.spills
    )  # 48 accumulators: each beyond the 32 registers comes and goes
    assert loop.share is not None and loop.share < 1
    assert f"{r.spills} spills in them" in str(r)


def test_one_accumulator_waits_for_itself():
    loop = report(tiled(96, 109, 192, 1, 16)).loop("k")
    assert (loop.fma, loop.limit, loop.cycles, loop.share) == (1, "latency", 4.0, 0.125)


def test_scalar_code():
    loop = report(matmul(7, 109, 13)).loop("k")
    assert (loop.fma, loop.width, loop.broadcasts, loop.limit) == (1, 32, 0, "latency")
    assert loop.share == pytest.approx(32 / (4 * 1024))
    assert report(matmul(7, 109, 13, "float64")).loop("k").width == 64


def test_copies_of_a_loop_have_their_own_lines():
    kernel = codegen.build(tiled(97, 109, 200, 6, 64), SKX)
    copies = [loop for loop in kernel.report().loops if loop.name == "k"]
    lines = kernel.lowered.script().splitlines()
    assert len(copies) == 3 and len({loop.line for loop in copies}) == 3
    assert all(lines[loop.line - 1].strip() == "for k in range(109):" for loop in copies)
    full, lanes, last = sorted(copies, key=lambda loop: loop.line)  # whole tiles, those of fewer columns, those of one row
    assert [(x.fma, x.loads) for x in (full, lanes, last)] == [(24, 4), (6, 1), (4, 4)]


def test_parallel_loops_are_found():
    r = report(tiled(96, 109, 192, 6, 64, parallel=True), "llvm -num-cores 2 -mcpu skylake-avx512")
    assert r.loop("k").nest == ("i_0", "j_0", "k")
    # The caller asks for its core and name and calls GOMP_parallel; a thread asks for its core, its number and how many there are,
    # and runs the body; it may have to move away from the caller: that is a call, and four to the system.
    assert r.elsewhere.calls == 3 + 4 + 5


def test_gathers():
    A = te.placeholder((109, 16), name="A")
    B = te.compute((16, 109), lambda i, j: A[j, i] + 1.0, name="B")
    s = Schedule(te.create_prim_func([A, B]))
    s.vectorize(s.get_loops("B")[1])
    loop = report(s.func).loop("i")
    assert loop.gathers == 7 and loop.loads == 0  # 109 = 6 * 16 + 13 lanes


def test_unknown_loop_is_refused():
    with pytest.raises(KeyError) as raised:
        report(tiled(12, 7, 64, 6, 64)).loop("q")
    assert raised.value.args == ("main has no innermost loop 'q'; it has j_1_init, k",)


def test_table():
    """Columns in which nothing happens are left out."""
    inner = Loop(
        38, fma=24, loads=4, broadcasts=6, width=512, name="k", text="for k in range(109)", line=15, depth=3,
        bounds=(("fma", 12.0), ("load", 5.0)), share=1.0,
    )  # fmt: skip
    unknown = Loop(9, arithmetic=2, width=32, spills=3, label="BB0_3", depth=1, bounds=(("issue", 2.25),))
    assert str(Report("f", "znver5", (inner, unknown), Counts(89, stores=24, width=512))).splitlines() == [
        "f for znver5: 2 innermost loops, 3 spills in them",
        "line loop                    instr bits fma arith load bcast store spill       cycles peak",
        "------------------------------------------------------------------------------------------",
        "  15     for k in range(109)    38  512  24     0    4     6     0     0     12 (fma) 100%",
        "     BB0_3                       9   32   0     2    0     0     0     3 2.25 (issue)",
        "     elsewhere                  89  512   0     0    0     0    24     0",
    ]
    assert str(Report("f", "znver5", (inner,), Counts())).startswith("f for znver5: 1 innermost loop, no spills in them\n")


def test_other_processors_are_refused(monkeypatch):
    kernel = codegen.build(matmul(3, 4, 5), SKX)

    class Machine:
        triple = "aarch64-unknown-linux-gnu"

    monkeypatch.setattr("codegen.llvm.compile.machine", lambda target: Machine)
    with pytest.raises(ValueError, match="report reads x86 assembly, and this kernel is for aarch64-unknown-linux-gnu"):
        kernel.report()


# Each row: an instruction, and what it is.
INSTRUCTIONS = [
    ("vfmadd231ps %zmm1, %zmm2, %zmm3", {"fma": True, "loads": False, "width": 512}),
    ("vfmadd231ps (%rax){1to16}, %zmm2, %zmm3", {"fma": True, "loads": True, "broadcast": True, "width": 512}),
    ("vfnmadd213ss 4(%rax,%rcx,4), %xmm2, %xmm3", {"fma": True, "loads": True, "broadcast": False, "width": 32}),
    ("vfmadd213sd %xmm1, %xmm2, %xmm3", {"fma": True, "width": 64}),
    ("vmovups 64(%rsi), %ymm0", {"loads": True, "stores": False, "move": True, "width": 256}),
    ("vmovups %ymm0, 64(%rsi)", {"loads": False, "stores": True, "width": 256}),
    ("vmovups %zmm0, 64(%rsp) # 64-byte Spill", {"stores": True, "spill": True}),
    ("vmulps 64(%rsp), %zmm0, %zmm1 # 64-byte Folded Reload", {"loads": True, "spill": True}),
    ("movq %rax, 8(%rsp) # 8-byte Spill", {"stores": True, "spill": False, "vector": False}),
    ("vbroadcastss -12(%rdi,%r15,4), %zmm29", {"broadcast": True, "loads": True, "width": 512}),
    ("vbroadcastss %xmm0, %zmm29", {"broadcast": False, "loads": False}),
    ("vgatherdps (%rdi,%zmm1,4), %zmm0 {%k1}", {"gather": True, "loads": True, "elements": 16}),
    ("vscatterdps %zmm0, (%rdi,%zmm1,4) {%k1}", {"scatter": True, "stores": True, "loads": False}),
    ("vcvtps2ph $4, %ymm0, (%rdi)", {"stores": True, "loads": False, "scalar": False}),
    ("vcvtsi2ss %rax, %xmm0, %xmm0", {"scalar": True, "width": 32}),
    ("vpminsd %zmm0, %zmm1, %zmm2", {"scalar": False, "width": 512}),
    ("vmovss (%rax), %xmm0", {"loads": True, "width": 32}),
    ("addq %rax, (%rdi)", {"loads": True, "stores": True, "vector": False}),
    ("cmpq %rax, (%rdi)", {"loads": True, "stores": False}),
    ("leaq 8(%rdi,%rax,4), %rcx", {"loads": False, "stores": False}),
    ("prefetcht0 512(%rdi)", {"loads": False, "stores": False}),
    ("jmpq *(%rax)", {"jump": True, "loads": False}),
]


@pytest.mark.parametrize(("line", "expected"), INSTRUCTIONS, ids=lambda x: x.split("#")[0] if isinstance(x, str) else "")
def test_instructions(line, expected):
    (i,) = reports._instructions([line])
    assert {name: getattr(i, name) for name in expected} == expected


def test_lines_that_are_no_instructions():
    assert list(reports._instructions(["\t.p2align\t4", "# nothing", ".LBB0_1:", "", "\tretq"])) == [Instruction("retq", ())]


# Each row: the body of a loop, and the cycles of its longest chain of operations on one vector register.
CHAINS = [
    (["vfmadd231ps %zmm1, %zmm2, %zmm3"], 4),
    (["vfmadd231ps %zmm1, %zmm2, %zmm3", "vfmadd231ps %zmm1, %zmm2, %zmm3"], 8),
    (["vfmadd231ps %zmm1, %zmm2, %zmm3", "vfmadd231ps %zmm1, %zmm2, %zmm4"], 4),
    (["vfmadd231ps (%rdi), %zmm2, %zmm3", "addq $64, %rdi"], 4),
    (["vaddps %zmm1, %zmm3, %zmm3"], 4),
    (["vaddps %zmm1, %zmm2, %zmm3"], 0),
    (["vdivps %zmm1, %zmm3, %zmm3"], 13),
    (["vpaddd %zmm1, %zmm3, %zmm3"], 1),
    (["vmovups (%rdi), %ymm3", "vaddps %xmm1, %xmm3, %xmm3", "addq $64, %rdi"], 0),  # begun anew in each iteration
    (["vxorps %xmm3, %xmm3, %xmm3", "vaddps %xmm1, %xmm3, %xmm3"], 0),
    (["vaddps %zmm1, %zmm2, %zmm3 {%k1}"], 4),  # keeps lanes of the old value
    (["vaddps %zmm1, %zmm2, %zmm3 {%k1} {z}"], 0),
    (["addps %xmm1, %xmm3"], 4),
    (["movaps %xmm1, %xmm3", "addps %xmm2, %xmm3"], 0),
    (["cltq", "vzeroupper", "incq %rax"], 0),  # some have no operands
]


@pytest.mark.parametrize(("lines", "cycles"), CHAINS, ids=[" | ".join(lines) for lines, _ in CHAINS])
def test_chains(lines, cycles):
    assert reports._latency(list(reports._instructions(lines)), Core(1024, 1024, 1024, 512, 4, 4)) == cycles


def test_cores():
    assert codegen.Target("llvm -mcpu znver5").machine.core.fma_bits == 1024
    assert codegen.Target("llvm -mcpu x86-64-v3").machine.core == Core(512, 512, 512, 256, 4, 4)


def test_assembly_without_a_program():
    kernel = codegen.build(tiled(12, 7, 64, 6, 64), SKX)
    from codegen.llvm.compile import assembly

    r = read_assembly(assembly(kernel.llvm_ir(), kernel.target, comments=True), "f", kernel.target)
    assert [loop.name for loop in r.loops] == [None] * len(r.loops)
    assert max(loop.fma for loop in r.loops) == 24 and ".L" not in str(r) and "BB0_" in str(r)
