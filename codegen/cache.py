"""A directory of compiled objects, so that no program is compiled twice for one target.

The name of an entry is a hash of the LLVM IR, the target, the versions of llvmlite and LLVM, and LLVM's passes. Any number of
processes and threads may share a directory: entries are written under another name and then renamed, carry a checksum of their
name and contents, and never change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tir
from tir.files import replace_file
from tir.notices import degraded

from .processor import machine_kind

MAGIC = b"tir object 2\n"
SUFFIX = ".object"
DEFAULT_CACHE_BYTES = 256 * 1024 * 1024
ABANDONED_SECONDS = 3600.0  # seconds after which a partly written entry counts as that of a dead process


def default_path() -> Path:
    """The default folder of the cache: `$XDG_CACHE_HOME/tir/objects`, or its equivalent on macOS and Windows."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = base if base.is_absolute() else Path.home() / ".cache"  # as the XDG specification says of relative ones
    return base / "tir" / "objects"


@dataclass
class Statistics:
    """The counts of one ObjectCache: entries found, not found, found damaged, written, refused by the system, evicted."""

    hits: int = 0
    misses: int = 0
    corrupt: int = 0
    stored: int = 0
    failed: int = 0
    evicted: int = 0


@dataclass
class ObjectCache:
    """Compiled objects in the directory `path`, of at most about `max_bytes` in all; the least recently used are evicted first.

    Each process checks the size whenever it has written 1/32 of `max_bytes`, and evicts entries down to 3/4 of `max_bytes`.
    Entries are machine code that will be run: the directory is made for its owner alone. Raises OSError if it cannot be made, and
    PermissionError if it belongs to another user or others may write to it.
    """

    path: Path = field(default_factory=default_path)
    max_bytes: int = DEFAULT_CACHE_BYTES
    statistics: Statistics = field(default_factory=Statistics, compare=False)

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {self.max_bytes}")
        self.path = Path(self.path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_others(self.path)
        self._written = self.max_bytes  # so that the first entry written checks the size

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`; None if it is missing or damaged."""
        file = self._file(key)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            self.statistics.misses += 1
            return None
        except OSError as error:
            self._failed("read", error)
            self.statistics.misses += 1
            return None
        code = _unwrapped(key, data)
        if code is None:
            self.statistics.corrupt += 1
            self.statistics.misses += 1
            _remove(file)
            return None
        with contextlib.suppress(OSError):  # another process may have evicted it meanwhile
            os.utime(file)
        self.statistics.hits += 1
        return code

    def put(self, key: str, code: bytes) -> bool:
        """Keep `code` under `key`. False if it does not fit, or the file system refuses: a cache may lose entries, not fail."""
        data = MAGIC + _checksum(key, code) + code
        if len(data) > self.max_bytes * 3 // 4:
            return False
        file = self._file(key)
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(file, data)
        except OSError as error:
            self._failed("written", error)
            return False
        self.statistics.stored += 1
        self._written += len(data)
        if self._written * 32 >= self.max_bytes:
            self._written = 0
            self.evict()
        return True

    def _failed(self, done: str, error: OSError) -> None:
        if not self.statistics.failed:  # said once a cache
            degraded(f"the cache {self.path} cannot be {done}, and kernels are compiled anew: {error.strerror or error}")
        self.statistics.failed += 1

    def evict(self) -> None:
        """Remove abandoned parts, and the least recently used entries until at most 3/4 of `max_bytes` are left."""
        entries: list[tuple[float, int, str]] = []
        now = time.time()
        for file in self._files():
            try:
                status = file.stat()
            except OSError:
                continue
            if file.name.endswith(SUFFIX):
                entries.append((status.st_mtime, status.st_size, file.path))
            elif now - status.st_mtime > ABANDONED_SECONDS:
                _remove(Path(file))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total * 4 <= self.max_bytes * 3:
                break
            _remove(Path(path))
            self.statistics.evicted += 1
            total -= size

    def clear(self) -> None:
        """Remove all entries."""
        for file in self._files():
            _remove(Path(file))

    def nbytes(self) -> int:
        """The size of all entries together."""
        total = 0
        for file in self._files():
            with contextlib.suppress(OSError):
                total += file.stat().st_size
        return total

    def __len__(self) -> int:
        return sum(f.name.endswith(SUFFIX) for f in self._files())

    def __bool__(self) -> bool:
        return True  # an empty cache is one

    def _file(self, key: str) -> Path:
        return self.path / key[:2] / f"{key[2:]}{SUFFIX}"

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """Entries, and parts of entries being written."""
        for folder in _listed(self.path):
            for file in _listed(folder) if len(folder.name) == 2 else ():
                if file.name.endswith((SUFFIX, ".part")):
                    yield file


class Collected(ObjectCache):
    """A cache that keeps the `objects` put into it or found, by key: those of one program, to be sent elsewhere."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        if (code := super().get(key)) is not None:
            self.objects[key] = code
        return code

    def put(self, key: str, code: bytes) -> bool:
        self.objects[key] = code
        return super().put(key, code)


def _listed(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """The entries of a folder; none of a missing one."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


@cache
def users_cache() -> ObjectCache | None:
    """The cache of compiled objects of this user; None, with a warning, where its directory cannot be used."""
    try:
        return ObjectCache()
    except OSError as error:
        degraded(f"compiled kernels are not kept, and each process compiles them anew: {error}")
        return None


def data_key(data: Any) -> str:
    """A hash of plain data: 64 hexadecimal digits, the same on all machines."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@cache
def compiler_sources(*others: str) -> str:
    """A hash of the sources that decide schedules and code, of `others`, and of LLVM's version and options."""
    root = Path(__file__).resolve().parents[1]
    packages = (Path(tir.__file__).resolve().parent, *(root / name for name in ("schedule", "codegen", "costmodel", "search")))
    found = hashlib.sha256(json.dumps([*_compiler(), machine_kind()]).encode())
    for file in (*(f for p in packages for f in sorted(p.rglob("*.py"))), *map(Path, others)):
        found.update(f"{file.name}\0".encode() + file.read_bytes())
    return found.hexdigest()


def object_key(text: str, target) -> str:
    """The key of the object of a module for a target: 64 hexadecimal digits, the same on all machines."""
    described = {"target": [target.mcpu, target.mattr, machine_kind(target.mtriple)], "compiler": _compiler()}
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode() + b"\0" + text.encode()).hexdigest()


@cache
def _compiler() -> list:
    """The compiler's versions and options that determine the object of a module, as data."""
    import llvmlite

    from .llvm.compile import MACHINE, PASSES, TUNING
    from .llvm_binding import llvm

    return [llvmlite.__version__, list(llvm.llvm_version_info), MACHINE, TUNING, PASSES]


def _refuse_others(directory: Path) -> None:
    """Raise PermissionError where other users may write to a directory, as far as the system can say."""
    if not hasattr(os, "getuid"):
        return
    status = directory.stat()
    if status.st_uid != os.getuid():
        raise PermissionError(f"the cache {directory} belongs to another user, whose code would be run")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"others may write to the cache {directory}, and their code would be run; chmod go-w it, or remove it"
        )


def _unwrapped(key: str, data: bytes) -> bytes | None:
    start = len(MAGIC) + hashlib.sha256().digest_size
    code = data[start:]
    return code if data[:start] == MAGIC + _checksum(key, code) else None


def _checksum(key: str, code: bytes) -> bytes:
    """The checksum of an entry with its key: a renamed entry counts as damaged."""
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
