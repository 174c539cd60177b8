"""Exported kernels: C programs are compiled against them and run; headers; refusals."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys

import numpy as np
import pytest

import codegen
from codegen import ExportError
from codegen.export import C_TYPES
from codegen.llvm import cores
from schedule import Schedule
from tests.arrays import integers
from tir import dtypes, te

from .c_programs import CC, CXX, REFUSED, has_openmp, needs_cc, needs_cxx
from .harness import ONE, TWO
from .matmul import matmul, operands, packed_product, tiled

# Reads A and B from one file and writes C to another, twice over, so that nothing is left behind by a call.
MAIN = """
#include <stdio.h>
#include "product.h"

static float a[7 * 13], b[13 * 109], c[7 * 109];

int main(int count, char **words) {
    FILE *in = fopen(words[1], "rb"), *out = fopen(words[2], "wb");
    if (count != 3 || !in || !out) return 2;
    if (fread(a, sizeof a, 1, in) != 1 || fread(b, sizeof b, 1, in) != 1) return 3;
    product(a, b, c);
    product(a, b, c);
    if (fwrite(c, sizeof c, 1, out) != 1) return 4;
    return fclose(in) || fclose(out);
}
"""


def run_program(folder, compiler, links, source="main.c") -> np.ndarray:
    (folder / source).write_text(MAIN)
    a, b, c = operands(7, 13, 109)
    (folder / "in").write_bytes(a.tobytes() + b.tobytes())
    words = [compiler, "-Wall", "-Wextra", "-Werror", "-o", "program", source, *links]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    environment = {"PATH": "", "OMP_NUM_THREADS": "2"}  # neither Python nor LLVM can be found
    done = subprocess.run([folder / "program", "in", "out"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    c = np.fromfile(folder / "out", "float32").reshape(c.shape)
    assert np.array_equal(c, a @ b)
    return c


@needs_cc
def test_a_name_with_commas(tmp_path):
    path = tmp_path / "product,7,13.so"
    codegen.build(matmul(7, 13, 5), ONE).export(path)
    a, b, c = operands(7, 13, 5)
    ctypes.CDLL(str(path)).product_7_13(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)))
    assert np.array_equal(c, a @ b)


@needs_cc
@pytest.mark.parametrize("suffix", [".o", ".so"])
@pytest.mark.parametrize("target", [ONE, TWO])
def test_c_program(tmp_path, suffix, target):
    if target == TWO and not has_openmp(tmp_path):
        pytest.skip("the C compiler cannot link OpenMP")
    kernel = codegen.build(tiled(7, 13, 109, 3, 32, parallel=True), target)
    file = tmp_path / ("libproduct.so" if suffix == ".so" else "product.o")
    assert kernel.export(file) == tmp_path / "product.h"
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("probe")) == sorted([file.name, "product.h"])
    links = [file.name] if suffix == ".o" else [f"-L{tmp_path}", "-lproduct", f"-Wl,-rpath,{tmp_path}"]
    run_program(tmp_path, CC, [*links, *(["-fopenmp"] if target == TWO and suffix == ".o" else []), "-lm"])


@needs_cxx
def test_cpp_program(tmp_path):
    codegen.build(tiled(7, 13, 109, 3, 32), ONE).export(tmp_path / "product.o")
    run_program(tmp_path, CXX, ["product.o", "-lm"], "main.cc")


@needs_cc
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what a library depends on with Linux tools")
def test_what_a_library_depends_on(tmp_path):
    if not has_openmp(tmp_path) or shutil.which("readelf") is None:
        pytest.skip("there is no OpenMP or no readelf")
    for target, needed in ((ONE, {"libc.so.6", "libm.so.6"}), (TWO, {"libc.so.6", "libm.so.6", "libgomp.so.1"})):
        codegen.build(tiled(7, 13, 109, 3, 32, parallel=True), target).export(tmp_path / "libk.so")
        shown = subprocess.run(["readelf", "-d", tmp_path / "libk.so"], capture_output=True, text=True, check=True).stdout
        found = {line.split("[")[1].split("]")[0] for line in shown.splitlines() if "NEEDED" in line}
        assert found <= needed and ("libgomp.so.1" in found) == (target == TWO)
        assert "TEXTREL" not in shown and "[libk.so]" in shown


@needs_cc
def test_every_function_of_the_math_library(tmp_path):
    A = te.placeholder((109,), name="A")
    B = te.compute((109,), lambda i: te.exp(A[i]) + te.tanh(A[i]) + te.erf(A[i]) + te.log(te.abs(A[i]) + 1.0), name="B")
    kernel = codegen.build(te.create_prim_func([A, B]), ONE)
    kernel.export(tmp_path / "functions.so")
    a = np.linspace(-4, 4, 109, dtype="float32")
    expected, found = np.empty_like(a), np.empty_like(a)
    kernel(a, expected)
    ctypes.CDLL(str(tmp_path / "functions.so")).functions(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(found.ctypes.data))
    assert np.array_equal(expected, found)


@needs_cc
def test_a_loaded_library_can_be_replaced(tmp_path):
    """The old file is not written into: programs that have it loaded go on."""
    file = tmp_path / "k.so"
    codegen.build(matmul(7, 13, 5), ONE).export(file)
    a, b, c = operands(7, 13, 5)
    old = ctypes.CDLL(str(file)).k
    inode = file.stat().st_ino
    codegen.build(matmul(3, 4, 5), ONE).export(file)
    assert file.stat().st_ino != inode
    old(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)))
    assert np.array_equal(c, a @ b)


@needs_cc
def test_constants_are_prepared_by_a_function_of_their_own(tmp_path):
    func = packed_product()
    header = codegen.build(func, ONE).export(tmp_path / "libproduct.so")
    text = header.read_text()
    assert "   product_prepare is called once: it writes arrays that product takes each time.\n" in text
    assert "int product(const float *A, const float *B_global, float *C);\n" in text
    assert "int product_prepare(const float *B, float *B_global);\n" in text
    a, b, c = integers(func, 0)
    packed = np.full((30, 5, 16), np.nan, "f")
    library = ctypes.CDLL(str(tmp_path / "libproduct.so"))
    assert library.product_prepare(*(ctypes.c_void_p(x.ctypes.data) for x in (b, packed))) == 0
    assert library.product(*(ctypes.c_void_p(x.ctypes.data) for x in (a, packed, c))) == 0
    assert np.array_equal(c, a @ b)


def test_header(tmp_path):
    kernel = codegen.build(tiled(7, 13, 109, 3, 32, parallel=True), "llvm -num-cores 2 -mcpu x86-64-v3")
    assert kernel.export(tmp_path / "libproduct.o").read_text().splitlines() == [
        "/* product: the kernel `main`, compiled by tir for x86-64-v3.",
        "   Link with libproduct.o -fopenmp -lm.",
        "   Its parallel loops run on 2 threads of the OpenMP runtime.",
        "   Arrays are row-major without gaps, each aligned to its elements; one that is written overlaps no other.",
        "   It returns 0; 1 if there is no memory for its temporaries; or more where an integer is divided by zero. Unless it",
        "   returns 0, the results are undefined. */",
        "",
        "#ifndef TIR_PRODUCT_H",
        "#define TIR_PRODUCT_H",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/*",
        "   A[7][13]    read",
        "   B[13][109]  read",
        "   C[7][109]   written",
        "*/",
        "int product(const float *A, const float *B, float *C);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
    ]


@needs_cc
@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_types(tmp_path, dtype):
    """Every dtype has a C type of its size."""
    A = te.placeholder((3,), dtype, name="A")
    header = codegen.build(te.create_prim_func([A, te.compute((3,), lambda i: A[i], name="B")]), ONE).export(tmp_path / "copy.o")
    kind = C_TYPES[dtype][0]
    assert f"int copy(const {kind} *A, {kind} *B);" in header.read_text()
    check = f'#include "copy.h"\n_Static_assert(sizeof({kind}) == {dtypes.nbytes(dtype)}, "");\nint main(void) {{ return 0; }}\n'
    (tmp_path / "check.c").write_text(check)
    done = subprocess.run([CC, "-Werror", "-fsyntax-only", "check.c"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_cc
def test_sizes_are_parameters(tmp_path):
    n = te.var("n")
    A = te.placeholder((n, 3), name="A")
    B = te.compute((n, 3), lambda i, j: A[i, j] * 2.0, name="int")
    header = codegen.build(te.create_prim_func([n, A, B]), ONE).export(tmp_path / "twice.so")
    text = header.read_text()
    assert "int twice(int64_t n, const float *A, float *int_1);" in text and "#include <stdint.h>" in text
    assert "   n            a size\n   A[n][3]      read\n   int_1[n][3]  written\n" in text
    a, b = np.arange(21, dtype="float32").reshape(7, 3), np.empty((7, 3), "float32")
    twice = ctypes.CDLL(str(tmp_path / "twice.so")).twice
    twice(ctypes.c_int64(7), ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data))
    assert np.array_equal(b, 2 * a)


@pytest.mark.skipif(not cores.AVAILABLE, reason="threads move nowhere")
def test_an_export_moves_no_threads(tmp_path):
    """They are those of a process of others."""
    kernel = codegen.build(tiled(7, 13, 109, 3, 32, parallel=True), TWO)
    kernel.export(tmp_path / "product.o")
    exported = (tmp_path / "product.o").read_bytes()
    assert b"sched_setaffinity" in kernel.code and b"sched_setaffinity" not in exported and b"GOMP_parallel" in exported


def test_the_kernel_itself_stays_as_it_is(tmp_path):
    kernel = codegen.build(matmul(7, 13, 5), ONE)
    kernel.export(tmp_path / "other.o", "renamed")
    a, b, c = operands(7, 13, 5)
    kernel(a, b, c)
    assert np.array_equal(c, a @ b)
    assert b"renamed\0" in (tmp_path / "other.o").read_bytes() and (tmp_path / "renamed.h").exists()


@pytest.mark.parametrize(("file", "name", "message"), REFUSED, ids=[f"{f}-{n}" for f, n, _ in REFUSED])
def test_refusals(tmp_path, file, name, message):
    kernel = codegen.build(matmul(3, 4, 5), ONE)
    with pytest.raises(ExportError) as raised:
        kernel.export(tmp_path / file, name)
    assert str(raised.value) == message and not list(tmp_path.iterdir())


def test_a_folder_must_exist(tmp_path):
    with pytest.raises(ExportError, match=r"folder '.*nowhere' does not exist"):
        codegen.build(matmul(3, 4, 5), ONE).export(tmp_path / "nowhere" / "k.o")


def test_a_library_needs_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    kernel = codegen.build(matmul(3, 4, 5), ONE)
    with pytest.raises(ExportError) as raised:
        kernel.export(tmp_path / "k.so")
    assert str(raised.value) == (
        "export to 'k.so': a shared library is linked by a C compiler, and cc or gcc or clang is not installed; "
        "install one, name it with compiler=, or export an object file (.o)"
    )
    with pytest.raises(ExportError, match="and icx is not installed;"):
        kernel.export(tmp_path / "k.so", compiler="icx")
    assert not list(tmp_path.iterdir())
    kernel.export(tmp_path / "k.o")


@pytest.mark.skipif(shutil.which("false") is None, reason="there is no program that always fails")
def test_a_linker_that_fails_is_reported(tmp_path):
    kernel = codegen.build(tiled(7, 13, 109, 3, 32, parallel=True), TWO)
    with pytest.raises(
        ExportError, match=r"export to 'k.so': \S*false failed with status 1:\n[^\n]*\nIts parallel loops need OpenMP"
    ):
        kernel.export(tmp_path / "k.so", compiler="false")
    assert not list(tmp_path.iterdir())


# Four threads of the program, with small stacks, each call the kernel 20 times on arrays of their own.
THREADED = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "wide.h"

enum { THREADS = 4, CALLS = 20, ROWS = 521, COLUMNS = 523 };

static float a[ROWS * COLUMNS];

static void *worker(void *number) {
    float shift = (float)(size_t)number, *x = malloc(sizeof a), *y = malloc(sizeof a);
    long wrong = 0;
    if (!x || !y) return (void *)1;
    for (int n = 0; n < ROWS * COLUMNS; n++) x[n] = a[n] + shift;
    for (int call = 0; call < CALLS; call++) {
        memset(y, 0xff, sizeof a);
        if (wide(x, y) != 0) return (void *)2;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                wrong += y[i * COLUMNS + j] != 2 * x[i * COLUMNS + COLUMNS - 1 - j] + x[(ROWS - 1 - i) * COLUMNS + j];
    }
    free(x), free(y);
    return (void *)wrong;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_attr_t small;
    long wrong = 0;
    void *found;
    for (int n = 0; n < ROWS * COLUMNS; n++) a[n] = (float)(n % 1009);
    if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 512 * 1024)) return 2;
    for (size_t n = 0; n < THREADS; n++)
        if (pthread_create(&threads[n], &small, worker, (void *)n)) return 3;
    for (int n = 0; n < THREADS; n++) {
        pthread_join(threads[n], &found);
        wrong += (long)found;
    }
    wide_release();
    printf("%ld\\n", wrong);
    return wrong != 0;
}
"""


