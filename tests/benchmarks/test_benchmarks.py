"""The benchmarks: the race on a clock of its own, the process that measures, the command line, the programs and their references.

Nothing here asserts a time.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import tir
from benchmarks import BENCHMARKS, cpu, libraries, onnx_peer, pages, peers, programs, runner
from benchmarks.__main__ import main, measured, select, standard_table
from benchmarks.compile_time import PHASES
from benchmarks.options import Options
from benchmarks.runner import THREAD_VARIABLES, Effort, Timing, race, ratios, spread
from codegen.runtime import timing
from schedule.primitive import REGISTRY
from search.measure import Measurement
from search.policy.evolution import Settings
from search.policy.named import make_policy
from search.task import Task
from tir import workloads

SMALL = {
    "gmm": (13, 7, 109),
    "gemv": (13, 109),
    "add_relu": (109,),
    "mlp": (7, 13, 5, 11),
    "conv2d": (2, 9, 7, 3, 5, 3, 3, 2, 1),
    "depthwise": (1, 9, 7, 5, 3, 3, 1, 1),
    "softmax": (7, 109),
    "layernorm": (7, 109),
    "attention": (2, 13, 7),
}

# --- the race ------------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that advances only where a contender makes it; what happens is written down."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def perf_counter(self) -> float:
        return self.now

    def takes(self, name: str, *seconds: float):
        """A contender whose calls take so long: the last of these from there on."""
        left = list(seconds)

        def call() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]
            self.log.append(name)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (runner, timing):
        monkeypatch.setattr(module, "time", made)
    return made


def test_race_takes_turns_and_rotates(clock: Clock) -> None:
    contenders = {name: clock.takes(name, 0.25) for name in "abc"}
    found = race(contenders, Effort(seconds=0.5, least=4, most=4))
    assert clock.log == [*"aabbcc", *"abc", *"bca", *"cab", *"abc"]  # two calls to look, then rounds
    assert list(found) == ["a", "b", "c"]
    assert all(t == Timing(0.25, (0.25, 0.25), 1, (0.25,) * 4) for t in found.values())


def test_race_fills_a_sample_with_short_calls_after_warming_up(clock: Clock) -> None:
    found = race({"short": clock.takes("short", 2.0**-10)}, Effort(seconds=1.0, most=3, least=3, sample=2.0**-7, warm=2.0**-6))
    assert clock.log.count("short") == 2 + 3 * (16 + 8)
    assert found["short"] == Timing(2.0**-10, (2.0**-10, 2.0**-10), 8, (2.0**-10,) * 3)


def test_race_does_not_count_the_first_call(clock: Clock) -> None:
    found = race({"loads": clock.takes("loads", 0.375, 0.125)}, Effort(seconds=0.25, least=2))
    assert found["loads"].samples == (0.125, 0.125)


def test_race_leaves_out_who_is_too_slow(clock: Clock) -> None:
    contenders = {"crawls": clock.takes("crawls", 9.0), "slow": clock.takes("slow", 1.5), "fast": clock.takes("fast", 0.5)}
    found = race(contenders, Effort(seconds=1.0, least=3))
    assert [len(t.samples) for t in found.values()] == [1, 2, 3]
    assert clock.log.count("crawls") == 1
    assert found["crawls"].median == 9.0


def test_race_ends_after_its_time_or_its_rounds(clock: Clock) -> None:
    assert len(race({"a": clock.takes("a", 0.125)}, Effort(seconds=2.0, least=1))["a"].samples) == 16
    assert len(race({"a": clock.takes("a", 0.125)}, Effort(seconds=2.0, least=1, most=5))["a"].samples) == 5


def test_race_warms_up_before_each_sample_unless_a_call_is_long(clock: Clock) -> None:
    effort = Effort(seconds=64.0, least=2, most=2, sample=0.25, warm=0.5)
    race({"a": clock.takes("a", 0.25), "long": clock.takes("long", 5.0)}, effort)
    assert clock.log == ["a"] * 2 + ["long"] * 2 + ["a"] * 3 + ["long"] * 2 + ["a"] * 3


def test_race_needs_a_contender() -> None:
    with pytest.raises(ValueError, match="no contender was given"):
        race({})


def test_many_threads_warm_up_for_longer() -> None:
    assert runner.warm(1) == Effort.warm < runner.warm(2)


@pytest.mark.parametrize(
    ("samples", "expected"), [([3.0], (3.0, 3.0, 3.0)), ([1.0, 2.0], (1.25, 1.5, 1.75)), ([5.0, 1.0, 2.0, 4.0, 3.0], (2, 3, 4))]
)
def test_spread(samples: list[float], expected: tuple[float, float, float]) -> None:
    assert spread(samples) == expected


def test_ratio_is_of_medians_and_its_quartiles_of_rounds() -> None:
    ours, peer = Timing.of([1.0, 2.0, 4.0], [1, 1, 1]), Timing.of([2.0, 8.0, 12.0], [1, 1, 1])
    assert ratios(ours, peer) == (4.0, (2.5, 3.5))


# --- the process that measures -------------------------------------------------------------------------------------------

FAKE = """
import os, sys
ROWS = DEFAULT = ("threads", "early", "raises", "crashes", "twice", "nan")
def measure(row, options):
    if row == "threads":
        names = sorted(name for name in os.environ if name.startswith("OPENBLAS_"))
        yield {"openblas": names, **{name: os.environ[name] for name in options_of()}}
    elif row == "early":
        yield {"loaded": [name for name in ("numpy", "torch", "numba") if name in sys.modules]}
    elif row == "raises":
        yield {"part": 1}
        raise ArithmeticError("seven")
    elif row == "crashes":
        print("no JSON")
        os.write(1, b"nor this")
        os._exit(3)
    elif row == "nan":
        yield {"value": float("nan")}
    else:
        yield from ({"n": n, "seed": options.seed} for n in range(2))
