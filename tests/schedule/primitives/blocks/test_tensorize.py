import pytest

from schedule import Schedule, ScheduleError, TensorIntrin
from schedule.intrinsics.tensor_intrin import _REGISTERED
from tests.programs import elementwise, matmul
from tests.schedule.harness import Checked, same_numbers, well_formed
from tests.tir.script.parsing import parsed
from tir import te
from tir.ir import NOTHING, Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var
from tir.script import tir as T
from tir.traverse import loops


def dot(m: int = 7, n: int = 32, k: int = 5, parts: int = 4, left: str = "uint8", right: str = "int8", result: str = "int32"):
    """C = A · B, with B packed so that `parts` elements of a column stand side by side."""
    A = te.placeholder((m, parts * k), left, name="A")
    B = te.placeholder((k, n, parts), right, name="B")
    ko, ki = te.reduce_axis((0, k), name="ko"), te.reduce_axis((0, parts), name="ki")
    C = te.compute(
        (m, n), lambda i, j: te.sum(A[i, ko * parts + ki].astype(result) * B[ko, j, ki].astype(result), axis=[ko, ki]), name="C"
    )
    return te.create_prim_func([A, B, C])


def tiled(s: Schedule, lanes: int = 16) -> str:
    """The loops of the dot product with so many columns innermost; the loop to tensorize."""
    outer, inner = s.split("j", [None, lanes])
    s.reorder("i", outer, "ko", inner, "ki")
    return inner


def strided():
    """C += A B, every other element."""
    A, B, C = Buffer("A", (Const(1),)), Buffer("B", (Const(32),)), Buffer("C", (Const(32),))
    i, v = Var("i"), Var("v")
    body = Store(C, (v * 2,), C[v * 2] + A[0] * B[v * 2])
    return PrimFunc("main", (A, B, C), For(i, Const(16), Block("C", (Iter(v, Const(16), Axis.SPATIAL, i),), body)))


def aliased():
    """C[1, :] += A C[0, :]: a buffer in two places of the intrinsic."""
    A, C = Buffer("A", (Const(1),)), Buffer("C", (Const(2), Const(16)))
    i, v = Var("i"), Var("v")
    body = Store(C, (Const(1), v), C[1, v] + A[0] * C[0, v])
    return PrimFunc("main", (A, C), For(i, Const(16), Block("C", (Iter(v, Const(16), Axis.SPATIAL, i),), body)))


def test_bytes():
    s = Checked(dot())
    s.tensorize(tiled(s), "dot_16x4_vnni")
    s.decompose_reduction("C_o", "ko")
    s.becomes("""
        for i, j_0 in T.grid(7, 2):
            with T.block("C_o_init"):
                v_i_o, v_j_o = T.axis.remap("SS", [i, j_0])
                for j_1_init in range(16):
                    with T.block("C_init"):
                        ...
            for ko in range(5):
                with T.block("C_o_update"):
                    v_i_o = T.axis.spatial(7, i)
                    v_j_o = T.axis.spatial(2, j_0)
                    v_ko_o = T.axis.reduce(5, ko)
                    v_ki_o = T.axis.reduce(1, 0)
                    for i_1 in T.vectorized(16):
                        with T.block("vpdpbusd"):
                            ...
    """)


def test_bfloat16():
    s = Checked(dot(3, 16, 7, 2, "bfloat16", "bfloat16", "float32"))
    s.tensorize(tiled(s), "dot_16x2_bf16")
    s.decompose_reduction("C_o", "ko")
    s.becomes("""
        for i, j_0 in T.grid(3, 1):
            with T.block("C_o_init"):
                v_i_o, v_j_o = T.axis.remap("SS", [i, j_0])
                for j_1_init in range(16):
                    with T.block("C_init"):
                        ...
            for ko in range(7):
                with T.block("C_o_update"):
                    v_i_o = T.axis.spatial(3, i)
                    v_j_o = T.axis.spatial(1, j_0)
                    v_ko_o = T.axis.reduce(7, ko)
                    v_ki_o = T.axis.reduce(1, 0)
                    for i_1 in T.vectorized(16):
                        with T.block("vdpbf16ps"):
                            ...
    """)


