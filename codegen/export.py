"""Kernels as files for C: a shared library or an object file, and a header."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tir import dtypes
from tir.empty import written_names
from tir.ir import Buffer, Var
from tir.script.printer import expr_text
from tir.traverse import fresh

if TYPE_CHECKING:
    from .target import Target

COMPILERS = ("cc", "gcc", "clang")

# By dtype: the C type of elements, its header, and a note on the format of values if the type does not show it.
C_TYPES: dict[str, tuple[str, str, str]] = {
    "float64": ("double", "", ""),
    "float32": ("float", "", ""),
    "float16": ("uint16_t", "stdint.h", "float16 bit patterns"),
    "bfloat16": ("uint16_t", "stdint.h", "bfloat16 bit patterns"),
    "bool": ("bool", "stdbool.h", ""),
} | {d.name: (f"{d.kind}{d.bits}_t", "stdint.h", "") for d in dtypes.TABLE.values() if d.kind in ("int", "uint")}

# Keywords of C and C++.
_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl complex concept const consteval
constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if imaginary inline int long main mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
KEYWORDS = frozenset(_KEYWORDS.split())

# Functions of the standard library whose names an exported kernel may not take.
_LIBRARY = """
abort abs acos acosh aligned_alloc asin asinh atan atan2 atanh atexit calloc cbrt ceil copysign cos cosh div erf erfc exit
exp exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod free frexp gamma hypot ilogb index j0 j1 jn labs ldexp ldiv lgamma
llrint llround log log10 log1p log2 logb lrint lround malloc memchr memcmp memcpy memmove memset modf nan nearbyint
nextafter nexttoward pow printf qsort rand read realloc remainder remquo rint round scalb scalbln scalbn signal significand
sin sincos sinh sqrt srand strlen system tan tanh tgamma time trunc write y0 y1 yn
"""
LIBRARY = frozenset(name + suffix for name in _LIBRARY.split() for suffix in ("", "f", "l"))


class ExportError(Exception):
    """A kernel that cannot be written as the file asked for, with the reason."""


def export(kernel, path: str | Path, name: str | None = None, *, compiler: str | None = None) -> Path:
    """Write a kernel as the shared library `path` (.so) or object file (.o), and beside it the C header `<name>.h`.

    Returns the header's path. The function is called `name`, by default the file's name without "lib" and suffix. A function
    `<name>_prepare` prepares constants, if there are any, and is called once. The files need neither Python nor LLVM. Parallel
    loops need an OpenMP runtime, which the header states. A shared library is linked with `compiler`, by default the first of
    cc, gcc and clang found; an object file needs none. Existing files are replaced atomically. Raises ExportError.
    """
    from .llvm.compile import optimize
    from .llvm.cores import without_moving
    from .llvm.emit import symbol
    from .llvm.scratch import RELEASE

    path, name = file_and_name(path, name)
    modules = []
    for part, called in _functions(kernel, name):
        module, machine = optimize(without_moving(part.llvm_ir()), part.target)
        module.get_function(symbol(part.func)).name = called
        if keeps_memory(part):
            module.get_function(f"{symbol(part.func)}{RELEASE}").name = f"{called}_release"
        modules.append(module)
    module, *others = modules
    for other in others:
        module.link_in(other)
    code = machine.emit_object(module)
    return write(path, name, code, header_text(kernel, name, path, calls_openmp(code)), compiler)


def file_and_name(path: str | Path, name: str | None) -> tuple[Path, str]:
    """A file, and the name of its C function, by default the file's name without "lib" and suffix. Raises ExportError for an
    invalid name, an unknown suffix or a missing folder, and TypeError for arguments of other types."""
    if not isinstance(path, (str, Path)) or not isinstance(name, (str, type(None))):
        raise TypeError(f"export takes the path of a file and the name of a C function, got {path!r} and {name!r}")
    path = Path(path)
    if path.suffix not in (".so", ".o"):
        raise ExportError(f"export to {path.name!r}: the suffix must be .so (shared library) or .o (object file)")
    name = _checked_name(name or re.sub(r"\W", "_", path.stem.removeprefix("lib"), flags=re.ASCII), path)
    if not path.parent.is_dir():
        raise ExportError(f"export to {str(path)!r}: folder {str(path.parent)!r} does not exist")
    return path, name


def write(
    path: Path, name: str, code: bytes, header: str, compiler: str | None, complete: Callable[[Path], None] | None = None,
    **others: Iterable[bytes | memoryview],
) -> Path:  # fmt: skip
    """Write an object file, or the shared library linked from it, to `path`. Beside it go the header `<name>.h` and, for each
    suffix in `others`, a file `<name>.<suffix>`. `complete` may append to a library. Returns the header's path. Raises
    ExportError if `compiler` cannot link."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / path.name
        if path.suffix == ".o":
            made.write_bytes(code)
        else:
            source = made.with_suffix(".o")
            source.write_bytes(code)
            link([source], made, calls_openmp(code), compiler)
            if complete is not None:
                complete(made)
        beside = {f"{name}.h": (header.encode(),)} | {f"{name}.{suffix}": pieces for suffix, pieces in others.items()}
        for called, pieces in beside.items():
            with (Path(folder) / called).open("wb") as file:
                file.writelines(pieces)
        for called in (path.name, *beside):
            (Path(folder) / called).replace(path.with_name(called))
    return path.with_name(f"{name}.h")


