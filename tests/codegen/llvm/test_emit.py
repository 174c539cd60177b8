"""The emitter: names, temporaries, parallel loops and programs written by hand."""

import re
import threading

import numpy as np
import pytest

import codegen
import tir
from codegen.llvm.emit import CodegenError, emit, symbol
from schedule import Schedule
from tests.arrays import integers
from tests.codegen.harness import ONE, TWO, same
from tests.programs import matmul
from tir import te
from tir.ir import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    seq,
)
from tir.script import parse


def vec(name: str, n: int | Expr = 13, dtype: str = "float32") -> Buffer:
    return Buffer(name, (n if isinstance(n, Expr) else Const(n),), dtype)


A, C = vec("A"), vec("C")
i, j, k, n = Var("i"), Var("j"), Var("k"), Var("n")
ZERO = Const(0)


def lets_and_temporaries(kind: Kind) -> PrimFunc:
    """Each copy of the loop binds a variable and uses a temporary of its own."""
    t, x, y = vec("T", 3), Var("x"), Var("y", "float32")
    body = seq(
        For(k, Const(3), Store(t, (k,), Load(A, (i,)) + Load(A, (k,)))),
        Let(
            x,
            (i * 5 + Load(vec("X", dtype="int32"), (i,))) % Const(13),
            Let(y, Load(t, (ZERO,)) * Load(t, (i % 3,)), Store(C, (i,), Var("y", "float32") + Load(A, (x,)))),
        ),
    )
    return PrimFunc("main", (A, vec("X", dtype="int32"), C), For(i, Const(13), Allocate(t, body), kind))


# --- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [
    ("entry", "t", "loop", "n"),
    ("context", "first", "last", "thread"),
    ("A.1", "i.2", "t.3", "%x"),
    ("größe", "Ñ", "变量", "λ"),
    ("_", "A_1", "A_2", "x" * 300),
    ("p1", "v1", "count", "threads"),
    ("define", "ret", "ptr", "float"),
    tuple("x" * 2000 + letter for letter in "abcd"),  # LLVM looks at 1024 letters of each
])  # fmt: skip
def test_any_name_will_do(names):
    """Identifiers that are none of LLVM's, or that the generated code uses itself."""

    def doubled(a: str, c: str, loop: str, size: str) -> PrimFunc:
        m, var = Var(size), Var(loop)
        source, result = vec(a, m), vec(c, m)
        return PrimFunc(
            "main", (source, m, result), For(var, m, Store(result, (var,), Load(source, (var,)) * 2.0), Kind.PARALLEL)
        )

    same(doubled(*names), integers(doubled(*names), 0, {names[3]: 13}), reference=doubled("A", "C", "i", "n"))


@pytest.mark.parametrize("name", ["main", "free", "fmodf", "GOMP_parallel", "aligned_alloc", "größe", "llvm", "printf"])
def test_a_function_may_be_called_like_one_of_the_c_library(name):
    big = vec("T", 10_000)
    body = Allocate(
        big,
        seq(
            For(j, Const(10_000), Store(big, (j,), Const(1.0, "float32"))),
            For(i, Const(13), Store(C, (i,), Load(A, (i,)) % Load(big, (i,)))),
        ),
    )
    func = PrimFunc(name, (A, C), body)
    same(func)
    assert symbol(func).isascii()


def test_equal_names_of_loops_in_turn():
    """Versions of a loop nest for full and partial tiles bind the same names twice."""
    s = Schedule(matmul(7, 5, 13))
    s.split("j", [None, 4])
    s.reorder("i", "j_0", "k", "j_1")
    s.vectorize("j_1")
    s.parallel("i")
    s.parallel("j_0")
    same(s.func)


def test_a_parallel_loop_in_two_versions_of_its_surroundings():
    inner = For(k, Const(7), Store(C, (i * 4 + j,), Load(A, (i * 4 + j,)) + 1.0), Kind.PARALLEL)
    body = For(i, Const(4), For(j, Const(4), If(Binary("<", i * 4 + j, Const(13)), inner), Kind.UNROLLED))
    same(PrimFunc("main", (A, C), body))


