"""Analysis of blocks by their formulas: which are reductions of pairs, elementwise, or epilogues, and what they read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tir
from schedule.primitive import find_block
from schedule.templates import block_analysis as analysis
from tests import programs
from tests.schedule.templates.patterns import by_rule, matched, relu, rule_block
from tir import te
from tir.ir import FALSE, Axis, Binary, Block, Const, Load, Var
from tir.script import tir as T

PAIRS = {
    "ik kj -> ij": "AB rows=i columns=j sum=k",
    "ki kj -> ij": "AB rows=i columns=j sum=k",
    "ik jk -> ij": "AB rows=i columns=j sum=k",
    "ik kj -> ji": "BA rows=j columns=i sum=k",
    "bik bkj -> bij": "AB batch=b rows=i columns=j sum=k",
    "bik kj -> bij": "AB rows=bi columns=j sum=k",
    "bki bjk -> bij": "AB batch=b rows=i columns=j sum=k",
    "zik zkj -> zij": "AB batch=z rows=i columns=j sum=k",
    "zik kj -> zij": "AB rows=zi columns=j sum=k",
    "ik kj -> yij": "AB batch=y rows=i columns=j sum=k",
    "ikr krj -> ij": "AB rows=i columns=j sum=kr",
    "ikr jkr -> ij": "AB rows=i columns=j sum=kr",
    "gik kbj -> gibj": "AB rows=gi columns=bj sum=k",
    "gik bjk -> gibj": "AB rows=gi columns=bj sum=k",
    "iz zj -> ij": "AB rows=i columns=j sum=z",
    "xk kj -> xj": "AB rows=x columns=j sum=k",
    "ik kx -> ix": "AB rows=i columns=x sum=k",
    "bxk bkj -> bxj": "AB batch=b rows=x columns=j sum=k",
    "kj k -> j": "BA columns=j sum=k",
    "jk k -> j": "BA columns=j sum=k",
    "k kj -> j": "AB columns=j sum=k",
    "k kj -> zj": "AB batch=z columns=j sum=k",
    "zk kj -> zj": "AB rows=z columns=j sum=k",
    "bk bkj -> bj": "AB batch=b columns=j sum=k",
    "jkr kr -> j": "BA columns=j sum=kr",
    "ik ik -> i": "BA batch=i sum=k",
    "ij ij -> i": "BA batch=i sum=j",
    "iik kj -> ij": "AB rows=i columns=j sum=k",
    "(i+k) kj -> ij": "AB rows=i columns=j sum=k",
    "(2i+k) kj -> ij": "AB rows=i columns=j sum=k",
    "i(j+k) kj -> ij": "BA batch=j columns=i sum=k",
    "0k kj -> j": "AB columns=j sum=k",
    "(k/2)j k -> j": "BA columns=j sum=k",
    "nc(h+r)(w+q) ocrq -> nohw": "BA rows=o columns=nhw sum=cqr",
    "nc(2h+r)(2w+q) ocrq -> nohw": "BA rows=o columns=nhw sum=cqr",
    "nc(h+r)(w+2q) ocrq -> nohw": "BA rows=o columns=nhw sum=cqr",
    "nchw ochw -> no": "AB rows=n columns=o sum=chw",
    "n(h+r)(w+q)c rqco -> nhwo": "AB rows=nhw columns=o sum=cqr",
    "n(h+r)(w+q)c orqc -> nhwo": "AB rows=nhw columns=o sum=cqr",
    "n(h+r)(w+q)c rqoc -> nhwo": "AB rows=nhw columns=o sum=cqr",
    "nc(w+q) ocq -> now": "BA rows=o columns=nw sum=cq",
    "ngc(h+r)(w+q) gocrq -> ngohw": "BA batch=g rows=o columns=nhw sum=cqr",
    "nchw oc -> nohw": "BA rows=o columns=nhw sum=c",
    "nhwc co -> nhwo": "AB rows=nhw columns=o sum=c",
    "z(h+r)(w+q)c rqco -> zhwo": "AB rows=zhw columns=o sum=cqr",
    "n(h+r)(w+q)(o/5) rqo -> nhwo": "BA batch=o columns=nhw sum=qr",
    "n(h+r)(w+q)(5(o/5)+c) rqco -> nhwo": "BA batch=o columns=nhw sum=cqr",
    "n(o/5)(h+r)(w+q) orq -> nohw": "BA batch=o columns=nhw sum=qr",
    "n(h+r)(w+q)(o/1) rqo -> nhwo": "BA batch=o columns=nhw sum=qr",
    "nc(h+r)(w+q) crq -> nchw": "BA batch=c columns=nhw sum=qr",
    "n(h+r)(w+q)c rqc -> nhwc": "BA batch=c columns=nhw sum=qr",
    "nc(2h+r)(2w+q) crq -> nchw": "BA batch=c columns=nhw sum=qr",
    "nc(w+q) cq -> ncw": "BA batch=c columns=nw sum=q",
    "(h+r)(w+q) rq -> hw": "BA columns=hw sum=qr",
    "sums of squares": "BA batch=i sum=k",
    "squares of one factor": "AB rows=i columns=j sum=k",
    "products turned": "AB rows=i columns=j sum=k",
    "distances": "AB rows=i columns=j sum=k",
    "distances of rows": "AB rows=i columns=j sum=k",
    "shortest paths": "AB rows=i columns=j sum=k",
    "largest products": "AB rows=i columns=j sum=k",
    "products of halves": "AB rows=i columns=j sum=k",
    "products of a half": "AB rows=i columns=j sum=k",
    "products of bytes": "AB rows=i columns=j sum=k",
    "products of doubles": "AB rows=i columns=j sum=k",
    "convolution of bytes": "BA rows=o columns=nhw sum=cqr",
    "matrix of doubles and vector": "BA columns=j sum=k",
    "one pixel": "BA rows=o columns=nhw sum=cqr",
    "one channel": "BA rows=o columns=nhw sum=cqr",
    "one step": "AB rows=i columns=j sum=k",
    "one row": "AB rows=i columns=j sum=k",
    "one column": "AB rows=i columns=j sum=k",
    "transposed": "AB rows=nhw columns=o sum=cqr",
    "transposed, one class": "AB rows=nhw columns=o sum=cqr",
    "transposed by 3h": "AB rows=nhw columns=o sum=cqr",
    "transposed, remainder 1": "AB rows=nhw columns=o sum=cqr",
    "transposed, two conditions on an axis": "AB rows=nhw columns=o sum=cqr",
    "transposed by pixels alone": "AB rows=nhw columns=o sum=cqr",
    "transposed by three axes": "AB rows=nhw columns=o sum=cqr",
    "some terms": "AB rows=i columns=j sum=k",
}

NO_SUMS_OF_PRODUCTS = {
    "squares of one factor",
    "distances",
    "distances of rows",
    "shortest paths",
    "largest products",
    "transposed",
    "transposed, one class",
    "transposed by 3h",
    "transposed, remainder 1",
    "transposed, two conditions on an axis",
    "transposed by pixels alone",
    "transposed by three axes",
    "some terms",
}


def test_reductions_of_pairs():
    assert matched(analysis.pairing) == PAIRS


def test_sums_of_products():
    """Are pairs that are multiplied and added up from 0."""
    found = matched(analysis.contraction)
    assert found.keys() == PAIRS.keys() - NO_SUMS_OF_PRODUCTS
    assert all(PAIRS[name] == roles for name, roles in found.items())


@pytest.mark.parametrize("rule", ["ikz kj -> ij", "ik kjz -> ij", "ikz kzj -> ij", "ikc kj -> ij"])
def test_axes_of_one_element_may_be_in_one_factor(rule):
    block = find_block(by_rule(rule), "Y")
    assert (analysis.contraction(block) is None) == (rule != "ikz kzj -> ij")
    assert (analysis.contraction(block, units=True) is None) == ("c" in rule)
    alone = find_block(by_rule("iz zj -> ij"), "Y")
    assert analysis.contraction(alone, units=True) is not None
    none_in_both = find_block(by_rule("iz j -> ij"), "Y")
    assert analysis.contraction(none_in_both, units=True) is None


def changed(block: Block, kind: str) -> Block:
    """A product of matrices with one change that makes it none."""
    store = analysis.stored(block)
    match kind:
        case "predicate":
            return block.with_(predicate=Var("i") < 3)
        case "never":
            return block.with_(predicate=FALSE)
        case "no init":
            return block.with_(init=None)
        case "two stores":
            return block.with_(body=tir.ir.Seq((store, store)))
        case "init of 1":
            return block.with_(init=block.init.with_(value=Const(1.0, "float32")))
        case "binding":
            first, *others = block.iters
            return block.with_(iters=(replace(first, binding=first.binding * 2), *others))
        case "symbolic":
            first, *others = block.iters
            return block.with_(iters=(replace(first, extent=Var("n")), *others))
        case "one element":
            return block.with_(body=store.with_(indices=(store.indices[0], Const(0))))
        case "difference":
            return block.with_(body=store.with_(value=Binary("-", store.value.a, store.value.b)))
        case "its own element":
            return block.with_(body=store.with_(value=store.value + Load(store.buffer, store.indices)))
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", ["predicate", "never", "no init", "two stores", "binding", "symbolic", "one element"])
def test_what_is_no_reduction_of_pairs(kind):
    assert analysis.pairing(rule_block("ik kj -> ij")) is not None
    assert analysis.pairing(changed(rule_block("ik kj -> ij"), kind)) is None


@pytest.mark.parametrize("kind", ["init of 1", "difference", "its own element"])
def test_what_is_no_sum_of_products(kind):
    block = changed(rule_block("ik kj -> ij"), kind)
    assert analysis.pairing(block) is not None and analysis.contraction(block) is None


@pytest.mark.parametrize(("axes", "ordered"), [
    ((Axis.SPATIAL, Axis.OPAQUE), True), ((Axis.OPAQUE,), True), ((Axis.OPAQUE, Axis.SPATIAL), False), ((Axis.SPATIAL,), False),
    ((Axis.OPAQUE, Axis.OPAQUE), False), ((Axis.REDUCE, Axis.OPAQUE), False), ((), False),
])  # fmt: skip
def test_blocks_whose_innermost_axis_runs_in_order(axes, ordered):
    block = rule_block("ij -> ij")
    it = block.iters[0]
    made = tuple(replace(it, var=Var(f"v{n}"), axis=axis, binding=Var(f"l{n}")) for n, axis in enumerate(axes))
    assert analysis.runs_in_order(block.with_(iters=made)) == ordered
    if made:
        assert not analysis.runs_in_order(block.with_(iters=(*made[:-1], replace(made[-1], binding=made[-1].binding + 1))))


@pytest.mark.parametrize(("rule", "about", "held", "reused"), [
    ("ik kj -> ij", {"i": 8, "j": 8, "k": 5}, 0, True), ("ik kj -> ij", {"i": 7, "j": 8, "k": 5}, 0, False),
    ("ik kj -> ij", {"i": 8, "j": 7, "k": 5}, 0, False), ("ik -> ij", {"i": 3, "j": 8}, 0, True), ("ik -> i", {"k": 50}, 0, False),
    ("ik kj -> ij", {"i": 8, "j": 8, "k": 5}, 319, True), ("ik kj -> ij", {"i": 8, "j": 8, "k": 5}, 320, False),
    ("bik bkj -> bij", {"b": 9, "i": 8, "j": 8, "k": 5}, 319, True), ("bik bkj -> bij", {"b": 9, "i": 8, "j": 8, "k": 5}, 320, False),
    ("ik -> ij", {"i": 3, "j": 8, "k": 5}, 19, True), ("ik -> ij", {"i": 3, "j": 8, "k": 5}, 20, False),
])  # fmt: skip
def test_blocks_that_use_all_they_read_many_times(rule, about, held, reused):
    """They do not where the cache holds what they read at a point of the axes that all of it has."""
    assert analysis.reused(find_block(by_rule(rule, **about), "Y"), held) == reused


@pytest.mark.parametrize(("rule", "lacking"), [
    ("ik kj -> ij", 2), ("bik bkj -> bij", 2), ("ik -> i", 0), ("jk k -> j", 1), ("kj k -> j", 1), ("nchw -> nc", 0),
    ("nc(h+r)(w+q) crq -> nchw", 1), ("nc(h+r)(w+q) ocrq -> nohw", 2), ("xk kj -> xj", 1), ("ij -> ij", 0),
])  # fmt: skip
def test_operands_that_lack_a_spatial_axis(rule, lacking):
    block = rule_block(rule)
    assert analysis.lacking(block) == lacking
    assert analysis.reuses_data(block) == (lacking > 0 and block.is_reduction)


@pytest.mark.parametrize(("rule", "walks"), [
    ("ik kj -> ij", True), ("ik jk -> ij", False), ("jk k -> j", False), ("kj k -> j", True), ("ij -> ij", True),
    ("i -> ij", False), ("nc(h+r)(w+q) crq -> nchw", True), ("ki -> i", True), ("ik -> i", False), ("k -> x", False),
])  # fmt: skip
def test_blocks_that_walk_memory(rule, walks):
    assert analysis.walks_memory(find_block(by_rule(rule), "Y")) == walks
    assert not analysis.walks_memory(tir.traverse.blocks(programs.total())[0])


@pytest.mark.parametrize(("index", "axes", "last", "step"), [
    ("i", True, "i", 1), ("(2i)", False, None, 2), ("(i+2k)", False, None, 2), ("(i+k)", False, None, 1), ("0", True, None, 1),
])  # fmt: skip
def test_indices(index, axes, last, step):
    block = find_block(by_rule(f"{index}k k -> i" if "k" not in index else f"{index} k -> i"), "Y")
    load = next(x for x in tir.traverse.loads(block.body) if x.buffer.name == "A")
    assert analysis.at_axes(load) == axes
    turned = Load(load.buffer, load.indices[::-1])
    assert (analysis.last_axis(turned) or "v_").removeprefix("v_")[:1] == (last or "")
    named = {it.var.name.removeprefix("v_"): it.var for it in block.iters}
    assert max(analysis.stride(load, v) for v in named.values()) == step
    assert analysis.stride(load, Var("other")) == 1


def after(formula, shape, producer=(4, 6), rows=False, anywhere=False) -> str | None:
    """The epilogue of a sum of the shape `producer`, for a consumer by a formula of its elements."""
    A, k = te.placeholder((*producer, 5), name="A"), te.reduce_axis((0, 5), name="k")
    C = te.compute(producer, lambda *i: te.sum(A[(*i, k)], axis=k), name="C")
    func = te.create_prim_func([A, te.compute(shape, lambda *i: formula(C, *i), name="D")])
    return analysis.epilogue(tir.Schedule(func), "C", anywhere, rows)


@pytest.mark.parametrize(("formula", "shape", "producer", "plain", "by_rows", "anywhere"), [
    (lambda C, i, j: C[i, j] + 1.0, (4, 6), (4, 6), True, True, True),
    (lambda C, i, j: C[j, i] + 1.0, (6, 4), (4, 6), False, False, False),
    (lambda C, i, j: C[i, 5 - j] + 1.0, (4, 6), (4, 6), False, False, False),
    (lambda C, i, j: C[i, j] + C[3 - i, j], (4, 6), (4, 6), False, False, False),
    (lambda C, h, i, j: C[i, h, j] + 1.0, (3, 4, 6), (4, 3, 6), False, True, False),
    (lambda C, h, i, j: C[i, j, h] + 1.0, (6, 4, 3), (4, 3, 6), False, False, False),
    (lambda C, i, j: C[0, j] + 1.0, (1, 6), (1, 6), True, True, True),
    (lambda C, i, j: C[0, i, j] + 1.0, (4, 6), (1, 4, 6), False, True, False),
    (lambda C, h, i, j: C[i, j] * 2.0, (3, 4, 6), (4, 6), False, True, False),
])  # fmt: skip
def test_epilogues(formula, shape, producer, plain, by_rows, anywhere):
    assert after(formula, shape, producer) == ("D" if plain else None)
    assert after(formula, shape, producer, rows=True) == ("D" if by_rows else None)
    assert after(formula, shape, producer, anywhere=True) == ("D" if anywhere else None)


def test_what_is_no_epilogue():
    """Of several consumers, of a parameter, of a block that makes two results; and a reduction."""
    assert analysis.epilogue(tir.Schedule(programs.fork()), "B") is None
    assert analysis.epilogue(tir.Schedule(by_rule("ik kj -> ij", after=relu)), "Y") == "Z"
    assert analysis.epilogue(tir.Schedule(by_rule("ik kj -> ij", after=relu)), "Z") is None
    assert analysis.epilogue(tir.Schedule(programs.sums_of_chain()), "B") is None
    assert analysis.epilogue(tir.Schedule(programs.chained_matmuls()), "C") is None
    A, k = te.placeholder((7, 13), name="A"), te.reduce_axis((0, 13), name="k")
    C = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="C")
    given = te.create_prim_func([A, C, te.compute((7,), lambda i: C[i] + 1.0, name="D")])
    assert analysis.epilogue(tir.Schedule(given), "C") is None


@T.prim_func
def written_elsewhere(A: T.Buffer((7,), "float32"), D: T.Buffer((7,), "float32")):
    B = T.alloc_buffer((7,), "float32")
    for i in range(7):
        with T.block("B"):
            v = T.axis.spatial(7, i)
            B[v] = A[v] + T.float32(1)
    for i in range(7):
        with T.block("D"):
            v = T.axis.spatial(7, i)
            D[6 - v] = B[v] * T.float32(2)


def test_an_epilogue_may_write_elsewhere():
    s = tir.Schedule(written_elsewhere)
    assert analysis.epilogue(s, "B") is None and analysis.epilogue(s, "B", anywhere=True) == "D"
    assert analysis.is_elementwise(find_block(s.func, "B"))
    assert not analysis.is_elementwise(find_block(s.func, "D"))


@pytest.mark.parametrize("name", ["ij -> ij", "ik kj -> ij", "ik -> i"])
def test_elementwise_blocks(name):
    block = rule_block(name)
    assert analysis.is_elementwise(block) == (name == "ij -> ij")
    if name == "ij -> ij":
        it = block.iters[0]
        assert not analysis.is_elementwise(block.with_(iters=(replace(it, axis=Axis.OPAQUE), *block.iters[1:])))
        store = analysis.stored(block)
        assert not analysis.is_elementwise(block.with_(body=store.with_(indices=(store.indices[0], store.indices[0]))))


def test_producers_made_for_one_block():
    assert analysis.made_for(tir.Schedule(programs.chain()), "C") == ["B"]
    assert analysis.made_for(tir.Schedule(programs.fork()), "C") == []
    assert analysis.made_for(tir.Schedule(programs.chained_matmuls()), "F") == []
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    given = te.create_prim_func([A, B, te.compute((7,), lambda i: B[i] * 3.0, name="C")])
    assert analysis.made_for(tir.Schedule(given), "C") == []