def test_multiply_add():
    s = Checked(matmul(7, 5, 48))
    s.split("j", [None, 16])
    s.reorder("i", "j_0", "k", "j_1")
    s.tensorize("j_1", "fma_16_f32")
    s.becomes("""
        for i, j_0, k in T.grid(7, 3, 5):
            with T.block("C_o"):
                v_i_o, v_j_o, v_k_o = T.axis.remap("SSR", [i, j_0, k])
                with T.init():
                    for j_1_init in range(16):
                        with T.block("C_init"):
                            v_i_i = T.axis.spatial(1, 0)
                            v_j_i = T.axis.spatial(16, j_1_init)
                            C[v_i_o + v_i_i, v_j_o * 16 + v_j_i] = T.float32(0.0)
                for i_1 in T.vectorized(16):
                    with T.block("vfmadd"):
                        vi = T.axis.spatial(16, i_1)
                        C[v_i_o, v_j_o * 16 + vi] = C[v_i_o, v_j_o * 16 + vi] + A[v_i_o, v_k_o] * B[v_k_o, v_j_o * 16 + vi]
    """)


def test_a_block():
    s = Checked(matmul(7, 5, 16))
    s.reorder("i", "k", "j")
    s.blockize("j", preserve_unit_iters=False)
    s.tensorize("C_o", "fma_16_f32")
    s.becomes("""
        for i, k in T.grid(7, 5):
            with T.block("C_o"):
                v_i_o, v_k_o = T.axis.remap("SR", [i, k])
                with T.init():
                    ...
                for i_1 in T.vectorized(16):
                    with T.block("vfmadd"):
                        vi = T.axis.spatial(16, i_1)
                        C[v_i_o, vi] = C[v_i_o, vi] + A[v_i_o, v_k_o] * B[v_k_o, vi]
    """)


@T.prim_func
def row_desc(X: T.Buffer((13,), "float32"), Y: T.Buffer((13,), "float32")):
    for i in range(13):
        with T.block("row"):
            vi = T.axis.spatial(13, i)
            Y[vi] = X[vi] + T.float32(1)


@T.prim_func
def row_impl(X: T.Buffer((13,), "float32"), Y: T.Buffer((13,), "float32")):
    kept = T.alloc_buffer((13,))
    for i in range(13):
        with T.block("keep"):
            vi = T.axis.spatial(13, i)
            kept[vi] = T.float32(1) + X[vi]
    for j in range(13):
        with T.block("give"):
            vj = T.axis.spatial(13, j)
            Y[vj] = kept[vj]


@T.prim_func
def row_wrong(X: T.Buffer((13,), "float32"), Y: T.Buffer((13,), "float32")):
    for i in T.vectorized(13):
        with T.block("row"):
            vi = T.axis.spatial(13, i)
            Y[vi] = X[12 - vi] + T.float32(1)


@pytest.fixture
def row():
    """An intrinsic with a temporary, and a wrong one."""
    TensorIntrin.register("row", row_desc, row_impl)
    TensorIntrin.register("row_wrong", row_desc, row_wrong)
    yield
    del _REGISTERED["row"], _REGISTERED["row_wrong"]


def test_one_of_ones_own(row):
    before = elementwise(7, 13)
    s = Schedule(before)
    s.tensorize("i1", "row")
    assert "kept = T.alloc_buffer((13,))" in s.script
    assert s.get_child_blocks("B_o") == ["keep", "give"]
    well_formed(s.func)
    same_numbers(before, s.func)