def test_one_access_in_vectors_of_many_lengths():
    """What is known of an access in one vector loop is forgotten in the next, and does not come back with its place in memory."""
    m = Buffer("M", (Const(40), Const(13)))
    shared = [Load(vec(f"A{x}"), (Const(x),)) for x in range(4)]
    body = []
    for x in range(40):
        lane = Var(f"v{x}")
        value = shared[x % 4] + Load(vec(f"A{(x + 1) % 4}"), (lane,)) * shared[(x + 2) % 4]
        body.append(For(lane, Const(4 + 4 * (x % 3)), Store(m, (Const(x), lane), value), Kind.VECTORIZED))
    func = PrimFunc("main", (*(vec(f"A{x}") for x in range(4)), m), seq(*body))
    for _ in range(5):
        same(func, targets=[ONE])


@pytest.mark.parametrize("kinds", [(Kind.UNROLLED, Kind.SERIAL), (Kind.SERIAL, Kind.UNROLLED)])
def test_one_access_in_loops_of_one_name_that_run_otherwise(kinds):
    """As a main part and its tail have them: what is known of an access in one holds in it alone."""
    copy = Store(C, (k,), Load(C, (k,)) + Load(A, (k,)))
    turns = [For(k, Const(extent), copy, kind) for extent, kind in zip((5, 13), kinds, strict=True)]
    same(PrimFunc("main", (A, C), For(i, Const(2), seq(*turns))))


def test_the_same_program_gives_the_same_text():
    """Nothing hangs on where objects lie in memory: what is remembered is not what was there before."""
    s = Schedule(matmul(7, 5, 13))
    s.reorder("k", "i", "j")
    s.vectorize("j")
    target = codegen.Target(ONE)
    texts = set()
    garbage = []
    for round in range(20):
        texts.add(emit(codegen.lower(s.func, target), target))
        garbage = [object() for _ in range(1000 * round)]
    assert len(texts) == 1
    assert len(garbage) > 0


# --- programs by hand ----------------------------------------------------------------------------------------------------


def test_a_lowered_program():
    """Flat buffers, an init, a let, two products: as they are published."""
    m, kk, l, nn = 5, 7, 6, 11
    a, b, e = vec("A", m * kk), vec("B", kk * l), vec("E", l * nn)
    c, f = vec("C", m * l), vec("F", m * nn)
    x, y, z, cse = Var("x"), Var("y"), Var("z"), Var("cse_var_1")
    place = x * l + y
    first = For(
        x,
        Const(m),
        For(
            y,
            Const(l),
            seq(
                Store(c, (place,), Const(0.0, "float32")),
                For(
                    z,
                    Const(kk),
                    Let(cse, place, Store(c, (cse,), Load(c, (cse,)) + Load(a, (x * kk + z,)) * Load(b, (z * l + y,)))),
                ),
            ),
        ),
    )
    out = x * nn + y
    second = For(
        x,
        Const(m),
        For(
            y,
            Const(nn),
            seq(
                Store(f, (out,), Const(0.0, "float32")),
                For(z, Const(l), Store(f, (out,), Load(f, (out,)) + Load(c, (x * l + z,)) * Load(e, (z * nn + y,)))),
            ),
        ),
    )
    same(PrimFunc("main", (a, b, e, f), Allocate(c, seq(first, second))))


@pytest.mark.parametrize("kind", [Kind.SERIAL, Kind.UNROLLED])
def test_lets_and_temporaries_in_loops(kind):
    same(lets_and_temporaries(kind))


def test_a_let_in_the_lanes_of_a_vector():
    x = Var("x")
    body = Let(x, (i * 5 + 3) % 13, Store(C, (x,), Load(A, (x,)) + Load(A, (i,))))
    same(PrimFunc("main", (A, C), For(i, Const(13), body, Kind.VECTORIZED)))
    y = Var("y", "float32")
    body = Let(y, Load(A, (i,)) * 2.0, If(Binary(">", y, Const(0.0, "float32")), Store(C, (i,), y)))
    same(PrimFunc("main", (A, C), For(i, Const(13), body, Kind.VECTORIZED)))


@pytest.mark.parametrize("kind", [Kind.SERIAL, Kind.VECTORIZED, Kind.UNROLLED, Kind.PARALLEL])
def test_if_else(kind):
    positive = Binary(">", Load(A, (i,)), Const(0.0, "float32"))
    both = If(
        positive,
        Store(C, (i,), Load(A, (i,))),
        If(Binary("<", i, Const(5)), Store(C, (i,), Const(7.0, "float32")), Store(C, (i,), Const(9.0, "float32"))),
    )
    same(PrimFunc("main", (A, C), For(i, Const(13), both, kind)))


