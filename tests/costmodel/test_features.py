"""Features of statements: the numbers of the original's own test, and small programs done by hand."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

import tir
from codegen.constants import split_constants
from codegen.target import Target
from costmodel import NAMES, features, program
from costmodel.features import ANSOR, CHUNK_ROWS
from schedule import replay
from schedule.machine import CPU
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.space import generate
from search.space.rules import ROWS, Skip
from tests.programs import matmul
from tir import te, workloads
from tir.constants import with_constants
from tir.script import parse

MACHINE = CPU(2, 512, 32, 32 << 10, 1 << 20, 32 << 20)
ROW = np.empty((1, 0), dtype=np.int64)


def described(func, machine=MACHINE) -> list[dict[str, float]]:
    """The features of each statement by name, without the logarithm (but of indicators, which have none)."""
    found = features(program(func), ROW, machine)[:, 0].astype(np.float64)
    plain = np.array(["type." in name or name == "is_gpu" for name in NAMES])
    return [dict(zip(NAMES, np.where(plain, x, np.exp2(x) - 1).tolist(), strict=True)) for x in found]


def close(value: float):
    """Equal but for the rounding of a float32 logarithm: half an ulp of log2(x), times x ln 2, doubled for the sum with 1."""
    return pytest.approx(value, rel=2 * 2**-24 * log2(value + 2) + 2**-22)


def test_there_are_164_and_some():
    assert len(ANSOR) == 164 and len(set(NAMES)) == len(NAMES) and NAMES[:164] == ANSOR


def test_equal_statements_of_one_block_are_two():
    func = parse(
        """
from tir.script import tir as T

@T.prim_func
def twice(A: T.Buffer((13,)), B: T.Buffer((13,)), X: T.Buffer((13,)), Y: T.Buffer((13,))):
    for i in range(13):
        with T.block("both"):
            v = T.axis.spatial(13, i)
            X[v] = A[v]
            Y[v] = B[v]