@needs_cc
@pytest.mark.skipif(sys.platform == "win32", reason="the program takes threads of POSIX")
@pytest.mark.parametrize("target", [ONE, TWO])
def test_a_program_with_threads_of_its_own(tmp_path, target):
    """Each call has temporaries for itself, however many there are at the same time, and a release frees what calls kept."""
    if target == TWO and not has_openmp(tmp_path):
        pytest.skip("the C compiler cannot link OpenMP")
    rows, columns = 521, 523
    A = te.placeholder((rows, columns), name="A")
    D = te.compute((rows, columns), lambda i, j: 2.0 * A[i, columns - 1 - j], name="D")  # 1.09 MB, kept between calls
    E = te.compute((rows, columns), lambda i, j: D[i, j] + A[rows - 1 - i, j], name="E")
    s = Schedule(te.create_prim_func([A, E], name="wide"))
    for block in ("D", "E"):
        s.parallel(s.get_loops(block)[0])
    codegen.build(s.func, target).export(tmp_path / "libwide.so")
    (tmp_path / "main.c").write_text(THREADED)
    links = [f"-L{tmp_path}", "-lwide", f"-Wl,-rpath,{tmp_path}", "-pthread"]
    words = [CC, "-O1", "-Wall", "-Wextra", "-Werror", "-o", "program", "main.c", *links]
    built = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, timeout=60, env={"OMP_NUM_THREADS": "2"})
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
