"""Kernels as NVRTC's PTX in the simulator: right in every kind, type and layout, and each planted fault is caught."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import tir
from benchmarks.gpu_static import argmax, convolution
from codegen.cuda import Program, emit, lower_cuda
from codegen.cuda.compile import compile_ptx
from schedule import replay
from schedule.templates import gpu
from search.population.sample import sample
from search.space import generate
from tests.arrays import copies
from tests.codegen.cuda import test_tensor_cores, test_transposes
from tests.codegen.cuda.device_programs import ATTENTION, OPEN, ORDERS, permute
from tests.codegen.cuda.kernels import no_nvrtc, sums
from tests.codegen.cuda.on_device import Case, attention_case, exact, open_case
from tests.codegen.cuda.ptx.memory import PTXError
from tests.codegen.cuda.ptx.simulate import Simulated
from tests.codegen.cuda.random_schedules import cases as random_cases
from tests.search.gpu import candidates
from tests.sweeps import one_in
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc

pytestmark = no_nvrtc
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
Make = Callable[[str], Case]


def scheduled(name: str, func: PrimFunc, arch: str, tf32: bool = False) -> Case:
    return exact(name, func, gpu.schedule(func, arch, tf32=tf32).func, 0)


def workload(name: str, shape: tuple[int, ...], arch: str) -> Case:
    tried = candidates.case(name, shape)
    return Case(name, gpu.schedule(tried.func, arch).func, tried.arguments, tried.problem)


def function(name: str, dtype: str, arch: str) -> Case:
    """A function of floats, some of them large, which NVRTC makes of steps of its own; right within 8 units of the last place."""
    arrays = [te.placeholder((100,), dtype, name=x) for x in ("AB" if name in ("pow", "fmod") else "A")]
    func = te.create_prim_func([*arrays, te.compute((100,), lambda i: getattr(te, name)(*(a[i] for a in arrays)), name="C")])
    rng = np.random.default_rng(0)
    given = [(rng.uniform(0.1, 9, 100) * (1e5 if name == "sin" else 1)).astype(dtype) for _ in arrays]
    expected = [*copies(given), np.zeros(100, dtype)]
    run(func, *expected)
    bound = 8 * np.finfo(dtype).eps
    return Case(
        name,
        gpu.schedule(func, arch).func,
        [*given, np.zeros(100, dtype)],
        lambda got: "" if np.allclose(got[-1], expected[-1], bound, 0) else "other numbers",
    )


def programs() -> Iterator[tuple[str, Make]]:
    """Cases by name, for an architecture."""
    product = test_tensor_cores.product
    types = [("float32", "float32"), ("tf32", "float32"), ("float16", "float32"), ("bfloat16", "float32"), ("float16", "float16"),
             ("int8", "int32"), ("uint8", "int32"), (("int8", "uint8"), "int32"), ("float64", "float64")]  # fmt: skip
    shapes = {"nn": (64, 72, 80), "nt": (33, 65, 47), "tn": (37, 41, 109), "tt": (40, 24, 56)}
    for factor, total in types:
        for layout, shape in shapes.items():
            func = product(*shape, "float32" if factor == "tf32" else factor, total, a=layout[0], b=layout[1])
            yield f"product {factor} {total} {layout}", partial(scheduled, "", func, tf32=factor == "tf32")
    for number, (factor, total) in enumerate(types[2:5]):
        for layout in list(shapes)[number:]:
            func = product(70, 72 + number, 200, factor, total, a=layout[0], b=layout[1])
            yield f"product of a tile {factor} {total} {layout}", partial(scheduled, "", func)
    for func in (product(7, 13, 1024, "float32"), product(17, 17, 1024, "float16"), product(16, 24, 1024, "bfloat16", b="t")):
        yield f"split sum {func.buffers[0].dtype}", partial(scheduled, "", func)
    for name, sizes in candidates.SHAPES.items():
        for size in sizes:
            yield f"{name} {size}", partial(workload, name, size)
    for image, channels, *window in (
        ((2, 16, 5, 7), 24, 3, 1, 1),
        ((1, 32, 7, 6), 17, 3, 2, 1, "int8"),
        ((2, 16, 8, 8), 24, 1, 2, 0, "bfloat16"),
    ):
        yield f"convolution {image} {window}", partial(scheduled, "", convolution(image, channels, *window))
    for case in ATTENTION:
        yield f"attention {case}", partial(attention_case, case)
    for n, (extents, order) in enumerate(ORDERS):
        dtype = test_transposes.DTYPES[n % 7]
        yield f"transpose {extents} {order} {dtype}", partial(scheduled, "", permute(extents, order, dtype))
    for name, func in (("argmax", argmax(7, 109)), ("sums", sums(3, 500)), ("activated", test_transposes.activated(77, 45))):
        yield name, partial(scheduled, "", func)
    for dtype, names in (("float32", "exp log tanh erf sigmoid rsqrt sin pow fmod"), ("float64", "exp log tanh erf pow fmod")):
        for name in names.split():
            yield f"{name} {dtype}", partial(function, name, dtype)
    for name in OPEN:
        yield f"open {name}", partial(open_case, name, 13)


PROGRAMS: dict[str, Make] = dict(programs())


def compiled(case: Case, arch: str) -> tuple[Program, str]:
    """The kernels of a case, and NVRTC's PTX of them."""
    program = lower_cuda(case.func, tir.Target("cuda", arch=arch))
    return program, compile_ptx(emit(program).text, arch)


