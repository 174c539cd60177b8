"""The object cache: what makes a key, damage, eviction, and several processes at once."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import codegen
from codegen.cache import ABANDONED_SECONDS, ObjectCache, compiler_sources, default_path, object_key, users_cache
from tir.notices import Degraded

from .matmul import matmul, operands, tiled

ROOT = Path(__file__).parents[2]
ONE = "llvm -num-cores 1"


def key(n: int) -> str:
    return f"{n:064x}"[::-1]


@pytest.fixture
def cache(tmp_path) -> ObjectCache:
    return ObjectCache(tmp_path / "objects", max_bytes=1 << 20)


@pytest.fixture
def compilations(monkeypatch) -> list[str]:
    """The modules that LLVM compiles."""
    from codegen.llvm import build

    seen: list[str] = []
    original = build.object_code
    monkeypatch.setattr(build, "object_code", lambda text, target: seen.append(text) or original(text, target))
    return seen


def test_second_build_does_not_compile(cache, compilations):
    first = codegen.build(matmul(7, 13, 5), ONE, cache=cache)
    second = codegen.build(matmul(7, 13, 5), ONE, cache=cache)
    assert len(compilations) == 1 and first.code == second.code
    assert (cache.statistics.hits, cache.statistics.misses, cache.statistics.stored, len(cache)) == (1, 1, 1, 1)
    a, b, c = operands(7, 13, 5)
    second(a, b, c)
    assert np.array_equal(c, a @ b)


def test_no_cache_by_default(tmp_path, monkeypatch, compilations):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        codegen.build(matmul(7, 13, 5), ONE)
    assert len(compilations) == 2 and not list(tmp_path.iterdir())


def test_an_empty_cache_is_used(cache, compilations):
    assert len(cache) == 0 and cache
    codegen.build(matmul(1, 1, 1), ONE, cache=cache)
    assert len(cache) == 1


def test_other_programs_and_targets_are_other_entries(cache, compilations):
    for func in (matmul(7, 13, 5), matmul(7, 13, 6), tiled(7, 13, 16, 7, 16)):
        codegen.build(func, ONE, cache=cache)
    codegen.build(matmul(7, 13, 5), "llvm -num-cores 1 -mcpu x86-64-v3", cache=cache)
    assert len(compilations) == len(cache) == 4


def test_key_depends_on_all_that_the_object_does(monkeypatch):
    from codegen import cache as module

    target = codegen.Target("llvm -num-cores 1 -mcpu znver4")
    keys = {object_key("a", target), object_key("b", target), object_key("a", codegen.Target("llvm -mcpu znver3"))}
    keys.add(object_key("a", codegen.Target("llvm -mcpu znver4 -mattr +avx2")))
    monkeypatch.setattr("codegen.llvm.compile.PASSES", ("sroa",))
    module._compiler.cache_clear()
    keys.add(object_key("a", target))
    monkeypatch.setattr("llvmlite.__version__", "9.9")
    module._compiler.cache_clear()
    keys.add(object_key("a", target))
    monkeypatch.undo()
    module._compiler.cache_clear()
    assert len(keys) == 6
    assert object_key("a", target) == object_key("a", codegen.Target("llvm -num-cores 2 -mcpu znver4")) in keys


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign"])
def test_damaged_entries_are_made_again(cache, compilations, damage):
    good = codegen.build(matmul(7, 13, 5), ONE, cache=cache).code
    (file,) = cache.path.glob("*/*")
    data = bytearray(file.read_bytes())
    match damage:
        case "truncate":
            data = data[: len(data) // 2]
        case "flip":
            data[-20] ^= 1
        case "empty":
            data = bytearray()
        case "foreign":
            data = bytearray(b"something else\n" * 40)
    file.write_bytes(data)
    assert codegen.build(matmul(7, 13, 5), ONE, cache=cache).code == good
    assert len(compilations) == 2 and cache.statistics.corrupt == 1
    assert codegen.build(matmul(7, 13, 5), ONE, cache=cache).code == good
    assert len(compilations) == 2


def test_an_entry_under_another_name_is_damaged(tmp_path):
    cache = ObjectCache(tmp_path)
    cache.put(key(1), b"one")
    cache._file(key(2)).parent.mkdir(exist_ok=True)
    cache._file(key(1)).rename(cache._file(key(2)))
    assert cache.get(key(2)) is None and cache.statistics.corrupt == 1


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files here")
def test_a_directory_of_others_is_refused(tmp_path, monkeypatch):
    ObjectCache(tmp_path)
    tmp_path.chmod(0o770)
    with pytest.raises(PermissionError, match=r"others may write to the cache .*, and their code would be run; chmod go-w it"):
        ObjectCache(tmp_path)
    tmp_path.chmod(0o755)
    ObjectCache(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user, whose code would be run"):
        ObjectCache(tmp_path)


def test_size_is_bounded(tmp_path):
    cache = ObjectCache(tmp_path, max_bytes=40_000)
    for n in range(200):
        assert cache.put(key(n), bytes([n % 256]) * 1000)
        assert cache.nbytes() <= 40_000
    assert cache.statistics.stored == 200 == len(cache) + cache.statistics.evicted
    assert cache.get(key(199)) is not None and cache.get(key(0)) is None
    assert len(cache) >= 20


def test_least_recently_used_go_first(tmp_path):
    cache = ObjectCache(tmp_path, max_bytes=1 << 20)
    for n in range(10):
        cache.put(key(n), b"x" * 1000)
        os.utime(cache._file(key(n)), (n, n))
    assert cache.get(key(0)) is not None  # now the youngest
    small = ObjectCache(tmp_path, max_bytes=6000)
    small.evict()
    assert [n for n in range(10) if cache._file(key(n)).exists()] == [0, 7, 8, 9]


def test_what_does_not_fit_is_not_kept(tmp_path):
    cache = ObjectCache(tmp_path, max_bytes=1000)
    assert not cache.put(key(1), b"x" * 1000)
    assert cache.put(key(2), b"x" * 100)
    assert cache.get(key(1)) is None and cache.get(key(2)) == b"x" * 100


def test_entries_that_others_left_count(tmp_path):
    for n in range(20):
        ObjectCache(tmp_path, max_bytes=1 << 20).put(key(n), b"x" * 1000)
    small = ObjectCache(tmp_path, max_bytes=6000)
    small.put(key(20), b"x" * 1000)
    assert small.nbytes() <= 6000 and small.get(key(20)) is not None


def test_abandoned_parts_go(cache):
    cache.put(key(1), b"x")
    folder = cache._file(key(1)).parent
    old, young = folder / "a.part", folder / "b.part"
    for file in (old, young):
        file.write_bytes(b"half")
    os.utime(old, (0, time.time() - 2 * ABANDONED_SECONDS))
    cache.evict()
    assert not old.exists() and young.exists() and len(cache) == 1
    cache.clear()
    assert len(cache) == 0 and cache.nbytes() == 0


def test_a_file_system_that_refuses_does_not_stop_a_build(cache, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tir.files.os.open", refuse)
    with pytest.warns(Degraded, match="cannot be written, and kernels are compiled anew: No space left on device$") as caught:
        codegen.build(matmul(3, 4, 5), ONE, cache=cache)
        codegen.build(matmul(3, 4, 6), ONE, cache=cache)
    assert (cache.statistics.failed, cache.statistics.stored, len(cache), len(caught)) == (2, 0, 0, 1)


def test_an_entry_that_cannot_be_read_is_said_and_is_a_miss(cache, monkeypatch):
    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    cache.put(key(1), b"x")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.warns(Degraded, match="cannot be read, and kernels are compiled anew: Permission denied$"):
        assert cache.get(key(1)) is None
    assert (cache.statistics.misses, cache.statistics.failed) == (1, 1)


def test_a_user_without_a_place_for_a_cache_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(Degraded, match="^compiled kernels are not kept, and each process compiles them anew: .*Not a directory"):
        assert users_cache.__wrapped__() is None


def test_a_failed_write_leaves_nothing(cache, monkeypatch):
    def refuse(*args):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("tir.files.os.replace", refuse)
    with pytest.warns(Degraded, match="Input/output error"):
        assert not cache.put(key(1), b"x")
    assert not list(cache._file(key(1)).parent.iterdir())


def test_an_entry_is_replaced_at_once(cache, monkeypatch):
    """Whoever reads while another process writes finds the old entry."""
    found: list[bytes | None] = []
    replace = os.replace
    monkeypatch.setattr("tir.files.os.replace", lambda *names: (found.append(cache.get(key(1))), replace(*names)))
    cache.put(key(1), b"old")
    cache.put(key(1), b"new")
    assert found == [None, b"old"] and cache.get(key(1)) == b"new"


def test_a_cache_can_be_sent_to_workers(cache):
    cache.put(key(1), b"x")
    assert pickle.loads(pickle.dumps(cache)).get(key(1)) == b"x"


def test_arguments_are_checked(tmp_path):
    with pytest.raises(ValueError, match="max_bytes must be at least 1, got 0"):
        ObjectCache(tmp_path, max_bytes=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        ObjectCache(tmp_path / "file")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the XDG folders are for other systems")
def test_default_path(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "tir" / "objects"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_path() == Path.home() / ".cache" / "tir" / "objects"


def test_only_the_owner_may_look(cache):
    if os.name == "posix":
        assert cache.path.stat().st_mode & 0o077 == 0


# Two of these run at once, on the same keys: they write, read back, evict, and damage entries.
WORKER = """
import random, sys
from codegen.cache import ObjectCache
cache = ObjectCache(sys.argv[1], max_bytes=60_000)
rng = random.Random(int(sys.argv[2]))
for step in range(800):
    n = rng.randrange(60)
    key, value = f"{n:064x}"[::-1], bytes([n]) * (500 + 20 * n)
    found = cache.get(key)
    assert found is None or found == value, n
    assert cache.put(key, value), n
    if step % 50 == 0:
        cache._file(key).write_bytes(b"damaged")