"""
    )
    one, other = program(func).statements
    assert one is not other and one.loops == other.loops


def test_the_oracle_of_the_original():
    """The matrix product of TVM's test_auto_scheduler_feature.py (reference values in its comments).

    There buffers come in the order of their lines and the accumulator is B0 as well. Its counts have no `mad`, and positions
    other than None and Mixed never occur in it; these two are different here on purpose.
    """
    s = tir.Schedule(matmul(512, 512, 512))
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 16])
    jo, ji = s.split(j, [None, 8])
    s.reorder(io, jo, k, ji, ii)
    s.vectorize(ji)
    s.parallel(io)
    s.parallel(jo)
    s.unroll(k)
    found = features(program(s.func), ROW, MACHINE)
    assert found.shape == (1, 1, len(NAMES)) and found.dtype == np.float32
    f = dict(zip(NAMES, found[0, 0].tolist(), strict=True))
    expected = {
        "B0.bytes": log2(512**3 * 4 + 1),  # C
        "B2.unique_bytes": log2(512**2 * 4 + 1),  # B
        "B0.reuse_dis_iter": log2(8 * 16 + 1),
        "B0.reuse_dis_bytes": log2((8 * 16 + 8 + 16) * 4 + 1),
        "B0.reuse_ct": log2(512 + 1),
        "unroll_num": log2(1 + 1),
        "vec_num": log2(1 + 1),
        "parallel_num": log2(2 + 1),
        "parallel_prod": log2(512**2 / 128 + 1),
        "float_mad": log2(512**3 + 1),
        "B0.acc_type.kReadWrite": 1,
        "B1.acc_type.kRead": 1,
        "vec_type.MiddleSpatial": 1,
        "unroll_type.MiddleReduce": 1,
        "parallel_type.OuterSpatial": 1,
    }
    assert {name: f[name] for name in expected} == pytest.approx(expected, rel=2**-20)
    assert [name for name in NAMES if "_type." in name and name.split("_")[0] in ("vec", "unroll", "parallel") and f[name]] == [
        "vec_type.MiddleSpatial",
        "unroll_type.MiddleReduce",
        "parallel_type.OuterSpatial",
    ]


def test_an_odd_matrix_product():
    (f,) = described(matmul(7, 13, 109))  # loops i, j, k
    total = 7 * 13 * 109
    assert f["float_mad"] == f["outer_prod"] == close(total) and f["float_mul"] == f["float_addsub"] == 0
    assert f["num_loops"] == close(3)
    # C[i, j]: stands still in k; A[i, k]: in j; B[k, j]: in i.
    assert [f[f"B{n}.reuse_ct"] for n in range(3)] == [close(13), close(109), close(7)]
    assert [f[f"B{n}.reuse_dis_iter"] for n in range(3)] == [close(1), close(13), close(109 * 13)]
    assert [f[f"B{n}.unique_bytes"] for n in range(3)] == [close(4 * n) for n in (7 * 109, 7 * 13, 13 * 109)]
    assert [f[f"B{n}.stride"] for n in range(3)] == [0, close(1), close(109)]
    # Lines: C once for each 13 steps of k, a sixteenth each time; A a sixteenth of a line each time; B a new line each time.
    assert f["B0.lines"] == close(total / 13 / 16) and f["B1.lines"] == close(total / 16) and f["B2.lines"] == close(total)
    assert f["B1.reuse_dis_bytes"] == close(4 * (1 + 13 + 13))  # one step of j: C[i, j], A[i, :], B[:, j]
    assert f["arith_intensity_curve_9"] == close(total / (4 * (7 * 109 + 7 * 13 + 13 * 109)))
    assert f["waste"] == close(1)


def test_loops_of_one_iteration_do_not_count():
    func = matmul(7, 13, 109)
    s = tir.Schedule(func)
    i, j, k = s.get_loops("C")
    s.split(k, [None, 1])
    s.split(j, [None, 1])
    s.split(i, [1, None])
    assert described(s.func) == described(func)


def test_guards_waste_iterations():
    s = tir.Schedule(matmul(7, 13, 109))
    i, j, _ = s.get_loops("C")
    s.split(i, [None, 4])
    s.split(j, [None, 16])
    (f,) = described(s.func)
    assert f["waste"] == close(8 * 112 / (7 * 109))
    assert f["B0.unique_bytes"] == close(4 * 7 * 109)  # no more than there is


def test_a_fused_loop_moves_by_its_parts():
    s = tir.Schedule(matmul(7, 13, 109))
    i, j, _ = s.get_loops("C")
    s.parallel(s.fuse(i, j))
    (f,) = described(s.func)
    assert [f[f"B{n}.unique_bytes"] for n in range(3)] == [close(4 * n) for n in (7 * 109, 7 * 13, 13 * 109)]
    assert f["parallel_len"] == close(7 * 109) and f["parallel_type.OuterSpatial"] == 1
    assert f["work_a_thread"] == close(7 * 109 * 13 / 2)
    assert f["tasks_waste"] == close(764 / 763)


def test_several_accesses_of_a_buffer_are_one_region():
    A = te.placeholder((13, 15), name="A")
    B = te.compute((13, 13), lambda i, j: A[i, j] + A[i, j + 1] + A[i, j + 2], name="B")
    (f,) = described(te.create_prim_func([A, B]))
    assert f["B1.unique_bytes"] == close(4 * 13 * 15) and f["float_addsub"] == close(2 * 13 * 13)
    assert f["B1.reuse_type.kNoReuse"] == 1 and f["B1.bytes_d_reuse_ct"] == close(2 * 4 * 13 * 13)
    assert f["B2.bytes"] == f["B2.reuse_type.kNoReuse"] == 0  # there is no third buffer


def test_statements_in_one_loop_reuse_each_others_data():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: te.exp(A[i, j]), name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 2.0, name="C")
    s = tir.Schedule(te.create_prim_func([A, C]))
    apart = described(s.func)
    s.compute_at("B", s.get_loops("C")[0])
    producer, consumer = described(s.func)
    assert apart[1]["B1.reuse_type.kNoReuse"] == 1
    assert consumer["B1.reuse_type.kSerialMultipleReadWrite"] == 1 and consumer["B1.reuse_ct"] == close(1)
    assert consumer["B1.reuse_dis_iter"] == close(13)  # all of the 7 x 13 elements by the 7 iterations
    assert producer["alloc_outer_prod"] == close(7) and producer["alloc_inner_prod"] == close(13)
    assert apart[0]["alloc_outer_prod"] == close(1) and apart[0]["alloc_size"] == close(4 * 7 * 13)
    assert producer["float_mathfunc"] == close(7 * 13)


def test_traffic_falls_when_a_tile_fits_the_cache():
    """Blocks of B of 64 x 16 floats, 4 KiB, stay in a cache of 32 KiB while the rows of A go by."""
    plain = tir.Schedule(matmul(512, 512, 512))
    tiled = tir.Schedule(matmul(512, 512, 512))
    i, j, k = tiled.get_loops("C")
    jo, ji = tiled.split(j, [None, 16])
    ko, ki = tiled.split(k, [None, 64])
    tiled.reorder(jo, ko, i, ki, ji)
    before, after = (described(s.func)[0] for s in (plain, tiled))
    assert after["l1_bytes"] < before["l1_bytes"] / 8
    small = CPU(2, 512, 32, 1 << 10, 4 << 10, 32 << 20)
    assert described(tiled.func, small)[0]["l1_bytes"] > after["l1_bytes"]
    assert described(tiled.func, small)[0]["l1"] == close(1 << 10)


def test_the_register_tile():
    s = tir.Schedule(matmul(64, 64, 64))
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 4])
    jo, ji = s.split(j, [None, 24])
    s.reorder(io, jo, k, ii, ji)
    s.unroll(ii)
    s.vectorize(ji)
    (f,) = described(s.func)
    assert f["accumulators"] == close(4 * 2) and f["register_loads"] == close(4 + 2)
    assert f["lane_waste"] == close(32 / 24) and f["lanes"] == close(16)
    assert f["vec_type.InnerSpatial"] == f["unroll_type.MiddleSpatial"] == 1


def test_threads_of_a_gpu():
    s = tir.Schedule(matmul(64, 7, 64))
    i, j, _ = s.get_loops("C")
    s.bind(i, "blockIdx.x")
    s.bind(j, "threadIdx.x")
    (f,) = described(s.func)
    assert (f["is_gpu"], f["blockIdx_x_len"], f["threadIdx_x_len"]) == (1, close(64), close(64))
    assert described(matmul(7, 13, 109))[0]["is_gpu"] == 0


def test_populations_come_in_pieces():
    many = features(program(matmul(7, 13, 109)), np.empty((CHUNK_ROWS + 7, 0), dtype=np.int64), MACHINE)
    one = features(program(matmul(7, 13, 109)), ROW, MACHINE)
    assert many.shape == (1, CHUNK_ROWS + 7, len(NAMES)) and (many == one).all()
    assert features(program(matmul(7, 13, 109)), np.empty((0, 0), dtype=np.int64), MACHINE).shape == (1, 0, len(NAMES))


def test_annotations_are_described():
    """Chunks of three iterations of 13 are taken in rounds of two threads: 5 chunks, 3 rounds, time for 18 iterations."""
    s = tir.Schedule(matmul(13, 109, 7))
    i, j, k = s.get_loops("C")
    s.parallel(i)
    plain = described(s.func)[0]
    assert [plain[name] for name in ("chunk", "dynamic", "prefetch", "streamed")] == [0, 0, 0, 0]
    assert plain["tasks_waste"] == close(14 / 13)
    s.annotate(i, "chunk", 3)
    s.annotate(i, "schedule", "dynamic")
    s.annotate(k, "prefetch", [["A", 4], ["B", 8]])
    s.annotate(j, "non_temporal", "C")
    (f,) = described(s.func)
    assert (f["chunk"], f["dynamic"], f["prefetch"], f["streamed"]) == (close(3), 1, close(8), 1)
    assert f["tasks_waste"] == close(18 / 13)
    s.annotate(k, "prefetch", ["A", 5])
    s.annotate(j, "non_temporal", [])
    s.annotate(k, "pipeline_stages", 3)
    s.annotate(i, "resident_blocks", 2)
    (f,) = described(s.func)
    assert f["prefetch"] == close(5) and f["streamed"] == 0 and f["stages"] == close(3) and f["resident"] == close(2)


def test_rows_that_differ_in_annotations_differ_in_features():
    """As the steps of their own traces say, of which the symbolic program is one for all."""
    target = Target("llvm", num_cores=2, l3=1 << 20)
    names = ("chunk", "dynamic", "prefetch", "streamed")
    places = [NAMES.index(name) for name in names]
    seen = set()
    rules = (ROWS, Skip())  # they leave all of these open
    for sketch in generate(workloads.make("softmax", (2048, 1024)).func, target, rules):
        rows = sample(sketch, target, 24, np.random.default_rng(0))
        for members, shared in sketch_programs(sketch).programs(rows):
            found = features(shared, rows[members], target.machine)
            for n, row in enumerate(rows[members]):
                own = features(program(replay(sketch.func, sketch.trace(row)).func), ROW, target.machine)
                assert found[:, n, places] == pytest.approx(own[:, 0, places], rel=2**-20)
                seen |= {(name, v) for name, p in zip(names, places, strict=True) for v in own[:, 0, p].tolist()}
    assert {name for name, _ in seen} == set(names) and all(len([v for m, v in seen if m == name]) > 1 for name in names)


def test_what_is_prepared_once_is_no_statement():
    """Nor does it change the features of the others, in which what was prepared is a parameter; sketches know it, too."""
    func = with_constants(matmul(24, 40, 36), ["B"])
    s = tir.default_schedule(func, "llvm -num-cores 1")
    prepare, main = split_constants(s.func)
    assert prepare is not None
    assert [x.block for x in program(s.func).statements] == [x.block for x in program(main).statements]
    assert np.array_equal(features(program(s.func), ROW, MACHINE), features(program(main), ROW, MACHINE))

    target, rng = Target("llvm", num_cores=1), np.random.default_rng(0)
    packing = 0
    for sketch in generate(func, target):
        rows = sample(sketch, target, 8, rng)
        for members, found in sketch_programs(sketch).programs(rows):
            concrete = replay(func, sketch.trace(rows[members[0]])).func
            blocks = [x.block for x in program(concrete).statements]
            assert [x.block for x in found.statements] == blocks and "B_global" not in blocks
            packing += "B_global" in concrete.script()
    assert packing
