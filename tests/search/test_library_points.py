"""What the schedule library makes is in the space: some row of some sketch has the same loops in the lowered program."""

from __future__ import annotations

from math import prod

import pytest

from codegen import lower
from codegen.target import Target
from schedule import Schedule, replay
from schedule.primitive import find_block
from schedule.templates import Processor, conv2d, depthwise, gemm
from search.sketch import Sketch
from search.space import generate
from tests.search.programs import elementwise_chain, row_minimum, total
from tir import te, workloads
from tir.ir import Const, For, Kind, Node, PrimFunc
from tir.traverse import children

ONE = Target("llvm", num_cores=1, vector_bits=512, l1=32768, l2=1 << 20, l3=1 << 25)
TWO = Target("llvm", num_cores=2, vector_bits=512, l1=32768, l2=1 << 20, l3=1 << 25)

Loops = list[tuple[int, int, str]]


def signature(func: PrimFunc, target: Target, unrolled: bool = True) -> Loops:
    """The loops of the lowered program in order, each with how deep it is, its length (0: not constant), and its kind.

    Loops of one iteration are left out, and those of one kind that directly contain one another are one: in how many dimensions a
    copy is counted makes no difference. Vectors have as many lanes as the next power of two, as they will. Without `unrolled`, unrolled loops count as serial ones: an annotation may unroll these.
    """
    found: Loops = []

    def visit(node: Node, depth: int, around: int | None) -> None:
        if not isinstance(node, For):
            for child in children(node):
                visit(child, depth, None)
            return
        length = int(node.extent.value) if isinstance(node.extent, Const) else 0
        kind = node.kind.value if unrolled or node.kind is not Kind.UNROLLED else Kind.SERIAL.value
        if node.kind is Kind.VECTORIZED:
            length = 1 << (length - 1).bit_length()
        if length == 1:
            visit(node.body, depth, around)
        elif around is not None and found[around][2] == kind:
            found[around] = (found[around][0], found[around][1] * length, kind)
            visit(node.body, depth, around)
        else:
            found.append((depth, length, kind))
            visit(node.body, depth + 1, len(found) - 1)

    visit(lower(func, target, after="simplify_all").body, 0, None)
    return found


def row(sketch: Sketch, tiles: dict[str, tuple[int, ...]], **choices: int | str) -> list[int]:
    """A row with these sizes, by axis, and these options of choices, by the start of their names: numbers, or labels of branches,
    of which those count that the row picks."""
    result = sketch.stand_ins()
    for t in sketch.tiles:
        for column, size in zip(t.columns, tiles.get(t.axis, ()), strict=False):
            result[column] = size
    for name, value in choices.items():
        columns = [c.column for c in sketch.choices if c.name.startswith(name.replace("_", " "))]
        assert columns, name
        for column in columns:
            labels = [b.labels for b in sketch.branches if b.column == column and value in b.labels]
            result[column] = labels[0].index(value) if isinstance(value, str) else value
    return result


def sketch_with(func: PrimFunc, target: Target, *texts: str, without: str = "no such text") -> Sketch:
    return next(s for s in generate(func, target) if all(t in str(s) for t in texts) and without not in str(s))


@pytest.mark.parametrize("target", [ONE, TWO])
@pytest.mark.parametrize("shape", [(33, 65, 70), (512, 512, 512), (109, 300, 400), (1024, 1024, 1024), (200, 2000, 109)])
def test_products(shape, target):
    func = workloads.make("gmm", shape).func
    c = gemm.matches(find_block(func, "C"))
    assert c is not None
    t, threads = gemm.tiles(c, Processor.of(target)), gemm._threads(c, Processor.of(target))
    parts = t.kc < shape[1]
    sketch = sketch_with(func, target, "packing", *(["in parts"] if parts else []), without="none" if parts else "in parts")
    i, j, k = (it.var.name for it in find_block(func, "C").iters)
    found = row(
        sketch,
        {i: (t.mt, t.mr), j: (t.nt, t.nr), k: (t.kc,)},
        pack_A="by rows" if t.left else "as it is",
        pack_B="in front" if t.right else "as it is",
        **(
            {}
            if target is ONE or parts
            else {"parallel": f"{1 if t.by_rows else 2} parallel" if threads > 1 else "none parallel"}
        ),
    )
    assert_same(func, sketch, found, target)


@pytest.mark.parametrize("target", [ONE, TWO])
@pytest.mark.parametrize("shape", [(1024, 2048, 1024, 3072), (109, 130, 96, 77)])
def test_two_products_with_an_exponential_between(shape, target):
    func = workloads.make("mlp", shape).func
    first, second = (gemm.matches(find_block(func, name)) for name in "CF")
    assert first is not None and second is not None
    one, two = (gemm.tiles(c, Processor.of(target)) for c in (first, second))
    parts = one.kc < shape[1]
    assert two.kc == shape[2]
    rules = ("F: packing", "D: skip", "C: packing, the sum in parts" if parts else "C: packing")
    sketch = next(s for s in generate(func, target) if s.rules == rules)
    sizes = {(t.block, t.axis): t for t in sketch.tiles}
    found = row(
        sketch,
        {},
        pack_A="by rows" if one.left else "as it is",
        pack_B="in front" if one.right else "as it is",
        pack_D="by rows" if two.left else "as it is",
        pack_E="in front" if two.right else "as it is",
    )
    for c, t in ((first, one), (second, two)):
        for it, levels in ((c.rows[-1], (t.mt, t.mr)), (c.columns[-1], (t.nt, t.nr)), (c.sums[-1], (t.kc,))):
            if (c.block, it.var.name) in sizes:
                for column, size in zip(sizes[c.block, it.var.name].columns, levels, strict=True):
                    found[column] = size
    known = templates.schedule(func, target)
    assert known is not None
    made = signature(replay(func, sketch.trace(found)).func, target)
    assert straight(made) == straight(signature(known.func, target))


