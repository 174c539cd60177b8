"""What tests of export have in common: the C compilers that there are, and the names that are refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest

CC = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
CXX = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)

needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")
needs_cxx = pytest.mark.skipif(CXX is None, reason="there is no C++ compiler")


def has_openmp(tmp_path) -> bool:
    """Whether the C compiler can link OpenMP."""
    source = tmp_path / "probe.c"
    source.write_text("int main(void) { return 0; }\n")
    words = [CC, "-fopenmp", str(source), "-o", str(tmp_path / "probe")]
    return subprocess.run(words, capture_output=True).returncode == 0


# Each row: the file, the name asked for, and the reason of the refusal.
REFUSED = [
    ("product.dll", None, "export to 'product.dll': the suffix must be .so (shared library) or .o (object file)"),
    ("product", None, "export to 'product': the suffix must be .so (shared library) or .o (object file)"),
    ("7mm.o", None, "export to '7mm.o': '7mm' is not a name of a C function; pass another as name="),
    ("k.o", "a b", "export to 'k.o': 'a b' is not a name of a C function; pass another as name="),
    ("main.o", None, "export to 'main.o': 'main' is a word of C or C++; pass another as name="),
    ("k.o", "template", "export to 'k.o': 'template' is a word of C or C++; pass another as name="),
    ("libexp.so", None, "export to 'libexp.so': 'exp' is taken by a library of C; pass another as name="),
    ("tanhf.o", None, "export to 'tanhf.o': 'tanhf' is taken by a library of C; pass another as name="),
    ("k.o", "omp_get_thread_num", "export to 'k.o': 'omp_get_thread_num' is taken by a library of C; pass another as name="),
]
