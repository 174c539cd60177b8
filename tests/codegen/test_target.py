"""Targets from strings and keywords, and what is said about the ones that are wrong."""

from types import SimpleNamespace

import pytest

from codegen import Target, processor
from codegen.processor import host_caches, host_cores, host_processor


def test_the_host(monkeypatch):
    monkeypatch.delenv("TIR_MCPU", raising=False)
    target = Target("llvm")
    assert target == Target() == Target(target) == Target("llvm", num_cores=None or host_cores())
    assert (target.kind, target.num_cores, target.arch) == ("llvm", host_cores(), "")
    assert (target.mcpu, target.mattr) == host_processor()
    assert (target.l1, target.l2, target.l3) == host_caches()
    assert 0 < target.l1 < target.l2 < target.l3
    assert target.vector_bits in (128, 256, 512)


@pytest.mark.parametrize(("spec", "expected"), [
    ("llvm -num-cores 3", {"num_cores": 3}),
    ("llvm --num-cores=3", {"num_cores": 3}),
    ("llvm -num_cores 3 -mcpu znver4", {"num_cores": 3, "mcpu": "znver4", "vector_bits": 512}),
    ("llvm -mcpu haswell", {"mcpu": "haswell", "vector_bits": 256}),
    ("llvm -mcpu x86-64-v3", {"vector_bits": 256}),
    ("llvm -mcpu x86-64-v4", {"vector_bits": 512}),
    ("llvm -mcpu znver3", {"vector_bits": 256}),
    ("llvm -mcpu skylake", {"vector_bits": 256}),
    ("llvm -mcpu skylake-avx512", {"vector_bits": 512}),
    ("llvm -mcpu x86-64", {"vector_bits": 128}),
    ("llvm -mcpu x86-64 -mattr +avx2,+fma", {"mattr": "+avx2,+fma", "vector_bits": 256}),
    ("llvm -vector-bits 256 -l1 49152 -l2 2097152 -l3 33554432", {"vector_bits": 256, "l1": 49152, "l2": 2**21, "l3": 2**25}),
    ("cuda -arch sm_90a", {"kind": "cuda", "arch": "sm_90a"}),
    ("llvm -move-threads 0", {"kind": "llvm", "move_threads": False}),
    ("llvm", {"kind": "llvm", "move_threads": True}),
    ("cuda -fast-math 1", {"kind": "cuda", "arch": "sm_90", "fast_math": True}),
    ("cuda", {"kind": "cuda", "arch": "sm_90", "mcpu": "", "mattr": "", "sms": 132, "clock": 1755, "memory": "3350"}),
    ("cuda -arch sm_86 -sms 28 -clock 1777 -l2 3145728 -memory 360", {"sms": 28, "clock": 1777, "l2": 3 << 20, "memory": "360"}),
    ("llvm", {"sms": 0, "clock": 0}),
    ({"kind": "llvm", "num-cores": 2, "mcpu": "znver3"}, {"num_cores": 2, "mcpu": "znver3", "vector_bits": 256}),
])  # fmt: skip
def test_strings_and_mappings(spec, expected):
    target = Target(spec)
    assert {key: getattr(target, key) for key in expected} == expected


def test_another_processor_than_the_hosts_brings_its_own_features():
    host, features = host_processor()
    for mcpu in ("znver4", "znver5", "haswell", "skylake-avx512"):
        assert Target(f"llvm -mcpu {mcpu}").mattr == (features if mcpu == host else "")


def test_tile_registers_only_where_the_system_permits_them(monkeypatch):
    flags = SimpleNamespace(flatten=lambda: "+avx2,+amx-tile,+amx-int8,-amx-fp16")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: flags)
    for permitted, expected in ((True, "+avx2,+amx-tile,+amx-int8,-amx-fp16"), (False, "+avx2,-amx-tile,-amx-int8,-amx-fp16")):
        monkeypatch.setattr("codegen.processor._tiles_permitted", lambda answer=permitted: answer)
        assert host_processor.__wrapped__()[1] == expected


def test_keywords_go_before_the_string():
    assert Target("llvm -num-cores 3", num_cores=1).num_cores == 1
    assert Target("llvm", num_cores=1) == Target("llvm -num-cores 1")
    assert Target(Target("llvm", num_cores=7), mcpu="x86-64", mattr="", vector_bits=128).num_cores == 7
    assert Target("cuda", arch="sm_80").arch == "sm_80"


def test_the_printed_form_means_the_same():
    specs = (
        "llvm -num-cores 3",
        "llvm -mcpu znver4 -num-cores 1",
        "cuda -arch sm_80",
        "cuda -arch sm_86 -sms 28 -memory 360",
        "llvm -mcpu x86-64 -mattr +avx2,+fma",
        "llvm -l2 7",
    )
    for spec in (*specs, "llvm -vector-bits 128 -l1 99", "llvm -mattr ''"):
        target = Target(spec)
        assert Target(str(target)) == target
    assert str(Target("llvm -num-cores 2 -mcpu haswell")) == "llvm -num-cores 2 -mcpu haswell"


def test_targets_are_values():
    a, b = Target("llvm -num-cores 2"), Target("llvm", num_cores=2)
    assert a == b and hash(a) == hash(b) and a != Target("llvm -num-cores 3")
    with pytest.raises(AttributeError):
        a.num_cores = 3


def test_lanes():
    target = Target("llvm -vector-bits 512")
    assert [target.lanes(bits) for bits in (8, 16, 32, 64, 512, 1024)] == [64, 32, 16, 8, 1, 1]