def straight(found: Loops) -> list[Loops]:
    """The nests of a signature; one of a single loop in another is told by its kind, its iterations, and its innermost loop, as
    threads may share a copy in pieces of any size."""
    starts = [n for n, (depth, _, _) in enumerate(found) if depth == 0]
    nests = [found[a:b] for a, b in zip(starts, [*starts[1:], len(found)], strict=True)]
    return [
        [(0, prod(length for _, length, _ in nest), nest[0][2]), nest[-1]]
        if [depth for depth, _, _ in nest] == list(range(len(nest)))
        else nest
        for nest in nests
    ]


@pytest.mark.parametrize("shape", [(1, 14, 14, 256, 256, 3, 3, 1, 1), (1, 14, 14, 32, 64, 3, 3, 1, 1)])
def test_convolutions(shape):
    func = workloads.make("conv2d", shape).func
    processor = Processor.of(TWO)
    c = conv2d.matches(find_block(func, "conv"))
    assert c is not None and conv2d.suits(c, processor)
    t = conv2d.tiles(c, processor)
    sketch = sketch_with(func, TWO, "direct convolution")
    found = row(
        sketch,
        {"v_co": (t.channels,), "v_ow": (t.pixels,)},
        place_of_pad="a nest of its own",
        parallel_loops_of_pad="none parallel",
        parallel_loops_of_Y="1 parallel",
        pack_K="at co_0",
    )
    assert_same(func, sketch, found, TWO)


@pytest.mark.parametrize("shape", [(1, 14, 14, 512, 3, 3, 1, 1), (1, 28, 28, 109, 3, 3, 1, 1)])
def test_depthwise_convolutions(shape):
    func = workloads.make("depthwise", shape).func
    c = depthwise.matches(find_block(func, "conv"))
    assert c is not None
    t = depthwise.tiles(c, Processor.of(TWO))
    sketch = sketch_with(func, TWO, "level 2")
    width = min(16 * t.vectors, shape[2])
    found = row(
        sketch,
        {"v_oh": (t.strip, 1, t.rows), "v_ow": (-(-shape[2] // width), 1, width), "v_rw": (3,), "v_rh": (1,)},
        place_of_pad="at ow_0",
        parallel_loops_of_Y="4 parallel",
        conv_unroll=64,
    )
    assert_same(func, sketch, found, TWO, unrolled=False)


def matrix_vector(rows: int, columns: int) -> PrimFunc:
    """y = x · B, which adds up rows of B."""
    x, B = te.placeholder((rows,), name="x"), te.placeholder((rows, columns), name="B")
    k = te.reduce_axis((0, rows), "k")
    return te.create_prim_func([x, B, te.compute((columns,), lambda j: te.sum(x[k] * B[k, j], axis=k), name="y")])


def test_sums_of_rows():
    func = matrix_vector(2048, 2048)
    sketch = sketch_with(func, TWO, "multi-level tiling", without="cache")
    found = row(sketch, {"v_j": (1, 4, 256), "v_k": (8,)}, pack_x="as it is", pack_B="as it is")
    made = signature(replay(func, sketch.trace(found)).func, TWO)
    known = templates.schedule(func, TWO)
    assert known is not None and made == signature(known.func, TWO)


@pytest.mark.parametrize(
    "func",
    [
        workloads.make("softmax", (4096, 1024)).func,
        workloads.make("layernorm", (512, 768)).func,
        workloads.make("norm", (1, 2048, 1024)).func,
        row_minimum(4096, 1024),
        total(1 << 20),
        elementwise_chain(),
    ],
    ids=["softmax", "layernorm", "norm", "rows", "total", "elementwise"],
)
def test_rows_and_sums(func):
    """What has few numbers: the first of each choice makes what the library does."""
    known = templates.schedule(func, TWO)
    assert known is not None
    made = [signature(replay(func, s.trace(s.stand_ins())).func, TWO) for s in generate(func, TWO)]
    assert signature(known.func, TWO) in made


def test_a_signature_tells_programs_apart():
    func = row_minimum(4096, 1024)
    assert (
        signature(func, TWO) == [(0, 4096, "serial"), (1, 1024, "serial")] != signature(templates.schedule(func, TWO).func, TWO)
    )
    s = Schedule(func)
    s.parallel(s.get_loops("Y")[0])
    assert signature(s.func, TWO) == [(0, 4096, "parallel"), (1, 1024, "serial")]


def assert_same(func: PrimFunc, sketch: Sketch, found: list[int], target: Target, unrolled: bool = True) -> None:
    made, known = replay(func, sketch.trace(found)).func, templates.schedule(func, target)
    assert known is not None
    assert signature(made, target, unrolled) == signature(known.func, target, unrolled)