def _functions(kernel, name: str) -> list[tuple[Any, str]]:
    """The kernels of a file with the names of their functions: the main one, and the one that prepares constants."""
    return list(zip(kernel.parts, (name, f"{name}_prepare"), strict=False))


def keeps_memory(kernel) -> bool:
    """True where a kernel keeps memory from one call to the next."""
    from .llvm.scratch import RELEASE

    return f"{RELEASE}()" in kernel.llvm_ir()


def calls_openmp(code: bytes) -> bool:
    """True where an object file calls the OpenMP runtime."""
    return b"GOMP_parallel\0" in code


def keeping(codes: Mapping[str, bytes]) -> list[str]:
    """The symbols of kernels, as object files by their symbols, that keep memory from one call to the next."""
    from .llvm.scratch import RELEASE

    return [name for name, code in codes.items() if f"{name}{RELEASE}\0".encode() in code]


def header_text(kernel, name: str, path: Path, parallel: bool) -> str:
    """The C header of an exported kernel."""
    parts = _functions(kernel, name)
    about = [f"{name}_prepare is called once: it writes arrays that {name} takes each time."] if len(parts) > 1 else []
    lines: list[str] = []
    includes: set[str] = set()
    for part, called in parts:
        given = parameters(part.func.params, written_names(part.func))
        includes |= {p.include for p in given if p.include}
        lines += declarations(called, given, keeps_memory(part))
    return framed(name, f"the kernel `{kernel.func.name}`", kernel.target, path, parallel, about, includes, lines)