def test_programs_with_indices_of_64_bits(row):
    """As models have that are exported with sizes of 64 bits; intrinsics are written with 32."""
    rows = parsed("""
for i, j in T.grid(T.int64(7), T.int64(13)):
    with T.block("B"):
        v_i, v_j = T.axis.remap("SS", [i, j])
        B[v_i, v_j] = A[v_i, v_j] + T.float32(1)
""")
    products = parsed(
        """
for i, j, ko, ki in T.grid(T.int64(7), T.int64(32), T.int64(5), T.int64(4)):
    with T.block("C"):
        v_i, v_j, v_ko, v_ki = T.axis.remap("SSRR", [i, j, ko, ki])
        with T.init():
            C[v_i, v_j] = 0
        C[v_i, v_j] = C[v_i, v_j] + T.Cast("int32", A[v_i, v_ko * T.int64(4) + v_ki]) * T.Cast("int32", B[v_ko, v_j, v_ki])
""",
        'A: T.Buffer((7, 20), "uint8"), B: T.Buffer((5, 32, 4), "int8"), C: T.Buffer((7, 32), "int32")',
    )
    for before, loop, intrinsic in ((rows, lambda s: "j", "row"), (products, tiled, "dot_16x4_vnni")):
        s = Schedule(before)
        s.tensorize(loop(s), intrinsic)
        if before is products:
            s.decompose_reduction("C_o", "ko")
        assert all(x.var.dtype == "int64" for x in loops(s.func)) and 'Cast("int64"' not in s.script
        well_formed(s.func)
        same_numbers(before, s.func)


@T.prim_func
def count_desc(Y: T.Buffer((13,), "int32")):
    for i in range(13):
        Y[i] = Y[i] + i


def test_an_intrinsic_that_computes_with_its_loops_wants_32_bits():
    TensorIntrin.register("count", count_desc, count_desc)
    s = Checked(
        parsed(
            """
for i, j in T.grid(T.int64(7), T.int64(13)):
    with T.block("B"):
        v_i, v_j = T.axis.remap("SS", [i, j])
        B[v_i, v_j] = B[v_i, v_j] + T.Cast("int32", v_j)
""",
            'B: T.Buffer((7, 13), "int32")',
        )
    )
    s.refuses("""
        tensorize('j', 'count'): `count` computes with its loop variables, which have 64 bits here
          hint: convert them where they are no indices: T.Cast('int32', i)
    """)
    del _REGISTERED["count"]


def test_an_implementation_that_is_wrong(row):
    s = Schedule(elementwise(7, 13))
    with pytest.raises(ScheduleError) as caught:
        s.tensorize("i1", "row_wrong")
    assert str(caught.value) == (
        "tensorize('i1', 'row_wrong'): the implementation of `row_wrong` is not what its description says: "
        "`Y[0]` is 3.0 by its description and 1.0 by its implementation\n"
        "  hint: register 'row_wrong' again with desc and impl that agree"
    )


def test_registering(row):
    with pytest.raises(ValueError, match="called 'row' is registered already; override=True replaces it"):
        TensorIntrin.register("row", row_desc, row_impl)
    with pytest.raises(ValueError, match=r"must take the same buffers, got X: float32\[13\], Y: float32\[13\] and A: uint8\[4\]"):
        TensorIntrin.register("other", row_desc, TensorIntrin.get("dot_16x4_vnni").impl)
    foreign = parsed('T.evaluate(T.call_extern("int32", "f", A.data, B.data))')
    with pytest.raises(ValueError, match=r"`impl` has the foreign call `T.call_extern`, and what it does cannot be compared"):
        TensorIntrin.register("other", foreign.with_(body=NOTHING), foreign)
    with pytest.raises(ValueError, match=r"no tensor intrinsic is called 'rows'; registered are .*row, row_wrong"):
        TensorIntrin.get("rows")
    assert TensorIntrin.get("rows", allow_missing=True) is None