@pytest.mark.parametrize("extent", [0, 1, 13])
@pytest.mark.parametrize("kind", list(Kind)[:4])
def test_extents_of_nothing_and_of_one(extent, kind):
    same(PrimFunc("main", (A, C), For(i, Const(extent), Store(C, (i,), Load(A, (i,)) + 1.0), kind)))


@pytest.mark.parametrize("extent", [-3, 0, 1, 2, 13])
@pytest.mark.parametrize("kind", [Kind.SERIAL, Kind.UNROLLED, Kind.PARALLEL])
def test_symbolic_extents(extent, kind):
    """A negative number of iterations is none, in parallel too."""
    func = PrimFunc("main", (A, n, C), For(i, n, Store(C, (i,), Load(A, (i,)) + 1.0), kind))
    same(func, integers(func, 0, {"n": extent}))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 13), (8, 16), (5, 33), (0, 4)])
def test_symbolic_shapes(rows, columns):
    m, n = te.var("m"), te.var("n")
    a = te.placeholder((m, n), name="A")
    kk = te.reduce_axis((0, n), name="k")
    total = te.compute((m,), lambda i: te.sum(a[i, kk], axis=kk), name="S")
    out = te.compute((m, n), lambda i, j: a[i, j] * 2.0 - total[i] + (m - i).astype("float32"), name="C")
    func = te.create_prim_func([a, out, m, n])
    s = Schedule(func)
    s.split("j", [None, 8])
    s.vectorize("j_1")
    s.parallel("i_1")
    same(s.func, integers(func, 0, {"m": rows, "n": columns}))


