import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain, matmul, relu_of_matmul, stencil
from tests.schedule.harness import Checked, same_numbers
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, seq
from tir.script import parse


def test_of_a_parameter_comes_first():
    s = Checked(matmul())
    assert s.cache_read("C", 0, "local") == "A_local"
    s.becomes("""
        A_local = T.alloc_buffer((7, 5), scope="local")
        for ax0, ax1 in T.grid(7, 5):
            with T.block("A_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_local[v0, v1] = A[v0, v1]
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A_local[v_i, v_k] * B[v_k, v_j]
    """)


def test_of_a_temporary_comes_after_its_writer():
    s = Checked(chain())
    assert s.cache_read("C", "B", "shared.dyn") == "B_shared_dyn"
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        B_shared_dyn = T.alloc_buffer((7, 13), scope="shared.dyn")
        for i, j in T.grid(7, 13):
            ...
        for ax0, ax1 in T.grid(7, 13):
            with T.block("B_shared_dyn"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B_shared_dyn[v0, v1] = B[v0, v1]
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B_shared_dyn[v_i, v_j] * T.float32(3.0)
    """)


def test_names_that_are_taken():
    before = matmul()
    s = Schedule(before)
    assert s.cache_read("C", "A", "local") == "A_local"
    assert s.cache_read("C", "A_local", "local") == "A_local_local"
    assert s.cache_read("C", "B", "local") == "B_local"
    again = Schedule(before)
    again.cache_read("C", 0, "local")
    assert again.cache_read("A_local", 0, "local") == "A_local_1"
    same_numbers(before, s.func)
    same_numbers(before, again.func)


def test_only_some_consumers():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: A[6 - i] * 3.0, name="C")
    s = Checked(te.create_prim_func([A, B, C]))
    s.cache_read("C", 0, "local", ["C"])
    s.becomes("""
        A_local = T.alloc_buffer((7,), scope="local")
        for ax0 in range(7):
            with T.block("A_local"):
                v0 = T.axis.spatial(7, ax0)
                A_local[v0] = A[v0]
        for i in range(7):
            with T.block("B"):
                v_i = T.axis.spatial(7, i)
                B[v_i] = A[v_i] + T.float32(1.0)
        for i_1 in range(7):
            with T.block("C"):
                v_i = T.axis.spatial(7, i_1)
                C[v_i] = A_local[6 - v_i] * T.float32(3.0)
    """)


def test_inside_loops_shared_with_the_writer():
    s = Checked(stencil())
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.compute_at("P", io)
    s.cache_read("C", "P", "local")
    s.becomes("""
        B = T.alloc_buffer((13,))
        P = T.alloc_buffer((15,))
        P_local = T.alloc_buffer((15,), scope="local")
        for i in range(13):
            ...
        for i_2_0 in range(4):
            for ax0 in range(6):
                ...
            for ax0_1 in range(6):
                with T.block("P_local"):
                    v0 = T.axis.spatial(15, i_2_0 * 4 + ax0_1)
                    T.where(i_2_0 * 4 + ax0_1 < 15)
                    P_local[v0] = P[v0]
            for i_2_1 in range(4):
                with T.block("C"):
                    v_i = T.axis.spatial(13, i_2_0 * 4 + i_2_1)
                    T.where(i_2_0 * 4 + i_2_1 < 13)
                    C[v_i] = P_local[v_i] + P_local[v_i + 1] + P_local[v_i + 2]
    """)


def test_then_placed_at_a_tile_loop():
    s = Checked(matmul(7, 109, 13))
    i, j, k = s.get_loops("C")
    jo, ji = s.split(j, [None, 4])
    ko, ki = s.split(k, [None, 16])
    s.reorder(jo, ko, i, ki, ji)
    s.cache_read("C", "B", "local")
    s.compute_at("B_local", ko)
    s.becomes("""
        B_local = T.alloc_buffer((109, 13), scope="local")
        for j_0, k_0 in T.grid(4, 7):
            for ax0, ax1 in T.grid(16, 4):
                with T.block("B_local"):
                    v0 = T.axis.spatial(109, k_0 * 16 + ax0)
                    v1 = T.axis.spatial(13, j_0 * 4 + ax1)
                    T.where(k_0 * 16 + ax0 < 109 and j_0 * 4 + ax1 < 13)
                    B_local[v0, v1] = B[v0, v1]
            for i, k_1, j_1 in T.grid(7, 16, 4):
                with T.block("C"):
                    ...
    """)


def test_inside_another_block_only_what_is_read_there():
    before = parse(
        """
        @T.prim_func
        def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")):
            for i in range(7):
                with T.block("row"):
                    v_i = T.axis.spatial(7, i)
                    for j in range(9):
                        with T.block("B"):
                            v_j = T.axis.spatial(9, j)
                            B[v_i, v_j] = A[6 - v_i, v_j + 4] * T.float32(2.0)
        """
    )
    s = Checked(before)
    s.cache_read("B", 0, "local")
    s.becomes("""
        for i in range(7):
            with T.block("row"):
                v_i = T.axis.spatial(7, i)
                A_local = T.alloc_buffer((7, 13), scope="local")
                for ax0 in range(9):
                    with T.block("A_local"):
                        v0 = T.axis.spatial(7, 6 - v_i)
                        v1 = T.axis.spatial(13, ax0 + 4)
                        A_local[v0, v1] = A[v0, v1]
                for j in range(9):
                    with T.block("B"):
                        v_j = T.axis.spatial(9, j)
                        B[v_i, v_j] = A_local[6 - v_i, v_j + 4] * T.float32(2.0)
    """)


def test_scalar():
    A = te.placeholder((), name="A")
    B = te.compute((7,), lambda i: A[()] + i.astype("float32"), name="B")
    s = Checked(te.create_prim_func([A, B]))
    s.cache_read("B", 0, "local")
    s.becomes("""
        A_local = T.alloc_buffer((), scope="local")
        with T.block("A_local"):
            A_local[()] = A[()]
        for i in range(7):
            with T.block("B"):
                v_i = T.axis.spatial(7, i)
                B[v_i] = A_local[()] + T.Cast("float32", v_i)
    """)


def test_refuses_unknown_buffers():
    s = Checked(matmul())
    s.refuses("""
        cache_read('C', 2, 'local'): `C` reads 2 buffer(s), `A` and `B`: number 2 does not exist
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: numbers start at 0; a name does as well
    """)
    s.refuses("""
        cache_read('C', 'C', 'local'): `C` reads no buffer called `C`, but `A` and `B`
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads `A` and `B`
    """)
    s.refuses("""
        cache_read('C', 0, 'two words'): no storage scope is named 'two words'; there are: global, shared, shared.dyn, \
shared.swizzled, warp, local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator
    """)


def test_refuses_unknown_consumers():
    s = Checked(relu_of_matmul())
    s.refuses("""
        cache_read('D', 0, 'local', ['C']): `C` also writes `C`, so it cannot read a copy
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads and writes C
          hint: cache_write gives the block that makes `C` a copy to read and to write
    """)
    s.refuses("""
        cache_read('D', 0, 'local', []): `consumer_blocks` is empty; leave it out for all blocks that read the buffer
    """)


def in_place() -> PrimFunc:
    """A[i] = A[i] + 1."""
    A, v = Buffer("A", (Const(7),)), Var("v")
    block = Block("A", (Iter(v, Const(7), Axis.SPATIAL, Var("i")),), Store(A, (v,), A[v] + 1.0))
    return PrimFunc("main", (A,), For(Var("i"), Const(7), block))


def test_refuses_a_consumer_that_writes():
    Checked(in_place()).refuses("""
        cache_read('A', 0, 'local'): `A` also writes `A`, so it cannot read a copy
            8 |         with T.block("A"):
              |         ^^^^^^^^^^^^^^^^^^ reads and writes A
          hint: cache_write gives the block that makes `A` a copy to read and to write
    """)


def overwritten() -> PrimFunc:
    """B[i] = A[i]; A[i] = 0; C[i] = A[i]."""
    A, B, C = (Buffer(n, (Const(7),)) for n in "ABC")
    v = Var("v")

    def nest(name: str, loop: str, target: Buffer, value) -> For:
        return For(Var(loop), Const(7), Block(name, (Iter(v, Const(7), Axis.SPATIAL, Var(loop)),), Store(target, (v,), value)))

    body = seq(nest("B", "i", B, A[v]), nest("Z", "j", A, Const(0.0, "float32")), nest("C", "k", C, A[v]))
    return PrimFunc("main", (A, B, C), body)


def test_a_writer_between_the_consumers():
    s = Checked(overwritten())
    s.refuses("""
        cache_read('C', 0, 'local', ['B', 'C']): `Z` writes `A` while `B` reads it already, so it cannot be copied in between
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
            9 |             v = T.axis.spatial(7, i)
           10 |             B[v] = A[v]
           11 |     for j in range(7):
           12 |         with T.block("Z"):
              |         ^^^^^^^^^^^^^^^^^^ writes A
          hint: name in consumer_blocks only what stands after the last writer
    """)
    s.cache_read("C", 0, "local")  # what stands before the writer goes on reading `A`
    assert s.script.count("A_local[") == 2 and "B[v] = A[v]" in s.script
    same_numbers(overwritten(), s.func)


def test_a_reader_in_the_loops_of_the_writer_reads_on():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] + 1.0, name="C")
    D = te.compute((7, 13), lambda i, j: B[i, j] + 2.0, name="D")
    before = Schedule(te.create_prim_func([A, C, D]))
    before.reverse_compute_at("C", "i")
    s = Checked(before.func)
    s.cache_read("D", 0, "local")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        B_local = T.alloc_buffer((7, 13), scope="local")
        for i in range(7):
            ...
        for ax0_1, ax1 in T.grid(7, 13):
            with T.block("B_local"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1])
                B_local[v0, v1] = B[v0, v1]
        for i_2, j_2 in T.grid(7, 13):
            with T.block("D"):
                v_i, v_j = T.axis.remap("SS", [i_2, j_2])
                D[v_i, v_j] = B_local[v_i, v_j] + T.float32(2.0)
    """)


