"""A language model beside llama.cpp: what is compared, kept and shown. Libraries are replaced by ones of known speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from benchmarks import generate, pages
from benchmarks.options import Options
from graph.checkpoint import Blocks, Config, load

SCORES = [[1.0, -2.0, 3.0], [0.5, 0.5, -0.5]]


class Library:
    """A contender that says how it is, and takes a second for a prompt and 10 ms for a step, or twice that for a peer."""

    peer: ClassVar[dict[str, Any]] = {"load_s": 0.1, "memory_mb": 50.0, "scores": SCORES}

    def __init__(self, module: str, name: str, file: str, threads: str, kept: str):
        self.slow = 1 + (name != "tir")
        ours = {"load_s": 2.0, "memory_mb": 70.0, "weights_mb": 60.0, "cache_mb": 5.0, "scores": SCORES}
        self.about = ours if name == "tir" else dict(self.peer)

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *error: object) -> None: ...

    def ask(self, request: str) -> dict[str, Any]:
        what, calls = request.split()
        assert int(calls) > 0
        return {"seconds": {"prefill": 1.0, "decode": 0.01}[what] * self.slow}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setattr(generate, "PEERS", {"llama.cpp": "json"})  # a package that is installed
    monkeypatch.setattr(generate, "Contender", Library)
    (tmp_path / "tiny-q4_0.gguf").write_bytes(bytes(1000))
    return Options(seconds=0.01, models=str(tmp_path), save=str(tmp_path / "kept"))


def test_parts_are_timed_kept_and_shown(options: Options, tmp_path: Path) -> None:
    (result,) = generate.measure("tiny-q4_0", options)
    assert result["tir"]["prefill"]["per_s"] == 512 and result["llama.cpp"]["decode"]["per_s"] == 50
    assert result["llama.cpp"]["prefill"]["ratio"] == result["llama.cpp"]["decode"]["ratio"] == 2.0
    assert result["llama.cpp"]["off"] == 0 and "scores" not in result["tir"]
    assert result["share"] == pytest.approx((0.001 + 5) * 100 / 1e3 / result["copy_gb_s"])
    json.dumps(result, allow_nan=False)
    assert pages.known(options.save, "generate")["tiny-q4_0/1"]["file_mb"] == 0.001
    page = (tmp_path / "kept" / "generate.md").read_text()
    assert "| tiny-q4_0 | 1 | llama.cpp | 256 | 256..256 | 50 | 50..50 | 2.00 | 2.00 | 0.0e+00 | 50 |  | 0.1 |  |" in page
    assert page.rstrip().splitlines()[-2].endswith("| 2 | 2 |")
    console = Console(width=200, record=True, file=sys.stderr)
    console.print(generate.table([{"row": "tiny-q4_0", **result}]))
    assert "llama.cpp" in console.export_text()


@pytest.mark.parametrize(("scores", "why"), [
    ([[1.0, -2.0, 3.0], [0.5, 0.5, 0.5]], "wrong scores: off by 0.26 of their root mean square"),
    ([[1.0, -2.0, 3.0]], "wrong scores: off by inf of their root mean square"),
    ([[np.nan] * 3] * 2, "wrong scores: off by nan of their root mean square"),
])  # fmt: skip
def test_wrong_scores_are_not_timed(options: Options, monkeypatch: pytest.MonkeyPatch, scores: list, why: str) -> None:
    monkeypatch.setattr(Library, "peer", Library.peer | {"scores": scores})
    (result,) = generate.measure("tiny-q4_0", options)
    assert result["error"] == f"llama.cpp: {why}" and "prefill" not in result["tir"]
    assert pages.known(options.save, "generate") == {}


def test_a_file_that_is_no_model_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    monkeypatch.setattr(generate, "PEERS", {})
    (tmp_path / "tiny-q4_0.gguf").write_bytes(b"nothing of the kind")
    (result,) = generate.measure("tiny-q4_0", Options(models=str(tmp_path)))
    assert result["error"].startswith("tir: CheckpointError: ")


@pytest.mark.parametrize("kind", sorted(generate.KINDS.values()))
def test_weights_of_a_file_have_their_type_and_variance(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf, _ = pytest.importorskip("gguf"), pytest.importorskip("tokenizers")
    from benchmarks import random_gguf

    sizes = Config(layers=1, width=256, heads=4, kv_heads=2, hidden=512, vocabulary=300)
    monkeypatch.setitem(random_gguf.SIZES, "small", sizes)
    random_gguf.write(tmp_path / "m.gguf", "small", kind)
    kinds = {t.tensor_type.name for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    assert kinds == {kind, "F32"}
    found = load(tmp_path / "m.gguf")
    assert found.config.interleaved and {n: w.shape for n, w in found.weights.items()} == sizes.shapes()
    assert found.encode("\n")[-1] == 3 + 10  # after <unk>, <s> and </s>, the byte
    for weight in found.weights.values():
        if len(weight.shape) == 2:
            floats = weight.floats() if isinstance(weight, Blocks) else weight.astype(np.float32)
            assert abs(floats.std() * weight.shape[1] ** 0.5 - 1) < 0.1 and abs(floats.mean()) < 0.1 * floats.std()
