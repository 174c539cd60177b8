"""`tir.dump`: the program after each stage of code generation."""

from __future__ import annotations

import re

import pytest

import codegen
import tir
from codegen.passes import CPU_PASSES
from schedule import Schedule
from tir.interpreter import run
from tir.traverse import blocks

from .matmul import matmul, operands, tiled

ONE = "llvm -num-cores 1"
FUNC = tiled(7, 13, 109, 3, 32)


def test_names_of_stages():
    names = codegen.stage_names()
    assert names == [*codegen.pass_names(), "llvm_ir", "asm"]
    assert [re.sub(r"_\d+$", "", n) for n in codegen.pass_names()] == [p.__name__ for p in CPU_PASSES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", codegen.pass_names())
def test_each_pass_keeps_the_meaning(name):
    """What a pass made can still be run."""
    after = codegen.lower(FUNC, codegen.Target(ONE), after=name)
    assert tir.dump(FUNC, ONE, after=name) == after.script()
    assert not blocks(after)
    a, b, c = operands(7, 13, 109)
    run(after, a, b, c)
    assert (c == a @ b).all()


def test_all_passes():
    text = tir.dump(FUNC, ONE)
    assert re.findall(r"^# --- after (\w+) ---$", text, re.MULTILINE) == codegen.pass_names()
    assert text.endswith(tir.dump(FUNC, ONE, after=codegen.pass_names()[-1]))


def test_llvm_ir_and_assembly():
    kernel = codegen.build(FUNC, ONE)
    assert tir.dump(FUNC, ONE, after="llvm_ir") == kernel.llvm_ir()
    assert tir.dump(FUNC, ONE, after="asm") == kernel.asm()
    assert "define i32 @tir_main(" in kernel.llvm_ir() and "tir_main:" in kernel.asm()


def test_unknown_stages_are_refused():
    with pytest.raises(ValueError) as raised:
        tir.dump(FUNC, ONE, after="llvm")
    assert str(raised.value) == f"dump: there is no stage 'llvm' for llvm; the stages are {', '.join(codegen.stage_names())}"


def test_what_can_be_dumped():
    with pytest.raises(TypeError) as raised:
        tir.dump(Schedule(matmul(3, 4, 5)))  # type: ignore[arg-type]
    assert str(raised.value) == "dump takes a PrimFunc, got Schedule (a Schedule's program is its .func)"
    with pytest.raises(ValueError) as refused:
        tir.dump(FUNC, "cuda", after="asm")
    assert str(refused.value) == "dump: there is no stage 'asm' for cuda; the stages are cuda"
    assert tir.dump(FUNC, "cuda").startswith('extern "C" __global__ void')