def advancing() -> PrimFunc:
    """for i: X[0] = A[i]; B[i] = X[0]; X[0] = B[i]: X is written again in each iteration after it is read."""
    A, B, X = (Buffer(n, (Const(e),)) for n, e in (("A", 7), ("B", 7), ("X", 1)))
    i, v = Var("i"), Var("v")
    it = (Iter(v, Const(7), Axis.SPATIAL, i),)
    body = seq(
        Block("X", it, Store(X, (Const(0),), A[v])),
        Block("B", it, Store(B, (v,), X[0])),
        Block("Y", it, Store(X, (Const(0),), B[v])),
    )
    return PrimFunc("main", (A, B), For(i, Const(7), body), (X,))


def test_refuses_a_buffer_that_is_written_again_in_the_loop():
    Checked(advancing()).refuses("""
        cache_read('B', 0, 'local'): `Y` writes `X` again before the next iteration of `i` reads it
            8 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ around both
            9 |         with T.block("X"):
           10 |             v = T.axis.spatial(7, i)
           11 |             X[0] = A[v]
           12 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads X
           13 |             v = T.axis.spatial(7, i)
           14 |             B[v] = X[0]
           15 |         with T.block("Y"):
              |         ^^^^^^^^^^^^^^^^^^ writes X
          hint: stage_mem('B', 'X', ...) copies it right before `B`
    """)