def test_a_temporary_of_symbolic_size():
    t = vec("T", n // Const(2) + 1)
    body = seq(
        For(i, n // Const(2), Store(t, (i,), Load(A, (i * 2,)))),
        For(j, n // Const(2), Store(C, (j,), Load(t, (n // Const(2) - 1 - j,)))),
    )
    func = PrimFunc("main", (A, n, C), Allocate(t, body))
    for size in (0, 2, 13):
        same(func, integers(func, 0, {"n": size}))


def test_a_size_as_a_value():
    func = PrimFunc("main", (n, C), For(i, Const(13), Store(C, (i,), Binary("max", n - i, ZERO).astype("float32"))))
    same(func, integers(func, 0, {"n": 2**20}))


def test_a_place_that_loads_decide_and_stores_change():
    x = vec("X", dtype="int32")
    here = Load(x, (ZERO,))
    body = For(
        i,
        Const(4),
        seq(Store(C, (here,), Load(C, (here,)) + 1.0), Store(x, (ZERO,), (here + 5) % 13), Store(C, (here,), Load(A, (here,)))),
        Kind.UNROLLED,
    )
    same(PrimFunc("main", (A, x, C), seq(Store(x, (ZERO,), Const(3)), body)))


def test_vectors_of_two_lengths_at_one_place():
    """The pointers of 8 lanes are not those of 16."""
    m, out = Buffer("M", (Const(16), Const(9))), vec("Y", 16)
    wide = For(i, Const(16), Store(m, (i, ZERO), Const(2.0, "float32")), Kind.VECTORIZED)
    narrow = For(j, Const(8), Store(out, (j,), Load(m, (j, ZERO)) + 1.0), Kind.VECTORIZED)
    same(PrimFunc("main", (m, out), seq(wide, narrow)), targets=["llvm -num-cores 1 -vector-bits 512"])


def test_copies_of_a_loop_in_order():
    """What keeps LLVM from loading for a copy before the end of the one before it is no instruction, and changes no number."""
    s = Schedule(matmul(3, 4, 16))
    i, j, k = s.get_loops("C")
    s.reorder(i, k, j)
    s.vectorize(j)
    s.unroll(k)
    plain = s.func
    s.annotate(k, "in_order", True)
    between = 'call void asm sideeffect "", "~{memory}"()'
    assert [codegen.dump(f, ONE, after="llvm_ir").count(between) for f in (plain, s.func)] == [0, 3]
    same(s.func)


def test_evaluate_has_no_effect():
    same(PrimFunc("main", (A, C), seq(Evaluate(Load(A, (ZERO,))), Store(C, (ZERO,), Load(A, (ZERO,))))))


def test_a_scalar_store_in_lanes_under_a_mask():
    """Only lane 4 writes: the one place has one writer."""
    body = For(i, Const(8), If(Binary("==", i, Const(4)), Store(C, (ZERO,), Load(A, (i,)))), Kind.VECTORIZED)
    same(PrimFunc("main", (A, C), body))


def test_a_division_that_only_some_lanes_can_do():
    x, out = vec("X", dtype="int32"), vec("Y", dtype="int32")
    safe = Select(Binary("!=", Load(x, (i,)), ZERO), Const(12) // Load(x, (i,)), Const(-1), lazy=True)
    func = PrimFunc("main", (x, out), For(i, Const(13), Store(out, (i,), safe), Kind.VECTORIZED))
    same(func)
    guarded = If(Binary("!=", Load(x, (i,)), ZERO), Store(out, (i,), Const(12) % Load(x, (i,))))
    same(PrimFunc("main", (x, out), For(i, Const(13), guarded, Kind.VECTORIZED)))


def test_a_lazy_choice_of_divisions_by_constants_under_a_mask():
    """The choice is made of indices alone, so it is computed outside the mask."""
    chosen = Select(Binary("<", i, Const(6)), i // 2, (i * 3) % 7, lazy=True)
    guarded = If(Binary(">", Load(A, (i,)), Const(0.0, "float32")), Store(C, (i,), (chosen + k).astype("float32")))
    same(PrimFunc("main", (A, C), For(k, Const(3), For(i, Const(13), guarded, Kind.VECTORIZED))))


def test_casts_of_indices():
    """An index brought to 32 bits wraps there, and goes on exactly."""
    out = vec("Y", dtype="int64")
    wide = Var("n", "int64")
    value = (wide * 3).astype("int32").astype("int64") + i.astype("int64")
    func = PrimFunc("main", (wide, out), For(i, Const(13), Store(out, (i,), value)))
    for size in (5, 2**31 - 1, 2**40 + 7):
        same(func, integers(func, 0, {"n": size}))


# --- temporaries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "bits"), [(0, 32), (2**31 - 50, 64)])
def test_an_index_beside_a_loaded_number(first, bits):
    """They are compared in 32 bits, unless the index may be larger than that."""
    I = vec("I", 64, "int32")
    index = i * 16 + j + Const(first)
    store = Store(vec("Z", 64, "int32"), (i * 16 + j,), Select(Binary("<", Load(I, (i * 16 + j,)), index), Const(1), Const(0)))
    func = PrimFunc("main", (I, store.buffer), For(i, Const(4), For(j, Const(16), store, Kind.VECTORIZED)))
    text = codegen.build(func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    assert f"icmp slt <16 x i{bits}>" in text and f"icmp slt <16 x i{96 - bits}>" not in text
    numbers = np.arange(first, first + 64, dtype="int64") + np.arange(64) % 3 - 1
    same(func, [numbers.clip(-(2**31), 2**31 - 1).astype("int32"), np.zeros(64, "int32")])


def test_large_temporaries_are_freed():
    """16 MB a call and thread: a thousand calls would need 32 GB if they were kept."""
    resource = pytest.importorskip("resource")
    size = 4_000_000
    t = vec("T", size)
    touch = seq(*(Store(t, (Const(x),), Load(A, (i,))) for x in range(0, size, size // 8)))
    body = For(i, Const(13), Allocate(t, seq(touch, Store(C, (i,), Load(t, (Const(size // 8),))))), Kind.PARALLEL)
    func = PrimFunc("main", (A, C), body)
    same(func)
    kernel = codegen.build(func, TWO)
    args = integers(func, 0)
    kernel(*args)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1000):
        kernel(*args)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KB; half of what is touched


def test_many_temporaries_do_not_overflow_a_threads_stack():
    """400 of 30 KB each would be 12 MB: more than a thread's stack has."""
    last = Const(7499)
    uses = [
        Allocate(
            t,
            seq(
                Store(t, (ZERO,), Load(A, (i,))),
                Store(t, (last,), Load(t, (ZERO,)) + 1.0),
                Store(C, (i,), Load(C, (i,)) + Load(t, (last,))),
            ),
        )
        for t in (vec(f"T{x}", 7500) for x in range(400))
    ]
    func = PrimFunc("main", (A, C), For(i, Const(13), seq(*uses), Kind.PARALLEL))
    same(func)
    on_stack = re.findall(r"alloca \[(\d+) x i8\]", codegen.build(func, TWO).llvm_ir())
    assert 30_000 <= sum(map(int, on_stack)) <= 256 * 1024


def test_temporaries_of_every_dtype():
    for dtype in ("float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool"):
        a, c, t = vec("A", dtype=dtype), vec("C", dtype=dtype), vec("T", dtype=dtype)
        body = Allocate(
            t,
            seq(
                For(i, Const(13), Store(t, (i,), Load(a, (i,)))),
                For(j, Const(13), Store(c, (j,), Load(t, (12 - j,))), Kind.VECTORIZED),
            ),
        )
        same(PrimFunc("main", (a, c), body))


# --- threads -------------------------------------------------------------------------------------------------------------


def test_nested_parallel_loops():
    s = Schedule(matmul(7, 5, 13))
    s.parallel("i")
    s.parallel("j")
    same(s.func)


def test_a_parallel_loop_inside_a_serial_and_an_unrolled_one():
    m = Buffer("M", (Const(3), Const(4), Const(13)))
    body = For(k, Const(13), Store(m, (i, j, k), Load(A, (k,)) * i.astype("float32") + j.astype("float32")), Kind.PARALLEL)
    same(PrimFunc("main", (A, m), For(i, Const(3), For(j, Const(4), body, Kind.UNROLLED))))


def test_a_parallel_loop_sees_lets_of_every_dtype():
    lets = [Var(f"x{d}", d) for d in ("float64", "float16", "int8", "uint64", "bool", "int32")]
    value = Const(0.0, "float32")
    for v in lets:
        value = value + v.astype("float32")
    body: Stmt = For(i, Const(13), Store(C, (i,), value), Kind.PARALLEL)
    for v in lets:
        body = Let(v, Load(vec("A"), (Const(2),)).astype(v.dtype), body)
    func = PrimFunc("main", (A, C), body)
    args = integers(func, 0)
    args[0] = np.abs(args[0])
    same(func, args)


def test_calls_from_several_threads():
    """A kernel has no state: callers with arrays of their own do not meet."""
    func = matmul(33, 17, 65)
    s = Schedule(func)
    s.parallel("i")
    kernel = codegen.build(s.func, TWO)
    wrong: list[float] = []

    def call(seed: int) -> None:
        a, b, c = integers(func, seed)
        for _ in range(200):
            c[:] = 0
            kernel(a, b, c)
            if not np.array_equal(c, a @ b):
                wrong.append(float(np.abs(c - a @ b).max()))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# --- refusals ------------------------------------------------------------------------------------------------------------


def refused(body: Stmt, message: str) -> None:
    with pytest.raises(CodegenError) as caught:
        codegen.build(PrimFunc("main", (A, C), body), ONE)
    assert str(caught.value) == message


WITHOUT = "and the llvm target has no GPU threads; build for cuda, or schedule it without bind"


def test_loops_of_a_gpu():
    body = For(i, Const(13), Store(C, (i,), Load(A, (i,))), Kind.THREAD, thread="threadIdx.x")
    refused(body, "loop `i` is bound to threadIdx.x, " + WITHOUT)
    once = For(i, Const(1), Store(C, (i,), Load(A, (i,))), Kind.THREAD, thread="blockIdx.x")
    refused(once, "loop `i` is bound to blockIdx.x, " + WITHOUT)


def test_what_does_not_exist():
    refused(Store(C, (i,), Load(A, (ZERO,))), "variable `i` is used where it does not exist")
    refused(Store(C, (ZERO,), Load(vec("B"), (ZERO,))), "buffer `B` is used where it does not exist")


def test_a_block_that_was_not_lowered():
    func = PrimFunc("main", (A, C), Block("B", (), Store(C, (ZERO,), Load(A, (ZERO,)))))
    with pytest.raises(CodegenError) as caught:
        emit(func, codegen.Target(ONE))
    assert str(caught.value) == "block `B` reached code generation; lower_blocks must run first"


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_place_that_a_division_by_a_size_decides(size):
    """It is computed in the loop where it is needed, for the size may be 0."""
    m = te.var("m")
    a = te.placeholder((m, 13), name="A")
    r = te.reduce_axis((0, 5), name="r")
    out = te.compute((2, m, 13), lambda i, j, c: te.sum(a[j, c] * (r + i).astype("float32"), axis=r), name="C")
    s = Schedule(te.create_prim_func([a, out, m]))
    i, j, c, *_ = s.get_loops("C")
    s.fuse(i, j)
    s.vectorize(s.split(c, [None, 8])[1])
    same(s.func, integers(s.func, 0, {"m": size}))


def test_threads_of_a_last_tile_of_which_nothing_is_left():
    """In the version for the last iteration of `i`, less than no iteration of the parallel loop is left: it goes."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5, 7), "float32"), C: T.Buffer((7, 7), "float32")):
    for i in range(4):
        for j in T.parallel(2):
            if i * 2 + j < 5:
                for k in range(7):
                    C[i * 2 + j, k] = A[i * 2 + j, k]
        for j in T.unroll(2):
            if i * 2 + j < 7:
                for k in range(7):
                    C[i * 2 + j, k] = C[i * 2 + j, k] + T.float32(1)
""")
    assert codegen.lower(func, codegen.Target("llvm -num-cores 2")).script().count("T.parallel") == 1
    a, c = np.ones((5, 7), "float32"), np.zeros((7, 7), "float32")
    tir.build(func, target="llvm -num-cores 2")(a, c)
    np.testing.assert_array_equal(c, [[2.0] * 7] * 5 + [[1.0] * 7] * 2)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("zero", [0, 119])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_a_rounded_number_of_few_bits_has_no_test_for_nan_on_x86(dtype, zero, lanes):
    """Its low bits are those of 0, also for NaN."""
    x = te.placeholder((32,), name="x")

    def formula(p):
        clipped = te.minimum(te.maximum(x[p], te.const(-50.0)), te.const(50.0))
        return (te.nearbyint(clipped).astype("int32") + zero).astype(dtype)

    s = Schedule(te.create_prim_func([x, te.compute((32,), formula, name="y")]))
    s.vectorize(s.split(s.get_loops("y")[-1], [None, lanes])[-1])
    given, found = np.arange(32, dtype="float32") / 2 - 8, np.zeros(32, dtype)
    given[:6] = np.nan, np.inf, -np.inf, -np.nan, 1e30, 49.5
    kernel = tir.build(s.func, ONE)
    kernel(given, found)
    exact = np.clip(np.rint(np.nan_to_num(given.astype("float64"), nan=0)), -50, 50) + zero
    assert found.tolist() == exact.astype("int64").astype(dtype).tolist()


@pytest.mark.parametrize(("limit", "once"), [(127.0, True), (1e12, False)])
def test_a_clipped_number_is_rounded_and_converted_by_one_instruction(limit, once):
    """Of two the even one, and 0 for NaN; a number that int32 may not have is saturated."""
    x = te.placeholder((23,), name="x")
    clipped = te.compute((23,), lambda p: te.minimum(te.maximum(x[p], te.const(-limit)), te.const(limit)), name="clipped")
    y = te.compute((23,), lambda p: te.nearbyint(clipped[p]).astype("int32"), name="y")
    s = Schedule(te.create_prim_func([x, y]))
    s.compute_inline("clipped")
    s.vectorize(s.split(s.get_loops("y")[-1], [None, 8])[-1])
    kernel = tir.build(s.func, ONE)
    given, found = np.arange(23, dtype="float32") / 2 - 5, np.zeros(23, "int32")
    given[:5] = np.nan, np.inf, -np.inf, 126.5, -3e9
    kernel(given, found)
    exact = np.clip(np.rint(np.clip(np.nan_to_num(given.astype("float64"), nan=0), -limit, limit)), -(2**31), 2**31 - 1)
    assert found.tolist() == exact.tolist()
    assert ("llvm.lrint" in kernel.llvm_ir()) == once


@pytest.mark.parametrize("lanes", [1, 3, 4, 7])
@pytest.mark.parametrize("value", ["r[0, a] + A[8 + a]", "5"])
def test_fewer_lanes_than_a_register_has_leave_the_others(lanes, value):
    same(parse(f"""
@T.prim_func
def main(A: T.Buffer((19,), "int32"), B: T.Buffer((8,), "int32")):
    r = T.decl_buffer((1, 8), "int32", scope="register")
    for a in T.vectorized(8):
        r[0, a] = A[a]
    for a in T.vectorized({lanes}):
        r[0, a] = {value}
    for a in T.vectorized(8):
        B[a] = r[0, a]
"""))  # fmt: skip
