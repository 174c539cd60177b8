"""The public API, name by name: what programs of users and published TensorIR schedules call, and in which order they pass it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tir
from schedule.primitive import REGISTRY
from search.tuning.result import Result
from tir import te
from tir.script import ir as I
from tir.script import tir as T

TE = [
    "placeholder", "var", "reduce_axis", "compute", "create_prim_func", "sum", "max", "min", "prod", "comm_reducer",
    "maximum", "minimum", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "abs", "floor", "ceil", "pow",
    "if_then_else", "select", "all", "any",
]  # fmt: skip

SCRIPT = [
    "prim_func", "Buffer", "match_buffer", "alloc_buffer", "grid", "serial", "parallel", "vectorized", "unroll",
    "thread_binding", "block", "axis", "where", "reads", "writes", "init", "block_attr", "func_attr", "handle", "float32",
    "int32", "bool", "Cast", "if_then_else", "max", "min", "exp", "evaluate", "attr", "launch_thread", "allocate",
    "decl_buffer", "LetStmt",
]  # fmt: skip

# The parameters of TensorIR's primitives, in their order; ours may add more behind them.
TENSORIR = {
    "split": "loop factors preserve_unit_iters disable_predication",
    "fuse": "*loops preserve_unit_iters",
    "reorder": "*ordered_loops",
    "loop_partition": "loop factors preserve_unit_iters",
    "merge": "*loops",
    "add_unit_loop": "block_or_loop",
    "unroll": "loop",
    "vectorize": "loop",
    "parallel": "loop",
    "bind": "loop thread_axis",
    "annotate": "block_or_loop ann_key ann_val",
    "unannotate": "block_or_loop ann_key",
    "compute_at": "block loop preserve_unit_loops index",
    "reverse_compute_at": "block loop preserve_unit_loops index",
    "compute_inline": "block",
    "reverse_compute_inline": "block",
    "cache_read": "block read_buffer_index storage_scope consumer_blocks",
    "cache_write": "block write_buffer_index storage_scope consumer_blocks",
    "reindex": "block buffer",
    "reindex_cache_read": "block read_buffer_index storage_scope index_map",
    "reindex_cache_write": "block write_buffer_index storage_scope index_map",
    "cache_index": "block storage_scope cse_thresh",
    "cache_inplace": "block read_buffer_index storage_scope",
    "rolling_buffer": "block write_buffer_index",
    "read_at": "loop block read_buffer_index storage_scope",
    "write_at": "loop block write_buffer_index storage_scope",
    "set_axis_separator": "block buffer axis_separators",
    "unsafe_set_dtype": "block buffer_index dtype",
    "annotate_buffer_access": "block buffer_index buf_type gen_new_ranges",
    "set_scope": "block buffer_index storage_scope",
    "storage_align": "block buffer_index axis factor offset",
    "transform_layout": "block buffer index_map pad_value",
    "transform_block_layout": "block index_map",
    "rfactor": "loop factor_axis",
    "decompose_reduction": "block loop",
    "decompose_padding": "block loop",
    "pad_einsum": "block padding",
    "fuse_reduction_epilogue": "reduction_block epilogue_block",
    "blockize": "target preserve_unit_iters",
    "tensorize": "block_or_loop tensor_intrin preserve_unit_iters",
    "reorder_block_iter_var": "block new_order",
    "sample_perfect_tile": "loop n max_innermost_factor decision",
    "sample_partitioned_tile": "loop n partition_pos innerpart_factor decision",
    "sample_categorical": "candidates probs decision",
    "sample_compute_location": "block decision",
    "get_block": "name func_name",
    "get_loops": "block",
    "get_producers": "block",
    "get_consumers": "block",
    "get_child_blocks": "block_or_loop",
    "get_output_blocks": "scope_block",
}
OURS = [
    "tile",
    "serial",
    "drop_empty",
    "stage_mem",
    "stage_padding",
    "factor_out",
    "rolling_update",
    "make_unsigned",
    "simplify_formula",
    "write_in_place",
    "lift_alloc",
    "pack",
    "add_guard",
    "assume",
    "hoist_predicate",
    "peel",
    "trim",
    "sample_tile",
    "show",
    "copy",
    "explore",
]


def parameters(function) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in found if p.name != "self"]


@pytest.mark.parametrize("name", TENSORIR)
def test_methods_take_what_tensorir_does(name):
    wanted = TENSORIR[name].split()
    assert parameters(getattr(tir.Schedule, name))[: len(wanted)] == wanted


def test_primitives_are_methods_with_the_same_parameters():
    assert set(REGISTRY) <= {*TENSORIR, *OURS}
    for name, primitive in REGISTRY.items():
        own = [p for p in parameters(primitive.function)[1:] if p != "rng"]
        assert parameters(getattr(tir.Schedule, name)) == own, name
    assert all(callable(getattr(tir.Schedule, name)) for name in OURS)


def test_names():
    assert [n for n in TE if not hasattr(te, n)] == []
    assert [n for n in SCRIPT if not hasattr(T, n)] == []
    assert [n for n in ("spatial", "reduce", "remap", "S", "R") if not hasattr(T.axis, n)] == []
    assert callable(I.ir_module)
    assert [n for n in tir.__all__ if not hasattr(tir, n)] == []


def test_functions():
    assert parameters(tir.build)[:2] == ["func", "target"]
    assert parameters(tir.default_schedule) == ["func", "target", "sizes"]
    assert parameters(tir.best_schedule) == ["func", "target", "records"]
    assert {"func", "target", "trials", "seconds", "records", "seed", "callbacks"} <= {*parameters(tir.autotune)}
    assert {"kernel", "schedule", "seconds", "outcomes"} <= {*dir(Result), *Result.__dataclass_fields__}
    assert tir.Target("llvm -num-cores 1") == tir.Target("llvm", num_cores=1)
    assert tir.Target("cuda -arch sm_90") == tir.Target("cuda", arch="sm_90")


def test_a_session():
    M, K, N = 7, 13, 9
    A, B = te.placeholder((M, K), "float32", name="A"), te.placeholder((K, N), "float32", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    func = te.create_prim_func([A, B, C])
    s = tir.Schedule(func)
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 16])
    s.reorder(io, j, k, ii)
    s.parallel(io)
    kernel = tir.build(s.func, target="llvm")
    a, b, c = np.ones((M, K), "float32"), np.ones((K, N), "float32"), np.empty((M, N), "float32")
    kernel(a, b, c)
    assert (c == K).all()
    timing = kernel.time(a, b, c)
    assert 0 < timing.median and timing.quartiles[0] <= timing.median <= timing.quartiles[1] and timing.runs >= 1
    assert kernel.asm() and kernel.llvm_ir() and kernel.report() and callable(kernel.export)
    assert A[0, 0].astype("int32").dtype == "int32"


@I.ir_module
class MyModule:
    @T.prim_func
    def mm_relu(A: T.Buffer((13, 9), "float32"), B: T.Buffer((9, 7), "float32"), C: T.Buffer((13, 7), "float32")):
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((13, 7), dtype="float32")
        for i, j, k in T.grid(13, 7, 9):
            with T.block("Y"):
                vi = T.axis.spatial(13, i)
                vj = T.axis.spatial(7, j)
                vk = T.axis.reduce(9, k)
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(13, 7):
            with T.block("C"):
                vi = T.axis.spatial(13, i)
                vj = T.axis.spatial(7, j)
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


def test_a_schedule_of_a_module():
    sch = tir.Schedule(MyModule)
    _, j, k = sch.get_loops(sch.get_block("Y", func_name="mm_relu"))
    j0, j1 = sch.split(j, factors=[None, 4])
    sch.reorder(j0, k, j1)
    sch.reverse_compute_at(sch.get_block("C", "mm_relu"), j0)
    sch.decompose_reduction("Y", k)
    assert tir.Schedule(MyModule["mm_relu"]).get_block("C", func_name="main") == "C"
    assert sch.mod["mm_relu"] is sch.func and "class Module" in sch.mod.script()
    assert tir.verify(sch.mod).ok
    a, b = np.ones((13, 9), "float32"), -np.ones((9, 7), "float32")
    for run in (tir.build(sch.mod, target="llvm"), lambda *arrays: tir.run(sch.mod, *arrays)):
        c = np.full((13, 7), 7, "float32")
        run(a, b, c)
        assert (c == 0).all()


def test_a_module_of_several_functions():
    f = MyModule["mm_relu"]
    two = I.IRModule({"f": f, "g": f}, "Two")
    s = tir.Schedule(two)
    choose = r"^the module of this schedule has several functions, f, g: choose one by work_on\(name\)$"
    for use in (lambda: s.func, lambda: s.get_loops("Y"), lambda: s.parallel("i")):
        with pytest.raises(ValueError, match=choose):
            use()
    (i_of_f, *_), (i_of_g, *_) = (s.get_loops(s.get_block("Y", func_name=name)) for name in "fg")
    assert i_of_f == i_of_g == "i"
    inner = s.split(i_of_f, [None, 4])[1]
    s.parallel(i_of_g)
    assert len(s.trace) == 1 and s.func is s.mod["g"]
    again = s.copy()
    s.unroll(inner)
    assert len(s.trace) == 2 and s.func is s.mod["f"]
    assert again.mod == I.IRModule({"f": tir.replay(f, s.trace.steps[:1]).func, "g": s.mod["g"]})
    with pytest.raises(ValueError, match=r"^names of several functions: f, g$"):
        s.reorder(i_of_f, i_of_g)
    with pytest.raises(ValueError, match=r"^work_on: the module has no function 'h'; it has f, g$"):
        s.work_on("h")
    with pytest.raises(tir.ScheduleError) as caught:
        s.get_block("C", "h")
    assert str(caught.value) == "get_block('C'): no function is named 'h'; there are: f, g"
    assert tir.script.parse(s.mod.script()) == I.IRModule({n: g.with_(name=n) for n, g in s.mod.items()})
    assert str(tir.verify(s.mod)) == "mm_relu: well formed\nmm_relu: well formed"
    assert not tir.verify({"f": f, "bad": f.with_(params=f.params[:2])}).ok
    a, b = np.ones((13, 9), "float32"), np.ones((9, 7), "float32")
    for kernel in tir.build(s.mod).values():
        assert (kernel(a, b) == 9).all()
    with pytest.raises(TypeError, match=r"^run takes one function, and this module has 2: f, g; choose one: module\['f'\]$"):
        tir.run(s.mod, a, b)


def test_a_module_of_one_function():
    f = MyModule["mm_relu"]
    renamed = I.IRModule.from_expr(f.with_attr("global_symbol", "main"))
    assert list(renamed) == ["main"] and list(I.IRModule.from_expr(f.with_(attrs=()))) == ["mm_relu"]
    s = tir.Schedule(renamed)
    (first, *_) = s.get_loops(s.get_block("Y", func_name="main"))
    assert s.get(first).extent.value == 13 and s.get("Y").name == "Y" and s.get("root") is s.func
    assert s.state.mod == tir.Schedule(renamed["main"]).mod == renamed
    kernel = tir.build(s.mod)
    assert kernel["main"] is kernel["mm_relu"] is kernel
    with pytest.raises(KeyError, match=r"no function of this library is named 'mm'; there are: mm_relu"):
        kernel["mm"]
    with pytest.raises(tir.ScheduleError) as caught:
        tir.Schedule(MyModule).get_block("C", "main")
    assert str(caught.value) == "get_block('C'): no function is named 'main'; there are: mm_relu"
    with pytest.raises(TypeError, match=r"^Schedule takes one function, and this module has none$"):
        tir.Schedule({})


def test_a_trace_is_applied_to_a_schedule():
    s = tir.Schedule(MyModule, seed=0)
    i, j, _ = s.get_loops("Y")
    s.split(i, s.sample_perfect_tile(i, n=2, decision=[13, 1]), disable_predication=False)
    other = tir.Schedule(MyModule)
    s.trace.apply_to_schedule(other, remove_postproc=False)
    assert other.trace == s.trace and other.func == s.func
    third = tir.Schedule(MyModule)
    third.split(j, third.sample_perfect_tile(j, n=2, decision=[7, 1]))
    s.trace.apply_to_schedule(third)
    assert len(third.trace) == 4 and tir.replay(MyModule["mm_relu"], third.trace).func == third.func
    with pytest.raises(tir.ScheduleError, match=r"^step 1 of 2, sample_perfect_tile\('i'.*`i`"):
        s.trace.apply_to_schedule(third)
    with pytest.raises(ValueError, match=r"^a trace does not say where postprocessing begins"):
        s.trace.apply_to_schedule(other, remove_postproc=True)