@pytest.mark.parametrize(
    "name", ["dot_16x4_vnni", "dot_8x4_s8s8", "dot_16x2_bf16", "amx_16x16x64_s8u8", "amx_16x16x32_bf16", "fma_16_f32"]
)
def test_implementations_compute_their_descriptions(name):
    intrinsic = TensorIntrin.get(name)
    assert intrinsic.difference() is None
    same_numbers(intrinsic.desc, intrinsic.impl)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        tensorize('k', 'dot_8x8'): no tensor intrinsic is called `dot_8x8`
          hint: did you mean `dot_8x4_u8u8`?
    """)
    s = Checked(dot())
    tiled(s)
    s.refuses("""
        tensorize('ki', 'dot_16x4_vnni'): `ki` is not what `dot_16x4_vnni` computes: `ki` runs over 4, not 16
            8 |     for i, j_0, ko, j_1, ki in T.grid(7, 2, 5, 16, 4):
              |                          ^^ compared with it
          hint: split and reorder first, to loops over 16, 4 in this order
    """)
    s = Checked(matmul())
    s.split("j", [None, 16])
    s.reorder("i", "j_0", "k", "j_1")
    s.refuses("""
        tensorize('j_1', 'fma_16_f32'): `j_1` is not what `fma_16_f32` computes: `C` runs only where `v_j_o * 16 + j_1 < 13`
            8 |     for i, j_0, k, j_1 in T.grid(7, 1, 5, 16):
              |                    ^^^ compared with it
          hint: choose factors that divide the extents, peel the loop, or pad_einsum first
    """)
    s = Checked(dot(left="int8"))
    tiled(s)
    s.refuses("""
        tensorize('j_1', 'dot_16x4_vnni'): `j_1` is not what `dot_16x4_vnni` computes: `A` is of int8, but `A` of the description is of uint8
            8 |     for i, j_0, ko, j_1, ki in T.grid(7, 2, 5, 16, 4):
              |                     ^^^ compared with it
          hint: TensorIntrin.register makes an intrinsic known that computes this
    """)
    s = Checked(dot())
    tiled(s, 8)
    s.refuses("""
        tensorize('j_1', 'dot_8x4_pairs_u8s8'): `dot_8x4_pairs_u8s8` needs a block with narrow_pairs=True
            8 |     for i, j_0, ko, j_1, ki in T.grid(7, 4, 5, 8, 4):
              |                     ^^^ without it
          hint: annotate('C', 'narrow_pairs', True) says that it holds
    """)
    s = Checked(elementwise(7, 16))
    s.refuses("""
        tensorize('i1', 'fma_16_f32'): `i1` is not what `fma_16_f32` computes: it has both `B` and `A` for `C` of the description
            8 |     for i0, i1 in T.grid(7, 16):
              |             ^^ compared with it
          hint: TensorIntrin.register makes an intrinsic known that computes this
    """)
    s = Checked(matmul(7, 5, 32))
    s.reorder("i", "k", "j")
    s.refuses("""
        tensorize('j', 'fma_16_f32'): `j` is not what `fma_16_f32` computes: `j` runs over 32, not 16
            8 |     for i, k, j in T.grid(7, 5, 32):
              |               ^ compared with it
          hint: split and reorder first, to loops over 16 in this order
    """)
    s = Checked(strided())
    s.refuses("""
        tensorize('i', 'fma_16_f32'): `i` is not what `fma_16_f32` computes: `C[(v_o * 16 + i) * 2]` is not one window like `C[i]` of the description
            7 |     for i in range(16):
              |     ^^^^^^^^^^^^^^^^^^^ compared with it
          hint: TensorIntrin.register makes an intrinsic known that computes this
    """)
    s = Checked(aliased())
    s.refuses("""
        tensorize('i', 'fma_16_f32'): `C` would be both `C` of `fma_16_f32`, which it writes, and `B`
            7 |     for i in range(16):
              |     ^^^^^^^^^^^^^^^^^^^ uses one buffer twice
          hint: cache_read or cache_write makes a copy for one of the two
    """)


def test_a_place_in_tiles_is_a_window_for_the_loops_inside():
    """j_0 * 16 + j_1 lies in tile j_0: the quotient does not move with j_1, which is below 16."""
    s = Schedule(matmul(7, 5, 32))
    copy = s.cache_write("C", 0, "global")
    s.transform_layout("C", ("write", 0), "lambda i, j: (i, j // 16, j % 16)")
    outer, inner = s.split("j", [None, 16])
    s.reorder("i", outer, "k", inner)
    before = s.func
    s.tensorize(inner, "fma_16_f32")
    assert copy in s.script
    same_numbers(before, s.func)