def options_of():
    from benchmarks.runner import THREAD_VARIABLES
    return THREAD_VARIABLES
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with benchmarks that misbehave, for the process that is started to import."""
    (tmp_path / "fake_benchmark.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "fake_benchmark"


def test_threads_are_fixed_before_any_library_is_loaded(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the environment says of OpenBLAS's kernels is not there."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "512")
    threads, early = measured(fake, ("threads", "early"), Options(threads=3))
    assert threads == {
        "threads": 3,
        "row": "threads",
        "openblas": ["OPENBLAS_NUM_THREADS"],
        **dict.fromkeys(THREAD_VARIABLES, "3"),
    }
    assert early["loaded"] == []


def test_a_row_that_fails_does_not_stop_the_others(fake: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = list(measured(fake, ("raises", "crashes", "nan", "twice"), Options(seed=5)))
    assert found == [
        {"threads": 1, "row": "raises", "part": 1},
        {"threads": 1, "row": "raises", "error": "ArithmeticError: seven"},
        {"threads": 1, "row": "crashes", "error": "the process died (exit status 3)"},
        {"threads": 1, "row": "nan", "error": "ValueError: Out of range float values are not JSON compliant"},
        {"threads": 1, "row": "twice", "n": 0, "seed": 5},
        {"threads": 1, "row": "twice", "n": 1, "seed": 5},
    ]
    assert "nor this" in capfd.readouterr().err


def test_the_worker_refuses_a_wrong_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import worker

    monkeypatch.setattr(worker, "pinned", lambda: dict.fromkeys(THREAD_VARIABLES, "2"))
    monkeypatch.setattr(worker.os, "dup2", lambda *_: None)
    with pytest.raises(SystemExit, match="started for 1 threads"):
        worker.main(json.dumps({"module": "benchmarks.cpu", "rows": [], "options": Options().as_json()}))


# --- the command line ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "message"), [
    (["cpu", "--rows", "gemm-12"], f"no row is named 'gemm-12'; did you mean gemm-512? there are: {', '.join(cpu.ROWS)}"),
    (["cpu", "--rows", ""], f"no row is named ''; there are: {', '.join(cpu.ROWS)}"),
    (["cpus"], f"no benchmark is named 'cpus'; there are: {', '.join(BENCHMARKS)}"),
    (["cpu", "--threads", "0"], "--threads takes positive integers separated by commas, as in 1,2; got '0'"),
    (["cpu", "--best", "."], "--best needs --schedule tuned, not default"),
    (
        ["interpreter", "--save", "."],
        "--save is for ablation, policies, quality, model, cpu, levels, perturb, calls, interleaved, breadth, networks, torch, distributed, symbolic, "
        "interop, generate, not interpreter",
    ),
    (["cpu", "--schedule", "tuned", "--best", "nowhere"], "--best: nowhere is not a folder"),
    (["cpu", "--minutes", "3"], "--minutes is for ablation, policies, quality, not cpu"),
    (["cpu", "--seconds", "-1"], "argument --seconds: expected a positive number of seconds, got '-1'"),
])  # fmt: skip
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_rows_are_selected_by_name_or_family() -> None:
    a = SimpleNamespace(ROWS=("gemm-1", "gemm-12", "softmax"), DEFAULT=("gemm-1",))
    b = SimpleNamespace(ROWS=("softmax", "mlp"), DEFAULT=("mlp",))
    modules = {"a": a, "b": b}
    assert select(modules, None) == {"a": ("gemm-1",), "b": ("mlp",)}
    assert select(modules, "gemm-1") == {"a": ("gemm-1",)}
    assert select(modules, "softmax, gemm") == {"a": a.ROWS, "b": ("softmax",)}
    assert select(modules, "all") == {"a": a.ROWS, "b": b.ROWS}


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name}: " in shown for name in BENCHMARKS)
    assert "gemm-97x1021x509" in shown


CONTENDER = {"median_s": float, "quartiles_s": list, "runs": int, "calls": int, "gflops": float, "gbps": float}

SCHEMA = {
    "benchmark": str, "row": str, "threads": int, "program": str, "shape": list, "dtype": str, "flop": int, "bytes": int,
    "against": str, "goal": float, "machine": dict, "commit": str, "versions": dict, "pinned": dict, "started": str,
    "library_kernels": dict,
    "schedule": str, "schedule_s": float, "build_s": float, "tolerance": float, "errors": dict, "contenders": dict,
    "ratios": dict, "roof": dict, "shares": dict, "ratio": float,
}  # fmt: skip


def test_a_row_from_end_to_end(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cpu", "--rows", "gemm-127", "--threads", "1", "--seconds", "0.05", "--schedule", "unscheduled"]) == 0
    out, err = capfd.readouterr()
    (line,) = out.splitlines()
    result = json.loads(line)
    result.pop("handicapped", None)  # on a processor that numpy does not know
    assert {k: type(v) for k, v in result.items()} == SCHEMA
    assert result["pinned"] == dict.fromkeys(THREAD_VARIABLES, "1")
    assert {"processor", "cores", "mcpu", "isa", "vector_bits", "l1", "l2", "l3"} == set(result["machine"])
    assert {"tir", "numpy"} <= set(result["contenders"])
    for contender in result["contenders"].values():
        assert {k: type(v) for k, v in contender.items()} == CONTENDER
        low, high = contender["quartiles_s"]
        assert 0 < low <= contender["median_s"] <= high
        assert contender["gflops"] == pytest.approx(2 * 127**3 / contender["median_s"] / 1e9)
    assert result["ratio"] == result["ratios"]["numpy"]["ratio"]
    assert 0 < result["errors"]["tir"] <= result["tolerance"]
    assert set(result["shares"]) == set(result["roof"]) == {"fma", "copy"}
    assert "gemm-127" in err and "x numpy" in err and "OMP_NUM_THREADS=" in err


@pytest.mark.parametrize(("found", "isa", "notes"), [
    ({"numpy": "SkylakeX", "torch": "AVX512"}, "avx512f", []),
    ({"numpy": "Haswell", "torch": "AVX512"}, "avx512f",
     ["numpy is handicapped: it runs the kernels of Haswell, with vectors of 256 bits instead of 512"]),
    (
        {"numpy": "Nehalem", "torch": "DEFAULT"},
        "avx2",
        [
            "numpy is handicapped: it runs the kernels of Nehalem, with vectors of 128 bits instead of 256",
            "torch is handicapped: it runs the kernels of DEFAULT, with vectors of 128 bits instead of 256",
        ],
    ),
    ({"numpy": "armv8"}, "neon", []),
])  # fmt: skip
def test_handicapped_libraries(found: dict[str, str], isa: str, notes: list[str]) -> None:
    bits = {"avx512f": 512, "avx2": 256, "neon": 128}[isa]
    assert libraries.handicapped(found, isa, bits) == notes
    machine = {"processor": "X", "mcpu": "y"}
    result = {"machine": machine, "commit": "c", "library_kernels": found, **({"handicapped": notes} if notes else {})}
    kernels = ", ".join(f"{library} ({name})" for library, name in found.items())
    assert pages.circumstances([result]) == " ".join(
        [f"On X (y), commit c. Kernels of {kernels}.", *(f"**{n}.**" for n in notes)]
    )


# --- the programs --------------------------------------------------------------------------------------------------------


def run_numpy(instance, inputs):
    outputs = instance.outputs()
    instance.numpy(inputs, outputs)
    return outputs


def run_interpreter(instance, inputs):
    outputs = instance.outputs()
    tir.run(instance.func, *inputs, *outputs)
    return outputs


def run_torch(instance, inputs):
    pytest.importorskip("torch")
    call = peers.torch_call(instance, inputs, 1)
    assert call is not None
    return (np.asarray(call()),)


def run_onnxruntime(instance, inputs):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    call = onnx_peer.onnx_call(instance, inputs, 1)
    assert call is not None
    return (np.asarray(call()),)


@pytest.mark.parametrize("way", [run_numpy, run_interpreter, run_torch, run_onnxruntime])
@pytest.mark.parametrize("name", SMALL)
def test_each_way_agrees_with_the_reference(name: str, way) -> None:
    instance = programs.instance(name, SMALL[name])
    inputs = instance.inputs(np.random.default_rng(7))
    assert instance.check(way(instance, inputs), inputs).ok


@pytest.mark.parametrize("name", ["gemv", "add_relu", "attention"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_wrong_result_is_seen(name: str, dtype: str) -> None:
    instance = programs.instance(name, SMALL[name], dtype)
    inputs = instance.inputs(np.random.default_rng(7))
    outputs = run_numpy(instance, inputs)
    assert instance.check(outputs, inputs).ok
    lacking = tuple(np.array(a) for a in inputs)
    lacking[1 if name != "attention" else 2][..., -1] = 0  # as if the last iteration of a loop were missing
    assert not instance.check(run_numpy(instance, lacking), inputs).ok


@pytest.mark.parametrize("row", cpu.ROWS)
def test_each_row_is_a_program(row: str) -> None:
    entry = cpu.TABLE[row]
    instance = programs.instance(entry.program, entry.shape)
    assert instance.flop > 0
    assert entry.against in ("numpy", "torch", "copy")


def test_a_wrong_kernel_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = programs.instance("gmm", (7, 13, 5))
    monkeypatch.setitem(cpu.TABLE, "gemm-7", cpu.Row("gmm", (7, 13, 5), "numpy", 1.0))
    monkeypatch.setattr(cpu, "scheduled", lambda *_: _first_half(right.func))
    (result,) = cpu.measure("gemm-7", Options(seconds=0.01))
    assert result["error"].startswith("wrong result: off by inf of its scale; the tolerance is ")
    assert result["errors"]["tir"] is None
    assert "contenders" not in result


def test_a_wrong_peer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cpu.TABLE, "gemm-7", cpu.Row("gmm", (7, 13, 5), "torch", 1.0))
    monkeypatch.setattr(cpu.peers, "installed", lambda: True)
    monkeypatch.setattr(cpu.peers, "torch_call", lambda *_: lambda: np.zeros((7, 5)))
    monkeypatch.setattr(cpu.onnx_peer, "installed", lambda: False)
    monkeypatch.setattr(cpu.Roof, "measure", lambda *_: runner.Roof(1e11, 1e10))
    (result,) = cpu.measure("gemm-7", Options(seconds=0.01, schedule="unscheduled"))
    assert result["note"] == "the result of torch is wrong: left out"
    assert list(result["contenders"]) == ["tir", "numpy"]
    assert result["errors"]["torch"] > result["tolerance"]
    assert result["ratio"] is None
    assert "1.00 x torch" in rendered(cpu.table([{"row": "gemm-7", **result}, {"row": "mlp", "threads": 1, "error": "seven"}]))


def rendered(table: object) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def _first_half(func: tir.PrimFunc) -> tir.PrimFunc:
    """The function with fewer rows computed."""
    schedule = tir.Schedule(func)
    loop = schedule.get_loops("C")[0]
    (found,) = [s for s in tir.traverse.walk(func.body) if isinstance(s, tir.For) and s.name == loop]
    from dataclasses import replace

    return func.with_(body=tir.traverse.replace_stmt(func.body, found, replace(found, extent=tir.Const(3))))


def test_arrays_start_at_one_place_in_a_page() -> None:
    for n in (1, 7, 109):
        array = programs.aligned(np.arange(n, dtype="float32"))
        assert array.ctypes.data % 4096 == 64
        np.testing.assert_array_equal(array, np.arange(n))


def test_the_best_schedule_in_a_folder_is_found(tmp_path: Path) -> None:
    instance = programs.instance("gmm", (7, 13, 5))
    schedule = tir.Schedule(instance.func)
    schedule.vectorize(schedule.get_loops("C")[1])
    base = {"format": 1, "workload": "gmm", "shape": [7, 13, 5], "dtype": "float32", "target": "llvm", "threads": 2}

    def write(name: str, seconds: float, trace: object, **changed: object) -> None:
        (tmp_path / name).write_text(json.dumps({**base, "seconds": {"best": seconds}, "trace": trace, **changed}))

    write("a.json", 2.0, None)
    write("b.json", 1.0, schedule.trace.as_json())
    write("c.json", 0.5, None, threads=1)
    write("d.json", 0.5, None, shape=[7, 13, 6])
    (tmp_path / "e.json").write_text("[]")
    options = Options(threads=2, schedule="tuned", best=str(tmp_path))
    target = tir.Target("llvm", num_cores=2)
    assert cpu.scheduled("gemm-7", instance, target, options).script() == schedule.func.script()
    other = programs.instance("gmm", (7, 13, 8))
    with pytest.raises(FileNotFoundError) as error:
        cpu.scheduled("gemm-7", other, target, options)
    assert str(error.value) == (
        f"{tmp_path} holds no schedule of gmm 7,13,8 on 2 threads; make one with "
        f"python -m benchmarks cpu --rows gemm-7 --threads 2 --schedule tuned --save {tmp_path}"
    )


# --- the other benchmarks ------------------------------------------------------------------------------------------------

KEYS = {
    ("compile_time", "gmm"): {"candidates", "illegal", "kernels", "total_ms", "cpu_ms", *(f"{p}_ms" for p in PHASES)},
    ("parallel_region", "dynamic"): {"region_us", "quartiles_us"},
    ("pipelines", "gmm"): {"pipeline", "llvm_ms", "run_ms", "run_ratio"},
    ("search_throughput", "gmm"): {
        "sketches",
        "sampled_per_s",
        "described_per_s",
        "judged_per_s",
        "scored_per_s",
        "proposed_per_s",
        "instantiated_per_s",
        "built_per_s",
        "tuned_scored_per_s",
        "trials_per_s",
        "measuring",
        "measuring_rounds",
    },
    ("interpreter", "softmax"): {"way", "first_s", "median_ms", "mflops"},
    ("import_time", "import"): {"statement", "median_ms", "quartiles_ms", "runs"},
    ("vector_math", "sqrt"): {"dtype", "lanes", "tir_ns", "numpy_ns"},
    ("breadth", "heads"): {"dtype", "off", "tir_ms", "numpy_ms", "of_numpy", "of_written", "slower"},
    ("calls", "softmax-8x128"): {"tir_us", "numpy_us", "best", "of_best"},
    ("levels", "softmax"): {"program", "shape", "levels", "peaks"},
    ("interleaved", "softmax"): {"program", "shape", "timings", "losses"},
    ("interop", "add-5x7"): {"place_us", "made_us", "out_us", "name_us", "jit_us", "numpy_us"},
    ("symbolic", "scores-64"): {"size", "named", "any_us", "constant_us", "loss"},
    ("primitives", "fused"): {"primitive", "statements", "cpu_ms", "quartiles_ms", "calls"},
}


@pytest.mark.parametrize(("name", "row"), KEYS)
def test_results_of_each_benchmark(name: str, row: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = import_module(f"benchmarks.{name}")
    for constant, value in (("RUNS", 3), ("POPULATION", 64), ("SKETCHES", 2), ("NAMED", (5,)), ("OTHERS", (3,))):
        monkeypatch.setattr(module, constant, value, raising=False)
    monkeypatch.setattr(module, "STATEMENTS", ("import tir", "import tir; tir.te"), raising=False)
    monkeypatch.setattr("benchmarks.pipelines.PROGRAMS", {"gmm": (7, 13, 9)})
    monkeypatch.setitem(cpu.TABLE, "softmax", cpu.TABLE["softmax"]._replace(shape=(7, 109)))
    monkeypatch.setitem(import_module("benchmarks.interleaved").SHAPES, "softmax", ("softmax", (7, 109)))
    assert row in module.ROWS and set(module.DEFAULT) <= set(module.ROWS)
    save = str(tmp_path) if name in ("symbolic", "interop") else None
    results = list(module.measure(row, Options(seconds=0.01, save=save)))
    assert results
    if save:
        assert f"{results[0]['commit']}" in (page := (tmp_path / f"{name}.md").read_text()) and "| ---: |" in page
    for result in results:
        assert KEYS[name, row] | {"machine", "commit", "versions", "pinned", "started"} <= set(result)
        assert all(v >= 0 for key, v in result.items() if isinstance(v, (int, float)) and key != "loss")
        json.dumps(result, allow_nan=False)
    table = getattr(module, "table", lambda results: standard_table(results, name, 200))
    shown = rendered(table([{"row": row, "threads": 1, **r} for r in results]))
    assert name in shown and "threads" in shown and "versions" not in shown


@pytest.mark.parametrize(("dtype", "total"), [("int8", "int32"), ("bfloat16", "float32")])
def test_breadth_of_narrow_numbers(dtype: str, total: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits of bfloat16 are numbers to whoever compares results, which have a type of their own."""
    breadth = import_module("benchmarks.breadth")
    program = breadth._narrow_product(40, 50, 30, dtype, total, dtype if dtype == "bfloat16" else total, "mm")
    monkeypatch.setitem(breadth.PROGRAMS, "small", program)
    monkeypatch.setattr(breadth, "slower", lambda *_: {})
    monkeypatch.setattr("benchmarks.peers.installed", lambda: False)
    (result,) = breadth.measure("small", Options(seconds=0.01))
    assert "error" not in result and result["tir_ms"] > 0
    monkeypatch.setitem(breadth.PROGRAMS, "small", program._replace(peer=lambda a, b: (a @ b) * 1.1))
    (result,) = breadth.measure("small", Options(seconds=0.01))
    assert "wrong result" in result["error"]