print(cache.statistics.hits, cache.statistics.failed, cache.statistics.corrupt)
"""


def test_processes_share_a_cache(tmp_path):
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), str(seed)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for seed in range(2)
    ]
    outputs = [w.communicate(timeout=60)[0].split() for w in workers]
    assert [w.returncode for w in workers] == [0, 0]
    assert all(int(hits) > 100 and failed == "0" for hits, failed, _ in outputs)
    assert sum(int(corrupt) for *_, corrupt in outputs) <= 2 * 800 // 50  # no more than were damaged: none is seen half written
    cache = ObjectCache(tmp_path, max_bytes=60_000)
    assert cache.nbytes() <= 60_000 * 33 // 32 and not list(tmp_path.glob("*/*.part"))


BUILDER = """
import sys
import codegen
from tests.programs import matmul
cache = codegen.ObjectCache(sys.argv[1])
for n in range(1, 9):
    codegen.build(matmul(n, 13, 5), "llvm -num-cores 1", cache=cache)
print(cache.statistics.corrupt)
"""


def test_processes_build_at_once(tmp_path):
    workers = [
        subprocess.Popen([sys.executable, "-c", BUILDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [w.communicate(timeout=60)[0].strip() for w in workers] == ["0", "0"]
    cache = ObjectCache(tmp_path)
    assert len(cache) == 8
    a, b, c = operands(5, 13, 5)
    codegen.build(matmul(5, 13, 5), ONE, cache=cache)(a, b, c)
    assert cache.statistics.hits == 1 and np.array_equal(c, a @ b)


def test_the_sources_of_the_compiler_are_told_apart(tmp_path):
    file = tmp_path / "more.py"
    file.write_text("A = 1\n")
    known = [compiler_sources(), compiler_sources(), compiler_sources(str(file))]
    assert known[0] == known[1] != known[2] and all(len(k) == 64 for k in known)


def test_another_llvm_makes_other_objects(monkeypatch):
    known = compiler_sources.__wrapped__()
    monkeypatch.setattr("codegen.cache._compiler", lambda: ["another version"])
    assert compiler_sources.__wrapped__() != known