@pytest.mark.parametrize(("spec", "options", "message"), [
    ("", {}, "target '': the first word must be one of llvm, cuda"),
    ("gcc -O3", {}, "target 'gcc -O3': the first word must be one of llvm, cuda"),
    ({"num-cores": 2}, {}, "target {'num-cores': 2}: its kind must be one of llvm, cuda"),
    ({"kind": "llvm", "num-core": 2}, {}, "target option 'num-core' is unknown; did you mean num_cores?"),
    ("llvm 3", {}, "target 'llvm 3': expected an option such as -num-cores, got '3'"),
    ("llvm -num-cores", {}, "target 'llvm -num-cores': option -num-cores needs a value"),
    ("llvm -num-core 3", {}, "target option '-num-core' is unknown; did you mean num_cores?"),
    (
        "llvm -colour red",
        {},
        "target option '-colour' is unknown; known are num_cores, mcpu, mattr, vector_bits, l1, l2, l3, memory, arch, fast_math, move_threads, mtriple, sms, clock, kind",
    ),
    ("llvm", {"cores": 3}, "target option 'cores' is unknown; did you mean num_cores?"),
    ("llvm -num-cores two", {}, "target option num_cores must be an integer, got 'two'"),
    ("llvm -num-cores 0", {}, "target option num_cores must be at least 1, got 0"),
    ("llvm", {"num_cores": -1}, "target option num_cores must be at least 1, got -1"),
    ("llvm", {"l2": 0}, "target option l2 must be at least 1, got 0"),
    ("llvm", {"num_cores": [1]}, "target option num_cores must be an integer, got [1]"),
    ("llvm", {"num_cores": 1.5}, "target option num_cores must be an integer, got 1.5"),
    ("llvm", {"num_cores": True}, "target option num_cores must be an integer, got True"),
    ("llvm", {"num_cores": float("inf")}, "target option num_cores must be an integer, got inf"),
    ("llvm", {"vector_bits": 256.7}, "target option vector_bits must be an integer, got 256.7"),
    ("llvm", {"vector_bits": [256]}, "target option vector_bits must be an integer, got [256]"),
    ("llvm", {"mcpu": 3}, "target option mcpu must be a string, got 3"),
    ("llvm", {"mcpu": "a\0b"}, "target option mcpu has letters, digits and any of `.,+-_`, got 'a\\x00b'"),
    ("llvm", {"mattr": '+a"'}, "target option mattr has letters, digits and any of `.,+-_`, got '+a\"'"),
    ("llvm -mattr avx2", {}, "target option mattr: 'avx2' is not a feature; write +NAME or -NAME, such as '+avx2,-avx512f'"),
    ("llvm", {"mattr": "+avx2,-"}, "target option mattr: '-' is not a feature; write +NAME or -NAME, such as '+avx2,-avx512f'"),
    ("llvm", {"fast_math": [0]}, "target option fast_math must be 0 or 1, got [0]"),
    ("llvm -mcpu 'generic", {}, 'target "llvm -mcpu \'generic": No closing quotation'),
    ("cuda", {"arch": 90}, "target option arch must be a string, got 90"),
    ("llvm -vector-bits wide", {}, "target option vector_bits must be an integer, got 'wide'"),
    ("llvm -vector-bits 100", {}, "target option vector_bits must be a power of two from 64 to 2048, got 100"),
    ("llvm -arch sm_90", {}, "target option arch is for cuda; use mcpu with llvm"),
    ("cuda -mcpu znver4", {}, "target option mcpu is for llvm; use arch with cuda"),
    ("cuda -fast-math yes", {}, "target option fast_math must be 0 or 1, got 'yes'"),
    ("llvm -move-threads 2", {}, "target option move_threads must be 0 or 1, got '2'"),
    ("cuda -move-threads 1", {}, "target option move_threads is for llvm; use arch with cuda"),
    ("llvm -fast-math 1", {}, "target option fast_math is for cuda"),
    ("llvm -sms 3", {}, "target option sms is for cuda"),
    ("llvm -clock 3", {}, "target option clock is for cuda"),
    ("cuda -sms none", {}, "target option sms must be an integer, got 'none'"),
    ("cuda -memory 1.5", {}, "target option memory must be an integer, got '1.5'"),
    ("cuda -clock -1", {}, "target option clock must be at least 1, got -1"),
    ("cuda -sms 0", {}, "target option sms must be at least 1, got 0"),
    ("cuda -arch hopper", {}, "target option arch must look like sm_90, got 'hopper'"),
    (
        "llvm -mcpu zen99",
        {},
        "target option mcpu: LLVM knows no processor 'zen99' of this kind; its names are those of `clang --print-supported-cpus`, "
        f"this processor is {host_processor()[0]}, and -mtriple gives another architecture",
    ),
    ("llvm", {"kind": "metal"}, "target kind 'metal' is unknown; known are llvm, cuda"),
    (3, {}, "a target is a string such as 'llvm -num-cores 2', got 3"),
])  # fmt: skip
def test_errors(spec, options, message):
    with pytest.raises(ValueError) as caught:
        Target(spec, **options)
    assert str(caught.value) == message


@pytest.mark.parametrize(("siblings", "cores"), [("0-3\n", 1), ("{even}\n", 2), ("{n}\n", 4), (None, 2)])
def test_processors_of_one_core_count_once(monkeypatch, siblings, cores):
    def read_text(path):
        if siblings is None:
            raise FileNotFoundError
        n = int(path.parts[-3].removeprefix("cpu"))
        return siblings.format(n=n, even=n % 2)

    monkeypatch.setattr(processor.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(processor.Path, "read_text", read_text)
    assert processor.physical_cores() == cores