def framed(
    name: str,
    what: str,
    target: Target,
    path: Path,
    parallel: bool,
    about: Sequence[str],
    includes: Set[str],
    lines: Sequence[str],
) -> str:
    """A C header of these lines, with a comment on the contents, linking and calls of the file `path`."""
    guard = f"TIR_{name.upper()}_H"
    text = [
        f"/* {name}: {what}, compiled by tir for {target.mcpu}.",
        f"   Link with {_link_words(path, parallel)}.",
        *([f"   Its parallel loops run on {target.num_cores} threads of the OpenMP runtime."] if parallel else []),
        *(f"   {line}" for line in about),
        "   Arrays are row-major without gaps, each aligned to its elements; one that is written overlaps no other.",
        "   It returns 0; 1 if there is no memory for its temporaries; or more where an integer is divided by zero. Unless it",
        "   returns 0, the results are undefined. */",
        "",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *(f"#include <{include}>" for include in sorted(includes)),
        *([""] if includes else []),
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *lines,
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(text)


def declarations(name: str, given: Sequence[Parameter], keeps: bool) -> list[str]:
    """The lines that declare a function of these parameters, and its release function if it `keeps` memory."""
    width = max((len(p.label) for p in given), default=0)
    lines = [
        *(["/*", *(f"   {p.label:<{width}}  {p.note}" for p in given), "*/"] if given else []),
        f"int {name}({', '.join(p.declaration for p in given) or 'void'});",
    ]
    if keeps:
        lines.append(f"void {name}_release(void); /* frees what {name} keeps between calls; not while one runs */")
    return [*lines, ""]


def _link_words(path: Path, parallel: bool) -> str:
    if path.suffix == ".o":
        return f"{path.name}{' -fopenmp' if parallel else ''} -lm"
    beside = " -Wl,-rpath,'$ORIGIN', for a program in the same folder" if sys.platform.startswith("linux") else ""
    return f"{path.name}{beside}{'; it needs libgomp' if parallel else ''}"


class Parameter(NamedTuple):
    """A parameter in C: its declaration, name with sizes, note, and the header that its type needs."""

    declaration: str
    label: str
    note: str
    include: str = ""


def parameters(params: Sequence[Buffer | Var], written: Set[str], taken: set[str] | None = None) -> list[Parameter]:
    """Buffers and sizes as parameters in C, with names that are not yet `taken`. Buffers not in `written` are const."""
    known = set(KEYWORDS) if taken is None else taken
    result = []
    for p in params:
        name = fresh(known, re.sub(r"\W|^(?=\d)", "_", p.name, flags=re.ASCII))
        if not isinstance(p, Buffer):
            result.append(Parameter(f"int64_t {name}", name, "a size", "stdint.h"))
            continue
        type, include, values = C_TYPES[p.dtype]
        sizes = "".join(f"[{expr_text(d)}]" for d in p.shape)
        use = "written" if p.name in written else "read"
        const = "" if p.name in written else "const "
        result.append(Parameter(f"{const}{type} *{name}", f"{name}{sizes}", f"{use}, {values}" if values else use, include))
    return result


def _checked_name(name: str, path: Path) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        reason = "is not a name of a C function"
    elif name in KEYWORDS:
        reason = "is a word of C or C++"
    elif name in LIBRARY or name.startswith(("omp_", "GOMP_", "__")):
        reason = "is taken by a library of C"
    else:
        return name
    raise ExportError(f"export to {path.name!r}: {name!r} {reason}; pass another as name=")


def found_compiler() -> str | None:
    """The path of the first of COMPILERS that is installed."""
    return next((full for word in COMPILERS if (full := shutil.which(word))), None)


def link(sources: Sequence[Path], result: Path, parallel: bool, compiler: str | None, further: Sequence[str] = ()) -> None:
    """Make a shared library of object files, with `further` words for the linker. Raises ExportError with its message."""
    found = shutil.which(compiler) if compiler else found_compiler()
    if found is None:
        raise ExportError(
            f"export to {result.name!r}: a shared library is linked by a C compiler, and {compiler or ' or '.join(COMPILERS)} is "
            "not installed; install one, name it with compiler=, or export an object file (.o)"
        )
    words = [found, "-shared", "-o", str(result), *map(str, sources), *(["-fopenmp"] if parallel else []), *further, "-lm"]
    if sys.platform.startswith("linux"):
        words[2:2] = ["-Xlinker", "-soname", "-Xlinker", result.name]  # -Wl would divide a name at its commas
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        hint = "\nIts parallel loops need OpenMP (-fopenmp); built with num_cores=1 it would not." if parallel else ""
        raise ExportError(
            f"export to {result.name!r}: {found} failed with status {done.returncode}:\n{done.stderr.strip()}{hint}"
        )
