"""What is known of processors by name, and that machine code for other ones than this is refused, not run."""

from types import SimpleNamespace

import numpy as np
import pytest

import codegen
from codegen import Target, UnsupportedProcessor, processor
from codegen.processor import (
    INSTRUCTION_SETS,
    default_processor,
    host_features,
    host_processor,
    known_processor,
    processor_features,
    vector_bits,
    vector_registers,
)  # fmt: skip
from search.measure.local import LocalMeasurer
from search.task import Task
from tests.codegen.harness import ONE, same
from tests.programs import matmul

LONG, SHORT = (512, 32), (256, 16)  # bits of a vector register, and how many there are
PROCESSORS = {
    LONG: "skylake-avx512 cascadelake cooperlake cannonlake icelake-client icelake-server tigerlake rocketlake sapphirerapids "
    "emeraldrapids graniterapids graniterapids-d diamondrapids knl knm znver4 znver5 x86-64-v4",
    SHORT: "haswell broadwell skylake alderlake raptorlake meteorlake arrowlake arrowlake-s lunarlake pantherlake gracemont "
    "sierraforest grandridge clearwaterforest bdver4 znver1 znver2 znver3 x86-64-v3 core-avx2",
    (128, 16): "x86-64 x86-64-v2 nocona core2 nehalem westmere sandybridge ivybridge silvermont goldmont tremont atom btver1 btver2 "
    "bdver1 bdver3 k8 amdfam10",
}  # fmt: skip


@pytest.mark.parametrize(("vectors", "mcpu"), [(v, name) for v, names in PROCESSORS.items() for name in names.split()])
def test_vector_registers_by_name(vectors, mcpu):
    if not known_processor(mcpu):
        pytest.skip("this LLVM has no processor of that name")
    features = processor_features(mcpu, "")
    assert (bits := vector_bits(features), vector_registers(features, bits)) == vectors


def test_features_by_name():
    """From the manuals of their makers."""
    wanted = {
        "znver4": ({"avx512vnni", "avx512bf16", "f16c", "fma", "gfni", "sse4a"}, {"avxvnni", "avx512fp16", "fma4", "xop"}),
        "alderlake": ({"avxvnni", "avx2", "f16c", "gfni"}, {"avx512f", "avx512vnni", "sse4a"}),
        "rocketlake": ({"avx512vnni", "avx512vl", "gfni"}, {"avx512bf16", "avx512fp16", "avxvnni"}),
        "sapphirerapids": ({"avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"}, {"amx-fp16", "sse4a"}),
        "bdver4": ({"avx2", "fma", "fma4", "xop", "tbm"}, {"avx512f"}),
        "x86-64": ({"sse2"}, {"sse3", "avx", "fma"}),
    }
    for mcpu, (has, has_not) in wanted.items():
        assert processor_features(mcpu, "") & (has | has_not) == has, mcpu


def test_features_beside_those_of_the_name():
    added = Target("llvm -mcpu x86-64 -mattr +fma").features - Target("llvm -mcpu x86-64").features
    assert added == {"sse3", "ssse3", "sse4.1", "sse4.2", "avx", "fma"}
    without = Target("llvm -mcpu znver4 -mattr=-avx512f").features
    assert "avx2" in without and not any(name.startswith("avx512") for name in without)
    assert Target("cuda").features == set()


def test_the_features_of_the_host_are_what_llvm_says():
    """By its inliner the same as by the processor's own word."""
    assert processor._features_of(*host_processor()) == host_features() & INSTRUCTION_SETS
    assert Target(f"llvm -mcpu {host_processor()[0]}").features == host_features()


def test_kernels_for_what_the_host_has_not_are_refused(old_host, tmp_path):
    kernel = codegen.build(matmul(7, 13, 5), f"{ONE} -mcpu x86-64-v3")
    arrays = [np.ones(shape, "float32") for shape in ((7, 13), (13, 5), (7, 5))]
    message = (
        "code for `llvm -num-cores 1 -mcpu x86-64-v3` cannot run here: this processor, x86-64-v2, has no avx, avx2, bmi, bmi2, f16c, "
        'fma, lzcnt, movbe. Build it for this processor, target "llvm", to run it here; for a machine that has them, `export` writes '
        "it as a file"
    )
    for call in (kernel, kernel.bind, kernel.time, lambda *_: kernel.load()):
        with pytest.raises(UnsupportedProcessor) as caught:
            call(*arrays)
        assert str(caught.value) == message
    assert "vfmadd" in kernel.asm() and kernel.export(tmp_path / "kernel.o").exists()


def test_nor_are_they_measured(old_host):
    task = Task.of(matmul(7, 13, 5), f"{ONE} -mcpu x86-64-v3")
    with pytest.raises(
        ValueError, match=r"^kernels for `llvm .*` cannot be measured here: this processor, x86-64-v2, has no avx, "
    ):
        LocalMeasurer(task)


def test_kernels_for_less_than_the_host_has_run():
    same(matmul(7, 13, 5), targets=[ONE, f"{ONE} -mcpu x86-64"])
    assert not codegen.backend("llvm").missing(Target("llvm -mcpu x86-64"))


def test_the_environment_names_the_processor_of_targets_that_name_none(monkeypatch):
    monkeypatch.setenv("TIR_MCPU", "znver3")
    assert Target("llvm") == Target("llvm -mcpu znver3") and Target("llvm").vector_bits == 256
    assert Target("llvm -mcpu znver4").mcpu == "znver4"
    monkeypatch.setenv("TIR_MCPU", "")
    assert Target("llvm").mcpu == host_processor()[0]
    monkeypatch.setenv("TIR_MCPU", "zen99")
    with pytest.raises(ValueError, match=r"^environment variable TIR_MCPU: LLVM knows no processor 'zen99' of this kind; "):
        Target("llvm")


def test_a_call_is_checked_by_code_for_this_processor(monkeypatch, old_host):
    """Whatever others are the default for."""
    from codegen.llvm import native_call

    native_call._method.cache_clear()
    monkeypatch.setenv("TIR_MCPU", "x86-64-v4")
    a, b, c = (np.ones(shape, "float32") for shape in ((7, 13), (13, 5), (7, 5)))
    codegen.build(matmul(7, 13, 5), f"{ONE} -mcpu x86-64")(a, b, c)
    assert (c == 13).all() and default_processor() == "x86-64-v4"


@pytest.mark.parametrize(("name", "features", "found"), [
    ("rocketlake", "+avx512f,+amx-tile,+avx512fp16", "sapphirerapids"),  # a model number that a hypervisor gives
    ("rocketlake", "+avx512f,-amx-tile", "rocketlake"),
    ("icelake-server", "+amx-tile,+amx-fp16", "graniterapids"),
    ("diamondrapids", "+amx-tile,+amx-fp16", "diamondrapids"),  # a newer one
    ("znver9", "+amx-tile", "znver9"),
])  # fmt: skip
def test_a_processor_that_llvm_takes_for_an_older_one(name, features, found, monkeypatch):
    import llvmlite.binding as llvm

    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: name)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: SimpleNamespace(flatten=lambda: features))
    monkeypatch.setattr(processor, "_tiles_permitted", lambda: False)
    assert host_processor.__wrapped__() == (found, features.replace("+amx-", "-amx-"))