def test_the_page_of_breadth_names_the_worst_of_each_column() -> None:
    """The least ratios, and how many times as long the slowest wording takes."""
    breadth = import_module("benchmarks.breadth")
    first = {"row": "a", "dtype": "int8", "tir_ms": 2.0, "of_torch": 0.5, "of_written": 3.0, "slower": {"flat": 1.25}}
    second = {"row": "b", "dtype": "float32", "tir_ms": 1.0, "of_numpy": 1.5, "of_torch": 2.0, "of_written": 0.98, "slower": {}}
    (table,) = breadth.section([first, second])
    assert table.splitlines()[-2:] == [
        "| geometric mean |  |  |  | 1.50 | 1.00 |  |  |",
        "| worst |  |  |  | 1.50 | 0.50 | 0.98 | 1.25 |",
    ]


def test_breadth_draws_products_within_their_classes() -> None:
    """The same with the same seed, others with another, and every class and type computes what its peer does."""
    breadth = import_module("benchmarks.breadth")
    for name, bounds in breadth.CLASSES.items():
        drawn = [breadth.drawn_shape(name, number, seed) for number in range(3) for seed in range(20)]
        assert drawn == [breadth.drawn_shape(name, number, seed) for number in range(3) for seed in range(20)]
        assert len(set(drawn)) > 40
        for sizes in drawn:
            for size, limits in zip(sizes, bounds, strict=True):
                assert size == sizes[1] if limits == "M" else limits[0] <= size <= limits[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_breadth_of_drawn_products(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breadth = import_module("benchmarks.breadth")
    monkeypatch.setattr(breadth, "drawn_shape", lambda name, *_: (3 if name == "batched" else 1, 7, 13, 20))
    monkeypatch.setattr(breadth, "slower", lambda *_: {})
    for row, (name, kind, number) in breadth.DRAWN.items():
        if kind == dtype and name in ("linear", "batched", "any") and number == 0:
            (result,) = breadth.measure(row, Options(seconds=0.01))
            assert "error" not in result and result["tir_ms"] > 0, row
            assert result["shapes"] == (
                ((3, 7, 20), (3, 20, 13)) if name == "batched" else ((7, 20), (13, 20) if name == "linear" else (20, 13))
            )


def test_tables_are_turned_where_only_that_fits() -> None:
    results = [{"row": "gmm", "scored_per_s": 1234.0, "built_per_s": 6}, {"row": "mlp", "scored_per_s": 67.0, "built_per_s": 8}]
    for width, turned in ((200, False), (36, False), (35, True), (20, False)):
        lines = rendered(standard_table(results, "search", width)).splitlines()
        assert any(["gmm", "mlp"] == line.split()[3::2] for line in lines) == turned, lines
        assert any({"1234", "67"} <= set(line.split()) for line in lines) == turned


def test_every_benchmark_is_tried() -> None:
    own = {
        "cpu",
        "published",
        "ablation",
        "policies",
        "quality",
        "model",
        "networks",
        "torch",
    }  # the last four in files of their own
    own |= {"perturb", "generate"}  # in files of their own, too
    own |= {"distributed"}  # which takes a minute: tests/search/measure/test_distributed.py has what it is made of
    assert {name for name, _ in KEYS} | own == set(BENCHMARKS)


def test_ablation_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = import_module("benchmarks.ablation")
    kept = {name: ablation.CONFIGURATIONS[name] for name in ("limited space", "random search")}
    monkeypatch.setattr(ablation, "CONFIGURATIONS", kept)
    monkeypatch.setattr(ablation, "RACE", 0.01)
    monkeypatch.setattr(ablation.Roof, "measure", lambda *_: runner.Roof(1e9, 1e9))
    options = Options(trials=2, seeds=1, save=str(tmp_path))
    for trials in (2, 3):
        results = list(ablation.measure("gemm-61", replace(options, trials=trials)))
        assert [(r["configuration"], r["trials"], len(r["speeds"][0])) for r in results] == [
            (name, trials, trials) for name in kept
        ]
        for name in kept:
            with tir.Records(tmp_path / "records" / f"gemm-61-1-{name.replace(' ', '-')}-0.db") as records:
                (key,) = {s.workload for s in records.summaries()}
                found = [r.measurement.candidate.sketch for r in records.of(key)]
                assert len([s for s in found if s != "unscheduled"]) == trials  # which is recorded where it is the fastest
    assert max(r["best"] for r in results) == 1.0
    assert "random search" in rendered(ablation.table([{"row": "gemm-61", **r} for r in results]))
    picture = tmp_path / "ablation-1.svg"
    assert picture.read_text().startswith("<?xml") and picture.stat().st_size < 100_000
    page = (tmp_path / "ablation.md").read_text()
    assert page.count("\n## 1 thread\n") == page.count("\n### gemm-61\n") == page.count("| random search | 1 | 3 |") == 1
    assert "Default schedule: " in page and "% of the peak of arithmetic" in page and "Means over the rows" not in page
    json.dumps(results, allow_nan=False)


ABLATIONS = import_module("benchmarks.ablation").CONFIGURATIONS


@pytest.mark.parametrize("name", ABLATIONS)
def test_each_ablation_is_a_search(name: str) -> None:
    """It proposes, learns, and proposes something else; what it leaves out is left out."""
    task = Task.of(workloads.make("gmm", (13, 7, 40)).func, "llvm -num-cores 1")
    parts = dict(ABLATIONS[name])
    if name != "random search":
        parts["settings"] = replace(parts.get("settings", Settings()), population=32)
    search = make_policy(task, **parts)
    rng = np.random.default_rng(0)
    first = search.propose(16, rng)
    search.update([Measurement(c, "ok", (1.0 + n,)) for n, c in enumerate(first)])
    second = search.propose(4, rng)
    assert len(first) == 16 and len(second) == 4 and not {(c.sketch, c.row) for c in first} & {(c.sketch, c.row) for c in second}


def test_ablation_makes_as_many_seeds_as_there_is_time_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = import_module("benchmarks.ablation")
    clock = [0.0]

    def run(*_: object) -> object:
        clock[0] += 4.0
        return ablation.Ran([1.0], None, 4.0)

    monkeypatch.setattr(ablation, "run", run)
    monkeypatch.setattr(ablation.time, "monotonic", lambda: clock[0])
    configurations = len(ablation.CONFIGURATIONS)

    def seeds(minutes: float | None) -> int:
        made = ablation._runs(None, "row", tmp_path, Options(seeds=5, minutes=minutes), ablation.CONFIGURATIONS)
        assert len(made) == configurations and len({len(runs) for runs in made.values()}) == 1
        return len(made["full"])

    assert seeds(None) == 5
    assert seeds(0.01) == 1  # at least one
    each = (4.0 + 2 * ablation.RACE) * configurations / 60
    assert [seeds(n * each + 0.01) for n in (1, 2, 3, 4, 9)] == [1, 2, 3, 4, 5]


def test_results_are_kept_by_row_and_threads(tmp_path: Path) -> None:
    pages.keep(None, "cpu", "a", {"threads": 1})
    assert pages.known(None, "cpu") == {} == pages.known(str(tmp_path), "cpu")
    written = []
    for row, threads, ms in (("b", 1, 3.0), ("a", 2, 2.0), ("a", 1, 1.0), ("b", 1, 4.0)):
        pages.keep(str(tmp_path / "new"), "cpu", row, {"threads": threads, "ms": ms}, lambda kept, folder: written.append(folder))
    kept = pages.known(str(tmp_path / "new"), "cpu")
    found = [(threads, heading, [r["ms"] for r in results]) for threads, heading, results in pages.by_threads(kept, "ab")]
    assert found == [(1, "1 thread", [1.0, 4.0]), (2, "2 threads", [2.0])] and written == 4 * [tmp_path / "new"]


def test_geometric_mean() -> None:
    assert pages.geometric_mean([1.0, 4.0]) == pytest.approx(2.0) and isnan(pages.geometric_mean([]))


def test_a_page_has_all_rows(tmp_path: Path) -> None:
    ablation = import_module("benchmarks.ablation")
    about = {"fastest_s": 1e-3, "gflops": 2.0, "shares": {"arithmetic": 0.5, "copying": 0.25}, "beside": {"numpy": 0.8}}
    circumstances = {"machine": {"processor": "P", "mcpu": "m"}, "commit": "c"}
    for row, best in (("softmax", 0.5), ("gemm-512", 1.0)):
        results = [
            {"configuration": name, "run_s": 3.0, **ablation.summary([[2.0, 1.0]], [1.0 / best], 1.0), **about, **circumstances}
            for name in ablation.CONFIGURATIONS
        ]
        pages.keep(str(tmp_path), "ablation", row, {"threads": 2, "results": results}, ablation.write)
    page = (tmp_path / "ablation.md").read_text()
    assert page.index("### gemm-512") < page.index("### softmax") and "| full | 0.75 | 0.56 |" in page
    assert "The fastest: 1 ms, 2.0 GFLOP/s (50% of the peak of arithmetic, 25% of the peak of copying)." in page
    assert "Numpy: 0.80 of its speed." in page and page.count("On P (m), commit c.") == 1
    before = (tmp_path / "ablation-2.svg").read_bytes()
    ablation.write(pages.known(str(tmp_path), "ablation"), tmp_path)
    assert (tmp_path / "ablation-2.svg").read_bytes() == before


def test_ablation_figures() -> None:
    """Curves are in seconds when they were measured, their ends 1.25 and 2 s when timed in turns, the fastest of the row 1 s."""
    ablation = import_module("benchmarks.ablation")
    inf = float("inf")
    found = ablation.summary([[inf, 4.0, 2.0, 1.0], [2.0, 2.0, 2.0, 2.0], [inf] * 4], [1.25, 2.0, inf], 1.0)
    assert found["speeds"] == [[0.0, 0.2, 0.4, 0.8], [0.5, 0.5, 0.5, 0.5], [0.0] * 4]
    assert found["best"] == 0.5 and found["quartiles"] == [0.25, 0.65] and found["to_90"] is None
    assert found["area"] == pytest.approx((0.0 + 0.2 + 0.4 + 0.5) / 4)
    assert ablation.summary([[2.0, 1.0]], [1.0], 1.0)["to_90"] == 2
    assert ablation.summary([[inf, inf]], [inf], inf)["best"] == 0.0  # nothing in the whole row


def test_every_primitive_is_timed() -> None:
    primitives = import_module("benchmarks.primitives")
    timed = {name for row in primitives.ROWS for name in primitives.program(row)[1]}
    assert timed == set(REGISTRY) - {"assume", "drop_empty"}  # no sizes, and no loops without iterations


def test_published_programs_may_be_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published = import_module("benchmarks.published")
    monkeypatch.setattr(published, "FOLDER", tmp_path / "published")
    with pytest.raises(FileNotFoundError, match=r"00_lowered_naive\.py is not in published beside the checkout"):
        published.source("00_lowered_naive")


def test_a_benchmark_without_its_package_is_named(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "benchmarks.distributed", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert "distributed: not available without the package distributed\n" in out and "\ncpu: " in out
    with pytest.raises(SystemExit) as end:
        main(["distributed"])
    assert end.value.code == 2 and "pip install distributed" in capsys.readouterr().err