def test_a_place_that_is_read_from_a_temporary_is_not_copied_alone():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((7,), "float32"), C: T.Buffer((5,), "float32")):
            places = T.alloc_buffer((5,), "int32")
            for i in range(5):
                with T.block("places"):
                    v_i = T.axis.spatial(5, i)
                    places[v_i] = v_i + 1
                with T.block("C"):
                    v_i = T.axis.spatial(5, i)
                    C[v_i] = A[places[v_i]]
    """)
    s.cache_read("C", "A", "local")
    s.compute_at("A_local", "i")
    s.becomes("""
        places = T.alloc_buffer((5,), "int32")
        A_local = T.alloc_buffer((7,), scope="local")
        for i in range(5):
            with T.block("places"):
                ...
            for ax0 in range(7):
                with T.block("A_local"):
                    ...
            with T.block("C"):
                ...
    """)


READ_TWICE = """
@T.prim_func
def main(B: T.Buffer((24,), "float32"), C: T.Buffer((24,), "float32")):
    A = T.alloc_buffer((24,))
    for i in range(8):
        for j in range(3):
            with T.block("A"):
                v = T.axis.spatial(24, i * 3 + j)
                A[v] = T.float32(1)
        for j in range(3):
            with T.block("B"):
                v = T.axis.spatial(24, i * 3 + j)
                B[v] = A[v] + T.float32(1)
    for i in range(24):
        with T.block("C"):
            v = T.axis.spatial(24, i)
            C[v] = A[v]