def problem(case: Case, program: Program, ptx: str) -> str:
    """What is wrong with a case whose PTX is this; "" if nothing."""
    given = copies(case.arguments)
    try:
        Simulated(program, ptx)(*given)
    except PTXError as error:
        return str(error)
    return case.problem(given)


@one_in(9)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right(name: str, arch: str) -> None:
    case = PROGRAMS[name](arch)
    assert not problem(case, *compiled(case, arch))


@one_in(8)
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_random_programs_are_right(first: int) -> None:
    for seed, func, after, program in random_cases(range(first, first + 25)):
        if isinstance(program, Program):
            case = exact("", func, after, seed)
            assert not problem(case, *compiled(case, ARCHITECTURES[seed % 3])), seed


@one_in(4)
@pytest.mark.parametrize("name", candidates.SHAPES | candidates.PRODUCTS)
def test_random_rows_of_sketches_are_right(name: str) -> None:
    target, rng = tir.Target("cuda", arch="sm_90"), np.random.default_rng(1)
    tried = candidates.case(name, (candidates.SHAPES | candidates.PRODUCTS)[name][0])
    for sketch in generate(tried.func, target):
        for row in sample(sketch, target, 1, rng).tolist():
            case = Case(name, replay(tried.func, sketch.trace(row)).func, tried.arguments, tried.problem)
            assert not problem(case, *compiled(case, "sm_90")), (sketch, row)


def each(pattern: str, change: Callable[[re.Match], str], places: slice = slice(None)) -> Callable[[str], list[str]]:
    """Texts, each with one of the places changed that match a pattern."""
    return lambda text: [text[: m.start()] + change(m) + text[m.end() :] for m in [*re.finditer(pattern, text)][places]]


def other_axes(ptx: str) -> list[str]:
    """Texts in which indices of blocks or threads along x are those along y, or the other way round."""
    pairs = [(f"%{kind}.{a}", f"%{kind}.{b}") for kind in ("tid", "ctaid") for a, b in ("xy", "yx")]
    return [ptx.replace(old, new) for old, new in pairs if old in ptx]


def a_stage_less(cuda: str) -> list[str]:
    """The text whose tiles take turns in one buffer less than steps are under way."""
    found = re.search(r"\((\w+) \+ (\d+)\) % (\d+) ", cuda)
    return [re.sub(rf"(\(?{found[1]}(?: \+ {found[2]}\))?) % {found[3]} ", rf"\1 % {found[2]} ", cuda)] if found else []


