"""The published programs: read as they are, well formed, and right at reduced size."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import published
from benchmarks.published import SECONDS as PUBLISHED
from benchmarks.published import program, with_output
from tests.schedule.harness import round_trip
from tests.tir.script.parsing import parsed
from tir import workloads
from tir.interpreter import run
from tir.script import Module, parse
from tir.verify import verify

needs_published = pytest.mark.skipif(
    not published.FOLDER.is_dir(), reason="the published programs lie beside the checkout, in shared/published, and not here"
)


@needs_published
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_programs_parse_as_they_are(name: str):
    parsed = parse(published.source(name))
    func = parsed["main"] if isinstance(parsed, Module) else parsed
    round_trip(func)
    report = verify(func)
    assert report.ok, str(report)
    assert not report.unproved, str(report)


@needs_published
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_programs_run_when_executed(name: str):
    """As Python modules too, not only as texts."""
    path = published.FOLDER / f"{name}.py"
    namespace: dict = {"__name__": name}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    found = namespace.get("Module", namespace.get("main"))
    assert found == parse(path.read_text())


# Numbers of the naive programs: sizes, and products of them. Sizes are odd where the program does not tile.
ODD = {"1024": "13", "2048": "7", "3072": "11", "1048576": "169", "3145728": "143", "2097152": "91"}


def reduced(name: str, text: str) -> str:
    """A published program with smaller sizes: as many tiles of the same kinds, or fewer."""
    if name in ("00_lowered_naive", "01_lowered_reorder", "10_blocks_naive"):
        return re.sub(r"\d{4,}", lambda m: ODD[m[0]], text)
    if name != "22_blocks_metaschedule":  # sizes, their products and numbers of tiles are multiples of 64; tiles are smaller

        def shrink(m: re.Match) -> str:
            n = int(m[0])
            return str(n // 4096 if n > 1000000 else n // 64 if n >= 64 else n)

        return re.sub(r"(?<![\w.])\d+(?![\w.])", shrink, text)
    for old, new in (  # M, K, L, N = 64, 16, 32, 192
        ("A: T.Buffer((1024, 2048)", "A: T.Buffer((64, 16)"),
        ("B: T.Buffer((2048, 1024)", "B: T.Buffer((16, 32)"),
        ("E: T.Buffer((1024, 3072)", "E: T.Buffer((32, 192)"),
        ("F: T.Buffer((1024, 3072)", "F: T.Buffer((64, 192)"),
        ("alloc_buffer((1024, 1024))", "alloc_buffer((64, 32))"),
        ("alloc_buffer((1024, 3072))", "alloc_buffer((64, 192))"),
        ("T.serial(32,", "T.serial(2,"),
        ("T.serial(4,", "T.serial(1,"),
        ("T.grid(2, 1, 32)", "T.grid(1, 1, 2)"),
        ("T.grid(128, 32, 2, 16, 1)", "T.grid(1, 32, 2, 16, 1)"),
        ("T.grid(256, 1024)", "T.grid(64, 32)"),
        ("T.grid(1, 4, 16)", "T.grid(1, 1, 1)"),
        ("T.grid(128, 32, 6, 8, 2)", "T.grid(4, 32, 6, 8, 2)"),
        ("v_m = T.axis.spatial(1024", "v_m = T.axis.spatial(64"),
        ("v0 = T.axis.spatial(1024", "v0 = T.axis.spatial(64"),
        ("v_l = T.axis.spatial(1024", "v_l = T.axis.spatial(32"),
        ("v_n = T.axis.spatial(3072", "v_n = T.axis.spatial(192"),
        ("v1 = T.axis.spatial(3072", "v1 = T.axis.spatial(192"),
        ("v_rk = T.axis.reduce(2048", "v_rk = T.axis.reduce(16"),
        ("v_rl = T.axis.reduce(1024", "v_rl = T.axis.reduce(32"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return text


@needs_published
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_programs_compute_what_numpy_does(name: str):
    """At reduced size; at full size that is asserted by `python -m benchmarks published`."""
    import tir

    func = program(reduced(name, published.source(name)))
    assert verify(func).ok
    (M, K), (_, L), (_, N) = (tuple(int(d.value) for d in b.shape) for b in func.buffers[:3])  # type: ignore[attr-defined]
    instance = workloads.make("mlp", (M, K, L, N))
    inputs = instance.inputs(np.random.default_rng(0))
    for call in (lambda *a: run(func, *a), tir.build(func, target="llvm")):
        F = instance.outputs()
        call(*inputs, F[0].reshape(-1) if len(func.buffers[3].shape) == 1 else F[0])
        found = instance.check(F, inputs)
        assert found.ok, found


def test_the_output_can_be_a_temporary():
    func = parsed("S = T.decl_buffer((7,))\nfor i in range(7):\n    S[i] = A[i, 0]\nB[0, 0] = S[1]")
    lifted = with_output(func, "S")
    assert [p.name for p in lifted.params] == ["A", "B", "S"]
    assert verify(lifted).ok
    assert with_output(lifted, "S") is lifted