"""


def test_consumers_behind_the_loops_of_the_copy():
    """Once all iterations have copied, the copy is whole."""
    s = Checked(parse(READ_TWICE))
    s.cache_read("B", 0, "local", ["B", "C"])
    s.becomes("""
        A = T.alloc_buffer((24,))
        A_local = T.alloc_buffer((24,), scope="local")
        for i in range(8):
            for j in range(3):
                ...
            for ax0 in range(3):
                with T.block("A_local"):
                    v0 = T.axis.spatial(24, i * 3 + ax0)
                    A_local[v0] = A[v0]
            for j_1 in range(3):
                with T.block("B"):
                    v = T.axis.spatial(24, i * 3 + j_1)
                    B[v] = A_local[v] + T.float32(1.0)
        for i_1 in range(24):
            with T.block("C"):
                v = T.axis.spatial(24, i_1)
                C[v] = A_local[v]
    """)


def test_refuses_consumers_behind_that_read_what_is_not_copied():
    again = (
        READ_TWICE
        + """
    for i in range(24):
        with T.block("D"):
            v = T.axis.spatial(24, i)
            A[v] = T.float32(3)
    for i in range(24):
        with T.block("E"):
            v = T.axis.spatial(24, i)
            C[v] = A[v]
"""
    )
    for text, consumers in ((READ_TWICE.replace("A[v] + T.float32(1)", "A[v // 2 * 2]"), ["B", "C"]), (again, ["B", "E"])):
        s = Schedule(parse(text))
        with pytest.raises(ScheduleError, match="reads it already, so it cannot be copied in between"):
            s.cache_read("B", 0, "local", consumers)
        assert not s.trace


def test_inside_of_a_block_nothing_that_other_instances_write():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((5,)), C: T.Buffer((5,))):
            B = T.alloc_buffer((5,))
            for i in range(5):
                with T.block("C"):
                    vi = T.axis.spatial(5, i)
                    B[vi] = A[vi] + T.float32(1)
                    for k in range(2):
                        with T.block("D"):
                            v = T.axis.spatial(5, vi + k)
                            T.where(k < 1)
                            C[v] = B[v]
    """)
    s.refuses("""
        cache_read('D', 'B', 'local'): the copy of `B` would have more than an iteration of `C` reads of it: the spatial axes \
of block `C` are not: vi=1 writes B[1], and vi=0 reads it too
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the enclosing block
           10 |             vi = T.axis.spatial(5, i)
           11 |             B[vi] = A[vi] + T.float32(1.0)
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ writes B
          hint: do this before blockize
    """)