FIRST, LAST = slice(1), slice(-1, None)
FAULTS: dict[str, Callable[[str], list[str]]] = {
    "a barrier less": each(r"bar\.sync\s+0;", lambda m: ""),
    "a wait too early": each(r"(cp\.async\.wait_group\s+)(\d+);", lambda m: f"{m[1]}{int(m[2]) + 1};"),
    "a group less": each(r"cp\.async\.commit_group;", lambda m: "", FIRST),
    "a copy less": each(r"cp\.async\.c[ag][^;]*;", lambda m: "", LAST),
    "a store less": each(r"st\.shared[^;]*;", lambda m: "", FIRST),
    "an exchange less": each(
        r"shfl\.sync\.bfly\.b32\s+(%r\d+)\|%p\d+, (%r\d+),[^;]*;", lambda m: f"mov.b32 {m[1]}, {m[2]};", LAST
    ),
    "a matrix transposed": each(r"(x4)(\.trans)?(\.shared)", lambda m: m[1] + ("" if m[2] else ".trans") + m[3], FIRST),
    "a factor turned round": each(
        r"(mma[^{;]*\{[^}]*\}, \{)([^}]*,[^}]*)(\})", lambda m: m[1] + ", ".join(reversed(m[2].split(", "))) + m[3], FIRST
    ),
    "a proxy less": each(r"fence\.proxy\.async[^;]*;", lambda m: "", FIRST),
    "a fence less": each(r"wgmma\.fence[^;]*;", lambda m: "", FIRST),
    "a product not waited for": each(r"(wgmma\.wait_group\S*\s+)0", lambda m: f"{m[1]}1"),
    "a permutation less": each(r"xor\.b32\s+(%r\d+), (%r\d+), %r\d+", lambda m: f"mov.b32 {m[1]}, {m[2]}", FIRST),
    "other axes": other_axes,
}


def kinds() -> Iterator[tuple[str, Make, str]]:
    """A case of each kind of kernel, with steps enough for all stages of its pipeline, and what must be planted in it."""
    product, wait = test_tensor_cores.product, "barrier wait group axes stage copy"
    yield "product of float32", partial(scheduled, "", product(40, 41, 109, "float32", b="t")), wait
    yield (
        "product of tf32",
        partial(scheduled, "", product(40, 41, 140, "float32", a="t", b="t"), tf32=True),
        f"{wait} matrix factor",
    )
    yield "product of float16", partial(scheduled, "", product(40, 48, 200, "float16")), f"{wait} matrix factor"
    yield (
        "product of odd rows",
        partial(scheduled, "", product(40, 41, 207, "float16", b="t")),
        "barrier axes stage matrix store factor",
    )
    yield (
        "product of warpgroups",
        partial(scheduled, "", product(64, 72, 328, "bfloat16", b="t")),
        f"{wait} proxy fence product permutation",
    )
    yield "product of int8", partial(scheduled, "", product(40, 48, 272, "int8", "int32", b="t")), f"{wait} matrix factor"
    yield "product of float64", partial(scheduled, "", product(40, 41, 109, "float64", "float64", a="t")), wait
    yield "split sum", PROGRAMS["split sum float16"], "barrier wait group axes matrix factor"
    yield "convolution", PROGRAMS["conv2d (1, 13, 9, 5, 7, 3, 3, 2, 1)"], wait
    yield (
        "convolution of float16",
        partial(scheduled, "", convolution((2, 16, 5, 7), 24, 3, 1, 1)),
        f"{wait} matrix store factor",
    )
    for dtype in ("bfloat16", "float32", "float64"):
        case = partial(attention_case, (dtype, 70, 83, 16, (4, 2), dtype == "bfloat16"))
        yield f"attention of {dtype}", case, "barrier wait group axes exchange copy"
    yield "mlp", PROGRAMS["mlp (7, 13, 41, 5)"], f"{wait} store"
    yield "softmax", PROGRAMS["softmax (7, 109)"], "barrier axes exchange store"
    yield "layer norm", PROGRAMS["layernorm (7, 109)"], "barrier axes exchange store"
    yield "transpose", partial(scheduled, "", permute((72, 100), (1, 0))), "barrier axes store"
    yield "open sizes", partial(open_case, "rows of halves", 50), "barrier axes matrix factor"


KINDS = {name: (make, set(planted.split())) for name, make, planted in kinds()}


@one_in(5)
@pytest.mark.parametrize("name", KINDS)
def test_faults_are_caught(name: str) -> None:
    make, expected = KINDS[name]
    arch = "sm_90" if name == "product of warpgroups" else "sm_80"
    case = make(arch)
    program, ptx = compiled(case, arch)
    assert not problem(case, program, ptx)
    faults = {fault: change(ptx) for fault, change in FAULTS.items()}
    faults["a stage less"] = [compile_ptx(text, arch) for text in a_stage_less(emit(program).text)]
    for fault, texts in faults.items():
        for changed in texts:
            assert problem(case, program, changed), (fault, changed)
    assert expected <= {fault.split()[1] for fault, texts in faults.items() if texts}
